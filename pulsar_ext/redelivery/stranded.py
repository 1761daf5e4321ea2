"""Messages that the broker delivers to nobody: found in its statistics, and delivered again.

**On a Shared subscription** the broker remembers which consumer gets the rest of a chunked message, beyond that
consumer's end. It sends the remaining chunks to nobody, or waits until that consumer takes more; the message is then
delivered to no consumer, in no language, before all of them are closed, or the topic is unloaded. This happens, for
example, when a consumer is restarted while it receives a chunked message. So a consumer of ours polls the statistics
after it was opened: if entries are neither acknowledged nor with any consumer, and nothing is delivered though all take
more, its native consumer is replaced, and the broker starts again; see `ConsumerFoundation.open_anew()`. That needs an
admin API, and no other consumer on the subscription.

**On a Failover or an Exclusive subscription** messages go to one consumer, the active one, and a read for the one
before may be in flight when it takes over. After a broker was killed the new one sometimes got nothing until a consumer
left or came. So a consumer that was opened in the place of another checks that it gets what is in the backlog.

**Chunks that no consumer can receive**, of messages that were cut off or written twice, are acknowledged first: the
broker delivers them to nobody. Java's consumers put a message together whose chunks are partly there twice, and
acknowledge the rest; those of the C++ client drop all of it, and it stays in the backlog. So the cursor is polled if
the consumer receives chunked messages. If it does not move, the entries after it are read: chunks that nobody can
receive are acknowledged, and if they kept a whole message from being received, the native consumer is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.chunks.leftovers import begun_at_a_time, find_leftovers
from pulsar_ext.errors import AdminNotAllowed, AdminNotFound, AdminUnauthorized, PulsarExtError
from pulsar_ext.ids.position import Ledgers
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ack.acknowledger import Acknowledger
    from pulsar_ext.admin import InternalStats, PulsarAdmin, SubscriptionStats, TopicStats
    from pulsar_ext.chunks.leftovers import Leftovers
    from pulsar_ext.ids.position import Position
    from pulsar_ext.receive.order import ReceiveOrder


NOT_TO_BE_SEEN: Final = (AdminNotFound, AdminUnauthorized)
"""What the admin API says of one of several topics that is gone, or not ours to see: the others are looked at."""
_APART_SECONDS: Final = 0.1


class ConsumerWatch(Watch):
    """Looks at a subscription.

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        subscription: its name.
        acks: the consumer's acknowledgements.
    """

    __slots__ = ("_acks", "_looks", "_subscription")

    def __init__(
        self, context: ClientContext, order: ReceiveOrder, topics: Any, subscription: str, acks: Acknowledger
    ) -> None:
        super().__init__(context, order, topics)
        self._subscription, self._acks = subscription, acks
        self._looks = 0

    def _look_in(self, seconds: float) -> None:
        """Look in so many seconds, at one of the times at which others look as well: the thread wakes once for all."""
        due = time.monotonic() + seconds
        self._context.inquiries.watch(self, seconds + -due % _APART_SECONDS)

    def _names(self) -> list[str]:
        """Give the names of the topics that are persistent; of a pattern those of which anything was acknowledged."""
        if isinstance(self._topics, str):
            names = [self._topics]
        elif isinstance(self._topics, list):
            names = self._topics
        else:
            names = [one.topic for one in self._acks.collector.by_topic]
        return [name for name in names if TopicName.parse(name).is_persistent]


_log = logging.getLogger("pulsar_ext")

_LOOK_SECONDS: Final = (1.0, 1.0, 3.0, 10.0, 30.0)
"""How long before each look after a consumer was opened."""
_ONE_LOOK_SECONDS: Final = (3.0, 3.0, 10.0, 30.0)
"""The same where messages go to one consumer: the broker waits for a second before a new one of Failover gets any."""
_SLOW_SECONDS: Final = 60.0
"""The same, behind these: where a backlog is being consumed, or chunked messages come."""
_MOST_ATTEMPTS: Final = 3


class StrandedWatch(ConsumerWatch):
    """Looks after what the broker delivers to nobody, of one consumer.

    Args, besides those of `ConsumerWatch`:
        leftovers: looks after what nobody can receive.
        only: the consumer's name where messages go to one consumer of the subscription; None on a Shared one.
    """

    _PATIENCE_SECONDS = 1.0
    __slots__ = ("_attempts", "_before", "_leftovers", "_only", "_seconds", "_warned")

    def __init__(
        self,
        context: ClientContext,
        order: ReceiveOrder,
        topics: Any,
        subscription: str,
        acks: Acknowledger,
        leftovers: LeftoverWatch,
        only: str | None = None,
    ) -> None:
        super().__init__(context, order, topics, subscription, acks)
        self._leftovers, self._only = leftovers, only
        self._seconds = _LOOK_SECONDS if only is None else _ONE_LOOK_SECONDS
        self._before: dict[str, SubscriptionStats] = {}
        self._attempts = 0
        self._warned = False

    def begin(self) -> None:
        """Look soon: the consumer was opened."""
        self._looks, self._before = 0, {}
        self._look_in(self._seconds[0])

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:  # noqa: ARG002  # another C++ consumer
        """Look soon: the consumer was opened anew."""
        self.begin()

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # by the broker's statistics alone
        """Look at the statistics; the scheduler's call.

        Returns:
            After how many seconds to look again; None if nothing can be stranded.
        """
        if self._closed:
            return None
        try:
            after = self._statistics()
        except (PulsarExtError, pulsar.PulsarException):  # no admin API answers, or the topic is moving
            return self._later
        # Only what is not idle can turn out to be stranded, and the statistics name every consumer: each of a thousand
        # would hold the statistics of a thousand.
        before, self._before = self._before, {topic: one for topic, one in after.items() if not is_idle(one)}
        stranded = [
            topic
            for topic, one in after.items()
            if topic in before and strands(before[topic], one) and self._only in (None, one.active_consumer)
        ]
        if stranded:
            self._bring_back(stranded, after)
        elif all(map(is_idle, after.values())):
            self._attempts = 0
            return self._later
        self._looks += 1
        return self._seconds[self._looks] if self._looks < len(self._seconds) else _SLOW_SECONDS

    @property
    def _later(self) -> float | None:
        return _SLOW_SECONDS if self._acks.collector.has_chunks and self._only is None else None

    def _bring_back(self, stranded: list[str], known: dict[str, SubscriptionStats]) -> None:
        stranded = [topic for topic in stranded if not self._finish(topic)]
        if not stranded:
            return
        others = 0 if self._only else max(len(known[topic].consumers) for topic in stranded) - 1
        if others or self._attempts >= _MOST_ATTEMPTS:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "Messages of %s on %s are neither acknowledged nor with any consumer, and the broker does not "
                    "deliver them; %s. They come when all consumers of the subscription have been closed, or the "
                    "topic is unloaded (pulsar-ext admin unload TOPIC).",
                    self._subscription,
                    ", ".join(stranded),
                    f"{others} other consumers keep it from beginning anew" if others else "opening anew did not help",
                )
            return
        self._attempts += 1
        _log.warning(
            "Messages of %s on %s were neither acknowledged nor with any consumer, and the broker did not deliver "
            "them: the consumer is opened anew.",
            self._subscription,
            ", ".join(stranded),
        )
        with contextlib.suppress(pulsar.PulsarException):
            self._order.replace()

    def _finish(self, topic: str) -> bool:
        """Acknowledge the chunks on a topic that nobody can receive; tell whether there were any."""
        try:
            return self._leftovers.finish(topic)
        except (PulsarExtError, pulsar.PulsarException):
            return False

    def _statistics(self) -> dict[str, SubscriptionStats]:
        """Give those of the subscription on each of its topics and partitions; none of a topic where it is idle."""
        found = {}
        for name in self._names():
            asked: dict[str, TopicStats] = {}

            def ask(name: str = name, asked: dict[str, TopicStats] = asked) -> frozenset[str]:
                asked |= _statistics_of(self._admin(), name)
                return _idle(asked)

            # Many consumers of a client are idle, and one answer is enough for all of a topic.
            with contextlib.suppress(*NOT_TO_BE_SEEN):
                if self._subscription not in self._context.recent.ask(("idle", name), ask):
                    for topic, stats in (asked or _statistics_of(self._admin(), name)).items():
                        if (known := stats.subscriptions.get(self._subscription)) is not None:
                            found[topic] = known
        return found


def _idle(statistics: dict[str, TopicStats]) -> frozenset[str]:
    """Give the subscriptions that are idle on all of a topic, by the statistics of it or of each partition."""
    each = [
        {subscription: is_idle(one) for subscription, one in stats.subscriptions.items()}
        for stats in statistics.values()
    ]
    return frozenset(one for known in each for one in known if all(other.get(one, True) for other in each))


def _statistics_of(admin: PulsarAdmin, name: str) -> dict[str, TopicStats]:
    """Give the statistics of a topic, or of each of its partitions."""
    try:
        return {name: admin.stats(name, precise_backlog=True)}
    except AdminNotAllowed:  # it has partitions
        parts = admin.partitioned_stats(name).partitions
        return {part: admin.stats(part, precise_backlog=True) for part in parts}


def is_idle(stats: SubscriptionStats) -> bool:
    """Whether all that is in a subscription's backlog may be with a consumer."""
    return stats.backlog_entries <= stats.most_held


