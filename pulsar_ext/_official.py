"""The one door to the official client's private parts.

The official Python layer keeps its C++ objects in private attributes. Every class of ours that stands on one keeps that
object in a slot called `inner`, and the slot goes by the official attribute's name as well, so that inherited methods
find it at no cost. When a release of the official client moves an attribute, this file changes and nothing else does;
`PRIVATE_ATTRIBUTES` names each of them for the unit test that watches over it.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import os
import sys
import threading
import weakref
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema
import pulsar.tableview

from .errors import ForkedClientError, InvalidMessageId, NotOpen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

__all__ = [
    "INCIDENTAL_NAMES",
    "POLL_MILLIS",
    "PRIVATE_ATTRIBUTES",
    "PUBLIC_NAMES",
    "AsyncClientDoor",
    "AsyncConsumerDoor",
    "AsyncProducerDoor",
    "AsyncReaderDoor",
    "ClientDoor",
    "ConsumerDoor",
    "InnerConsumer",
    "InnerMessage",
    "InnerMessageBuilder",
    "InnerMessageId",
    "MessageDoor",
    "MessageIdDoor",
    "ProducerDoor",
    "ReaderDoor",
    "Refusing",
    "TableViewDoor",
    "Timeout",
    "adopt",
    "alias_submodules",
    "batch_message",
    "build_plain",
    "closed",
    "consumers_of",
    "deserialize_inner",
    "inner_id_of",
    "inner_message_of",
    "inner_producer_of",
    "made_up_batch",
    "named_arguments",
    "official_message",
    "polling",
    "raise_result",
    "reader_heard",
    "refuse_after_fork",
    "shaped_like",
    "standing_for",
    "truthy",
    "unlimited_producer",
    "wrap_batch",
]

_F = TypeVar("_F", bound="Callable[..., Any]")

InnerConsumer = _pulsar.Consumer
InnerMessage = _pulsar.Message
InnerMessageId = _pulsar.MessageId
InnerMessageBuilder = _pulsar.MessageBuilder
Timeout = _pulsar.Timeout

PRIVATE_ATTRIBUTES = {
    "MessageId": ("_msg_id",),
    "Message": ("_message", "_schema"),
    "Producer": ("_producer", "_schema", "_client", "_build_msg"),
    "Consumer": ("_consumer", "_schema", "_client"),
    "Reader": ("_reader", "_schema", "_client"),
    "Client": ("_client", "_consumers"),
}
"""What this module relies on, by the official class that holds it."""

INCIDENTAL_NAMES = frozenset({"logging", "re", "timedelta", "Callable", "List", "Tuple", "Optional", "Union"})
"""What `dir(pulsar)` shows only because its source imports it."""

PUBLIC_NAMES = {name: getattr(pulsar, name) for name in dir(pulsar) if not name.startswith("_")}
"""Everything that `import pulsar` offers, by name."""

_EMPTY_MESSAGE = b"\x00\x00\x00\x02\x18\x00"
"""A message of a batch's payload: the length of its metadata, and metadata that says: no payload."""

POLL_MILLIS = 100
"""How long one native wait lasts: the longest that a Ctrl-C has to wait."""


