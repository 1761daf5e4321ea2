"""Warnings of producers whose batches mix keys while a Key_Shared consumer reads their topic."""

from __future__ import annotations

import time
import warnings

import awaited
import pytest
from keyed import BATCHING

import pulsar_ext as pulsar

BOTH_CLIENTS = True
SOON = {**BATCHING, "batching_max_publish_delay_ms": 1}


@pytest.fixture(params=[0, 3], ids=["one topic", "three partitions"])
def shared_topic(request, client, broker, pulsar_topic_factory):
    """A topic with a Key_Shared consumer."""
    topic = pulsar_topic_factory(partitions=request.param, broker=broker)
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared)
    return topic


def send_until_known(producer, key):
    """Send until the background query is answered, and a few messages more."""
    deadline = time.monotonic() + 30
    sender = awaited.blocking_of(producer).sender
    check = getattr(sender, "parts", [sender])[0]
    while check._mixed_keys is not None and check._mixed_keys._shared in (None, []) and time.monotonic() < deadline:
        producer.send_async(b"", None, **key)
        producer.flush()
    for _ in range(3):
        producer.send_async(b"", None, **key)
    producer.flush()


def warned(producer, key):
    """Return the mixed-key warnings of a producer."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        send_until_known(producer, key)
    return [warning for warning in caught if warning.category is pulsar.MixedKeyBatchWarning]


@pytest.mark.core
@pytest.mark.parametrize("key", [{"partition_key": "a"}, {"ordering_key": "a"}, {"partition_key": ""}])
def test_keyed_messages_in_mixed_batches_warn_once(client, shared_topic, key):
    """On a topic with a Key_Shared consumer, a message with any key warns at the line that sends it."""
    [caught] = warned(client.create_producer(shared_topic, **SOON), key)
    assert "KeyBased" in str(caught.message)
    assert caught.filename in (__file__, awaited.__file__)


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ({}, SOON),
        ({"partition_key": "a"}, {}),
        ({"partition_key": "a"}, {**SOON, "batching_type": pulsar.BatchingType.KeyBased}),
    ],
)
def test_unmixed_batches_do_not_warn(client, shared_topic, key, settings):
    """Messages without keys, unbatched and key-based producers do not warn."""
    producer = client.create_producer(shared_topic, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            producer.send(b"", **key)


def test_no_warning_without_key_shared_consumer(client, topic):
    """A topic without a Key_Shared subscription causes no warning."""
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert warned(client.create_producer(topic, **SOON), {"partition_key": "a"}) == []


def test_warning_as_error_is_raised_once(client, topic):
    """With warnings as errors, the send that detects the problem raises, and the next one sends."""
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared)
    producer = client.create_producer(topic, **SOON)
    with pytest.raises(pulsar.MixedKeyBatchWarning):
        send_until_known(producer, {"partition_key": "a"})
    assert producer.send(b"2", partition_key="a")
    while (message := consumer.receive(5000)).data() != b"2":
        consumer.acknowledge(message)
