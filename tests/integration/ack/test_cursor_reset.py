"""An operator moves a cursor back under a consumer: the messages after it are redelivered and can be acknowledged."""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

COUNT = 100


@pytest.mark.core
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_reset_after_cumulative_ack_redelivers_all(client, admin, topic, type_):
    """All hundred messages acknowledged cumulatively are redelivered after a reset, and can be acknowledged."""
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, COUNT)
    consumer.acknowledge_cumulative([consumer.receive(10_000) for _ in range(COUNT)][-1])
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.5)  # acknowledgements sent more than a second ago are not resent
    admin.reset_cursor(topic, "s", "earliest")
    again = drain(consumer.receive, COUNT)
    assert {index_of(one) for one in again} == set(range(COUNT))
    consumer.acknowledge_cumulative(again[-1])
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 0


@pytest.mark.core
@pytest.mark.parametrize("pause", [0, 0.3, 1.0])
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_reset_right_after_acks_redelivers_all(client, admin, topic, type_, pause):
    """Unconfirmed acknowledgements of the last second are not resent after a reset: all messages are redelivered."""
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, COUNT)
    consumer.acknowledge_cumulative(consumer.receive(10_000))
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.0)  # the broker's list of consumers is read after the first position was sent
    for message in drain(consumer.receive, COUNT - 1):
        consumer.acknowledge_cumulative(message)
    consumer.flush_acks()
    eventually(lambda: False, pause)
    admin.reset_cursor(topic, "s", "earliest")
    again = drain(consumer.receive, COUNT)
    assert {index_of(one) for one in again} == set(range(COUNT))
    consumer.acknowledge_cumulative(again[-1])
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 0


def test_reset_with_slow_reconnection_redelivers_all(pulsar_fault_proxy, client_factory, broker, admin, topic):
    """Acknowledgements are not resent after a reset although the broker lists no consumer for a while."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, COUNT)
    consumer.acknowledge_cumulative(consumer.receive(10_000))
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.0)  # the broker's list of consumers is read after the first position was sent
    consumer.acknowledge_cumulative(drain(consumer.receive, COUNT - 1)[-1])
    consumer.flush_acks()
    assert eventually(lambda: not admin.stats(topic).subscriptions["s"].backlog_entries)
    proxy.delay(0.4)
    admin.reset_cursor(topic, "s", "earliest")
    assert {index_of(one) for one in drain(consumer.receive, COUNT)} == set(range(COUNT))


def test_reset_during_traffic_redelivers_all(client, admin, topic):
    """The first hundred messages are redelivered while more are received and acknowledged."""
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    indexes = iter(range(1_000_000))
    received = []

    def send_and_acknowledge_one():
        producer.send(payload(next(indexes), 20))
        message = consumer.receive(10_000)
        received.append(index_of(message))
        consumer.acknowledge_cumulative(message)

    for _ in range(COUNT):
        send_and_acknowledge_one()
    admin.reset_cursor(topic, "s", "earliest")
    before = len(received)
    assert eventually(lambda: (send_and_acknowledge_one(), set(range(COUNT)) <= set(received[before:]))[1], 60)


@pytest.mark.through
def test_reset_of_one_partition_redelivers_it(client, admin, topic):
    """The messages of the reset partition, one of three, are redelivered, and no backlog remains."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    ids = [producer.send(payload(index, 20)) for index in range(30)]
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    last = {message.message_id().partition(): message for message in drain(consumer.receive, 30)}
    for message in last.values():
        consumer.acknowledge_cumulative(message)
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.5)  # acknowledgements sent more than a second ago are not resent
    admin.reset_cursor(f"{topic}-partition-1", "s", "earliest")
    wanted = {index for index, one in enumerate(ids) if one.partition() == 1}
    again = drain(consumer.receive, len(wanted))
    assert {index_of(one) for one in again} >= wanted
    for message in again:
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    parts = [f"{topic}-partition-{index}" for index in range(3)]
    assert all(admin.stats(one).subscriptions["s"].backlog_entries == 0 for one in parts)
