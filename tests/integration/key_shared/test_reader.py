"""Readers of key ranges on a real broker: exact for each message, also inside batches."""

from __future__ import annotations

import base64
import os
import signal
import threading
import time

import pytest
from awaited import blocking_of
from chunked import send_incomplete_message
from java_peer import run_java
from keyed import BATCHING, KINDS, fill, number_of, tilings
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext import KeyHashRange, KeyHashRanges, MessageId, key_slot
from pulsar_ext.key_shared.hashing import KeyFormWarning
from pulsar_ext.key_shared.plan import read_histogram
from pulsar_ext.key_shared.reader_group import RangeReader

BOTH_CLIENTS = True

FULL = KeyHashRanges.full()

# The tests send the kinds of batches that this warning is about.
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")


def read_all(client, topic, ranges, **options):
    """Return the messages that a reader of these ranges reads from the beginning."""
    reader = client.create_reader(topic, MessageId.earliest, key_hash_ranges=ranges, **options)
    found = list(reader)
    reader.close()
    return found


def numbers(messages):
    """Return the numbers of the messages, in order."""
    return [number_of(message) for message in messages]


@pytest.mark.core(awaited=True)
@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_tiling_readers_share_the_topic(client, pulsar_topic_factory, broker, kind, partitions):
    """Each message is read once, by the reader of its slot, in order per key."""
    topic = pulsar_topic_factory(broker=broker, partitions=partitions)
    count = {"chunked": 60, "unbatched": 200}.get(kind, 600)
    keys = fill(client, topic, kind, count)
    for tiling in tilings(keys):
        found = [numbers(read_all(client, topic, ranges)) for ranges in tiling]
        assert sorted(number for part in found for number in part) == list(range(count))
        if kind == "keyless":
            continue
        for ranges, part in zip(tiling, found, strict=True):
            assert all(ranges.contains_key(keys[number]) for number in part)
            for key in {keys[number] for number in part}:
                of_key = [number for number in part if keys[number] == key]
                assert of_key == sorted(of_key)


@pytest.mark.core
def test_keyless_messages_use_producer_and_sequence_id(client, topic):
    """A message without a key has the slot of its producer's name and its own sequence id, also in a batch."""
    for name, settings in (("alone", {}), ("batched", BATCHING)):
        producer = client.create_producer(topic, producer_name=name, **settings)
        for number in range(40):
            producer.send_async(b"%d" % number, None)
        producer.flush()
    half = FULL.split(2)[1]
    found = {(message.producer_name(), number_of(message)) for message in read_all(client, topic, half)}
    assert found == {(name, n) for name in ("alone", "batched") for n in range(40) if half.contains_key(f"{name}-{n}")}


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("batching", ["unbatched", "default", "key"])
def test_every_kind_of_java_key(client, broker, topic, batching):
    """Text, bytes, base64 text, empty, ordering and missing keys are each read by the reader of their slot."""
    rounds = 12
    run_java("SendKeyed", Reach.of(broker).java_settings(), topic, rounds, batching)
    total = rounds * 8
    for parts in (FULL.split(4), FULL.split(7), [KeyHashRanges(["1-1"]), KeyHashRanges(["1-1"]).complement()]):
        found = [sorted(numbers(read_all(client, topic, ranges, key_forms="exact"))) for ranges in parts]
        assert sorted(number for part in found for number in part) == list(range(total))
        expected = [[n for n in range(total) if (slot := known_slot(n)) is None or slot in ranges] for ranges in parts]
        for ours, theirs in zip(found, expected, strict=True):
            assert set(ours) <= set(theirs)
            assert {n for n in theirs if known_slot(n) is not None} <= set(ours)


def known_slot(number):
    """Return the slot of the message with this number of SendKeyed.java, None for a message without a key."""
    turn, kind = divmod(number, 8)
    text, raw = f"key{turn:05d}", bytes([0xFF, 0xFE, turn & 0xFF, turn >> 8, 7, 7])
    keys = [text, raw, base64.b64encode(raw), "", raw, text, f"中文-é-😀-{turn}"]
    return key_slot(keys[kind]) if kind < len(keys) else None


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("ranges", ["0-32767", "20000-29999,50000-65535", "1-1"])
def test_unbatched_topic_reads_as_with_java_reader(client, broker, topic, ranges):
    """The messages and their order equal those of Java's own key-range reader, for which the broker filters."""
    run_java("SendKeyed", Reach.of(broker).java_settings(), topic, 25, "unbatched")
    fill(client, topic, "keyless", 1)
    lines = run_java("ReadRanges", Reach.of(broker).java_settings(), topic, *ranges.split(","))
    theirs = [line for line in lines if line.isdecimal()]
    ours = read_all(client, topic, KeyHashRanges.parse(ranges), key_forms="exact")
    assert [message.data().decode() for message in ours] == theirs


