"""Seeks of a consumer of several topics or partitions on some of them; the others keep their positions."""

from __future__ import annotations

import time

import pytest
from acked import TYPES, send_batches, send_plain
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest
FROM_THE_BEGINNING = {"initial_position": pulsar.InitialPosition.Earliest}


def by_topic(messages):
    """Return the indexes of messages by topic, in order."""
    found = {}
    for message in messages:
        found.setdefault(message.topic_name(), []).append(index_of(message))
    return found


@pytest.fixture
def topics(client, pulsar_topic_factory, broker):
    """Return a plain topic, one of batches, a chunked and a partitioned one, with 20, 20, 4 and 20 messages."""
    plain, batched, chunked = (pulsar_topic_factory(broker=broker) for _ in range(3))
    parted = pulsar_topic_factory(partitions=2, broker=broker)
    send_plain(client, plain, 20)
    send_batches(client, batched)
    producer = client.create_producer(chunked, chunking_enabled=True)
    for index in range(4):
        producer.send(payload(index))
    producer = client.create_producer(parted, message_router=lambda message, _: index_of(message) % 2)
    for index in range(20):
        producer.send(payload(index, 20))
    return [plain, batched, chunked, parted]


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("inclusive", [False, True])
def test_seek_moves_some_topics_only(client, topics, type_, inclusive):
    """After a seek into a batch, to a chunked message and to a partition's beginning, other acks are kept."""
    plain, batched, chunked, parted = topics
    parts = [f"{parted}-partition-{index}" for index in range(2)]
    consumer = client.subscribe(topics, "s", type_, start_message_id_inclusive=inclusive, **FROM_THE_BEGINNING)
    received = drain(consumer.receive, 64)
    ids = {(message.topic_name(), index_of(message)): message.message_id() for message in received}
    assert len(ids) == 64
    consumer.acknowledge_many(received)
    to_chunked = ids[chunked, 2] if inclusive else EARLIEST
    consumer.seek({batched: ids[batched, 7], chunked: to_chunked, parts[1]: EARLIEST, plain: ids[plain, 12]})
    first = 0 if inclusive else 1
    came = by_topic(drain(consumer.receive, 30))
    assert {topic: sorted(indexes) for topic, indexes in came.items()} == {
        batched: list(range(7 + first, 20)),
        chunked: [2, 3] if inclusive else [0, 1, 2, 3],
        parts[1]: list(range(1, 20, 2)),
        plain: list(range(12 + first, 20)),
    }


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES)
def test_batch_of_another_partition_is_acked_around_a_seek(client, admin, broker, pulsar_topic_factory, type_):
    """A batch of an unmoved partition is acknowledged as a whole, though half of it before the seek."""
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    moved, other = (f"{topic}-partition-{index}" for index in range(2))
    for part in (moved, other):
        send_batches(client, part)
    consumer = client.subscribe(topic, "s", type_, **FROM_THE_BEGINNING)
    received = [one for one in drain(consumer.receive, 40) if one.topic_name() == other]
    assert len(received) == 20
    consumer.acknowledge_many(received[:5])
    consumer.seek({moved: EARLIEST})
    consumer.acknowledge_many(received[5:])
    consumer.flush_acks(confirm=True)
    assert admin.stats(other, precise_backlog=True).subscriptions["s"].backlog_entries == 0
    assert admin.stats(moved, precise_backlog=True).subscriptions["s"].backlog_entries > 0


@pytest.mark.core
def test_seek_to_times_and_to_the_end(client, topics):
    """Topics move to a time, to the end and to the beginning, and then to a time in the future."""
    plain, batched, chunked, parted = topics
    consumer = client.subscribe(topics, "s", **FROM_THE_BEGINNING)
    consumer.acknowledge_many([consumer.receive(10_000) for _ in range(64)])
    now = int(time.time() * 1000) + 1
    time.sleep(0.01)
    send_plain(client, plain, 5, start=20)
    consumer.seek({plain: now, chunked: LATEST, parted: 0, batched: now})
    assert by_topic(drain(consumer.receive, 25)) == {
        plain: list(range(20, 25)),
        f"{parted}-partition-0": list(range(0, 20, 2)),
        f"{parted}-partition-1": list(range(1, 20, 2)),
    }
    send_plain(client, batched, 1, start=20)
    send_plain(client, chunked, 1, start=4)
    assert by_topic([consumer.receive(10_000) for _ in range(2)]) == {batched: [20], chunked: [4]}
    consumer.seek({batched: int(time.time() * 1000) + 3_600_000})
    send_plain(client, batched, 1, start=21)
    assert by_topic(drain(consumer.receive, 26)).get(batched) == [21]


def test_seek_by_time_on_an_empty_topic(client, pulsar_topic_factory, broker):
    """A seek by time on an empty topic delivers the messages that are sent later."""
    topics = [pulsar_topic_factory(broker=broker) for _ in range(2)]
    consumer = client.subscribe(topics, "s")
    consumer.seek({topics[0]: int(time.time() * 1000)})
    send_plain(client, topics[0], 3)
    assert by_topic(drain(consumer.receive, 3)) == {topics[0]: [0, 1, 2]}