class Refusing:
    """Stands where a C++ object belongs and answers every use with one clear error instead of a crash or a hang."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error()

    def __call__(self, *_: Any) -> NoReturn:
        raise self._error()

    def __iter__(self) -> Iterator[Any]:
        raise self._error()


def _never_opened(kind: str, how: str) -> Refusing:
    return Refusing(lambda: NotOpen(f"This {kind} was never opened: it comes from {how}, not from its constructor."))


def closed(kind: str) -> Refusing:
    """Give what refuses every use of something that was closed, as the official client does."""
    return Refusing(lambda: pulsar.AlreadyClosed(f"Pulsar error: AlreadyClosed: this {kind} was closed."))


class _Text(str):
    """An empty text that official code does not take for a missing one."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class _Number(int):
    """A zero that official code does not take for a missing number."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


def truthy(value: Any) -> Any:
    """Give a value that is as good as `value` and not false, unless it is None: the official checks are `if value:`."""
    if value or value is None:
        return value
    if isinstance(value, str):
        return _Text(value)
    return _Number(value) if isinstance(value, int) else value


class MessageIdDoor(pulsar.MessageId):  # type: ignore[misc]  # the official client ships no types
    """`pulsar.MessageId` with its C++ id in `inner`."""

    __slots__ = ("inner",)
    inner: Any


def wrap_batch(batch: pulsar.MessageBatch, data: bytes, size: int) -> list[Any]:
    """Give the C++ messages of a batch payload that has been checked before."""
    batch._msg_batch.parse_from(data, size)
    return list(batch._msg_batch.messages())


class MessageDoor(pulsar.Message):  # type: ignore[misc]
    """`pulsar.Message` with its C++ message in `inner`; the schema is held by the class, not by each message."""

    __slots__ = ("inner",)
    inner: Any
    _schema = pulsar.schema.BytesSchema()

    def __init__(self) -> None:
        self.inner = _never_opened("Message", "receive(), read_next() or a listener")


class ProducerDoor(pulsar.Producer):  # type: ignore[misc]
    """`pulsar.Producer` with its C++ producer in `inner`."""

    __slots__ = ("inner",)
    inner: Any
    _window: Any
    _barred: bool
    _highest = -1
    """The highest sequence id that a message was given."""
    _following: Iterator[int] | None = None
    """The numbers behind it."""

    def __init__(self) -> None:
        self.inner = _never_opened("Producer", "Client.create_producer()")
        self._schema = self.inner  # type: ignore[misc]  # lives in the official class's dict

    def build(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> Any:
        """Make the C++ message; unlike officially, an empty key is a key and sequence id 0 is a sequence id.

        Behind a message with a sequence id, one without any gets the next number: the C++ client's own would be lower,
        and a broker that deduplicates would drop it.
        """
        if sequence_id is not None:
            if type(sequence_id) is int and sequence_id > self._highest:
                self._highest = sequence_id  # type: ignore[misc]  # lives in the official class's dict
                self._following = itertools.count(sequence_id + 1)  # type: ignore[misc]
        elif self._following is not None:
            sequence_id = next(self._following)
        if (
            properties is None
            and ordering_key is None
            and replication_clusters is None
            and disable_replication is False
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and (partition_key is None or type(partition_key) is str)
            and (sequence_id is None or type(sequence_id) is int)
            and content is not None
            and type(data := self._schema.encode(content)) is bytes
        ):
            # What nearly every message is: nothing for the official checks to find.
            builder = _pulsar.MessageBuilder()
            builder.content(data)
            if partition_key is not None:
                builder.partition_key(partition_key)
            if sequence_id is not None:
                builder.sequence_id(sequence_id)
            return builder.build()
        return self._build_msg(
            content,
            properties,
            truthy(partition_key),
            truthy(ordering_key),
            truthy(sequence_id),
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )


class ConsumerDoor(pulsar.Consumer):  # type: ignore[misc]
    """`pulsar.Consumer` with its C++ consumer in `inner`."""

    __slots__ = ("inner",)
    inner: Any
    _ahead: Any
    _source: Any
    _receive_call: Any
    _inbox: Any
    _acks: Any
    _numbering_lock: Any
    _quick: Any
    _redelivery: Any

    def __init__(self) -> None:
        self.inner = _never_opened("Consumer", "Client.subscribe()")


class ReaderDoor(pulsar.Reader):  # type: ignore[misc]
    """`pulsar.Reader` with its C++ reader in `inner`."""

    __slots__ = ("inner",)
    inner: Any
    _source: Any
    _receive_call: Any

    def __init__(self) -> None:
        self.inner = _never_opened("Reader", "Client.create_reader()")


class TableViewDoor(pulsar.TableView):  # type: ignore[misc]
    """`pulsar.TableView` with its C++ view in `inner`."""

    __slots__ = ("inner",)
    inner: Any

    def __init__(self, official: pulsar.TableView) -> None:
        super().__init__(official._table_view, official._topic, official._subscription, official._schema)


class AsyncProducerDoor(pulsar.asyncio.Producer):  # type: ignore[misc]
    """`pulsar.asyncio.Producer` over one of ours."""

    def __init__(self, blocking: Any) -> None:
        super().__init__(blocking.inner, blocking._schema)


class AsyncConsumerDoor(pulsar.asyncio.Consumer):  # type: ignore[misc]
    """`pulsar.asyncio.Consumer` over one of ours."""

    def __init__(self, blocking: Any) -> None:
        super().__init__(blocking.inner, blocking._schema)


class AsyncReaderDoor(pulsar.asyncio.Reader):  # type: ignore[misc]
    """`pulsar.asyncio.Reader` over one of ours."""

    def __init__(self, blocking: Any) -> None:
        super().__init__(blocking.inner, blocking._schema)


class AsyncClientDoor(pulsar.asyncio.Client):  # type: ignore[misc]
    """`pulsar.asyncio.Client` over one of ours."""

    def __init__(self, blocking: ClientDoor) -> None:
        self._client = blocking.inner  # the official constructor would connect a second one


class ClientDoor(pulsar.Client):  # type: ignore[misc]
    """`pulsar.Client` with its C++ client in `inner`."""

    __slots__ = ("inner",)
    inner: Any
    _keeper: Any


# A slot's descriptor works under any name: inherited methods read the official one, ours read `inner`.
for _door, _private in (
    (MessageIdDoor, "_msg_id"),
    (MessageDoor, "_message"),
    (ProducerDoor, "_producer"),
    (ConsumerDoor, "_consumer"),
    (ReaderDoor, "_reader"),
    (ClientDoor, "_client"),
    (TableViewDoor, "_table_view"),
):
    setattr(_door, _private, _door.__dict__["inner"])


def batch_message(payload: bytes, messages: int) -> Any:
    """Make one C++ message that is a whole batch.

    Args:
        payload: a batch payload whose first message's own payload is the batch, and `messages - 1` empty ones behind
            it, which only make the C++ client count so many.
        messages: how many the batch has.
    """
    batch = _pulsar.MessageBatch()
    batch.parse_from(payload, messages)
    return batch.messages()[0]


def inner_producer_of(official: Any) -> Any:
    """Give the C++ producer inside an official one."""
    return official._producer


def build_plain(data: bytes | None, options: dict[str, Any]) -> Any:
    """Make a C++ message of a payload that is encoded, None for a message without a value."""
    return _plain.build(data, **options)


def standing_for(inner: Any, schema: Any) -> pulsar.Producer:
    """Give an official producer that has `inner` where its C++ producer would be."""
    official: Any = pulsar.Producer()
    official._producer = inner
    official._schema = schema
    return official


_HANDLES = {"Producer": "_producer", "Consumer": "_consumer", "Reader": "_reader"}


def adopt(ours: Any, official: Any, client: Any) -> None:
    """Move the C++ object out of an official Producer, Consumer or Reader into `ours`."""
    for kind, private in _HANDLES.items():
        if isinstance(official, getattr(pulsar, kind)):
            ours.inner = getattr(official, private)
            break
    ours._schema = getattr(official, "_schema", None)
    ours._client = client


def consumers_of(client: pulsar.Client) -> list[Any]:
    """Give the client's own list of what it closes."""
    consumers: list[Any] = client._consumers
    return consumers


