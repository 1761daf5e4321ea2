"""Stranded messages, detected by statistics, and topics with chunks that no consumer can receive."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest

from pulsar_ext._runtime.context import RecentAnswers
from pulsar_ext.admin import SubscriptionStats
from pulsar_ext.errors import AdminNotFound
from pulsar_ext.ids.position import Position
from pulsar_ext.redelivery.stranded import LeftoverWatch, StrandedWatch, is_idle, is_stranding


def _stats(backlog, *consumers, out=10, delayed=0):
    """Return statistics; each consumer is a pair of held messages and permits."""
    listed = [
        {"unackedMessages": held, "availablePermits": more, "address": f"h:{number}", "connectedSince": "10:00"}
        for number, (held, more) in enumerate(consumers)
    ]
    return SubscriptionStats.from_json(
        {"type": "Shared", "msgBacklog": backlog, "msgOutCounter": out, "msgDelayed": delayed, "consumers": listed}
    )


STRANDED = _stats(3, (0, 5))


def test_undelivered_backlog_is_stranded():
    """Entries that no consumer holds are stranded if one has permits and nothing is delivered for a while."""
    assert is_stranding(STRANDED, STRANDED)
    assert is_stranding(_stats(5, (1, 5), (1, 5)), _stats(5, (1, 5), (1, 5)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_stats(3, (3, 5)), STRANDED),
        (STRANDED, _stats(3, (3, 5))),
        (STRANDED, _stats(0, (0, 5))),
        (STRANDED, _stats(3, (0, 5), out=11)),
        (STRANDED, _stats(3, (0, 0))),
        (STRANDED, _stats(3, (0, 5), delayed=1)),
        (_stats(3, (0, 5), delayed=3), STRANDED),
        (STRANDED, _stats(3, (0, 5), (0, 5))),
        (STRANDED, _stats(3)),
    ],
    ids=[
        "held before",
        "held",
        "acknowledged",
        "being delivered",
        "no permits",
        "delayed",
        "just due",
        "just joined",
        "no consumer",
    ],
)
def test_deliverable_backlog_is_not_stranded(before, after):
    """A backlog that is held, being delivered, or without permits is not stranded."""
    assert not is_stranding(before, after)


def _failover(backlog, *delivered, more=(5, 5), type_="Failover"):
    """Return statistics with the first consumer active; each has a number of delivered messages and permits `more`."""
    listed = [
        {"msgOutCounter": out, "availablePermits": permits, "consumerName": f"c{number}", "address": f"h:{number}"}
        for number, (out, permits) in enumerate(zip(delivered, more, strict=False))
    ]
    return SubscriptionStats.from_json(
        {"type": type_, "msgBacklog": backlog, "consumers": listed, "activeConsumerName": "c0"}
    )


@pytest.mark.parametrize("type_", ["Failover", "Exclusive"])
def test_undelivered_backlog_of_active_consumer_is_stranded(type_):
    """A backlog that was delivered to no consumer is stranded if the active consumer has permits."""
    assert is_stranding(_failover(3, 1, 1, type_=type_), _failover(3, 1, 1, type_=type_))
    assert is_stranding(_failover(3, 1, 1, more=(5, 0)), _failover(3, 1, 1, more=(5, 0)))
    assert not is_stranding(_failover(3, 1, 1, more=(0, 5)), _failover(3, 1, 1, more=(0, 5)))
    assert not is_stranding(_failover(3, 2, 1, type_=type_), _failover(3, 2, 1, type_=type_))


def test_backlog_held_by_consumers_is_idle():
    """A subscription is idle if its consumers hold all unacknowledged messages."""
    assert is_idle(_stats(2, (1, 0), (1, 0)))
    assert not is_idle(_stats(3, (1, 0), (1, 0)))


def test_inaccessible_topic_hides_no_other():
    """Stranded messages on one topic are redelivered, and its cursor is checked, although another topic was deleted."""
    stats = {"type": "Shared", "msgBacklog": 1, "consumers": [{"availablePermits": 5, "connectedSince": "10:00"}]}
    cursor = SimpleNamespace(mark_delete_position=Position(1, 0))
    cursors = SimpleNamespace(ledger_sizes=lambda: [(1, 5)], cursors={"s": cursor})
    queried, replaced = [], []

    def answer(value):
        def query(name, **_):
            queried.append(name)
            if name.endswith("gone"):
                raise AdminNotFound("404")
            return value

        return query

    admin = SimpleNamespace(
        stats=answer(SimpleNamespace(subscriptions={"s": SubscriptionStats.from_json(stats)})),
        internal_stats=answer(cursors),
    )
    acks = SimpleNamespace(collector=SimpleNamespace(has_chunks=True, may_have_chunks=True), cursor_era=lambda *_: 0)
    context = SimpleNamespace(
        admin_api=lambda: SimpleNamespace(within=lambda _: admin),
        recent=RecentAnswers(),
        opener=SimpleNamespace(get_topic_partitions=lambda name: [name]),
    )
    topics = ["persistent://public/default/gone", "persistent://public/default/there"]
    order = SimpleNamespace(replace=lambda: replaced.append(True))
    leftovers = SimpleNamespace(acknowledge_useless=lambda _: False)
    watch = StrandedWatch(context, order, topics, "s", acks, leftovers)
    for _ in range(2):
        watch.tick(0.0)
    assert replaced == [True]
    queried.clear()
    LeftoverWatch(context, order, topics, "s", acks).tick(0.0)
    assert topics[1] in queried


class _Answer(dict):
    """An answer of the broker to which a weak reference is possible."""


def test_statistics_of_idle_topics_are_not_kept():
    """A consumer of an idle topic keeps no statistics, which contain every consumer."""
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


def test_added_partitions_are_checked():
    """A consumer with chunked messages checks one partition, and both after another one was added."""
    partitions, checked = ["t-partition-0"], []

    def ask(question, answer):
        if question[0] == "partitions":
            return answer()
        checked.append(question[1])
        return {"s"}  # has no backlog

    context = SimpleNamespace(
        opener=SimpleNamespace(get_topic_partitions=lambda _: list(partitions)), recent=SimpleNamespace(ask=ask)
    )
    acks = SimpleNamespace(collector=SimpleNamespace(has_chunks=True, may_have_chunks=True))
    watch = LeftoverWatch(context, None, "t", "s", acks)
    watch.tick(0.0)
    partitions.append("t-partition-1")
    watch.tick(0.0)
    assert checked == ["t-partition-0", "t-partition-0", "t-partition-1"]
