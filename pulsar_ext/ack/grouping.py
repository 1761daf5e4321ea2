"""A consumer's acknowledgements: collected, grouped, handed over, and kept until they have surely arrived.

`acknowledge()` puts the C++ message into a list and returns. What of it leaves, and in which form, is decided in
`tracker.py`, a group at a time: by the caller that fills the group, by the scheduler's thread when it has waited
long enough, or by `flush()`. While there is no connection everything stays here; what was handed over shortly before
the connection was lost is handed over again. Mirrors Java's `PersistentAcknowledgmentsGroupingTracker`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.chunks.resolver import as_message_id, entry_topic
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId, Origin
from pulsar_ext.receive.order import Part, Transition

from .by_id import acknowledged_by, acknowledged_up_to
from .cursor_monitor import CursorMonitor
from .group_timer import GroupTimer
from .id_bytes import says_all
from .inbox import AckInbox
from .reconnect import ConnectionWatch
from .topic_acks import AcksByTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.position import Position
    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import ReceiveOrder

    from .inbox import Taken
    from .topic_acks import TopicAcks
    from .tracker import Entry, Leaving, Singles

__all__ = ["Acknowledger"]

_log = logging.getLogger("pulsar_ext.acks")

_OFFICIAL_MILLIS = 100
"""How long the C++ client's own grouping holds what was handed over."""
_SHORTEST_HOLD_MILLIS = 25
_AT_HAND = 256
"""So many messages are held at most until their ids are read: more of them would not stay in the processor's cache."""
_AT_HANDS = 8 * _AT_HAND
_TICK_SECONDS = 0.04
"""How often the connection is looked at; the C++ client takes 90 ms at least to make a new one."""
_SLOW_SECONDS = 0.085
_IDLE_SECONDS = 2.0


