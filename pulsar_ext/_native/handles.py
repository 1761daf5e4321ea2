"""The one door to the official client's private parts.

The official Python layer keeps its C++ objects in private attributes. Every class of ours that stands on one keeps that
object in a slot called `inner`, and the slot goes by the official attribute's name as well, so that inherited methods
find it at no cost; a producer keeps its sender there. When a release of the official client moves an attribute, this
file changes and nothing else does; `probes.py` tries them out.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema
import pulsar.tableview

from .core import IdBase, MessageBase
from .fork import never_opened
from .messages import truthy
from .refusals import check_sequence_id, plainly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta


__all__ = [
    "AsyncClientDoor",
    "AsyncConsumerDoor",
    "AsyncProducerDoor",
    "AsyncReaderDoor",
    "ClientDoor",
    "ConsumerDoor",
    "MessageDoor",
    "MessageIdDoor",
    "ProducerDoor",
    "ProducerHandle",
    "ReaderDoor",
    "adopt",
    "build_again",
    "build_plain",
    "consumers_of",
    "inner_of",
    "inner_producer_of",
    "reader_heard",
]

if TYPE_CHECKING:  # the official client ships no types, and a base class without types would hide misspelt names

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

        def encryption_context(self) -> Any: ...

    class _Producer:
        def topic(self) -> str: ...

        def producer_name(self) -> str: ...

        def last_sequence_id(self) -> int: ...

        def is_connected(self) -> bool: ...

        def _build_msg(self, *args: Any) -> Any: ...

    class _Consumer:
        def topic(self) -> str: ...

        def subscription_name(self) -> str: ...

        def consumer_name(self) -> str: ...

    class _Reader:
        def topic(self) -> str: ...

        def is_connected(self) -> bool: ...

    class _Client:
        def create_reader(self, *args: Any, **kwargs: Any) -> Any: ...

        def get_service_info(self) -> Any: ...

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


class MessageIdDoor(IdBase, _MessageId):
    """`pulsar.MessageId` with its C++ id in `inner`."""

    __slots__ = ()


class MessageDoor(MessageBase, _Message):
    """`pulsar.Message` with its C++ message in `inner`; the schema is held by the class, not by each message."""

    __slots__ = ()
    _schema = pulsar.schema.BytesSchema()

    def __init__(self) -> None:
        self.inner = never_opened("Message", "receive(), read_next() or a listener")


class ProducerHandle(_Producer):
    """`pulsar.Producer` with its C++ producer in `inner`: what a sender sends with.

    Args:
        official: the official producer, which is not used any more.
    """

    __slots__ = ("_following", "_highest", "inner", "schema")

    def __init__(self, official: pulsar.Producer) -> None:
        self.inner: Any = inner_producer_of(official)
        untyped: Any = official
        self.schema: Any = untyped._schema
        self._highest = -1
        """The highest sequence id that a message was given."""
        self._following: Iterator[int] | None = None
        """The numbers behind it."""

    def replace(self, official: pulsar.Producer) -> None:
        """Take the C++ producer of another official one, of the same topic and schema."""
        self.inner = inner_producer_of(official)

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
        """Make the C++ message; unlike officially, an empty key is a key and sequence id 0 is a sequence id."""
        if sequence_id is not None or self._following is not None:
            sequence_id = self._numbered(sequence_id)
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
            # What nearly every message is: nothing for the official checks to find.
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
            raise plainly(error, options, "Nothing was sent.") from None

    def _numbered(self, sequence_id: int | None) -> int | None:
        """Give a message's sequence id: its own, or the one behind the highest that was given.

        The C++ client's own would be lower than that, and a broker that deduplicates would drop the message.
        """
        if sequence_id is None:
            return None if self._following is None else next(self._following)
        check_sequence_id(sequence_id)
        if sequence_id > self._highest:
            self._highest = sequence_id
            self._following = itertools.count(sequence_id + 1)
        return sequence_id


class ProducerDoor(_Producer):
    """`pulsar.Producer` with its sender where its C++ producer would be, so that inherited methods ask the sender."""

    __slots__ = ("sender",)
    sender: Any

    def __init__(self) -> None:
        self.open(never_opened("Producer", "Client.create_producer()"), None, None)

    def open(self, sender: Any, schema: Any, client: Any) -> None:
        """Take what sends, and what the official client keeps beside it."""
        self.sender = sender
        self._schema = schema  # lives in the official class's dict, as the next one
        self._client = client


class ConsumerDoor(_Consumer):
    """`pulsar.Consumer` with its C++ consumer in `inner`."""

    __slots__ = ("inner",)
    inner: Any

    def __init__(self) -> None:
        self.inner = never_opened("Consumer", "Client.subscribe()")

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self.inner = refusal


class ReaderDoor(_Reader):
    """`pulsar.Reader` with its C++ reader in `inner`."""

    __slots__ = ("inner",)
    inner: Any

    def __init__(self) -> None:
        self.inner = never_opened("Reader", "Client.create_reader()")

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self.inner = refusal


class AsyncProducerDoor(_AsyncProducer):
    """`pulsar.asyncio.Producer` over one of ours."""

    def __init__(self, blocking: Any) -> None:
        super().__init__(blocking.sender, blocking._schema)  # type: ignore[call-arg]  # the official one, which mypy does not know


class AsyncConsumerDoor(_AsyncConsumer):
    """`pulsar.asyncio.Consumer` over one of ours."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking
        super().__init__(blocking.inner, blocking._schema)  # type: ignore[call-arg]  # likewise

    @property
    def _consumer(self) -> Any:
        return self.blocking.inner

    @_consumer.setter
    def _consumer(self, _: Any) -> None:
        """Keep nothing: a seek may replace it."""