@pytest.mark.through
def test_tail_out_of_range_is_not_available(client, topic):
    """has_message_available() is true only if a message of the range is available, and returns at once otherwise."""
    slot = key_slot("mine")
    producer = client.create_producer(topic)
    producer.send(b"0", partition_key="mine")
    for _ in range(20):
        producer.send(b"1", partition_key="other")
    reader = client.create_reader(topic, MessageId.earliest, key_hash_ranges=[(slot, slot)])
    assert reader.has_message_available()
    assert reader.has_message_available()
    assert number_of(reader.read_next(5000)) == 0
    assert not reader.has_message_available()
    with pytest.raises(pulsar.Timeout):
        reader.read_next(300)
    producer.send(b"2", partition_key="mine")
    assert reader.has_message_available()
    assert number_of(reader.read_next()) == 2


@pytest.mark.parametrize("ranges", ["0-65534", "0-65535"])
@pytest.mark.parametrize("partitions", [0, 2])
def test_incomplete_last_message_is_not_available(client, admin, broker, pulsar_topic_factory, ranges, partitions):
    """has_message_available() ends before it, for some or all slots, and beside an empty partition."""
    topic = pulsar_topic_factory(partitions=partitions, broker=broker)
    part = f"{topic}-partition-0" if partitions else topic
    fill(client, part, "unbatched", 5)
    send_incomplete_message(broker, admin, part)
    reader = client.create_reader(topic, MessageId.earliest, key_hash_ranges=[ranges])
    assert numbers(reader) == list(range(5))


def test_compressed_chunks_count_by_apparent_key(client, topic):
    """Readers that share compressed chunked messages get each once, by its apparent key, and `exact` raises."""
    producer = client.create_producer(topic, chunking_enabled=True, compression_type=pulsar.CompressionType.ZLib)
    for n in range(12):
        producer.send(b"%d " % n + os.urandom(250_000 * (n % 2)), partition_key=f"k{n:03}")  # as base64 has them
    parts, received = FULL.split(3), []
    for part in parts:
        share = read_all(client, topic, part)
        assert all(part.contains_key(one.partition_key()) for one in share)
        received += [int(one.data().partition(b" ")[0]) for one in share]
    assert sorted(received) == list(range(12))
    with pytest.raises(pulsar.InvalidUse, match="chunks"):
        read_all(client, topic, part, key_forms="exact")


@pytest.mark.blocking_only("the command has a blocking client")
def test_histogram_ends_before_incomplete_message(client, admin, broker, topic):
    """Reading a histogram ends before an incomplete chunked message."""
    fill(client, topic, "unbatched", 5)
    send_incomplete_message(broker, admin, topic)
    assert read_histogram(client.context, topic).total() == 5


@pytest.mark.core
@pytest.mark.parametrize("kind", ["unbatched", "default", "chunked"])
@pytest.mark.parametrize("inclusive", [False, True])
def test_starts_and_seeks_anywhere(client, topic, kind, inclusive):
    """A reader and a seek start from each message's id, live, deserialized or rebuilt, with the rest of the range."""
    keys = fill(client, topic, kind, 30)
    everything = read_all(client, topic, FULL)
    half = FULL.split(2)[0]
    seeker = client.create_reader(topic, MessageId.earliest, key_hash_ranges=half, start_message_id_inclusive=inclusive)
    for at, message in list(enumerate(everything))[::7]:
        expected = [n for n in numbers(everything)[at if inclusive else at + 1 :] if half.contains_key(keys[n])]
        live = message.message_id()
        for start in (live, MessageId.deserialize(live.serialize()), MessageId.parse(live.to_text())):
            reader = client.create_reader(topic, start, key_hash_ranges=half, start_message_id_inclusive=inclusive)
            assert numbers(reader) == expected
            reader.close()
        # A message that was prefetched before a seek is not delivered after it.
        seeker.has_message_available()
        seeker.seek(live)
        assert numbers(seeker) == expected


