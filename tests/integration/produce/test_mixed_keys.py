"""A producer whose batches mix keys says so, once."""

from __future__ import annotations

import warnings

import awaited
import pytest
from keyed import BATCHING

import pulsar_ext as pulsar

BOTH_CLIENTS = True


def warned(client, topic, key, **settings):
    """How often a producer of these settings warns over three messages, by both ways to send."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        producer = client.create_producer(topic, **settings)
        for _ in range(3):
            producer.send_async(b"", None, **key)
        producer.flush()
        assert isinstance(awaited.blocking_of(producer), pulsar.Producer)
    return [one for one in caught if one.category is pulsar.MixedKeyBatchWarning]


@pytest.mark.parametrize("key", [{"partition_key": "a"}, {"ordering_key": "a"}, {"partition_key": ""}])
def test_keyed_messages_in_default_batches_warn_once(client, topic, key):
    """The first message with any key warns, at the line that sends it, with the way out."""
    [caught] = warned(client, topic, key, **BATCHING)
    assert "KeyBased" in str(caught.message)
    assert caught.filename in (__file__, awaited.__file__)


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ({}, BATCHING),
        ({"partition_key": "a"}, {}),
        ({"partition_key": "a"}, {**BATCHING, "batching_type": pulsar.BatchingType.KeyBased}),
    ],
)
def test_what_mixes_nothing_is_silent(client, topic, key, settings):
    """No key, no batches or batches by key: no warning."""
    assert warned(client, topic, key, **settings) == []


def test_a_warning_that_is_an_error_sends_nothing_and_is_raised_once(client, topic):
    """Where warnings are errors, the first send raises and the next one sends."""
    producer = client.create_producer(topic, **{**BATCHING, "batching_max_publish_delay_ms": 1})
    with pytest.raises(pulsar.MixedKeyBatchWarning):
        producer.send(b"1", partition_key="a")
    assert producer.send(b"2", partition_key="a")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(5000).data() == b"2"