def inner_id_of(message_id: Any) -> Any:
    """Give the C++ id inside any id: ours, the official wrapper, or the C++ id itself; None if it is no id."""
    if isinstance(message_id, _pulsar.MessageId):
        return message_id
    return message_id._msg_id if isinstance(message_id, pulsar.MessageId) else None


def deserialize_inner(data: bytes) -> Any:
    """Make a C++ id of bytes that have been checked before."""
    try:
        return _pulsar.MessageId.deserialize(data)
    except ValueError as error:
        raise InvalidMessageId(f"The C++ client cannot read {data.hex()}: {error}.") from None


_plain: Any = ProducerDoor()
_plain._schema = pulsar.schema.BytesSchema()


def made_up_batch(base: Any, size: int) -> list[Any]:
    """Give the C++ ids of a batch of `size` messages at the entry of `base`: they share a bit set, as received ones."""
    batch = _pulsar.MessageBatch()
    batch.with_message_id(base)
    batch.parse_from(_EMPTY_MESSAGE * size, size)
    return [message.message_id() for message in batch.messages()]


def unlimited_producer(client: pulsar.Client, topic: str, schema: Any) -> Any:
    """Create a C++ producer that sends messages of any size, one by one."""
    create = pulsar.Client.create_producer
    official: Any = create(client, topic, schema=schema, chunking_enabled=True, max_pending_messages=0)
    return official._producer


