// Reads messages and message ids by the C++ client's own exported methods: `core.py` says when that is used.
//
// What is known here of the C++ client: that a Message and a MessageId are one shared pointer each, and the names and
// signatures of the methods in `Client`. What is known of its Python binding: where an object of it has the address of
// the C++ one, which core.py proves before anything is read. Every other object is read as the binding does it, by a
// call of its method of that name. Nothing here waits, and nothing lets go of the interpreter's lock.
//
// CPython's stable ABI of 3.11, without which a wheel would be for one version of Python.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>

namespace {

struct MessageImpl;
struct MessageIdImpl;
using Text = std::string;
using Properties = std::map<Text, Text>;
using MessageId = std::shared_ptr<MessageIdImpl>;
using Message = std::shared_ptr<MessageImpl>;

// The C++ client's methods, each called with its object as the first argument, as Linux' C++ ABI has it. None returns
// an object by value, which it would return in another way.
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
    void (*serialize)(const MessageId*, Text&);
} client;

struct Symbol {
    void** method;
    const char* name;
};

template <typename Method>
Symbol symbol(Method& method, const char* name) {
    return {reinterpret_cast<void**>(&method), name};
}

PyTypeObject* id_type = nullptr;  // Id, of this module

// What core.py says in begin() and make_ids().
PyTypeObject* bound_message = nullptr;     // the binding's class of a Message
PyTypeObject* bound_message_id = nullptr;  // and of a MessageId
PyTypeObject* id_class = nullptr;          // whose objects Message.message_id() makes; a subclass of Id
PyObject* id_slowly = nullptr;             // makes the id of any message, chunked ones included

// -- objects of the binding ------------------------------------------------------------------------------------------

// Behind its head an object of the binding has the address of its C++ object, nullptr while it has none.
template <typename Shared>
Shared* shared_in(PyObject* bound, PyTypeObject* type) {
    if (bound == nullptr || Py_TYPE(bound) != type) return nullptr;
    auto* found = *reinterpret_cast<Shared**>(reinterpret_cast<char*>(bound) + sizeof(PyObject));
    return found != nullptr && *found ? found : nullptr;
}

// Keeps an object while it is read: allocating may run a collection, and that anything.
struct Kept {
    explicit Kept(PyObject* object) : object(object) { Py_XINCREF(object); }
    ~Kept() { Py_XDECREF(object); }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    PyObject* object;
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

// Calls a function that a C++ exception may leave: the only one is that there is no memory.
template <typename Function>
PyObject* guarded(Function function) noexcept {
    try {
        return function();
    } catch (const std::exception&) {
        return PyErr_NoMemory();
    }
}

// -- ids -------------------------------------------------------------------------------------------------------------

struct Id {
    PyObject_HEAD
    PyObject* inner;  // the binding's object; absent until something asks for it
    PyObject* order;  // ledger, entry, partition, batch index
    PyObject* data;   // the id's bytes
    PyObject* topic;
    bool is_held;  // false in the zeroed memory that every object begins as
    alignas(MessageId) unsigned char memory[sizeof(MessageId)];

    // The C++ id of a received message, which shares with those of its batch what is acknowledged of that.
    MessageId& held() { return *std::launder(reinterpret_cast<MessageId*>(memory)); }

    void hold(const MessageId& id) {
        new (memory) MessageId(id);
        is_held = true;
    }

