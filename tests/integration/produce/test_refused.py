"""Messages that a broker refuses for good: the connection ends each time, and the C++ producer sends them again."""

from __future__ import annotations

import contextlib

import pytest
from chunked import eventually
from stored import contents

import pulsar_ext as pulsar

BOTH_CLIENTS = True

_LARGEST = 1000
_TOO_LARGE = b"x" * 2000


def limit(admin, topic, partitions=0):
    """Make a topic that takes small messages only."""
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    else:
        admin.create_topic(topic)
    admin.set_max_message_size(topic, _LARGEST)
    assert eventually(lambda: admin.max_message_size(topic) == _LARGEST)
    admin.unload(topic)  # it knows its policies as it is loaded


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize(
    "options", [{}, {"batching_enabled": True}, {"chunking_enabled": True}], ids=["single", "batched", "chunking"]
)
def test_a_message_that_its_topic_does_not_take_times_out(client, admin, topic, options, partitions):
    """It fails within its send timeout, the producer goes on, and what is sent before and behind it arrives."""
    limit(admin, topic, partitions)
    producer = client.create_producer(topic, send_timeout_millis=2000, **options)
    producer.send(b"before")
    with pytest.raises(pulsar.Timeout):
        producer.send(_TOO_LARGE)
    producer.send(b"behind")
    assert set(contents(client, topic)) == {b"before", b"behind"}


def test_what_was_sent_without_waiting_times_out(client, admin, topic):
    """Its callback says so, as those of what waits behind it, and a flush ends."""
    limit(admin, topic, 2)
    producer = client.create_producer(topic, send_timeout_millis=2000)
    results = []
    for content in (b"before", _TOO_LARGE, b"behind"):
        producer.send_async(content, lambda result, _: results.append(result), partition_key="key")
    with contextlib.suppress(pulsar.Timeout):  # of the partition that ends last
        producer.flush()
    assert eventually(lambda: len(results) == 3)
    assert results[1] == pulsar.Result.Timeout
    assert producer.send(b"later").partition() in (0, 1)


def test_an_effectively_once_producer_says_that_it_does_not_know(
    client_factory, pulsar_broker_factory, pulsar_topic_factory
):
    """Its refused message fails within the send timeout, and nothing may follow what may be missing."""
    broker = pulsar_broker_factory("dedup")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    limit(client.context.admin_api(), topic)
    producer = client.create_producer(topic, "name", send_timeout_millis=2000, deduplication=True)
    producer.send(b"before")
    with pytest.raises(pulsar.Timeout):
        producer.send(_TOO_LARGE)
    with pytest.raises(pulsar.ProducerBroken):
        producer.send(b"behind")
    assert contents(client, topic) == [b"before"]
