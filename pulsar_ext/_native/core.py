"""The native core: messages' fields and ids, read by the C++ client's own methods without the binding in between.

The optional extension `_core.cpp` is the C++ part. If it was not built, or does not fit the installed official client,
the Python classes and functions here do its work through the binding. Before the extension reads anything, the binding
provides the addresses of its C++ objects; the extension then reads messages of known content, and is not used if one
field differs from the binding's.

The environment variable `PULSAR_EXT_NATIVE=0` disables it; `PULSAR_EXT_NATIVE=1` raises `ImportError` if it is missing.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import _pulsar
import pulsar

from .c_api import TRIED, address_of
from .messages import (
    EMPTY_MESSAGE,
    InnerConsumer,
    InnerMessage,
    InnerMessageBuilder,
    InnerMessageId,
    InnerReader,
    batch_messages,
)
from .results import raise_result

_IdOf = TypeVar("_IdOf", bound="Callable[[Any], Any]")
_M = TypeVar("_M", bound="MessageBase")

_SWITCH: Final = "PULSAR_EXT_NATIVE"
_FIELDS: Final = (
    *("data", "properties", "partition_key", "ordering_key", "topic_name", "producer_name"),
    *("publish_timestamp", "event_timestamp", "redelivery_count", "has_null_value"),
)
_NUMBERS: Final = (
    *("ledger_id", "entry_id", "batch_index", "publish_timestamp", "event_timestamp", "has_null_value", "is_chunked"),
    *("sequence_id", "key_slot"),
)
_PAYLOAD: Final = b"\x00\x00\x00\x13\x0a\x08\x0a\x01p\x12\x03\xc3\xa9v\x12\x03key\x18\x04\x28\x07data"
"""A message of a batch in wire format, with a property, a key, a size, an event time and a payload."""
_log = logging.getLogger("pulsar_ext")


class NativeStatus(NamedTuple):
    """Use of the native core."""

    is_used: bool
    why_not: str
    """The reason if it is not used, otherwise empty."""


class Run(NamedTuple):
    """Neighbouring messages of one batch, or single messages of neighbouring entries; the core has plain tuples."""

    partition: int
    """-1 if not partitioned."""
    ledger: int
    entry: int
    """Entry id; of single messages the first one's."""
    size: int
    """Number of messages in the batch, -1 if unknown; 0 for single messages, -2 for a chunked message."""
    first: int
    """Batch index of the first message, -1 if it has none."""
    last: int
    """Batch index of the last message; of single messages `first` plus the number of entries after the first."""
    at: int
    """Index of the last message in the list that was passed."""


def native_status() -> NativeStatus:
    """Return whether the native core is used, and the reason if it is not."""
    return NativeStatus(_core is not None, _why_not)


def _load() -> tuple[ModuleType | None, str]:
    """Return the checked extension and an empty text, or None and the reason."""
    switch = os.environ.get(_SWITCH, "")
    if switch == "0":
        return None, f"{_SWITCH}=0"
    try:
        if pulsar.__version__ != TRIED:
            raise ImportError(f"it is built for pulsar-client {TRIED}, not {pulsar.__version__}")  # noqa: TRY301
        core = importlib.import_module("pulsar_ext._native._core")
        _prove(core)
    except Exception as error:  # any failure: the Python code is used instead
        if switch == "1":
            raise ImportError(
                f"{_SWITCH}=1, but the native core of pulsar_ext cannot be used: {error}. Unset {_SWITCH} to use the "
                "Python code instead"
            ) from error
        _log.debug("The native core is not used: %s", error)
        return None, str(error)
    return core, ""


