"""Effectively-once producers on a real broker: rejected settings, restarts, and stored messages."""

from __future__ import annotations

import time
import uuid

import pulsar as official
import pytest
from stored import entries, read

import pulsar_ext as pulsar
from pulsar_ext.dedup.opening import NameLookup, Recall, ids_of

BOTH_CLIENTS = True

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")
BATCHED = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}


@pytest.fixture
def broker(deduplicating):
    """A broker that deduplicates this test's topics."""
    return deduplicating


def opened(client, topic, name="p", **settings):
    """Return an effectively-once producer."""
    return client.create_producer(topic, producer_name=name, deduplication=True, **settings)


def numbers(client, topic, count):
    """Return the integers in the first messages of a topic."""
    return [int(message.data()) for message in read(client, topic, count)]


def count(admin, topic):
    """Return the number of messages of a topic."""
    return sum(entry.message_count for entry in entries(admin, topic))


@pytest.mark.core
@pytest.mark.parametrize("settings", [{}, BATCHED, {**BATCHED, "batching_type": pulsar.BatchingType.KeyBased}])
def test_resumed_producer_repeats_and_loses_nothing(client, admin, topic, settings):
    """Messages 1 to 6, then from 1 and from 4 again up to 20, are stored once; repeated ones are duplicates."""
    reported = []
    for first, last in ((1, 7), (1, 14), (4, 21)):
        producer = opened(client, topic, **settings)
        for number in range(first, last):
            producer.send_async(
                b"%d" % number,
                lambda result, _: reported.append(str(result.name)),
                sequence_id=number,
                partition_key=f"k{number % 3}",
            )
        producer.flush()
        producer.close()
    assert sorted(numbers(client, topic, 20)) == list(range(1, 21))
    assert count(admin, topic) == 20
    assert (reported.count("Ok"), reported.count("DuplicateMessage")) == (20, 16)
    assert opened(client, topic, **settings).last_sequence_id_published() == 20


@pytest.mark.core
def test_explicit_ids_may_have_gaps_and_must_ascend(client, admin, topic):
    """A sent id is a duplicate, a lower unused id is rejected, and neither is stored."""
    producer = opened(client, topic, **BATCHED)
    assert producer.last_sequence_id_published() == -1
    for number in (0, 1, 10):
        producer.send(b"%d" % number, sequence_id=number)
    assert (producer.last_sequence_id_published(), producer.last_sequence_id_pushed()) == (10, 10)
    with pytest.raises(pulsar.DuplicateMessage) as raised:
        producer.send(b"again", sequence_id=1)
    assert raised.value.sequence_id == 1
    producer.send_async(b"11", None, sequence_id=11)
    assert (producer.last_sequence_id_published(), producer.last_sequence_id_pushed()) == (10, 11)
    with pytest.raises(pulsar.SequenceIdRejected, match="open"):
        producer.send_async(b"twice in a batch", None, sequence_id=11)
    for bad in (-1, 1 << 63, True):
        with pytest.raises(pulsar.SequenceIdRejected):
            producer.send_async(b"bad", None, sequence_id=bad)
    with pytest.raises(pulsar.SequenceIdRejected, match="none"):
        producer.send_async(b"mixed", None)
    producer.flush()
    assert numbers(client, topic, 4) == [0, 1, 10, 11]
    assert count(admin, topic) == 4


@pytest.mark.core
def test_automatic_ids_continue_after_restart(client, topic):
    """Automatic ids are 0, 1, 2 …, or begin after initial_sequence_id."""
    producer = opened(client, topic, **BATCHED)
    assert producer.send_many([b"0", b"1"]).messages == 2
    producer.close()
    producer = opened(client, topic, **BATCHED)
    assert producer.last_sequence_id_published() == 1
    producer.send(b"2")
    assert producer.last_sequence_id_published() == 2
    other = opened(client, topic, "other", initial_sequence_id=0)
    other.send(b"3")
    assert other.last_sequence_id_published() == 1
    assert numbers(client, topic, 4) == [0, 1, 2, 3]