def test_latest_start_and_seek_by_time(client, topic):
    """A reader from the end gets new messages, and a seek to a publish time returns the range's messages since then."""
    fill(client, topic, "unbatched", 10)
    half = FULL.split(2)[0]
    reader = client.create_reader(topic, MessageId.latest, key_hash_ranges=half)
    assert not reader.has_message_available()
    time.sleep(0.05)
    since = int(time.time() * 1000)
    keys = fill(client, topic, "default", 20, seed=2)
    expected = [n for n in range(20) if half.contains_key(keys[n])]
    assert numbers(reader) == expected
    reader.seek(since)
    assert numbers(reader) == expected


@pytest.mark.core
def test_builder_makes_reader_of_ranges(client, topic):
    """The builder makes a reader of both ranges, also with an inclusive start."""
    keys = fill(client, topic, "default", 200)
    ranges = KeyHashRanges([KeyHashRange(0, 10000), KeyHashRange(20001, 30000)])
    builder = client.new_reader().topic(topic).start_message_id(MessageId.earliest)
    reader = builder.key_hash_range(KeyHashRange(0, 10000), KeyHashRange(20001, 30000)).create()
    assert isinstance(blocking_of(reader), RangeReader)
    assert isinstance(blocking_of(reader), pulsar.Reader)
    assert reader.key_hash_ranges == ranges
    expected = [n for n in range(200) if ranges.contains_key(keys[n])]
    messages = list(reader)
    assert numbers(messages) == expected
    again = client.new_reader().topic(topic).start_message_id(messages[3].message_id()).start_message_id_inclusive()
    assert numbers(again.key_hash_range("0-10000", (20001, 30000)).create()) == expected[3:]


@pytest.mark.core
@pytest.mark.parametrize(
    "ranges", [[], [(5, 3)], [(0, 65536)], [(-1, 5)], [(0, 10), (10, 20)], [(1, 1), (1, 1)], 7, "0-5", [None]]
)
def test_invalid_ranges_open_nothing(client, topic, ranges, monkeypatch):
    """Invalid ranges raise before any request, by keyword and by builder."""
    monkeypatch.setattr(client.context, "admin_api", lambda: pytest.fail("the admin API was asked"))
    with pytest.raises(pulsar.InvalidKeyHashRange):
        client.create_reader(topic, MessageId.earliest, key_hash_ranges=ranges)
    if isinstance(ranges, list):
        with pytest.raises(pulsar.InvalidKeyHashRange):
            client.new_reader().topic(topic).start_message_id(MessageId.earliest).key_hash_range(*ranges)


def test_missing_topic_raises_and_is_not_created(client, admin, topic):
    """A reader of ranges does not create a missing topic, and the error suggests to create it."""
    with pytest.raises(pulsar.NoSuchTopic, match="create the topic") as raised:
        client.create_reader(topic, MessageId.earliest, key_hash_ranges=["0-5"])
    assert isinstance(raised.value, pulsar.TopicNotFound)
    assert raised.value.topic == topic
    assert topic not in admin.topics(topic.split("//")[1].rpartition("/")[0])


@pytest.mark.parametrize("missing", ["topic", "start_message_id"])
def test_builder_without_required_option_raises(client, topic, missing):
    """Without a topic or a start, the error names the missing call."""
    builder = client.new_reader().load_conf(topic=topic, start_message_id=MessageId.earliest)
    del builder._options[missing]
    with pytest.raises(pulsar.InvalidUse, match=missing):
        builder.create()


@pytest.mark.core
def test_listener_gets_its_range_only(client, topic):
    """A reader listener is called with the messages of the range only."""
    keys = fill(client, topic, "default", 100)
    half = FULL.split(2)[0]
    expected = [n for n in range(100) if half.contains_key(keys[n])]
    received, complete = [], threading.Event()

    def listener(_, message):
        received.append(number_of(message))
        if len(received) == len(expected):
            complete.set()

    client.create_reader(topic, MessageId.earliest, key_hash_ranges=half, reader_listener=listener)
    assert complete.wait(20)
    assert received == expected


