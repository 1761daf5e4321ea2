"""An operator moves a cursor back under a consumer: what is behind it is delivered again, and can be done again."""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

COUNT = 100


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_a_reset_under_cumulative_acknowledgements(client, admin, topic, type_):
    """All hundred messages, acknowledged as one position, come again after a reset to the beginning, and are done."""
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, COUNT)
    consumer.acknowledge_cumulative([consumer.receive(10_000) for _ in range(COUNT)][-1])
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.5)  # what left longer ago than a second is not sent again
    admin.reset_cursor(topic, "s", "earliest")
    again = drain(consumer.receive, COUNT)
    assert {index_of(one) for one in again} == set(range(COUNT))
    consumer.acknowledge_cumulative(again[-1])
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 0


@pytest.mark.core
@pytest.mark.parametrize("waits", [0, 0.3, 1.0])
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_a_reset_at_once(client, admin, topic, type_, waits):
    """What left within the last second, and nobody confirmed, is not sent again behind a reset: all come again."""
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, COUNT)
    consumer.acknowledge_cumulative(consumer.receive(10_000))
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.0)  # it is looked at who the broker lists when the first position has left
    for message in drain(consumer.receive, COUNT - 1):
        consumer.acknowledge_cumulative(message)
    consumer.flush_acks()
    eventually(lambda: False, waits)
    admin.reset_cursor(topic, "s", "earliest")
    again = drain(consumer.receive, COUNT)
    assert {index_of(one) for one in again} == set(range(COUNT))
    consumer.acknowledge_cumulative(again[-1])
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic).subscriptions["s"].backlog_entries == 0


def test_a_reset_that_a_consumer_is_slow_to_come_back_from(pulsar_fault_proxy, client_factory, broker, admin, topic):
    """The broker has closed the consumer, and for long lists none: what left before is not sent again behind it."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, COUNT)
    consumer.acknowledge_cumulative(consumer.receive(10_000))
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.0)  # it is looked at who the broker lists when the first position has left
    consumer.acknowledge_cumulative(drain(consumer.receive, COUNT - 1)[-1])
    consumer.flush_acks()
    assert eventually(lambda: not admin.stats(topic).subscriptions["s"].backlog_entries)
    proxy.delay(0.4)
    admin.reset_cursor(topic, "s", "earliest")
    assert {index_of(one) for one in drain(consumer.receive, COUNT)} == set(range(COUNT))


def test_a_reset_while_messages_keep_coming(client, admin, topic):
    """Messages come and are acknowledged all the time: the first hundred come again all the same."""
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    indexes = iter(range(1_000_000))
    came = []

    def one_more():
        producer.send(payload(next(indexes), 20))
        message = consumer.receive(10_000)
        came.append(index_of(message))
        consumer.acknowledge_cumulative(message)

    for _ in range(COUNT):
        one_more()
    admin.reset_cursor(topic, "s", "earliest")
    before = len(came)
    assert eventually(lambda: (one_more(), set(range(COUNT)) <= set(came[before:]))[1], 60)


@pytest.mark.through
def test_a_reset_on_one_of_several_partitions(client, admin, topic):
    """Of a topic with three partitions, what was reset comes again, and nothing is left behind."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    ids = [producer.send(payload(index, 20)) for index in range(30)]
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    last = {message.message_id().partition(): message for message in drain(consumer.receive, 30)}
    for message in last.values():
        consumer.acknowledge_cumulative(message)
    consumer.flush_acks(confirm=True)
    eventually(lambda: False, 1.5)  # what left longer ago than a second is not sent again
    admin.reset_cursor(f"{topic}-partition-1", "s", "earliest")
    wanted = {index for index, one in enumerate(ids) if one.partition() == 1}
    again = drain(consumer.receive, len(wanted))
    assert {index_of(one) for one in again} >= wanted
    for message in again:
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    parts = [f"{topic}-partition-{index}" for index in range(3)]
    assert all(admin.stats(one).subscriptions["s"].backlog_entries == 0 for one in parts)
