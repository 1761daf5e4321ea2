"""What a consumer does with acknowledgements; a received message goes through an inbox, and costs one append."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext.chunks.resolver import as_message_id
from pulsar_ext.ids.message_id import MessageId

from .confirm import flush_acks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message

    from .grouping import Acknowledger

__all__ = ["Acknowledging"]


class Acknowledging:
    """How a `Consumer` acknowledges; it stands before the official class."""

    __slots__ = ()
    _acks: Acknowledger
    _context: ClientContext
    _inbox: list[Any]
    _message_class: type[Message]
    _own: Callable[[Any], Message]
    _splits: bool

    def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it.

        A message of a cluster that the client is not connected to any more is not acknowledged.

        Args:
            message: a received message, or an id: live, deserialized, parsed or rebuilt from numbers.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: its chunks could not be found; nothing is acknowledged.
        """
        if type(message) is self._message_class:
            inbox = self._inbox
            inbox.append(message)
            acks = self._acks
            if len(inbox) >= acks.limit:
                acks.filled()
            elif not acks.scheduled:
                acks.schedule()
        elif type(message) is MessageId and self._acks.collector.takes(message):
            self._acks.put(self._acks.inbox.ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                self.acknowledge(own)
        else:
            self._acks.add_id(message)

    def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages at once, each as `acknowledge()` would.

        Args:
            messages: received messages or ids, in any order.

        Raises:
            TopicRequired, MessageIdUnresolved: as `acknowledge()`; what came before it is acknowledged.
        """
        messages = list(messages)
        if {*map(type, messages)} <= {self._message_class}:
            self._acks.add_messages(messages)
        else:
            for message in messages:
                self.acknowledge(message)

    def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too, all chunks of it, by the message or any id of it.

        A message of a cluster that the client is not connected to any more acknowledges nothing.

        A chunked message of another producer that began before this one's last entry and ends after it is cut in two:
        that is how the broker's cursor works, for every client. Acknowledge one by one where such producers share a
        topic.

        Raises:
            pulsar.CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
        """
        if self._splits:
            if not isinstance(message, InnerMessage | pulsar.Message):
                self._acks.collector.topic_of(as_message_id(message))
            raise pulsar.CumulativeAcknowledgementNotAllowedError(
                "Pulsar error: CumulativeAcknowledgementNotAllowedError: a Shared or Key_Shared subscription has no "
                "position up to which everything is acknowledged."
            )
        acks = self._acks
        if type(message) is self._message_class:
            acks.put(acks.inbox.positions, message)
        elif type(message) is MessageId and acks.collector.takes(message):
            acks.put(acks.inbox.position_ids, message)
        elif isinstance(message, InnerMessage | pulsar.Message):
            if type(own := self._own(message)) is self._message_class:
                acks.put(acks.inbox.positions, own)
        else:
            acks.add_cumulative(message)

    def flush_acks(self, confirm: bool = False, timeout_ms: int = 10_000) -> None:
        """Send what was acknowledged now, and on demand prove that the broker has it.

        Args:
            confirm: return only when the subscription's cursor on the broker shows every acknowledged message; on a
                non-persistent topic, which has no cursor, when they were sent.
            timeout_ms: how long that may take, in milliseconds; without `confirm` nothing is waited for.

        Raises:
            AckNotConfirmed: the cursor does not show all of them in time; `missing` says which.
            AdminError: the admin API refused.
            pulsar.AlreadyClosed: it is closed.
        """
        self._context.callbacks.refuse("flush_acks")
        flush_acks(self._context, self._acks, confirm=confirm, timeout_ms=timeout_ms)

    def pending_acks(self) -> int:
        """Count what was acknowledged and has not been sent: entries, and parts of batches."""
        pending: int = self._acks.pending
        return pending
