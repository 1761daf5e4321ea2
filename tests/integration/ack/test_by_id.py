"""Acknowledging messages by their ids, whichever consumer has them, or none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from acked import TYPES, send_batches
from chunked import FORMS, drain, eventually, index_of, payload
from indexes import INDEXES

import pulsar_ext as pulsar
from pulsar_ext import AckResult, ConsumerType, MessageId

BOTH_CLIENTS = True
SHARED = [ConsumerType.Shared, ConsumerType.KeyShared]


@pytest.fixture
def broker(pulsar_broker_factory):
    """Return a broker with small chunks that keeps acknowledgements inside batches."""
    return pulsar_broker_factory(INDEXES)


def numbered(client, topic, count, **options):
    """Send messages with an index each, and return their ids."""
    producer = client.create_producer(topic)
    ids = [producer.send(payload(at, 20), partition_key=f"k{at}", **options) for at in range(count)]
    producer.close()
    return ids


def cursor(admin, topic, subscription="s"):
    """Return the positions that the broker's cursor shows: the mark-delete position and the deleted entries."""
    found = admin.internal_stats(topic).cursors[subscription]
    return found.mark_delete_position, found.individually_deleted


def is_acknowledged(admin, topic, message_id):
    """Return True if the broker's cursor shows the entry of an id."""
    found = admin.internal_stats(topic).cursors["s"]
    return found.acknowledges_each([(message_id.ledger_id(), message_id.entry_id())])[0]


def rest(client, topic, kind, expected):
    """Return the indexes of what a consumer still gets."""
    consumer = client.subscribe(topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest)
    found = sorted(index_of(one) for one in drain(consumer.receive, expected))
    consumer.close()
    return found


@pytest.mark.core(each="kind")
@pytest.mark.parametrize("kind", TYPES)
def test_without_consumers(client, topic, admin, kind):
    """Without consumers, exactly the messages of the ids are acknowledged, on every type of subscription."""
    client.subscribe(topic, "s", kind).close()
    ids = numbered(client, topic, 5)
    assert client.acknowledge(topic, "s", [ids[1], ids[3]]) == AckResult(2, 2, 0)
    assert [is_acknowledged(admin, topic, one) for one in ids] == [False, True, False, True, False]
    assert client.acknowledge(topic, "s", [ids[0], ids[1]]) == AckResult(2, 1, 1)
    own = admin.stats(topic).subscriptions["s"]
    assert (own.type, own.consumers) == ("Key_Shared" if kind == ConsumerType.KeyShared else kind.name, ())
    assert rest(client, topic, kind, 2) == [2, 4]


@pytest.mark.core(each="kind")
@pytest.mark.parametrize("kind", SHARED)
def test_message_of_another_consumer(client, topic, admin, kind):
    """A message that a connected consumer has received is acknowledged, and the broker's counts follow."""
    # Of the eight keys, the broker assigns three or more to each of these names.
    consumers = [client.subscribe(topic, "s", kind, consumer_name=name, receiver_queue_size=2) for name in "mn"]
    ids = numbered(client, topic, 8)
    assert eventually(lambda: admin.stats(topic).subscriptions["s"].unacked_messages == 4)
    assert client.acknowledge(topic, "s", ids[0]) == AckResult(1, 1, 0)
    own = admin.stats(topic).subscriptions["s"]
    assert (own.unacked_messages, own.held_messages, len(own.consumers)) == (3, 3, 2)
    assert own.delivered_messages == 4, "nothing is delivered to the consumer that acknowledges"
    assert client.acknowledge(topic, "s", ids[7]) == AckResult(1, 1, 0)
    received = []
    for consumer in consumers * 2:  # the second turn gets what the first one's acknowledgements made room for
        for message in drain(consumer.receive):
            received.append(index_of(message))
            consumer.acknowledge(message)
        consumer.flush_acks(confirm=True)
    assert sorted(received) == list(range(7)), "prefetched messages arrive, a message that was not delivered does not"
    own = admin.stats(topic).subscriptions["s"]
    assert (own.backlog_entries, own.unacked_messages) == (0, 0)


@pytest.mark.core
def test_active_consumer_stays_active(client, pulsar_topic_factory, broker, admin):
    """On a partition's Failover subscription, whose active consumer depends on their number, it stays active."""
    topic = f"{pulsar_topic_factory(partitions=4, broker=broker)}-partition-3"
    # By their names, the broker would choose the third one if another one joined: random names begin with 0 to f.
    consumers = [client.subscribe(topic, "s", ConsumerType.Failover, consumer_name=name) for name in "wxyz"]
    assert eventually(lambda: admin.stats(topic).subscriptions["s"].active_consumer == "z")
    ids = numbered(client, topic, 3)
    assert [index_of(one) for one in drain(consumers[3].receive, 3)] == [0, 1, 2]
    assert client.acknowledge(topic, "s", ids[1]) == AckResult(1, 1, 0)
    assert is_acknowledged(admin, topic, ids[1])
    again = drain(consumers[3].receive, quiet_millis=2_000)  # one second after a change, the broker redelivers
    assert again == []
    assert admin.stats(topic).subscriptions["s"].active_consumer == "z"