def polling(call: Callable[[int], Any]) -> Iterator[Any]:
    """Turn a native wait with a timeout into an endless iterator of its results.

    Iterating from C matters twice. It is faster than calling a bound method, and Python looks for signals only between
    calls: an object that an iteration stores straight into place cannot be lost to a Ctrl-C in between.
    """
    return map(call, repeat(POLL_MILLIS))


def raise_result(result: Any) -> NoReturn:
    """Raise the official exception of a `pulsar.Result`."""
    error = getattr(pulsar, result.name, pulsar.UnknownError)
    raise error(f"Pulsar error: {result.name}")


def shaped_like(official: Callable[..., Any]) -> Callable[[_F], _F]:
    """Show a method with the official one's signature, and what it takes more by keyword."""

    def shape(method: _F) -> _F:
        signature = inspect.signature(official)
        own = [p for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
        parameters = [*signature.parameters.values(), *own]
        method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return method

    return shape


def named_arguments(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give every argument of a call of an official method by its name, defaults included.

    Raises:
        TypeError: as the call itself would.
    """
    bound = inspect.signature(method).bind(None, *args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    named.pop("self")
    return named


def official_message(inner: Any) -> pulsar.Message:
    """Wrap a C++ message as officially."""
    return pulsar.Message._wrap(inner)


def inner_message_of(official: Any) -> Any:
    """Give the C++ message inside an official one."""
    return official._message


def reader_heard(official: Any) -> pulsar.Reader:
    """Give the reader that a reader listener is called with: the official client hands it out as a Consumer."""
    reader: Any = pulsar.Reader()
    reader._reader = official._consumer
    return reader


_inherited: weakref.WeakSet[Any] = weakref.WeakSet()


def refuse_after_fork(handle: Any) -> None:
    """Make `handle` refuse every use in a child process that inherits it by a fork.

    The official client's threads do not exist in the child: there it hangs in send, create and close, and loses
    acknowledgements without a word.
    """
    _inherited.add(handle)


def _in_child() -> None:
    parent = os.getppid()
    for handle in list(_inherited):
        kind = type(handle).__name__
        # Its destructor would wait for threads that do not exist here: never let it run.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle.inner))
        refusal = Refusing(
            lambda kind=kind: ForkedClientError(  # type: ignore[misc]
                f"This {kind} was inherited from process {parent} by a fork; none of its threads exist in process "
                f"{os.getpid()}. Create a Client in this process instead."
            )
        )
        handle.inner = refusal
        if isinstance(handle, ConsumerDoor | ReaderDoor):
            handle._source = handle._receive_call = refusal
            if isinstance(handle, ConsumerDoor):
                handle._inbox = handle._acks = handle._redelivery = handle._quick = refusal
                handle._ahead = None  # its lock may have been held at the fork, for good
                handle._numbering_lock = threading.RLock()  # as may this one
        elif isinstance(handle, ClientDoor):
            handle._keeper = refusal  # its lock may have been held at the fork, for good
        elif isinstance(handle, ProducerDoor):
            handle._window = None  # its lock may have been held at the fork, for good
            handle._barred = True  # type: ignore[misc]  # a slot of its subclasses
    _inherited.clear()


os.register_at_fork(after_in_child=_in_child)


def alias_submodules(package: str) -> None:
    """Let every sub-module of `pulsar` resolve below `package` too, as the very same module."""
    prefix = "pulsar."
    for name, module in list(sys.modules.items()):
        if name.startswith(prefix) and name != "pulsar.asyncio":  # that one has a counterpart here
            sys.modules.setdefault(f"{package}.{name.removeprefix(prefix)}", module)
