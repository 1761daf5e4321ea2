// The native core: receives, acknowledges and sends by the exported methods of the C++ client. `core.py` decides
// whether it is used.
//
// It assumes that a Message, a MessageBuilder and a MessageId are one shared pointer each, the names and signatures of
// the methods in `Client`, and where an object of the Python binding has the address of its C++ object. core.py proves
// these assumptions first. Objects of other types are read by calling their Python methods. Only calls to a Consumer or
// a Reader may block; they release the GIL.
//
// It uses CPython's stable ABI of 3.11, so that one wheel serves all later versions.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <ostream>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

struct MessageImpl;
struct MessageIdImpl;
struct Consumer;
struct Reader;
using Text = std::string;
using Part = std::string_view;
using Properties = std::map<Text, Text>;
using MessageId = std::shared_ptr<MessageIdImpl>;
using Message = std::shared_ptr<MessageImpl>;
using MessageBuilder = std::shared_ptr<MessageImpl>;

// Methods of the C++ client. Each takes its object as the first argument, as in the C++ ABI of Linux; the last is
// static, and show() is an operator.
struct Client {
    const char* (*data)(const Message*);
    std::size_t (*length)(const Message*);
    const Text& (*partition_key)(const Message*);
    const Text& (*ordering_key)(const Message*);
    const Properties& (*properties)(const Message*);
    const Text& (*topic_name)(const Message*);
    const Text& (*producer_name)(const Message*);
    std::uint64_t (*publish_timestamp)(const Message*);
    std::uint64_t (*event_timestamp)(const Message*);
    int (*redelivery_count)(const Message*);
    bool (*has_null_value)(const Message*);
    const MessageId& (*message_id)(const Message*);
    std::int64_t (*ledger_id)(const MessageId*);
    std::int64_t (*entry_id)(const MessageId*);
    std::int32_t (*partition)(const MessageId*);
    std::int32_t (*batch_index)(const MessageId*);
    std::int32_t (*batch_size)(const MessageId*);
    void (*serialize)(const MessageId*, Text&);
    std::ostream& (*show)(std::ostream&, const Message&);
    int (*receive)(Consumer*, Message&, int milliseconds);
    int (*read_next)(Reader*, Message&, int milliseconds);
    int (*acknowledge)(Consumer*, const MessageId&);
    MessageBuilder& (*set_content)(MessageBuilder*, Text&&);
    Message (*message_of_batch)(Message& batch, int index, int size, const std::shared_ptr<void>& acker);
} client;

struct Symbol {
    void** method;
    const char* name;
};

template <typename Method>
Symbol symbol(Method& method, const char* name) {
    return {reinterpret_cast<void**>(&method), name};
}

PyTypeObject* message_type = nullptr;  // Message
PyTypeObject* id_type = nullptr;       // Id
PyTypeObject* received_type = nullptr; // Received
PyTypeObject* block_type = nullptr;    // Block
PyTypeObject* items_type = nullptr;    // Items
PyTypeObject* group_type = nullptr;    // Group
PyTypeObject* pending_type = nullptr;  // Pending
PyTypeObject* sequence_type = nullptr;  // Sequence
PyTypeObject* dispatch_type = nullptr; // Dispatch
PyTypeObject* joiner_type = nullptr;   // Joiner
PyObject* no_bytes = nullptr;

// Set by begin() and make_ids().
PyTypeObject* bound_message = nullptr;     // the binding's class Message
PyTypeObject* bound_message_id = nullptr;  // the binding's class MessageId
PyTypeObject* bound_consumer = nullptr;    // the binding's class Consumer
PyObject* any_message = nullptr;           // returns a binding's message, to be replaced
PyObject* empty_batch = nullptr;           // returns the first message of a batch of n empty messages
PyObject* raise_result = nullptr;          // raises the error of a result code
int timeout = 0;                           // the result code of a receive without a message
PyTypeObject* id_class = nullptr;          // the class of message ids; a subclass of Id
PyObject* id_slowly = nullptr;             // returns the id of any message, chunked ones included

// -- objects of the binding ------------------------------------------------------------------------------------------

// Returns the C++ object of a binding's object, whose address follows the object header; nullptr if there is none.
template <typename Object>
Object* object_in(PyObject* bound, PyTypeObject* type) {
    if (bound == nullptr || Py_TYPE(bound) != type) return nullptr;
    return *reinterpret_cast<Object**>(reinterpret_cast<char*>(bound) + sizeof(PyObject));
}

template <typename Shared>
Shared* shared_in(PyObject* bound, PyTypeObject* type) {
    auto* found = object_in<Shared>(bound, type);
    return found != nullptr && *found ? found : nullptr;
}

// Returns the thread state that holds the GIL, if it is this thread's: `_PyThreadState_UncheckedGet`.
void* (*current_state)() = [] { return static_cast<void*>(nullptr); };

// Owns a new reference or nullptr. When the interpreter ends, CPython unwinds the stack of a thread that waits for the
// GIL, and calls this destructor without the GIL; then the reference is leaked.
struct Owned {
    explicit Owned(PyObject* object) : object(object), state(current_state()) {}
    ~Owned() {
        if (object != nullptr && current_state() == state) Py_DECREF(object);
    }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    PyObject* object;
    void* state;
};

// Keeps an object alive while it is read: an allocation may start a garbage collection, which may run any code.
struct Kept : Owned {
    explicit Kept(PyObject* object) : Owned(object) { Py_XINCREF(object); }
};

PyObject* text_of(const Text& text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
}

PyObject* bytes_of(const MessageId& id) {
    Text octets;
    client.serialize(&id, octets);
    return PyBytes_FromStringAndSize(octets.data(), static_cast<Py_ssize_t>(octets.size()));
}

PyObject* order_of(const MessageId& id) {
    return Py_BuildValue("(LLii)", static_cast<long long>(client.ledger_id(&id)),
                         static_cast<long long>(client.entry_id(&id)), client.partition(&id), client.batch_index(&id));
}

void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

// The functions by which the garbage collector handles a type with these object members.
template <typename Self, PyObject* Self::*... members>
struct Collected {
    static int traverse(PyObject* object, visitproc visit, void* arg) {
        auto* self = reinterpret_cast<Self*>(object);
        for (PyObject* each : {reinterpret_cast<PyObject*>(Py_TYPE(object)), self->*members...}) Py_VISIT(each);
        return 0;
    }

    static int clear(PyObject* object) {
        auto* self = reinterpret_cast<Self*>(object);
        for (PyObject* each : {std::exchange(self->*members, nullptr)...}) Py_XDECREF(each);
        return 0;
    }

    static void dealloc(PyObject* object) {
        PyObject_GC_UnTrack(object);
        clear(object);
        release(reinterpret_cast<Self*>(object));
        free_object(object);
    }
};

// Releases what is not an object: another overload for a type that has it.
void release(void*) {}

// Calls a function that may throw.
template <typename Function>
PyObject* guarded(Function function) {
    try {
        return function();
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_SystemError, error.what());
        return nullptr;
    }
}

// Releases the GIL. Its destructor may unwind the stack, see `Owned`.
struct Released {
    Released() : state(PyEval_SaveThread()) {}
    ~Released() noexcept(false) { PyEval_RestoreThread(state); }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;
    PyThreadState* state;
};

// -- ids -------------------------------------------------------------------------------------------------------------

// Optional C++ object inside a Python object, whose memory is zeroed at first: empty.
template <typename Shared>
struct Holder {
    bool is_full;
    alignas(Shared) unsigned char memory[sizeof(Shared)];

    Shared& held() { return *std::launder(reinterpret_cast<Shared*>(memory)); }

    void hold(Shared shared) {
        let_go();
        new (memory) Shared(std::move(shared));
        is_full = true;
    }

    void let_go() {
        if (is_full) held().~Shared();
        is_full = false;
    }
};

// The numbers of an id without chunks, all >= 0 or unset.
struct Numbers {
    std::int64_t ledger, entry, partition = -1, batch_index = -1, batch_size = 0;

    // Parses bytes; returns false unless the C++ client would write the same bytes.
    bool read(PyObject* bytes) {
        *this = {};
        char* at;
        Py_ssize_t size;
        if (bytes == nullptr || !PyBytes_CheckExact(bytes)) return false;
        if (PyBytes_AsStringAndSize(bytes, &at, &size) != 0) return false;
        const char* const end = at + size;
        return next(at, end, 0x08, 63, ledger) && next(at, end, 0x10, 63, entry) &&
               (at == end || *at != 0x18 || next(at, end, 0x18, 31, partition)) &&
               (at == end || *at != 0x20 || next(at, end, 0x20, 31, batch_index)) &&
               (at == end || next(at, end, 0x30, 31, batch_size)) && at == end;
    }

