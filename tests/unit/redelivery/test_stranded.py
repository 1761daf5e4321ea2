"""Messages that the broker delivers to nobody, by statistics, and topics with chunks that nobody can get."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest

from pulsar_ext._runtime.context import RecentAnswers
from pulsar_ext.admin import SubscriptionStats
from pulsar_ext.errors import AdminNotFound
from pulsar_ext.ids.position import Position
from pulsar_ext.redelivery.stranded import LeftoverWatch, StrandedWatch, is_idle, strands


def _stats(backlog, *consumers, out=10, delayed=0):
    """Give statistics; each consumer has so many messages, and takes so many more."""
    listed = [
        {"unackedMessages": held, "availablePermits": more, "address": f"h:{number}", "connectedSince": "10:00"}
        for number, (held, more) in enumerate(consumers)
    ]
    return SubscriptionStats.from_json(
        {"type": "Shared", "msgBacklog": backlog, "msgOutCounter": out, "msgDelayed": delayed, "consumers": listed}
    )


STRANDED = _stats(3, (0, 5))


def test_what_nobody_has_and_nobody_gets_is_stranded():
    """Three entries that are with no consumer, though one takes more and nothing is delivered for a while."""
    assert strands(STRANDED, STRANDED)
    assert strands(_stats(5, (1, 5), (1, 5)), _stats(5, (1, 5), (1, 5)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_stats(3, (3, 5)), STRANDED),
        (STRANDED, _stats(3, (3, 5))),
        (STRANDED, _stats(0, (0, 5))),
        (STRANDED, _stats(3, (0, 5), out=11)),
        (STRANDED, _stats(3, (0, 0))),
        (STRANDED, _stats(3, (0, 5), delayed=1)),
        (STRANDED, _stats(3, (0, 5), (0, 5))),
        (STRANDED, _stats(3)),
    ],
    ids=[
        "held before",
        "held",
        "acknowledged",
        "being delivered",
        "takes no more",
        "delayed",
        "just joined",
        "no consumer",
    ],
)
def test_what_may_still_come_is_not_stranded(before, after):
    """What a consumer has, what is being delivered, and what a consumer takes no more of is left alone."""
    assert not strands(before, after)


def _failover(backlog, *given, more=(5, 5), type_="Failover"):
    """Give statistics of which the first consumer is the active one; each was given so many, and takes `more`."""
    listed = [
        {"msgOutCounter": out, "availablePermits": permits, "consumerName": f"c{number}", "address": f"h:{number}"}
        for number, (out, permits) in enumerate(zip(given, more, strict=False))
    ]
    return SubscriptionStats.from_json(
        {"type": type_, "msgBacklog": backlog, "consumers": listed, "activeConsumerName": "c0"}
    )


@pytest.mark.parametrize("type_", ["Failover", "Exclusive"])
def test_more_than_was_given_to_anybody_is_stranded(type_):
    """Of what goes to one consumer that much is stranded which nobody was given, though the active one takes more."""
    assert strands(_failover(3, 1, 1, type_=type_), _failover(3, 1, 1, type_=type_))
    assert strands(_failover(3, 1, 1, more=(5, 0)), _failover(3, 1, 1, more=(5, 0)))
    assert not strands(_failover(3, 1, 1, more=(0, 5)), _failover(3, 1, 1, more=(0, 5)))
    assert not strands(_failover(3, 2, 1, type_=type_), _failover(3, 2, 1, type_=type_))


def test_a_backlog_that_consumers_have_is_idle():
    """A subscription is idle if all that is not acknowledged is with its consumers."""
    assert is_idle(_stats(2, (1, 0), (1, 0)))
    assert not is_idle(_stats(3, (1, 0), (1, 0)))


def test_a_topic_that_cannot_be_looked_at_hides_no_other():
    """Of two topics one is gone: what is stranded on the other one is brought back, and its cursor is looked at."""
    stats = {"type": "Shared", "msgBacklog": 1, "consumers": [{"availablePermits": 5, "connectedSince": "10:00"}]}
    cursor = SimpleNamespace(mark_delete_position=Position(1, 0))
    cursors = SimpleNamespace(ledger_sizes=lambda: [(1, 5)], cursors={"s": cursor})
    asked, replaced = [], []

    def answer(value):
        def ask(name, **_):
            asked.append(name)
            if name.endswith("gone"):
                raise AdminNotFound("404")
            return value

        return ask

    admin = SimpleNamespace(
        stats=answer(SimpleNamespace(subscriptions={"s": SubscriptionStats.from_json(stats)})),
        internal_stats=answer(cursors),
    )
    acks = SimpleNamespace(collector=SimpleNamespace(has_chunks=True, may_have_chunks=True), era_of=lambda *_: 0)
    context = SimpleNamespace(
        admin_api=lambda: SimpleNamespace(within=lambda _: admin),
        recent=RecentAnswers(),
        opener=SimpleNamespace(get_topic_partitions=lambda name: [name]),
    )
    topics = ["persistent://public/default/gone", "persistent://public/default/there"]
    order = SimpleNamespace(replace=lambda: replaced.append(True))
    looked = SimpleNamespace(finish=lambda _: False)
    watch = StrandedWatch(context, order, topics, "s", acks, looked)
    for _ in range(2):
        watch.tick(0.0)
    assert replaced == [True]
    asked.clear()
    LeftoverWatch(context, order, topics, "s", acks).tick(0.0)
    assert topics[1] in asked


class _Answer(dict):
    """What the broker answered, whose end can be seen."""


def test_statistics_of_what_is_idle_are_not_kept():
    """A consumer that has nothing to look after holds none of the statistics, in which every consumer is named."""
    answer = _Answer(type="Shared", msgBacklog=0, consumers=[{"address": "h:0"}])
    gone = weakref.ref(answer)
    topics = [SimpleNamespace(subscriptions={"s": SubscriptionStats.from_json(answer)})]
    admin = SimpleNamespace(within=lambda _: SimpleNamespace(stats=lambda *_, **__: topics.pop()))
    acks = SimpleNamespace(collector=SimpleNamespace(has_chunks=False))
    context = SimpleNamespace(admin_api=lambda: admin, recent=RecentAnswers())
    watch = StrandedWatch(context, None, "persistent://public/default/t", "s", acks, None)
    assert watch.tick(0.0) is None
    del answer
    assert gone() is None


def test_partitions_that_are_added_are_looked_at():
    """A consumer that has had chunked messages looks at the one partition, and the next time at both that there are."""
    partitions, looked_at = ["t-partition-0"], []

    def ask(question, answer):
        if question[0] == "partitions":
            return answer()
        looked_at.append(question[1])
        return {"s"}  # is at the end

    context = SimpleNamespace(
        opener=SimpleNamespace(get_topic_partitions=lambda _: list(partitions)), recent=SimpleNamespace(ask=ask)
    )
    acks = SimpleNamespace(collector=SimpleNamespace(has_chunks=True, may_have_chunks=True))
    watch = LeftoverWatch(context, None, "t", "s", acks)
    watch.tick(0.0)
    partitions.append("t-partition-1")
    watch.tick(0.0)
    assert looked_at == ["t-partition-0", "t-partition-0", "t-partition-1"]
