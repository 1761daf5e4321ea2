"""What an application derives its interceptors from, and the message that is about to be sent as they see it (pure).

Every method does nothing unless it is overridden. An interceptor runs where the call runs, or on a thread of the
client: it must not wait for the client, and must be ready for several threads. What it raises is logged, and the
message continues as it was before that interceptor.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message


_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message with the arguments of its send. It does not change: an interceptor gives another one.

    Args:
        value: the message's value, before the schema encodes it.
        properties: and the others: as in `Producer.send()`, None for what was not given.
    """

    value: Any
    properties: Mapping[str, str] = field(default_factory=lambda: _NO_PROPERTIES)
    partition_key: str | None = None
    ordering_key: str | None = None
    sequence_id: int | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool | None = None
    event_timestamp: int | None = None
    deliver_at: int | None = None
    deliver_after: timedelta | None = None
    notes: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What interceptors want to find again with the outcome; it is not sent, and stays through `replace()`."""

    @classmethod
    def of(cls, value: Any, options: dict[str, Any]) -> Self:
        """Make it of a send's arguments.

        Args:
            value: the content.
            options: the other arguments by name.

        Raises:
            TypeError: as the send itself would, for an argument that it does not have.
        """
        properties = options.get("properties")
        if properties is None:
            properties = _NO_PROPERTIES
        elif isinstance(properties, dict):
            properties = MappingProxyType(dict(properties))  # the application may change its own
        return cls(value, **{**options, "properties": properties})

    def replace(self, **changes: Any) -> Self:
        """Give the same message with other fields."""
        if isinstance(properties := changes.get("properties"), dict):
            changes["properties"] = MappingProxyType(dict(properties))
        return dataclasses.replace(self, **changes)

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """Give the same message with more properties, which win over its own."""
        return self.replace(properties={**self.properties, **properties})

    def options(self) -> dict[str, Any]:
        """Give the arguments of its send by name, besides the value."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        given = {name: value for name, value in options.items() if value is not None}
        if isinstance(self.properties, MappingProxyType):
            given["properties"] = dict(self.properties)
            if not self.properties:
                del given["properties"]
        return given


_OPTIONS = tuple(one.name for one in dataclasses.fields(OutgoingMessage) if one.name not in ("value", "notes"))


class Interceptor:
    """What all interceptors have."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Hear that a topic has more partitions than before; it is looked for every minute.

        Args:
            topic: the partitioned topic's name.
            partitions: how many it has now.
        """

    def close(self) -> None:
        """Let go of what is held: the producer, consumer or reader is closed, or its client is. Called once."""


class ProducerInterceptor(Interceptor):
    """Sees the messages of a producer; mirrors `ProducerInterceptor` of Java's `api.interceptor`."""

    def eligible(self, message: OutgoingMessage, /) -> bool:
        """Whether the other methods are called for a message."""
        del message
        return True

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Give what is sent in the place of a message: the message itself, or `message.replace(…)`.

        It is called by the send, before the message gets its partition and its batch.

        Args:
            producer: the producer.
            message: what the interceptor before gave.
        """
        del producer
        return message

    def on_send_acknowledgement(
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: BaseException | None
    ) -> None:
        """Hear what became of a message, before the application does.

        Args:
            producer: the producer.
            message: what was sent.
            message_id: its id; None if it failed.
            error: what the send raises; None if it was persisted.
        """


class ConsumerInterceptor(Interceptor):
    """Sees the messages of a consumer; mirrors Java's `ConsumerInterceptor`."""

    def before_consume(self, consumer: Any, message: Message) -> Message:
        """Give what is handed out in the place of a message: the message itself, or `message.altered(…)`.

        It is called when the application takes the message, not when it is fetched.

        Args:
            consumer: the consumer.
            message: what the interceptor before gave.
        """
        del consumer
        return message

    def on_acknowledge(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """Hear of an acknowledgement that the consumer has taken or refused, or of one that is a dead letter now.

        Args:
            consumer: the consumer.
            message_id: of the message, or what the application gave as one.
            error: what `acknowledge()` raises; None if it was taken.
        """

    def on_acknowledge_cumulative(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """Hear of a cumulative acknowledgement, as `on_acknowledge()`."""

    def on_negative_acks_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """Hear which entries the broker is asked to deliver again now, for negative acknowledgements.

        A whole batch is one entry, and each chunk is one.
        """

    def on_ack_timeout_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """Hear which entries it is asked for because they were not acknowledged in `unacked_messages_timeout_ms`."""


class ReaderInterceptor(Interceptor):
    """Sees the messages of a reader; mirrors Java's `ReaderInterceptor`."""

    def before_read(self, reader: Any, message: Message) -> Message:
        """Give what is handed out in the place of a message, as `ConsumerInterceptor.before_consume()`."""
        del reader
        return message