    // Reads a varint of at most `bits` bits after its tag.
    static bool next(char*& at, const char* end, char tag, int bits, std::int64_t& value) {
        if (at == end || *at++ != tag) return false;
        std::uint64_t found = 0;
        for (int shift = 0; at != end && shift < bits; shift += 7) {
            const auto octet = static_cast<unsigned char>(*at++);
            found |= static_cast<std::uint64_t>(octet & 0x7F) << shift;
            if (octet < 0x80) {
                value = static_cast<std::int64_t>(found);
                return found >> bits == 0;
            }
        }
        return false;
    }
};

struct Id {
    PyObject_HEAD
    PyObject* inner;  // the binding's object; created on first use
    PyObject* order;  // ledger, entry, partition, batch index
    PyObject* data;   // the id's bytes
    PyObject* topic;
    Holder<MessageId> id;  // of a received message; ids of a batch share the record of acknowledged messages
    bool is_sent;          // of a sent message, with these numbers
    Numbers numbers;
};

PyMemberDef id_members[] = {
    {"inner", T_OBJECT_EX, offsetof(Id, inner), 0, nullptr},
    {"_batch_size", T_LONGLONG, offsetof(Id, numbers) + offsetof(Numbers, batch_size), 0, nullptr},
    {"_data", T_OBJECT, offsetof(Id, data), 0, nullptr},
    {"_topic", T_OBJECT, offsetof(Id, topic), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

// Getter of `_order`: the numbers of a received or sent message, or those in the bytes; None if unknown.
PyObject* order(PyObject* object, void*) {
    auto* self = reinterpret_cast<Id*>(object);
    Numbers numbers = self->numbers;
    if (self->order == nullptr && (self->id.is_full || self->is_sent || numbers.read(self->data))) {
        PyObject* made = self->id.is_full ? order_of(self->id.held())
                                          : Py_BuildValue("(LLii)", static_cast<long long>(numbers.ledger),
                                                          static_cast<long long>(numbers.entry),
                                                          static_cast<int>(numbers.partition),
                                                          static_cast<int>(numbers.batch_index));
        if (made == nullptr) return nullptr;
        if (self->order == nullptr) std::swap(self->order, made);  // else a garbage collection has set it
        Py_XDECREF(made);
    }
    return Py_NewRef(self->order == nullptr ? Py_None : self->order);
}

int set_order(PyObject* object, PyObject* order, void*) {
    auto* self = reinterpret_cast<Id*>(object);
    PyObject* before = self->order;
    self->order = order == nullptr || order == Py_None ? nullptr : Py_NewRef(order);
    Py_XDECREF(before);
    return 0;
}

// Returns a number of an id: `place` is its index in the order and in the names of the binding's methods.
template <int place>
PyObject* number(PyObject* object, PyObject*) {
    constexpr const char* names[] = {"ledger_id", "entry_id", "partition", "batch_index"};
    auto* self = reinterpret_cast<Id*>(object);
    if (self->order == nullptr && self->id.is_full) {
        const MessageId* id = &self->id.held();
        return PyLong_FromLongLong(place == 0   ? client.ledger_id(id)
                                   : place == 1 ? client.entry_id(id)
                                   : place == 2 ? client.partition(id)
                                                : client.batch_index(id));
    }
    PyObject* numbers = order(object, nullptr);
    PyObject* found = nullptr;
    if (numbers != nullptr && numbers != Py_None) {
        found = PySequence_GetItem(numbers, place);
    } else if (PyObject* bound = numbers == nullptr ? nullptr : PyObject_GetAttrString(object, "inner")) {
        found = PyObject_CallMethod(bound, names[place], nullptr);
        Py_DECREF(bound);
    }
    Py_XDECREF(numbers);
    return found;
}

PyMethodDef id_methods[] = {
    {"ledger_id", number<0>, METH_NOARGS, "ledger_id($self)\n--\n\nReturn its ledger; -1 in `MessageId.earliest`."},
    {"entry_id", number<1>, METH_NOARGS, "entry_id($self)\n--\n\nReturn its entry in the ledger."},
    {"partition", number<2>, METH_NOARGS, "partition($self)\n--\n\nReturn the partition's index; -1 if there is none."},
    {"batch_index", number<3>, METH_NOARGS, "batch_index($self)\n--\n\nReturn its place in its batch; -1 if none."},
    {nullptr, nullptr, 0, nullptr},
};

// plain_id(bytes): return the id of bytes that the C++ client would write for a message without chunks, else None.
PyObject* plain_id(PyObject*, PyObject* bytes) {
    Numbers numbers;
    if (!numbers.read(bytes)) Py_RETURN_NONE;
    PyObject* made = PyType_GenericAlloc(id_class, 0);
    if (made != nullptr) reinterpret_cast<Id*>(made)->data = Py_NewRef(bytes);
    return made;
}

PyGetSetDef id_attributes[] = {{"_order", order, set_order, nullptr, nullptr}, {}};

using IdMembers = Collected<Id, &Id::inner, &Id::order, &Id::data, &Id::topic>;

void release(Id* self) { self->id.let_go(); }

Id* holding(PyObject* object) {
    auto* self = PyObject_TypeCheck(object, id_type) ? reinterpret_cast<Id*>(object) : nullptr;
    return self != nullptr && self->id.is_full ? self : nullptr;
}

// held(id): return the binding's object of the C++ id that an id holds, or None.
PyObject* held(PyObject*, PyObject* object) {
    Id* self = holding(object);
    if (self == nullptr) Py_RETURN_NONE;
    PyObject* bound = PyObject_CallFunction(reinterpret_cast<PyObject*>(bound_message_id), "iiii", -1, -1, -1, -1);
    if (auto* id = shared_in<MessageId>(bound, bound_message_id)) {
        *id = self->id.held();
    } else if (bound != nullptr) {
        Py_CLEAR(bound);
        PyErr_SetString(PyExc_SystemError, "an id of the binding without a C++ id");
    }
    return bound;
}

// serialized(id): return the bytes of the C++ id that an id holds, or None.
PyObject* serialized(PyObject*, PyObject* object) {
    Id* self = holding(object);
    if (self == nullptr) Py_RETURN_NONE;
    return guarded([&] { return bytes_of(self->id.held()); });
}

// -- messages --------------------------------------------------------------------------------------------------------

struct Msg {
    PyObject_HEAD
    PyObject* inner;  // the binding's object; of a drained message created on first use
    Holder<Message> message;  // of a drained message; kept even if `inner` is replaced
    bool is_another, is_highest;
};

// Returns the C++ message; nullptr if there is none, or if `inner` has another type.
const Message* message_in(Msg* self) {
    if (self->message.is_full && !self->is_another) return &self->message.held();
    return shared_in<const Message>(self->inner, bound_message);
}

// A new object of the binding with a C++ message, which lives longer than this.
PyObject* bound_to(const Message& message) {
    PyObject* bound = PyObject_CallNoArgs(any_message);
    if (auto* held = shared_in<Message>(bound, bound_message)) *held = message;
    return bound;
}

PyObject* inner(PyObject* object, void*) {
    auto* self = reinterpret_cast<Msg*>(object);
    if (self->inner == nullptr && self->message.is_full && !self->is_another) {
        PyObject* bound = bound_to(self->message.held());
        if (bound == nullptr) return nullptr;
        if (self->inner == nullptr) std::swap(self->inner, bound);  // else a garbage collection has set it
        Py_XDECREF(bound);
    }
    if (self->inner != nullptr) return Py_NewRef(self->inner);
    PyErr_SetString(PyExc_AttributeError, "inner");
    return nullptr;
}

int set_inner(PyObject* object, PyObject* bound, void*) {
    auto* self = reinterpret_cast<Msg*>(object);
    PyObject* before = self->inner;
    self->inner = bound == nullptr ? nullptr : Py_NewRef(bound);
    self->is_another = true;
    Py_XDECREF(before);
    return 0;
}

PyGetSetDef message_attributes[] = {{"inner", inner, set_inner, nullptr, nullptr}, {}};

PyMemberDef message_members[] = {{"_is_highest_", T_BOOL, offsetof(Msg, is_highest), READONLY, nullptr}, {}};

using MessageMembers = Collected<Msg, &Msg::inner>;

void release(Msg* self) { self->message.let_go(); }

template <typename Read>
PyObject* read(PyObject* object, const char* name, Read read_field) {
    auto* self = reinterpret_cast<Msg*>(object);
    Kept bound(self->inner);
    if (const auto* message = message_in(self)) return read_field(message);
    if (bound.object != nullptr) return PyObject_CallMethod(bound.object, name, nullptr);
    PyErr_SetString(PyExc_AttributeError, "inner");
    return nullptr;
}

Msg* new_message(PyObject* cls) {
    if (cls != nullptr && PyType_Check(cls) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), message_type)) {
        return reinterpret_cast<Msg*>(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(cls), 0));
    }
    PyErr_SetString(PyExc_TypeError, "not a subclass of Message");
    return nullptr;
}

