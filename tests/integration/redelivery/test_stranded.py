"""Chunked messages that a consumer left half received: they come, to the same consumer or to the next one."""

from __future__ import annotations

import time

import pulsar as official
import pytest
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

SHARED = pulsar.ConsumerType.Shared
ROUNDS, SIZE = 10, 10_000_000
STEP_SECONDS = 0.002


def _strand(clients, broker, producer, topics):
    """Subscribe to each topic with a client that ends, sooner or later, in the midst of its message."""
    for round_, topic in enumerate(topics):
        client = clients(broker)
        client.subscribe(topic, "s", SHARED)
        producer(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        client.close()


def _is_stranded(admin, topic):
    stats = admin.stats(topic, precise_backlog=True).subscriptions["s"]
    return stats.consumers and stats.backlog_entries > stats.held_messages


@pytest.fixture
def topics(topic):
    """A topic for each round."""
    return [f"{topic}-{round_}" for round_ in range(ROUNDS)]


def _producing(client):
    return lambda topic: client.create_producer(topic, chunking_enabled=True)


def test_what_a_restarted_consumer_had_half_comes_to_the_next_one(client_factory, broker, client, topics):
    """Ten consumers end sooner and later amid a message of a hundred chunks; each next one gets it, whole."""
    _strand(client_factory, broker, _producing(client), topics)
    consumers = [client.subscribe(topic, "s", SHARED) for topic in topics]
    assert [index_of(consumer.receive(20_000)) for consumer in consumers] == list(range(ROUNDS))


def test_other_consumers_are_named_as_what_keeps_a_message(
    client_factory, pulsar_client_factory, broker, client, admin, topics, caplog
):
    """While another consumer keeps the broker from beginning anew, the log says so; when it has left, all come."""
    _strand(client_factory, broker, _producing(client), topics)
    others = official.Client(broker.service_url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    held = {topic: others.subscribe(topic, "s", SHARED, receiver_queue_size=1) for topic in topics}
    stranded = [topic for topic in topics if not eventually(lambda t=topic: not _is_stranded(admin, t), 0.5)]
    ours = {topic: client.subscribe(topic, "s", SHARED) for topic in topics}
    try:
        assert eventually(lambda: sum("other consumers keep it" in text for text in caplog.messages) >= len(stranded))
    finally:
        others.close()
    assert stranded, "no message was stranded: nothing was shown"
    del held
    assert all(index_of(ours[topic].receive(60_000)) == topics.index(topic) for topic in stranded)


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, SHARED])
def test_what_a_lost_connection_halved_comes_whole(
    pulsar_fault_proxy, pulsar_client_factory, broker, client, topic, type_
):
    """Connections are cut six times sooner and later amid a message of a hundred chunks; every message comes."""
    proxy = pulsar_fault_proxy(broker)
    consumer = pulsar_client_factory(broker, service_url=proxy.service_url).subscribe(topic, "s", type_)
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(payload(0))
    consumer.acknowledge(consumer.receive(10_000))
    came = set()

    def comes(index):
        messages = consumer.receive_many(10, 200)
        came.update(map(index_of, messages))
        consumer.acknowledge_many(messages)
        return index in came

    for round_ in range(1, 7):
        producer.send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        proxy.cut()
        assert eventually(lambda index=round_: comes(index))


def test_what_a_seek_halved_on_a_shared_subscription_comes_whole(client_factory, broker, client, topics):
    """Ten seeks to a message of a hundred chunks, sooner and later amid it, bring each of them."""
    for round_, topic in enumerate(topics):
        consumer = client_factory(broker).subscribe(topic, "s", SHARED, start_message_id_inclusive=True)
        message_id = _producing(client)(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        consumer.seek(message_id)
        assert index_of(consumer.receive(10_000)) == round_


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_what_a_redelivery_halved_comes_whole(client_factory, broker, client, topics, type_):
    """Ten redeliveries that are asked for sooner and later amid a message of a hundred chunks bring each of them."""
    for round_, topic in enumerate(topics):
        consumer = client_factory(broker).subscribe(topic, "s", type_)
        _producing(client)(topic).send(payload(round_, SIZE))
        time.sleep(round_ * STEP_SECONDS)
        consumer.redeliver_unacknowledged_messages()
        assert index_of(consumer.receive(10_000)) == round_


@pytest.mark.parametrize("partitions", [0, 2])
def test_chunks_without_their_beginning_leave_the_backlog(client, broker, admin, topic, partitions):
    """Of a message whose first chunk alone is acknowledged the others are too, and of no other message a chunk is."""
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
        topic += "-partition-1"
    ids = [_producing(client)(topic).send(payload(index)) for index in range(3)]
    plain = official.Client(broker.service_url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    exclusive = plain.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    first = ids[1].first_chunk_message_id()
    exclusive.acknowledge(official.MessageId(-1, first.ledger_id(), first.entry_id(), -1))
    assert eventually(lambda: admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 8)
    plain.close()
    consumer = client.subscribe(topic, "s", SHARED)
    assert {index_of(message) for message in drain(consumer.receive, 2)} == {0, 2}
    assert eventually(lambda: admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 6)