@pytest.mark.core
def test_batch_has_highest_id_and_messages_keep_theirs(client, admin, topic):
    """The broker uses the highest id of a batch, and other clients see the ids of its messages."""
    producer = opened(client, topic, **BATCHED)
    for number in (3, 5, 300):
        producer.send_async(b"x", None, sequence_id=number)
    producer.flush()
    [entry] = entries(admin, topic)
    assert entry.sequence_id == 300
    whole = admin.entry(topic, entry.position.ledger_id, entry.position.entry_id, payload=True)
    assert ids_of(whole) == (3, 5, 300)


@pytest.mark.core
def test_send_many_is_deduplicated(client, admin, topic):
    """`send_many()` skips and counts duplicates, and stores the rest."""
    ids = list(range(0, 6000, 2))
    producer = opened(client, topic, **BATCHED)
    assert producer.send_many([b"%d" % number for number in ids[:2000]], sequence_ids=ids[:2000]).duplicates == 0
    producer.close()
    producer = opened(client, topic, **BATCHED)
    sent = producer.send_many([b"%d" % number for number in ids], sequence_ids=ids)
    assert (sent.messages, sent.duplicates) == (3000, 2000)
    assert numbers(client, topic, 3000) == ids
    assert count(admin, topic) == 3000
    with pytest.raises(ValueError, match="fewer sequence_ids"):
        producer.send_many([b"9000", b"y"], sequence_ids=[9000])
    with pytest.raises(ValueError, match="more sequence_ids"):
        producer.send_many([b"9001"], sequence_ids=[9001, 9002])
    producer.flush()
    assert producer.last_sequence_id_published() == 9001


def test_id_of_a_too_big_message_is_usable_by_send_many(client, topic):
    """The id of a rejected message is published once a message with it is sent, and then a duplicate."""
    producer = opened(client, topic, **BATCHED, batching_max_allowed_size_in_bytes=50_000_000)
    too_big = b"x" * 6_000_000
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(too_big, sequence_id=10)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send_many([b"10", too_big], sequence_ids=[10, 11])
    assert producer.last_sequence_id_published() == 10
    with pytest.raises(pulsar.DuplicateMessage):
        producer.send(b"10", sequence_id=10)


def test_duplicate_waits_for_message_in_flight(client, admin, topic):
    """An id repeated while its message is in flight is reported as DuplicateMessage and not sent."""
    reported = []
    producer = opened(client, topic)
    for _ in range(20):
        for number in range(50):
            producer.send_async(b"%d" % number, lambda result, _: reported.append(result.name), sequence_id=number)
        producer.flush()
    assert (reported.count("Ok"), reported.count("DuplicateMessage")) == (50, 950)
    assert count(admin, topic) == 50


@pytest.mark.core
def test_unsupported_deduplication_settings_raise(client, topic):
    """Missing names, non-persistent topics, batched or compressed chunks and other namespaces raise before a send."""
    for settings in (
        {"producer_name": None},
        {"producer_name": ""},
        {"initial_sequence_id": -2},
        {"batching_enabled": True, "chunking_enabled": True},
        {"compression_type": pulsar.CompressionType.ZLib, "chunking_enabled": True},
        {"batching_max_messages": 0, "batching_enabled": True},
        {"max_pending_messages": -1},
        {"max_pending_messages_across_partitions": -1},
    ):
        with pytest.raises(pulsar.InvalidUse):
            client.create_producer(topic, **{"producer_name": "p", "deduplication": True, **settings})
    with pytest.raises(pulsar.InvalidUse, match="persistent"):
        opened(client, topic.replace("persistent://", "non-persistent://"))
    with pytest.raises(pulsar.DeduplicationDisabled, match="Disabled"):
        opened(client, f"persistent://public/default/{uuid.uuid4()}")


