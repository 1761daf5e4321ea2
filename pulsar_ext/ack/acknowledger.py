"""A consumer's acknowledgements: taken from the application, grouped, sent, and kept until they have surely arrived.

`acknowledge()` puts the message into a list and returns. What of it is sent, and in which form, is decided in
`tracker.py`, a group at a time: by the caller that fills the group, by the scheduler's thread when it has waited
long enough, or by `flush()`. While there is no connection everything stays here; what was sent shortly before the
connection was lost is sent again. Mirrors Java's `PersistentAcknowledgmentsGroupingTracker`.

While the connection may be another one than that on which the messages before came, what was acknowledged since may be
in the receiver queue a second time, and is dropped; Java's `isDuplicate` forgets what was sent.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.fork import closed_error
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._runtime.condition import refuse_interrupting
from pulsar_ext._runtime.lazy import lazy
from pulsar_ext._runtime.scheduler import LOOK_SECONDS
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.order import Part, Transition

from .cursor import ArrivalProof, CursorMonitor, SendingAgain
from .delivery import AT_HAND, AT_HANDS, ConnectionWatch, GroupTimer, is_same_connection
from .topics import AckCollector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_ext._native.seek_gate import SeekGate
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import ReceiveOrder

    from .delivery import AckGrouping
    from .leaving import Entry
    from .topics import TopicAcks


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


_log = logging.getLogger("pulsar_ext.acks")

_QUIET_SECONDS, _SETTLING_SECONDS = 1.0, 0.25
"""After how long at most to look after what was sent while little is acknowledged, and what waits for something."""
_IDLE_SECONDS = 2.0
"""How long behind the last acknowledgement the connection is looked at: else the next would have to be sent twice."""
_NATIVE_SECONDS = 0.11
"""How long the C++ client holds an acknowledgement at most, and a little more."""
_KNOWN_SECONDS = 2.0
"""How long a replacement waits at most for what was acknowledged to arrive."""
_SETTLE_SECONDS = 1.0
"""How long, and up to twice as long, acknowledged messages of a batch wait for the others of it."""


class Acknowledger(AckIntake):
    """The acknowledgements of one consumer.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        gate: what the C++ consumer is asked through.
        topics: what was subscribed to.
        subscription: its name.
        grouping: how acknowledgements are grouped.
        splits: whether the subscription is Shared or Key_Shared.
        keeps_indexes: whether messages of a batch are acknowledged one by one on the broker.
        queue_size: number of messages that the receiver queue holds.
    """

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        gate: SeekGate,
        topics: Any,
        subscription: str,
        *,
        grouping: AckGrouping,
        splits: bool,
        keeps_indexes: bool,
        queue_size: int = 1000,
    ) -> None:
        collector = AckCollector(context, order, topics, runs=grouping.runs, keeps_indexes=keeps_indexes)
        super().__init__(collector, grouping)
        self._context, self._order, self._gate, self._topics = context, order, gate, topics
        self.subscription = subscription
        self._redelivered = Redelivered(order, collector, queue_size)
        self._timer = GroupTimer(grouping.hold_ms, grouping.max_size)
        self._filled = False
        self.inner: Any = None
        self._opened = 0.0
        """When the broker surely knew the C++ consumer on the connection of then."""
        self._left, self._settled, self._splits = 0.0, 0.0, splits
        self._is_moving = False
        """Whether a seek moves the cursor: what left meanwhile could acknowledge what comes again."""
        self._leaves_cluster = False
        """If another native object is about to be opened on another cluster."""
        self._moved: frozenset[str] | None = None
        """The topics and partitions whose cursors a seek moves; None for all."""

    # What follows is made when something is acknowledged: many consumers of a process may be idle.

    @lazy
    def _watch(self) -> ConnectionWatch:
        return ConnectionWatch(self._opened if is_same_connection(self._opened, time.monotonic()) else None)

    @lazy
    def _monitor(self) -> CursorMonitor:
        topics = self.collector.by_topic
        return CursorMonitor(self._context, self._order, self.subscription, topics, self.lock, self._begin_again)

    @lazy
    def _again(self) -> SendingAgain:
        one = isinstance(self._topics, str) and TopicName.parse(self._topics).is_persistent
        proof = ArrivalProof(self._context.senders.answer_to, can_ask=one)
        return SendingAgain(self._watch, proof, self.collector.by_topic, self._monitor, self.glance)

    def attach(self, inner: Any, began: float = 0.0) -> None:
        """Take the C++ consumer, which may have called its listener before it is known here.

        Args:
            inner: the C++ consumer.
            began: when it began to be opened, in seconds of `time.monotonic()`: the broker has known it since.
        """
        if self._splits and self._grouping.forces:
            self._context.broker_version.learn()  # before the first group is due
        with self.lock:
            self.inner = inner
            now = time.monotonic()
            if is_same_connection(began, now) and self.is_connected:
                self._opened = now
        self._context.scheduler.keep(self)  # what a signal's handler closes may not have been watched yet

    def renew(self, inner: Any, _: Iterator[Any], /) -> None:
        """Acknowledge to another C++ consumer from now on."""
        if self._leaves_cluster:  # what was acknowledged while it was opened is of the first cluster, too
            self.forget()
            self._leaves_cluster = False
        self.attach(inner)
        with self.lock:
            self._is_moving = False
            self._monitor.renew()
            self._watch.renew()
            left_out = self.collector.pending
        if left_out:
            self.schedule()

    def leave_out(self, inner: Any, last: int) -> None:
        """Count messages as acknowledged that a seek leaves out of their entry; see `AckCollector.leave_out()`."""
        with self.lock:
            self.collector.leave_out(inner, last)
        if self.is_connected:  # else another C++ consumer is about to take the place of this one
            self._added()

    def moves_some(self, topics: Iterable[str] | None) -> None:
        """Take note that the seek that is about to begin moves the cursors of these topics only; None for all."""
        self._moved = None if topics is None else frozenset(topics)

    def _moving_topics(self) -> list[TopicAcks]:
        """Return the topics whose cursors a seek moves."""
        moved = self._moved
        return [topic for topic in self.collector.by_topic if moved is None or topic.topic in moved]

    def before(self, transition: Transition, /) -> None:
        """Send what waits: what leaves later would acknowledge what is to come anew, and nothing leaves amid a seek."""
        refuse_interrupting("A seek, a redelivery or a close", self.lock)
        if transition is Transition.SEEK:
            with self.lock:
                self.flush()
                for topic in self._moving_topics():
                    topic.forget_sent()
                if self._moved is None:
                    self._watch.settle()
                self._is_moving = True
        elif transition is Transition.ANOTHER_CLUSTER:
            with self.lock:
                self._is_moving = self._leaves_cluster = True
                self.forget()
                self._watch.settle()
        elif transition is Transition.REDELIVERY:
            self.flush()
            self.wait_until_sent()
            self.expect_redelivery()
        elif transition is Transition.REPLACEMENT:
            self.flush()
            self.expect_redelivery()
            self._wait_until_known()
        elif transition is Transition.CLOSE:
            self.close()

    def after(self, transition: Transition, /) -> None:
        """Forget what has not left, where the cursor was moved elsewhere."""
        try:
            if transition is Transition.SEEK and self._moved is not None:
                for topic in self._moving_topics():
                    self.forget(topic)
            elif transition in (Transition.SEEK, Transition.ANOTHER_CLUSTER, Transition.UNSUBSCRIPTION):
                self.forget()
        finally:
            self._is_moving, self._moved = False, None

    def abandon(self, transition: Transition, /) -> None:
        """Conclude nothing from where the cursor was: the broker may have moved it all the same."""
        if transition is Transition.ANOTHER_CLUSTER:
            self._is_moving = self._leaves_cluster = False
        elif transition is Transition.SEEK:
            with self.lock:
                for topic in self._moving_topics():
                    topic.tracker.lose_base()
            self._is_moving, self._moved = False, None

    def expect_redelivery(self) -> None:
        """Drop messages of batches that were acknowledged in part: the broker may deliver such a batch whole again."""
        with self.lock:
            if any(topic.tracker.partly() for topic in self.collector.by_topic):
                self._redelivered.expect(math.inf)  # what was sent whole arrives before this

    def came_again(self, inner: Any) -> bool:
        """Whether a C++ message was acknowledged, so that it is not for the application, though it is delivered."""
        if not self._order.is_doubted:
            return False
        with self.lock:
            if self._redelivered.needs_inbox:
                self._absorb()
            return self._redelivered.drops(inner)

    def schedule(self) -> None:
        """Have the scheduler look after what was put into the inbox."""
        if self._watch.looked is None:  # nobody has watched the connection
            self._order.begin_epoch()
            with self.lock:
                self._redelivered.expect(-math.inf)
        self.scheduled = True
        self._context.scheduler.watch(self)
        self.collector.number_messages(time.monotonic())

    def filled(self) -> None:
        """Read what is in the inbox, and let the group leave if it has become large enough."""
        # Where the scheduler's thread is at work, these can wait until it is done, unless they become many.
        waits = self.limit < AT_HAND or len(self.inbox) >= AT_HANDS
        # No call between the lock and the block, where a Ctrl-C would leave it held for good.
        for _held in filter(None, map(self.lock.acquire, (waits,))):
            try:
                if self.closed:
                    self.inbox.clear()
                self.refuse_closed()
                self._absorb(passing=self._grouping.passes)
                self._filled = True
                if self.collector.count >= self._grouping.max_size and self._lets_leave:
                    self._leave(time.monotonic(), force=self._grouping.forces and self._may_fill)
            finally:
                self.lock.release()
        if not self.scheduled:
            self.schedule()

    def flush(self) -> bool:
        """Send everything now, parts of batches too; False if there is no connection: everything is pending then."""
        with self.lock:
            self._absorb()
            self.collector.settle(everything=True)
            leaves = self._lets_leave
            if leaves:
                self._leave(time.monotonic(), force=self._may_fill)
        self.schedule()
        return leaves

    def wait_until_sent(self) -> None:
        """Wait until the C++ client has sent what `flush()` gave it, where its group may not be filled up."""
        if not self._may_fill:
            threads.sleep(_NATIVE_SECONDS)

    @property
    def _may_fill(self) -> bool:
        """If the C++ client's group may be filled up, which has it sent at once."""
        return not self._splits or self._context.broker_version.passes_over_unknown

    def _wait_until_known(self) -> None:
        """Wait until the broker knows the native consumer, and what may be lost was sent again; 2 s at most.

        What was sent arrives before the end of the native consumer then, whose connection the broker serves in order.
        After 2 s it is closed all the same: what was acknowledged may be redelivered, and is acknowledged again.
        """
        deadline = time.monotonic() + _KNOWN_SECONDS
        while self.is_connected and time.monotonic() < deadline:
            with self.lock:
                sent = any(topic.sent for topic in self.collector.by_topic)
                if not sent or (self._watch.is_settled and all(one.again is None for one in self.collector.by_topic)):
                    return
            threads.sleep(LOOK_SECONDS)

    def leave_now(self) -> None:
        """Hand over everything that waits, without flushing it out of the C++ client."""
        with self.lock:
            self._absorb()
            if self._lets_leave:
                self._leave(time.monotonic(), force=False)

    @property
    def _lets_leave(self) -> bool:
        """Whether what was acknowledged may leave now."""
        return self.is_connected and not self._is_moving

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now, to the cluster that the messages are of."""
        # The cluster last: its number changes before the native consumer is connected there.
        return self.inner is not None and bool(self._gate.ask(self.inner.is_connected)) and self.is_on_its_cluster

    @property
    def cluster(self) -> int:
        """Number of the cluster that the messages are of."""
        return self._order.cluster

    @property
    def is_on_its_cluster(self) -> bool:
        """If the client is still connected to the cluster that the messages are of."""
        return self._context.cluster.number() == self._order.cluster

    @property
    def was_connected(self) -> bool:
        """Whether there was a connection at the last look, with what was sent on it."""
        return not self._watch.is_down

    def forget(self, *topics: TopicAcks) -> None:
        """Forget what was acknowledged and has not left, on these topics or on all: the cursor was moved elsewhere."""
        with self.lock:
            self._absorb()
            for topic in topics or self.collector.by_topic:
                topic.forget()

    def _begin_again(self, topic: TopicAcks) -> None:
        """Forget what was acknowledged on a topic whose cursor went back, and look after what comes again."""
        self.forget(topic)
        self.schedule()

    def close(self) -> None:
        """Hand over what is left; the C++ consumer sends it as it closes."""
        with self.lock:
            if (monitor := Acknowledger._monitor.made_for(self)) is not None:
                monitor.close()
            self._absorb()
            self.collector.settle(everything=True)
            pending = self.pending
            for topic in self.collector.by_topic:
                topic.is_held = False
            if self.inner is not None and self.is_connected:
                self._leave(time.monotonic(), force=False)
                if (again := Acknowledger._again.made_for(self)) is not None:
                    again.end(self.inner, time.monotonic())
            elif pending:
                _log.warning(
                    "A consumer of %s was closed without a connection: %d acknowledgements are lost, and their "
                    "messages will be delivered again.",
                    self._topics,
                    pending,
                )
            self.refuse()

    def tick(self, now: float) -> float | None:
        """Look after the group and the connection.

        Returns:
            After how many seconds to look again; None if there is nothing to watch.
        """
        with self.lock:
            now = time.monotonic()  # many that leave hold the lock for seconds, and look at the connection meanwhile
            if self.closed:
                return None
            if self.inner is None:
                return LOOK_SECONDS
            self.scheduled = False  # before the inbox is emptied: what comes later schedules anew
            connected = self.is_connected
            asks = self._look_after_group(now, connected=connected)
            wait = self._wait(now, connected=connected)
        if asks:
            self._context.inquiries.run(partial(self._ask_for_chunks, self.inner))
        if connected:
            with self.lock:
                if not self.closed:
                    self._monitor.look_if_needed(now)
        looks = self._context.connection_looks
        if wait > LOOK_SECONDS and not len(self.inbox):
            if wait < math.inf:
                looks.begin(self)  # what is acknowledged meanwhile schedules anew
                return wait
            looks.end(self)
            self._watch.rest()
            return None
        looks.end(self)
        self.scheduled = True
        return min(LOOK_SECONDS, max(self._timer.wait(now), 0.0) or LOOK_SECONDS)

    def _wait(self, now: float, *, connected: bool) -> float:
        """Give for how long only the connection has to be looked at; infinite if not even that."""
        collector, topics = self.collector, list(self.collector.by_topic)
        settles = any(topic.is_held or topic.tracker.is_settling for topic in topics)
        if not (
            any(topic.sent for topic in topics)
            or settles
            or collector.pending
            or collector.has_chunks
            or now - collector.acknowledged <= _IDLE_SECONDS  # so long messages may be numbered
            or self._watch.is_down
            or any(topic.reached for topic in topics)
        ):
            return math.inf
        if self._is_moving or collector.is_busy(now, LOOK_SECONDS):
            return 0.0
        if not connected:
            return _QUIET_SECONDS
        return min(_SETTLING_SECONDS if settles else _QUIET_SECONDS, min(self._again.due(now), self._timer.due) - now)

    def is_as_before(self, now: float) -> bool:
        """Look at the connection between two ticks; tell whether nothing has happened to it."""
        if not self.lock.acquire(blocking=False):  # who has it looks, where that takes long
            return True
        try:
            connected = self._gate.ask_uninterrupted(self.inner.is_connected) and self.is_on_its_cluster
            return self._watch.stays(now, connected=connected) and not self.closed
        finally:
            self.lock.release()

    def _look_after_group(self, now: float, *, connected: bool) -> bool:
        """Let leave what is due; tell whether half received messages are to be asked for."""
        collector, looked = self.collector, self._watch.looked
        asks = self._look_at_connection(now, connected=connected)
        if not (self._grouping.passes and self._filled):
            self._absorb(passing=self._grouping.passes)
        self._filled = False
        collector.number_no_messages_after(_IDLE_SECONDS, now)
        if now - self._settled >= _SETTLE_SECONDS:
            self._settled = now
            collector.settle()
        if self._timer.is_due(collector.pending, now, looked) and self._lets_leave:
            self._leave(now, force=self._grouping.forces and self._may_fill)
        return asks

    def _absorb(self, *, passing: bool = False) -> None:
        """Read what is in the inbox.

        Args:
            passing: give single messages to the C++ consumer at once if they may leave, so that they need not be kept.
        """
        if not len(self.inbox):
            return
        now = time.monotonic()
        if self._watch.may_have_changed(now):
            self._order.begin_epoch()
        try:
            if self.collector.absorb(now, self._passes_to if passing else lambda: None):
                self._left = now
                self.glance()
        except pulsar.AlreadyClosed:
            self._keep_for_another()

    def _passes_to(self) -> Any:
        """Return the C++ consumer if what was acknowledged may leave now; None otherwise."""
        return self.inner if self._lets_leave else None

    def _leave(self, now: float, *, force: bool) -> None:
        try:
            for topic in self.collector.by_topic:
                if topic.leave(self.inner, now, self.glance, force=force):
                    self._left = now
        except pulsar.AlreadyClosed:
            self._keep_for_another()
        self._timer.left()
        self.collector.count = 0

    def _keep_for_another(self) -> None:
        """Keep what a C++ consumer refused whose place another one takes just now; where none does, raise."""
        if not self._order.is_retired:
            raise  # noqa: PLE0704  # what is being handled
        self.schedule()

    def glance(self) -> None:
        """Look at the connection while many leave: else it would have to be taken for another one behind them."""
        self._watch.glance(time.monotonic(), connected=self.is_connected)

    def _look_at_connection(self, now: float, *, connected: bool) -> bool:
        """Send again what a disconnection may have lost; give whether half received messages have to be asked for."""
        waits = bool(len(self.inbox) or self.collector.pending)
        news = self._again.look(self.inner, now, connected=connected, waits=waits)
        if news.is_doubtful:
            self._order.begin_epoch()
            self._redelivered.expect(self._watch.since if connected else -math.inf)
        idle = self._splits and now - self._left > _IDLE_SECONDS
        return self.collector.may_have_chunks and (news.asks_for_chunks or (news.asks_again and idle))

    def _ask_for_chunks(self, asked: Any) -> None:
        """Have another C++ consumer get everything: this one has half of a message, and refuses its first chunk."""
        if not self.closed:
            with contextlib.suppress(pulsar.PulsarException):  # behind the next reconnection, or the next receive
                self._order.replace(lambda: self.inner is asked)  # a seek may have replaced it meanwhile
