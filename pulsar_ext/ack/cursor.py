"""Check the broker's cursors: where runs begin, and whether a cursor was moved back after a reconnection.

The list of a subscription's consumers shows whether the broker has closed them on an open connection. Both come from
the admin API, on the thread for inquiries. `delivery.py` decides what follows from them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pulsar

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.admin import InternalStats
from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.receive.order import OutdatedError, ReceiveOrder, Transition, raise_unless

from .delivery import ARRIVAL_SECONDS, CHECK_SECONDS, RETRY_SECONDS, Delivery
from .groups import Entry
from .topics import TopicAcks

_log = logging.getLogger("pulsar_ext.acks")

_DEADLINE_SECONDS = 1.0
"""Timeout of a request: the thread waits that long, and serves other consumers too."""
_CHECKS = 3
"""Number of checks that must find the cursor before an acknowledged position until this counts as a reset."""


class CursorMonitor:
    """Check the cursors of one consumer on the thread for inquiries, without blocking acknowledgements."""

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        subscription: str,
        delivery: Delivery[TopicAcks],
        lock: AbstractContextManager[object],
        forget: Callable[[TopicAcks], None],
    ) -> None:
        self._context, self._order, self._subscription = context, order, subscription
        self._delivery, self._topics, self._lock, self._forget = delivery, delivery.topics, lock, forget
        self._replacements = 0
        self._checking = self._closed = False

    def native_replaced(self) -> None:
        """Ignore a check that began before: another native consumer replaces this one. The lock is held."""
        self._replacements += 1

    def check_if_needed(self, now: float) -> None:
        """Check the broker's cursors if needed; the lock is held."""
        if not self._checking and (
            self._delivery.is_cursor_check_due(now)
            or any(_needs_base(topic, now) or topic.needs_sessions(now) for topic in self._topics)
        ):
            self._checking = True
            self._context.inquiries.watch(self)

    def tick(self, now: float) -> None:
        """Check the broker's cursors, for runs and after a reconnection; called by the scheduler."""
        try:
            self._check_sessions(now)
            with self._lock:
                due = self._delivery.is_cursor_check_due(now)
                if due:
                    self._delivery.cursor_check_at = None
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
            topic.checked_at = now + RETRY_SECONDS
            if must_show:
                self._delivery.cursor_check_at = now + CHECK_SECONDS
            return False
        topic.lag_count = topic.lag_count + 1 if self._update_tracker(topic, era, stats, must_show=must_show) else 0
        if topic.lag_count >= _CHECKS:
            topic.lag_count = 0
            self._handle_reset(topic, era, stats.cursors[self._subscription].mark_delete_position)
        elif topic.lag_count:
            self._delivery.cursor_check_at = (
                time.monotonic() + ARRIVAL_SECONDS
            )  # resent acknowledgements may be in flight
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
                topic.update_sessions(sessions, now, moved_back=mark is not None)
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


def is_reopened_on_same_connection(before: frozenset[tuple[str, str]], after: frozenset[tuple[str, str]]) -> bool:
    """Return True if a consumer, given by address and start time, was reopened on the same connection."""
    return not before <= after and {address for address, _ in before} <= {address for address, _ in after}


def _needs_base(topic: TopicAcks, now: float) -> bool:
    return topic.tracker.needs_base and now - topic.checked_at > CHECK_SECONDS


def _entries(after: Position, last: Position) -> list[Entry]:
    """Return the entries of a range, as far as its own bounds show them."""
    first = after.entry_id + 1 if after.ledger_id == last.ledger_id else 0
    return [(last.ledger_id, entry) for entry in range(first, last.entry_id + 1)]
