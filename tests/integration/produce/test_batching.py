"""Producers that make their own batches: the official limits, an outcome for each message, and nothing in the way."""

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
def test_batches_end_where_the_official_client_ends_them(client, admin, broker, pulsar_topic_factory, limits, sizes):
    """By count and by bytes, entry for entry."""
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
def test_each_callback_gets_the_id_of_its_own_message(client, topic):
    """A hundred messages in batches: outcomes in order, with the ids under which a reader finds them, to the byte."""
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
def test_a_batch_is_sent_when_it_is_full_or_late(client, topic, options):
    """Nobody flushes: a full batch is sent at once, and an open one after its delay."""
    producer = client.create_producer(topic, **{**SLOW, **options})
    results = SimpleQueue()
    for number in range(2):
        producer.send_async(b"%d" % number, lambda result, _: results.put(result))
    assert [results.get(timeout=20) for _ in range(2)] == [pulsar.Result.Ok] * 2


@pytest.mark.core
def test_everything_that_a_message_has_survives_its_batch(client, topic):
    """Keys, properties, event times, no value and no bytes are read as they were sent, with each compression."""
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


def test_schemas_encode_as_officially(client, topic):
    """A record of a JSON schema goes through a batch."""

    class Row(pulsar.schema.Record):
        a = pulsar.schema.Integer()

    producer = client.create_producer(topic, **SLOW, schema=pulsar.schema.JsonSchema(Row))
    for number in range(3):
        producer.send_async(Row(a=number), None)
    producer.flush()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=pulsar.schema.JsonSchema(Row))
    assert [reader.read_next(5000).value().a for _ in range(3)] == [0, 1, 2]


@pytest.mark.core
def test_what_the_official_client_refuses_is_refused_before_it_joins_a_batch(client, topic):
    """Bad arguments raise, and the batch that was open has only what was good."""
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
def test_a_callback_that_is_none_is_refused(client, topic):
    """Anything but a function or None raises, and the message does not join the batch."""
    producer = client.create_producer(topic, **SLOW)
    with pytest.raises(TypeError):
        producer.send_async(b"x", "no callback")
    assert producer.send(b"last").batch_index() == 0


def test_a_batch_that_is_too_big_for_the_broker_is_parted(client, topic):
    """Where the official client fails the batch and dies of it, only the message that is too big by itself fails."""
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
    for _ in range(100):  # no place in the queue has leaked
        producer.send(b"x")


@pytest.mark.core
def test_batches_by_key_have_one_key_each(client, admin, topic):
    """Each entry goes by one key, and each key's messages are in order."""
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
def test_a_delayed_message_goes_alone_and_stays_in_its_place(client, admin, topic):
    """What came before it is pushed first."""
    producer = client.create_producer(topic, **SLOW)
    producer.send_async(b"1", None)
    producer.send_async(b"2", None, deliver_at=1)
    producer.send_async(b"3", None)
    producer.flush()
    assert [entry.num_messages_in_batch for entry in entries(admin, topic)] == [1, None, 1]
    assert [message.data() for message in read(client, topic, 3)] == [b"1", b"2", b"3"]


@pytest.mark.core
def test_send_many_takes_columns_and_tells_the_first_failure(client, topic):
    """Keys and properties go with their messages; a message too big raises; columns of other lengths do."""
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
def test_a_batch_is_pushed_at_once_where_nobody_can_push_it_later(client, topic, monkeypatch):
    """A program that ends may start no thread for that: its message is sent once, and the send does not raise."""

    def watch(*_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(batch_scheduler, "watch", watch)
    producer, persisted = client.create_producer(topic, **SLOW), threading.Event()
    producer.send_async(b"x", lambda *_: persisted.set())
    assert persisted.wait(30)


def broken():
    """Two messages, and an error."""
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
def test_what_comes_before_an_error_of_send_many_is_sent(client, topic, contents, columns, error, batched):
    """Whatever the error is, with columns and without; lengths that are known are compared before."""
    producer = client.create_producer(topic, batching_enabled=batched)
    with pytest.raises(error):
        producer.send_many(contents(), **columns)
    producer.flush()
    assert [message.data() for message in read(client, topic, 2)] == [b"1", b"2"]


@pytest.mark.core
@pytest.mark.parametrize("batched", [True, False])
def test_a_value_that_the_client_cannot_send_is_named(client, topic, batched):
    """The argument and its value are named, nothing was sent, and the producer goes on: no such id is gone on from."""
    producer = client.create_producer(topic, batching_enabled=batched)
    for sequence_id in (1 << 63, -1, "x"):
        with pytest.raises(pulsar.SequenceIdRejected, match=f"{sequence_id} is not|'x' is not"):
            producer.send(b"refused", sequence_id=sequence_id)
    for name, value in (("event_timestamp", 1 << 64), ("deliver_at", -5), ("properties", {1: 2})):
        with pytest.raises(TypeError, match=f"^{name} cannot be"):
            producer.send(b"refused", **{name: value})
    producer.send(b"sent")
    assert [message.data() for message in read(client, topic, 1)] == [b"sent"]


@pytest.mark.core
def test_a_full_queue_is_told_or_waited_for_and_never_stands_still(client, topic):
    """Without blocking, one message too many is refused; with it, a queue smaller than a batch goes on."""
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
def test_callbacks_may_send_and_may_raise(client, topic):
    """A callback that raises costs no other its call, and one that sends joins a batch."""
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
def test_partitions_are_the_official_ones(broker, client, admin, pulsar_topic_factory):
    """By key, by a router, by one partition and in turns; ids name the partition."""
    topic = pulsar_topic_factory(broker=broker)
    admin.create_partitioned_topic(topic, 5)
    keys = [f"{'ключ' * (number % 4)}{'x' * number}" for number in range(1, 40)]
    theirs = official_client(broker)
    expected = [theirs.create_producer(topic).send(b"x", partition_key=key).partition() for key in keys[:1]]
    producer = theirs.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)
    expected = [producer.send(b"x", partition_key=key).partition() for key in keys]
    theirs.close()
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