def strands(before: SubscriptionStats, after: SubscriptionStats) -> bool:
    """Whether the broker delivers what is in a subscription's backlog to nobody.

    Args:
        before: the statistics at one time, with a precise backlog.
        after: those of a second later or more.
    """
    if is_idle(before) or is_idle(after) or not after.consumers or after.delayed_messages:
        return False
    return (
        after.takes_more and before.sessions == after.sessions and before.delivered_messages == after.delivered_messages
    )


_SOON_SECONDS: Final = 5.0
_SOON_LOOKS: Final = 3
"""So many looks come soon behind the first chunked message, or behind the opening."""
_LATER_SECONDS: Final = 15.0
_ASK_AGAIN_SECONDS: Final = 15.0
"""How long a message that was dropped may take, once it is redelivered, until it is acknowledged."""


@dataclass
class _Known:
    """What was seen of one topic, as long as the cursor stands still."""

    mark: Position
    endless: frozenset[Position] = frozenset()
    acknowledged: set[Position] = field(default_factory=set)
    dropped: dict[Position, float] = field(default_factory=dict)
    """The messages that may have been dropped, by their first chunks, and when each was asked for."""
    counted: bool = False
    """Whether it was looked how many messages are begun at a time."""


class LeftoverWatch(ConsumerWatch):
    """Looks after the chunks that nobody can receive, of one consumer; the arguments are those of `ConsumerWatch`."""

    _PATIENCE_SECONDS = 3.0
    __slots__ = ("_known", "most_pending", "redeliver")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.most_pending = 0
        """How many chunked messages the C++ consumer has begun at most; 0 for any number."""
        self.redeliver: Callable[[str, list[Position]], None] = lambda *_: None
        """Has entries of a topic redelivered."""
        self._known: dict[str, _Known] = {}
        """Of the topics whose cursor was not at the end."""

    def begin(self) -> None:
        """Look soon: the consumer was opened, or the first chunked message was acknowledged."""
        self._looks = 0
        self._look_in(_SOON_SECONDS)

    def tick(self, now: float) -> float | None:
        """Look at the cursors; the scheduler's call.

        Returns:
            After how many seconds to look again; None if there are no chunked messages, for all that is known.
        """
        if self._closed or not self._acks.collector.may_have_chunks:
            return None
        is_done = False
        with contextlib.suppress(PulsarExtError, pulsar.PulsarException):  # no admin API, or the topic is moving
            for topic in self._entry_topics():
                with contextlib.suppress(*NOT_TO_BE_SEEN):
                    if self._look(topic, now):
                        self._looks = 0  # there may be more behind the first hundred entries
            is_done = not self._known
        self._looks += 1
        if self._looks < _SOON_LOOKS and not is_done:
            return _SOON_SECONDS
        return _LATER_SECONDS if self._acks.collector.has_chunks else None

    def finish(self, topic: str) -> bool:
        """Acknowledge the chunks on a topic that nobody can receive for sure; tell whether there were any.

        Raises:
            AdminError: the admin API refused or did not answer.
        """
        era, admin = self._era(topic), self._admin()
        found = find_leftovers(admin, topic, self._subscription, admin.internal_stats(topic))
        return self._acknowledge(topic, found, found.useless, era)

    def _look(self, topic: str, now: float) -> bool:
        """Look at one cursor, and behind it if it has not moved since; tell whether anything was done."""
        # Many consumers of a client have nothing to look at, and one answer is enough for all of a topic.
        ask = partial(_at_the_end, self._admin, topic)
        if self._subscription in self._context.recent.ask(("at the end", topic), ask):
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
        asks = self._ask_for_dropped(topic, known, stats, found, now)
        return self._acknowledge(topic, found, (*found.useless, *(endless & known.endless)), era) or asks

    def _ask_for_dropped(self, topic: str, known: _Known, stats: InternalStats, found: Leftovers, now: float) -> bool:
        """Have messages redelivered that the C++ consumer dropped for others; tell whether there were any.

        It has begun no more than some at a time, and drops the oldest. Those that are not acknowledged are asked for
        again, so many at a time that none is dropped.
        """
        if not (self.most_pending and found.whole):
            known.dropped = {}
            return False
        if not known.counted:
            known.counted = True
            if begun_at_a_time(self._admin(), topic, stats, known.mark) > self.most_pending:
                known.dropped = {chunks[0]: -math.inf for chunks in found.whole} | known.dropped
        known.dropped = {chunks[0]: known.dropped[chunks[0]] for chunks in found.whole if chunks[0] in known.dropped}
        late = [one for one in found.whole if now >= known.dropped.get(one[0], math.inf) + _ASK_AGAIN_SECONDS]
        wanted = late[: self.most_pending]
        if wanted:
            known.dropped |= {chunks[0]: now for chunks in wanted}
            _log.warning(
                "More chunked messages on %s were begun at a time than max_pending_chunked_message=%d, and some were "
                "dropped: %d that are not acknowledged are redelivered. A higher number keeps them from being dropped.",
                topic,
                self.most_pending,
                len(wanted),
            )
            self.redeliver(topic, [position for chunks in wanted for position in chunks])
        return bool(wanted)

    def _era(self, topic: str) -> int:
        """Give the era before a look: a seek since then would have what is found delivered again."""
        return self._acks.era_of(topic, TopicName.parse(topic).partition_index)

    def _acknowledge(self, topic: str, found: Leftovers, positions: Iterable[Position], era: int) -> bool:
        """Acknowledge chunks, once, and have a message received that they hid; tell whether there were any."""
        known = self._known.get(topic)
        fresh = sorted(one for one in positions if known is None or one not in known.acknowledged)
        if not fresh:
            return False
        partition = TopicName.parse(topic).partition_index
        self._acks.add_entries(topic, partition, [(one.ledger_id, one.entry_id) for one in fresh], era)
        self._acks.flush()
        if known is not None:
            known.acknowledged.update(fresh)
        self._context.tell("closed hole", topic, self._subscription, len(fresh))
        _log.warning(
            "%d chunks on %s, from %s to %s, are of messages that were cut off or written twice. No consumer can "
            "receive them: they were acknowledged on %s.",
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
        """Give the topics, and of topics with partitions each of these; a pattern's are known by their partitions."""
        if not isinstance(self._topics, str | list):
            return self._names()
        partitions_of, recent = self._context.opener.get_topic_partitions, self._context.recent
        # Asked each time: a topic may have more by now.
        return [
            part for name in self._names() for part in recent.ask(("partitions", name), partial(partitions_of, name))
        ]


def _at_the_end(admin: Callable[[], PulsarAdmin], topic: str) -> frozenset[str]:
    """Give the subscriptions of a topic behind whose cursors there is nothing."""
    stats = admin().internal_stats(topic)
    ledgers = Ledgers(stats.ledger_sizes())
    return frozenset(
        name for name, cursor in stats.cursors.items() if ledgers.next(cursor.mark_delete_position) is None
    )
