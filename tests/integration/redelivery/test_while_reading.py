"""Redelivery on Exclusive and Failover subscriptions while the broker reads for the consumer: nothing is left out."""

from __future__ import annotations

import contextlib

import pytest
from chunked import index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
COUNT, ATTEMPTS = 1_000, 8
"""Enough to be received for longer than the delay; whether the broker reads at that moment is a matter of luck."""


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_a_nack_amid_messages_that_come_leaves_none_out(client, topic, type_):
    """Where one of many messages is refused while the others come, each of them comes, and that one again."""
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
            with contextlib.suppress(pulsar.Timeout):
                while missing:
                    message = consumer.receive(3_000)
                    consumer.acknowledge(message)
                    missing.discard(index_of(message))
            assert not missing