// hold(class of messages, binding's message): return a message with the same C++ message, as drain() does.
PyObject* hold(PyObject*, PyObject* args) {
    PyObject *cls, *bound;
    if (!PyArg_ParseTuple(args, "OO!", &cls, bound_message, &bound)) return nullptr;
    Msg* made = new_message(cls);
    const auto* message = shared_in<const Message>(bound, bound_message);
    if (made != nullptr && message != nullptr) made->message.hold(*message);
    return reinterpret_cast<PyObject*>(made);
}

// wrap(class of messages, list of the binding's messages): return a list of messages, each with one of them.
PyObject* wrap(PyObject*, PyObject* args) {
    PyObject *cls, *bound;
    if (!PyArg_ParseTuple(args, "OO!", &cls, &PyList_Type, &bound)) return nullptr;
    PyObject* made = PyList_New(PyList_Size(bound));
    for (Py_ssize_t at = 0; made != nullptr && at < PyList_Size(made); ++at) {
        Msg* one = new_message(cls);
        if (one != nullptr) one->inner = Py_XNewRef(PyList_GetItem(bound, at));
        if (one == nullptr || one->inner == nullptr) Py_CLEAR(made);
        if (made != nullptr) PyList_SetItem(made, at, reinterpret_cast<PyObject*>(one));
    }
    return made;
}

// -- receiving -------------------------------------------------------------------------------------------------------

using Place = std::tuple<std::int64_t, std::int64_t, int>;  // ledger, entry, batch index

// What a consumer has received, in the order of its C++ consumer's queue.
struct Received {
    PyObject_HEAD
    PyObject *message_class, *native_wait;
    Py_ssize_t unnoted;                // number of running waits, whose messages are not noted yet
    std::map<Text, Place>* highest;  // by topic or partition
};

