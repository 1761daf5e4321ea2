"""Subclasses of the official classes that can reach their private attributes.

The official Python layer keeps its C++ objects in private attributes. Each class here keeps that object in a slot
called `inner`, and the official attribute's name is an alias of the slot, so inherited methods find it at no cost. A
producer keeps its sender there. If a release of the official client moves an attribute, only this file changes;
`__init__.py` checks the attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema

from .core import IdBase, MessageBase
from .fork import Refusing, never_opened
from .messages import InnerMessage, InnerProducer, truthy
from .signatures import Arguments, argument_error, check_sequence_id

if TYPE_CHECKING:  # the official client has no type hints; an untyped base class would hide misspelt names

    class _MessageId:
        def ledger_id(self) -> int: ...
        def entry_id(self) -> int: ...
        def batch_index(self) -> int: ...
        def partition(self) -> int: ...

    class _Message:
        def data(self) -> bytes: ...
        def properties(self) -> dict[str, str]: ...
        def partition_key(self) -> str: ...
        def ordering_key(self) -> str: ...
        def publish_timestamp(self) -> int: ...
        def event_timestamp(self) -> int: ...
        def topic_name(self) -> str: ...
        def redelivery_count(self) -> int: ...
        def schema_version(self) -> str: ...
        def producer_name(self) -> str: ...
        def has_null_value(self) -> bool: ...
        def encryption_context(self) -> object: ...

    class _Producer:
        def topic(self) -> str: ...
        def producer_name(self) -> str: ...
        def last_sequence_id(self) -> int: ...
        def is_connected(self) -> bool: ...
        def _build_msg(self, content: object, **options: object) -> InnerMessage: ...

    class _Consumer:
        def topic(self) -> str: ...
        def subscription_name(self) -> str: ...
        def consumer_name(self) -> str: ...

    class _Reader:
        def topic(self) -> str: ...
        def is_connected(self) -> bool: ...

    class _Client:
        def create_reader(self, *args: Any, **kwargs: Any) -> Any: ...
        def get_service_info(self) -> pulsar.ServiceInfo: ...
        def get_topic_partitions(self, topic: str) -> list[str]: ...

    _AsyncProducer = _Producer
    _AsyncConsumer = _Consumer
    _AsyncReader = object
    _AsyncClient = object

else:
    _MessageId, _Message, _Producer = pulsar.MessageId, pulsar.Message, pulsar.Producer
    _Consumer, _Reader, _Client = pulsar.Consumer, pulsar.Reader, pulsar.Client
    _AsyncProducer, _AsyncConsumer = pulsar.asyncio.Producer, pulsar.asyncio.Consumer
    _AsyncReader, _AsyncClient = pulsar.asyncio.Reader, pulsar.asyncio.Client


class MessageIdHandle(IdBase, _MessageId):
    """`pulsar.MessageId` with its C++ id in `inner`."""

    __slots__ = ()


class MessageHandle(MessageBase, _Message):
    """`pulsar.Message` with its C++ message in `inner`; the class holds the schema, not each message."""

    __slots__ = ()
    _schema = pulsar.schema.BytesSchema()

    def __init__(self) -> None:
        self.inner = never_opened("Message", "receive(), read_next() or a listener")


class ProducerHandle(_Producer):
    """`pulsar.Producer` with its C++ producer in `inner`, used by senders in place of the official one."""

    __slots__ = ("_highest", "_next_ids", "inner", "schema")

    def __init__(self, official: pulsar.Producer) -> None:
        self.inner = inner_producer_of(official)
        self.schema: pulsar.schema.Schema = official._schema
        self._highest = -1
        """The highest explicit sequence id of any message."""
        self._next_ids: Iterator[int] | None = None
        """The sequence ids after it."""

    def replace(self, official: pulsar.Producer) -> None:
        """Use the C++ producer of another official producer of the same topic and schema."""
        self.inner = inner_producer_of(official)

    def build(
        self,
        content: object,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> InnerMessage:
        """Build the C++ message; unlike officially, an empty key is kept and sequence id 0 is a sequence id."""
        if sequence_id is not None or self._next_ids is not None:
            sequence_id = self._next_sequence_id(sequence_id)
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
            and type(data := self.schema.encode(content)) is bytes
        ):
            # Fast path for most messages: the official checks would find nothing.
            builder = _pulsar.MessageBuilder()
            builder.content(data)
            if partition_key is not None:
                builder.partition_key(partition_key)
            if sequence_id is not None:
                builder.sequence_id(sequence_id)
            return builder.build()
        options = {
            "properties": properties,
            "partition_key": truthy(partition_key),
            "ordering_key": truthy(ordering_key),
            "sequence_id": truthy(sequence_id),
            "replication_clusters": replication_clusters,
            "disable_replication": disable_replication,
            "event_timestamp": event_timestamp,
            "deliver_at": deliver_at,
            "deliver_after": deliver_after,
        }
        try:
            return self._build_msg(content, **options)
        except TypeError as error:
            raise argument_error(error, options, "Nothing was sent.") from None

    def _next_sequence_id(self, sequence_id: int | None) -> int | None:
        """Return the message's sequence id: the explicit one, or the one after the highest explicit one.

        The C++ client's automatic id could be lower, and a broker with deduplication would drop the message.
        """
        if sequence_id is None:
            return None if self._next_ids is None else next(self._next_ids)
        check_sequence_id(sequence_id)
        if sequence_id > self._highest:
            self._highest = sequence_id
            self._next_ids = itertools.count(sequence_id + 1)
        return sequence_id


class SenderProducerHandle(_Producer):
    """`pulsar.Producer` with its sender in place of the C++ producer, so inherited methods call the sender."""

    __slots__ = ("sender",)
    sender: Any

    def __init__(self) -> None:
        self.open(never_opened("Producer", "Client.create_producer()"), None, None)

    def open(self, sender: object, schema: pulsar.schema.Schema | None, client: object) -> None:
        """Set the sender, and the attributes that the official class keeps."""
        self.sender = sender
        self._schema = schema  # stored in the official class's `__dict__`, like `_client`
        self._client = client


class _InnerHandle:
    """Base of handles whose only way to the C++ client is `inner`."""

    __slots__ = ("inner",)
    inner: Any

    def _after_fork_(self, refusal: Refusing) -> None:
        self.inner = refusal


class ConsumerHandle(_InnerHandle, _Consumer):
    __slots__ = ()

    def __init__(self) -> None:
        self.inner = never_opened("Consumer", "Client.subscribe()")


class ReaderHandle(_InnerHandle, _Reader):
    __slots__ = ()

    def __init__(self) -> None:
        self.inner = never_opened("Reader", "Client.create_reader()")


class ClientHandle(_InnerHandle, _Client):
    __slots__ = ()


class AsyncProducerHandle(_AsyncProducer):
    """`pulsar.asyncio.Producer` over a blocking producer of this library."""

    def __init__(self, blocking: Any) -> None:
        super().__init__(blocking.sender, blocking._schema)  # type: ignore[call-arg]  # untyped official constructor


_current_inner: Any = property(attrgetter("blocking.inner"), lambda *_: None)
"""The C++ object of the blocking counterpart, which a seek may replace; the official constructor cannot set it."""


class AsyncConsumerHandle(_AsyncConsumer):
    _consumer = _current_inner

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking
        super().__init__(blocking.inner, blocking._schema)  # type: ignore[call-arg]  # untyped official constructor


class AsyncReaderHandle(_AsyncReader):
    _reader = _current_inner

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking
        super().__init__(blocking.inner, blocking._schema)  # type: ignore[call-arg]  # untyped official constructor


class AsyncClientHandle(_AsyncClient):
    def __init__(self, blocking: ClientHandle) -> None:
        self._client = blocking.inner  # the official constructor would connect a second client


# A slot's descriptor works under any name: inherited methods use the official one.
for _class, _private, _own in (
    (MessageIdHandle, "_msg_id", "inner"),
    (MessageHandle, "_message", "inner"),
    (ProducerHandle, "_producer", "inner"),
    (ProducerHandle, "_schema", "schema"),
    (SenderProducerHandle, "_producer", "sender"),
    (ConsumerHandle, "_consumer", "inner"),
    (ReaderHandle, "_reader", "inner"),
    (ClientHandle, "_client", "inner"),
):
    setattr(_class, _private, getattr(_class, _own))


def inner_producer_of(official: pulsar.Producer) -> InnerProducer:
    inner: InnerProducer = official._producer
    return inner


def build_plain(data: bytes | None, options: Arguments) -> InnerMessage:
    """Build a C++ message of an encoded payload; None builds a message without a value."""
    return _plain.build(data, **options)


def rebuild_message(sent: InnerMessage, options: Arguments, sequence_id: int) -> InnerMessage:
    """Build a copy of a C++ message that was sent: the C++ client cannot send the same object twice."""
    data = None if sent.has_null_value() else sent.data()
    again = {**options, "sequence_id": sequence_id}
    if again.get("properties"):
        again["properties"] = sent.properties()  # the values that were sent: the application may have changed its dict
    return build_plain(data, again)


def inner_of(official: pulsar.Consumer | pulsar.Reader) -> Any:
    return official._consumer if isinstance(official, pulsar.Consumer) else official._reader


def adopt(ours: Any, official: pulsar.Consumer | pulsar.Reader, client: object) -> None:
    """Move the C++ object of an official Consumer or Reader into `ours`."""
    ours.inner = inner_of(official)
    ours._schema = getattr(official, "_schema", None)
    ours._client = client


def consumers_of(client: pulsar.Client) -> list[pulsar.Consumer]:
    """Return the official client's list of consumers to close."""
    consumers: list[pulsar.Consumer] = client._consumers
    return consumers


_plain_producer = pulsar.Producer()
_plain_producer._producer, _plain_producer._schema = None, pulsar.schema.BytesSchema()
_plain = ProducerHandle(_plain_producer)


def listener_reader(official: pulsar.Consumer) -> pulsar.Reader:
    """Return the reader to pass to a reader listener: the official client passes a Consumer."""
    reader = pulsar.Reader()
    reader._reader = official._consumer
    return reader
