"""Acknowledgements inside batches."""

from __future__ import annotations

import contextlib
import random

import pytest
from acked import TYPES, cursor_of, send_batches
from chunked import drain, index_of
from indexes import INDEXES

import pulsar_ext as pulsar
from pulsar_ext import MessageId

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared
EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}


@pytest.mark.core
@pytest.mark.parametrize("form", ["live", "deserialized", "rebuilt"])
def test_batch_id_acknowledges_only_its_message(client, topic, admin, form):
    """An entry is acknowledged only when all its messages are, by ids of any form."""
    consumer = client.subscribe(topic, "s")
    send_batches(client, topic, 2)
    messages = drain(consumer.receive, 10)
    ids = [message.message_id() for message in messages]
    if form == "deserialized":
        ids = [MessageId.deserialize(one.serialize()) for one in ids]
    elif form == "rebuilt":
        ids = [MessageId(-1, one.ledger_id(), one.entry_id(), one.batch_index()) for one in ids]
    for one in ids[:4]:
        consumer.acknowledge(one)
    with pytest.raises(pulsar.AckNotConfirmed) as error:
        consumer.flush_acks(confirm=True, timeout_ms=300)
    assert error.value.missing == [one.to_text() for one in ids[:4]]
    assert cursor_of(admin, topic) == set()
    consumer.acknowledge(ids[4])
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == {0}
    consumer.acknowledge_cumulative(ids[7])
    consumer.acknowledge(ids[9])
    consumer.acknowledge(ids[8])
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == {0, 1}


@pytest.mark.core
def test_seek_drops_earlier_partial_acks(client, topic, admin):
    """A part of a batch acknowledged before a seek does not complete the batch after it."""
    consumer = client.subscribe(topic, "s")
    send_batches(client, topic, 1, 3)
    for message in drain(consumer.receive, 3)[:2]:
        consumer.acknowledge(message)
    consumer.seek(MessageId.earliest)
    consumer.acknowledge(drain(consumer.receive, 3)[2])
    with pytest.raises(pulsar.AckNotConfirmed):
        consumer.flush_acks(confirm=True, timeout_ms=300)
    assert cursor_of(admin, topic) == set()


class TestBatchIndexes:
    """Acknowledgements on a broker that keeps them inside batches."""

    @pytest.fixture
    def broker(self, pulsar_broker_factory):
        """A broker that keeps acknowledgements inside batches."""
        return pulsar_broker_factory(INDEXES)

    @pytest.mark.core
    @pytest.mark.parametrize("type_", TYPES)
    def test_acked_messages_of_a_batch_are_not_redelivered(self, client, topic, type_):
        """A confirmed flush keeps partial acknowledgements by ids of any form over a new connection."""
        consumer = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
        send_batches(client, topic, 2)
        ids = [message.message_id() for message in drain(consumer.receive, 10)]
        consumer.acknowledge(ids[1])
        consumer.acknowledge(MessageId.deserialize(ids[3].serialize()))
        consumer.acknowledge(MessageId(-1, ids[7].ledger_id(), ids[7].entry_id(), ids[7].batch_index()))
        consumer.flush_acks(confirm=True)
        consumer.close()
        consumer = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
        again = drain(consumer.receive, 7)
        assert sorted(index_of(message) for message in again) == [0, 2, 4, 5, 6, 8, 9]
        consumer.acknowledge_many(again)
        consumer.flush_acks(confirm=True)
        consumer.close()
        assert drain(client.subscribe(topic, "s", type_).receive) == []

    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("partitions", [0, 2])
    def test_random_acks_reach_the_cursor_exactly(self, client, pulsar_topic_factory, broker, seed, partitions):
        """Any mix of receiving methods, consumers and redeliveries acknowledges exactly the chosen messages."""
        topic = pulsar_topic_factory(partitions=partitions, broker=broker)
        chance = random.Random(seed)
        send_batches(client, topic, 8, 7)
        left = set(range(56))
        for _ in range(3):
            consumers = [client.subscribe(topic, "s", SHARED, **EARLIEST, batch_index_ack_enabled=True) for _ in "ab"]
            got = []
            with contextlib.suppress(pulsar.Timeout):
                while len(got) < 60:
                    one = chance.choice(consumers)
                    how = chance.choice(["one", "one", "one", "many", "soon"])
                    if how == "one":
                        got.append(one.receive(300))
                    elif how == "many":
                        got += one.receive_many(chance.randrange(1, 9), 100)
                    else:
                        got.append(one.receive(50))
            for message in got:
                if index_of(message) in left and chance.random() < 0.7:
                    chance.choice(consumers).acknowledge(message)
                    left.discard(index_of(message))
            for consumer in consumers:
                consumer.flush_acks(confirm=True)
                consumer.close()
        again = drain(client.subscribe(topic, "s", SHARED).receive, len(left))
        assert {index_of(message) for message in again} == left


def test_part_lost_by_a_killed_broker_is_resent(pulsar_own_broker, pulsar_client_factory):
    """A part acknowledged before the crash is acknowledged after it too, so that no other consumer receives it."""
    topic = "persistent://public/default/forgotten-part"
    broker = pulsar_own_broker("batch-index-acks")
    client = pulsar_client_factory(broker)
    consumer = client.subscribe(topic, "s", SHARED, batch_index_ack_enabled=True)
    send_batches(client, topic, 1, 3)
    consumer.acknowledge(drain(consumer.receive, 3)[0])
    consumer.flush_acks(confirm=True)
    broker.kill()
    broker.restart()
    again = drain(consumer.receive, 3)
    assert [index_of(message) for message in again[-2:]] == [1, 2]
    for message in again[:-2]:  # redelivered unless the consumer still remembers its acknowledgement
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    consumer.close()
    other = client.subscribe(topic, "s", SHARED)
    assert [index_of(message) for message in drain(other.receive, 2)] == [1, 2]