class AsyncReaderDoor(_AsyncReader):
    """`pulsar.asyncio.Reader` over one of ours."""

    def __init__(self, blocking: Any) -> None:
        self.blocking = blocking
        super().__init__(blocking.inner, blocking._schema)  # type: ignore[call-arg]  # likewise

    @property
    def _reader(self) -> Any:
        return self.blocking.inner

    @_reader.setter
    def _reader(self, _: Any) -> None:
        """Keep nothing: a seek may replace it."""


class AsyncClientDoor(_AsyncClient):
    """`pulsar.asyncio.Client` over one of ours."""

    def __init__(self, blocking: ClientDoor) -> None:
        self._client = blocking.inner  # the official constructor would connect a second one


class ClientDoor(_Client):
    """`pulsar.Client` with its C++ client in `inner`."""

    __slots__ = ("inner",)
    inner: Any

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self.inner = refusal


# A slot's descriptor works under any name: inherited methods read the official one.
for _door, _private, _own in (
    (MessageIdDoor, "_msg_id", "inner"),
    (MessageDoor, "_message", "inner"),
    (ProducerHandle, "_producer", "inner"),
    (ProducerHandle, "_schema", "schema"),
    (ProducerDoor, "_producer", "sender"),
    (ConsumerDoor, "_consumer", "inner"),
    (ReaderDoor, "_reader", "inner"),
    (ClientDoor, "_client", "inner"),
):
    setattr(_door, _private, getattr(_door, _own))


def inner_producer_of(official: Any) -> Any:
    """Give the C++ producer inside an official one."""
    return official._producer


def build_plain(data: bytes | None, options: dict[str, Any]) -> Any:
    """Make a C++ message of a payload that is encoded, None for a message without a value."""
    return _plain.build(data, **options)


def build_again(sent: Any, options: dict[str, Any], sequence_id: int) -> Any:
    """Make a C++ message that was sent anew, with its options: one that was sent cannot be sent again."""
    data = None if sent.has_null_value() else sent.data()
    again = {**options, "sequence_id": sequence_id}
    if again.get("properties"):
        again["properties"] = sent.properties()  # as they were: the application may have changed its own
    return build_plain(data, again)


_HANDLES = {"Consumer": "_consumer", "Reader": "_reader"}


def inner_of(official: Any) -> Any:
    """Give the C++ object inside an official Consumer or Reader."""
    (private,) = (private for kind, private in _HANDLES.items() if isinstance(official, getattr(pulsar, kind)))
    return getattr(official, private)


def adopt(ours: Any, official: Any, client: Any) -> None:
    """Move the C++ object out of an official Consumer or Reader into `ours`."""
    ours.inner = inner_of(official)
    ours._schema = getattr(official, "_schema", None)
    ours._client = client


def consumers_of(client: Any) -> list[Any]:
    """Give the client's own list of what it closes."""
    consumers: list[Any] = client._consumers
    return consumers


_plain_producer: Any = pulsar.Producer()
_plain_producer._producer, _plain_producer._schema = None, pulsar.schema.BytesSchema()
_plain = ProducerHandle(_plain_producer)


def reader_heard(official: Any) -> pulsar.Reader:
    """Give the reader that a reader listener is called with: the official client hands it out as a Consumer."""
    reader: Any = pulsar.Reader()
    reader._reader = official._consumer
    return reader
