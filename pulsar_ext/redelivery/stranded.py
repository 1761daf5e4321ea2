"""Messages that the broker delivers to nobody: seen in its statistics, and brought back.

**On a Shared subscription** the broker remembers which consumer gets the rest of a chunked message, beyond that
consumer's end. What is left it sends to nobody, or waits for ever until that one takes more; the message then comes to
no consumer, in no language, before all of them have left, or the topic is unloaded. So it is, for example, when a
consumer is restarted in the midst of one. A consumer of ours looks at the statistics after it was opened: where entries
are neither acknowledged nor with any consumer, and nothing is delivered though all take more, it is opened anew, which
has the broker begin anew; see `ConsumerFoundation.open_anew()`. That needs an admin API, and no other consumer on the
subscription. Chunks that no consumer can receive are acknowledged first (`leftover_watch.py`): the broker delivers them
to none.

**On a Failover or an Exclusive subscription** messages go to one consumer, the active one, and a read for the one
before may be under way when it takes over. After a broker was killed it happened that the new one got nothing for as
long as nobody left or came. So a consumer that was opened in the place of another looks whether it gets what is in the
backlog.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.errors import AdminNotAllowed, PulsarExtError

from .consumer_watch import NOT_TO_BE_SEEN, ConsumerWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ack.grouping import Acknowledger
    from pulsar_ext.admin import PulsarAdmin, SubscriptionStats, TopicStats
    from pulsar_ext.receive.order import ReceiveOrder

    from .leftover_watch import LeftoverWatch

__all__ = ["StrandedWatch", "is_idle", "strands"]

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

    Args:
        context: of the consumer's client.
        order: of the consumer's messages.
        topics: what was subscribed to.
        subscription: its name.
        acks: the consumer's acknowledgements.
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
