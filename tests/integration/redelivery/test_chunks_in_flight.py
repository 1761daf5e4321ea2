"""Redelivery with chunks in flight: every message is redelivered whole."""

from __future__ import annotations

import pytest
from chunked import drain, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
COUNT, SIZE = 12, 4_000_000


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
@pytest.mark.parametrize("how", ["nack", "redeliver"])
def test_redelivery_with_chunks_in_flight_is_complete(client, topic, type_, how):
    """All of twelve messages of forty chunks arrive after a redelivery requested with the first one."""
    producer = client.create_producer(topic, chunking_enabled=True)
    ids = [producer.send(payload(index, SIZE)) for index in range(COUNT)]
    assert all(isinstance(one, pulsar.ChunkMessageId) for one in ids)
    consumer = client.subscribe(
        topic,
        "s",
        type_,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=200,
        negative_ack_redelivery_delay_ms=100,
    )
    first = consumer.receive(10_000)
    if how == "nack":
        consumer.negative_acknowledge(first)
    else:
        consumer.redeliver_unacknowledged_messages()
    assert {index_of(message) for message in drain(consumer.receive, COUNT, 5_000)} == set(range(COUNT))
