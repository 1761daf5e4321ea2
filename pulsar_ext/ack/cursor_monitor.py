"""Looking at the broker's cursor: to begin runs there, and to notice after a reconnection that it went back."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.receive.order import Transition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats
    from pulsar_ext.receive.order import ReceiveOrder

    from .leaving import Entry
    from .topic_acks import TopicAcks

__all__ = ["CursorMonitor", "follow_cursor", "is_closed_on_its_connection"]

_log = logging.getLogger("pulsar_ext.acks")

_LOOK_SECONDS = 2.0
_LOOK_DEADLINE_SECONDS = 1.0
"""The scheduler's thread waits for it, and has other consumers to look after."""
_LOOK_AGAIN_SECONDS = 30.0
_SETTLE_SECONDS = 0.6
_LOOKS = 3
"""How often a cursor is seen behind what was acknowledged before that is believed."""


class CursorMonitor:
    """Looks at the cursors of one consumer.

    Args:
        context: asks the admin API.
        subscription: whose cursors.
        lock: guards what is acknowledged.
    """

    def __init__(self, context: ClientContext, subscription: str, lock: AbstractContextManager[Any]) -> None:
        self._context, self._subscription, self._lock = context, subscription, lock
        self._settles: float | None = None
        self._renewals = 0

    def look_after(self, sent: float) -> None:
        """Look when what is sent again at a time should show, in seconds of `time.monotonic()`."""
        self._settles = sent + _SETTLE_SECONDS

    def renew(self, topics: Iterable[TopicAcks]) -> None:
        """Forget who the broker listed: another C++ consumer takes the place of the old one. The lock is held."""
        self._renewals += 1
        for topic in topics:
            topic.sessions, topic.is_held = None, False

    def look(self, now: float, topics: Iterable[TopicAcks]) -> list[tuple[TopicAcks, Position]]:
        """Look at the broker's cursors where that is needed: to begin runs, and after a reconnection.

        Returns:
            The topics whose cursor was moved back before what was acknowledged, and where it is.
        """
        settled = self._settles is not None and now >= self._settles
        if settled:
            self._settles = None
        gone_back = []
        for topic in topics:
            if (mark := self._look_at_sessions(topic)) is not None:
                gone_back.append((topic, mark))
                continue
            behind = settled and topic.reached is not None
            if not behind and not (topic.tracker.wants_base and now - topic.looked > _LOOK_SECONDS):
                continue
            topic.looked = now
            try:
                stats = self._context.admin_api().within(_LOOK_DEADLINE_SECONDS).internal_stats(topic.topic)
            except PulsarExtError:  # no admin API answers: everything still leaves, one by one
                topic.looked = now + _LOOK_AGAIN_SECONDS
                if behind:
                    self._settles = now + _LOOK_SECONDS
                break
            topic.behind = topic.behind + 1 if self._learn(topic, stats, behind=behind) else 0
            if not topic.behind:
                continue
            if topic.behind < _LOOKS:
                self._settles = now + _SETTLE_SECONDS  # what was sent again may be on its way
            else:
                topic.behind = 0
                gone_back.append((topic, stats.cursors[self._subscription].mark_delete_position))
        return gone_back

    def _look_at_sessions(self, topic: TopicAcks) -> Position | None:
        """Look whether the broker closed a consumer on a connection that it kept, and where its cursor is.

        It does that as an operator moves the cursor, and as the topic moves to another broker. What had left before has
        arrived then, and a cursor before that was moved back. A connection that was lost may have lost it: it is sent
        again.

        Returns:
            Where the cursor is, if it was moved back; nothing leaves until that is forgotten.
        """
        before, renewals = topic.sessions, self._renewals
        if not topic.is_held and (topic.reached is None or before is not None):
            return None
        mark = None
        admin = self._context.admin_api().within(_LOOK_DEADLINE_SECONDS)
        try:
            known = admin.stats(topic.topic).subscriptions.get(self._subscription)
            sessions = frozenset() if known is None else known.sessions
            if topic.is_held and before and is_closed_on_its_connection(before, sessions):
                mark = self._mark_before(topic, admin.internal_stats(topic.topic))
        except PulsarExtError:  # no admin API answers: everything is sent again
            sessions = frozenset()
        with self._lock:
            if renewals != self._renewals:
                return None
            topic.sessions, topic.is_held = sessions, mark is not None
        return mark

    def _mark_before(self, topic: TopicAcks, stats: InternalStats) -> Position | None:
        """Give where the cursor is if that is before what was acknowledged."""
        info = stats.cursors.get(self._subscription)
        if info is None or topic.reached is None:
            return None
        mark = info.mark_delete_position
        return mark if Ledgers(stats.ledger_sizes()).between(mark, Position(*topic.reached)) > 0 else None

    def _learn(self, topic: TopicAcks, stats: InternalStats, *, behind: bool) -> bool:
        """Tell the tracker where the cursor is; True if it is before what was acknowledged."""
        info = stats.cursors.get(self._subscription)
        if info is None:
            return False
        mark = info.mark_delete_position
        ledgers = Ledgers(stats.ledger_sizes())
        with self._lock:
            if behind and self._mark_before(topic, stats) is not None:
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


def is_closed_on_its_connection(before: frozenset[tuple[str, str]], after: frozenset[tuple[str, str]]) -> bool:
    """Whether a consumer is another one on the same connection.

    Args:
        before: the consumers of a subscription, by address and beginning.
        after: those of a later time.
    """
    return not before <= after and {address for address, _ in before} <= {address for address, _ in after}


def follow_cursor(order: ReceiveOrder, topic: TopicAcks, mark: Position, forget: Callable[[], None], name: str) -> None:
    """Take up again where the broker's cursor is, which was moved back.

    The broker lost a position when it was killed, or an operator moved the cursor back. The C++ client drops what
    is redelivered from there, as acknowledged earlier; another C++ consumer does not.

    Args:
        order: of the consumer's messages.
        topic: the topic or partition.
        mark: where the cursor is.
        forget: forgets what was acknowledged on the topic.
        name: of the subscription.
    """
    _log.warning(
        "The cursor of %s on %s went back to %s, before what was acknowledged: its messages are delivered again.",
        name,
        topic.topic,
        mark,
    )
    with contextlib.suppress(pulsar.PulsarException), order.passing(Transition.CURSOR_RESET):
        forget()


def _entries(after: Position, last: Position) -> list[Entry]:
    """Give the entries of a range, as far as its own bounds tell them."""
    first = after.entry_id + 1 if after.ledger_id == last.ledger_id else 0
    return [(last.ledger_id, entry) for entry in range(first, last.entry_id + 1)]