def test_forgotten_producer_name_raises(client, admin, topic, pulsar_topic_factory, broker):
    """A name with stored messages but no id in the broker raises, and a claimed one without messages too."""
    namespace = topic.removeprefix("persistent://").rsplit("/", 1)[0]
    admin.set_deduplication(namespace, value=False)
    before = client.create_producer(topic, producer_name="p")
    before.send(b"0", sequence_id=7)
    before.close()
    other = pulsar_topic_factory(broker=broker)
    client.create_producer(other, batching_enabled=False).send_many([b"x"] * 300)
    admin.set_deduplication(namespace, value=True)
    try:
        for name in (topic, other):
            for _ in range(100):  # the broker applies policies asynchronously
                if admin.stats(name).deduplication_status == "Enabled":
                    break
                time.sleep(0.1)
        with pytest.raises(pulsar.ProducerForgotten) as raised:
            opened(client, topic)
        assert raised.value.sequence_id == 7
        with pytest.raises(pulsar.ProducerForgotten, match="initial_sequence_id=5"):
            opened(client, other, initial_sequence_id=5)
        opened(client, other).send(b"a new name")
    finally:
        admin.set_deduplication(namespace, None)


@pytest.mark.blocking_only("is about what both clients look up")
@pytest.mark.parametrize(
    "look_up",
    [
        lambda admin, topic: NameLookup(admin, topic, "p").is_stored(3),
        lambda admin, topic: Recall("", 0).find(admin, topic, "p").published == 3,
        lambda admin, topic: next(NameLookup(admin, topic, "p").tail(admin.internal_stats(topic))).sequence_id == 3,
    ],
)
def test_temporarily_missing_entry_is_not_trimmed(client, admin, topic, monkeypatch, look_up):
    """While a topic moves, no look-up reports a stored message as missing, which would be resent."""
    producer = opened(client, topic)
    producer.send(b"3", sequence_id=3)
    entry = admin.entry

    def not_yet(*_, **__):
        monkeypatch.setattr(admin, "entry", entry)
        raise pulsar.AdminNotFound("away")

    monkeypatch.setattr(admin, "entry", not_yet)
    with pytest.raises(pulsar.AdminNotFound):
        look_up(admin, topic)
    assert look_up(admin, topic)


