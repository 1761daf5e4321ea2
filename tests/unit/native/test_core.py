"""The native core reads what the binding reads, and is not used if it may not fit."""

import copy
import gc
import importlib.util
import multiprocessing
import pickle
import subprocess
import sys
import threading

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native import core
from pulsar_ext._native.messages import (
    InnerMessageBuilder,
    InnerMessageId,
    batch_messages,
    deserialize_inner,
    serialized_ids,
)
from pulsar_ext._wire.message_id_data import is_plain
from pulsar_ext._wire.protobuf import varint
from pulsar_ext.ack.ids import gather
from pulsar_ext.ack.topics import entries_of
from pulsar_ext.errors import NotOpen
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, plain_from_inner
from pulsar_ext.message import Message, Received, received

FIELDS = core._FIELDS
_used = pytest.mark.skipif(not core.IS_USED, reason="the core is not used")
_built = pytest.mark.skipif(not importlib.util.find_spec("pulsar_ext._native._core"), reason="no core was built")
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_longs = st.integers(0, (1 << 63) - 1)
_bases = st.tuples(st.integers(-1, (1 << 31) - 1), _longs, _longs)


@st.composite
def built(draw):
    """Return a C++ message made by a builder."""
    builder = InnerMessageBuilder()
    builder.content(draw(st.binary(max_size=2000)))
    builder.properties(draw(st.dictionaries(_texts, _texts, max_size=4)))
    if draw(st.booleans()):
        builder.partition_key(draw(_texts))
    if draw(st.booleans()):
        builder.ordering_key(draw(_texts))
    if draw(st.booleans()):
        builder.event_timestamp(draw(_longs))
    if draw(st.booleans()):
        builder.set_null_value()
    return builder.build()


def in_batch(base, size=3, key=b"key", payload=b"data"):
    """Return the C++ messages of a batch."""
    metadata = b"\x12" + varint(len(key)) + key + b"\x18" + varint(len(payload)) + b"\x28\x07"
    one = len(metadata).to_bytes(4, "big") + metadata + payload
    return batch_messages(one * size, size, InnerMessageId(*base, -1))


def test_native_status_has_a_reason_if_unused():
    """The status has a reason if, and only if, the core is not used."""
    status = core.native_status()
    assert status.is_used == (not status.why_not)


@given(built())
def test_fields_equal_the_binding(inner):
    """Each field of any message that can be built equals the binding's, in value and type."""
    for name in FIELDS:
        ours, theirs = getattr(received(inner), name)(), getattr(inner, name)()
        assert (ours, type(ours)) == (theirs, type(theirs))


@given(_bases, st.integers(1, 40), _texts, st.binary(max_size=300))
def test_batch_fields_and_ids_equal_the_binding(base, size, key, payload):
    """Messages of a batch have the binding's fields, and ids with its numbers, bytes and order."""
    partition, ledger, entry = base
    ids = []
    for index, inner in enumerate(in_batch(base, size, key.encode(), payload)):
        message = received(inner)
        assert [getattr(message, name)() for name in FIELDS] == [getattr(inner, name)() for name in FIELDS]
        message_id, bound = message.message_id(), inner.message_id()
        numbers = (message_id.ledger_id(), message_id.entry_id(), message_id.partition(), message_id.batch_index())
        assert numbers == message_id.order_key() == (ledger, entry, partition, index)
        assert hash(message_id) == hash(MessageId(partition, ledger, entry, index))
        assert message_id == pulsar.MessageId.wrap(bound)
        assert message_id.serialize() == bound.serialize()
        assert message_id.inner == bound
        assert pickle.loads(pickle.dumps(message_id)) == message_id
        ids.append(message_id)
    backwards = ids[::-1]
    backwards.sort()
    assert backwards == ids
    assert serialized_ids([*map(received, in_batch(base, size))]) == [one.serialize() for one in ids]


@_used
@given(st.lists(st.one_of(built().map(lambda one: [one]), st.builds(in_batch, _bases, st.integers(1, 5))), max_size=5))
def test_held_message_equals_the_binding(several):
    """A held C++ message has the binding's fields, id and batch position, and creates its object on demand."""
    inners = [inner for some in several for inner in some]
    held = [core._core.hold(Received, inner) for inner in inners]
    for message, inner in zip(held, inners, strict=True):
        assert [getattr(message, name)() for name in FIELDS] == [getattr(inner, name)() for name in FIELDS]
        assert message.message_id().serialize() == inner.message_id().serialize()
        assert message.altered(data=b"other").partition_key() == inner.partition_key()
        assert message.inner is message.inner
        assert message.inner.message_id() == inner.message_id()
    expected = [place for found in gather(serialized_ids(held)) for place in _places(found)]
    found = [place for run in core.runs(held) for one in entries_of(core.Run(*run)) for place in _places(one)]
    assert found == expected


def _places(found):
    partition, entry, size, bits, _ = found
    return [(partition, entry, size, bit) for bit in range(max(bits.bit_length(), 1)) if bits >> bit & 1 or not bits]