    void let_go() {
        if (is_held) held().~MessageId();
        is_held = false;
    }
};

PyMemberDef id_members[] = {
    {"inner", T_OBJECT_EX, offsetof(Id, inner), 0, nullptr},
    {"_order", T_OBJECT, offsetof(Id, order), 0, nullptr},
    {"_data", T_OBJECT, offsetof(Id, data), 0, nullptr},
    {"_topic", T_OBJECT, offsetof(Id, topic), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

int id_traverse(PyObject* object, visitproc visit, void* arg) {
    auto* self = reinterpret_cast<Id*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->inner);
    Py_VISIT(self->order);
    Py_VISIT(self->data);
    Py_VISIT(self->topic);
    return 0;
}

int id_clear(PyObject* object) {
    auto* self = reinterpret_cast<Id*>(object);
    Py_CLEAR(self->inner);
    Py_CLEAR(self->order);
    Py_CLEAR(self->data);
    Py_CLEAR(self->topic);
    return 0;
}

void free_object(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

void id_dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    id_clear(object);
    reinterpret_cast<Id*>(object)->let_go();
    free_object(object);
}

Id* holding(PyObject* object) {
    auto* self = PyObject_TypeCheck(object, id_type) ? reinterpret_cast<Id*>(object) : nullptr;
    return self != nullptr && self->is_held ? self : nullptr;
}

// held(id): the binding's object of the C++ id that an id holds; None if it holds none.
PyObject* held(PyObject*, PyObject* object) {
    Id* self = holding(object);
    if (self == nullptr) Py_RETURN_NONE;
    PyObject* bound = PyObject_CallFunction(reinterpret_cast<PyObject*>(bound_message_id), "iiii", -1, -1, -1, -1);
    if (auto* id = shared_in<MessageId>(bound, bound_message_id)) {
        *id = self->held();
    } else if (bound != nullptr) {
        Py_CLEAR(bound);
        PyErr_SetString(PyExc_SystemError, "an id of the binding without a C++ id");
    }
    return bound;
}

// serialized(id): the bytes of the C++ id that an id holds; None if it holds none.
PyObject* serialized(PyObject*, PyObject* object) {
    Id* self = holding(object);
    if (self == nullptr) Py_RETURN_NONE;
    return guarded([&] { return bytes_of(self->held()); });
}

// -- messages --------------------------------------------------------------------------------------------------------

struct Msg {
    PyObject_HEAD
    PyObject* inner;
};

PyMemberDef message_members[] = {
    {"inner", T_OBJECT_EX, offsetof(Msg, inner), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

int message_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(reinterpret_cast<Msg*>(self)->inner);
    return 0;
}

int message_clear(PyObject* self) {
    Py_CLEAR(reinterpret_cast<Msg*>(self)->inner);
    return 0;
}

void message_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    message_clear(self);
    free_object(self);
}

template <typename Read>
PyObject* read(PyObject* self, const char* name, Read read_field) {
    Kept inner(reinterpret_cast<Msg*>(self)->inner);
    if (const auto* message = shared_in<const Message>(inner.object, bound_message)) return read_field(message);
    if (inner.object != nullptr) return PyObject_CallMethod(inner.object, name, nullptr);
    PyErr_SetString(PyExc_AttributeError, "inner");
    return nullptr;
}

PyObject* data(PyObject* self, PyObject*) {
    return read(self, "data", [](const Message* message) {
        return PyBytes_FromStringAndSize(client.data(message), static_cast<Py_ssize_t>(client.length(message)));
    });
}

PyObject* properties(PyObject* self, PyObject*) {
    return read(self, "properties", [](const Message* message) {
        PyObject* found = PyDict_New();
        if (found == nullptr) return found;
        for (const auto& [name, value] : client.properties(message)) {
            PyObject* key = text_of(name);
            PyObject* text = key == nullptr ? nullptr : text_of(value);
            const bool is_set = text != nullptr && PyDict_SetItem(found, key, text) == 0;
            Py_XDECREF(key);
            Py_XDECREF(text);
            if (!is_set) {
                Py_DECREF(found);
                return static_cast<PyObject*>(nullptr);
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

constexpr char first_chunk_tag = ':';

// A message of a batch is not chunked. The bytes of any other id say whether it is; some others have that octet too.
bool may_be_chunked(const MessageId& id) {
    if (client.batch_index(&id) >= 0) return false;
    Text octets;
    client.serialize(&id, octets);
    return octets.find(first_chunk_tag) != Text::npos;
}

PyObject* message_id(PyObject* self, PyObject*) {
    Kept inner(reinterpret_cast<Msg*>(self)->inner);
    const auto* message = shared_in<const Message>(inner.object, bound_message);
    return guarded([&]() -> PyObject* {
        const MessageId* id = message == nullptr ? nullptr : &client.message_id(message);
        if (id == nullptr || !*id || may_be_chunked(*id)) {
            return PyObject_CallFunctionObjArgs(id_slowly, self, nullptr);
        }
        PyObject* order = order_of(*id);
        PyObject* made = order == nullptr ? nullptr : PyType_GenericAlloc(id_class, 0);
        if (made == nullptr) {
            Py_XDECREF(order);
            return nullptr;
        }
        reinterpret_cast<Id*>(made)->order = order;
        reinterpret_cast<Id*>(made)->hold(*id);
        return made;
    });
}

// serialized_ids(messages of the binding): the bytes of the id of each.
PyObject* serialized_ids(PyObject*, PyObject* messages) {
    const Py_ssize_t size = PyList_Size(messages);
    PyObject* found = size < 0 ? nullptr : PyList_New(size);
    for (Py_ssize_t at = 0; found != nullptr && at < size; ++at) {
        Kept one(PyList_GetItem(messages, at));
        const auto* message = shared_in<const Message>(one.object, bound_message);
        PyObject* octets = nullptr;
        if (message != nullptr && client.message_id(message)) {
            octets = guarded([&] { return bytes_of(client.message_id(message)); });
        } else if (PyObject* id = one.object == nullptr ? nullptr : PyObject_CallMethod(one.object, "message_id", nullptr)) {
            octets = PyObject_CallMethod(id, "serialize", nullptr);
            Py_DECREF(id);
        }
        if (octets == nullptr || PyList_SetItem(found, at, octets) != 0) Py_CLEAR(found);
    }
    return found;
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

// -- the module ------------------------------------------------------------------------------------------------------

// begin(file, Message, MessageId): finds the C++ client's methods in the library that a file has loaded already.
PyObject* begin(PyObject*, PyObject* args) {
    const char* file;
    PyObject *of_message, *of_id;
    if (!PyArg_ParseTuple(args, "sOO", &file, &of_message, &of_id)) return nullptr;
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
        symbol(client.serialize, "_ZNK6pulsar9MessageId9serializeERNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"),
    };
    void* library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);  // kept open: it never goes
    for (const Symbol& one : symbols) {
        *one.method = library == nullptr ? nullptr : dlsym(library, one.name);
        if (*one.method == nullptr) return PyErr_Format(PyExc_ImportError, "it does not export %s", one.name);
    }
    bound_message = reinterpret_cast<PyTypeObject*>(Py_NewRef(of_message));
    bound_message_id = reinterpret_cast<PyTypeObject*>(Py_NewRef(of_id));
    Py_RETURN_NONE;
}

// make_ids(cls, id_of): Message.message_id() makes objects of this class, a subclass of Id; id_of(message) those of
// messages that may be chunked.
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
    {"held", held, METH_O, nullptr},
    {"serialized", serialized, METH_O, nullptr},
    {"serialized_ids", serialized_ids, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

template <typename Function>
void* slot(Function* function) {
    return reinterpret_cast<void*>(function);
}

PyType_Slot message_slots[] = {
    {Py_tp_dealloc, slot(message_dealloc)}, {Py_tp_traverse, slot(message_traverse)},
    {Py_tp_clear, slot(message_clear)},     {Py_tp_members, message_members},
    {Py_tp_methods, message_methods},       {0, nullptr},
};

PyType_Slot id_slots[] = {
    {Py_tp_dealloc, slot(id_dealloc)}, {Py_tp_traverse, slot(id_traverse)},
    {Py_tp_clear, slot(id_clear)},     {Py_tp_members, id_members},
    {0, nullptr},
};

constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
PyType_Spec message_spec = {"pulsar_ext._native._core.Message", sizeof(Msg), 0, flags, message_slots};
PyType_Spec id_spec = {"pulsar_ext._native._core.Id", sizeof(Id), 0, flags, id_slots};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__core() {
    PyObject* module = PyModule_Create(&definition);
    PyObject* message = PyType_FromSpec(&message_spec);
    PyObject* id = PyType_FromSpec(&id_spec);
    if (module == nullptr || message == nullptr || id == nullptr) return nullptr;
    id_type = reinterpret_cast<PyTypeObject*>(id);
    if (PyModule_AddObjectRef(module, "Message", message) != 0 || PyModule_AddObjectRef(module, "Id", id) != 0) {
        return nullptr;
    }
    return module;
}
