"""Readers of several topics, partitions and patterns: each message once, in its topic's order, and seeks by topic."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass

import pytest
from acked import send_batches, send_plain
from chunked import drain, eventually, index_of, payload
from interrupted import interruptions
from keyed import fill, number_of

import pulsar_ext as pulsar
from pulsar_ext import topics_reader
from pulsar_ext.key_shared.hashing import key_slot

BOTH_CLIENTS = True
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest


@dataclass
class Numbered:
    """A value for a schema other than text."""

    number: int


def read_all(reader):
    """Read all available messages, and return the indexes by topic, in the order of arrival."""
    found = {}
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.setdefault(message.topic_name(), []).append(index_of(message))
    return found


@pytest.fixture
def topics(client, pulsar_topic_factory, broker):
    """Three topics: one with chunked messages, one with batches, one with two partitions."""
    chunked, batched = pulsar_topic_factory("chunked", broker=broker), pulsar_topic_factory("batched", broker=broker)
    parted = pulsar_topic_factory("parted", partitions=2, broker=broker)
    producer = client.create_producer(chunked, chunking_enabled=True)
    for index in range(4):
        producer.send(payload(index))
    send_batches(client, batched)
    producer = client.create_producer(parted, message_router=lambda message, _: index_of(message) % 2)
    for index in range(20):
        producer.send(payload(index, 20))
    return [chunked, batched, parted]


def expected_of(topics):
    """Return the content, by topic and partition."""
    chunked, batched, parted = topics
    return {
        chunked: list(range(4)),
        batched: list(range(20)),
        f"{parted}-partition-0": list(range(0, 20, 2)),
        f"{parted}-partition-1": list(range(1, 20, 2)),
    }


@pytest.mark.core
@pytest.mark.through
def test_each_message_is_read_once_and_in_order(client, topics):
    """Chunked, batched and partitioned topics are read whole, and the loop ends after them."""
    reader = client.create_reader(topics, EARLIEST)
    assert set(reader.topics()) == set(expected_of(topics))
    assert read_all(reader) == expected_of(topics)
    with pytest.raises(pulsar.Timeout):
        reader.read_next(100)
    send_plain(client, topics[0], 3)
    assert [index_of(message) for message in drain(reader.read_next, 3)] == [0, 1, 2]
    assert reader.is_connected()


def test_builder_takes_topics(client, topics):
    """The builder takes several topics, as in Java, with its other options."""
    reader = client.new_reader().topics(topics).start_message_id(EARLIEST).receiver_queue_size(3).create()
    assert read_all(reader) == expected_of(topics)


def test_starts_at_latest_or_at_id_of_each_topic(client, topics):
    """From the latest message only new ones are read; with an id by topic, each starts after it, or with it."""
    chunked, batched, parted = topics
    ids = {}
    for message in drain(client.create_reader(topics, EARLIEST).read_next, 44):
        ids.setdefault(message.topic_name(), []).append(message.message_id())
    parts = [f"{parted}-partition-{index}" for index in range(2)]
    latest = client.create_reader(topics, LATEST)
    start = {chunked: ids[chunked][1], batched: EARLIEST, parts[0]: ids[parts[0]][3], parts[1]: LATEST}
    for inclusive in (False, True):
        reader = client.create_reader(topics, start, start_message_id_inclusive=inclusive)
        first = 0 if inclusive else 1
        assert read_all(reader) == {
            chunked: [0, 1, 2, 3][1 + first :],
            batched: list(range(20)),
            parts[0]: list(range(0, 20, 2))[3 + first :],
            **({parts[1]: [19]} if inclusive else {}),
        }
    assert not latest.has_message_available()
    send_plain(client, batched, 1)
    assert read_all(latest) == {batched: [0]}


@pytest.mark.core
def test_seek_of_one_topic_keeps_the_others(client, topics):
    """A seek of one topic to its beginning, an id or a time does not affect other topics."""
    chunked, batched, parted = topics
    part, other = f"{parted}-partition-0", f"{parted}-partition-1"
    reader = client.create_reader(topics, EARLIEST, receiver_queue_size=5)
    read = {topic: [] for topic in expected_of(topics)}
    # The order of topics is open, so this reads at least thirty, until it has the ids for the seeks.
    while sum(map(len, read.values())) < 30 or len(read[part]) < 2 or len(read[batched]) < 3:
        message = reader.read_next(10_000)
        read[message.topic_name()].append(message)
    reader.seek({chunked: EARLIEST, part: read[part][1].message_id()})
    reader.seek(pulsar.MessageId.deserialize(read[batched][2].message_id().serialize(), topic=batched))
    rest = read_all(reader)
    assert rest[chunked] == list(range(4))
    assert rest[part] == list(range(4, 20, 2))
    assert rest[batched] == list(range(3, 20))
    assert [*map(index_of, read[other]), *rest.get(other, [])] == list(range(1, 20, 2))
    now = int(time.time() * 1000) + 1
    time.sleep(0.01)
    send_plain(client, batched, 2, start=20)
    assert read_all(reader) == {batched: [20, 21]}
    reader.seek({batched: now, parted: 0, chunked: LATEST})
    assert read_all(reader) == {batched: [20, 21], part: list(range(0, 20, 2)), other: list(range(1, 20, 2))}


def test_seek_of_all_topics(client, topics):
    """A seek to the beginning, the end, or a time moves every topic and partition."""
    reader = client.create_reader(topics, EARLIEST)
    for _ in range(2):
        assert read_all(reader) == expected_of(topics)
        reader.seek(EARLIEST)
    reader.seek(LATEST)
    assert read_all(reader) == {}
    reader.seek(0)
    assert read_all(reader) == expected_of(topics)


def test_invalid_seek_raises(client, topics, pulsar_topic_factory, broker):
    """An id without a topic, one of another topic, and a topic twice raise, and reading continues."""
    reader = client.create_reader(topics, EARLIEST)
    first = reader.read_next(10_000)
    bare = pulsar.MessageId(-1, 3, 0)
    for target in (
        bare,
        {pulsar_topic_factory(broker=broker): EARLIEST},
        {topics[2]: EARLIEST, f"{topics[2]}-partition-0": EARLIEST},
        {topics[2]: bare},
        {topics[0]: "yesterday"},
        {topics[1]: True},
        {topics[0]: EARLIEST, topics[1]: pulsar.MessageId(-1, 10**6, 0)},
        "yesterday",
    ):
        with pytest.raises(pulsar.PulsarExtError):
            reader.seek(target)
    rest = read_all(reader)
    rest.setdefault(first.topic_name(), []).insert(0, index_of(first))
    assert rest == expected_of(topics)


@pytest.mark.core
@pytest.mark.parametrize(
    ("topics_of", "options"),
    [
        (lambda _topic: [], {}),
        (lambda topic: [topic, topic], {}),
        (lambda topic: [topic, 3], {}),
        (lambda topic: [topic], {"receiver_queue_size": 0}),
        (lambda topic: [topic], {"start_message_id": pulsar.MessageId(-1, 1, 1)}),
        (lambda topic: [topic, f"{topic}-b"], {"start_message_id": {"no-such-topic": EARLIEST}}),
        (lambda topic: [topic, f"{topic}-b"], {"start_message_id": {}}),
        (lambda topic: [topic], {"key_hash_ranges": ["5-1"]}),
        (lambda _: re.compile("no-namespace-.*"), {}),
        (re.compile, {"pattern_auto_discovery_period": 0}),
    ],
)
def test_invalid_topics_raise(client, topic, admin, topics_of, options):
    """Invalid arguments raise, and no reader remains on a topic."""
    client.create_producer(topic)
    with pytest.raises(pulsar.PulsarExtError):
        client.create_reader(topics_of(topic), **{"start_message_id": EARLIEST, **options})
    assert not admin.subscriptions(topic)


def test_readers_of_key_ranges_share_several_topics(client, pulsar_topic_factory, broker):
    """Three readers whose ranges tile the slots get each message of two topics once, each its own keys."""
    topics = [pulsar_topic_factory(broker=broker), pulsar_topic_factory(partitions=2, broker=broker)]
    for seed, topic in enumerate(topics):
        fill(client, topic, "default", 150, seed=seed)
    seen = []
    for ranges in pulsar.KeyHashRanges.full().split(3):
        reader = client.create_reader(topics, EARLIEST, key_hash_ranges=ranges)
        assert reader.key_hash_ranges == ranges
        while reader.has_message_available():
            message = reader.read_next(10_000)
            assert ranges.contains(key_slot(message.partition_key()))
            seen.append((message.topic_name().partition("-partition-")[0], number_of(message)))
    assert sorted(seen) == sorted((topic, number) for topic in topics for number in range(150))


@pytest.mark.core
@pytest.mark.through
def test_pattern_reads_new_topics(client, topic, admin):
    """Matching topics and partitions are read from their beginning; others are not read."""
    send_plain(client, f"{topic}-a", 3)
    send_plain(client, f"other-{topic.rpartition('/')[2]}", 3)
    reader = client.create_reader(re.compile(f"{topic}-.*"), EARLIEST, pattern_auto_discovery_period=1)
    assert read_all(reader) == {f"{topic}-a": [0, 1, 2]}
    admin.create_partitioned_topic(f"{topic}-b", 2)
    send_plain(client, f"{topic}-b", 10)
    send_plain(client, f"{topic}-c", 5)
    received = drain(reader.read_next, 15)
    assert sorted(index_of(message) for message in received) == sorted([*range(10), *range(5)])
    assert {message.topic_name().rpartition("/")[2].removeprefix(topic.rpartition("/")[2]) for message in received} == {
        "-b-partition-0",
        "-b-partition-1",
        "-c",
    }
    assert f"{topic}-a" in reader.topics()


def test_unreadable_topic_does_not_block_others(client, topic, caplog):
    """The first of five new topics has another schema: the others are read, and the log has the reason."""
    reader = client.create_reader(re.compile(f"{topic}-.*"), EARLIEST, schema=Numbered, pattern_auto_discovery_period=1)
    client.create_producer(f"{topic}-a", schema=pulsar.schema.StringSchema()).send("text")
    assert eventually(lambda: "-a cannot be read" in caplog.text)
    for number, name in enumerate("bcde"):
        client.create_producer(f"{topic}-{name}", schema=Numbered).send(Numbered(number))
    assert sorted(message.value().number for message in drain(reader.read_next, 4)) == [0, 1, 2, 3]


def test_pattern_without_matching_topics(client, topic):
    """Without a matching topic nothing raises; the first one that is created is read."""
    reader = client.create_reader(re.compile(f"{topic}-.*"), EARLIEST, pattern_auto_discovery_period=1)
    assert (reader.topics(), reader.has_message_available()) == ([], False)
    send_plain(client, f"{topic}-a", 3)
    assert [index_of(message) for message in drain(reader.read_next, 3)] == [0, 1, 2]


@pytest.mark.blocking_only("calls the reader beneath either client")
@pytest.mark.parametrize("call", ["read_next", "has_message_available", "seek"])
def test_topic_dropped_during_a_call_is_skipped(client, topic, call):
    """A read, a check and a seek continue with the other topic if one is dropped during the call."""
    dropped, other = f"{topic}-a", f"{topic}-b"
    for each in (dropped, other):
        send_plain(client, each, 3)
    reader = client.create_reader([dropped, other], EARLIEST)
    part = reader._parts[dropped]

    def drop_first(*args):
        reader._drop_(dropped)
        return getattr(type(part), call)(part, *args)

    setattr(part, call, drop_first)
    if call == "seek":
        reader.seek(EARLIEST)
    elif call == "has_message_available":
        assert reader.has_message_available()
    assert [index_of(reader.read_next(5_000)) for _ in range(3)] == [0, 1, 2]
    reader.seek({other: EARLIEST})
    assert read_all(reader) == {other: [0, 1, 2]}


@pytest.mark.blocking_only("calls the reader beneath either client")
def test_seek_skips_topic_that_is_dropped(client, topics):
    """A seek whose first move drops the last topic moves the others without an error."""
    reader = client.create_reader(topics, EARLIEST)
    read_all(reader)
    first, *_, last = reader.topics()
    part = reader._parts[first]

    def drop_first(*args):
        reader._drop_(last)
        return type(part).seek(part, *args)

    part.seek = drop_first
    reader.seek(EARLIEST)
    expected = expected_of(topics)
    del expected[last]
    assert read_all(reader) == expected


def test_added_partitions_are_read(client, topics, admin, monkeypatch):
    """A topic with two partitions gets two more, which are read from their beginning."""
    monkeypatch.setattr(topics_reader, "_PARTITIONS_SECONDS", 1)
    reader = client.create_reader([topics[2]], EARLIEST)
    assert len(reader.topics()) == 2
    admin.update_partitions(topics[2], 4)
    producer = client.create_producer(topics[2], message_router=lambda message, _: index_of(message) % 4)
    for index in range(20, 40):
        producer.send(payload(index, 20))
    assert sorted(index_of(message) for message in drain(reader.read_next, 40)) == list(range(40))
    assert len(reader.topics()) == 4


def test_listener_gets_messages_of_all_topics(client, topics):
    """The listener is called with the reader of several topics, and each message once."""
    received, readers = {}, set()

    def listen(reader, message):
        readers.add(tuple(sorted(reader.topics())))
        received.setdefault(message.topic_name(), []).append(index_of(message))

    reader = client.create_reader(topics, EARLIEST, reader_listener=listen)
    assert eventually(lambda: received == expected_of(topics))
    assert {tuple(sorted(reader.topics()))} >= {one for one in readers if len(one) == 4}
    reader.close()


def test_interceptors_see_each_message_once(client, topics):
    """Messages are altered once, also after a seek of one topic."""
    seen = []

    class Interceptor(pulsar.ReaderInterceptor):
        def before_read(self, reader, message):
            seen.append((message.topic_name(), index_of(message)))
            return message.altered(properties={"seen": "yes"})

    reader = client.create_reader(topics, EARLIEST, interceptors=[Interceptor()])
    for _ in range(2):
        while reader.has_message_available():
            assert reader.read_next(10_000).properties() == {"seen": "yes"}
        reader.seek({topics[0]: EARLIEST})
    assert sorted(seen) == sorted(
        (topic, index)
        for topic, indexes in expected_of(topics).items()
        for index in indexes * (2 if topic == topics[0] else 1)
    )


@pytest.mark.blocking_only("a Ctrl-C ends the loop of an awaited client")
def test_seek_of_topic_drops_interrupted_message(client, topics):
    """A message that a Ctrl-C kept from the application is not read after a seek to the topic's end."""
    interrupted_topics = []

    class Interrupted(pulsar.ReaderInterceptor):
        def before_read(self, reader, message):
            if not interrupted_topics:
                interrupted_topics.append(message.topic_name())
                raise KeyboardInterrupt
            return message

    reader = client.create_reader(topics, EARLIEST, interceptors=[Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        reader.read_next(10_000)
    reader.seek({interrupted_topics[0]: LATEST})
    assert read_all(reader) == {
        topic: indexes for topic, indexes in expected_of(topics).items() if topic != interrupted_topics[0]
    }


@pytest.mark.parametrize("of_topics", [True, False])
@pytest.mark.parametrize("ending", ["close of the reader", "close of the client", "shutdown"])
def test_close_ends_waiting_reads(client, topics, of_topics, ending):
    """A waiting read on another thread, and later calls, raise AlreadyClosed; a second close has no effect."""
    what = topics if of_topics else re.compile("persistent://public/default/nothing-at-all-.*")
    reader = client.create_reader(what, LATEST)
    raised = []

    def wait():
        with pytest.raises(pulsar.AlreadyClosed) as error:
            reader.read_next()
        raised.append(error.value)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    {"close of the reader": reader.close, "close of the client": client.close, "shutdown": client.shutdown}[ending]()
    reader.close()
    thread.join(20)
    assert len(raised) == 1
    for call in (lambda: reader.read_next(100), reader.has_message_available, lambda: reader.seek(EARLIEST)):
        with pytest.raises(pulsar.AlreadyClosed):
            call()


@pytest.mark.blocking_only("threads share a blocking reader")
def test_threads_share_a_reader(client, topics):
    """Four threads read while another seeks one topic: each message of the others is read once."""
    reader = client.create_reader(topics, EARLIEST)
    seen = [[] for _ in range(4)]

    def read(into):
        while True:
            try:
                message = reader.read_next(3_000)
            except pulsar.Timeout:
                return
            into.append((message.topic_name(), index_of(message)))

    threads = [threading.Thread(target=read, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for _ in range(3):
        reader.seek({topics[0]: EARLIEST})
    for thread in threads:
        thread.join()
    received = [one for into in seen for one in into]
    others = sorted(one for one in received if one[0] != topics[0])
    assert others == sorted(
        (topic, index) for topic, indexes in expected_of(topics).items() if topic != topics[0] for index in indexes
    )
    assert {index for topic, index in received if topic == topics[0]} == set(range(4))


@pytest.mark.blocking_only("a Ctrl-C cancels awaited reads, which test_asyncio.py does 3,000 times")
@pytest.mark.parametrize("ranges", [None, ["0-65535"], ["0-40000"]])
def test_interrupted_reader_of_topics_loses_no_message(client, pulsar_topic_factory, broker, ranges):
    """With a Ctrl-C every 10 ms, every message of three topics is read once, in its topic's order."""
    topics = [pulsar_topic_factory(broker=broker) for _ in range(3)]
    producers = [client.create_producer(topic) for topic in topics]
    options = {} if ranges is None else {"key_hash_ranges": ranges, "key_forms": "text"}  # without an admin API
    reader = client.create_reader(topics, EARLIEST, **options)
    keys = [f"k{number}" for number in range(300)]
    expected = [
        index for index, key in enumerate(keys) if ranges is None or key_slot(key) <= int(ranges[0].split("-")[1])
    ]

    def produce():
        for index, key in enumerate(keys):
            for producer in producers:
                producer.send(b"%d" % index, partition_key=key)
            if index % 20 == 0:
                time.sleep(0.1)

    thread = threading.Thread(target=produce)
    thread.start()
    received, interrupted = {topic: [] for topic in topics}, 0
    deadline = time.monotonic() + 120
    with interruptions() as waiting:
        while sum(map(len, received.values())) < 3 * len(expected) and time.monotonic() < deadline:
            message = None
            try:
                waiting[:] = [True]
                message = reader.read_next()
            except KeyboardInterrupt:
                interrupted += 1
            del waiting[:]
            if message is not None:
                received[message.topic_name()].append(int(message.data()))
    thread.join()
    assert all(indexes == expected for indexes in received.values())
    assert interrupted