def test_producer_stops_after_timeout_and_next_one_resumes(broker, admin, topic, client_factory, pulsar_fault_proxy):
    """After the send timeout pending messages fail with Timeout, sending stops, and a new producer resumes."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url, operation_timeout_seconds=5)
    producer = opened(client, topic, send_timeout_millis=700, **BATCHED)
    producer.send(b"0", sequence_id=0)
    proxy.pause()
    reported = []
    for number in range(1, 11):
        producer.send_async(b"%d" % number, lambda result, _: reported.append(result.name), sequence_id=number)
    with pytest.raises(pulsar.Timeout):
        producer.flush()
    assert reported == ["Timeout"] * 10
    with pytest.raises(pulsar.ProducerBroken, match="send_timeout_millis"):
        producer.send(b"11", sequence_id=11)
    proxy.resume()
    producer.close()
    client.close()
    again = client_factory(broker)
    producer = opened(again, topic, **BATCHED)
    for number in range(producer.last_sequence_id_published() + 1, 12):
        producer.send_async(b"%d" % number, None, sequence_id=number)
    producer.flush()
    assert numbers(again, topic, 12) == list(range(12))
    assert count(admin, topic) == 12


@pytest.mark.core
def test_each_partition_has_its_own_sequence(client, admin, broker, pulsar_topic_factory):
    """Resuming after the lowest of the ids repeats nothing; messages without keys are routed by id."""
    topic = pulsar_topic_factory(broker=broker)
    admin.create_partitioned_topic(topic, 3)
    for first, last in ((0, 40), (20, 100)):
        producer = opened(client, topic, **BATCHED)
        assert producer.last_sequence_id_published() in (-1, 37)
        for number in range(first, last):
            producer.send_async(b"%d" % number, None, sequence_id=number)
        producer.flush()
        producer.close()
    found = [entry.message_count for part in range(3) for entry in entries(admin, f"{topic}-partition-{part}")]
    assert sum(found) == 100
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(10_000) for _ in range(100)]
    assert {(int(message.data()) % 3, message.message_id().partition()) for message in messages} == {
        (0, 0),
        (1, 1),
        (2, 2),
    }


@pytest.mark.twin_on_demand
def test_chunked_messages_are_stored_once_during_unloads(pulsar_own_broker, client_factory):
    """The topic is unloaded after each message; the official client loses incomplete ones, with result Ok."""
    with pulsar_own_broker("small-chunks", settings={"brokerDeduplicationEnabled": "true"}) as broker:
        client, topic = client_factory(broker), "persistent://public/default/moving"
        admin = client.context.admin_api()
        reported = []
        producer = opened(client, topic, chunking_enabled=True, send_timeout_millis=0)
        keep = client.subscribe(topic, "retains the messages")
        for number in range(12):
            content = b"%d" % number if number % 4 == 3 else (b"%d " % number).ljust(1_500_000, b"x")
            producer.send_async(content, lambda result, _: reported.append(result.name), sequence_id=number)
            time.sleep(0.003 * number)
            admin.unload(topic)
        producer.flush()
        assert len(reported) == 12
        assert set(reported) <= {"Ok", "DuplicateMessage"}
        producer.close()
        assert opened(client, topic, chunking_enabled=True).last_sequence_id_published() == 11
        assert [int(message.data().split()[0]) for message in read(client, topic, 12)] == list(range(12))
        keep.close()
        client.close()


@pytest.mark.parametrize("loaded_again", [False, True])
def test_incomplete_message_of_a_killed_producer_is_sent_again(
    client_factory, pulsar_broker_factory, pulsar_topic_factory, pulsar_fault_proxy, loaded_again
):
    """A program killed within a chunked message resumes with it: the one before is not resent, this one is."""
    broker = pulsar_broker_factory("small-chunks")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    admin, size = client.context.admin_api(), 3_000_000
    admin.set_deduplication(topic.split("://")[1].rsplit("/", 1)[0], value=True)
    producer = opened(client, topic, chunking_enabled=True)
    producer.send(b"0 ".ljust(size, b"x"), sequence_id=0)
    producer.close()
    whole = len(entries(admin, topic))
    proxy = pulsar_fault_proxy(broker)
    proxy.limit(200_000, "to_broker")
    dying = official.Client(proxy.service_url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    incomplete = dying.create_producer(topic, producer_name="p", chunking_enabled=True, send_timeout_millis=0)
    incomplete.send_async(b"1 ".ljust(size, b"x"), lambda *_: None, sequence_id=1)
    deadline = time.monotonic() + 30
    while len(entries(admin, topic)) == whole and time.monotonic() < deadline:
        time.sleep(0.01)
    proxy.refuse()
    proxy.cut()
    dying.shutdown()
    assert whole < len(entries(admin, topic)) < 2 * whole
    if loaded_again:
        admin.unload(topic)
    producer = opened(client, topic, chunking_enabled=True)
    assert producer.last_sequence_id_published() == 0
    reported = []
    for number in (0, 1, 2):
        content = (b"%d " % number).ljust(size, b"x")
        producer.send_async(content, lambda result, _: reported.append(result.name), sequence_id=number)
    producer.flush()
    assert reported == ["DuplicateMessage", "Ok", "Ok"]
    assert [int(message.data().split()[0]) for message in read(client, topic, 3)] == [0, 1, 2]


def test_key_based_batches_on_a_deduplicated_topic(pulsar_broker_factory, client_factory):
    """On a deduplicated topic, a plain producer with key-based batches has every message stored."""
    broker = pulsar_broker_factory("dedup")
    client = client_factory(broker)
    topic = f"persistent://public/default/by-key-{time.time_ns()}"
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=100, batching_type=pulsar.BatchingType.KeyBased
    )
    ids = []
    for number in range(150):
        key = f"key-{number % 97}" if number % 7 else None
        producer.send_async(b"%d" % number, lambda _, sent: ids.append(sent), partition_key=key)
    producer.flush()
    assert all(sent.entry_id() >= 0 for sent in ids)
    assert {int(reader.read_next(5000).data()) for _ in range(150)} == set(range(150))
