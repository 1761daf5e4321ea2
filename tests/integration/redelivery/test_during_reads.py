"""Redelivery on Exclusive and Failover subscriptions while the broker reads for the consumer: no message is skipped."""

from __future__ import annotations

import contextlib
import time

import pytest
from chunked import index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
COUNT, ATTEMPTS = 1_000, 8
"""Enough messages for longer than the delay; whether the broker reads at that moment is a matter of chance."""
TIMEOUT_MILLIS = 10_000


def _acknowledge_each(consumer, quiet_millis):
    """Receive and acknowledge until no message arrives for a while; yield the indexes."""
    with contextlib.suppress(pulsar.Timeout):
        while True:
            message = consumer.receive(quiet_millis)
            consumer.acknowledge(message)
            yield index_of(message)


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_nack_during_reads_skips_no_message(client, topic, type_):
    """A negative acknowledgement while other messages arrive redelivers that message and skips none."""
    for attempt in range(ATTEMPTS):
        producer = client.create_producer(f"{topic}-{attempt}", block_if_queue_full=True)
        for index in range(COUNT):
            producer.send_async(payload(index, 20), None)
        producer.flush()
        with contextlib.closing(
            client.subscribe(
                f"{topic}-{attempt}",
                "s",
                type_,
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=5,
                negative_ack_redelivery_delay_ms=100,
            )
        ) as consumer:
            consumer.negative_acknowledge(consumer.receive(10_000))
            missing = set(range(COUNT))
            for index in _acknowledge_each(consumer, 3_000):
                missing.discard(index)
                if not missing:
                    break
            assert not missing


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
@pytest.mark.parametrize("settings", [{}, {"batching_enabled": True}])
def test_timeout_during_reads_skips_no_message(client, topic, type_, settings):
    """A message that times out while others arrive is redelivered, and none is skipped."""
    producer = client.create_producer(topic, block_if_queue_full=True, **settings)
    with contextlib.closing(
        client.subscribe(topic, "s", type_, receiver_queue_size=5, unacked_messages_timeout_ms=TIMEOUT_MILLIS)
    ) as consumer:
        producer.send(payload(0, 20))
        sent, received, deadline = 1, [index_of(consumer.receive(10_000))], time.monotonic() + 2 * TIMEOUT_MILLIS / 1000
        while time.monotonic() < deadline:
            for _ in range(5):
                producer.send_async(payload(sent, 20), None)
                sent += 1
            received += _acknowledge_each(consumer, 2)
        producer.flush()
        received += _acknowledge_each(consumer, 3_000)
        assert received.count(0) == 2
        assert set(received) == set(range(sent))


@pytest.mark.parametrize("partitions", [0, 2])
def test_acknowledged_messages_do_not_time_out(client, broker, pulsar_topic_factory, partitions):
    """Single, cumulative and chunked acknowledgements, also on partitions, leave no message that times out."""
    topic = pulsar_topic_factory(broker=broker, partitions=partitions)
    producer = client.create_producer(topic, chunking_enabled=True)
    with contextlib.closing(
        client.subscribe(topic, "s", pulsar.ConsumerType.Exclusive, unacked_messages_timeout_ms=TIMEOUT_MILLIS)
    ) as consumer:
        for index, size in enumerate([20, 11_000_000, 20, 20, 20]):
            producer.send(payload(index, size))
        messages = [consumer.receive(10_000) for _ in range(5)]
        inner = getattr(consumer, "blocking", consumer).inner
        consumer.acknowledge(messages[0])
        consumer.acknowledge(messages[1])
        consumer.acknowledge_cumulative(messages[3])
        consumer.acknowledge(messages[2])
        consumer.acknowledge(messages[4].message_id())
        with pytest.raises(pulsar.Timeout):
            consumer.receive(TIMEOUT_MILLIS + 3_000)
        assert getattr(consumer, "blocking", consumer).inner is inner
