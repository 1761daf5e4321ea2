"""Consumers: receive at full speed and without loss, and seek, acknowledge and redeliver whole messages.

What the official consumer does right stays its own: a received message is acknowledged by the C++ code that knows all
its chunks. Overridden is what goes wrong: a Ctrl-C in `receive()` swallows the next message; a deserialized or rebuilt
id of a chunked message acknowledges a part of it; a negative acknowledgement on a Shared or Key_Shared subscription
redelivers a part of it, which nobody can assemble. Mirrors Java's `ConsumerImpl`.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Self

import pulsar

from ._official import ConsumerDoor, InnerMessage, MessageDoor, adopt, refuse_after_fork
from .callbacks import refuse_in_callback
from .errors import InvalidUse
from .message import Message
from .message_id import ChunkMessageId, MessageId, Origin, from_inner, is_chunked
from .receiving import Receiving
from .resolver import as_message_id, entry_topic, is_open

if TYPE_CHECKING:
    import re

    from .client import Client

__all__ = ["Consumer"]

_LIVE = Origin.LIVE
_log = logging.getLogger("pulsar_ext")


class Consumer(Receiving, ConsumerDoor):
    """A `pulsar.Consumer` that treats a chunked message as one, by whatever id; made by `Client.subscribe()`."""

    __slots__ = (
        "_batches",
        "_client",
        "_closed",
        "_max_redeliver_count",
        "_message_class",
        "_receive_call",
        "_source",
        "_splits",
        "_topics",
    )

    def __init__(self) -> None:
        super().__init__()
        self._client: Client = None  # type: ignore[assignment]  # never opened
        self._closed = False
        self._message_class = Message
        self._source = self._receive_call = self.inner
        self._splits = False
        self._max_redeliver_count: int | None = None
        self._batches: dict[int, Any] = {}

    @classmethod
    def _of(
        cls,
        official: pulsar.Consumer,
        client: Client,
        message_class: type[Message],
        topics: str | list[str] | re.Pattern[str],
        *,
        splits: bool,
        queued: bool = True,
        max_redeliver_count: int | None = None,
    ) -> Self:
        """Take over an official consumer.

        Args:
            official: the consumer; it is not used afterwards.
            client: the client that it belongs to.
            message_class: what its messages become.
            topics: what was subscribed to.
            splits: whether the broker redelivers single entries (Shared and Key_Shared subscriptions).
            queued: whether the receiver queue has room, so that a receive with a timeout is possible.
            max_redeliver_count: that of the dead letter policy.
        """
        self = cls.__new__(cls)
        adopt(self, official, client)
        self._message_class = message_class
        self._topics = topics
        self._splits = splits
        self._max_redeliver_count = max_redeliver_count
        self._batches = {}
        self._closed = False
        self._receive_from(self.inner.receive, None if queued else self.inner.receive_async)
        refuse_after_fork(self)
        return self

    receive = Receiving._receive  # noqa: SLF001  # pyright: ignore[reportAssignmentType]  # untyped officially

    def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as many as the `batch_receive_policy` says.

        Returns:
            The messages, in order; empty if none came within the policy's time.
        """
        new = self._message_class
        thread = threading.get_ident()
        if thread not in self._batches:
            # Straight into its place, as in the receive loop: a Ctrl-C leaves the batch to the next call.
            batches = self._batches
            for batches[thread] in iter(self.inner.batch_receive, None):
                break
        messages = []
        for inner in self._batches[thread]:
            message = new()
            message.inner = inner
            messages.append(message)
        del self._batches[thread]
        return messages

    def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it.

        Args:
            message: a received message, or an id: live, deserialized, parsed or rebuilt from numbers.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: its chunks could not be found; nothing is acknowledged.
        """
        if isinstance(message, MessageDoor) or (isinstance(message, MessageId) and message.origin is _LIVE):
            self.inner.acknowledge(message.inner)
        elif isinstance(message, InnerMessage):
            self.inner.acknowledge(message)
        elif isinstance(message, pulsar.Message):
            super().acknowledge(message)
        else:
            for inner in self._to_acknowledge(message):
                self.inner.acknowledge(inner)

    def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too, all chunks of it, by the message or any id of it.

        A chunked message of another producer that began before this one's last entry and ends after it is cut in two:
        that is how the broker's cursor works, for every client. Acknowledge one by one where such producers share a
        topic.

        Raises:
            pulsar.CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
        """
        if isinstance(message, MessageDoor | InnerMessage):
            self.inner.acknowledge_cumulative(message.inner if isinstance(message, MessageDoor) else message)
            return
        if isinstance(message, pulsar.Message):
            super().acknowledge_cumulative(message)
            return
        ours = as_message_id(message)
        last = self._client.resolver.last_entry(self._topic_of(ours), ours) if is_open(ours) else self._with_topic(ours)
        self.inner.acknowledge_cumulative(last)

    def negative_acknowledge(self, message: Any) -> None:
        """Have one message redelivered after `negative_ack_redelivery_delay_ms`, whole, by the message or any id of it.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
        """
        if isinstance(message, InnerMessage):
            message = Message._wrap(message)  # noqa: SLF001  # our own class
        if isinstance(message, MessageDoor) and not (
            self._splits and is_chunked(message.inner.message_id().serialize())
        ):
            self.inner.negative_acknowledge(message.inner)
        elif self._splits:
            if not self._is_for_dead_letter(message):
                for inner in self._to_redeliver(message):
                    self.inner.negative_acknowledge(inner)
        elif isinstance(message, MessageDoor):
            self.inner.negative_acknowledge(message.inner)
        elif isinstance(message, pulsar.Message):
            super().negative_acknowledge(message)
        else:
            self.inner.negative_acknowledge(self._with_topic(as_message_id(message)))

    def redeliver_unacknowledged_messages(self) -> None:
        """Have the broker deliver every unacknowledged message again."""
        self._forget_answers()
        self.inner.redeliver_unacknowledged_messages()

    def unsubscribe(self) -> None:
        """Delete the subscription; the consumer is closed afterwards."""
        refuse_in_callback(self._client, "unsubscribe")
        self.inner.unsubscribe()

    def get_last_message_id(self) -> MessageId:
        """Give the id of the topic's last entry; of a chunked message that is its last chunk, as bare numbers."""
        refuse_in_callback(self._client, "get_last_message_id")
        last = from_inner(self.inner.get_last_message_id())
        last.origin = Origin.NUMBERS
        return last

    def _is_for_dead_letter(self, message: Any) -> bool:
        """Whether one more redelivery would make the C++ client send a chunked message to the dead letter topic.

        Its dead letter producer cannot send what needs chunks, and a dead letter that fails ends the process.
        """
        if self._max_redeliver_count is None:
            return False
        if not isinstance(message, pulsar.Message):
            ours = as_message_id(message)
            if is_open(ours) or isinstance(ours, ChunkMessageId):
                raise InvalidUse(
                    "With a dead letter policy, a chunked message is negatively acknowledged by the message, not by "
                    "its id, which does not tell how often it was delivered."
                )
            return False
        if not isinstance(message.message_id(), ChunkMessageId):
            return False
        if message.redelivery_count() < self._max_redeliver_count:
            return False
        _log.error(
            "%r was redelivered %d times and stays unacknowledged: the official client's dead letter producer cannot "
            "send a chunked message. Send it on with a producer of your own and acknowledge it.",
            message.message_id(),
            message.redelivery_count(),
        )
        return True

    def _topic_of(self, message_id: MessageId) -> str:
        return entry_topic(self._topics if isinstance(self._topics, str) else None, message_id)

    def _with_topic(self, message_id: MessageId) -> Any:
        """Give the C++ id; one that was stored names its topic, which consumers of several topics insist on."""
        if message_id.origin is not Origin.LIVE:
            message_id.inner.topic_name(self._topic_of(message_id))
        return message_id.inner

    def _to_acknowledge(self, message_id: Any) -> list[Any]:
        """Give the C++ ids that together acknowledge the whole message."""
        ours = as_message_id(message_id)
        if ours.origin is Origin.LIVE or not (isinstance(ours, ChunkMessageId) or is_open(ours)):
            return [self._with_topic(ours)]
        return self._client.resolver.to_acknowledge(self._topic_of(ours), ours)

    def _to_redeliver(self, message: Any) -> list[Any]:
        """Give the C++ ids whose redelivery brings the whole message."""
        if isinstance(message, pulsar.Message):
            ours = message.message_id() if isinstance(message, Message) else as_message_id(message.message_id())
        else:
            ours = as_message_id(message)
        if not (isinstance(ours, ChunkMessageId) or is_open(ours)):
            return [self._with_topic(ours)]
        return self._client.resolver.to_redeliver(self._topic_of(ours), ours)
