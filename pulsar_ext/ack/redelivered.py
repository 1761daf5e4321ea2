"""Dropping messages that are delivered again though the consumer has acknowledged them.

It is done while the connection may be another one than that on which the messages before came: what was acknowledged
since may be in the receiver queue a second time. Mirrors Java's `isDuplicate` of the acknowledgements' tracker, which
forgets what was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pulsar_ext.receive.order import ReceiveOrder

    from .collector import AckCollector

__all__ = ["Redelivered"]

_AHEAD: Final = 400
"""So many may be fetched out of the receiver queue ahead of the application."""


class Redelivered:
    """Of one consumer; its acknowledgements' lock is held.

    Args:
        order: of the consumer's messages.
        collector: of its acknowledgements.
        queue_size: number of messages that its receiver queue holds, of each topic and partition.
    """

    __slots__ = ("_collector", "_count", "_order", "_passed", "_queue_size", "_read")

    def __init__(self, order: ReceiveOrder, collector: AckCollector, queue_size: int) -> None:
        self._order, self._collector, self._queue_size = order, collector, queue_size
        self._passed: set[int] = set()
        """By identity, the messages that were delivered since that was expected last: no other copy of them comes."""
        self._read = 0
        """Number of messages in the inbox that were found to be such."""
        self._count = 0
        """Number of messages that were delivered in a row since then, none of them dropped."""

    def expect(self, since: float) -> None:
        """Drop what is delivered again from now on, until what the queue has now has surely been taken.

        Args:
            since: when the oldest acknowledgement was sent that may be lost, in seconds of `time.monotonic()`.
        """
        self._passed.clear()
        self._count = 0
        self._collector.remember(since)
        self._order.doubt()

    @property
    def needs_inbox(self) -> bool:
        """Whether something in the inbox may be delivered again, so that it has to be read first."""
        inbox, passed = self._collector.inbox, self._passed
        if inbox.has_more_than_messages:
            return True
        messages = inbox.messages
        if self._read > len(messages):
            self._read = 0
        for at in range(self._read, len(messages)):
            if id(messages[at].inner) not in passed:
                self._read = 0
                return True
            self._read = at + 1
        return False

    def drops(self, inner: Any) -> bool:
        """Whether a C++ message that is about to be delivered to the application was acknowledged."""
        if self._collector.came_again(inner):
            self._count = 0
            return True
        self._passed.add(id(inner))
        self._count += 1
        if self._count > self._most:
            self._passed.clear()
            self._collector.remember_no_more()
            self._order.trust()
        return False

    @property
    def _most(self) -> int:
        """Number of messages in a row, none of them dropped, after which no other is expected."""
        return (self._queue_size + _AHEAD) * max(self._collector.number_of_topics, 1)
