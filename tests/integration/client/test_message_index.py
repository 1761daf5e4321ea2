"""The index of a message."""

from __future__ import annotations

import pytest
from chunked import payload
from indexes import INDEXES

import pulsar_ext as pulsar

BOTH_CLIENTS = True


@pytest.fixture
def broker(pulsar_broker_factory):
    """Return a broker that counts messages."""
    return pulsar_broker_factory(INDEXES)


@pytest.mark.core
def test_index_counts_messages(client, topic, admin):
    """Single messages, each one of a batch and each chunk count, and the broker finds the entry of each index."""
    single = client.create_producer(topic)
    single.send(b"0")
    for compression in (pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4):
        batched = client.create_producer(topic, batching_enabled=True, compression_type=compression)
        batched.send_many([b"b"] * 3)
    client.create_producer(topic, chunking_enabled=True).send(payload(7))
    single.send(b"end")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    expected = [*range(7), 9, 10]
    received = [consumer.receive(10_000) for _ in expected]
    assert [one.index() for one in received] == expected
    assert [reader.read_next(10_000).index() for _ in expected] == expected
    for one in received:
        at = one.message_id()
        assert admin.message_id_by_index(topic, one.index()) == (at.ledger_id(), at.entry_id())


@pytest.mark.core
def test_broker_without_index(client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """A message of a broker that counts nothing has no index."""
    broker = pulsar_broker_factory("small-chunks")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    assert consumer.receive(10_000).index() is None