@pytest.mark.core
@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("kind", SHARED)
def test_delayed_message_is_cancelled(client, topic, admin, kind, connected):
    """A delayed message that is acknowledged before it is due is never delivered; the others are."""
    consumer = client.subscribe(topic, "s", kind)
    if not connected:
        consumer.close()
    ids = numbered(client, topic, 3, deliver_after=timedelta(seconds=2))
    assert client.acknowledge(topic, "s", MessageId.parse(ids[1].to_text())) == AckResult(1, 1, 0)
    if not connected:
        consumer = client.subscribe(topic, "s", kind)
    assert sorted(index_of(one) for one in drain(consumer.receive, 2)) == [0, 2]
    assert is_acknowledged(admin, topic, ids[1])


@pytest.mark.core
def test_unloaded_subscription_keeps_its_acknowledgements(client, topic, admin):
    """After an unload, when the broker knows no type of the subscription, a delayed message can be cancelled."""
    client.subscribe(topic, "s", ConsumerType.Shared).close()
    ids = numbered(client, topic, 2, deliver_after=timedelta(seconds=1))
    admin.unload(topic)
    assert client.acknowledge(topic, "s", ids[0]) == AckResult(1, 1, 0)
    assert rest(client, topic, ConsumerType.Shared, 1) == [1]


@pytest.mark.core(each="form")
@pytest.mark.parametrize("form", FORMS)
def test_chunked_message(client, topic, admin, form):
    """Any form of a chunked message's id acknowledges all its chunks, and nothing else."""
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    producer = client.create_producer(topic, chunking_enabled=True)
    ids = [producer.send(payload(at)) for at in range(3)]
    assert len(drain(consumer.receive, 3)) == 3
    message_id = FORMS[form](ids[1])
    assert client.acknowledge(topic, "s", message_id, dry_run=True) == AckResult(1, 1, 0, dry_run=True)
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 9
    assert client.acknowledge(topic, "s", [message_id, ids[1]]) == AckResult(1, 1, 0)
    own = admin.stats(topic).subscriptions["s"]
    assert (own.backlog_entries, own.unacked_messages) == (6, 6)
    consumer.close()
    assert rest(client, topic, ConsumerType.Shared, 2) == [0, 2]


@pytest.mark.core
def test_compressed_chunked_message(client, topic, admin):
    """A chunked message whose chunks the admin API cannot show is acknowledged as a whole."""
    client.subscribe(topic, "s", ConsumerType.Shared).close()
    producer = client.create_producer(topic, chunking_enabled=True, compression_type=pulsar.CompressionType.LZ4)
    text = b"".join(b"%d" % (at * at * 7919) for at in range(100_000))
    sent = producer.send(text)
    assert client.acknowledge(topic, "s", MessageId(-1, sent.ledger_id(), sent.entry_id())) == AckResult(1, 1, 0)
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


@pytest.mark.core(each="kind")
@pytest.mark.parametrize("kind", TYPES)
def test_message_of_a_batch(client, topic, admin, kind):
    """A message of a batch is acknowledged, then all others, with which the entry is complete."""
    client.subscribe(topic, "s", kind).close()
    send_batches(client, topic, batches=2, size=4)
    last = admin.last_message_id(topic)
    ids = [MessageId(-1, last.ledger_id(), last.entry_id() - 1, at) for at in range(4)]
    assert client.acknowledge(topic, "s", ids[2]) == AckResult(1, 1, 0)
    assert not is_acknowledged(admin, topic, ids[0])
    assert rest(client, topic, kind, 7) == [0, 1, 3, 4, 5, 6, 7]
    assert client.acknowledge(topic, "s", ids) == AckResult(4, 4, 0)
    assert is_acknowledged(admin, topic, ids[0])
    assert client.acknowledge(topic, "s", ids[2]) == AckResult(1, 0, 1)
    assert rest(client, topic, kind, 4) == [4, 5, 6, 7]


