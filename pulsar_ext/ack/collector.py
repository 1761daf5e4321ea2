"""What the application acknowledged and has not left for the broker, apart for each topic or partition.

`acknowledge()` puts the message into the inbox and returns. Here the inbox is read: some hundred messages at a time,
most of them without asking for their ids, see `AckInbox`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.resolver import as_message_id, entry_topic
from pulsar_ext.ids.origin import Origin

from .by_id import acknowledged_by, acknowledged_up_to
from .id_bytes import says_all
from .inbox import AckInbox
from .topic_acks import AcksByTopic, logging_refusals

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import ReceiveOrder

    from .inbox import Taken
    from .leaving import Entry, Singles
    from .topic_acks import TopicAcks

__all__ = ["AckCollector"]


class AckCollector:
    """The acknowledgements of one consumer until they leave; its user holds a lock, and calls `absorb()` first.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        runs: whether runs of entries without a gap leave as one position.
        keeps_indexes: whether the broker keeps acknowledgements inside batches.
    """

    __slots__ = (
        "_before",
        "_context",
        "_numbering",
        "_order",
        "_single",
        "_topics",
        "acknowledged",
        "by_topic",
        "chunked",
        "chunks_begin",
        "count",
        "has_chunks",
        "inbox",
    )

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Any, *, runs: bool, keeps_indexes: bool
    ) -> None:
        self._context, self._order, self._topics = context, order, topics
        self.inbox = AckInbox(topics, order)
        self.by_topic = AcksByTopic(topics, runs=runs, keeps_indexes=keeps_indexes)
        self.count = 0
        """How many were read since the last group left."""
        self.acknowledged = 0.0
        """When something was acknowledged the last time."""
        self._before = 0.0
        """The same, before that."""
        self.has_chunks = False
        """Whether a chunked message was acknowledged."""
        self.chunked: Callable[[bytes], None] = lambda _: None
        """Is called with the id of each chunked message that is acknowledged."""
        self.chunks_begin: Callable[[], None] = lambda: None
        """Is called as the first chunked message is acknowledged."""
        self._numbering = self._single = False

    @property
    def may_have_chunks(self) -> bool:
        """Whether chunked messages come: one was acknowledged, or nothing was yet."""
        return self.has_chunks or not self.acknowledged

    def is_busy(self, now: float, seconds: float) -> bool:
        """Whether acknowledgements come one after the other, none of them so long behind the one before."""
        return now - self.acknowledged < seconds and self.acknowledged - self._before < seconds

    # -- reading the inbox ---------------------------------------------------------------------------------------------

    def absorb(self, now: float, pass_to: Callable[[], Any]) -> bool:
        """Read what is in the inbox.

        Args:
            now: the time, in seconds of `time.monotonic()`.
            pass_to: returns the C++ consumer that gets single messages at once, so that they need not be kept; None for
                none. It is called after the inbox was read: what was acknowledged without a connection is kept.

        Returns:
            Whether some were passed to it.
        """
        inbox, passed = self.inbox, False
        if len(inbox):
            self._before, self.acknowledged = self.acknowledged, now
        if inbox.messages:
            taken = inbox.take_messages()
            if self._single != (taken.singles is not None):
                self._single = not self._single  # numbers spare nothing where messages are single
                self._order.number_if(wanted=self._numbering and not self._single)
            if taken.singles is not None and (inner := pass_to()) is not None:
                self._pass_on(taken.singles, taken.messages, now, inner)
                passed = True
            else:
                self.count += taken.size
                self._add(taken)
            inbox.drop_messages(taken)
        if inbox.ids:
            taken = inbox.take_ids()
            self.count += taken.size
            self._add(taken)
            inbox.drop_ids(taken)
        if inbox.positions:
            taken = inbox.take_positions()
            self._add_positions(taken)
            inbox.drop_positions(taken)
        if inbox.position_ids:
            taken = inbox.take_position_ids()
            self._add_positions(taken)
            inbox.drop_position_ids(taken)
        return passed

    def number_messages(self, now: float) -> None:
        """Have messages numbered as they are received: they are being acknowledged."""
        if not self._numbering and self._order.may_number:
            self.acknowledged, self._numbering, self._single = now, True, False
            self._order.number_if(wanted=True)

    def number_no_messages_after(self, idle_seconds: float, now: float) -> None:
        """Have messages not numbered any more if none was acknowledged for so long."""
        if self._numbering and now - self.acknowledged > idle_seconds:
            self._numbering = False
            self._order.number_if(wanted=False)

    @property
    def pending(self) -> int:
        """How many acknowledgements were read and have not left, entries and parts of batches."""
        return sum(topic.tracker.pending for topic in self.by_topic)

    def settle(self, *, everything: bool = False) -> None:
        """Have messages leave whose batch was not added to since the last call, or all."""
        for topic in self.by_topic:
            topic.tracker.settle(everything=everything)

    def _pass_on(self, singles: Singles, messages: Sequence[Message], now: float, inner: Any) -> None:
        """Give messages to the C++ consumer as they are: it takes one in half the time of an id."""
        to = self.by_topic.of(None, singles.partition)
        to.note_passed(singles, now)
        acknowledge = inner.acknowledge
        with logging_refusals(to, len(singles)):
            for message in messages:
                acknowledge(message.inner)

    def _add(self, taken: Taken) -> None:
        if taken.singles is not None:
            self.by_topic.of(None, taken.singles.partition).tracker.add_singles(taken.singles)
        for partition, entry, size, bits, at in taken.found:
            to = self.by_topic.of(taken.topic_at(at), partition)
            if size > 0:
                if not to.tracker.add_bits(entry, size, bits) and taken.is_first_at(at):
                    to.tracker.add_again(entry)
                continue
            if size < 0:
                self._add_chunked(to, entry, taken.id_at(at))
            to.tracker.add_whole(entry)

    def _add_positions(self, taken: Taken) -> None:
        self.count += 1
        for partition, entry, size, bits, at in taken.found:
            to = self.by_topic.of(taken.topic_at(at), partition)
            to.tracker.add_cumulative(entry, bits.bit_length() - 1, max(size, 0))

    def _add_chunked(self, to: TopicAcks, entry: Entry, inner: Any) -> None:
        """Keep a chunked message's C++ id, which alone knows every chunk, while it lives."""
        self._add_live(to, entry, inner)
        if not self.has_chunks:
            self.has_chunks = True
            self.chunks_begin()
        self.chunked(bytes(inner.serialize()))

    @staticmethod
    def _add_live(to: TopicAcks, entry: Entry, inner: Any) -> None:
        to.live[entry] = inner
        first = decode(inner.serialize()).first_chunk
        if first is not None:
            to.firsts[entry] = (first.ledger_id, first.entry_id)

    # -- by ids --------------------------------------------------------------------------------------------------------

    def takes(self, message_id: MessageId) -> bool:
        """Whether an id, of a message that is not chunked, says by itself all that has to be known."""
        if not isinstance(self._topics, str):
            return False
        return message_id.origin is Origin.LIVE or (
            message_id.origin is Origin.BYTES and says_all(message_id.serialize())
        )

    def topic_of(self, message_id: MessageId) -> str:
        """Give the topic, or the partition, of an id.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
        """
        return entry_topic(self._topics if isinstance(self._topics, str) else None, message_id)

    def find(self, message_id: Any, lock: contextlib.AbstractContextManager[Any]) -> Callable[[], None]:
        """Find out what an id of any kind acknowledges, without the lock: it may take long; give what adds it, with it.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: it cannot be found out what the id stands for; nothing is acknowledged.
        """
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_by(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry, lock))

        def add() -> None:
            to = self.by_topic.of(topic, ours.partition())
            if found.place >= 0:
                to.tracker.add_bits(found.entry, found.size, 1 << found.place)
            for entry, inner in found.wholes:
                if inner is not None and len(found.wholes) == 1 and b":" in inner.serialize():
                    self._add_live(to, entry, inner)
                to.tracker.add_whole(entry)

        return add

    def find_position(self, message_id: Any, lock: contextlib.AbstractContextManager[Any]) -> Callable[[], None]:
        """Find out up to where an id of any kind acknowledges; as `find()`."""
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_up_to(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry, lock))

        def add() -> None:
            self.by_topic.of(topic, ours.partition()).tracker.add_cumulative(found.entry, found.place, found.size)

        return add

    def take_back(self, message_id: MessageId, now: float) -> None:
        """Forget an acknowledgement: the message is to be delivered again. That of a chunked message stays."""
        data = decode(message_id.serialize())
        if data.first_chunk is None:
            to = self.by_topic.of(self.topic_of(message_id), data.partition)
            to.take_back((data.ledger_id, data.entry_id), data.batch_index, data.batch_size, now)

    def leave_out(self, inner: Any, last: int) -> None:
        """Count messages as acknowledged that a seek leaves out of their entry.

        Args:
            inner: one of them, a C++ message.
            last: which message of its batch is the last of them.
        """
        inner_id = inner.message_id()
        data = decode(inner_id.serialize())
        entry, bits = (data.ledger_id, data.entry_id), (1 << (last + 1)) - 1
        to = self.by_topic.of(inner.topic_name(), data.partition)
        if data.first_chunk is not None:
            self._add_chunked(to, entry, inner_id)
        to.tracker.leave_out(entry, data.batch_size if data.batch_index >= 0 else 0, bits)

    def is_duplicate(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged already."""
        inner_id = inner.message_id()
        to = self.by_topic.of(inner.topic_name(), inner_id.partition())
        return to.tracker.is_duplicate((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    @property
    def number_of_topics(self) -> int:
        """Number of topics and partitions that something was acknowledged on."""
        return len(self.by_topic)

    def remember(self, since: float) -> None:
        """Remember what left since a time: it may be delivered again, though it was acknowledged."""
        self.by_topic.remembers = True
        for topic in self.by_topic:
            topic.remember(since)

    def remember_no_more(self) -> None:
        """Take what is delivered for what was not acknowledged."""
        self.by_topic.remembers = False
        for topic in self.by_topic:
            topic.remembered = None

    def came_again(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged, and is delivered again because that was lost with a connection."""
        inner_id = inner.message_id()
        to = self.by_topic.of_message(inner, inner_id)
        return to is not None and to.came_again((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    def _known_size(
        self, topic: str, message_id: MessageId, entry: Entry, lock: contextlib.AbstractContextManager[Any]
    ) -> int:
        """Give how many messages the batch of an entry has, if some of them were acknowledged; else 0."""
        with lock:
            known = self.by_topic.of(topic, message_id.partition()).tracker.partly().get(entry)
        return 0 if known is None else known[0]
