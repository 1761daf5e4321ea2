"""Base classes of an application's interceptors, and the outgoing message that they see (pure).

Every method does nothing by default. An interceptor runs on the caller's thread or on a thread of the client: it must
be thread-safe and must not block on the client. Its errors are logged, and then the message continues unchanged by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Self

from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.message import Message
from pulsar_ext.produce.options import Options

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message with the arguments of its send. It is immutable: an interceptor returns another one.

    Args:
        value: the message's value, before the schema encodes it.
        properties: this and the other fields are the arguments of `Producer.send()`, None if missing.
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
    notes: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    """Data of interceptors, to use with the outcome; it is not sent, and is kept by `replace()`."""

    @classmethod
    def of(cls, value: object, options: Options) -> Self:
        """Return the message of a send's arguments; a TypeError names an argument that no send has."""
        properties = options.get("properties")
        if properties is None:
            properties = _NO_PROPERTIES
        elif isinstance(properties, dict):
            properties = MappingProxyType(dict(properties))  # a copy, because the application may change its own
        return cls(value, **{**options, "properties": properties})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other fields."""
        if isinstance(properties := changes.get("properties"), dict):
            changes["properties"] = MappingProxyType(dict(properties))
        return dataclasses.replace(self, **changes)

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """Return a copy with more properties, which override its own."""
        return self.replace(properties={**self.properties, **properties})

    def options(self) -> Options:
        """Return the arguments of its send by name, except the value."""
        given = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        if isinstance(self.properties, MappingProxyType):
            given["properties"] = dict(self.properties)
            if not self.properties:
                del given["properties"]
        return given


_OPTIONS = tuple(one.name for one in dataclasses.fields(OutgoingMessage) if one.name not in ("value", "notes"))


class Interceptor:
    """Base of all interceptors."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Handle more partitions of a topic, which now has `partitions`; the client polls every minute."""

    def close(self) -> None:
        """Release resources: the producer, consumer, reader or client was closed. Called once."""


class ProducerInterceptor(Interceptor):
    """Interceptor of a producer's messages; Java's `ProducerInterceptor` of `api.interceptor`."""

    def eligible(self, message: OutgoingMessage, /) -> bool:
        """Return whether to call the other methods for a message."""
        del message
        return True

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send instead of a message: the same object, or `message.replace(…)`.

        The send calls it with the result of the previous interceptor, before the message gets its partition and batch.
        """
        del producer
        return message

    def on_send_acknowledgement(
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: BaseException | None
    ) -> None:
        """Handle the outcome of a sent message, before the application does.

        It has an id if it was persisted, otherwise the error that the send raises.
        """


class ConsumerInterceptor(Interceptor):
    """Interceptor of a consumer's messages; Java's `ConsumerInterceptor`."""

    def before_consume(self, consumer: Any, message: Message) -> Message:
        """Return the message to deliver instead of a message: the same object, or `message.altered(…)`.

        Called with the result of the previous interceptor, when the application receives the message, not when it is
        prefetched.
        """
        del consumer
        return message

    def on_acknowledge(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """Handle an acknowledgement by the application, or of a message that became a dead letter.

        It has the message's id, or the id that the application passed, and the error that `acknowledge()` raises.
        """

    def on_acknowledge_cumulative(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """Handle a cumulative acknowledgement; see `on_acknowledge()`."""

    def on_negative_acks_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """Handle a request to redeliver entries because of negative acknowledgements.

        A whole batch is one entry; each chunk is an entry.
        """

    def on_ack_timeout_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """Handle a request to redeliver entries that were not acknowledged in `unacked_messages_timeout_ms`."""


class ReaderInterceptor(Interceptor):
    """Interceptor of a reader's messages; Java's `ReaderInterceptor`."""

    def before_read(self, reader: Any, message: Message) -> Message:
        """Return the message to deliver instead of a message; see `ConsumerInterceptor.before_consume()`."""
        del reader
        return message