@pytest.mark.core
def test_broker_that_keeps_whole_batches_only(client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """On a broker that would drop it, an acknowledgement inside a batch raises; a batch named as a whole does not."""
    broker = pulsar_broker_factory("small-chunks")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    client.subscribe(topic, "s", ConsumerType.Shared).close()
    send_batches(client, topic, batches=1, size=3)
    admin = client.context.admin_api()
    last = admin.last_message_id(topic)
    ids = [MessageId(-1, last.ledger_id(), last.entry_id(), at) for at in range(3)]
    with pytest.raises(pulsar.AdminPrecondition, match=r"Message 1 of the 3 .*acknowledgmentAtBatchIndexLevelEnabled"):
        client.acknowledge(topic, "s", ids[1:])
    assert admin.stats(topic).subscriptions["s"].raw["lastAckedTimestamp"] == 0
    assert client.acknowledge(topic, "s", ids) == AckResult(3, 3, 0)
    assert is_acknowledged(admin, topic, last)


@pytest.mark.core
def test_partitions(client, pulsar_topic_factory, broker, admin):
    """Ids of several partitions are acknowledged by their partitions, or none if one of them is not found."""
    topic = pulsar_topic_factory(partitions=3, broker=broker)
    client.subscribe(topic, "s", ConsumerType.Shared).close()
    ids = [numbered(client, f"{topic}-partition-{at}", 2)[0] for at in range(3)]
    ids = [MessageId(at, one.ledger_id(), one.entry_id()) for at, one in enumerate(ids)]
    before = [cursor(admin, f"{topic}-partition-{at}") for at in range(3)]
    with pytest.raises(pulsar.MessageIdNotFound):
        client.acknowledge(topic, "s", [*ids, MessageId(1, ids[1].ledger_id(), 77)])
    assert [cursor(admin, f"{topic}-partition-{at}") for at in range(3)] == before
    assert client.acknowledge(topic, "s", ids) == AckResult(3, 3, 0)
    backlogs = [admin.stats(f"{topic}-partition-{at}").subscriptions["s"].backlog_entries for at in range(3)]
    assert backlogs == [1, 1, 1]


@pytest.mark.core
def test_inexact_call_raises_before_anything_moves(client, pulsar_topic_factory, broker, admin):
    """Each id, topic and subscription without a certain message has its own error; no subscription is created."""
    topic, parent = pulsar_topic_factory(broker=broker), pulsar_topic_factory(partitions=2, broker=broker)
    client.subscribe(topic, "s").close()
    client.subscribe(parent, "s").close()
    good = numbered(client, topic, 2)[0]
    send_batches(client, topic, batches=1, size=3)
    batch = admin.last_message_id(topic)
    of_batch = MessageId(-1, batch.ledger_id(), batch.entry_id())
    reader = client.create_reader(topic, MessageId.earliest)
    (readers,) = set(admin.stats(topic).subscriptions) - {"s"}
    before = cursor(admin, topic)
    for error, match, where, subscription, what in (
        (pulsar.AdminNotFound, "'other' not found.*subscriptions: ", topic, "other", good),
        (pulsar.AdminNotFound, "not found", f"{topic}-missing", "s", good),
        (pulsar.MessageIdNotFound, "trimmed, deleted, or is beyond", topic, "s", [good, MessageId(-1, 1 << 40, 0)]),
        (pulsar.InvalidMessageId, "holds 3 messages.*batch index, 0 to 2", topic, "s", [good, of_batch]),
        (pulsar.InvalidMessageId, "is the id of no message", topic, "s", [good, MessageId.earliest]),
        (pulsar.InvalidMessageId, "is the id of no message", topic, "s", MessageId.latest),
        (pulsar.InvalidMessageId, "'5:7' is not a message id", topic, "s", "5:7"),
        (pulsar.InvalidUse, "is a reader's", topic, readers, good),
        (pulsar.InvalidUse, "is not an id of", f"{parent}-partition-0", "s", MessageId(1, 5, 7)),
        (pulsar.AdminNotAllowed, "pass ids with their partition", parent, "s", MessageId(-1, 5, 7)),
        (pulsar.AdminNotAllowed, "stores nothing", topic.replace("p", "non-p", 1), "s", MessageId(-1, 5, 7)),
    ):
        with pytest.raises(error, match=match):
            client.acknowledge(where, subscription, what)
    index = MessageId(-1, batch.ledger_id(), batch.entry_id(), 3)
    with pytest.raises(pulsar.InvalidMessageId, match="batch index 3 is invalid"):
        client.acknowledge(topic, "s", index)
    assert client.acknowledge(topic, "s", []) == AckResult(0, 0, 0)
    reader.close()
    assert cursor(admin, topic) == before
    assert admin.subscriptions(topic) == ("s",)


@pytest.mark.core
def test_busy_subscription_raises(client, topic, admin):
    """A consumer of an Exclusive subscription, or with sticky key ranges, keeps others from acknowledging."""
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 65_535)])
    for subscription, options in (
        ("exclusive", {}),
        ("sticky", {"consumer_type": ConsumerType.KeyShared, "key_shared_policy": policy}),
    ):
        consumer = client.subscribe(topic, subscription, consumer_name="only", **options)
        message_id = numbered(client, topic, 1)[0]
        for dry_run in (True, False):
            with pytest.raises(pulsar.SubscriptionBusy, match="connected are 'only'") as raised:
                client.acknowledge(topic, subscription, message_id, dry_run=dry_run)
            assert isinstance(raised.value, pulsar.ConsumerBusy)
        assert admin.stats(topic).subscriptions[subscription].backlog_entries == 1
        consumer.close()
        assert client.acknowledge(topic, subscription, message_id) == AckResult(1, 1, 0)
