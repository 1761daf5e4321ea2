"""Statistics of consumers, producers and clients, and the end of a topic, match the broker's."""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, eventually

import pulsar_ext as pulsar

BOTH_CLIENTS = True

FROM_THE_BEGINNING = {"initial_position": pulsar.InitialPosition.Earliest}


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
def test_consumer_stats_match_the_broker(client, pulsar_topic_factory, broker, partitions):
    """A consumer reports messages, bytes, unacknowledged messages, permits and backlog, summed over partitions."""
    topic = pulsar_topic_factory(partitions=partitions, broker=broker)
    consumer = client.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, consumer_name="mine", receiver_queue_size=50, **FROM_THE_BEGINNING
    )
    send_plain(client, topic, 12)
    messages = drain(consumer.receive, 12)
    consumer.acknowledge_many(messages[:5])
    consumer.flush_acks(confirm=True)
    stats = consumer.stats()
    assert (stats.subscription, stats.consumer_name, stats.is_connected) == ("s", "mine", True)
    assert len(stats.topics) == (partitions or 1)
    assert stats.messages_received == 12
    assert stats.bytes_received >= 12 * 20
    assert (stats.unacked_messages, stats.backlog_entries, stats.pending_acks) == (7, 7, 0)
    assert 0 < stats.available_permits <= 50 * (partitions or 1)
    consumer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.stats()


@pytest.mark.core
@pytest.mark.parametrize("options", [{}, {"batching_enabled": True}, {"chunking_enabled": True}])
@pytest.mark.parametrize("partitions", [0, 2])
def test_producer_stats_match_the_broker(client, pulsar_topic_factory, broker, options, partitions):
    """Each kind of producer reports its names, its connection and its last sequence id."""
    topic = pulsar_topic_factory(partitions=partitions, broker=broker)
    producer = client.create_producer(topic, producer_name="mine", **options)
    stats = producer.stats()
    assert (stats.topic, stats.producer_name, stats.is_connected) == (topic, "mine", True)
    assert (stats.message_rate, stats.byte_rate, stats.average_message_size) == (0, 0, 0)
    producer.send(b"x", sequence_id=7)
    assert partitions or producer.stats().last_sequence_id_published == 7


@pytest.mark.core
def test_client_stats_list_open_handles(client, topic):
    """A client reports open consumers, producers and readers, without closed ones."""
    producer, closed = client.create_producer(topic), client.create_producer(f"{topic}-closed")
    closed.close()
    consumers = [client.subscribe(topic, name) for name in "ab"]
    reader = client.create_reader([topic, f"{topic}-b"], pulsar.MessageId.earliest)
    consumers.pop().close()
    stats = client.stats()
    assert [one.subscription for one in stats.consumers] == ["a"]
    assert [one.producer_name for one in stats.producers] == [producer.producer_name()]
    assert stats.readers == 2
    reader.close()
    assert client.stats().readers == 0


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
def test_end_of_a_terminated_topic_is_reached(client, admin, pulsar_topic_factory, broker, partitions):
    """The end is reached when the topic is terminated and all messages are acknowledged or read, not before."""
    topic = pulsar_topic_factory(partitions=partitions, broker=broker)
    consumer = client.subscribe(topic, "s", **FROM_THE_BEGINNING)
    reader = client.create_reader([topic], pulsar.MessageId.earliest)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    assert len(drain(reader.read_next, 9, quiet_millis=1)) >= 9
    consumer.acknowledge_many(messages[:9])
    consumer.flush_acks(confirm=True)
    assert not consumer.has_reached_end_of_topic()
    assert not reader.has_reached_end_of_topic()
    if partitions:
        admin.terminate_partitions(topic)
    else:
        admin.terminate(topic)
    assert not consumer.has_reached_end_of_topic()
    consumer.acknowledge(messages[9])
    consumer.flush_acks(confirm=True)
    assert eventually(consumer.has_reached_end_of_topic)
    drain(reader.read_next)
    assert reader.has_reached_end_of_topic()
    reader.seek(pulsar.MessageId.earliest)
    assert not reader.has_reached_end_of_topic()


@pytest.mark.core
def test_empty_terminated_topic_has_ended(client, admin, topic):
    """A terminated topic without messages has reached its end."""
    consumer = client.subscribe(topic, "s")
    assert not consumer.has_reached_end_of_topic()
    admin.terminate(topic)
    assert consumer.has_reached_end_of_topic()
