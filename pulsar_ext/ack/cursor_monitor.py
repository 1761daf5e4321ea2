"""Looking at the broker's cursor: to begin runs there, and to notice after a reconnection that it went back."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.receive.order import OutdatedError, Transition, refuse_unless

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats
    from pulsar_ext.receive.order import ReceiveOrder

    from .leaving import Entry
    from .topic_acks import AcksByTopic, TopicAcks

__all__ = ["CursorMonitor", "is_closed_on_its_connection"]

_log = logging.getLogger("pulsar_ext.acks")

_LOOK_SECONDS = 2.0
_LOOK_DEADLINE_SECONDS = 1.0
"""The thread waits for it, and has other consumers to look after."""
_LOOK_AGAIN_SECONDS = 30.0
_SETTLE_SECONDS = 0.6
_RETURN_SECONDS = 2.0
"""How long the broker may take until it lists a consumer again that it has closed."""
_RETURN_LOOK_SECONDS = 0.2
_LOOKS = 3
"""How often a cursor is seen behind what was acknowledged before that is believed."""


class CursorMonitor:
    """Looks at the cursors of one consumer, on the thread of inquiries: acknowledgements go on meanwhile.

    Args:
        context: asks the admin API.
        order: of the consumer's messages.
        subscription: whose cursors.
        topics: what is acknowledged.
        lock: guards it.
        forget: forgets what was acknowledged on a topic.
    """

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        subscription: str,
        topics: AcksByTopic,
        lock: AbstractContextManager[Any],
        forget: Callable[[TopicAcks], None],
    ) -> None:
        self._context, self._order, self._subscription = context, order, subscription
        self._topics, self._lock, self._forget = topics, lock, forget
        self._settles: float | None = None
        self._renewals = 0
        self._looks = self._closed = False

    def renew(self) -> None:
        """Forget who the broker listed: another C++ consumer takes the place of the old one. The lock is held."""
        self._renewals += 1
        for topic in self._topics:
            topic.sessions, topic.is_held = None, False

    def look_after(self, sent: float) -> None:
        """Look when what is sent again at a time should show, in seconds of `time.monotonic()`; the lock is held."""
        self._settles = sent + _SETTLE_SECONDS
        for topic in self._topics:
            topic.expected = topic.reached  # what leaves from now on may be on its way whenever somebody looks

    def look_if_needed(self, now: float) -> None:
        """Have the broker's cursors looked at where that is needed; the lock is held."""
        if not self._looks and (
            self._is_settled(now) or any(_wants_base(topic, now) or topic.wants_sessions(now) for topic in self._topics)
        ):
            self._looks = True
            self._context.inquiries.watch(self)

    def tick(self, now: float) -> None:
        """Look at the broker's cursors: to begin runs, and after a reconnection; the scheduler's call."""
        try:
            self._look_at_sessions(now)
            with self._lock:
                settled = self._is_settled(now)
                if settled:
                    self._settles = None
                topics = [
                    (topic, behind)
                    for topic in self._topics
                    if (behind := settled and topic.expected is not None) or _wants_base(topic, now)
                ]
            for topic, behind in topics:
                if self._closed or not self._look(topic, now, behind=behind):
                    break
        finally:
            self._looks = False

    def close(self) -> None:
        """Look no more."""
        self._closed = True

    def _look(self, topic: TopicAcks, now: float, *, behind: bool) -> bool:
        """Look at one cursor, and follow it if it was moved back before what was acknowledged.

        Args:
            topic: whose.
            now: the time.
            behind: whether it should show by now what was sent again.

        Returns:
            Whether the admin API answered.
        """
        topic.looked, era = now, topic.tracker.era
        try:
            stats = self._context.admin_api().within(_LOOK_DEADLINE_SECONDS).internal_stats(topic.topic)
        except PulsarExtError:  # no admin API answers: everything still leaves, one by one
            topic.looked = now + _LOOK_AGAIN_SECONDS
            if behind:
                self._settles = now + _LOOK_SECONDS
            return False
        topic.behind = topic.behind + 1 if self._learn(topic, era, stats, behind=behind) else 0
        if topic.behind >= _LOOKS:
            topic.behind = 0
            self._follow(topic, era, stats.cursors[self._subscription].mark_delete_position)
        elif topic.behind:
            self._settles = time.monotonic() + _SETTLE_SECONDS  # what was sent again may be on its way
        return True

    def _look_at_sessions(self, now: float) -> None:
        """Look whether the broker closed consumers on a connection that it kept, and follow cursors that went back.

        It does that as an operator moves the cursor, and as the topic moves to another broker. What had left before has
        arrived then, and a cursor before that was moved back. A connection that was lost may have lost it: it is sent
        again, unless that is in doubt and the subscription has no backlog. So it is where no admin API answers.
        """
        with self._lock:
            topics = [topic for topic in self._topics if topic.wants_sessions(now)]
        answers = True
        for topic in topics:
            before, era, renewals, mark = topic.sessions, topic.tracker.era, self._renewals, None
            sessions: frozenset[tuple[str, str]] | None = None
            began, doubted, arrived = time.monotonic(), topic.is_doubted(now), False
            try:
                if answers:
                    admin = self._context.admin_api().within(_LOOK_DEADLINE_SECONDS)
                    stats = admin.stats(topic.topic, precise_backlog=doubted)
                    known = stats.subscriptions.get(self._subscription)
                    sessions = frozenset() if known is None else known.sessions
                    arrived = doubted and known is not None and not known.backlog_entries
                    if before is not None and is_closed_on_its_connection(before, sessions):
                        mark = self._mark_before(topic.reached, admin.internal_stats(topic.topic))
            except PulsarExtError:
                answers, sessions = False, None
            with self._lock:
                if renewals != self._renewals:
                    continue
                _take_sessions(topic, sessions, now, goes_back=mark is not None)
                if sessions is not None:
                    topic.looked_at(began, arrived=arrived)
            if mark is not None:
                self._follow(topic, era, mark)

    def _mark_before(self, position: Entry | None, stats: InternalStats) -> Position | None:
        """Give where the cursor is if that is before a position that was acknowledged."""
        info = stats.cursors.get(self._subscription)
        if info is None or position is None:
            return None
        mark = info.mark_delete_position
        return mark if Ledgers(stats.ledger_sizes()).between(mark, Position(*position)) > 0 else None

    def _learn(self, topic: TopicAcks, era: int, stats: InternalStats, *, behind: bool) -> bool:
        """Tell the tracker where the cursor is; True if it is before what it should show."""
        info = stats.cursors.get(self._subscription)
        if info is None:
            return False
        mark = info.mark_delete_position
        ledgers = Ledgers(stats.ledger_sizes())
        with self._lock:
            if topic.tracker.era != era:  # a seek came between: that was another cursor
                return False
            if behind and self._mark_before(topic.expected, stats) is not None:
                return True
            following = ledgers.next(mark)
            topic.tracker.looked(
                (mark.ledger_id, mark.entry_id),
                None if following is None else (following.ledger_id, following.entry_id),
                [
                    (ledger_id, entry)
                    for one in info.individually_deleted
                    for ledger_id, entry in _entries(one.after, one.last)
                ],
            )
        return False

    def _follow(self, topic: TopicAcks, era: int, mark: Position) -> None:
        """Take up again where the broker's cursor is, which was moved back.

        The broker lost a position when it was killed, or an operator moved the cursor back. The C++ client drops what
        is redelivered from there, as acknowledged earlier; another C++ consumer does not.
        """
        with (
            contextlib.suppress(pulsar.PulsarException, OutdatedError),
            self._order.passing(Transition.CURSOR_RESET, lambda: refuse_unless(lambda: topic.tracker.era == era)),
        ):
            _log.warning(
                "The cursor of %s on %s went back to %s, before what was acknowledged: its messages are delivered "
                "again.",
                self._subscription,
                topic.topic,
                mark,
            )
            self._forget(topic)
        topic.is_held = False

    def _is_settled(self, now: float) -> bool:
        return self._settles is not None and now >= self._settles


