"""A producer whose batches mix keys says so, once, and only where consumers share the topic by key."""

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
    """A topic that a Key_Shared consumer reads."""
    topic = pulsar_topic_factory(partitions=request.param, broker=broker)
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared)
    return topic


def send_until_known(producer, key):
    """Send until the answer to what was asked in the background is there, and a few messages more."""
    deadline = time.monotonic() + 30
    check = awaited.blocking_of(producer).sender
    while check._mixed_keys is not None and check._mixed_keys._shared in (None, []) and time.monotonic() < deadline:
        producer.send_async(b"", None, **key)
        producer.flush()
    for _ in range(3):
        producer.send_async(b"", None, **key)
    producer.flush()


def warned(producer, key):
    """How often a producer warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        send_until_known(producer, key)
    return [one for one in caught if one.category is pulsar.MixedKeyBatchWarning]


@pytest.mark.core
@pytest.mark.parametrize("key", [{"partition_key": "a"}, {"ordering_key": "a"}, {"partition_key": ""}])
def test_keyed_messages_in_default_batches_warn_once(client, shared_topic, key):
    """Where a topic is shared by key, a message with any key warns, at the line that sends it, with the way out."""
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
def test_what_mixes_nothing_is_silent(client, shared_topic, key, settings):
    """No key, no batches or batches by key: no warning."""
    producer = client.create_producer(shared_topic, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            producer.send(b"", **key)


def test_where_nobody_shares_by_key_it_is_silent(client, topic):
    """A topic whose subscriptions are all of other types is not harmed, and nothing is said."""
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert warned(client.create_producer(topic, **SOON), {"partition_key": "a"}) == []


def test_a_warning_that_is_an_error_sends_nothing_and_is_raised_once(client, topic):
    """Where warnings are errors, the send that finds out raises, and the next one sends."""
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared)
    producer = client.create_producer(topic, **SOON)
    with pytest.raises(pulsar.MixedKeyBatchWarning):
        send_until_known(producer, {"partition_key": "a"})
    assert producer.send(b"2", partition_key="a")
    while (message := consumer.receive(5000)).data() != b"2":
        consumer.acknowledge(message)
