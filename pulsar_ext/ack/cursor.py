"""Detect whether acknowledgements have arrived at the broker, and resend those that may be lost.

A connection may be dead for a minute before the C++ client notices, and everything sent on it is lost. A broker serves
a connection in order: once it has answered a request, everything sent before that request has arrived.

The C++ client reports a connection before the broker has loaded the topic and knows the consumer again. The broker
silently drops acknowledgements that arrive before that, and rejects requests. An answered request was therefore sent
when the broker knew the consumer.

The broker is probed as soon as the connection may have changed. When it answers, what was sent before the request is
resent, and what is sent from then on arrives. A consumer of several topics or partitions cannot be probed; it resends
at fixed times instead. The broker's cursor shows where runs begin, and whether it was moved back after a reconnection.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Final

import pulsar

from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.receive.order import OutdatedError, Transition, raise_unless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.messages import InnerConsumer
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats
    from pulsar_ext.receive.order import ReceiveOrder

    from .delivery import ConnectionReport, ConnectionWatch, SentAcks
    from .groups import Entry
    from .topics import AcksByTopic, TopicAcks


_log = logging.getLogger("pulsar_ext.acks")

_CHECK_SECONDS = 2.0
_DEADLINE_SECONDS = 1.0
"""The thread waits that long, and serves other consumers too."""
_RETRY_SECONDS = 30.0
_ARRIVAL_SECONDS = 0.6
_RETURN_SECONDS = 2.0
"""Longest time that the broker takes to list a consumer again that it has closed."""
_HELD_CHECK_SECONDS = 0.2
_CHECKS = 3
"""Number of checks that must find the cursor before an acknowledged position until this counts as a reset."""


class CursorMonitor:
    """Check the cursors of one consumer on the thread for inquiries, without blocking acknowledgements."""

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        subscription: str,
        topics: AcksByTopic,
        lock: AbstractContextManager[object],
        forget: Callable[[TopicAcks], None],
    ) -> None:
        self._context, self._order, self._subscription = context, order, subscription
        self._topics, self._lock, self._forget = topics, lock, forget
        self._check_at: float | None = None
        self._replacements = 0
        self._checking = self._closed = False

    def native_replaced(self) -> None:
        """Drop the list of consumers: another native consumer replaces this one. The lock is held."""
        self._replacements += 1
        for topic in self._topics:
            topic.sessions, topic.is_held = None, False

    def schedule_check(self, sent: float) -> None:
        """Check the cursors when acknowledgements resent at `sent`, in `time.monotonic()` seconds, have arrived.

        The lock is held.
        """
        self._check_at = sent + _ARRIVAL_SECONDS
        for topic in self._topics:
            topic.expected_mark = topic.highest_sent  # what is sent from now on may be in flight at every check

    def check_if_needed(self, now: float) -> None:
        """Check the broker's cursors if needed; the lock is held."""
        if not self._checking and (
            self._is_check_due(now)
            or any(_needs_base(topic, now) or topic.needs_sessions(now) for topic in self._topics)
        ):
            self._checking = True
            self._context.inquiries.watch(self)

    def tick(self, now: float) -> None:
        """Check the broker's cursors, for runs and after a reconnection; called by the scheduler."""
        try:
            self._check_sessions(now)
            with self._lock:
                due = self._is_check_due(now)
                if due:
                    self._check_at = None
                topics = [
                    (topic, must_show)
                    for topic in self._topics
                    if (must_show := due and topic.expected_mark is not None) or _needs_base(topic, now)
                ]
            for topic, must_show in topics:
                if self._closed or not self._check_cursor(topic, now, must_show=must_show):
                    break
        finally:
            self._checking = False

    def close(self) -> None:
        """Stop checking."""
        self._closed = True

    def _check_cursor(self, topic: TopicAcks, now: float, *, must_show: bool) -> bool:
        """Check one cursor, and restart from it if it was moved back before acknowledged positions."""
        topic.checked_at, era = now, topic.tracker.era
        try:
            stats = self._context.admin_api().within(_DEADLINE_SECONDS).internal_stats(topic.topic)
        except PulsarExtError:  # without the admin API entries are acknowledged one by one
            topic.checked_at = now + _RETRY_SECONDS
            if must_show:
                self._check_at = now + _CHECK_SECONDS
            return False
        topic.lag_count = topic.lag_count + 1 if self._update_tracker(topic, era, stats, must_show=must_show) else 0
        if topic.lag_count >= _CHECKS:
            topic.lag_count = 0
            self._handle_reset(topic, era, stats.cursors[self._subscription].mark_delete_position)
        elif topic.lag_count:
            self._check_at = time.monotonic() + _ARRIVAL_SECONDS  # resent acknowledgements may be in flight
        return True

    def _check_sessions(self, now: float) -> None:
        """Detect consumers that the broker has closed on an open connection, and restart from cursors moved back.

        The broker closes consumers when an operator moves the cursor, and when the topic moves to another broker. What
        was sent before has arrived then, so a cursor before that was moved back. After a lost connection, or without
        the admin API, acknowledgements are resent, unless resending is blocked and the subscription has no backlog.
        """
        with self._lock:
            topics = [topic for topic in self._topics if topic.needs_sessions(now)]
        is_answering = True
        for topic in topics:
            before, era, replacements, mark = topic.sessions, topic.tracker.era, self._replacements, None
            sessions: frozenset[tuple[str, str]] | None = None
            began, blocked, arrived = time.monotonic(), topic.is_screening(now), False
            try:
                if is_answering:
                    admin = self._context.admin_api().within(_DEADLINE_SECONDS)
                    stats = admin.stats(topic.topic, precise_backlog=blocked)
                    known = stats.subscriptions.get(self._subscription)
                    sessions = frozenset() if known is None else known.sessions
                    arrived = blocked and known is not None and not known.backlog_entries
                    if before is not None and is_reopened_on_same_connection(before, sessions):
                        mark = self._mark_before(topic.highest_sent, admin.internal_stats(topic.topic))
            except PulsarExtError:
                is_answering, sessions = False, None
            with self._lock:
                if replacements != self._replacements:
                    continue
                _update_sessions(topic, sessions, now, moved_back=mark is not None)
                if sessions is not None:
                    topic.set_checked(began, arrived=arrived)
            if mark is not None:
                self._handle_reset(topic, era, mark)

    def _mark_before(self, position: Entry | None, stats: InternalStats) -> Position | None:
        """Return the mark-delete position if it is before an acknowledged position; None otherwise."""
        info = stats.cursors.get(self._subscription)
        if info is None or position is None:
            return None
        mark = info.mark_delete_position
        return mark if Ledgers(stats.ledger_sizes()).between(mark, Position(*position)) > 0 else None

    def _update_tracker(self, topic: TopicAcks, era: int, stats: InternalStats, *, must_show: bool) -> bool:
        """Pass the cursor to the tracker; return True if it is before the position that it must show."""
        info = stats.cursors.get(self._subscription)
        if info is None:
            return False
        mark = info.mark_delete_position
        ledgers = Ledgers(stats.ledger_sizes())
        with self._lock:
            if topic.tracker.era != era:  # a seek has moved the cursor during the check
                return False
            if must_show and self._mark_before(topic.expected_mark, stats) is not None:
                return True
            following = ledgers.next(mark)
            topic.tracker.set_cursor(
                (mark.ledger_id, mark.entry_id),
                None if following is None else (following.ledger_id, following.entry_id),
                [
                    (ledger_id, entry)
                    for one in info.individually_deleted
                    for ledger_id, entry in _entries(one.after, one.last)
                ],
            )
        return False

    def _handle_reset(self, topic: TopicAcks, era: int, mark: Position) -> None:
        """Restart from a cursor that was moved back.

        The broker lost a position when it was killed, or an operator moved the cursor back. The C++ client drops
        messages redelivered from there as acknowledged; a new native consumer does not.
        """
        with (
            contextlib.suppress(pulsar.PulsarException, OutdatedError),
            self._order.run_transition(Transition.CURSOR_RESET, lambda: raise_unless(lambda: topic.tracker.era == era)),
        ):
            _log.warning(
                "The cursor of %s on %s moved back to %s, before acknowledged messages: these are redelivered.",
                self._subscription,
                topic.topic,
                mark,
            )
            self._forget(topic)
        topic.is_held = False

    def _is_check_due(self, now: float) -> bool:
        return self._check_at is not None and now >= self._check_at