class Acknowledger(Part):
    """The acknowledgements of one consumer.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        subscription: its name.
        time_ms: how long an acknowledgement may wait; None for the default of 100.
        max_size: how many wait at most; None for the default of 1000.
        splits: whether the subscription is Shared or Key_Shared.
        keeps_indexes: whether messages of a batch are acknowledged one by one on the broker.
    """

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        topics: Any,
        subscription: str,
        *,
        time_ms: int | None,
        max_size: int | None,
        splits: bool,
        keeps_indexes: bool,
    ) -> None:
        check_grouping(time_ms, max_size)
        wanted = 100 if time_ms is None else time_ms
        self._context, self._order, self._topics = context, order, topics
        self.subscription = subscription
        self.keeps_indexes = keeps_indexes
        self.inbox = AckInbox(topics, order)
        self._max_size = 1 if wanted == 0 else 1000 if max_size is None else max_size
        self.limit = min(self._max_size, _AT_HAND)
        self._count = 0
        self.scheduled = False
        self.chunked: Callable[[bytes], None] = lambda _: None
        # The C++ client's own grouping adds up to 100 ms; what may not wait so long has to be flushed out of it.
        self._forces = wanted < _OFFICIAL_MILLIS or (max_size is not None and max_size < 1000)  # noqa: PLR2004
        hold = wanted if wanted < _OFFICIAL_MILLIS else max(wanted - _OFFICIAL_MILLIS, _SHORTEST_HOLD_MILLIS)
        self._group = GroupTimer(hold, self._max_size)
        # Single acknowledgements become a position only where grouping was asked for: see docs/acks.md.
        runs = not splits and not (time_ms is None and max_size is None)
        self._acks = AcksByTopic(topics, runs=runs, keeps_indexes=keeps_indexes)
        # Single messages need not wait here where the C++ client groups as was asked for. The scheduler's thread leaves
        # them to threads that fill the inbox: two that take turns at it wake each other for every message.
        self._passes = not runs and not self._forces and hold == _SHORTEST_HOLD_MILLIS
        self._filled = False
        self.lock = threading.RLock()
        self.inner: Any = None
        self._watch = ConnectionWatch()
        self._monitor = CursorMonitor(context, subscription, self.lock)
        self._numbering = self._single = False
        self._acknowledged = self._left = 0.0
        self._splits, self._chunks = splits, False
        self.closed = False

    def attach(self, inner: Any) -> None:
        """Take the C++ consumer, which may have called its listener before it is known here."""
        with self.lock:
            self.inner = inner

    # -- transitions ---------------------------------------------------------------------------------------------------

    def before(self, transition: Transition) -> None:
        """Send what waits: what leaves later would acknowledge what is to come anew."""
        if transition is Transition.SEEK:
            self._flush_for_good()
        elif transition is Transition.REDELIVERY:
            self.flush()
        elif transition is Transition.CLOSE:
            self.close()

    def after(self, transition: Transition) -> None:
        """Forget what has not left, where the cursor was moved elsewhere."""
        if transition in (Transition.SEEK, Transition.UNSUBSCRIPTION):
            self.forget()

    # -- what the application says -------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Have the scheduler look after what was put into the inbox."""
        if self._watch.looked is None:  # nobody has watched the connection
            self._order.begin_epoch()
        self.scheduled = True
        self._context.scheduler.watch(self)
        if not self._numbering and self._order.may_number:
            self._acknowledged, self._numbering, self._single = time.monotonic(), True, False
            self._order.number_if(wanted=True)

    def add_messages(self, messages: list[Message]) -> None:
        """Acknowledge messages."""
        self.inbox.messages.extend(messages)
        self._kept(self.inbox.messages)

    def takes(self, message_id: MessageId) -> bool:
        """Whether an id, of a message that is not chunked, says by itself all that has to be known."""
        if not isinstance(self._topics, str):
            return False
        return message_id.origin is Origin.LIVE or (
            message_id.origin is Origin.BYTES and says_all(message_id.serialize())
        )

    def put(self, kept: list[Any], acknowledged: Message | MessageId) -> None:
        """Put something into a list of the inbox."""
        kept.append(acknowledged)
        self._kept(kept)

    def _kept(self, kept: list[Any]) -> None:
        if len(kept) >= self.limit:
            self.filled()
        elif not self.scheduled:
            self.schedule()

    def filled(self) -> None:
        """Read what is in the inbox, and let the group leave if it has become large enough."""
        # Where the keeper's thread is at work, these can wait until it has done, unless they become many.
        if self.lock.acquire(blocking=self.limit < _AT_HAND or len(self.inbox) >= _AT_HANDS):
            try:
                if self.closed:
                    self.inbox.clear()
                    raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the client of this consumer was closed.")
                connected = self._is_connected()
                self._absorb(passing=self._passes and connected)
                self._filled = True
                if self._count >= self._max_size and connected:
                    self._leave(time.monotonic(), force=self._forces)
            finally:
                self.lock.release()
        if not self.scheduled:
            self.schedule()

    def add_id(self, message_id: Any) -> None:
        """Acknowledge by an id of any kind.

        Raises:
            TopicRequired: the consumer reads several topics and the id does not say which one.
            MessageIdUnresolved: it cannot be found out what the id stands for; nothing is acknowledged.
        """
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_by(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry))
        with self.lock:
            to = self._acks.of(topic, ours.partition())
            if found.place >= 0:
                to.tracker.add_bits(found.entry, found.size, 1 << found.place)
            for entry, inner in found.wholes:
                if inner is not None and len(found.wholes) == 1 and b":" in inner.serialize():
                    to.live[entry] = inner
                    self._note_first(to, entry, inner.serialize())
                to.tracker.add_whole(entry)
        self._added()

    def add_cumulative(self, message_id: Any) -> None:
        """Acknowledge everything up to an id."""
        ours = as_message_id(message_id)
        topic = self.topic_of(ours)
        found = acknowledged_up_to(self._context, topic, ours, lambda entry: self._known_size(topic, ours, entry))
        with self.lock:
            self._absorb()
            self._acks.of(topic, ours.partition()).tracker.add_cumulative(found.entry, found.place, found.size)
        self._added()

    def take_back(self, message_id: MessageId) -> None:
        """Forget an acknowledgement of a message of a batch: the message is to be delivered again."""
        if message_id.batch_index() < 0:
            return
        data = decode(message_id.serialize())
        with self.lock:
            self._absorb()
            to = self._acks.of(self.topic_of(message_id), data.partition)
            to.tracker.take_back((data.ledger_id, data.entry_id), data.batch_index, data.batch_size)

    def topic_of(self, message_id: MessageId) -> str:
        """Give the topic, or the partition, of an id."""
        return entry_topic(self._topics if isinstance(self._topics, str) else None, message_id)

    @property
    def pending(self) -> int:
        """How many acknowledgements have not been handed over, entries and parts of batches."""
        with self.lock:
            self._absorb()
            return self._waiting()

    # -- what leaves ---------------------------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Send everything now; False if there is no connection, and everything is kept for the next."""
        with self.lock:
            self._absorb()
            if not self._is_connected():
                self.schedule()
                return False
            self._leave(time.monotonic(), force=True)
        self.schedule()
        return True

    def flush_again(self, topic: TopicAcks, missing: Leaving) -> None:
        """Send once more what the broker does not show."""
        with self.lock:
            if self._is_connected():
                topic.hand_over_missing(self.inner, missing)

    def leave_now(self) -> None:
        """Hand over everything that waits, without flushing it out of the C++ client."""
        with self.lock:
            self._absorb()
            if self._is_connected():
                self._leave(time.monotonic(), force=False)

    def is_duplicate(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged already."""
        inner_id = inner.message_id()
        with self.lock:
            self._absorb()
            to = self._acks.of(inner.topic_name(), inner_id.partition())
            return to.tracker.is_duplicate((inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index())

    def topics(self) -> list[TopicAcks]:
        """Give every topic or partition that something was acknowledged on."""
        with self.lock:
            return list(self._acks)

    def is_processed(self, topic: TopicAcks) -> bool:
        """Wait until the broker has done what was sent to it for one topic; False if that cannot be known.

        A broker serves one connection in order, and a client has one connection to each broker.
        """
        before = time.monotonic()
        try:
            if topic.sender.is_named:  # the C++ consumer of several topics answers no such question
                self._context.open_reader(topic.topic, InnerMessageId.latest).close()
            else:
                self.inner.get_last_message_id()
        except pulsar.PulsarException:
            return False
        return self._is_connected() and not self._watch.is_down and time.monotonic() - before < _SLOW_SECONDS

    def _flush_for_good(self) -> None:
        """Send everything now, and nothing of it again."""
        with self.lock:
            self.flush()
            for topic in self._acks:
                topic.sent.take()
            self._watch.forget()

    def forget(self) -> None:
        """Forget everything that was acknowledged and has not left: the cursor was moved elsewhere."""
        with self.lock:
            self._absorb()
            for topic in self._acks:
                topic.forget()

    def close(self) -> None:
        """Hand over what is left; the C++ consumer sends it as it closes."""
        with self.lock:
            self._absorb()
            pending = self.pending
            if self.inner is not None and self._is_connected():
                self._leave(time.monotonic(), force=False)
            elif pending:
                _log.warning(
                    "A consumer of %s was closed without a connection: %d acknowledgements are lost, and their "
                    "messages will be delivered again.",
                    self._topics,
                    pending,
                )
            self.closed = True
            self.limit = 0

    def tick(self, now: float) -> float | None:
        """Look after the group and the connection.

        Args:
            now: `time.monotonic()`.

        Returns:
            After how many seconds to look again; None if there is nothing to watch.
        """
        with self.lock:
            if self.closed:
                return None
            if self.inner is None:
                return _TICK_SECONDS
            self.scheduled = False  # before the inbox is emptied: what comes later schedules anew
            connected, looked = self._is_connected(), self._watch.looked
            asks = self._look_at_connection(now, connected=connected)
            if not (self._passes and self._filled):
                self._absorb(passing=self._passes and connected)
            self._filled = False
            if self._numbering and now - self._acknowledged > _IDLE_SECONDS:
                self._numbering = False
                self._order.number_if(wanted=False)
            pending = self._waiting()
            if connected and self._group.is_due(pending, now, looked):
                self._leave(now, force=self._forces)
                pending = 0
            if self._watch.is_settled:  # what left before the connection was lost is sent again after it
                for topic in self._acks:
                    topic.expire(now)
            watching = (
                pending
                or self._watch.is_down
                or (self._splits and self._chunks)
                or self._numbering
                or any(topic.sent or topic.reached for topic in self._acks)
            )
        # Without the lock: whoever takes part in a transition may wait for it.
        if asks:
            with self._order.passing(Transition.REDELIVERY):
                self.inner.redeliver_unacknowledged_messages()
        if connected:
            for topic, mark in self._monitor.look(now, self.topics()):
                self._go_back(topic, mark)
        if not watching and not len(self.inbox):
            self._watch.rest()
            return None
        self.scheduled = True
        return min(_TICK_SECONDS, max(self._group.wait(now), 0.0) or _TICK_SECONDS)

    def _waiting(self) -> int:
        return sum(topic.tracker.pending for topic in self._acks)

    def _added(self) -> None:
        with self.lock:
            pending = self._waiting()
        if pending >= self._max_size:
            self._count = pending
            self.filled()
        elif not self.scheduled:
            self.schedule()

    def _absorb(self, *, passing: bool = False) -> None:
        """Read what is in the inbox.

        Args:
            passing: give single messages to the C++ consumer at once, so that they need not be kept.
        """
        inbox, now = self.inbox, time.monotonic()
        if self._watch.may_have_changed(now):
            self._order.begin_epoch()
        if len(inbox):
            self._acknowledged = now
        if inbox.messages:
            count, taken = len(inbox.messages), inbox.take_messages()
            if self._single != (taken.singles is not None):
                self._single = not self._single  # numbers spare nothing where messages are single
                self._order.number_if(wanted=self._numbering and not self._single)
            if taken.singles is not None and passing:
                self._pass_on(taken.singles, taken.messages, now)
            else:
                self._count += count
                self._add(taken)
        if inbox.ids:
            self._count += len(inbox.ids)
            self._add(inbox.take_ids())
        if inbox.positions or inbox.position_ids:
            self._count += 1
        for taken in (inbox.take_positions(), inbox.take_position_ids()):
            for partition, entry, size, bits, at in taken.found:
                to = self._acks.of(taken.topic_at(at), partition)
                to.tracker.add_cumulative(entry, bits.bit_length() - 1, max(size, 0))

    def _pass_on(self, singles: Singles, messages: Sequence[Any], now: float) -> None:
        """Give messages to the C++ consumer as they are: it takes one in half the time of an id."""
        to = self._acks.of(None, singles.partition)
        to.note_passed(singles, now)
        self._left = now
        acknowledge = self.inner.acknowledge
        with _refused(to, len(singles)):
            for message in messages:
                acknowledge(message)

    def _add(self, taken: Taken) -> None:
        if taken.singles is not None:
            self._acks.of(None, taken.singles.partition).tracker.add_singles(taken.singles)
        for partition, entry, size, bits, at in taken.found:
            to = self._acks.of(taken.topic_at(at), partition)
            if size > 0:
                to.tracker.add_bits(entry, size, bits)
                continue
            if size < 0:  # chunked: only its live id knows every chunk
                to.live[entry] = taken.id_at(at)
                data = bytes(to.live[entry].serialize())
                self._note_first(to, entry, data)
                self._chunks = True
                self.chunked(data)
            to.tracker.add_whole(entry)

    @staticmethod
    def _note_first(topic: TopicAcks, entry: Entry, data: bytes) -> None:
        first = decode(data).first_chunk
        if first is not None:
            topic.firsts[entry] = (first.ledger_id, first.entry_id)

    def _known_size(self, topic: str, message_id: MessageId, entry: Entry) -> int:
        """Give how many messages the batch of an entry has, if some of them were acknowledged; else 0."""
        with self.lock:
            self._absorb()
            known = self._acks.of(topic, message_id.partition()).tracker.partly().get(entry)
        return 0 if known is None else known[0]

    def _leave(self, now: float, *, force: bool) -> None:
        for topic in self._acks:
            leaving = topic.tracker.leave()
            if leaving:
                with _refused(topic, len(leaving)):
                    topic.hand_over(self.inner, leaving, now)
            if force and (leaving or topic.sent):
                topic.sender.flush(self.inner)
            if leaving:
                self._left = now
        self._group.left()
        self._count = 0

    def _is_connected(self) -> bool:
        return self.inner is not None and bool(self.inner.is_connected())

    # -- after a disconnection -----------------------------------------------------------------------------------------

    def _look_at_connection(self, now: float, *, connected: bool) -> bool:
        """Send again what a disconnection may have lost; True if half received chunked messages have to be asked for.

        The C++ client drops chunks whose first it did not get: that may be with another consumer.
        """
        news = self._watch.look(now, connected=connected)
        if news.is_doubtful:
            self._order.begin_epoch()
        if news.sends_again:
            for topic in self._acks:
                topic.hand_over_again(self.inner, now, keep=news.keeps)
        if news.settles is not None:
            self._monitor.look_after(news.settles)
        return news.asks_for_chunks and self._splits and self._chunks and now - self._left > _IDLE_SECONDS

    def _go_back(self, topic: TopicAcks, mark: Position) -> None:
        """Take up again where the broker's cursor is.

        The broker lost a position when it was killed, or an operator moved the cursor back. The C++ client drops what
        is redelivered from there, as acknowledged earlier, until a seek makes it forget.
        """
        _log.warning(
            "The cursor of %s on %s went back to %s, before what was acknowledged: its messages are delivered again.",
            self.subscription,
            topic.topic,
            mark,
        )
        with self.lock:
            topic.forget()
        with contextlib.suppress(pulsar.PulsarException), self._order.passing(Transition.CURSOR_RESET):
            self.inner.seek(InnerMessageId(topic.sender.partition, mark.ledger_id, mark.entry_id, -1))
        if mark.entry_id >= 0:
            # The broker takes back the entry that a seek names, and the C++ client does not deliver it.
            with self.lock:
                topic.tracker.add_cumulative((mark.ledger_id, mark.entry_id))
            self.schedule()


@contextlib.contextmanager
def _refused(topic: TopicAcks, count: int) -> Iterator[None]:
    """Tell of acknowledgements that the C++ consumer refuses, as for a message of a topic that is not its own."""
    try:
        yield
    except pulsar.AlreadyClosed:
        raise
    except pulsar.PulsarException as error:
        _log.error("%d acknowledgements on %s were refused: %s", count, topic.topic, error)


def check_grouping(time_ms: object, max_size: object) -> None:
    """Refuse what cannot group acknowledgements.

    Raises:
        InvalidUse: the time is not an int of 0 or more, or the size not one of 1 or more.
    """
    if time_ms is not None and (isinstance(time_ms, bool) or not isinstance(time_ms, int) or time_ms < 0):
        raise InvalidUse(f"ack_group_time_ms is an int of milliseconds, 0 or more, not {time_ms!r}.")
    if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
        raise InvalidUse(f"max_ack_group_size is an int, 1 or more, not {max_size!r}.")
