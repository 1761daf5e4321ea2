"""Find messages that the broker delivers to no consumer by its statistics, and have them redelivered.

**On a Shared subscription** the broker remembers which consumer gets the remaining chunks of a message, even after that
consumer is closed. It never redispatches these chunks, or waits until that consumer has permits. The message is then
delivered to no consumer until all of them are closed, or the topic is unloaded. This happens, for example, when a
consumer is restarted while it receives a chunked message. A consumer of this library therefore polls the statistics
after it was opened. If entries are neither acknowledged nor held by any consumer, and nothing is delivered although all
have permits, its native consumer is replaced, and the broker starts again; see `ConsumerReopener.reopen_native()`. This
needs an admin API, and no other consumer on the subscription.

**On a Failover or an Exclusive subscription** messages go to the active consumer, and a read for the previous one may
be in flight when it takes over. After a broker was killed, the new consumer sometimes received nothing until another
one was opened or closed. A consumer that replaced another one therefore checks that it receives the backlog.

**Chunks that no consumer can receive**, of incomplete messages or messages written twice, are acknowledged first.
Java's consumers reassemble a message with some chunks written twice, and acknowledge the rest; those of the C++ client
drop all of it, and it stays in the backlog. So the cursor is polled if the consumer receives chunked messages. If it
does not move, the entries after it are read. Chunks that no consumer can receive are acknowledged. If they hid a whole
message, the native consumer is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pulsar

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.admin import InternalStats, PulsarAdmin, SubscriptionStats, TopicStats
from pulsar_ext.chunks.leftovers import Leftovers, count_concurrent_incomplete, find_leftovers
from pulsar_ext.errors import AdminNotAllowed, AdminNotFound, AdminUnauthorized, PulsarExtError
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.order import ReceiveOrder
from pulsar_ext.receive.seeks import Topics
from pulsar_ext.receive.watch import Watch

INACCESSIBLE: Final = (AdminNotFound, AdminUnauthorized)
"""Errors of the admin API for one of several topics that was deleted, or is not accessible; the others are checked."""
_ALIGNMENT_SECONDS: Final = 0.1


class ConsumerWatch(Watch):
    """Monitor a subscription of one consumer."""

    __slots__ = ("_acks", "_checks", "_subscription")

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Topics, subscription: str, acks: Acknowledger
    ) -> None:
        super().__init__(context, order, topics)
        self._subscription, self._acks = subscription, acks
        self._checks = 0

    def _check_in(self, seconds: float) -> None:
        """Check in `seconds`, aligned with other checks so that the thread wakes up once for all."""
        due = time.monotonic() + seconds
        self._context.inquiries.watch(self, seconds + -due % _ALIGNMENT_SECONDS)

    def _names(self) -> list[str]:
        """Return the persistent topics; for a pattern, those with acknowledgements."""
        if isinstance(self._topics, str):
            names = [self._topics]
        elif isinstance(self._topics, list):
            names = self._topics
        else:
            names = [one.topic for one in self._acks.collector.by_topic]
        return [name for name in names if TopicName.parse(name).is_persistent]


_log = logging.getLogger("pulsar_ext")

_CHECK_SECONDS: Final = (1.0, 1.0, 3.0, 10.0, 30.0)
"""Delays before each check after a consumer was opened."""
_SINGLE_CHECK_SECONDS: Final = (3.0, 3.0, 10.0, 30.0)
"""Delays with one active consumer: the broker waits a second before a new one of Failover receives messages."""
_SLOW_SECONDS: Final = 60.0
"""Delay before later checks, while a backlog is consumed or chunked messages are received."""
_MAX_ATTEMPTS: Final = 3


class StrandedWatch(ConsumerWatch):
    """Redeliver messages that the broker delivers to no consumer. The other arguments are those of `ConsumerWatch`."""

    _PATIENCE_SECONDS = 1.0
    __slots__ = ("_attempts", "_before", "_leftovers", "_only", "_seconds", "_warned")

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        topics: Topics,
        subscription: str,
        acks: Acknowledger,
        leftovers: LeftoverWatch,
        only: str | None = None,
    ) -> None:
        super().__init__(context, order, topics, subscription, acks)
        self._leftovers, self._only = leftovers, only
        self._seconds = _CHECK_SECONDS if only is None else _SINGLE_CHECK_SECONDS
        self._before: dict[str, SubscriptionStats] = {}
        self._attempts = 0
        self._warned = False

    def begin(self) -> None:
        """Check soon: the consumer was opened."""
        self._checks, self._before = 0, {}
        self._check_in(self._seconds[0])

    def on_reopen(self, *_: object) -> None:
        """Check soon: the native consumer was reopened."""
        self.begin()

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # only the broker's statistics count
        """Check the statistics; called by the scheduler."""
        if self._closed:
            return None
        try:
            after = self._statistics()
        except (PulsarExtError, pulsar.PulsarException):  # no admin API answers, or the topic is being unloaded
            return self._idle_delay
        # Only the statistics of subscriptions that are not idle are kept. They contain every consumer: a thousand
        # consumers would store the statistics of a thousand each.
        before, self._before = self._before, {topic: one for topic, one in after.items() if not is_idle(one)}
        stranded = [
            topic
            for topic, one in after.items()
            if topic in before and is_stranding(before[topic], one) and self._only in (None, one.active_consumer)
        ]
        if stranded:
            self._redeliver_stranded(stranded, after)
        elif all(map(is_idle, after.values())):
            self._attempts = 0
            return self._idle_delay
        self._checks += 1
        return self._seconds[self._checks] if self._checks < len(self._seconds) else _SLOW_SECONDS

    @property
    def _idle_delay(self) -> float | None:
        return _SLOW_SECONDS if self._acks.collector.has_chunks and self._only is None else None

    def _redeliver_stranded(self, stranded: list[str], known: dict[str, SubscriptionStats]) -> None:
        stranded = [topic for topic in stranded if not self._acknowledge_leftovers(topic)]
        if not stranded:
            return
        others = 0 if self._only else max(len(known[topic].consumers) for topic in stranded) - 1
        if others or self._attempts >= _MAX_ATTEMPTS:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "Messages of %s on %s are neither acknowledged nor held by a consumer, and the broker does not "
                    "deliver them; %s. Close all consumers of the subscription, or unload the topic "
                    "(pulsar-ext admin unload TOPIC).",
                    self._subscription,
                    ", ".join(stranded),
                    f"{others} other consumers prevent a restart" if others else "reopening the consumer did not help",
                )
            return
        self._attempts += 1
        _log.warning(
            "Messages of %s on %s were neither acknowledged nor held by a consumer, and the broker did not deliver "
            "them; reopening the consumer.",
            self._subscription,
            ", ".join(stranded),
        )
        with contextlib.suppress(pulsar.PulsarException):
            self._order.replace()

    def _acknowledge_leftovers(self, topic: str) -> bool:
        """Acknowledge chunks on a topic that no consumer can receive; return True if there were any."""
        try:
            return self._leftovers.acknowledge_useless(topic)
        except (PulsarExtError, pulsar.PulsarException):
            return False

    def _statistics(self) -> dict[str, SubscriptionStats]:
        """Return the statistics of the subscription by topic and partition, without topics on which it is idle."""
        found = {}
        for name in self._names():
            fetched: dict[str, TopicStats] = {}

            def query(name: str = name, fetched: dict[str, TopicStats] = fetched) -> frozenset[str]:
                fetched |= _statistics_of(self._admin(), name)
                return _idle(fetched)

            # Many consumers of a client are idle, and one answer is enough for all subscriptions of a topic.
            with contextlib.suppress(*INACCESSIBLE):
                if self._subscription not in self._context.recent.ask(("idle", name), query):
                    for topic, stats in (fetched or _statistics_of(self._admin(), name)).items():
                        if (known := stats.subscriptions.get(self._subscription)) is not None:
                            found[topic] = known
        return found


def _idle(statistics: dict[str, TopicStats]) -> frozenset[str]:
    """Return the subscriptions that are idle on a topic, or on all its partitions."""
    each = [
        {subscription: is_idle(one) for subscription, one in stats.subscriptions.items()}
        for stats in statistics.values()
    ]
    return frozenset(one for known in each for one in known if all(other.get(one, True) for other in each))


def _statistics_of(admin: PulsarAdmin, name: str) -> dict[str, TopicStats]:
    """Return the statistics of a topic, or of each of its partitions."""
    try:
        return {name: admin.stats(name, precise_backlog=True)}
    except AdminNotAllowed:  # the topic is partitioned
        parts = admin.partitioned_stats(name).partitions
        return {part: admin.stats(part, precise_backlog=True) for part in parts}


def is_idle(stats: SubscriptionStats) -> bool:
    """Return True if consumers may hold the whole backlog of a subscription."""
    return stats.backlog_entries <= stats.most_held


def is_stranding(before: SubscriptionStats, after: SubscriptionStats) -> bool:
    """Return True if the broker delivers the backlog of a subscription to no consumer."""
    if is_idle(before) or is_idle(after) or not after.consumers:
        return False
    if before.delayed_messages or after.delayed_messages:  # they may have become due in between
        return False
    return (
        after.takes_more and before.sessions == after.sessions and before.delivered_messages == after.delivered_messages
    )


_SOON_SECONDS: Final = 5.0
_SOON_CHECKS: Final = 3
"""Number of checks soon after the first chunked message or after the opening."""
_LATER_SECONDS: Final = 15.0
_REDELIVERY_SECONDS: Final = 15.0
"""Time that a dropped message may take from its redelivery to its acknowledgement."""


@dataclass
class _Known:
    """The findings on one topic while the cursor does not move."""

    mark: Position
    endless: frozenset[Position] = frozenset()
    acknowledged: set[Position] = field(default_factory=set)
    dropped: dict[Position, float] = field(default_factory=dict)
    """Messages that may have been dropped by their first chunks, with the times of their redeliveries."""
    counted: bool = False
    """True if the number of concurrent incomplete messages was counted."""


class LeftoverWatch(ConsumerWatch):
    """Acknowledge chunks that one consumer cannot receive; the arguments are those of `ConsumerWatch`."""

    _PATIENCE_SECONDS = 3.0
    __slots__ = ("_known", "max_pending_chunked", "redeliver")

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Topics, subscription: str, acks: Acknowledger
    ) -> None:
        super().__init__(context, order, topics, subscription, acks)
        self.max_pending_chunked = 0
        """Maximum number of incomplete messages of the native consumer; 0 without a limit."""
        self.redeliver: Callable[[str, list[Position]], None] = lambda *_: None
        """Redelivers entries of a topic."""
        self._known: dict[str, _Known] = {}
        """Findings by topic, for topics with unacknowledged entries."""

    def begin(self) -> None:
        """Check soon: the consumer was opened, or the first chunked message was acknowledged."""
        self._checks = 0
        self._check_in(_SOON_SECONDS)

    def tick(self, now: float) -> float | None:
        """Check the cursors; called by the scheduler."""
        if self._closed or not self._acks.collector.may_have_chunks:
            return None
        is_done = False
        with contextlib.suppress(PulsarExtError, pulsar.PulsarException):  # no admin API, or the topic is unloaded
            for topic in self._entry_topics():
                with contextlib.suppress(*INACCESSIBLE):
                    if self._check_topic(topic, now):
                        self._checks = 0  # there may be more after the first hundred entries
            is_done = not self._known
        self._checks += 1
        if self._checks < _SOON_CHECKS and not is_done:
            return _SOON_SECONDS
        return _LATER_SECONDS if self._acks.collector.has_chunks else None

    def acknowledge_useless(self, topic: str) -> bool:
        """Acknowledge chunks on a topic that certainly no consumer can receive; return True if there were any."""
        era, admin = self._era(topic), self._admin()
        found = find_leftovers(admin, topic, self._subscription, admin.internal_stats(topic))
        return self._acknowledge(topic, found, found.useless, era)

    def _check_topic(self, topic: str, now: float) -> bool:
        """Check one cursor, and the entries after it if it has not moved; return True if anything was done."""
        # Many consumers of a client have no backlog, and one answer is enough for all subscriptions of a topic.
        query = partial(_subscriptions_at_end, self._admin, topic)
        if self._subscription in self._context.recent.ask(("at the end", topic), query):
            self._known.pop(topic, None)
            return False
        era, admin = self._era(topic), self._admin()
        stats = admin.internal_stats(topic)
        cursor = stats.cursors.get(self._subscription)
        if cursor is None:
            return False
        mark, known = cursor.mark_delete_position, self._known.get(topic)
        if known is None or known.mark != mark:
            self._known[topic] = _Known(mark, dropped={} if known is None else known.dropped)
            return False
        found = find_leftovers(admin, topic, self._subscription, stats)
        endless, known.endless = known.endless, frozenset(found.endless)
        has_dropped = self._redeliver_dropped(topic, known, stats, found, now)
        return self._acknowledge(topic, found, (*found.useless, *(endless & known.endless)), era) or has_dropped

    def _redeliver_dropped(self, topic: str, known: _Known, stats: InternalStats, found: Leftovers, now: float) -> bool:
        """Redeliver messages that the native consumer dropped for others; return True if there were any.

        The native consumer holds a limited number of incomplete messages, and drops the oldest. Those that are not
        acknowledged are redelivered, only as many at a time as it can hold.
        """
        if not (self.max_pending_chunked and found.whole):
            known.dropped = {}
            return False
        if not known.counted:
            known.counted = True
            if count_concurrent_incomplete(self._admin(), topic, stats, known.mark) > self.max_pending_chunked:
                known.dropped = {chunks[0]: -math.inf for chunks in found.whole} | known.dropped
        known.dropped = {chunks[0]: known.dropped[chunks[0]] for chunks in found.whole if chunks[0] in known.dropped}
        late = [one for one in found.whole if now >= known.dropped.get(one[0], math.inf) + _REDELIVERY_SECONDS]
        wanted = late[: self.max_pending_chunked]
        if wanted:
            known.dropped |= {chunks[0]: now for chunks in wanted}
            _log.warning(
                "More chunked messages on %s were incomplete at a time than max_pending_chunked_message=%d allows, and "
                "some were dropped; redelivering %d unacknowledged ones. Increase the limit to avoid this.",
                topic,
                self.max_pending_chunked,
                len(wanted),
            )
            self.redeliver(topic, [position for chunks in wanted for position in chunks])
        return bool(wanted)

    def _era(self, topic: str) -> int:
        """Return the era before a check: after a seek since then, its findings are invalid."""
        return self._acks.cursor_era(topic, TopicName.parse(topic).partition_index)

    def _acknowledge(self, topic: str, found: Leftovers, positions: Iterable[Position], era: int) -> bool:
        """Acknowledge chunks once, and have a message received that they hid; return True if there were any."""
        known = self._known.get(topic)
        fresh = sorted(one for one in positions if known is None or one not in known.acknowledged)
        if not fresh:
            return False
        partition = TopicName.parse(topic).partition_index
        self._acks.add_entries(topic, partition, [(one.ledger_id, one.entry_id) for one in fresh], era)
        self._acks.flush()
        if known is not None:
            known.acknowledged.update(fresh)
        self._context.report_event("closed hole", topic, self._subscription, len(fresh))
        _log.warning(
            "%d chunks on %s, from %s to %s, are of incomplete messages or were written twice. No consumer can receive "
            "them, so they were acknowledged on %s.",
            len(fresh),
            topic,
            fresh[0],
            fresh[-1],
            self._subscription,
        )
        if found.hides_message:
            self._order.replace()
        return True

    def _entry_topics(self) -> list[str]:
        """Return the topics, or their partitions; for a pattern the partitions with acknowledgements."""
        if not isinstance(self._topics, str | list):
            return self._names()
        partitions_of, recent = self._context.opener.get_topic_partitions, self._context.recent
        # Queried each time: partitions may be added.
        return [
            part for name in self._names() for part in recent.ask(("partitions", name), partial(partitions_of, name))
        ]


def _subscriptions_at_end(admin: Callable[[], PulsarAdmin], topic: str) -> frozenset[str]:
    """Return the subscriptions of a topic whose cursors have no entry after them."""
    stats = admin().internal_stats(topic)
    ledgers = Ledgers(stats.ledger_sizes())
    return frozenset(
        name for name, cursor in stats.cursors.items() if ledgers.next(cursor.mark_delete_position) is None
    )