PyMemberDef received_members[] = {
    {"message_class", T_OBJECT_EX, offsetof(Received, message_class), 0, nullptr},
    {"native_wait", T_OBJECT_EX, offsetof(Received, native_wait), 0, nullptr},
    {"unnoted", T_PYSSIZET, offsetof(Received, unnoted), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

using ReceivedMembers = Collected<Received, &Received::message_class, &Received::native_wait>;

void release(Received* self) { delete std::exchange(self->highest, nullptr); }

// Notes a received message; returns whether it is above all messages of its topic that were received before.
bool note(Received* self, const Message& message) {
    const MessageId& id = client.message_id(&message);
    const Place place{client.ledger_id(&id), client.entry_id(&id), client.batch_index(&id)};
    if (self->highest == nullptr) self->highest = new std::map<Text, Place>;
    const auto [known, is_first] = self->highest->try_emplace(client.topic_name(&message), place);
    const bool is_highest = is_first || place > known->second;
    if (is_highest) known->second = place;
    return is_highest && self->unnoted == 0;
}

// note(binding's message): note a received message, and return it as one of ours.
PyObject* note_bound(PyObject* object, PyObject* bound) {
    return guarded([&] {
        auto* self = reinterpret_cast<Received*>(object);
        const auto* message = shared_in<const Message>(bound, bound_message);
        const bool is_highest = message != nullptr && note(self, *message);  // first: a new object may let other threads run
        Msg* made = new_message(self->message_class);
        if (made != nullptr) {
            made->inner = Py_NewRef(bound);
            made->is_highest = is_highest;
        }
        return reinterpret_cast<PyObject*>(made);
    });
}

// wait_noted(milliseconds): return the message that `native_wait` returns.
PyObject* wait_noted(PyObject* object, PyObject* milliseconds) {
    auto* self = reinterpret_cast<Received*>(object);
    Kept wait(self->native_wait);
    if (wait.object == nullptr) return PyErr_Format(PyExc_AttributeError, "native_wait");
    ++self->unnoted;
    Owned bound(PyObject_CallFunctionObjArgs(wait.object, milliseconds, nullptr));
    --self->unnoted;
    return bound.object == nullptr ? nullptr : note_bound(object, bound.object);
}

PyMethodDef received_methods[] = {
    {"note", note_bound, METH_O, nullptr},
    {"wait_noted", wait_noted, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// A pause of take(), in which more messages arrive: to take them one by one as they arrive would block the threads that
// put them into the queue.
constexpr std::chrono::microseconds pause{500};

// Takes messages from a C++ object: at most `most`, and none after the one with which they have `most_bytes`. It waits up
// to `milliseconds` for the first one, and up to `pauses` pauses in all for the others. Returns the last read's result.
template <typename Read>
int take(std::vector<Message>& found, Read read_one, Py_ssize_t most, Py_ssize_t most_bytes, int milliseconds,
         int pauses) {
    Released released;
    int result = 0;
    while (static_cast<Py_ssize_t>(found.size()) < most && most_bytes > 0) {
        Message message;
        result = read_one(message, found.empty() ? milliseconds : 0);
        if (result == timeout && !found.empty() && pauses-- > 0) {
            std::this_thread::sleep_for(pause);
            continue;
        }
        if (result != 0) break;
        most_bytes -= static_cast<Py_ssize_t>(client.length(&message));
        found.push_back(std::move(message));
    }
    return result;
}

// drain(Received, max messages, max bytes, binding's consumer): return the messages in the C++ consumer's queue, up to
// the first limit that is reached; does not wait for the first one.
PyObject* drain(PyObject*, PyObject* args) {
    PyObject *received, *bound;
    Py_ssize_t most, most_bytes;
    if (!PyArg_ParseTuple(args, "O!nnO", received_type, &received, &most, &most_bytes, &bound)) return nullptr;
    auto* consumer = object_in<Consumer>(bound, bound_consumer);
    if (consumer == nullptr) return PyObject_CallMethod(bound, "batch_receive", nullptr);  // a stub that raises
    return guarded([&]() -> PyObject* {
        std::vector<Message> found;
        const auto receive = [&](Message& message, int wait) { return client.receive(consumer, message, wait); };
        const int result = take(found, receive, most, most_bytes, 0, 1);
        if (found.empty() && result != 0 && result != timeout) return PyObject_CallFunction(raise_result, "i", result);
        auto* self = reinterpret_cast<Received*>(received);
        std::vector<bool> highest;
        for (const Message& message : found) highest.push_back(note(self, message));
        PyObject* made = PyList_New(static_cast<Py_ssize_t>(found.size()));
        for (std::size_t at = 0; at < found.size(); ++at) {
            Msg* one = made == nullptr ? nullptr : new_message(self->message_class);
            if (one == nullptr) {
                Py_XDECREF(made);
                return nullptr;
            }
            one->is_highest = highest[at];
            one->message.hold(std::move(found[at]));
            PyList_SetItem(made, static_cast<Py_ssize_t>(at), reinterpret_cast<PyObject*>(one));
        }
        return made;
    });
}

PyObject* data(PyObject* self, PyObject*) {
    return read(self, "data", [](const Message* message) {
        return PyBytes_FromStringAndSize(client.data(message), static_cast<Py_ssize_t>(client.length(message)));
    });
}

PyObject* properties(PyObject* self, PyObject*) {
    return read(self, "properties", [](const Message* message) {
        PyObject* found = PyDict_New();
        for (const auto& [name, value] : client.properties(message)) {
            Owned key(text_of(name)), text(key.object == nullptr ? nullptr : text_of(value));
            if (found == nullptr || text.object == nullptr || PyDict_SetItem(found, key.object, text.object) != 0) {
                Py_CLEAR(found);
                break;
            }
        }
        return found;
    });
}

#define FIELD(name, convert)                                                                              \
    PyObject* name(PyObject* self, PyObject*) {                                                           \
        return read(self, #name, [](const Message* message) { return convert(client.name(message)); }); \
    }
FIELD(partition_key, text_of)
FIELD(ordering_key, text_of)
FIELD(topic_name, text_of)
FIELD(producer_name, text_of)
FIELD(publish_timestamp, PyLong_FromUnsignedLongLong)
FIELD(event_timestamp, PyLong_FromUnsignedLongLong)
FIELD(redelivery_count, PyLong_FromLong)
FIELD(has_null_value, PyBool_FromLong)
#undef FIELD

// Returns whether an id is of a chunked message: its bytes have numbers, each after its tag, and a first chunk.
bool is_chunked(const MessageId& id) {
    constexpr char first_chunk_tag = ':';
    if (client.batch_index(&id) >= 0) return false;
    Text octets;
    client.serialize(&id, octets);
    for (std::size_t at = 0; at < octets.size(); ++at) {
        if (octets[at] == first_chunk_tag) return true;
        do ++at;  // skip a varint
        while (at < octets.size() && (octets[at] & 0x80) != 0);
    }
    return false;
}

PyObject* message_id(PyObject* self, PyObject*) {
    Kept bound(reinterpret_cast<Msg*>(self)->inner);
    const auto* message = message_in(reinterpret_cast<Msg*>(self));
    return guarded([&]() -> PyObject* {
        const MessageId* id = message == nullptr ? nullptr : &client.message_id(message);
        if (id == nullptr || !*id || is_chunked(*id)) return PyObject_CallFunctionObjArgs(id_slowly, self, nullptr);
        PyObject* made = PyType_GenericAlloc(id_class, 0);
        if (made != nullptr) reinterpret_cast<Id*>(made)->id.hold(*id);
        return made;
    });
}

// Returns the C++ id of a message; nullptr if it is not one of ours, or has no C++ message.
const MessageId* id_in(PyObject* object) {
    if (object == nullptr || !PyObject_TypeCheck(object, message_type)) return nullptr;
    const Message* message = message_in(reinterpret_cast<Msg*>(object));
    const MessageId* id = message == nullptr ? nullptr : &client.message_id(message);
    return id == nullptr || !*id ? nullptr : id;
}

// Consecutive messages of one batch, or of consecutive entries with single messages; size is the batch size, 0 for
// single messages, -1 if unknown, -2 for a chunked message.
struct Run {
    std::int64_t ledger, entry;
    int partition, size, first, last;
};

Run run_of(const MessageId& id) {
    const int index = client.batch_index(&id), size = client.batch_size(&id);
    return {client.ledger_id(&id), client.entry_id(&id), client.partition(&id),
            index < 0 ? -2 * is_chunked(id) : size > 0 ? size : -1, index, index};
}

bool follows(const Run& run, const Run& next) {
    if (next.size != run.size || next.ledger != run.ledger || next.partition != run.partition) return false;
    if (next.size == 0) return next.entry == run.entry + run.last - run.first + 1;
    return next.size > 0 && next.entry == run.entry && next.first == run.last + 1;
}

// runs(messages): return (partition, ledger, entry, size, first index, last index, position of the last message) of
// each run; None if a message has no C++ message.
PyObject* runs(PyObject*, PyObject* messages) {
    const Py_ssize_t size = PyList_Size(messages);
    std::vector<std::pair<Run, Py_ssize_t>> found;
    for (Py_ssize_t at = 0; at < size; ++at) {
        const MessageId* id = id_in(PyList_GetItem(messages, at));  // borrowed: nothing in this loop can free it
        if (id == nullptr) Py_RETURN_NONE;
        const Run next = run_of(*id);
        if (found.empty() || !follows(found.back().first, next)) {
            found.emplace_back(next, at);
        } else {
            ++found.back().first.last;
            found.back().second = at;
        }
    }
    PyObject* made = size < 0 ? nullptr : PyList_New(static_cast<Py_ssize_t>(found.size()));
    Py_ssize_t place = 0;
    for (const auto& [run, at] : found) {
        PyObject* one = made == nullptr ? nullptr
                                        : Py_BuildValue("(iLLiiin)", run.partition, static_cast<long long>(run.ledger),
                                                        static_cast<long long>(run.entry), run.size, run.first,
                                                        run.last, at);
        if (one == nullptr || PyList_SetItem(made, place++, one) != 0) Py_CLEAR(made);
    }
    return made;
}

// acknowledge(binding's consumer, messages): acknowledge each message; the C++ client groups and sends them later.
// Raises the first error.
PyObject* acknowledge(PyObject*, PyObject* args) {
    PyObject *bound, *messages;
    if (!PyArg_ParseTuple(args, "OO!", &bound, &PyList_Type, &messages)) return nullptr;
    auto* consumer = object_in<Consumer>(bound, bound_consumer);
    if (consumer == nullptr) return PyObject_CallMethod(bound, "acknowledge", "O", messages);  // a stub that raises
    return guarded([&]() -> PyObject* {
        std::vector<MessageId> ids;
        for (Py_ssize_t at = 0; at < PyList_Size(messages); ++at) {
            PyObject* one = PyList_GetItem(messages, at);
            const MessageId* id = id_in(one);
            if (id == nullptr) return PyErr_Format(PyExc_TypeError, "%R is not a received message", one);
            ids.push_back(*id);
        }
        int result = 0;
        {
            Released released;
            for (auto id = ids.begin(); id != ids.end() && result == 0; ++id) result = client.acknowledge(consumer, *id);
        }
        if (result != 0) return PyObject_CallFunction(raise_result, "i", result);
        Py_RETURN_NONE;
    });
}

PyMethodDef message_methods[] = {
    {"data", data, METH_NOARGS, "data($self)\n--\n\nReturn the payload."},
    {"properties", properties, METH_NOARGS, "properties($self)\n--\n\nReturn the properties."},
    {"partition_key", partition_key, METH_NOARGS, "partition_key($self)\n--\n\nReturn the key; '' if there is none."},
    {"ordering_key", ordering_key, METH_NOARGS, "ordering_key($self)\n--\n\nReturn the ordering key; '' if none."},
    {"topic_name", topic_name, METH_NOARGS, "topic_name($self)\n--\n\nReturn the topic, or the partition of it."},
    {"producer_name", producer_name, METH_NOARGS, "producer_name($self)\n--\n\nReturn its producer's name."},
    {"publish_timestamp", publish_timestamp, METH_NOARGS, "publish_timestamp($self)\n--\n\nReturn it, in ms."},
    {"event_timestamp", event_timestamp, METH_NOARGS, "event_timestamp($self)\n--\n\nReturn it, in ms; 0 if none."},
    {"redelivery_count", redelivery_count, METH_NOARGS, "redelivery_count($self)\n--\n\nReturn the broker's count."},
    {"has_null_value", has_null_value, METH_NOARGS, "has_null_value($self)\n--\n\nReturn if it has no value."},
    {"message_id", message_id, METH_NOARGS, "message_id($self)\n--\n\nReturn its id."},
    {nullptr, nullptr, 0, nullptr},
};

// -- columns ---------------------------------------------------------------------------------------------------------

// Messages that were read in one call.
struct Block {
    PyObject_HEAD
    std::vector<Message>* messages;
};

const std::vector<Message>& messages_of(PyObject* block) { return *reinterpret_cast<Block*>(block)->messages; }

PyObject* new_block(std::vector<Message> messages) {
    PyObject* made = PyType_GenericAlloc(block_type, 0);
    if (made != nullptr) reinterpret_cast<Block*>(made)->messages = new std::vector<Message>(std::move(messages));
    return made;
}

void block_dealloc(PyObject* object) {
    delete reinterpret_cast<Block*>(object)->messages;
    free_object(object);
}

// block(list of messages of the binding)
PyObject* block(PyObject*, PyObject* bound) {
    return guarded([&]() -> PyObject* {
        std::vector<Message> messages;
        for (Py_ssize_t at = 0; at < PyList_Size(bound); ++at) {
            const auto* message = shared_in<const Message>(PyList_GetItem(bound, at), bound_message);
            if (message == nullptr) return PyErr_Format(PyExc_TypeError, "item %zd is not a message", at);
            messages.push_back(*message);
        }
        return PyErr_Occurred() != nullptr ? nullptr : new_block(std::move(messages));
    });
}

// read_block(reader of the binding, address of its C++ reader, most, most_bytes, milliseconds): a Block of the messages
// that arrive within 10 ms after the first one; the limits are those of take(). Address 0 is a reader that is not open.
PyObject* read_block(PyObject*, PyObject* args) {
    PyObject* bound;
    unsigned long long address;
    Py_ssize_t most, most_bytes;
    int milliseconds;
    if (!PyArg_ParseTuple(args, "OKnni", &bound, &address, &most, &most_bytes, &milliseconds)) return nullptr;
    return guarded([&]() -> PyObject* {
        std::shared_ptr<void> none;
        auto* reader = address == 0 ? reinterpret_cast<Reader*>(&none) : reinterpret_cast<Reader*>(address);
        std::vector<Message> found;
        const auto read_next = [&](Message& message, int wait) { return client.read_next(reader, message, wait); };
        const int result = take(found, read_next, most, most_bytes, milliseconds, 20);
        if (found.empty() && result != 0 && result != timeout) return PyObject_CallFunction(raise_result, "i", result);
        return new_block(std::move(found));
    });
}

Py_ssize_t block_length(PyObject* self) { return static_cast<Py_ssize_t>(messages_of(self).size()); }

PyObject* block_item(PyObject* self, Py_ssize_t at) {
    if (at >= 0 && at < block_length(self)) return bound_to(messages_of(self)[static_cast<std::size_t>(at)]);
    PyErr_SetString(PyExc_IndexError, "message index out of range");
    return nullptr;
}

// take(list of indexes): a Block of the messages there.
PyObject* block_take(PyObject* self, PyObject* indexes) {
    return guarded([&]() -> PyObject* {
        std::vector<Message> taken;
        for (Py_ssize_t at = 0; at < PyList_Size(indexes); ++at) {
            const Py_ssize_t index = PyLong_AsSsize_t(PyList_GetItem(indexes, at));
            if (index < 0 || index >= block_length(self)) {
                return PyErr_Format(PyExc_IndexError, "message index out of range");
            }
            taken.push_back(messages_of(self)[static_cast<std::size_t>(index)]);
        }
        return PyErr_Occurred() != nullptr ? nullptr : new_block(std::move(taken));
    });
}

// Keeps the first characters that are written to it, and rejects the others, so that the stream does not format them.
struct Beginning : std::streambuf {
    Text text;

    void begin(std::size_t size) {
        text.assign(size, '\0');
        setp(text.data(), text.data() + size);
    }
};

// The sequence id of a message, which the C++ client only shows, after its producer's name.
std::int64_t sequence_id(const Message* message) {
    static Beginning beginning;
    static std::ostream out(&beginning);
    constexpr std::size_t longest_number = 20;
    const Text before = "Message(prod=" + client.producer_name(message) + ", seq=";
    beginning.begin(before.size() + longest_number + 1);
    out.clear();
    client.show(out, *message);
    const char* const number = beginning.text.data() + before.size();
    std::uint64_t found = 0;
    const auto end = std::from_chars(number, number + longest_number, found);
    if (beginning.text.compare(0, before.size(), before) != 0 || end.ec != std::errc() || *end.ptr != ',') {
        throw std::runtime_error("the C++ client shows no sequence id");
    }
    return static_cast<std::int64_t>(found);
}

std::uint32_t rotated(std::uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

// The slot of a key: the lower half of its Murmur3 hash of 32 bits and seed 0, but 1 for 0.
std::int64_t slot_of(Part key) {
    constexpr std::size_t width = 4;
    std::uint32_t hash = 0;
    for (std::size_t at = 0; at < key.size(); at += width) {
        std::uint32_t word = 0;
        const std::size_t here = std::min(width, key.size() - at);
        for (std::size_t octet = 0; octet < here; ++octet) {
            word |= static_cast<std::uint32_t>(static_cast<unsigned char>(key[at + octet])) << (8 * octet);
        }
        hash ^= rotated(word * 0xCC9E2D51u, 15) * 0x1B873593u;
        if (here == width) hash = rotated(hash, 13) * 5 + 0xE6546B64u;
    }
    hash ^= static_cast<std::uint32_t>(key.size());
    hash = (hash ^ hash >> 16) * 0x85EBCA6Bu;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35u;
    return std::max((hash ^ hash >> 16) & 0xFFFFu, 1u);
}

// The slot that the broker computes: by the ordering key, else the key, else producer name and sequence id.
std::int64_t key_slot(const Message* message) {
    for (const Text* key : {&client.ordering_key(message), &client.partition_key(message)}) {
        if (!key->empty()) return slot_of(*key);
    }
    return slot_of(client.producer_name(message) + "-" + std::to_string(sequence_id(message)));
}

template <typename Value>
struct Field {
    const char* name;
    Value (*read)(const Message*);
};

constexpr Field<std::int64_t> number_fields[] = {
    {"ledger_id", [](const Message* message) { return client.ledger_id(&client.message_id(message)); }},
    {"entry_id", [](const Message* message) { return client.entry_id(&client.message_id(message)); }},
    {"batch_index", [](const Message* message) -> std::int64_t { return client.batch_index(&client.message_id(message)); }},
    {"publish_timestamp", [](const Message* message) { return static_cast<std::int64_t>(client.publish_timestamp(message)); }},
    {"event_timestamp", [](const Message* message) { return static_cast<std::int64_t>(client.event_timestamp(message)); }},
    {"has_null_value", [](const Message* message) -> std::int64_t { return client.has_null_value(message); }},
    {"is_chunked", [](const Message* message) -> std::int64_t { return is_chunked(client.message_id(message)); }},
    {"sequence_id", sequence_id},
    {"key_slot", key_slot},
};

// Reads the field of that name of each message; raises if the name is unknown.
template <typename Value, std::size_t size>
bool read_all(PyObject* block, PyObject* name, const Field<Value> (&fields)[size], std::vector<Value>& found) {
    for (const auto& field : fields) {
        if (!PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, field.name) != 0) continue;
        for (const Message& message : messages_of(block)) found.push_back(field.read(&message));
        return true;
    }
    PyErr_Format(PyExc_ValueError, "unknown field %R", name);
    return false;
}

template <typename Item>
PyObject* buffer_of(const std::vector<Item>& items) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(items.data()),
                                     static_cast<Py_ssize_t>(items.size() * sizeof(Item)));
}

// numbers(name): a number of each message, 64 bits each.
PyObject* block_numbers(PyObject* self, PyObject* name) {
    return guarded([&] {
        std::vector<std::int64_t> found;
        return read_all(self, name, number_fields, found) ? buffer_of(found) : nullptr;
    });
}

// Texts in Arrow's layout: the offset of each and of the end of the last one, 32 bits each, and all texts.
PyObject* column_of(const std::vector<Part>& parts) {
    std::size_t size = 0;
    std::vector<std::int32_t> ends{0};
    for (const Part& part : parts) ends.push_back(static_cast<std::int32_t>(size += part.size()));
    if (size > INT32_MAX) return PyErr_Format(PyExc_OverflowError, "the messages exceed a column's 2 GiB");
    Owned offsets(buffer_of(ends)), data(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
    if (offsets.object == nullptr || data.object == nullptr) return nullptr;
    char* at = PyBytes_AsString(data.object);
    for (const Part& part : parts) at = std::copy(part.begin(), part.end(), at);
    return PyTuple_Pack(2, offsets.object, data.object);
}

constexpr Field<Part> octet_fields[] = {
    {"data", [](const Message* message) { return Part(client.data(message), client.length(message)); }},
    {"partition_key", [](const Message* message) { return Part(client.partition_key(message)); }},
    {"ordering_key", [](const Message* message) { return Part(client.ordering_key(message)); }},
    {"producer_name", [](const Message* message) { return Part(client.producer_name(message)); }},
};

// octets(name): the bytes of a field of each message, as column_of() returns them.
PyObject* block_octets(PyObject* self, PyObject* name) {
    return guarded([&] {
        std::vector<Part> found;
        return read_all(self, name, octet_fields, found) ? column_of(found) : nullptr;
    });
}

// ids(): the bytes of the id of each message, as column_of() returns them.
PyObject* block_ids(PyObject* self, PyObject*) {
    return guarded([&] {
        std::vector<Text> found(messages_of(self).size());
        auto at = found.begin();
        for (const Message& message : messages_of(self)) client.serialize(&client.message_id(&message), *at++);
        return column_of({found.begin(), found.end()});
    });
}

// properties(): the offsets of those of each message and of their end, 32 bits each, and their names and values, as
// column_of() returns them.
PyObject* block_properties(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        std::vector<std::int32_t> ends{0};
        std::vector<Part> names, values;
        for (const Message& message : messages_of(self)) {
            for (const auto& [name, value] : client.properties(&message)) {
                names.push_back(name);
                values.push_back(value);
            }
            ends.push_back(static_cast<std::int32_t>(names.size()));
        }
        Owned offsets(buffer_of(ends)), name_column(column_of(names)), value_column(column_of(values));
        if (offsets.object == nullptr || name_column.object == nullptr || value_column.object == nullptr) return nullptr;
        return PyTuple_Pack(3, offsets.object, name_column.object, value_column.object);
    });
}

PyMethodDef block_methods[] = {
    {"take", block_take, METH_O, nullptr},       {"numbers", block_numbers, METH_O, nullptr},
    {"octets", block_octets, METH_O, nullptr},   {"ids", block_ids, METH_NOARGS, nullptr},
    {"properties", block_properties, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr},
};

// -- sending ---------------------------------------------------------------------------------------------------------

void put_varint(Text& out, std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
    out.push_back(static_cast<char>(number));
}

void put_size(Text& out, std::size_t size) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(size >> shift));
}

