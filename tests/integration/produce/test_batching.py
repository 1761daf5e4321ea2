"""Producers that build batches in Python: official limits, and one outcome for each message."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from queue import SimpleQueue

import pulsar as official
import pytest
from awaited import blocking_of
from chunked import eventually
from reach import official_client
from stored import entries, read

import pulsar_ext as pulsar
from pulsar_ext._runtime.scheduler import batch_scheduler

BOTH_CLIENTS = True

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")
SLOW = {"batching_enabled": True, "batching_max_publish_delay_ms": 60_000}


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({"batching_max_messages": 7}, [10] * 20),
        ({"batching_max_allowed_size_in_bytes": 1000}, [10, 400, 400, 300, 999, 1, 1000, 5, 2000, 10]),
        (
            {"batching_max_messages": 3, "batching_max_allowed_size_in_bytes": 500},
            [200, 200, 200, 50, 50, 50, 500, 0, 0],
        ),
    ],
)
def test_batch_limits_match_official_client(client, admin, broker, pulsar_topic_factory, limits, sizes):
    """Batches end by count and by bytes as in the official client, entry by entry."""
    counts = []
    for lib in (official, pulsar):
        own = official_client(broker) if lib is official else client
        topic = pulsar_topic_factory(broker=broker)
        producer = own.create_producer(topic, **SLOW, **limits)
        for size in sizes:
            producer.send_async(b"x" * size, lambda *_: None)
        producer.flush()
        counts.append([entry.num_messages_in_batch for entry in entries(admin, topic)])
        if lib is official:
            own.close()
    assert counts[0] == counts[1]


@pytest.mark.core
def test_callbacks_get_the_ids_of_their_messages(client, topic):
    """A hundred batched messages report outcomes in order, with the ids that a reader finds, byte for byte."""
    reported = []
    producer = client.create_producer(topic, **SLOW, batching_max_messages=30)
    for number in range(100):
        producer.send_async(b"%d" % number, lambda result, message_id: reported.append((result, message_id)))
    producer.flush()
    messages = read(client, topic, 100)
    assert [message.data() for message in messages] == [b"%d" % number for number in range(100)]
    assert [result for result, _ in reported] == [pulsar.Result.Ok] * 100
    assert [message_id for _, message_id in reported] == [message.message_id() for message in messages]
    sample = reported[42][1]
    assert sample.batch_index() == 12
    assert pulsar.MessageId.deserialize(sample.serialize()) == sample
    assert client.create_reader(topic, sample, start_message_id_inclusive=True).read_next(5000).data() == b"42"


@pytest.mark.core(each="options")
@pytest.mark.parametrize("options", [{"batching_max_messages": 2}, {"batching_max_publish_delay_ms": 50}])
def test_batch_is_sent_when_full_or_after_delay(client, topic, options):
    """Without a flush, a full batch is sent at once, and an open batch after its delay."""
    producer = client.create_producer(topic, **{**SLOW, **options})
    results = SimpleQueue()
    for number in range(2):
        producer.send_async(b"%d" % number, lambda result, _: results.put(result))
    assert [results.get(timeout=20) for _ in range(2)] == [pulsar.Result.Ok] * 2


@pytest.mark.core
def test_message_options_survive_batching(client, topic):
    """Keys, properties, event times, null values and empty payloads are read as sent, with each compression."""
    kinds = [
        {},
        {"partition_key": "k"},
        {"partition_key": ""},
        {"ordering_key": "o", "properties": {"a": "1", "ü": "€"}},
        {"event_timestamp": 1_700_000_000_000, "partition_key": "中"},
    ]
    for compression in pulsar.CompressionType.__members__.values():
        producer = client.create_producer(topic, **SLOW, compression_type=compression)
        for kind in kinds:
            producer.send_async(b"data", None, **kind)
        producer.send_async(None, None, partition_key="gone")
        producer.send_async(b"", None)
        producer.flush()
        producer.close()
    count = len(kinds) + 2
    messages = read(client, topic, count * len(pulsar.CompressionType.__members__))
    for start in range(0, len(messages), count):
        for message, kind in zip(messages[start:], kinds, strict=False):
            assert message.data() == b"data"
            assert message.partition_key() == kind.get("partition_key", "")
            assert message.ordering_key() == kind.get("ordering_key", "")
            assert message.properties() == kind.get("properties", {})
            assert message.event_timestamp() == kind.get("event_timestamp", 0)
        gone, empty = messages[start + count - 2 : start + count]
        assert gone.has_null_value()
        assert (empty.data(), empty.has_null_value()) == (b"", False)


def test_batched_messages_are_encoded_by_schema(client, topic):
    """Records of a JSON schema are batched."""

    class Row(pulsar.schema.Record):
        a = pulsar.schema.Integer()

    producer = client.create_producer(topic, **SLOW, schema=pulsar.schema.JsonSchema(Row))
    for number in range(3):
        producer.send_async(Row(a=number), None)
    producer.flush()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=pulsar.schema.JsonSchema(Row))
    assert [reader.read_next(5000).value().a for _ in range(3)] == [0, 1, 2]


@pytest.mark.core
def test_bad_arguments_raise_before_joining_a_batch(client, topic):
    """Invalid arguments raise, and the open batch keeps only valid messages."""
    producer = client.create_producer(topic, **SLOW)
    producer.send_async(b"good", None)
    for bad in (
        {"content": "text"},
        {"content": b"x", "properties": {"a": 1}},
        {"content": b"x", "partition_key": b"k"},
        {"content": b"x", "sequence_id": -1},
        {"content": b"x", "event_timestamp": "now"},
        {"content": b"x", "unknown": 1},
    ):
        content = bad.pop("content")
        with pytest.raises((TypeError, ValueError)):
            producer.send_async(content, None, **bad)
    assert producer.send(b"last").batch_index() == 1


@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_invalid_callback_raises(client, topic):
    """A callback that is neither a function nor None raises, and the message does not join the batch."""
    producer = client.create_producer(topic, **SLOW)
    with pytest.raises(TypeError):
        producer.send_async(b"x", "not a function")
    assert producer.send(b"last").batch_index() == 0


def test_batch_too_big_for_broker_is_split(client, topic):
    """Only the message that is too big by itself fails, where the official client fails the batch and crashes."""
    reported = {}
    producer = client.create_producer(
        topic, **SLOW, batching_max_allowed_size_in_bytes=10_000_000, max_pending_messages=40
    )
    for number in range(30):
        size = 200_000 if number == 17 else 10_000
        producer.send_async(
            b"%d " % number + b"x" * size, lambda result, _, number=number: reported.__setitem__(number, result.name)
        )
    with pytest.raises(pulsar.MessageTooBig):
        producer.flush()
    assert Counter(reported.values()) == {"Ok": 29, "MessageTooBig": 1}
    assert reported[17] == "MessageTooBig"
    assert [int(message.data().split()[0]) for message in read(client, topic, 29)] == [*range(17), *range(18, 30)]
    for _ in range(100):  # no permit has leaked
        producer.send(b"x")


@pytest.mark.core
def test_key_based_batches_have_one_key_each(client, admin, topic):
    """Each entry has one key, and the messages of each key are in order."""
    producer = client.create_producer(topic, **SLOW, batching_type=pulsar.BatchingType.KeyBased)
    for number in range(60):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 7}")
    producer.flush()
    assert sorted(entry.partition_key for entry in entries(admin, topic)) == [f"k{key}" for key in range(7)]
    by_key = {}
    for message in read(client, topic, 60):
        by_key.setdefault(message.partition_key(), []).append(int(message.data()))
    assert by_key == {f"k{key}": list(range(key, 60, 7)) for key in range(7)}


@pytest.mark.core
def test_delayed_message_is_a_single_entry_in_order(client, admin, topic):
    """Messages sent before a delayed one are pushed before it."""
    producer = client.create_producer(topic, **SLOW)
    producer.send_async(b"1", None)
    producer.send_async(b"2", None, deliver_at=1)
    producer.send_async(b"3", None)
    producer.flush()
    assert [entry.num_messages_in_batch for entry in entries(admin, topic)] == [1, None, 1]
    assert [message.data() for message in read(client, topic, 3)] == [b"1", b"2", b"3"]


@pytest.mark.core
def test_send_many_takes_columns_and_raises_first_failure(client, topic):
    """Keys and properties stay with their messages; a message too big and columns of other lengths raise."""
    producer = client.create_producer(topic, batching_enabled=True)
    sent = producer.send_many([b"%d" % number for number in range(2500)])
    assert (sent.messages, sent.duplicates) == (2500, 0)
    producer.send_many([b"a", b"b"], partition_keys=["1", None], properties=[None, {"p": "q"}])
    messages = read(client, topic, 2502)
    assert [int(message.data()) for message in messages[:2500]] == list(range(2500))
    assert messages[2499].message_id() == sent.last_message_id
    assert [(m.partition_key(), m.properties()) for m in messages[2500:]] == [("1", {}), ("", {"p": "q"})]
    with pytest.raises(pulsar.MessageTooBig):
        producer.send_many([b"x", b"x" * 300_000])
    producer.send_async(b"x" * 300_000, None)
    with pytest.raises(pulsar.MessageTooBig):
        producer.flush()
    producer.flush()
    with pytest.raises(ValueError, match="one partition_key for each"):
        producer.send_many([b"x", b"y"], partition_keys=["1"])
    unbatched = client.create_producer(topic)
    assert unbatched.send_many([b"x"] * 1500).messages == 1500


@pytest.mark.blocking_only("is about the callback")
def test_batch_is_pushed_at_once_at_interpreter_exit(client, topic, monkeypatch):
    """A send that cannot start a thread at interpreter exit sends the message once and does not raise."""

    def watch(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(batch_scheduler, "watch", watch)
    producer, persisted = client.create_producer(topic, **SLOW), threading.Event()
    producer.send_async(b"x", lambda *_: persisted.set())
    assert persisted.wait(30)


def broken():
    """Yield two messages, then raise."""
    yield from (b"1", b"2")
    raise OSError("the source broke")


@pytest.mark.parametrize(
    ("contents", "columns", "error"),
    [
        (broken, {}, OSError),
        (broken, {"partition_keys": "abc"}, OSError),
        (lambda: [b"1", b"2", "no bytes"], {}, TypeError),
        (lambda: [b"1", b"2", "no bytes"], {"partition_keys": "abc"}, TypeError),
        (lambda: iter([b"1", b"2", b"3"]), {"partition_keys": "ab"}, ValueError),
        (lambda: iter([b"1", b"2", b"3"]), {"sequence_ids": [1, 2]}, ValueError),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_messages_before_a_send_many_error_are_sent(client, topic, contents, columns, error, batched):
    """Messages before an error are sent, with columns and without; known lengths are compared first."""
    producer = client.create_producer(topic, batching_enabled=batched)
    with pytest.raises(error):
        producer.send_many(contents(), **columns)
    producer.flush()
    assert [message.data() for message in read(client, topic, 2)] == [b"1", b"2"]


@pytest.mark.core
@pytest.mark.parametrize("batched", [True, False])
def test_error_names_an_unsendable_value(client, topic, batched):
    """The error names the argument and its value, nothing is sent, and the producer stays usable."""
    producer = client.create_producer(topic, batching_enabled=batched)
    for sequence_id in (1 << 63, -1, "x"):
        with pytest.raises(pulsar.SequenceIdRejected, match=f"got {sequence_id}|got 'x'"):
            producer.send(b"refused", sequence_id=sequence_id)
    for name, value in (("event_timestamp", 1 << 64), ("deliver_at", -5), ("properties", {1: 2})):
        with pytest.raises(TypeError, match=f"^{name} cannot be"):
            producer.send(b"refused", **{name: value})
    producer.send(b"sent")
    assert [message.data() for message in read(client, topic, 1)] == [b"sent"]


@pytest.mark.core
def test_full_queue_raises_or_blocks_without_deadlock(client, topic):
    """Without blocking, a message over the limit is rejected; with it, a queue smaller than a batch makes progress."""
    reported = []
    producer = client.create_producer(topic, **SLOW, max_pending_messages=10)
    for _ in range(11):
        producer.send_async(b"x", lambda result, _: reported.append(result.name))
    producer.flush()
    assert Counter(reported) == {"Ok": 10, "ProducerQueueIsFull": 1}
    blocking = client.create_producer(topic, **SLOW, max_pending_messages=10, block_if_queue_full=True)
    for _ in range(105):
        blocking.send_async(b"x", lambda result, _: reported.append(result.name))
    blocking.flush()
    assert Counter(reported) == {"Ok": 115, "ProducerQueueIsFull": 1}


@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_send_callbacks_may_send_and_raise(client, topic):
    """A callback that raises does not affect the others; a message sent in a callback joins a batch."""
    done, reported = threading.Event(), []
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=5)

    def again(result, _):
        reported.append(result.name)
        done.set()

    def callback(result, _):
        reported.append(result.name)
        if len(reported) == 1:
            producer.send_async(b"from a callback", again)
            raise RuntimeError("a mistake")

    for _ in range(5):
        producer.send_async(b"x", callback)
    assert done.wait(30)
    producer.flush()
    assert reported == ["Ok"] * 6


@pytest.mark.core
def test_partitions_match_official_client(broker, client, admin, pulsar_topic_factory):
    """Key, router, single partition and round robin choose the official partitions; ids name the partition."""
    topic = pulsar_topic_factory(broker=broker)
    admin.create_partitioned_topic(topic, 5)
    keys = [f"{'ключ' * (number % 4)}{'x' * number}" for number in range(1, 40)]
    official_one = official_client(broker)
    expected = [official_one.create_producer(topic).send(b"x", partition_key=key).partition() for key in keys[:1]]
    producer = official_one.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)
    expected = [producer.send(b"x", partition_key=key).partition() for key in keys]
    official_one.close()
    ours = client.create_producer(topic, batching_enabled=True)
    assert isinstance(blocking_of(ours), pulsar.Producer)
    assert [ours.send(b"x", partition_key=key).partition() for key in keys] == expected
    routed = client.create_producer(
        topic, batching_enabled=True, message_router=lambda message, n: len(message.data()) % n
    )
    assert [routed.send(b"x" * size).partition() for size in range(7)] == [0, 1, 2, 3, 4, 0, 1]
    single = client.create_producer(
        topic, batching_enabled=True, message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition
    )
    assert len({single.send(b"x").partition() for _ in range(5)}) == 1
    turns = client.create_producer(topic, batching_enabled=True, batching_max_messages=2)
    reported = []
    for _ in range(20):
        turns.send_async(b"x", lambda _, message_id: reported.append(message_id.partition()))
    turns.flush()
    assert set(Counter(reported)) == set(range(5))
    assert turns.topic() == topic
    assert turns.is_connected()
    turns.close()
    with pytest.raises(pulsar.AlreadyClosed):
        turns.send(b"x")


def test_added_partitions_are_used(broker, client, admin, pulsar_topic_factory):
    """Added partitions are looked up while sending, at the official interval; here at once."""
    topic = pulsar_topic_factory(broker=broker)
    admin.create_partitioned_topic(topic, 2)
    producer = client.create_producer(topic, batching_enabled=True)
    producer.send(b"x")
    admin.update_partitions(topic, 3)
    sender = blocking_of(producer).sender
    for _ in range(100):
        sender._next_check = 0
        producer.send(b"x")
        if len(sender.parts) == 3:
            break
        time.sleep(0.1)
    assert {producer.send(b"x", partition_key=f"k{number}").partition() for number in range(30)} == {0, 1, 2}


@pytest.mark.blocking_only("is about threads")
@pytest.mark.parametrize("partitions", [0, 3])
def test_concurrent_flush_calls_raise_the_failure(client, broker, pulsar_topic_factory, partitions):
    """Each flush that began before a message failed raises its error, and the next flush does not."""
    producer = client.create_producer(pulsar_topic_factory(broker=broker, partitions=partitions), **SLOW)
    parts = getattr(producer.sender, "parts", None) or [producer.sender]
    raised, goes_on = [], threading.Event()

    def flush():
        try:
            producer.flush()
        except pulsar.MessageTooBig:
            raised.append("MessageTooBig")

    producer.send_async(b"x" * 300_000, lambda *_: goes_on.wait(30))  # it counts as failed after this callback
    threads = [threading.Thread(target=flush) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: sum(part.pending._waiting for part in parts) == 2)
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert raised == ["MessageTooBig"] * 2
    producer.flush()


@pytest.mark.blocking_only("awaited sends have outcomes of their own")
def test_invalid_partition_fails_the_flush(client, broker, pulsar_topic_factory):
    """The next flush raises the error of a message without a callback, and the flush after it does not."""
    topic = pulsar_topic_factory(broker=broker, partitions=3)
    producer = client.create_producer(topic, **SLOW, message_router=lambda *_: 99)
    producer.send_async(b"x", None)
    with pytest.raises(pulsar.UnknownError):
        producer.flush()
    producer.flush()


@pytest.mark.parametrize("batched", [True, False])
def test_automatic_id_after_explicit_one_is_not_dropped(
    pulsar_broker_factory, client_factory, pulsar_topic_factory, batched
):
    """On a deduplicated topic, the official client assigns a lower id, and the broker drops the message."""
    broker = pulsar_broker_factory("dedup")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    producer = client.create_producer(topic, batching_enabled=batched)
    for number, sequence_id in enumerate([None, 100, None, None]):
        producer.send(b"%d" % number, sequence_id=sequence_id)
    assert [message.data() for message in read(client, topic, 4)] == [b"0", b"1", b"2", b"3"]
    assert producer.last_sequence_id_published() == 102


@pytest.mark.blocking_only("a signal's handler awaits nothing")
@pytest.mark.parametrize("batching", [pulsar.BatchingType.Default, pulsar.BatchingType.KeyBased])
def test_signal_handler_may_send_during_a_send(client, topic, batching):
    """Every message has one outcome and is on the topic once, in the order of its sender."""
    producer = client.create_producer(topic, batching_enabled=True, batching_type=batching, max_pending_messages=0)
    outcomes, sent = [], {"main": 0, "handler": 0}

    def send(sender):
        sent[sender] += 1
        producer.send_async(f"{sender} {sent[sender]}".encode(), lambda result, _: outcomes.append(result))

    def handler(*_):
        send("handler")
        signal.setitimer(signal.ITIMER_REAL, 0.0003)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        handler()
        end = time.monotonic() + 1.0
        while time.monotonic() < end and sent["main"] < 30_000:
            send("main")
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    producer.flush()
    assert outcomes == [pulsar.Result.Ok] * sum(sent.values())
    found = {"main": [], "handler": []}
    for message in read(client, topic, sum(sent.values())):
        sender, number = message.data().decode().split()
        found[sender].append(int(number))
    assert found == {sender: list(range(1, count + 1)) for sender, count in sent.items()}
