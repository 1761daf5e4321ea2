"""Batches of a compacted topic: messages that compaction removed are not delivered, and hide no others."""

from __future__ import annotations

import queue

import pytest
from chunked import eventually
from stored import compact

import pulsar_ext as pulsar

BOTH_CLIENTS = True

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest
LEFT = [("b", "b1"), ("a", "a2")]
LATER = [("", ""), ("d", "d1")]


def send_batch(client, topic, messages):
    """Send a batch of keys and texts; a key or a text may be missing."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for key, text in messages:
        producer.send_async(
            None if text is None else text.encode(), lambda *_: None, **({"partition_key": key} if key else {})
        )
    producer.flush()
    producer.close()


@pytest.fixture
def compacted(client, admin, topic):
    """Return a topic with a batch of which compaction kept two messages, and a later batch."""
    send_batch(client, topic, [("a", "a1"), ("", "gone"), *LEFT, ("c", "c1"), ("c", None)])
    compact(admin, topic)
    return topic


def contents(messages):
    """Return the keys and the texts of messages."""
    return [(message.partition_key(), message.data().decode()) for message in messages]


def read_all(reader):
    """Read all messages."""
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000))
    return contents(found)


OPENINGS = {
    "reader": lambda client, topic, **options: client.create_reader(topic, EARLIEST, **options),
    "several topics": lambda client, topic, **options: client.create_reader([topic], EARLIEST, **options),
    "key ranges": lambda client, topic, **options: client.create_reader(
        topic, EARLIEST, key_hash_ranges=pulsar.KeyHashRanges.full(), **options
    ),
    "several topics of key ranges": lambda client, topic, **options: client.create_reader(
        [topic], EARLIEST, key_hash_ranges=pulsar.KeyHashRanges.full(), **options
    ),
}


@pytest.mark.core(each="kind")
@pytest.mark.parametrize("kind", OPENINGS)
def test_readers_skip_what_compaction_removed(client, compacted, kind):
    """Every kind of reader reads the remaining messages of a batch, and an empty one sent after the compaction."""
    reader = OPENINGS[kind](client, compacted, is_read_compacted=True)
    assert read_all(reader) == LEFT
    send_batch(client, compacted, LATER)
    assert contents([reader.read_next(10_000) for _ in LATER]) == LATER
    assert not reader.has_message_available()


@pytest.mark.parametrize("kind", OPENINGS)
def test_reader_listeners_skip_what_compaction_removed(client, compacted, kind):
    """A listener gets the remaining messages, and then new ones."""
    received = queue.Queue()
    options = {"is_read_compacted": True, "reader_listener": lambda _, message: received.put(message)}
    reader = OPENINGS[kind](client, compacted, **options)
    send_batch(client, compacted, LATER)
    assert contents(received.get(timeout=20) for _ in LEFT + LATER) == LEFT + LATER
    reader.close()


def test_newest_message_is_one_that_exists(client, compacted):
    """A reader that begins at the newest message, inclusive, reads a remaining one, and then nothing."""
    reader = client.create_reader(compacted, LATEST, start_message_id_inclusive=True, is_read_compacted=True)
    assert read_all(reader) == LEFT[1:]


def test_completely_compacted_batch_is_skipped(client, admin, compacted):
    """A reader of a topic whose last batch was removed completely does not wait for it."""
    send_batch(client, compacted, [("e", "e1"), ("e", None)])
    compact(admin, compacted)
    assert read_all(client.create_reader(compacted, EARLIEST, is_read_compacted=True)) == LEFT


RECEIVES = {
    "receive": lambda consumer: [consumer.receive(10_000) for _ in LEFT],
    "receive_many": lambda consumer: [consumer.receive(10_000), *consumer.receive_many(10, 1_000)],
    "batch_receive": lambda consumer: consumer.batch_receive(),
}


@pytest.mark.core(each="way")
@pytest.mark.parametrize("way", RECEIVES)
@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_consumers_acknowledge_what_compaction_removed(client, admin, compacted, kind, way):
    """A consumer receives the remaining messages; when they are acknowledged, the batch is not in the backlog."""
    consumer = client.subscribe(
        compacted, "s", kind, initial_position=pulsar.InitialPosition.Earliest, is_read_compacted=True
    )
    received = RECEIVES[way](consumer)
    assert contents(received) == LEFT
    for message in received:
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: admin.stats(compacted).subscriptions["s"].backlog_entries == 0)


def test_consumer_listeners_skip_what_compaction_removed(client, compacted):
    """A consumer's listener gets the remaining messages, and then new ones."""
    received = queue.Queue()
    consumer = client.subscribe(
        compacted,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        is_read_compacted=True,
        message_listener=lambda _, message: received.put(message),
    )
    send_batch(client, compacted, LATER)
    assert contents(received.get(timeout=20) for _ in LEFT + LATER) == LEFT + LATER
    consumer.close()


def test_without_an_admin_api_empty_messages_are_skipped(client_factory, compacted, broker, caplog):
    """Without the compaction horizon, empty messages are skipped, and one warning is logged."""
    client = client_factory(broker, admin="http://localhost:1")
    reader = client.create_reader(compacted, EARLIEST, is_read_compacted=True)
    assert read_all(reader) == LEFT
    assert [one.message[:8] for one in caplog.records if "compaction horizon" in one.message] == ["The comp"]