bool put_bytes(Text& out, PyObject* bytes) {
    char* data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) return false;
    out.append(data, static_cast<std::size_t>(size));
    return true;
}

// Appends the metadata of a message after its size: the encoded fields, the payload size and the sequence id.
void put_metadata(Text& out, Text& fields, std::size_t payload, std::uint64_t sequence_id) {
    constexpr char payload_size_tag = 0x18, sequence_id_tag = 0x40;
    fields.push_back(payload_size_tag);
    put_varint(fields, payload);
    fields.push_back(sequence_id_tag);
    put_varint(fields, sequence_id);
    put_size(out, fields.size());
    out += fields;
}

// batch_payload(contents, sequence ids, other encoded fields of each message or None): return a batch in wire format.
PyObject* batch_payload(PyObject*, PyObject* args) {
    PyObject *contents, *ids, *others;
    if (!PyArg_ParseTuple(args, "OOO", &contents, &ids, &others)) return nullptr;
    return guarded([&]() -> PyObject* {
        const Py_ssize_t size = PySequence_Size(contents);
        Text out, fields;
        for (Py_ssize_t at = 0; at < size; ++at) {
            Owned content(PySequence_GetItem(contents, at)), id(PySequence_GetItem(ids, at));
            Owned other(others == Py_None ? nullptr : PySequence_GetItem(others, at));
            fields.clear();
            if (content.object == nullptr || id.object == nullptr ||
                (others != Py_None && (other.object == nullptr || !put_bytes(fields, other.object)))) {
                return nullptr;
            }
            const auto number = PyLong_AsUnsignedLongLong(id.object);
            const auto length = PyErr_Occurred() != nullptr ? -1 : PyBytes_Size(content.object);
            if (length < 0) return nullptr;
            put_metadata(out, fields, static_cast<std::size_t>(length), number);
            put_bytes(out, content.object);
        }
        return size < 0 ? nullptr : PyBytes_FromStringAndSize(out.data(), static_cast<Py_ssize_t>(out.size()));
    });
}