@given(built())
def test_copied_message_has_equal_fields(inner):
    """A copy has the same C++ message and attributes of its own, as officially."""
    messages = [received(inner), *([core._core.hold(Received, inner)] if core.IS_USED else [])]
    for message in messages:
        message.mine = 1
        copied = copy.copy(message)
        copied.mine += 1
        assert (type(copied), copied.data(), copied.inner, message.mine) == (Received, inner.data(), message.inner, 1)


@_used
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(1, 3)), max_size=20))
def test_highest_message_is_above_all_earlier_ones(entries):
    """A message is the highest if none that was received before has its position or a higher one."""
    prefetch, places = core.ReceivedBase(), []
    prefetch.message_class = Received
    for ledger, entry, size in entries:
        for inner in in_batch((-1, ledger, entry), size):
            message, place = prefetch.note(inner), (ledger, entry, inner.message_id().batch_index())
            assert message._is_highest_ == all(place > one for one in places)
            assert message.inner is inner
            places.append(place)


@_used
def test_no_message_is_highest_during_a_wait():
    """A message received during another thread's wait is not the highest: that thread may get a higher one."""
    prefetch, (one, other) = core.ReceivedBase(), in_batch((-1, 3, 4), 2)
    prefetch.message_class = Received

    def wait(millis):
        if millis:
            raise pulsar.Timeout
        assert not prefetch.note(one)._is_highest_
        return other

    prefetch.native_wait = wait
    with pytest.raises(pulsar.Timeout):
        prefetch.wait_noted(1)
    assert not received(one)._is_highest_
    message = prefetch.wait_noted(0)
    assert (message._is_highest_, message.inner) == (True, other)


@_used
def test_prefetch_needs_a_class_of_messages():
    """A prefetch without a wait, or with another class than one of messages, raises."""
    prefetch = core.ReceivedBase()
    with pytest.raises(AttributeError):
        prefetch.wait_noted(0)
    with pytest.raises(TypeError):
        prefetch.note(in_batch((-1, 3, 4))[0])
    prefetch.message_class = pulsar.Message
    with pytest.raises(TypeError):
        prefetch.note(in_batch((-1, 3, 4))[0])


@_used
def test_held_message_can_be_replaced():
    """A message reads the C++ message that was set last, and none after `del`."""
    one, other = in_batch((3, 7, 8), payload=b"data")[0], in_batch((3, 7, 9), payload=b"other")[0]
    message = core._core.hold(Received, one)
    message.inner = other
    assert (message.data(), message.message_id().entry_id()) == (b"other", 9)
    del message.inner
    with pytest.raises(AttributeError):
        message.data()


@_used
@given(st.one_of(st.binary(max_size=12), st.tuples(_longs, _longs, *[st.none() | st.integers(0, (1 << 31) - 1)] * 3)))
def test_plain_id_matches_the_pattern(data):
    """The core accepts the bytes of an id exactly if the pattern does, and reads the C++ client's numbers."""
    if isinstance(data, tuple):
        numbers = zip((8, 16, 24, 32, 48), data, strict=True)
        data = b"".join(bytes([tag]) + varint(number) for tag, number in numbers if number is not None)
    made = core.plain_id(data)
    assert (made is not None) == is_plain(data)
    if made is not None:
        assert made.order_key() == plain_from_inner(deserialize_inner(data)).order_key()
        assert made.serialize() == data


@given(_bases)
def test_id_outside_a_batch_equals_the_binding(base):
    """A number that looks like the mark of a chunked id in its bytes does not make the id chunked."""
    inner = batch_messages(b"\x00\x00\x00\x02\x18\x00", 1, InnerMessageId(*base, -1))[0]
    message_id = received(inner).message_id()
    assert type(message_id) is MessageId
    assert message_id.serialize() == inner.message_id().serialize()