def is_reopened_on_same_connection(before: frozenset[tuple[str, str]], after: frozenset[tuple[str, str]]) -> bool:
    """Return True if a consumer, given by address and start time, was reopened on the same connection."""
    return not before <= after and {address for address, _ in before} <= {address for address, _ in after}


def _update_sessions(
    topic: TopicAcks, sessions: frozenset[tuple[str, str]] | None, now: float, *, moved_back: bool
) -> None:
    """Store the listed consumers, and stop holding back unless a missing consumer may be about to return."""
    if sessions is None:  # continue as after a lost connection; the last known list stays
        topic.is_held, topic.sessions_due = False, now + _RETRY_SECONDS
        return
    is_missing = len(sessions) < max(1, len(topic.sessions or ()))
    if is_missing:
        topic.sessions_due = now + (_HELD_CHECK_SECONDS if topic.is_held else _CHECK_SECONDS)
    if not is_missing or moved_back or now > topic.held_since + _RETURN_SECONDS:
        topic.sessions, topic.is_held = sessions or topic.sessions, moved_back


def _needs_base(topic: TopicAcks, now: float) -> bool:
    return topic.tracker.needs_base and now - topic.checked_at > _CHECK_SECONDS


def _entries(after: Position, last: Position) -> list[Entry]:
    """Return the entries of a range, as far as its own bounds show them."""
    first = after.entry_id + 1 if after.ledger_id == last.ledger_id else 0
    return [(last.ledger_id, entry) for entry in range(first, last.entry_id + 1)]