// Messages of empty batches, by their number of messages. The C++ client sets that number only when it parses a batch,
// which takes time proportional to the number; so each is parsed once and copied.
std::map<int, Message> templates;
constexpr std::size_t most_templates = 1024;

// batch_message(payload, number of messages, sequence id, encoded keys and properties): return the binding's message
// that is one entry with these messages.
PyObject* batch_message(PyObject*, PyObject* args) {
    Py_buffer payload;
    PyObject* keys;
    int size;
    unsigned long long sequence_id;
    if (!PyArg_ParseTuple(args, "y*iKS", &payload, &size, &sequence_id, &keys)) return nullptr;
    PyObject* entry = guarded([&]() -> PyObject* {
        auto found = templates.find(size);
        if (found == templates.end()) {
            Owned made(PyObject_CallFunction(empty_batch, "i", size));
            const auto* message = shared_in<const Message>(made.object, bound_message);
            if (message == nullptr) return nullptr;
            if (templates.size() == most_templates) templates.clear();
            found = templates.emplace(size, *message).first;
        }
        Text content, fields;
        const auto length = static_cast<std::size_t>(payload.len);
        content.reserve(length + static_cast<std::size_t>(PyBytes_Size(keys)) + 32);
        put_bytes(fields, keys);
        put_metadata(content, fields, length, sequence_id);
        content.append(static_cast<const char*>(payload.buf), length);
        client.set_content(&found->second, std::move(content));
        const Message made = client.message_of_batch(found->second, 0, 1, nullptr);
        client.set_content(&found->second, Text());
        return bound_to(made);
    });
    PyBuffer_Release(&payload);
    return entry;
}

// deliver(failed, callbacks, result, ledger, entry, partition): call each callback that is not None with the result and
// the id of its message in the batch of that entry, and failed(error) with an exception that it raises.
PyObject* deliver(PyObject*, PyObject* args) {
    PyObject *callbacks, *result, *failed;
    long long ledger, entry;
    int partition;
    if (!PyArg_ParseTuple(args, "OOOLLi", &failed, &callbacks, &result, &ledger, &entry, &partition)) return nullptr;
    const Py_ssize_t size = PySequence_Size(callbacks);
    if (size < 0) return nullptr;
    for (Py_ssize_t at = 0; at < size; ++at) {
        Owned callback(PySequence_GetItem(callbacks, at));
        if (callback.object == nullptr) return nullptr;
        if (callback.object == Py_None) continue;
        Owned id(PyType_GenericAlloc(id_class, 0));
        if (id.object == nullptr) return nullptr;
        auto* sent = reinterpret_cast<Id*>(id.object);
        sent->is_sent = true;
        sent->numbers = {ledger, entry, partition, at, size};
        Owned returned(PyObject_CallFunctionObjArgs(callback.object, result, id.object, nullptr));
        if (returned.object != nullptr) continue;
        PyObject *type, *error, *trace;
        PyErr_Fetch(&type, &error, &trace);
        PyErr_NormalizeException(&type, &error, &trace);
        if (trace != nullptr) PyException_SetTraceback(error, trace);
        Owned reported(PyObject_CallFunctionObjArgs(failed, error, nullptr));
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        if (reported.object == nullptr) return nullptr;
    }
    Py_RETURN_NONE;
}

// A message of an open batch.
struct Item {
    PyObject *content, *callback;
    long long sequence_id;
    PyObject *fields, *keys;
};

struct Items {
    PyObject_HEAD
    std::vector<Item>* joined;  // created with the first one
};

void add(Items* self, PyObject* content, PyObject* callback, long long sequence_id, PyObject* fields, PyObject* keys) {
    if (self->joined == nullptr) self->joined = new std::vector<Item>;
    self->joined->push_back({content, callback, sequence_id, fields, keys});
    for (PyObject* object : {content, callback, fields, keys}) Py_XINCREF(object);
}

// append((content, callback, sequence id, fields, keys)): add a message.
PyObject* items_append(PyObject* self, PyObject* item) {
    PyObject *content, *callback, *fields, *keys;
    long long sequence_id;
    if (!PyArg_ParseTuple(item, "SOLSS", &content, &callback, &sequence_id, &fields, &keys)) return nullptr;
    return guarded([&] {
        add(reinterpret_cast<Items*>(self), content, callback, sequence_id, fields, keys);
        return Py_NewRef(Py_None);
    });
}

Py_ssize_t items_length(PyObject* self) {
    const auto* joined = reinterpret_cast<Items*>(self)->joined;
    return joined == nullptr ? 0 : static_cast<Py_ssize_t>(joined->size());
}