def test_seek_redelivers_unacked_messages_of_other_topics(client, topics):
    """On an unmoved topic, received but unacknowledged messages are redelivered, and no others."""
    plain, batched, *_ = topics
    consumer = client.subscribe([plain, batched], "s", **FROM_THE_BEGINNING)
    received = drain(consumer.receive, 40)
    consumer.acknowledge_many([message for message in received if index_of(message) < 15])
    consumer.seek({batched: LATEST})
    assert by_topic(drain(consumer.receive, 5)) == {plain: list(range(15, 20))}


def test_seek_by_dict_of_one_topic(client, topics):
    """A consumer and a reader of one topic accept a dict of it; a consumer of a partitioned one moves by partition."""
    plain, *_, parted = topics
    consumer = client.subscribe(plain, "s", **FROM_THE_BEGINNING)
    assert len(drain(consumer.receive, 20)) == 20
    consumer.seek({plain.rpartition("://")[2]: EARLIEST})
    assert len(drain(consumer.receive, 20)) == 20
    reader = client.create_reader(plain, LATEST)
    reader.seek({plain: EARLIEST})
    assert len(drain(reader.read_next, 20)) == 20
    consumer = client.subscribe(parted, "s", **FROM_THE_BEGINNING)
    consumer.acknowledge_many(drain(consumer.receive, 20))
    consumer.seek({f"{parted}-partition-1": EARLIEST})
    assert by_topic(drain(consumer.receive, 10)) == {f"{parted}-partition-1": list(range(1, 20, 2))}
    reader = client.create_reader(parted, EARLIEST)
    with pytest.raises(pulsar.InvalidUse, match="in a list"):
        reader.seek({f"{parted}-partition-1": LATEST})
    assert len(drain(reader.read_next, 20)) == 20


def test_listener_gets_the_sought_messages(client, topics):
    """A listener gets the moved topic from its target on, in order, after messages that arrived during the seek."""
    plain, batched, *_ = topics
    received = []

    def of_moved():
        return [one for one in received[before:] if one[0] == plain]

    def listen(consumer, message):
        consumer.acknowledge(message)  # first: a seek redelivers unacknowledged messages
        received.append((message.topic_name(), index_of(message)))

    consumer = client.subscribe([plain, batched], "s", message_listener=listen, **FROM_THE_BEGINNING)
    assert eventually(lambda: len(received) >= 40, 60)
    before = len(received)
    consumer.seek({plain: EARLIEST})
    assert eventually(lambda: of_moved()[-1:] == [(plain, 19)], 60)
    assert of_moved()[-20:] == [(plain, index) for index in range(20)]


@pytest.mark.core
@pytest.mark.parametrize("bad", ["unknown", "no partition", "two targets", "no id", "beyond the end"])
def test_invalid_target_moves_nothing(client, topics, bad):
    """An invalid target raises, and no message is redelivered."""
    plain, batched, _, parted = topics
    consumer = client.subscribe(topics, "s", **FROM_THE_BEGINNING)
    consumer.acknowledge_many(drain(consumer.receive, 64))
    targets = {
        "unknown": {f"{plain}-other": EARLIEST},
        "no partition": {parted: pulsar.MessageId(-1, 3, 0)},
        "two targets": {parted: EARLIEST, f"{parted}-partition-0": LATEST},
        "no id": {plain: EARLIEST, batched: "the beginning"},
        "beyond the end": {plain: EARLIEST, batched: pulsar.MessageId(-1, 10**6, 0)},
    }
    with pytest.raises(pulsar.PulsarExtError):
        consumer.seek(targets[bad])
    assert not drain(consumer.receive)
    consumer.seek({})
    assert not drain(consumer.receive)


@pytest.mark.core
def test_last_message_ids_of_several_topics(client, topics, pulsar_topic_factory, broker):
    """Each topic and partition has a last id, which finds the last message; an empty topic's id has entry -1."""
    plain, batched, chunked, parted = topics
    empty = pulsar_topic_factory(broker=broker)
    everything = [*topics, empty]
    consumer = client.subscribe(everything, "s", start_message_id_inclusive=True, **FROM_THE_BEGINNING)
    reader = client.create_reader(everything, EARLIEST)
    assert len(drain(consumer.receive, 64)) == 64
    last = {one.topic_name(): one for one in consumer.get_last_message_ids()}
    assert last == {one.topic_name(): one for one in reader.get_last_message_ids()}
    assert last.pop(empty).entry_id() == -1
    assert last[batched].batch_index() == 4
    consumer.acknowledge_many([])
    consumer.seek({**last, empty: LATEST})
    assert by_topic(drain(consumer.receive, 5)) == {
        plain: [19],
        batched: [19],
        chunked: [3],
        f"{parted}-partition-0": [18],
        f"{parted}-partition-1": [19],
    }
    (only,) = client.subscribe(plain, "other").get_last_message_ids()
    assert only == last[plain]
