"""`Client.read()` returns exactly the messages between two places, and then ends."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta

import pytest
from chunked import FORMS, THREE_CHUNKS, index_of, payload, send_incomplete_message
from stored import compact

import pulsar_ext
from pulsar_ext import MessageId
from pulsar_ext.key_shared.hash_ranges import KeyHashRange
from pulsar_ext.key_shared.hashing import key_slot

BOTH_CLIENTS = True

COUNT = 60


def mixed(client, topic, count=COUNT, first=0):
    """Send messages with an index: alone, in batches and in chunks."""
    alone = client.create_producer(topic, chunking_enabled=True)
    batched = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for index in range(first, first + count):
        options = {"partition_key": f"k{index % 7}", "properties": {"even": str(index % 2 == 0), "n": str(index)}}
        if index // 5 % 2:
            batched.send_async(payload(index, 20), None, **options)
            if index % 5 == 4:
                batched.flush()
        else:
            alone.send(payload(index, THREE_CHUNKS if index % 5 == 2 else 20), **options)
    alone.close()
    batched.close()


def indexes(reading):
    """Return the index of each message of a reading."""
    return [index_of(message) for message in reading]


@pytest.fixture
def filled(client, topic):
    """Return the ids of messages of every kind on the topic, by index."""
    mixed(client, topic)
    reader = client.create_reader(topic, MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(COUNT)]
    assert [index_of(message) for message in messages] == [*range(COUNT)]
    return messages


@pytest.mark.core
def test_reading_ends_with_what_was_stored(client, topic, filled):
    """A reading returns every message once, in order, and none that is sent while it is read."""
    del filled
    reading = client.read(topic)
    found = []
    for message in reading:
        found.append(index_of(message))
        if len(found) % 20 == 0:
            mixed(client, topic, 5, COUNT + len(found))
    assert found == [*range(COUNT)]
    assert reading.done == reading.total > 0
    assert len(indexes(client.read(topic, reading.last_read, start_inclusive=False))) == 15


def test_every_pair_of_places_is_exact(client, topic, filled):
    """Between ids of any form, with each end inclusive or not, a reading is that slice of the topic."""
    rng = random.Random(5)
    forms = [form for name, form in FORMS.items() if name != "parsed as its last chunk"]
    for _ in range(60):
        first, last = sorted(rng.choices(range(COUNT), k=2))
        start, end = (rng.choice(forms)(filled[index].message_id()) for index in (first, last))
        from_start, to_end = rng.random() < 0.5, rng.random() < 0.5
        reading = client.read(topic, start, end, start_inclusive=from_start, end_inclusive=to_end)
        assert indexes(reading) == [*range(first + (not from_start), last + to_end)], (first, last, start, end)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20, COUNT - 1, COUNT, 1000])
def test_last_messages_are_exact(client, topic, filled, count):
    """The last messages are returned whole and in order, and before an end if there is one."""
    assert indexes(client.read(topic, last=count)) == [*range(COUNT)][-count:]
    assert indexes(client.read(topic, end=filled[40].message_id(), last=count)) == [*range(41)][-count:]


def test_times_bound_a_reading(client, topic, filled):
    """A publish time is the first message of that time, also as a datetime."""
    times = [message.publish_timestamp() for message in filled]
    for first, last in ((0, COUNT - 1), (10, 30), (22, 22)):
        start, end = times[first], times[last]
        wanted = [index for index, at in enumerate(times) if start <= at <= end]
        assert indexes(client.read(topic, start, end)) == wanted
        after = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=start)
        assert indexes(client.read(topic, after, end)) == wanted
        exclusive = client.read(topic, start, end, start_inclusive=False, end_inclusive=False)
        assert indexes(exclusive) == [index for index, at in enumerate(times) if start < at < end]


def test_partitions_are_merged_by_publish_time(client, admin, topic):
    """A partitioned topic is read by partition, or by publish time, and continues from the ids that were read."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic)
    for index in range(30):
        producer.send(payload(index, 20))
    assert sorted(indexes(client.read(topic))) == [*range(30)]
    merged = client.read(topic, by_publish_time=True)
    messages = list(merged)
    times = [message.publish_timestamp() for message in messages]
    assert times == sorted(times)
    half = client.read(topic, by_publish_time=True)
    seen = [index_of(next(half)) for _ in range(11)]
    rest = indexes(client.read(topic, half.last_read, start_inclusive=False))
    half.close()
    assert sorted([*seen, *rest]) == [*range(30)]


def test_filters_choose_messages(client, topic, filled):
    """Keys, key ranges and properties each exclude other messages."""
    del filled
    assert indexes(client.read(topic, keys={"k1", "k2"})) == [index for index in range(COUNT) if index % 7 in (1, 2)]
    assert indexes(client.read(topic, properties={"even": "True"}, keys="k0")) == [*range(0, COUNT, 14)]
    half = KeyHashRange(0, 32767)
    wanted = [index for index in range(COUNT) if key_slot(f"k{index % 7}") <= 32767]
    assert indexes(client.read(topic, key_hash_ranges=[half])) == wanted


def test_reading_ends_where_nothing_is_delivered(client, admin, broker, topic):
    """A reading ends before an incomplete chunked message, and on a compacted topic whose last key was removed."""
    producer = client.create_producer(topic)
    for index in range(5):
        producer.send(payload(index, 20), partition_key=f"k{index}")
    producer.send(b"", partition_key="k4")
    compact(admin, topic)
    assert indexes(client.read(topic, is_read_compacted=True)) == [0, 1, 2, 3]
    send_incomplete_message(broker, admin, topic)
    assert len(list(client.read(topic))) == 6


def test_empty_and_inverted_readings_end(client, topic, filled):
    """A reading of an empty topic, of nothing, or from a later place to an earlier one is empty."""
    ids = [message.message_id() for message in filled]
    assert indexes(client.read(topic, ids[30], ids[10])) == []
    assert indexes(client.read(topic, MessageId.latest)) == []
    assert indexes(client.read(topic, ids[3], ids[3], end_inclusive=False)) == []
    assert indexes(client.read(topic, end=MessageId.earliest)) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"last": 0}, "last must be an int >= 1, got 0"),
        ({"last": 3, "start": 5}, "exclude each other"),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001  # the naive one is the case
        ({"end": -1}, "publish time"),
        ({"start": {"other": MessageId.earliest}}, "not among the topics"),
        ({"start": "5:3"}, "is not a message id"),
    ],
)
def test_invalid_places_raise(client, topic, filled, arguments, error):
    """An invalid argument raises before anything is opened."""
    del filled
    with pytest.raises(pulsar_ext.PulsarExtError, match=error):
        client.read(topic, **arguments)


def test_lost_connections_repeat_no_message(client_factory, client, broker, topic, pulsar_fault_proxy):
    """A batch that is read slowly, so that nothing is prefetched, is read once through cut connections."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for index in range(COUNT):
        producer.send_async(payload(index, 20), None)
    producer.flush()
    proxy, found = pulsar_fault_proxy(broker), []
    for message in client_factory(broker, service_url=proxy.service_url).read(topic):
        found.append(index_of(message))
        time.sleep(0.01)
        if len(found) in (10, 30, 50):
            proxy.cut()
    assert found == [*range(COUNT)]