def _prove(core: ModuleType) -> None:
    """Check on objects of known content that the extension reads the same fields as the binding.

    Raises:
        ImportError: a field differs.
    """
    builder, null = InnerMessageBuilder(), InnerMessageBuilder()
    builder.content(b"con\x00tent")
    builder.partition_key("clé")
    builder.ordering_key("order")
    builder.event_timestamp(1 << 41)
    builder.properties({"a": "b", "ü": ""})
    null.set_null_value()
    one, other = batch_messages(_PAYLOAD * 2, 2, InnerMessageId(3, 1 << 40, 58, -1))
    messages = [one, other, builder.build(), null.build()]
    consumer = InnerConsumer()
    bound = [*messages, other.message_id(), InnerMessageId(1, 2, 3, 4), consumer]
    after_header = object.__basicsize__
    stored = [ctypes.c_void_p.from_address(id(each) + after_header).value for each in bound]
    if stored != [address_of(each, "to read messages natively") for each in bound]:
        raise ImportError("the binding has another object layout")
    classes = InnerMessage, InnerMessageId, InnerConsumer
    any_message = InnerMessageBuilder().build  # in C: a Ctrl-C cannot come between a message and its object
    core.begin(
        _pulsar.__file__,
        *classes,
        any_message,
        lambda count: batch_messages(EMPTY_MESSAGE * count, count, InnerMessageId(-1, -1, -1, -1))[0],
        lambda result: raise_result(pulsar.Result(result)),
        int(pulsar.Result.Timeout),
    )
    core.make_ids(type("_Id", (core.Id, pulsar.MessageId), {"__slots__": ()}), str)
    message_class: Any = type("_Message", (core.Message, pulsar.Message), {"__slots__": ()})
    noted = core.Received()
    noted.message_class = message_class
    received = [core.hold(message_class, inner) for inner in messages]
    read = [{name: getattr(message, name)() for name in _FIELDS} for message in received]
    if read != [{name: getattr(inner, name)() for name in _FIELDS} for inner in messages]:
        raise ImportError("it reads different message fields than the binding")
    if [noted.note(inner)._is_highest_ for inner in messages] != [True, True, False, False]:
        raise ImportError("it compares positions wrongly")
    known = [read[1]["data"], read[1]["properties"], read[1]["partition_key"], read[1]["event_timestamp"]]
    known += [read[2]["data"], read[2]["ordering_key"], read[2]["event_timestamp"], read[3]["has_null_value"]]
    if known != [b"data", {"p": "év"}, "key", 7, b"con\x00tent", "order", 1 << 41, True]:
        raise ImportError("it reads other fields than the message was built with")
    _prove_more(core, messages, received)
    _prove_columns(core, messages)
    for call in (
        partial(core.drain, noted, 1, 1, consumer),
        partial(core.acknowledge, consumer, received),
        partial(core.read_block, None, 0, 1, 1, 1),
    ):
        try:
            call()
        except pulsar.ConsumerNotInitialized:
            continue
        raise ImportError("it uses a consumer or a reader that was never opened")


def _prove_more(core: ModuleType, messages: list[InnerMessage], received: list[Any]) -> None:
    """Check that ids match the binding's and that messages return the C++ message they hold; raise like `_prove()`."""
    _, other, built, _ = messages
    ids = [message.message_id() for message in received]
    if [made._order for made in ids[1:3]] != [(1 << 40, 58, 3, 1), (-1, -1, -1, -1)] or not all(
        (core.held(made), core.serialized(made)) == (inner.message_id(), inner.message_id().serialize())
        for made, inner in zip(ids, messages, strict=True)
    ):
        raise ImportError("it reads a different message id than the binding")
    if core.runs(received) != [(3, 1 << 40, 58, 2, 0, 1, 1), (-1, -1, -1, 0, -1, -1, 2), (-1, -1, -1, 0, -1, -1, 3)]:
        raise ImportError("it reads a wrong batch size")
    sent = core.batch_message(core.batch_payload([b"a", b"b"], [299, 300], [b"", b"\x28\x07"]), 2, 300, b"\x12\x03key")
    if (sent.data(), sent.partition_key()) != (
        b"\x00\x00\x00\x05\x18\x01\x40\xab\x02a\x00\x00\x00\x07\x28\x07\x18\x01\x40\xac\x02b",
        "key",
    ):
        raise ImportError("it builds a different batch than the one it was given")
    received[0].inner = other
    held = [message.inner.message_id() for message in received[:3]]
    if held != [inner.message_id() for inner in (other, other, built)]:
        raise ImportError("it returns another C++ message than the one it holds")


def _prove_columns(core: ModuleType, messages: list[InnerMessage]) -> None:
    """Check the columns of a block of messages; raise like `_prove()`."""
    builder = InnerMessageBuilder()
    builder.sequence_id(4321)
    block = core.block([*messages[1:], builder.build()])
    numbers = [(1 << 40, 58, 1, 0, 7, 0, 0, 0, 27204), (-1, -1, -1, 0, 1 << 41, 0, 0, 0, 38420)]
    numbers += [(-1, -1, -1, 0, 0, 1, 0, 0, 39265), (-1, -1, -1, 0, 0, 0, 0, 4321, 23250)]
    read = (memoryview(block.numbers(name)).cast("q").tolist() for name in _NUMBERS)
    if [*zip(*read, strict=True)] != numbers:
        raise ImportError("it reads other numbers than the messages have")
    ids = [message.message_id().serialize() for message in block]
    columns = [block.octets("data"), block.octets("partition_key"), block.ids(), *block.properties()[1:]]
    ends = [[4, 12, 12, 12], [3, 7, 7, 7], [*accumulate(map(len, ids))], [1, 2, 4], [3, 4, 4]]
    data = [b"datacon\x00tent", b"keycl\xc3\xa9", b"".join(ids), b"pa\xc3\xbc", b"\xc3\xa9vb"]
    if [(memoryview(offsets).cast("i").tolist(), texts) for offsets, texts in columns] != [
        ([0, *end], text) for end, text in zip(ends, data, strict=True)
    ]:
        raise ImportError("it reads other columns than the messages have")


