"""The native core: messages' fields and ids, read by the C++ client's own methods without the binding in between.

`_core.cpp` has the C++ part, an extension that is optional: where it was not built, or the installed official client is
not the one that it is known to fit, the classes and functions here are Python, and do the same by the binding. Before
the extension reads anything, the binding itself says where its objects have their C++ objects; then it reads messages
of known content, and is left out if it reads one field otherwise than the binding does.

The environment's `PULSAR_EXT_NATIVE=0` leaves it out, and `PULSAR_EXT_NATIVE=1` makes its absence an `ImportError`.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
from collections import deque
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import _pulsar
import pulsar

from .c_api import TRIED, address_of
from .messages import InnerMessage, InnerMessageBuilder, InnerMessageId, batch_messages
from .results import InnerConsumer, raise_result

if TYPE_CHECKING:
    from collections.abc import Callable

_IdOf = TypeVar("_IdOf", bound="Callable[[Any], Any]")

__all__ = [
    "IS_USED",
    "IdBase",
    "MessageBase",
    "NativeStatus",
    "acknowledge",
    "drainer",
    "held",
    "id_reader",
    "native_status",
    "plain_id",
    "runs",
    "serialized",
    "serialized_ids",
]

_SWITCH: Final = "PULSAR_EXT_NATIVE"
_FIELDS: Final = (
    *("data", "properties", "partition_key", "ordering_key", "topic_name", "producer_name"),
    *("publish_timestamp", "event_timestamp", "redelivery_count", "has_null_value"),
)
_PAYLOAD: Final = b"\x00\x00\x00\x13\x0a\x08\x0a\x01p\x12\x03\xc3\xa9v\x12\x03key\x18\x04\x28\x07data"
"""A message of a batch, as it is sent: property, key, size and event time, and the payload."""
_EMPTY: Final = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch without a payload."""
_log = logging.getLogger("pulsar_ext")


class NativeStatus(NamedTuple):
    """Whether the native core is used."""

    is_used: bool
    why_not: str
    """Why it is not used; empty if it is."""


class Run(NamedTuple):
    """Messages that are neighbours in one batch, or single ones in neighbouring entries; the core has plain tuples."""

    partition: int
    """-1 if none."""
    ledger: int
    entry: int
    """The first one of single messages."""
    size: int
    """Number of the batch's messages, -1 if unknown; 0 for single messages, -2 for a chunked one."""
    first: int
    """Index of the first one in the batch, -1 if there is none."""
    last: int
    """That of the last one; of single messages so much more as there are entries after the first."""
    at: int
    """Place of the last of them among all."""


def native_status() -> NativeStatus:
    """Return whether the native core is used, and why not if it is not."""
    return NativeStatus(_core is not None, _why_not)


def _load() -> tuple[Any, str]:
    """Return the extension, proved; or None, and the reason."""
    switch = os.environ.get(_SWITCH, "")
    if switch == "0":
        return None, f"{_SWITCH}=0"
    try:
        if pulsar.__version__ != TRIED:
            raise ImportError(f"it is known to fit pulsar-client {TRIED}, not {pulsar.__version__}")  # noqa: TRY301
        core = importlib.import_module("pulsar_ext._native._core")
        _prove(core)
    except Exception as error:  # whatever it is, Python does the same
        if switch == "1":
            raise ImportError(
                f"{_SWITCH}=1, and the native core of pulsar_ext cannot be used: {error}. Without {_SWITCH} everything "
                "works in Python"
            ) from error
        _log.debug("The native core is not used: %s", error)
        return None, str(error)
    return core, ""


