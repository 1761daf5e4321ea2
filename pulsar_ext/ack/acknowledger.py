"""Group a consumer's acknowledgements, send them, and keep them until they have arrived at the broker.

`acknowledge()` appends the message to an inbox and returns. `tracker.py` decides what is sent and in which form, one
group at a time. A group is sent by the caller that fills it, by the scheduler's thread when it is due, or by
`flush()`. Without a connection acknowledgements stay pending. Those sent shortly before a disconnection are sent again.
Mirrors Java's `PersistentAcknowledgmentsGroupingTracker`.

After a possible reconnection the receiver queue may contain acknowledged messages a second time. These are dropped.
Java's `isDuplicate` does not know acknowledgements that were sent.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import Answer
from pulsar_ext._native.fork import closed_error
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.condition import raise_if_interrupting
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.lazy import lazy
from pulsar_ext._runtime.scheduler import CONNECTION_POLL_SECONDS
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message
from pulsar_ext.receive.order import Part, ReceiveOrder, Transition, TransitionSubscriber
from pulsar_ext.receive.seeks import Topics

from .cursor import CursorMonitor
from .delivery import (
    HELD_POLL_SECONDS,
    IDLE_POLL_SECONDS,
    INBOX_SIZE,
    KNOWN_SECONDS,
    MAX_INBOX_SIZE,
    NATIVE_SECONDS,
    PARTIAL_BATCH_SECONDS,
    WATCH_SECONDS,
    AckGrouping,
    Delivery,
    GroupTimer,
    is_same_connection,
)
from .groups import Entry
from .topics import AckCollector, TopicAcks

_MAX_PREFETCHED: Final = 400
"""Maximum number of messages fetched from the receiver queue ahead of the application."""


K = TypeVar("K")
Place = tuple["Entry", int]
"""Entry and batch index of a message, -1 without a batch."""


class DuplicateFilter:
    """Drop redelivered messages that one consumer has acknowledged. The lock of the acknowledgements must be held.

    Args:
        order: the receive order of the consumer.
        collector: the consumer's acknowledgements.
        queue_size: size of the receiver queue of each topic and partition.
        max_queued: maximum number of messages in all these queues.
    """

    __slots__ = (
        *("_collector", "_delivered", "_max_queued", "_min_in_a_row", "_order", "_queue_size"),
        *("_highest", "_since", "known"),
    )

    def __init__(self, order: ReceiveOrder, collector: AckCollector, queue_size: int, max_queued: int) -> None:
        self._order, self._collector, self._queue_size, self._max_queued = order, collector, queue_size, max_queued
        self._min_in_a_row = min(queue_size, max_queued) + _MAX_PREFETCHED
        """`_max_in_a_row` with acknowledgements on one topic or partition only, which is fast to compare with."""
        self._delivered: dict[int, InnerMessage] = {}
        """The messages that passed since the last `expect()`, by identity. They stay alive, so that no other message
        gets their identity."""
        self._highest: dict[int, Place] = {}
        """Their highest position, by partition."""
        self.known = 0
        """Number of messages at the start of the inbox that are in `_delivered`; 0 after the inbox was read."""
        self._since = 0
        """Number of messages that had passed when the last one was dropped."""

    def expect(self, since: float) -> None:
        """Drop redelivered messages, acknowledged `since` a time, until the current receiver queue was received."""
        self._forget()
        self._since = self._order.passed
        self._collector.remember(since)
        self._order.start_screening()

    def needs_inbox(self, partition: int, place: Place) -> bool:
        """Return True if the inbox may contain the message of a position, so that it must be read first."""
        inbox, delivered = self._collector.inbox, self._delivered
        highest = self._highest.get(partition)
        if highest is None or place > highest:
            self._highest[partition] = place
        else:  # it may be in `_delivered`
            return True
        if inbox.has_more_than_messages:
            return True
        messages = inbox.messages
        for at in range(self.known, len(messages)):
            if id(messages[at].inner) not in delivered:
                return True
            self.known = at + 1
        return False

    def drops(self, inner: InnerMessage, partition: int, place: Place) -> bool:
        """Return True if a native message was acknowledged and must not be delivered again."""
        acks = self._collector.by_topic.of_message(inner, partition)
        if acks is not None and acks.is_redelivered_duplicate(*place):
            self._since = self._order.passed
            return True
        self._delivered[id(inner)] = inner
        self._order.passed += 1
        self.end_if_received()
        return False

    def end_if_received(self) -> None:
        """End the screening if the receiver queue of its beginning was received."""
        passed = self._order.passed - self._since
        if passed > self._min_in_a_row and passed > self._max_in_a_row:
            self._forget()
            self._collector.stop_remembering()
            self._order.end_screening()

    def _forget(self) -> None:
        self._delivered.clear()
        self._highest.clear()
        self.known = 0

    @property
    def _max_in_a_row(self) -> int:
        """Number of consecutive messages, none dropped, after which no redelivered message is expected."""
        queued = self._queue_size * max(self._collector.number_of_topics, 1)
        return min(queued, self._max_queued) + _MAX_PREFETCHED


_log = logging.getLogger("pulsar_ext.acks")


class Acknowledger(TransitionSubscriber):
    """The acknowledgements of one consumer: accepts and withdraws them, and sends them in groups."""

    part = Part.ACKS

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        gate: SeekGate,
        topics: Topics,
        subscription: str,
        *,
        grouping: AckGrouping,
        is_shared: bool,
        keeps_indexes: bool,
        queue_size: int = 1000,
        max_queued: int = 50_000,
    ) -> None:
        collector = AckCollector(context, topics, runs=grouping.runs, keeps_indexes=keeps_indexes)
        self.collector, self.inbox, self._grouping = collector, collector.inbox, grouping
        self.limit = grouping.limit
        """Number of messages in the inbox at which it is read; 0 after a close."""
        self.scheduled = self.closed = False
        self.lock = OwnedLock()
        self._context, self._order, self._gate, self._topics = context, order, gate, topics
        self.subscription = subscription
        self._queue_size, self._max_queued = queue_size, max_queued
        self._processed_inbox = False
        self.inner: InnerConsumer | None = None
        self._opened = 0.0
        """Time at which the broker was known to have the native consumer, on the connection of that time."""
        self._last_sent, self._last_release, self._is_shared = 0.0, 0.0, is_shared
        self._answer: Answer | None = None
        """Of the last probe."""
        self._is_moving = False
        """True during a seek: an acknowledgement sent now could acknowledge a message that is to be redelivered."""
        self._changes_cluster = False
        """True before the native consumer of another cluster is opened."""
        self._moved: frozenset[str] | None = None
        """Topics and partitions whose cursors the current seek moves; None for all."""

    # The following are created with the first acknowledgement: a process may have many idle consumers.

    @lazy
    def _delivery(self) -> Delivery[TopicAcks]:
        return Delivery(
            self.collector.by_topic,
            opened=self._opened if is_same_connection(self._opened, time.monotonic()) else None,
            can_probe=isinstance(self._topics, str) and TopicName.parse(self._topics).is_persistent,
        )

    @lazy
    def _redelivered(self) -> DuplicateFilter:
        return DuplicateFilter(self._order, self.collector, self._queue_size, self._max_queued)

    @lazy
    def _timer(self) -> GroupTimer:
        return GroupTimer(self._grouping.hold_ms, self._grouping.max_size)

    @lazy
    def _monitor(self) -> CursorMonitor:
        return CursorMonitor(
            self._context, self._order, self.subscription, self._delivery, self.lock, self._restart_topic
        )

    def attach(self, inner: InnerConsumer, began: float = 0.0) -> None:
        """Use a native consumer, whose listener may have been called already."""
        if self._is_shared and self._grouping.flushes_native:
            self._context.broker_version.learn()  # before the first group is sent
        with self.lock:
            self.inner = inner
            now = time.monotonic()
            if is_same_connection(began, now) and self.is_connected:
                self._opened = now
        self._context.scheduler.keep(self)  # a signal handler may close the consumer before it is watched

    def on_reopen(self, inner: InnerConsumer, _: Iterator[InnerMessage], /) -> None:
        """Acknowledge to another native consumer from now on."""
        if self._changes_cluster:  # messages acknowledged during the opening belong to the first cluster too
            self.forget()
            self._changes_cluster = False
        self.attach(inner)
        with self.lock:
            self._is_moving = False
            self._monitor.native_replaced()
            self._delivery.native_replaced()
            pending = self.collector.pending
        if pending:
            self.schedule()

    def mark_closed(self) -> None:
        """Accept nothing more: every later acknowledgement raises `AlreadyClosed`."""
        self.closed = True
        self.limit = 0

    def raise_if_closed(self) -> None:
        """Raise `pulsar.AlreadyClosed` if the consumer or its client is closed."""
        if self.closed:
            raise closed_error("Consumer")

    def add_messages(self, messages: list[Message]) -> None:
        """Acknowledge messages."""
        self.put(self.inbox.messages, *messages)

    def put(self, kept: list[K], *acknowledged: K) -> None:
        """Append messages or ids to a list of the inbox."""
        kept.extend(acknowledged)
        if len(kept) >= self.limit:
            self.process_inbox()
        elif not self.scheduled:
            self.schedule()

    def add_id(self, message_id: object) -> None:
        """Acknowledge by an id of any kind; if it cannot be resolved, raise, and acknowledge nothing."""
        add = self.collector.resolve(message_id, self.lock)
        with self.lock:
            add()
        self._added()

    def cursor_era(self, topic: str, partition: int) -> int:
        """Return a counter that changes whenever the cursor of a topic or partition is moved."""
        with self.lock:
            return self.collector.by_topic.of(topic, partition).tracker.era

    def add_entries(self, topic: str, partition: int, entries: Iterable[Entry], era: int) -> None:
        """Acknowledge these entries only, not other chunks of their messages; do nothing if the era has changed."""
        with self.lock:
            tracker = self.collector.by_topic.of(topic, partition).tracker
            if tracker.era != era:
                return
            for entry in entries:
                tracker.add_whole(entry)
        self._added()

    def add_cumulative(self, message_id: object) -> None:
        """Acknowledge cumulatively up to an id; raises what `add_id()` raises."""
        add = self.collector.resolve_position(message_id, self.lock)
        with self.lock:
            self._absorb()
            add()
        self._added()

    def withdraw(self, message_id: MessageId) -> None:
        """Withdraw the acknowledgement of a message that is to be redelivered."""
        with self.lock:
            self._absorb()
            self.collector.withdraw(message_id, time.monotonic())

    def withdraw_message(self, message: Message) -> None:
        """Withdraw the acknowledgement of a message that is to be redelivered, if anything was acknowledged."""
        inbox = self.inbox
        if inbox.messages or inbox.ids or inbox.positions or inbox.position_ids:  # faster than `len(inbox)`
            with self.lock:
                self._absorb()
        if self.collector.by_topic:
            self.collector.withdraw_message(message, self.lock)

    @property
    def pending(self) -> int:
        """Number of pending acknowledgements: entries and partly acknowledged batches."""
        with self.lock:
            self._absorb()
            return self.collector.pending

    def is_duplicate(self, inner: InnerMessage) -> bool:
        """Return True if a native message was acknowledged already."""
        with self.lock:
            self._absorb()
            return self.collector.is_duplicate(inner)

    def _added(self) -> None:
        with self.lock:
            pending = self.collector.pending
        if pending >= self._grouping.max_size or self.closed:  # closed by a signal handler: process_inbox() raises then
            self.collector.count = pending
            self.process_inbox()
        elif not self.scheduled:
            self.schedule()

    def acknowledge_skipped(self, inner: InnerMessage, last: int) -> None:
        """Acknowledge the messages of an entry that a seek into it skips."""
        with self.lock:
            self.collector.acknowledge_skipped(inner, last)
        if self.is_connected:  # otherwise another native consumer is about to replace this one
            self._added()

    def note_moved_topics(self, topics: Iterable[str] | None) -> None:
        """Store the topics whose cursors the next seek moves; None for all."""
        self._moved = None if topics is None else frozenset(topics)

    def _moving_topics(self) -> list[TopicAcks]:
        """Return the topics whose cursors the current seek moves."""
        moved = self._moved
        return [topic for topic in self.collector.by_topic if moved is None or topic.topic in moved]

    def on_before(self, transition: Transition, /) -> None:
        """Send pending acknowledgements, and send none during a seek: they could acknowledge redelivered messages."""
        raise_if_interrupting("A seek, a redelivery or a close", self.lock)
        if transition is Transition.SEEK:
            with self.lock:
                self.flush()
                for topic in self._moving_topics():
                    topic.forget_sent()
                if self._moved is None:
                    self._delivery.watch.mark_stable()
                self._is_moving = True
        elif transition is Transition.ANOTHER_CLUSTER:
            with self.lock:
                self._is_moving = self._changes_cluster = True
                self.forget()
                self._delivery.watch.mark_stable()
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

    def on_after(self, transition: Transition, /) -> None:
        """Drop the acknowledgements that were not sent if the cursor was moved."""
        try:
            if transition is Transition.SEEK and self._moved is not None:
                for topic in self._moving_topics():
                    self.forget(topic)
            elif transition in (Transition.SEEK, Transition.ANOTHER_CLUSTER, Transition.UNSUBSCRIPTION):
                self.forget()
        finally:
            self._is_moving, self._moved = False, None

    def on_abandon(self, transition: Transition, /) -> None:
        """Invalidate the cursor position after a failed seek: the broker may have moved the cursor nevertheless."""
        if transition is Transition.ANOTHER_CLUSTER:
            self._is_moving = self._changes_cluster = False
        elif transition is Transition.SEEK:
            with self.lock:
                for topic in self._moving_topics():
                    topic.tracker.lose_base()
            self._is_moving, self._moved = False, None

    def expect_redelivery(self) -> None:
        """Drop acknowledged messages of partly acknowledged batches: the broker may redeliver the whole batch."""
        with self.lock:
            if any(topic.tracker.partial_batches() for topic in self.collector.by_topic):
                self._redelivered.expect(math.inf)  # acknowledgements of whole entries arrive before the redelivery

    def is_redelivered_duplicate(self, inner: InnerMessage) -> bool:
        """Return True if a redelivered native message was acknowledged and must be dropped."""
        if not self._order.is_screening:
            return False
        inner_id = inner.message_id()
        partition = inner_id.partition()
        place = (inner_id.ledger_id(), inner_id.entry_id()), inner_id.batch_index()
        with self.lock:
            if self._redelivered.needs_inbox(partition, place):
                self._absorb()
            return self._redelivered.drops(inner, partition, place)

    def end_screening_if_received(self) -> None:
        """End the screening of messages if no redelivered one is expected any more."""
        with self.lock:
            self._redelivered.end_if_received()

    def schedule(self) -> None:
        """Let the scheduler process the inbox."""
        if self._delivery.watch.polled_at is None:  # the connection was not polled
            with self.lock:
                self._redelivered.expect(-math.inf)
        self.scheduled = True
        self._context.scheduler.watch(self)

    def process_inbox(self) -> None:
        """Read the inbox, and send the group if it is full."""
        # While the scheduler's thread holds the lock, a small inbox can wait until it is released.
        blocking = self.limit < INBOX_SIZE or len(self.inbox) >= MAX_INBOX_SIZE
        # No call may come between the lock and the block: a Ctrl-C there would leave the lock held.
        for _held in filter(None, map(self.lock.acquire, (blocking,))):
            try:
                if self.closed:
                    self.inbox.clear()
                self.raise_if_closed()
                self._absorb(passing=self._grouping.passes_singles)
                self._processed_inbox = True
                if self.collector.count >= self._grouping.max_size and (inner := self._native_if_ready()) is not None:
                    self._send_group(inner, time.monotonic(), force=self._grouping.flushes_native and self._may_fill)
            finally:
                self.lock.release()
        if not self.scheduled:
            self.schedule()

    def flush(self) -> bool:
        """Send everything now, also partly acknowledged batches; return False if there is no connection."""
        with self.lock:
            self._absorb()
            self.collector.release_partial(everything=True)
            if (inner := self._native_if_ready()) is not None:
                self._send_group(inner, time.monotonic(), force=self._may_fill)
        self.schedule()
        return inner is not None

    def wait_until_sent(self) -> None:
        """Wait until the C++ client has sent what was flushed, if its group must not be filled up."""
        if not self._may_fill:
            threads.sleep(NATIVE_SECONDS)

    @property
    def _may_fill(self) -> bool:
        """True if the C++ client's group may be filled up so that it is sent at once."""
        return not self._is_shared or self._context.broker_version.skips_unknown_ledgers

    def _wait_until_known(self) -> None:
        """Wait at most 2 s until the broker knows the native consumer and lost acknowledgements were sent again.

        Acknowledgements then arrive before the close of the native consumer: the broker serves a connection in order.
        After 2 s the native consumer is closed anyway; messages that are redelivered are acknowledged again.
        """
        deadline = time.monotonic() + KNOWN_SECONDS
        while self.is_connected and time.monotonic() < deadline:
            with self.lock:
                sent = any(topic.sent for topic in self.collector.by_topic)
                if not sent or self._delivery.is_recovered:
                    return
            threads.sleep(CONNECTION_POLL_SECONDS)

    def send_pending(self) -> None:
        """Pass everything pending to the native consumer, without flushing it."""
        with self.lock:
            self._absorb()
            if (inner := self._native_if_ready()) is not None:
                self._send_group(inner, time.monotonic(), force=False)

    @property
    def is_connected(self) -> bool:
        """True if the native consumer is connected to the cluster of its messages."""
        # The cluster is checked last: its number changes before the native consumer connects to the new one.
        return self.inner is not None and bool(self._gate.ask(self.inner.is_connected)) and self.is_on_its_cluster

    @property
    def cluster(self) -> int:
        """Number of the cluster that the messages belong to."""
        return self._order.cluster

    @property
    def is_on_its_cluster(self) -> bool:
        """True if the client is still connected to the cluster that the messages belong to."""
        return self._context.cluster.number() == self._order.cluster

    @property
    def was_connected(self) -> bool:
        """True if the last poll found a connection."""
        return not self._delivery.watch.is_down

    def forget(self, *topics: TopicAcks) -> None:
        """Drop what was acknowledged on these topics, or on all: the cursor was moved."""
        with self.lock:
            self._absorb()
            for topic in topics or self.collector.by_topic:
                topic.forget()

    def _restart_topic(self, topic: TopicAcks) -> None:
        """Drop what was acknowledged on a topic whose cursor was moved back, and watch for redelivered messages."""
        self.forget(topic)
        self.schedule()

    def close(self) -> None:
        """Pass pending acknowledgements to the native consumer, which sends them as it closes."""
        with self.lock:
            if (monitor := Acknowledger._monitor.made_for(self)) is not None:
                monitor.close()
            self._absorb()
            self.collector.release_partial(everything=True)
            pending = self.pending
            for topic in self.collector.by_topic:
                topic.is_held = False
            if self.inner is not None and self.is_connected:
                self._send_group(self.inner, time.monotonic(), force=False)
                if (delivery := Acknowledger._delivery.made_for(self)) is not None and not delivery.watch.is_stable:
                    delivery.mark_for_resend()
                    self._resend(self.inner, time.monotonic())
            elif pending:
                _log.warning(
                    "A consumer of %s was closed without a connection: %d acknowledgements are lost and their "
                    "messages will be redelivered.",
                    self._topics,
                    pending,
                )
            self.mark_closed()

    def tick(self, now: float) -> float | None:
        """Process the group and poll the connection."""
        with self.lock:
            now = time.monotonic()  # sending many acknowledgements can hold the lock for seconds
            if self.closed:
                return None
            if (inner := self.inner) is None:
                return CONNECTION_POLL_SECONDS
            self.scheduled = False  # before the inbox is read: later acknowledgements schedule another call
            connected = self.is_connected
            must_request = self._send_due_group(inner, now, connected=connected)
            wait = self._poll_delay(now, connected=connected)
        if must_request:
            self._context.inquiries.run(partial(self._request_chunks, inner))
        if connected:
            with self.lock:
                if not self.closed:
                    self._monitor.check_if_needed(now)
        looks = self._context.connection_polls
        if wait > CONNECTION_POLL_SECONDS and not len(self.inbox):
            if wait < math.inf:
                looks.begin(self)  # an acknowledgement before then schedules another call
                return wait
            looks.end(self)
            self._delivery.watch.pause()
            return None
        looks.end(self)
        self.scheduled = True
        return min(CONNECTION_POLL_SECONDS, max(self._timer.wait(now), 0.0) or CONNECTION_POLL_SECONDS)

    def _poll_delay(self, now: float, *, connected: bool) -> float:
        """Return the seconds for which only the connection must be polled; infinite if nothing must be."""
        collector, topics = self.collector, list(self.collector.by_topic)
        holds_back = any(topic.is_held or topic.tracker.has_partial_batches for topic in topics)
        if not (
            any(topic.sent for topic in topics)
            or holds_back
            or collector.pending
            or collector.has_chunks
            or now - collector.acknowledged <= WATCH_SECONDS  # messages may be numbered during this time
            or self._delivery.watch.is_down
            or any(topic.highest_sent for topic in topics)
        ):
            return math.inf
        if self._is_moving or collector.is_busy(now, CONNECTION_POLL_SECONDS):
            return 0.0
        if not connected:
            return IDLE_POLL_SECONDS
        return min(
            HELD_POLL_SECONDS if holds_back else IDLE_POLL_SECONDS,
            min(self._delivery.due(now), self._timer.due) - now,
        )

    def is_connection_unchanged(self, now: float) -> bool:
        """Poll the connection between two ticks; return True if nothing has changed."""
        if not self.lock.acquire(blocking=False):  # the holder of the lock polls the connection
            return True
        try:
            connected = (
                self.inner is not None
                and self._gate.ask_uninterrupted(self.inner.is_connected)
                and self.is_on_its_cluster
            )
            return self._delivery.watch.is_unchanged(now, connected=connected) and not self.closed
        finally:
            self.lock.release()

    def _send_due_group(self, inner: InnerConsumer, now: float, *, connected: bool) -> bool:
        """Send the group if it is due; return True if incomplete chunked messages must be requested."""
        collector, polled_at = self.collector, self._delivery.watch.polled_at
        must_request = self._poll_connection(inner, now, connected=connected)
        if not (self._grouping.passes_singles and self._processed_inbox):
            self._absorb(passing=self._grouping.passes_singles)
        self._processed_inbox = False
        if now - self._last_release >= PARTIAL_BATCH_SECONDS:
            self._last_release = now
            collector.release_partial()
        if self._timer.is_due(collector.pending, now, polled_at) and self._native_if_ready() is not None:
            self._send_group(inner, now, force=self._grouping.flushes_native and self._may_fill)
        return must_request

    def _absorb(self, *, passing: bool = False) -> None:
        """Read the inbox; with `passing`, pass single messages to the native consumer at once if possible."""
        if not len(self.inbox):
            return
        now = time.monotonic()
        self._redelivered.known = 0
        try:
            if self.collector.absorb(now, self._native_if_ready if passing else lambda: None):
                self._last_sent = now
                self.check_connection()
        except pulsar.AlreadyClosed:
            self._keep_for_replacement()

    def _native_if_ready(self) -> InnerConsumer | None:
        """Return the native consumer if acknowledgements may be sent now; None otherwise."""
        return self.inner if self.is_connected and not self._is_moving else None

    def _send_group(self, inner: InnerConsumer, now: float, *, force: bool) -> None:
        try:
            for topic in self.collector.by_topic:
                if topic.send_group(inner, now, self.check_connection, force=force):
                    self._last_sent = now
        except pulsar.AlreadyClosed:
            self._keep_for_replacement()
        self._timer.restart()
        self.collector.count = 0

    def _keep_for_replacement(self) -> None:
        """Keep acknowledgements that a closed native consumer rejected, if another one replaces it; raise otherwise."""
        if not self._order.is_retired:
            raise  # noqa: PLE0704  # re-raises the exception being handled
        self.schedule()

    def check_connection(self) -> None:
        """Poll the connection during a long send, so that the next poll does not take it for another one."""
        self._delivery.watch.check_connection(time.monotonic(), connected=self.is_connected)

    def _poll_connection(self, inner: InnerConsumer, now: float, *, connected: bool) -> bool:
        """Send again what a disconnection may have lost; return True if chunked messages must be requested."""
        has_pending = bool(len(self.inbox) or self.collector.pending)
        delivery = self._delivery
        result = None if self._answer is None else self._answer.result
        report, probes = delivery.poll(now, connected=connected, has_pending=has_pending, result=result)
        if not delivery.proof.is_asking:
            self._answer = None
        if probes:
            try:
                self._answer = self._context.senders.answer_to(inner.get_last_message_id_async)
            except BaseException:
                delivery.proof.is_asking = False
                raise
        if connected:
            self._resend(inner, now)
        if report.is_doubtful:
            self._redelivered.expect(self._delivery.watch.since if connected else -math.inf)
        idle = self._is_shared and now - self._last_sent > WATCH_SECONDS
        return self.collector.may_have_chunks and (
            report.must_request_chunks or (report.must_request_chunks_again and idle)
        )

    def _resend(self, inner: InnerConsumer, now: float) -> None:
        for topic, lost, ids in self._delivery.lost(now):
            topic.sender.send(inner, lost, ids, self.check_connection)

    def _request_chunks(self, native: InnerConsumer) -> None:
        """Replace the native consumer: it holds an incomplete chunked message, and rejects its first chunk."""
        if not self.closed:
            with contextlib.suppress(pulsar.PulsarException):  # repeated after the next reconnection or receive
                self._order.replace(lambda: self.inner is native)  # a seek may have replaced it already