_core, _why_not = _load()
IS_USED: Final = _core is not None
_inner = attrgetter("inner")

if TYPE_CHECKING or _core is None:

    class MessageBase:
        """Base of messages: the C++ message beside the official methods."""

        __slots__ = ("inner",)
        inner: Any
        _is_highest_ = False
        """True if the core knows that the consumer had received neither this message nor a later one of its topic."""

    class ReceivedBase:
        """Base of the prefetch; notes what a consumer has received."""

        __slots__ = ("message_class", "native_wait", "unnoted")
        message_class: type[Any]
        """Class of the messages that are received from now on."""
        native_wait: Callable[[int], InnerMessage]
        unnoted: int
        """Number of running waits, whose messages are not noted yet; while there are any, no message is the highest."""
        note: Callable[[InnerMessage], Any]
        """Notes a received C++ message, and returns it as one of ours."""
        wait_noted: Callable[[int], Any]
        """Returns the message that `native_wait` returns, noted and as one of ours."""

    class IdBase:
        __slots__ = ("_batch_size", "_data", "_order", "_topic", "inner")
        _batch_size: int
        _order: tuple[int, int, int, int] | None
        inner: InnerMessageId

        def ledger_id(self) -> int:
            """Return the ledger id; -1 in `MessageId.earliest`."""
            return self._order[0] if self._order else self.inner.ledger_id()

        def entry_id(self) -> int:
            """Return the entry id in the ledger."""
            return self._order[1] if self._order else self.inner.entry_id()

        def partition(self) -> int:
            """Return the partition's index; -1 if the topic is not partitioned."""
            return self._order[2] if self._order else self.inner.partition()

        def batch_index(self) -> int:
            """Return the index in the batch; -1 if the message is not in a batch."""
            return self._order[3] if self._order else self.inner.batch_index()

    def held(_: IdBase) -> InnerMessageId | None:
        """Return the C++ id that an id got from its message, or None."""
        return None

    def serialized(_: IdBase) -> bytes | None:
        """Return the bytes of the C++ id that an id got from its message, or None."""
        return None

    def plain_id(_: bytes, /) -> Any:
        """Return an id without a topic, if the C++ client would write an id that is not chunked as exactly these bytes.

        Return None if they are not, or if the core is not used.
        """
        return None

    def runs(_: Sequence[object], /) -> list[Run] | None:
        """Return the runs of neighbouring messages, in their order; None if the core is not used."""
        return None

    def wrap(cls: type[_M], inners: list[InnerMessage], /) -> list[_M]:
        messages = []
        for inner in inners:
            message = cls()
            message.inner = inner
            messages.append(message)
        return messages

    def acknowledge(consumer: InnerConsumer, messages: Sequence[MessageBase], /) -> None:
        """Acknowledge messages of one topic individually with a C++ consumer."""
        deque(map(consumer.acknowledge, map(_inner, messages)), 0)

    # Bases of what decides whether a message may join the open batch, with that state as plain attributes.
    class DispatchBase: ...

    class GroupBase: ...

    class PendingBase: ...

    class SequenceBase: ...

    Items = batch_payload = batch_message = deliver = joiner = read_block = None
    drain: Any = None
else:
    MessageBase, IdBase, ReceivedBase = _core.Message, _core.Id, _core.Received
    DispatchBase, GroupBase, PendingBase, SequenceBase = _core.Dispatch, _core.Group, _core.Pending, _core.Sequence
    Items, joiner = _core.Items, _core.joiner

    def read_block(reader: InnerReader, /, *limits: int) -> Any:
        """Return the messages that a C++ reader has, up to a number, a size and a timeout, as columns."""
        return _core.read_block(reader, address_of(reader, "to read messages natively"), *limits)

    batch_payload, batch_message, deliver = _core.batch_payload, _core.batch_message, _core.deliver
    held, serialized, wrap = _core.held, _core.serialized, _core.wrap
    drain, runs, acknowledge, plain_id = _core.drain, _core.runs, _core.acknowledge, _core.plain_id


def id_reader(cls: type, id_of: _IdOf) -> _IdOf:
    """Return the method of a message that returns its id.

    Args:
        cls: the class of ids that are not chunked.
        id_of: makes the id of any message.
    """
    if _core is None:
        return id_of
    _core.make_ids(cls, id_of)
    found: _IdOf = _core.Message.message_id
    return found