def _prove(core: Any) -> None:
    """Prove on objects of known content that the extension reads them as the binding does.

    Raises:
        ImportError: it does not.
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
    if not all(_address_at(each) == address_of(each, "how objects of the binding are laid out") for each in bound):
        raise ImportError("objects of the binding are laid out in another way")
    classes = InnerMessage, InnerMessageId, InnerConsumer
    core.begin(_pulsar.__file__, *classes, _any_message, _empty_batch, _refuse, int(pulsar.Result.Timeout))
    core.make_ids(type("_Id", (core.Id, pulsar.MessageId), {"__slots__": ()}), str)
    message_class: Any = type("_Message", (core.Message, pulsar.Message), {"__slots__": ()})
    received = [core.hold(message_class, inner) for inner in messages]
    read = [{name: getattr(message, name)() for name in _FIELDS} for message in received]
    if read != [{name: getattr(inner, name)() for name in _FIELDS} for inner in messages]:
        raise ImportError("it reads a message's fields in another way")
    known = [read[1]["data"], read[1]["properties"], read[1]["partition_key"], read[1]["event_timestamp"]]
    known += [read[2]["data"], read[2]["ordering_key"], read[2]["event_timestamp"], read[3]["has_null_value"]]
    if known != [b"data", {"p": "év"}, "key", 7, b"con\x00tent", "order", 1 << 41, True]:
        raise ImportError("it reads other fields than a message was made of")
    _prove_more(core, messages, received)
    for call, arguments in ((core.drain, (message_class, 1, 1, consumer)), (core.acknowledge, (consumer, received))):
        try:
            call(*arguments)
        except pulsar.ConsumerNotInitialized:
            continue
        raise ImportError("it asks a consumer that was never opened")


def _prove_more(core: Any, messages: list[Any], received: list[Any]) -> None:
    """Prove that ids are read as the binding does, and that messages give back what they hold; raises as `_prove()`."""
    _, other, built, _ = messages
    ids = [message.message_id() for message in received]
    if [made._order for made in ids[1:3]] != [(1 << 40, 58, 3, 1), (-1, -1, -1, -1)] or not all(
        (core.held(made), core.serialized(made)) == (inner.message_id(), inner.message_id().serialize())
        for made, inner in zip(ids, messages, strict=True)
    ):
        raise ImportError("it reads a message's id in another way")
    if core.runs(received) != [(3, 1 << 40, 58, 2, 0, 1, 1), (-1, -1, -1, 0, -1, -1, 2), (-1, -1, -1, 0, -1, -1, 3)]:
        raise ImportError("it reads a batch's size in another way")
    sent = core.batch_message(core.batch_payload([b"a", b"b"], [299, 300], [b"", b"\x28\x07"]), 2, 300, b"\x12\x03key")
    if (sent.data(), sent.partition_key()) != (
        b"\x00\x00\x00\x05\x18\x01\x40\xab\x02a\x00\x00\x00\x07\x28\x07\x18\x01\x40\xac\x02b",
        "key",
    ):
        raise ImportError("it makes another batch")
    received[0].inner = other
    held = [message.inner.message_id() for message in received[:3]]
    if held != [inner.message_id() for inner in (other, other, built)]:
        raise ImportError("it hands out other messages than it holds")


def _any_message() -> Any:
    """Return an object of the binding with a C++ message of its own."""
    return InnerMessageBuilder().build()


def _empty_batch(count: int) -> Any:
    """Return the first C++ message of a batch of `count` messages, which are empty."""
    return batch_messages(_EMPTY * count, count, InnerMessageId(-1, -1, -1, -1))[0]


def _refuse(result: int) -> None:
    """Raise the error of a result of the C++ client."""
    raise_result(pulsar.Result(result))


def _address_at(bound: Any) -> int | None:
    """Return the address that an object of the binding has behind its head."""
    return ctypes.c_void_p.from_address(id(bound) + object.__basicsize__).value


_core, _why_not = _load()
IS_USED: Final = _core is not None
_batch_receive = InnerConsumer.batch_receive
_inner = attrgetter("inner")

if TYPE_CHECKING or _core is None:
    _message_id, _serialize = InnerMessage.message_id, InnerMessageId.serialize

    class MessageBase:
        """What a message has beside its official methods: its C++ message."""

        __slots__ = ("inner",)
        inner: Any

    class IdBase:
        """What an id keeps."""

        __slots__ = ("_batch_size", "_data", "_order", "_topic", "inner")
        _batch_size: int
        _order: tuple[int, int, int, int] | None
        inner: Any

        def ledger_id(self) -> int:
            """Return its ledger; -1 in `MessageId.earliest`."""
            return self._order[0] if self._order else self.inner.ledger_id()

        def entry_id(self) -> int:
            """Return its entry in the ledger."""
            return self._order[1] if self._order else self.inner.entry_id()

        def partition(self) -> int:
            """Return the partition's index; -1 if there is none."""
            return self._order[2] if self._order else self.inner.partition()

        def batch_index(self) -> int:
            """Return its place in its batch; -1 if it is in none."""
            return self._order[3] if self._order else self.inner.batch_index()

    def held(_: IdBase) -> Any:
        """Return the C++ id that an id got from its message; None if it got none."""
        return None

    def serialized(_: IdBase) -> bytes | None:
        """Return the bytes of the C++ id that an id got from its message; None if it got none."""
        return None

    def serialized_ids(messages: list[Any]) -> list[bytes]:
        """Return the bytes of the ids of messages."""
        return list(map(_serialize, map(_message_id, map(_inner, messages))))

    def plain_id(_: bytes, /) -> Any:
        """Return an id without an origin if bytes are just what the C++ client would write of one that is not chunked.

        None if they are not, or the core is not used.
        """
        return None

    def runs(_: list[Any], /) -> list[Run] | None:
        """Return what messages are, where they are neighbours in a batch as one; None if the core is not used.

        Args:
            _: the messages.

        Returns:
            What they are, in their order.
        """
        return None

    def acknowledge(consumer: Any, messages: list[Any], /) -> None:
        """Have a C++ consumer acknowledge messages, of one topic, each by itself."""
        deque(map(consumer.acknowledge, map(_inner, messages)), 0)

    def drainer(_: type, _most: int, _most_bytes: int, /) -> Callable[[Any], list[Any]]:
        """Return what takes messages out of a C++ consumer's queue.

        Args:
            _: the class of the messages.
            _most: how many at most.
            _most_bytes: with the message that makes them so many bytes it ends.

        Returns:
            Takes the C++ consumer. If the core is used it returns messages of that class, after half a millisecond at
            most; otherwise C++ messages, as many as the C++ consumer's policy says.
        """
        return _batch_receive  # type: ignore[no-any-return]  # the binding ships no types

    class DispatchBase:
        """What a dispatcher has that decides whether a message may join its open batch."""

        inside: Any
        group: Any
        pending: Any

    class GroupBase:
        """What a group of open batches has that decides it."""

        __slots__ = ("free", "left", "only")
        free: int
        left: int
        only: Any

    class PendingBase:
        """What the limit of pending messages has that decides it."""

        __slots__ = ("accepted", "limit", "released")
        accepted: int
        released: int
        limit: int

    class SequenceBase:
        """What sequence ids have that decides it."""

        __slots__ = ("last", "steady")
        last: int
        steady: bool

    Items = batch_payload = batch_message = deliver = joiner = None
else:
    MessageBase, IdBase = _core.Message, _core.Id
    DispatchBase, GroupBase, PendingBase, SequenceBase = _core.Dispatch, _core.Group, _core.Pending, _core.Sequence
    Items, joiner = _core.Items, _core.joiner
    batch_payload, batch_message, deliver = _core.batch_payload, _core.batch_message, _core.deliver
    held, serialized, serialized_ids = _core.held, _core.serialized, _core.serialized_ids
    drainer, runs, acknowledge, plain_id = partial(partial, _core.drain), _core.runs, _core.acknowledge, _core.plain_id


def id_reader(cls: type, id_of: _IdOf) -> _IdOf:
    """Return the method of a message that makes its id.

    Args:
        cls: the class of ids of messages that are not chunked.
        id_of: makes the id of any message.
    """
    if _core is None:
        return id_of
    _core.make_ids(cls, id_of)
    found: _IdOf = _core.Message.message_id
    return found