// columns(): return tuples of contents, callbacks, sequence ids, fields and keys.
PyObject* items_columns(PyObject* object, PyObject*) {
    const Py_ssize_t size = items_length(object);
    PyObject* columns[5];
    for (PyObject*& column : columns) column = PyTuple_New(size);
    Owned found(PyTuple_New(5));
    bool is_whole = found.object != nullptr;
    for (int column = 0; column < 5; ++column) {
        is_whole = is_whole && columns[column] != nullptr;
        if (is_whole) PyTuple_SetItem(found.object, column, columns[column]);
    }
    for (Py_ssize_t at = 0; is_whole && at < size; ++at) {
        const Item& one = (*reinterpret_cast<Items*>(object)->joined)[static_cast<std::size_t>(at)];
        PyObject* id = PyLong_FromLongLong(one.sequence_id);
        is_whole = id != nullptr;
        PyObject* row[5] = {Py_NewRef(one.content), Py_NewRef(one.callback), id,
                            Py_NewRef(one.fields == nullptr ? no_bytes : one.fields),
                            Py_NewRef(one.keys == nullptr ? no_bytes : one.keys)};
        for (int column = 0; column < 5; ++column) PyTuple_SetItem(columns[column], at, row[column]);
    }
    return is_whole ? Py_NewRef(found.object) : nullptr;
}

PyMethodDef items_methods[] = {
    {"append", items_append, METH_O, nullptr},
    {"columns", items_columns, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

int items_traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    if (const auto* joined = reinterpret_cast<Items*>(object)->joined) {
        for (const Item& one : *joined) Py_VISIT(one.callback);
    }
    return 0;
}

int items_clear(PyObject* object) {
    std::unique_ptr<std::vector<Item>> joined(std::exchange(reinterpret_cast<Items*>(object)->joined, nullptr));
    if (joined) {
        for (const Item& one : *joined) {
            for (PyObject* each : {one.content, one.callback, one.fields, one.keys}) Py_XDECREF(each);
        }
    }
    return 0;
}

void items_dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    items_clear(object);
    free_object(object);
}

// State that decides whether a message may join the open batch; each is the base of the class that owns it.
struct Group {
    PyObject_HEAD
    Py_ssize_t free_messages, free_bytes;
    PyObject* only_items;  // Items, or None
};

struct Pending {
    PyObject_HEAD
    Py_ssize_t accepted, released, limit;
};

struct Sequence {
    PyObject_HEAD
    long long last;
    char steady;
};

struct Dispatch {
    PyObject_HEAD
    PyObject *inside, *group, *pending;
};

