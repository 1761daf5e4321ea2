"""The index of a message."""

from __future__ import annotations

import pytest
from chunked import drain, eventually, payload
from indexes import INDEXES

import pulsar_ext as pulsar
from pulsar_ext.admin import Retention
from pulsar_ext.ids.topic_name import TopicName

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
def test_id_by_index_chooses_the_message(client, topic, admin):
    """The id of an index is that of its message, in a batch or chunked, and a reader begins there."""
    client.create_producer(topic).send(b"0")
    client.create_producer(topic, batching_enabled=True).send_many([b"1", b"2", b"3"])
    client.create_producer(topic, batching_enabled=True).send_many([b"4"])
    client.create_producer(topic, chunking_enabled=True).send(payload(7))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(6)]
    for one in messages:
        found = client.message_id_by_index(topic, one.index())
        assert found == one.message_id()
        begun = client.create_reader(topic, found, start_message_id_inclusive=True)
        assert begun.read_next(10_000).data() == one.data()
        begun.close()
    assert client.message_id_by_index(topic, 5) == messages[5].message_id(), "the index of its first chunk"
    with pytest.raises(pulsar.AdminNotFound):
        client.message_id_by_index(topic, 8)
    with pytest.raises(pulsar.InvalidUse, match="index must be an int"):
        client.message_id_by_index(topic, -1)


@pytest.mark.core
def test_trimmed_index_raises(client, topic, admin, broker):
    """An index whose message was trimmed has no id, although the broker names another entry."""
    producer = client.create_producer(topic)
    admin.set_retention(TopicName.parse(topic).namespace_name, Retention(0, 0))
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(11):  # a ledger has ten entries
        producer.send(b"x")
    for message in drain(consumer.receive, 11):
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)

    def is_trimmed():
        admin.trim(topic)
        return len(admin.internal_stats(topic).ledgers) == 1

    assert eventually(is_trimmed)
    with pytest.raises(pulsar.MessageIdNotFound, match=r"index 3 found.*trimmed"):
        client.message_id_by_index(topic, 3)


@pytest.mark.core
def test_broker_without_index(client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """A message of a broker that counts nothing has no index."""
    broker = pulsar_broker_factory("small-chunks")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    assert consumer.receive(10_000).index() is None