_PROBE_SECONDS: Final = 1.0
_PROBE_BUSY_SECONDS: Final = 0.25
"""Probe interval with many unconfirmed acknowledgements: all of them are resent after a lost connection."""
_MANY: Final = 1_000
_ANSWER_SECONDS: Final = 0.5
"""Interval at which an outstanding answer is checked."""
_GROUPED_SECONDS: Final = 0.5
"""Longest time that the C++ client keeps an acknowledgement: it sends them every 100 ms."""
_NOTICED_SECONDS: Final = 65.0
"""Time after which the C++ client has noticed a dead connection: it sends a ping every 30 seconds."""
_PROBE_RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)
"""Probe intervals while the broker does not know the consumer yet; the C++ client logs each failure."""
_UNSUPPORTED: Final = (pulsar.Result.OperationNotSupported, pulsar.Result.UnsupportedVersionError)


class ArrivalProof:
    """Prove by requests that acknowledgements of one consumer have arrived. Times are in `time.monotonic()` seconds."""

    def __init__(self, begin: Callable[[Callable[[Answer], object]], Answer], *, can_ask: bool = True) -> None:
        self._begin = begin
        self._answer: Answer | None = None
        self._asked_at = self._proven_until = self._earliest = -math.inf
        self._failures = 0
        self.can_ask = can_ask
        """False for a consumer of several topics or partitions, and of a non-persistent topic, whose request fails."""
        self.known_since: float | None = None
        """Time of the first answered request since the last doubt; the broker has known the consumer since."""

    def doubt(self, earliest: float) -> None:
        """Ignore a request in flight, and send none before `earliest`: the connection may have been replaced."""
        self._answer = self.known_since = None
        self._failures, self._earliest = 0, earliest

    def poll(self, inner: InnerConsumer, now: float, sent: Sequence[SentAcks], *, is_stable: bool) -> float:
        """Send a request, or read its answer."""
        result = None if self._answer is None else self._answer.result
        if result is not None:
            self._answer = None
            if result == pulsar.Result.Ok:
                self.known_since, self._failures = self._asked_at, 0
                if is_stable:
                    self._proven_until = self._asked_at - _GROUPED_SECONDS
            else:
                self._failures += 1
            self.can_ask = result not in _UNSUPPORTED
        elif self._answer is None and self.can_ask and now >= self._next(sent, is_stable=is_stable):
            self._asked_at, self._answer = now, self._begin(inner.get_last_message_id_async)
        return max(self._proven_until, now - _NOTICED_SECONDS)

    def due(self, now: float, sent: Sequence[SentAcks], *, is_stable: bool) -> float:
        """Return the time of the next call of `poll()`, with the same arguments."""
        if self._answer is not None:
            return now + _ANSWER_SECONDS if is_stable else now
        return self._next(sent, is_stable=is_stable) if self.can_ask else now + _NOTICED_SECONDS

    def _next(self, sent: Sequence[SentAcks], *, is_stable: bool) -> float:
        """Return the time of the next request."""
        if is_stable and sent:
            pause = _PROBE_SECONDS if sum(map(len, sent)) < _MANY else _PROBE_BUSY_SECONDS
            return max(self._asked_at + pause, min(one.oldest for one in sent) + _GROUPED_SECONDS)
        if not self._failures:
            return self._earliest
        return self._asked_at + _PROBE_RETRY_SECONDS[min(self._failures, len(_PROBE_RETRY_SECONDS)) - 1]


