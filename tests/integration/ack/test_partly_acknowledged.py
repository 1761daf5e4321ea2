"""Batches that the broker knows as partly acknowledged, and consumers that acknowledge whole batches."""

from __future__ import annotations

import pytest
from acked import TYPES, send_batches
from chunked import drain, eventually, index_of
from indexes import INDEXES

import pulsar_ext as pulsar

BOTH_CLIENTS = True


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker that keeps acknowledgements inside batches."""
    return pulsar_broker_factory(INDEXES)


def backlog(admin, topic):
    """Return the number of unacknowledged entries."""
    return admin.stats(topic).subscriptions["s"].backlog_entries


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES)
def test_rest_of_anothers_batch_completes_it(client, admin, topic, type_):
    """A batch is complete after one consumer acknowledged four of its messages and another one the other six."""
    before = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
    send_batches(client, topic, 2, 10)
    messages = drain(before.receive, 20)
    before.acknowledge_many([messages[index] for index in (1, 3, 4, 9)])
    before.flush_acks(confirm=True)
    before.close()
    consumer = client.subscribe(topic, "s", type_)
    rest = drain(consumer.receive, 16)
    assert {index_of(one) for one in rest} == set(range(20)) - {1, 3, 4, 9}
    consumer.acknowledge_many(rest)
    assert eventually(lambda: backlog(admin, topic) == 0)
    consumer.close()
    assert drain(client.subscribe(topic, "s", type_).receive) == []


def test_confirmed_flush_completes_a_batch_at_once(client, admin, topic):
    """A confirmed flush sends the acknowledged part of a batch, which completes the entry at once."""
    consumer = client.subscribe(topic, "s")
    consumer.close()
    send_batches(client, topic, 2, 10)
    assert client.skip_messages(topic, "s", 4).skipped_messages == 4
    consumer = client.subscribe(topic, "s")
    rest = drain(consumer.receive, 16)
    assert {index_of(one) for one in rest} == set(range(4, 20))
    for message in rest:
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    assert backlog(admin, topic) == 0


@pytest.mark.parametrize("type_", TYPES)
def test_close_sends_partial_batch(client, topic, type_):
    """A part of a batch acknowledged just before a close is not redelivered; the rest is."""
    consumer = client.subscribe(topic, "s", type_)
    send_batches(client, topic, 1, 10)
    consumer.acknowledge_many(drain(consumer.receive, 10)[:4])
    consumer.close()
    again = drain(client.subscribe(topic, "s", type_).receive, 6)
    assert [index_of(one) for one in again] == list(range(4, 10))


def test_flush_sends_partial_batch(client, topic):
    """After `flush_acks()` a redelivery brings only the unacknowledged messages of a batch."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_batches(client, topic, 1, 10)
    consumer.acknowledge_many(drain(consumer.receive, 10)[:4])
    consumer.flush_acks()
    consumer.redeliver_unacknowledged_messages()
    assert [index_of(one) for one in drain(consumer.receive, 6)] == list(range(4, 10))
