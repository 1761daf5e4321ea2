"""What the application, and what acts for it, says of a consumer's acknowledgements."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.fork import closed_error
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext.receive.order import Part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message

    from .collector import AckCollector
    from .group_timer import AckGrouping
    from .leaving import Entry

__all__ = ["AckIntake"]


class AckIntake(Part, ABC):
    """Takes acknowledgements, and takes them back; what becomes of them is the subclass's.

    Args:
        collector: keeps them.
        grouping: how they are grouped.
    """

    def __init__(self, collector: AckCollector, grouping: AckGrouping) -> None:
        self.collector, self._grouping = collector, grouping
        self.inbox = collector.inbox
        self.limit = grouping.limit
        self.scheduled = False
        self.closed = False
        self.lock = OwnedLock()

    def refuse(self) -> None:
        """Take nothing any more: every acknowledgement raises `AlreadyClosed`."""
        self.closed = True
        self.limit = 0

    def refuse_closed(self) -> None:
        """Refuse what is done behind the end.

        Raises:
            pulsar.AlreadyClosed: the consumer or its client is closed.
        """
        if self.closed:
            raise closed_error("Consumer")

    @abstractmethod
    def schedule(self) -> None:
        """Have the scheduler look after what was put into the inbox."""

    @abstractmethod
    def filled(self) -> None:
        """Read what is in the inbox, and let the group leave if it has become large enough."""

    @abstractmethod
    def _absorb(self) -> None:
        """Read what is in the inbox; the lock is held."""

    def add_messages(self, messages: list[Message]) -> None:
        """Acknowledge messages."""
        self.put(self.inbox.messages, *messages)

    def put(self, kept: list[Any], *acknowledged: Message | MessageId) -> None:
        """Put something into a list of the inbox."""
        kept.extend(acknowledged)
        if len(kept) >= self.limit:
            self.filled()
        elif not self.scheduled:
            self.schedule()

    def add_id(self, message_id: Any) -> None:
        """Acknowledge by an id of any kind.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: it cannot be found out what the id stands for; nothing is acknowledged.
        """
        add = self.collector.find(message_id, self.lock)
        with self.lock:
            add()
        self._added()

    def era_of(self, topic: str, partition: int) -> int:
        """Give a number that changes as the cursor of a topic, or of a partition, is moved."""
        with self.lock:
            return self.collector.by_topic.of(topic, partition).tracker.era

    def add_entries(self, topic: str, partition: int, entries: Iterable[Entry], era: int) -> None:
        """Acknowledge entries, and nothing else of the messages that they are parts of, unless the era is another."""
        with self.lock:
            tracker = self.collector.by_topic.of(topic, partition).tracker
            if tracker.era != era:
                return
            for entry in entries:
                tracker.add_whole(entry)
        self._added()

    def add_cumulative(self, message_id: Any) -> None:
        """Acknowledge everything up to an id; raises as `add_id()`."""
        add = self.collector.find_position(message_id, self.lock)
        with self.lock:
            self._absorb()
            add()
        self._added()

    def take_back(self, message_id: MessageId) -> None:
        """Forget an acknowledgement: the message is to be delivered again."""
        with self.lock:
            self._absorb()
            self.collector.take_back(message_id, time.monotonic())

    @property
    def pending(self) -> int:
        """How many acknowledgements have not been handed over, entries and parts of batches."""
        with self.lock:
            self._absorb()
            return self.collector.pending

    def is_duplicate(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged already."""
        with self.lock:
            self._absorb()
            return self.collector.is_duplicate(inner)

    def _added(self) -> None:
        with self.lock:
            pending = self.collector.pending
        if pending >= self._grouping.max_size or self.closed:  # by the handler of a signal: then that raises
            self.collector.count = pending
            self.filled()
        elif not self.scheduled:
            self.schedule()