_KNOWN_SECONDS: Final = 0.1
"""Time after a lost connection within which the broker usually knows the consumer again."""


class Resender:
    """Resend the acknowledgements of one consumer. The lock is held; times are in `time.monotonic()` seconds."""

    def __init__(
        self,
        watch: ConnectionWatch,
        proof: ArrivalProof,
        topics: AcksByTopic,
        monitor: CursorMonitor,
        check_connection: Callable[[], None],
    ) -> None:
        self._watch, self._proof, self._topics, self._monitor, self._check_connection = (
            watch,
            proof,
            topics,
            monitor,
            check_connection,
        )
        self._check_at: float | None = None
        """Time of the cursor check if the consumer turns out not to support probing; None without a check."""

    def poll(self, inner: InnerConsumer, now: float, *, connected: bool, has_pending: bool) -> ConnectionReport:
        """Poll the connection, and resend acknowledgements that it may have lost."""
        report = self._watch.poll(now, connected=connected, can_ask=self._proof.can_ask)
        if report.is_doubtful:
            self._proof.doubt(now + _KNOWN_SECONDS if report.is_reconnected or not connected else now)
        if report.arrives_by is not None:  # the connection is, or may be, another one
            for topic in self._topics:
                topic.hold(now)
                if report.is_reconnected:
                    topic.block_resend(now)
            self._check_at = report.arrives_by if self._proof.can_ask else None
            self._monitor.schedule_check(report.arrives_by if self._check_at is None else math.inf)
        if report.must_resend:
            self._mark_for_resend(math.inf)
        if connected:
            self._probe(inner, now, has_pending=has_pending)
            self._resend(inner, now)
        return report

    def due(self, now: float) -> float:
        """Return the time of the next poll if the connection does not change."""
        stable, sent = self._watch.is_stable, self._sent
        needs_answer = sent or (self._check_at is not None and not stable)
        return min(self._watch.due, self._proof.due(now, sent, is_stable=stable) if needs_answer else math.inf)

    def end(self, inner: InnerConsumer, now: float) -> None:
        """Resend acknowledgements without the broker's answer: the native consumer is being closed."""
        if not self._watch.is_stable:
            self._mark_for_resend(math.inf)
            self._resend(inner, now)

    @property
    def _sent(self) -> list[SentAcks]:
        return [topic.sent for topic in self._topics if topic.sent]

    def _probe(self, inner: InnerConsumer, now: float, *, has_pending: bool) -> None:
        """Probe the broker, or read its answer, and drop acknowledgements that have arrived."""
        stable, sent = self._watch.is_stable, self._sent
        if not sent and (stable or not (has_pending or self._check_at is not None)):
            return
        arrived = self._proof.poll(inner, now, sent, is_stable=stable)
        if not stable and self._proof.known_since is not None:
            self._watch.mark_stable()
            self._mark_for_resend(self._proof.known_since)
        elif not self._proof.can_ask and self._check_at is not None:  # the last answer showed it
            self._monitor.schedule_check(self._check_at)
            self._check_at = None
        if self._watch.is_stable:
            for topic in self._topics:
                if topic.resend_window is None:
                    topic.sent.expire(arrived)

    def _mark_for_resend(self, before: float) -> None:
        """Mark the acknowledgements sent before a time that may be lost for resending."""
        for topic in self._topics:
            since, until = topic.resend_window or (self._watch.since, before)
            topic.resend_window = min(since, self._watch.since), max(until, before)

    def _resend(self, inner: InnerConsumer, now: float) -> None:
        """Resend marked acknowledgements, and schedule the check of the cursors after the last one."""
        for topic in self._topics:
            topic.resend_lost(inner, now, self._check_connection)
        done = self._watch.is_stable and all(topic.resend_window is None for topic in self._topics)
        if done and self._check_at is not None:
            self._monitor.schedule_check(now)
            self._check_at = None