def test_id_outlives_its_message():
    """An id stays valid after its message was freed, on any thread."""
    messages = [received(inner) for inner in in_batch((3, 1 << 40, 58), 100)]
    ids = [message.message_id() for message in messages]
    expected = [message.inner.message_id().serialize() for message in messages]
    thread = threading.Thread(target=messages.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert [one.inner.serialize() for one in ids] == [one.serialize() for one in ids] == expected
    freed = threading.Thread(target=ids.clear)
    freed.start()
    freed.join()


def test_topic_is_set_on_the_native_id():
    """A topic is set on the C++ id that an id creates once and keeps."""
    message_id = received(in_batch((3, 7, 8))[1]).message_id()
    assert message_id.topic_name() is None
    message_id.topic_name("persistent://a/b/c")
    assert message_id.topic_name() == "persistent://a/b/c"
    assert message_id.inner is message_id.inner


def test_text_that_is_not_utf8_raises_as_officially():
    """A key that is not UTF-8 raises `UnicodeDecodeError`, as the binding does."""
    inner = in_batch((3, 7, 8), key=b"\xff\xfe")[0]
    with pytest.raises(UnicodeDecodeError):
        inner.partition_key()
    with pytest.raises(UnicodeDecodeError):
        received(inner).partition_key()


def test_message_reads_any_object_in_inner():
    """An object that is not a C++ message is read by its own methods; a message without one raises `NotOpen`."""

    class Stub:
        def data(self):
            return b"other"

        def message_id(self):
            return InnerMessageId(1, 2, 3, 4)

    message = received(Stub())
    assert (message.data(), message.message_id().order_key()) == (b"other", (2, 3, 1, 4))
    with pytest.raises(AttributeError):
        message.partition_key()
    with pytest.raises(NotOpen):
        Message().data()


def test_altered_fields_hide_those_of_the_message():
    """`altered()` returns a message with other fields than its C++ message."""
    message = received(in_batch((3, 7, 8))[0]).altered(data=b"new", partition_key="other")
    assert (message.data(), message.partition_key(), message.event_timestamp()) == (b"new", "other", 7)


def test_chunked_ids_have_their_first_chunk():
    """The id of a chunked message has its first chunk's id."""
    chunked = ChunkMessageId(MessageId(-1, 5, 5), MessageId(-1, 5, 7))

    class Stub:
        def message_id(self):
            return chunked.inner

        def topic_name(self):
            return "topic"

    found = received(Stub()).message_id()
    assert (type(found), found.first_chunk_message_id().entry_id()) == (ChunkMessageId, 5)


def test_reading_leaks_no_memory():
    """Reading 100,000 messages and their ids leaves no references."""
    inners = in_batch((3, 7, 8), 100)

    def run():
        for _ in range(1000):
            for inner in inners:
                message = received(inner)
                for name in FIELDS:
                    getattr(message, name)()
                message_id = message.message_id()
                message_id.serialize()
                hash(message_id)
                _ = message_id.inner

    run()
    gc.collect()
    before = sys.getallocatedblocks()
    run()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000


def test_forked_child_reads_inherited_messages():
    """Messages and ids from before a fork are read and freed in the child."""
    messages = [received(inner) for inner in in_batch((3, 7, 8), 10)]
    ids = [message.message_id() for message in messages]

    def read(sending):
        sending.send([(one.data(), one.message_id() == other) for one, other in zip(messages, ids, strict=True)])
        messages.clear()
        ids.clear()
        gc.collect()

    answers, sending = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=read, args=(sending,))
    child.start()
    assert answers.recv() == [(b"data", True)] * 10
    child.join()
    assert child.exitcode == 0


# -- conditions in which it is not used --------------------------------------------------------------------------------

_SHOW = "import pulsar_ext; print(pulsar_ext.native_status().why_not)"
_ANOTHER_LAYOUT = """
import ctypes
at = ctypes.c_void_p.from_address
before_it = classmethod(lambda _, address: at(address - 8))
ctypes.c_void_p = type("c_void_p", (ctypes.c_void_p,), {"from_address": before_it})
"""


def run(program, **environment):
    """Run a program in its own process; return its exit status and the last line that it printed."""
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, (ended.stdout + ended.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("import sys; sys.modules['pulsar_ext._native._core'] = None", "pulsar_ext._native._core"),
        ("import pulsar; pulsar.__version__ = '3.99'", "not 3.99"),
        pytest.param(_ANOTHER_LAYOUT, "another object layout", marks=_built),
    ],
    ids=["not built", "another client", "another layout"],
)
def test_core_is_unused_if_it_may_not_fit(before, why):
    """The status has the reason if the core is missing or does not fit the client, and Python reads messages."""
    read = "from pulsar_ext.message import received; import _pulsar; b = _pulsar.MessageBuilder(); b.content(b'x')"
    used = "; assert received(b.build()).data() == b'x'; assert received(b.build()).message_id().ledger_id() == -1"
    status, shown = run(f"{before}\n{read}{used}; {_SHOW}", PULSAR_EXT_NATIVE="")
    assert (status, why in shown) == (0, True)
    if core.native_status().is_used:
        status, shown = run(f"{before}\n{_SHOW}", PULSAR_EXT_NATIVE="1")
        assert (status, "PULSAR_EXT_NATIVE=1" in shown, "ImportError" in shown) == (1, True, True)


def test_environment_disables_the_core():
    """`PULSAR_EXT_NATIVE=0` disables the core."""
    assert run(_SHOW, PULSAR_EXT_NATIVE="0") == (0, "PULSAR_EXT_NATIVE=0")


def test_program_exits_with_live_ids_and_messages():
    """A program that ends with messages and ids in a module, a cycle and a thread exits normally."""
    program = """
import threading, builtins
from pulsar_ext.message import received
from pulsar_ext._native.messages import batch_messages, InnerMessageId
messages = [received(one) for one in batch_messages(b"\\0\\0\\0\\2\\x18\\0" * 50, 50, InnerMessageId(1, 2, 3, -1))]
builtins.kept = [one.message_id() for one in messages]
messages[0].cycle = messages
threading.Thread(target=threading.Event().wait, args=(0.05,)).start()
print("end")
"""
    assert run(program) == (0, "end")
