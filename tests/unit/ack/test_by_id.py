"""Acknowledgements by ids: which ids are sent, which consumer joins, and what happens if it cannot or fails."""

from __future__ import annotations

from types import SimpleNamespace

import pulsar
import pytest

from pulsar_ext.ack.by_id import AckResult, StoredMessage, acknowledge_by_id, joining, plan_acks
from pulsar_ext.admin import CursorInfo, SubscriptionStats
from pulsar_ext.chunks.search import Chunks
from pulsar_ext.errors import AckNotConfirmed, SubscriptionBusy
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Position

CURSOR = CursorInfo.from_json(
    {"markDeletePosition": "5:1", "readPosition": "5:9", "individuallyDeletedMessages": "[(5:3..5:5]]"}
)


def of_batch(entry, size, *indexes):
    return [StoredMessage((Position(5, entry),), at, size) for at in indexes]


def single(*entries):
    return StoredMessage(tuple(Position(5, entry) for entry in entries))


def texts(plan):
    return [one.to_text() for one in plan.ids]


def test_acknowledged_and_repeated_messages_are_not_sent():
    """A message that the cursor shows is counted and not sent, and a message with two ids is one."""
    plan = plan_acks("t", [single(0), single(4), single(6), single(6)], CURSOR)
    assert (plan.requested, plan.already, texts(plan)) == (3, 2, ["5:6:-1"])


def test_chunks_are_sent_from_the_last():
    """A chunked message is sent with all its chunks, also if some are acknowledged, and the first chunk last."""
    assert texts(plan_acks("t", [single(1, 2, 4, 6)], CURSOR)) == ["5:6:-1", "5:4:-1", "5:2:-1", "5:1:-1"]


def test_batch_is_one_entry_if_all_its_messages_are_named():
    """All messages of a batch are sent as one entry, and some as their indexes, with the size of the batch."""
    plan = plan_acks("t", [*of_batch(6, 2, 1, 0), *of_batch(7, 3, 0, 2), *of_batch(4, 2, 1)], CURSOR)
    assert (plan.requested, plan.already) == (5, 1)
    assert texts(plan) == ["5:6:-1", "5:7:-1:0", "5:7:-1:2"]
    assert plan.ids[1].to_dict()["batch_size"] == 3
    assert plan.partial == of_batch(7, 3, 0)[0]
    assert plan_acks("t", of_batch(6, 2, 1, 0), CURSOR).partial is None


def own(kind, *consumers, **more):
    return SubscriptionStats.from_json(
        {"type": kind, "consumers": [{"consumerName": one} for one in consumers], **more}
    )


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [
        (own("Exclusive"), pulsar.ConsumerType.Exclusive),
        (own("Failover", "a"), pulsar.ConsumerType.Failover),
        (own("Shared", "a"), pulsar.ConsumerType.Shared),
        (own("Key_Shared", "a", keySharedMode="AUTO_SPLIT"), pulsar.ConsumerType.KeyShared),
        (own("Key_Shared", keySharedMode="STICKY"), pulsar.ConsumerType.KeyShared),
        (own("None"), pulsar.ConsumerType.Shared),
    ],
)
def test_type_of_the_joining_consumer(subscription, expected):
    """The consumer joins with the type of the subscription, and as Shared if the broker does not know the type."""
    assert joining("t", "s", subscription)["consumer_type"] == expected


@pytest.mark.parametrize("unordered", [True, False])
def test_policy_of_the_joining_consumer(unordered):
    """On Key_Shared it has the connected consumers' order of delivery: the broker rejects another one."""
    found = joining("t", "s", own("Key_Shared", "a", keySharedMode="AUTO_SPLIT", allowOutOfOrderDelivery=unordered))
    assert found["key_shared_policy"].allow_out_of_order_delivery is unordered


@pytest.mark.parametrize("subscription", [own("Exclusive", "a"), own("Key_Shared", "a", keySharedMode="STICKY")])
def test_subscription_without_place_raises(subscription):
    """A connected consumer that accepts no other one is named in the error."""
    with pytest.raises(SubscriptionBusy, match=r"connected are 'a'.*Nothing was acknowledged"):
        joining("t", "s", subscription)


class Consumer:
    """Consumer that cannot confirm its acknowledgements."""

    def __init__(self):
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True

    def acknowledge_many(self, ids):
        self.ids = ids

    def flush_acks(self, **_):
        raise AckNotConfirmed("They stay pending and are sent again.", missing=["5:7:-1"], count=1, subscription="s")


def context(subscribe):
    """Return a client's context for a Shared subscription whose consumers are opened by `subscribe`."""
    admin = SimpleNamespace(
        internal_stats=lambda _: SimpleNamespace(cursors={"s": CURSOR}),
        stats=lambda _: SimpleNamespace(subscriptions={"s": own("Shared")}),
    )
    return SimpleNamespace(
        admin_api=lambda: admin,
        resolver=SimpleNamespace(find=lambda _, at: Chunks((Position(at.ledger_id(), at.entry_id()),))),
        opener=SimpleNamespace(subscribe=subscribe),
        operation_timeout_seconds=30,
    )


def test_unconfirmed_acknowledgement_raises():
    """Without a confirmation it is unknown whether the broker has it, and the consumer is closed."""
    consumer = Consumer()
    with pytest.raises(AckNotConfirmed, match="unknown whether the broker has them") as raised:
        acknowledge_by_id(context(lambda *_, **__: consumer), "t", "s", MessageId(-1, 5, 7), dry_run=False)
    assert (raised.value.missing, raised.value.count, consumer.closed) == (["5:7:-1"], 1, True)


def test_every_partition_is_joined_before_acknowledgements():
    """A consumer that connects to one partition in the meantime prevents acknowledgements on all others."""
    opened = [Consumer()]

    def subscribe(topic, *_, **__):
        if topic.endswith("1"):
            raise pulsar.ConsumerBusy
        return opened[0]

    with pytest.raises(SubscriptionBusy, match=r"partition-1.*Nothing was acknowledged"):
        acknowledge_by_id(context(subscribe), "t", "s", [MessageId(0, 5, 7), MessageId(1, 5, 7)], dry_run=False)
    assert opened[0].closed
    assert not hasattr(opened[0], "ids")


def test_dry_run_opens_no_consumer():
    """A dry run and a call for acknowledged messages open no consumer."""
    no_consumer = context(None)
    assert acknowledge_by_id(no_consumer, "t", "s", MessageId(-1, 5, 7), dry_run=True) == AckResult(
        1, 1, 0, dry_run=True
    )
    assert acknowledge_by_id(no_consumer, "t", "s", [MessageId(-1, 5, 0)], dry_run=False) == AckResult(1, 0, 1)
