"""A completed seek survives a crash of the broker."""

from __future__ import annotations

import pytest
from acked import TYPES, send_plain
from chunked import drain, index_of

import pulsar_ext as pulsar

COUNT = 20


@pytest.mark.parametrize("type_", TYPES)
def test_seek_survives_a_broker_crash(pulsar_own_broker, pulsar_client_factory, type_):
    """Messages acknowledged before a seek are redelivered after it, though the broker is killed."""
    topic = f"persistent://public/default/seek-and-crash-{type_}"
    broker = pulsar_own_broker("plain")
    client = pulsar_client_factory(broker)
    consumer = client.subscribe(topic, "s", type_)
    send_plain(client, topic, COUNT)
    received = drain(consumer.receive, COUNT)
    consumer.acknowledge_many(received[1::2])
    consumer.flush_acks(confirm=True)
    consumer.seek(pulsar.MessageId.earliest)
    broker.kill()
    broker.restart()
    came = set()
    while len(came) < COUNT:
        came.add(index_of(consumer.receive(30_000)))
