"""Batches of a compacted topic: what compaction removed is delivered to nobody, and hides nothing else."""

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
    """Send one batch of keys and texts; a key or a text may be missing."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for key, text in messages:
        producer.send_async(
            None if text is None else text.encode(), lambda *_: None, **({"partition_key": key} if key else {})
        )
    producer.flush()
    producer.close()


@pytest.fixture
def compacted(client, admin, topic):
    """A topic with a batch of which compaction left two messages, and a batch that came later."""
    send_batch(client, topic, [("a", "a1"), ("", "gone"), *LEFT, ("c", "c1"), ("c", None)])
    compact(admin, topic)
    return topic


def contents(messages):
    """Give the keys and the texts of messages."""
    return [(message.partition_key(), message.data().decode()) for message in messages]


def read_all(reader):
    """Read what there is."""
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
    """Every kind of reader reads what is left of a batch, and an empty message that came after the compaction."""
    reader = OPENINGS[kind](client, compacted, is_read_compacted=True)
    assert read_all(reader) == LEFT
    send_batch(client, compacted, LATER)
    assert contents([reader.read_next(10_000) for _ in LATER]) == LATER
    assert not reader.has_message_available()


@pytest.mark.parametrize("kind", OPENINGS)
def test_reader_listeners_skip_what_compaction_removed(client, compacted, kind):
    """A listener gets what is left, and then what comes."""
    heard = queue.Queue()
    options = {"is_read_compacted": True, "reader_listener": lambda _, message: heard.put(message)}
    reader = OPENINGS[kind](client, compacted, **options)
    send_batch(client, compacted, LATER)
    assert contents(heard.get(timeout=20) for _ in LEFT + LATER) == LEFT + LATER
    reader.close()


def test_the_newest_message_is_one_that_is_left(client, compacted):
    """A reader that begins at the newest message, itself included, reads one that is left, and then nothing."""
    reader = client.create_reader(compacted, LATEST, start_message_id_inclusive=True, is_read_compacted=True)
    assert read_all(reader) == LEFT[1:]


def test_a_batch_of_which_nothing_is_left_ends(client, admin, compacted):
    """A reader of a topic whose last batch was removed as a whole does not wait for it."""
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
    """A consumer receives what is left of a batch; when that is acknowledged, the batch leaves the backlog."""
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
    """A listener of a consumer gets what is left, and then what comes."""
    heard = queue.Queue()
    consumer = client.subscribe(
        compacted,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        is_read_compacted=True,
        message_listener=lambda _, message: heard.put(message),
    )
    send_batch(client, compacted, LATER)
    assert contents(heard.get(timeout=20) for _ in LEFT + LATER) == LEFT + LATER
    consumer.close()


def test_without_an_admin_api_empty_messages_are_skipped(client_factory, compacted, broker, caplog):
    """Where nobody says how far compaction has gone, what has nothing in it is skipped, and a warning says so once."""
    client = client_factory(broker, admin="http://localhost:1")
    reader = client.create_reader(compacted, EARLIEST, is_read_compacted=True)
    assert read_all(reader) == LEFT
    assert [record.message[:8] for record in caplog.records if "is compacted" in record.message] == ["How far "]
