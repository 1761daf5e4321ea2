"""Messages that a broker always rejects: it closes the connection each time, and the C++ producer resends them."""

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
    """Create a topic that accepts only small messages."""
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    else:
        admin.create_topic(topic)
    admin.set_max_message_size(topic, _LARGEST)
    assert eventually(lambda: admin.max_message_size(topic) == _LARGEST)
    admin.unload(topic)  # a topic reads its policies when it is loaded


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize(
    "options", [{}, {"batching_enabled": True}, {"chunking_enabled": True}], ids=["single", "batched", "chunking"]
)
def test_message_rejected_by_topic_times_out(client, admin, topic, options, partitions):
    """The message fails within its send timeout, and the messages sent before and after it arrive."""
    limit(admin, topic, partitions)
    producer = client.create_producer(topic, send_timeout_millis=1000, **options)
    producer.send(b"before")
    with pytest.raises(pulsar.Timeout):
        producer.send(_TOO_LARGE)
    producer.send(b"behind")
    assert set(contents(client, topic)) == {b"before", b"behind"}


def test_rejected_async_message_times_out(client, admin, topic):
    """The callback gets the timeout, and a flush ends."""
    limit(admin, topic, 2)
    producer = client.create_producer(topic, send_timeout_millis=2000)
    results = []
    for content in (b"before", _TOO_LARGE, b"behind"):
        producer.send_async(content, lambda result, _: results.append(result), partition_key="key")
    with contextlib.suppress(pulsar.Timeout):  # from the last partition
        producer.flush()
    assert eventually(lambda: len(results) == 3)
    assert results[1] == pulsar.Result.Timeout
    assert producer.send(b"later").partition() in (0, 1)


def test_deduplicating_producer_breaks_after_rejected_message(
    client_factory, pulsar_broker_factory, pulsar_topic_factory
):
    """The rejected message fails within the send timeout, and later messages raise, because it may be missing."""
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
