"""Dead connections, and brokers that do not know the consumer yet: lost acknowledgements are resent."""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, eventually

import pulsar_ext as pulsar

COUNT = 60


@pytest.mark.core(slow="a connection is dead until a timeout")
@pytest.mark.parametrize("partitions", [0, 2])
def test_acks_on_a_dead_connection_are_resent(pulsar_fault_proxy, client_factory, broker, admin, topic, partitions):
    """Sixty messages acknowledged on a connection that swallows everything for seconds leave no backlog.

    A consumer of several partitions cannot probe the broker, and keeps acknowledgements for a fixed time.
    """
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    proxy = pulsar_fault_proxy(broker)
    consumer = client_factory(broker, service_url=proxy.service_url).subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_plain(client_factory(broker), topic, COUNT)
    received = drain(consumer.receive, COUNT)
    assert len(received) == COUNT
    proxy.pause()
    for message in received:
        consumer.acknowledge(message)
        eventually(lambda: False, 0.06)
    proxy.cut()
    proxy.resume()
    topics = [f"{topic}-partition-{index}" for index in range(partitions)] or [topic]
    assert eventually(lambda: all(admin.stats(one).subscriptions["s"].backlog_entries == 0 for one in topics))


@pytest.mark.parametrize("partitions", [0, 1])
@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_acks_before_broker_knows_consumer_are_resent(
    pulsar_fault_proxy, client_factory, broker, admin, topic, partitions, kind
):
    """Acknowledgements leave no backlog if the broker knows the consumer only four seconds after a reconnection.

    The C++ client sends acknowledgements before that, and the broker drops them.
    """
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    proxy = pulsar_fault_proxy(broker)
    consumer = client_factory(broker, service_url=proxy.service_url).subscribe(topic, "s", kind)
    send_plain(client_factory(broker), topic, COUNT)
    received = drain(consumer.receive, COUNT)
    proxy.delay(1.0, direction="to_broker")
    for message in received:
        consumer.acknowledge(message)
    proxy.cut()
    assert eventually(lambda: not consumer.is_connected())
    assert eventually(consumer.is_connected, 20)
    proxy.pause("to_broker")  # while the consumer is being registered
    eventually(lambda: False, 4.0)
    proxy.heal()
    name = f"{topic}-partition-0" if partitions else topic
    assert eventually(lambda: admin.stats(name).subscriptions["s"].backlog_entries == 0)