PyMemberDef group_members[] = {
    {"free_messages", T_PYSSIZET, offsetof(Group, free_messages), 0, nullptr},
    {"free_bytes", T_PYSSIZET, offsetof(Group, free_bytes), 0, nullptr},
    {"only_items", T_OBJECT, offsetof(Group, only_items), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMemberDef pending_members[] = {
    {"accepted", T_PYSSIZET, offsetof(Pending, accepted), 0, nullptr},
    {"released", T_PYSSIZET, offsetof(Pending, released), 0, nullptr},
    {"limit", T_PYSSIZET, offsetof(Pending, limit), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMemberDef sequence_members[] = {
    {"last", T_LONGLONG, offsetof(Sequence, last), 0, nullptr},
    {"steady", T_BOOL, offsetof(Sequence, steady), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMemberDef dispatch_members[] = {
    {"inside", T_OBJECT, offsetof(Dispatch, inside), 0, nullptr},
    {"group", T_OBJECT, offsetof(Dispatch, group), 0, nullptr},
    {"pending", T_OBJECT, offsetof(Dispatch, pending), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

// The function `send_async(content, callback, ...)` of a producer. A plain message joins the open batch here, in one
// step that neither a signal handler nor a thread can interrupt. Any other message is passed to the sender's
// `send_async`.
struct Joiner {
    PyObject_HEAD
    PyObject *send_async, *dispatch, *sequence;
};

template <typename Object>
Object* of_type(PyObject* object, PyTypeObject* type) {
    return object != nullptr && PyObject_TypeCheck(object, type) ? reinterpret_cast<Object*>(object) : nullptr;
}

// Adds a message to the open batch of a dispatcher if it may join; returns false otherwise.
bool join(const Dispatch* dispatch, Sequence* sequence, PyObject* content, PyObject* callback) {
    if (!PyBytes_CheckExact(content) || (callback != Py_None && !PyCallable_Check(callback))) return false;
    auto* group = of_type<Group>(dispatch->group, group_type);
    auto* pending = of_type<Pending>(dispatch->pending, pending_type);
    const Py_ssize_t size = PyBytes_Size(content);
    if ((dispatch->inside != nullptr && dispatch->inside != Py_None) || group == nullptr || pending == nullptr ||
        group->free_messages <= 1 || group->free_bytes <= size || !sequence->steady ||
        pending->accepted - pending->released >= pending->limit) {
        return false;
    }
    auto* items = of_type<Items>(group->only_items, items_type);
    if (items == nullptr) return false;
    add(items, content, callback, sequence->last + 1, nullptr, nullptr);
    ++sequence->last;
    --group->free_messages;
    group->free_bytes -= size;
    ++pending->accepted;
    return true;
}

PyObject* send_async(PyObject* object, PyObject* const* args, Py_ssize_t size, PyObject* names) {
    const auto* self = reinterpret_cast<Joiner*>(object);
    return guarded([&]() -> PyObject* {
        const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
        const bool is_plain =
            size == 2 ? named == 0
                      : size == 1 && named == 1 &&
                            PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "callback") == 0;
        if (is_plain && join(reinterpret_cast<Dispatch*>(self->dispatch), reinterpret_cast<Sequence*>(self->sequence),
                             args[0], args[1])) {
            Py_RETURN_NONE;
        }
        Owned plain(PyTuple_New(size)), by_name(PyDict_New());
        if (plain.object == nullptr || by_name.object == nullptr) return nullptr;
        for (Py_ssize_t at = 0; at < size; ++at) PyTuple_SetItem(plain.object, at, Py_NewRef(args[at]));
        for (Py_ssize_t at = 0; at < named; ++at) {
            if (PyDict_SetItem(by_name.object, PyTuple_GetItem(names, at), args[size + at]) != 0) return nullptr;
        }
        return PyObject_Call(self->send_async, plain.object, by_name.object);
    });
}

PyMethodDef send_async_definition = {
    "send_async", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(send_async)), METH_FASTCALL | METH_KEYWORDS,
    "send_async($self, content, callback, *args, **kwargs)\n--\n\nPublish a message; see `Producer.send_async`."};

// joiner(send_async, dispatch, sequence): return the producer's function for the sender's.
PyObject* joiner(PyObject*, PyObject* args) {
    PyObject *send_async, *dispatch, *sequence;
    if (!PyArg_ParseTuple(args, "OO!O!", &send_async, dispatch_type, &dispatch, sequence_type, &sequence)) return nullptr;
    Owned made(PyType_GenericAlloc(joiner_type, 0));
    if (made.object == nullptr) return nullptr;
    auto* self = reinterpret_cast<Joiner*>(made.object);
    self->send_async = Py_NewRef(send_async);
    self->dispatch = Py_NewRef(dispatch);
    self->sequence = Py_NewRef(sequence);
    return PyCFunction_NewEx(&send_async_definition, made.object, nullptr);
}

// -- the module ------------------------------------------------------------------------------------------------------

// begin(file, Message, MessageId, Consumer, any_message, empty_batch, raise_result, timeout): find the C++ client's
// methods in a library that is already loaded.
PyObject* begin(PyObject*, PyObject* args) {
    const char* file;
    PyObject *of_message, *of_id, *of_consumer, *any, *empty, *with_error;
    if (!PyArg_ParseTuple(args, "sOOOOOOi", &file, &of_message, &of_id, &of_consumer, &any, &empty, &with_error,
                          &timeout)) {
        return nullptr;
    }
    const Symbol symbols[] = {
        symbol(client.data, "_ZNK6pulsar7Message7getDataEv"),
        symbol(client.length, "_ZNK6pulsar7Message9getLengthEv"),
        symbol(client.partition_key, "_ZNK6pulsar7Message15getPartitionKeyB5cxx11Ev"),
        symbol(client.ordering_key, "_ZNK6pulsar7Message14getOrderingKeyB5cxx11Ev"),
        symbol(client.properties, "_ZNK6pulsar7Message13getPropertiesB5cxx11Ev"),
        symbol(client.topic_name, "_ZNK6pulsar7Message12getTopicNameB5cxx11Ev"),
        symbol(client.producer_name, "_ZNK6pulsar7Message15getProducerNameB5cxx11Ev"),
        symbol(client.publish_timestamp, "_ZNK6pulsar7Message19getPublishTimestampEv"),
        symbol(client.event_timestamp, "_ZNK6pulsar7Message17getEventTimestampEv"),
        symbol(client.redelivery_count, "_ZNK6pulsar7Message18getRedeliveryCountEv"),
        symbol(client.has_null_value, "_ZNK6pulsar7Message12hasNullValueEv"),
        symbol(client.message_id, "_ZNK6pulsar7Message12getMessageIdEv"),
        symbol(client.ledger_id, "_ZNK6pulsar9MessageId8ledgerIdEv"),
        symbol(client.entry_id, "_ZNK6pulsar9MessageId7entryIdEv"),
        symbol(client.partition, "_ZNK6pulsar9MessageId9partitionEv"),
        symbol(client.batch_index, "_ZNK6pulsar9MessageId10batchIndexEv"),
        symbol(client.batch_size, "_ZNK6pulsar9MessageId9batchSizeEv"),
        symbol(client.serialize, "_ZNK6pulsar9MessageId9serializeERNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"),
        symbol(client.show, "_ZN6pulsarlsERSoRKNS_7MessageE"),
        symbol(client.receive, "_ZN6pulsar8Consumer7receiveERNS_7MessageEi"),
        symbol(client.read_next, "_ZN6pulsar6Reader8readNextERNS_7MessageEi"),
        symbol(client.acknowledge, "_ZN6pulsar8Consumer11acknowledgeERKNS_9MessageIdE"),
        symbol(client.set_content, "_ZN6pulsar14MessageBuilder10setContentEONSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"),
        symbol(client.message_of_batch,
               "_ZN6pulsar8Commands31deSerializeSingleMessageInBatchERNS_7MessageEiiRKSt10shared_ptrINS_17BatchMessageAckerEE"),
    };
    void* library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);  // never closed
    for (const Symbol& one : symbols) {
        *one.method = library == nullptr ? nullptr : dlsym(library, one.name);
        if (*one.method == nullptr) return PyErr_Format(PyExc_ImportError, "it does not export %s", one.name);
    }
    bound_message = reinterpret_cast<PyTypeObject*>(Py_NewRef(of_message));
    bound_message_id = reinterpret_cast<PyTypeObject*>(Py_NewRef(of_id));
    bound_consumer = reinterpret_cast<PyTypeObject*>(Py_NewRef(of_consumer));
    any_message = Py_NewRef(any);
    empty_batch = Py_NewRef(empty);
    raise_result = Py_NewRef(with_error);
    Py_RETURN_NONE;
}

// make_ids(cls, id_of): set the class of ids that Message.message_id() returns, a subclass of Id; id_of(message)
// returns the id of a message that may be chunked.
PyObject* make_ids(PyObject*, PyObject* args) {
    PyObject *cls, *slowly;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &cls, &slowly)) return nullptr;
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), id_type)) {
        PyErr_SetString(PyExc_TypeError, "not a subclass of Id");
        return nullptr;
    }
    id_class = reinterpret_cast<PyTypeObject*>(Py_NewRef(cls));
    id_slowly = Py_NewRef(slowly);
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"begin", begin, METH_VARARGS, nullptr},
    {"make_ids", make_ids, METH_VARARGS, nullptr},
    {"hold", hold, METH_VARARGS, nullptr},
    {"wrap", wrap, METH_VARARGS, nullptr},
    {"drain", drain, METH_VARARGS, nullptr},
    {"block", block, METH_O, nullptr},
    {"read_block", read_block, METH_VARARGS, nullptr},
    {"held", held, METH_O, nullptr},
    {"serialized", serialized, METH_O, nullptr},
    {"plain_id", plain_id, METH_O, nullptr},
    {"runs", runs, METH_O, nullptr},
    {"acknowledge", acknowledge, METH_VARARGS, nullptr},
    {"batch_payload", batch_payload, METH_VARARGS, nullptr},
    {"batch_message", batch_message, METH_VARARGS, nullptr},
    {"deliver", deliver, METH_VARARGS, nullptr},
    {"joiner", joiner, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

template <typename Function>
void* slot(Function* function) {
    return reinterpret_cast<void*>(function);
}

#define COLLECTED(Members)                 \
    {Py_tp_dealloc, slot(Members::dealloc)}, \
    {Py_tp_traverse, slot(Members::traverse)}, \
    {Py_tp_clear, slot(Members::clear)}

PyType_Slot message_slots[] = {
    COLLECTED(MessageMembers),          {Py_tp_getset, message_attributes},
    {Py_tp_methods, message_methods},   {Py_tp_members, message_members},
    {0, nullptr},
};

PyType_Slot received_slots[] = {
    COLLECTED(ReceivedMembers), {Py_tp_members, received_members}, {Py_tp_methods, received_methods}, {0, nullptr},
};

PyType_Slot id_slots[] = {
    COLLECTED(IdMembers), {Py_tp_members, id_members}, {Py_tp_getset, id_attributes}, {Py_tp_methods, id_methods},
    {0, nullptr},
};

PyType_Slot block_slots[] = {
    {Py_tp_dealloc, slot(block_dealloc)}, {Py_sq_length, slot(block_length)}, {Py_sq_item, slot(block_item)},
    {Py_tp_methods, block_methods},       {0, nullptr},
};

PyType_Slot items_slots[] = {
    {Py_tp_dealloc, slot(items_dealloc)}, {Py_tp_traverse, slot(items_traverse)}, {Py_tp_clear, slot(items_clear)},
    {Py_sq_length, slot(items_length)},   {Py_tp_methods, items_methods},         {0, nullptr},
};

using GroupMembers = Collected<Group, &Group::only_items>;
using DispatchMembers = Collected<Dispatch, &Dispatch::inside, &Dispatch::group, &Dispatch::pending>;
using JoinerMembers = Collected<Joiner, &Joiner::send_async, &Joiner::dispatch, &Joiner::sequence>;
PyType_Slot group_slots[] = {COLLECTED(GroupMembers), {Py_tp_members, group_members}, {0, nullptr}};
PyType_Slot dispatch_slots[] = {COLLECTED(DispatchMembers), {Py_tp_members, dispatch_members}, {0, nullptr}};
PyType_Slot joiner_slots[] = {COLLECTED(JoinerMembers), {0, nullptr}};
PyType_Slot pending_slots[] = {{Py_tp_members, pending_members}, {0, nullptr}};
PyType_Slot sequence_slots[] = {{Py_tp_members, sequence_members}, {0, nullptr}};

constexpr unsigned plain = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, collected = plain | Py_TPFLAGS_HAVE_GC,
                   made_here = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

template <typename Object>
bool add_type(PyObject* module, PyTypeObject*& type, const char* name, unsigned flags, PyType_Slot* slots) {
    PyType_Spec spec = {name, sizeof(Object), 0, flags, slots};
    type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return type != nullptr && PyModule_AddType(module, type) == 0;
}

}  // namespace

PyMODINIT_FUNC PyInit__core() {
    PyObject* module = PyModule_Create(&definition);
    no_bytes = PyBytes_FromStringAndSize(nullptr, 0);
    if (void* found = dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet")) {
        current_state = reinterpret_cast<void* (*)()>(found);
    }
    const bool is_whole =
        module != nullptr && no_bytes != nullptr &&
        add_type<Msg>(module, message_type, "pulsar_ext._native._core.Message", collected, message_slots) &&
        add_type<Received>(module, received_type, "pulsar_ext._native._core.Received", collected, received_slots) &&
        add_type<Id>(module, id_type, "pulsar_ext._native._core.Id", collected, id_slots) &&
        add_type<Block>(module, block_type, "pulsar_ext._native._core.Block", made_here, block_slots) &&
        add_type<Items>(module, items_type, "pulsar_ext._native._core.Items", collected, items_slots) &&
        add_type<Group>(module, group_type, "pulsar_ext._native._core.Group", collected, group_slots) &&
        add_type<Pending>(module, pending_type, "pulsar_ext._native._core.Pending", plain, pending_slots) &&
        add_type<Sequence>(module, sequence_type, "pulsar_ext._native._core.Sequence", plain, sequence_slots) &&
        add_type<Dispatch>(module, dispatch_type, "pulsar_ext._native._core.Dispatch", collected, dispatch_slots) &&
        add_type<Joiner>(module, joiner_type, "pulsar_ext._native._core.Joiner", collected, joiner_slots);
    return is_whole ? module : nullptr;
}