def test_partitions_that_are_added_are_used(broker, client, admin, pulsar_topic_factory):
    """Looked for while it sends, as often as officially; here at once."""
    topic = pulsar_topic_factory(broker=broker)
    admin.create_partitioned_topic(topic, 2)
    producer = client.create_producer(topic, batching_enabled=True)
    producer.send(b"x")
    admin.update_partitions(topic, 3)
    sender = blocking_of(producer).sender
    for _ in range(100):
        sender._next_look = 0
        producer.send(b"x")
        if len(sender.parts) == 3:
            break
        time.sleep(0.1)
    assert {producer.send(b"x", partition_key=f"k{number}").partition() for number in range(30)} == {0, 1, 2}


@pytest.mark.blocking_only("is about threads")
@pytest.mark.parametrize("partitions", [0, 3])
def test_two_threads_that_flush_at_once_both_hear_of_a_failure(client, broker, pulsar_topic_factory, partitions):
    """Each flush that began before a message failed raises its error, and the next one does not."""
    producer = client.create_producer(pulsar_topic_factory(broker=broker, partitions=partitions), **SLOW)
    parts = getattr(producer.sender, "parts", None) or [producer.sender]
    raised, goes_on = [], threading.Event()

    def flush():
        try:
            producer.flush()
        except pulsar.MessageTooBig:
            raised.append("MessageTooBig")

    producer.send_async(b"x" * 300_000, lambda *_: goes_on.wait(30))  # it is counted as failed behind this
    threads = [threading.Thread(target=flush) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: sum(part.dispatch.pending._waiting for part in parts) == 2)
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert raised == ["MessageTooBig"] * 2
    producer.flush()


@pytest.mark.blocking_only("awaited sends have outcomes of their own")
def test_a_message_without_a_partition_fails_the_flush(client, broker, pulsar_topic_factory):
    """Nobody else hears of it where it has no callback; the next flush says nothing of it."""
    topic = pulsar_topic_factory(broker=broker, partitions=3)
    producer = client.create_producer(topic, **SLOW, message_router=lambda *_: 99)
    producer.send_async(b"x", None)
    with pytest.raises(pulsar.UnknownError):
        producer.flush()
    producer.flush()


@pytest.mark.parametrize("batched", [True, False])
def test_an_automatic_id_behind_an_explicit_one_is_not_dropped(
    pulsar_broker_factory, client_factory, pulsar_topic_factory, batched
):
    """On a topic that the broker deduplicates, the official client's own count is lower, and the broker drops it."""
    broker = pulsar_broker_factory("dedup")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    producer = client.create_producer(topic, batching_enabled=batched)
    for number, sequence_id in enumerate([None, 100, None, None]):
        producer.send(b"%d" % number, sequence_id=sequence_id)
    assert [message.data() for message in read(client, topic, 4)] == [b"0", b"1", b"2", b"3"]
    assert producer.last_sequence_id_published() == 102


@pytest.mark.blocking_only("a signal's handler awaits nothing")
@pytest.mark.parametrize("batching", [pulsar.BatchingType.Default, pulsar.BatchingType.KeyBased])
def test_a_signal_handler_may_send_while_it_interrupts_a_send(client, topic, batching):
    """Again and again: every message has one outcome, is on the topic once, and each sender's in order."""
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