def test_schema_and_queue_of_zero(client, topic):
    """A reader of ranges decodes with its schema, and works without a receiver queue."""
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
    for key in ("a", "b", "c"):
        producer.send(key, partition_key=key)
    slot = key_slot("b")
    reader = client.create_reader(
        topic,
        MessageId.earliest,
        schema=pulsar.schema.StringSchema(),
        key_hash_ranges=[(slot, slot)],
        receiver_queue_size=0,
    )
    assert reader.read_next().value() == "b"


def test_warning_without_admin_api(client_factory, broker, client, topic):
    """Without an admin API, one warning says that ambiguous keys count as text; plain keys do not warn."""
    fill(client, topic, "unbatched", 20)
    client.create_producer(topic).send(b"20", partition_key="AAAA")
    alone = client_factory(broker, admin="http://localhost:9")
    assert key_slot("AAAA") != key_slot(bytes(3))
    at = key_slot("AAAA")
    reader = alone.create_reader(topic, MessageId.earliest, key_hash_ranges=[(at, at)])
    with pytest.warns(KeyFormWarning, match="PULSAR_ADMIN_URL"):
        assert numbers(reader) == [20]
    exact = alone.create_reader(topic, MessageId.earliest, key_hash_ranges=[(at, at)], key_forms="exact")
    for _ in range(2):
        with pytest.raises(pulsar.AdminUnavailable):
            exact.read_next(5000)
    trusting = alone.create_reader(topic, MessageId.earliest, key_hash_ranges=[(at, at)], key_forms="text")
    assert numbers(trusting) == [20]


@pytest.mark.blocking_only("a forked child has no event loop to await anything in")
def test_range_reader_raises_in_forked_child(client, topic):
    """A reader of ranges that a fork inherits raises there, instead of hanging."""
    fill(client, topic, "unbatched", 5)
    reader = client.create_reader(topic, MessageId.earliest, key_hash_ranges=["1-65535"])
    reader.read_next(5000)
    child = os.fork()
    if not child:
        status = 1
        try:
            reader.read_next()
        except pulsar.ForkedClientError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(reader)) == 4


@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 3,000 times")
@pytest.mark.parametrize("timed", [False, True])
def test_ctrl_c_loses_no_message_of_range(client, topic, timed):
    """Every message of the range is read once and in order, after any number of interrupts."""
    keys = fill(client, topic, "default", 20_000, keys=3000)
    half = FULL.split(2)[0]
    expected = [n for n in range(20_000) if half.contains_key(keys[n])]
    reader = client.create_reader(topic, MessageId.earliest, key_hash_ranges=half)
    found, interrupted, reading = [], 0, False

    def interrupt(*_):
        nonlocal reading
        if reading:
            reading = False
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    try:
        while len(found) < len(expected):
            message = None
            try:
                reading = True
                message = reader.read_next(10_000) if timed else reader.read_next()
                reading = False
            except KeyboardInterrupt:
                interrupted += 1
            # An interrupt may arrive when the message has been delivered already.
            if message is not None:
                found.append(number_of(message))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert found == expected
    assert interrupted > 10


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("fault", ["cut", "kill"])
def test_nothing_is_lost_or_doubled_by_faults(pulsar_own_broker, client_factory, pulsar_fault_proxy, fault):
    """Readers that tile the slots read all messages once, while connections are cut or the broker is killed."""
    own = pulsar_own_broker("small-chunks")
    topic = "persistent://public/default/faults"
    proxy = pulsar_fault_proxy(own)
    client = client_factory(own)
    total = 0
    for kind in ("unbatched", "default", "key", "chunked"):
        total += len(fill(client, topic, kind, 60 if kind == "chunked" else 3000, keys=2000))
    reading = client_factory(own, service_url=proxy.service_url)
    readers = [
        reading.create_reader(topic, MessageId.earliest, key_hash_ranges=part, receiver_queue_size=100)
        for part in FULL.split(3)
    ]
    found = []
    for turn in range(4):
        for reader in readers:
            for _ in range(300 + 100 * turn):
                found.append((message := reader.read_next(60_000)).message_id())
                assert reader.key_hash_ranges.contains_key(message.partition_key())
        if fault == "cut":
            proxy.cut()
        elif turn < 2:
            own.kill()
            own.restart()
    for reader in readers:
        found += [message.message_id() for message in reader]
    assert len(found) == len(set(found)) == total