def is_closed_on_its_connection(before: frozenset[tuple[str, str]], after: frozenset[tuple[str, str]]) -> bool:
    """Whether a consumer is another one on the same connection.

    Args:
        before: the consumers of a subscription, by address and beginning.
        after: those of a later time.
    """
    return not before <= after and {address for address, _ in before} <= {address for address, _ in after}


def _take_sessions(
    topic: TopicAcks, sessions: frozenset[tuple[str, str]] | None, now: float, *, goes_back: bool
) -> None:
    """Keep who is listed, and let leave what is held, unless a consumer is missing that may be about to come back."""
    if sessions is None:  # it goes on as behind a lost connection; whom to compare with stays known
        topic.is_held, topic.sessions_due = False, now + _LOOK_AGAIN_SECONDS
        return
    misses = len(sessions) < max(1, len(topic.sessions or ()))
    if misses:
        topic.sessions_due = now + (_RETURN_LOOK_SECONDS if topic.is_held else _LOOK_SECONDS)
    if not misses or goes_back or now > topic.held_since + _RETURN_SECONDS:
        topic.sessions, topic.is_held = sessions or topic.sessions, goes_back


def _wants_base(topic: TopicAcks, now: float) -> bool:
    return topic.tracker.wants_base and now - topic.looked > _LOOK_SECONDS


def _entries(after: Position, last: Position) -> list[Entry]:
    """Give the entries of a range, as far as its own bounds tell them."""
    first = after.entry_id + 1 if after.ledger_id == last.ledger_id else 0
    return [(last.ledger_id, entry) for entry in range(first, last.entry_id + 1)]
