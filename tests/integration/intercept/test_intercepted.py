"""Interceptors see and change sent and received messages, for every way to send and to receive."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import islice

import pulsar
import pytest

import pulsar_ext
from pulsar_ext import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor
from pulsar_ext.key_shared.hash_ranges import KeyHashRange

BOTH_CLIENTS = True

SHARED = pulsar.ConsumerType.Shared


class Sending(ProducerInterceptor):
    """Changes sent messages, and records the outcomes."""

    def __init__(self):
        self.outcomes, self.producers, self.closed = [], set(), 0

    def before_send(self, producer, message):
        """Change it."""
        changed = message.replace(value=message.value + b"+", partition_key="theirs")
        return changed.with_properties({"seen": f"{message.partition_key}"})

    def on_send_acknowledgement(self, producer, message, message_id, error):
        """Record it."""
        self.producers.add(type(producer).__module__)
        self.outcomes.append((message.value, message_id is not None, error))

    def close(self):
        """Record it."""
        self.closed += 1


class Receiving(ConsumerInterceptor, ReaderInterceptor):
    """Changes received messages, and records its calls."""

    def __init__(self):
        self.received, self.acks, self.cumulative, self.nacked, self.late, self.closed = [], [], [], [], [], 0
        self.consumers = set()

    def before_consume(self, consumer, message):
        """Change it."""
        self.consumers.add(type(consumer).__name__)
        self.received.append(message.data())
        return message.altered(data=b"<" + message.data() + b">", properties={"by": consumer.topic()})

    before_read = before_consume

    def on_acknowledge(self, consumer, message_id, error):
        """Record it."""
        self.acks.append((message_id, error))

    def on_acknowledge_cumulative(self, consumer, message_id, error):
        """Record it."""
        self.cumulative.append((message_id, error))

    def on_negative_acks_send(self, consumer, message_ids):
        """Record it."""
        self.nacked.append(message_ids)

    def on_ack_timeout_send(self, consumer, message_ids):
        """Record it."""
        self.late.append(message_ids)

    def close(self):
        """Record it."""
        self.closed += 1


class Raising(ProducerInterceptor, ConsumerInterceptor, ReaderInterceptor):
    """Raises between other interceptors."""

    def fail(self, *_):
        """Raise."""
        raise RuntimeError

    before_send = before_consume = before_read = on_acknowledge = on_send_acknowledgement = close = fail


def entry_of(message_id):
    """Return ledger and entry, which a message shares with its batch."""
    return message_id.ledger_id(), message_id.entry_id()


def eventually(condition):
    """Wait for an effect of another thread."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sends():
    """Interceptor of a producer."""
    return Sending()


@pytest.fixture
def receives():
    """Interceptor of a consumer or a reader."""
    return Receiving()


@pytest.fixture
def filled(client, topic):
    """Publish `0` to `29` to the topic, the first of them in batches, and return them."""
    client.subscribe(topic, "s", SHARED).close()
    with client.create_producer(topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased) as producer:
        for number in range(20):
            producer.send_async(b"%d" % number, None)
        producer.flush()
    with client.create_producer(topic) as producer:
        for number in range(20, 30):
            producer.send(b"%d" % number)
    return [b"%d" % number for number in range(30)]


def shown(numbers):
    """Return data as the interceptor changes it."""
    return [b"<" + number + b">" for number in numbers]


RECEIVE = {
    "receive": lambda one, count: [one.receive(20_000) for _ in range(count)],
    "receive_many": lambda one, count: list(islice(iter(lambda: one.receive_many(1, 20_000)[0], None), count)),
    "several": lambda one, count: [one.receive(20_000), *gather(partial(one.receive_many, 7, 20_000), count - 1)],
    "batch_receive": lambda one, count: gather(one.batch_receive, count),
    "for": lambda one, count: list(islice(one, count)),
}


def gather(take, count):
    """Collect lists until they have `count` messages."""
    found = []
    while len(found) < count:
        found += take()
    return found


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"producer_name": "p", "deduplication": True},
        {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
        {"batching_enabled": False, "chunking_enabled": True},
    ],
    ids=["plain", "deduplicated", "batched", "chunked"],
)
def test_interceptors_change_sent_messages(deduplicating, client_factory, pulsar_topic_factory, sends, options):
    """Value, key and properties are changed for every kind of producer, and each outcome is reported."""
    client, topic = client_factory(deduplicating), pulsar_topic_factory(broker=deduplicating)
    reader = client.create_reader(topic, pulsar_ext.MessageId.earliest)
    producer = client.create_producer(topic, interceptors=[Raising(), sends], **options)
    producer.send(b"0", partition_key="k")
    producer.send_async(b"1", None)
    producer.flush()
    many = producer.send_many([b"2", b"3"], partition_keys=["a", None])
    assert many.messages == 2
    found = [reader.read_next(20_000) for _ in range(4)]
    assert [(one.data(), one.properties()["seen"]) for one in found] == [
        (b"0+", "k"),
        (b"1+", "None"),
        (b"2+", "a"),
        (b"3+", "None"),
    ]
    assert {one.partition_key() for one in found} == {"theirs"}
    assert sorted(sends.outcomes) == [(b"%d+" % number, True, None) for number in range(4)]
    producer.close()
    assert sends.closed == 1


def test_partition_is_chosen_by_changed_key(client, admin, topic, sends):
    """The message is routed and batched by the interceptor's key: all of one key are in one partition."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased, interceptors=[sends]
    )
    producer.send_many([b"%d" % number for number in range(30)], partition_keys=[f"{n}" for n in range(30)])
    ids = [producer.send(b"x", partition_key=f"{number}") for number in range(3)]
    assert len({one.partition() for one in ids}) == 1
    assert len(sends.outcomes) == 33


def test_failed_send_is_reported(client, topic, sends):
    """The interceptor gets the error of a failed send, with its changed message."""
    producer = client.create_producer(topic, interceptors=[sends], batching_enabled=False)
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"x" * 200_000)
    (outcome,) = sends.outcomes
    assert outcome[1] is False
    assert isinstance(outcome[2], pulsar.PulsarException)


@pytest.mark.blocking_only("awaited sends have outcomes of their own")
def test_failure_before_send_many_is_raised_by_the_next_flush(client, topic, sends):
    """`send_many()` succeeds, and the error of a message that was sent before it is left to `flush()`."""
    producer = client.create_producer(
        topic, interceptors=[sends], batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    producer.send_async(b"x" * 300_000, None)
    assert producer.send_many([b"1", b"2"]).messages == 2
    with pytest.raises(pulsar.MessageTooBig):
        producer.flush()


@pytest.mark.core
@pytest.mark.parametrize("way", RECEIVE)
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED], ids=["exclusive", "shared"])
def test_interceptors_change_received_messages(client, topic, filled, receives, way, type_):
    """Each message is changed once, at delivery, by every way to receive, and all interceptors are called."""
    consumer = client.subscribe(topic, "s", type_, interceptors=[receives, Raising()])
    messages = RECEIVE[way](consumer, len(filled))
    assert sorted(one.data() for one in messages) == sorted(shown(filled))
    assert [one.properties()["by"] for one in messages] == [consumer.topic()] * len(filled)
    assert sorted(receives.received) == sorted(filled)
    consumer.acknowledge_many(messages)
    consumer.flush_acks(confirm=True)
    assert sorted(entry_of(one) for one, _ in receives.acks) == sorted(entry_of(one.message_id()) for one in messages)


@pytest.mark.core
@pytest.mark.through
def test_acknowledgements_are_reported_once(client, topic, filled, receives):
    """Acknowledgements by message, by id, by list and in a block are each reported once, with the id."""
    consumer = client.subscribe(topic, "s", SHARED, interceptors=[receives])
    first, second, third, fourth = (consumer.receive(20_000) for _ in range(4))
    consumer.acknowledge(first)
    consumer.acknowledge(second.message_id())
    consumer.acknowledge_many([third, fourth.message_id()])
    with consumer.ack_scope():
        rest = [consumer.receive(20_000) for _ in range(len(filled) - 4)]
    expected = [one.message_id() for one in (first, second, third, fourth, *rest)]
    assert [one for one, _ in receives.acks] == expected
    assert {error for _, error in receives.acks} == {None}
    assert consumer.receive_many(1, 500) == []


def test_cumulative_acknowledgements_are_reported(client, topic, filled, receives):
    """A cumulative acknowledgement is reported, also with its error on a Shared subscription."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Failover, interceptors=[receives])
    messages = [consumer.receive(20_000) for _ in filled]
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()
    assert receives.cumulative == [(messages[-1].message_id(), None)]
    consumer = client.subscribe(
        topic, "t", SHARED, initial_position=pulsar.InitialPosition.Earliest, interceptors=[receives]
    )
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(consumer.receive(20_000))
    assert isinstance(receives.cumulative[1][1], pulsar.CumulativeAcknowledgementNotAllowedError)


def test_negative_acknowledgements_are_reported(client, topic, filled, receives):
    """The redelivered entry is reported once, while the consumer is open, and the message is redelivered."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=200, interceptors=[receives])
    messages = [consumer.receive(20_000) for _ in filled]
    consumer.acknowledge_many(messages[:-1])
    consumer.negative_acknowledge(messages[-1])
    assert consumer.receive(20_000).data() == shown(filled)[-1]
    (nacked,) = receives.nacked
    assert {entry_of(one) for one in nacked} == {entry_of(messages[-1].message_id())}
    assert not receives.late


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED], ids=["exclusive", "shared"])
def test_ack_timeouts_are_reported(client, topic, filled, receives, type_):
    """Messages that were not acknowledged in time are reported when they are redelivered, on both types."""
    consumer = client.subscribe(topic, "s", type_, unacked_messages_timeout_ms=10_000, interceptors=[receives])
    messages = [consumer.receive(20_000) for _ in filled]
    consumer.acknowledge_many(messages[:-1])
    assert consumer.receive(30_000).data() == shown(filled)[-1]
    assert entry_of(messages[-1].message_id()) in {entry_of(one) for late in receives.late for one in late}
    assert not receives.nacked


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_listener_gets_changed_messages(client, topic, filled, receives, several):
    """A listener gets the changed messages, of one or several topics, and its acknowledgements are reported."""
    got = []

    def listen(consumer, message):
        got.append(message.data())
        consumer.acknowledge(message)

    topics = [topic, topic + "-other"] if several else topic
    client.subscribe(topics, "s", SHARED, message_listener=listen, interceptors=[receives])
    eventually(lambda: len(got) == len(receives.acks) == len(filled))
    assert sorted(got) == sorted(shown(filled))


def test_reader_gets_changed_messages(client, topic, filled, receives):
    """Readers of topics and of key ranges, and reader listeners, deliver changed messages."""
    start, got = pulsar_ext.MessageId.earliest, []
    reader = client.create_reader(topic, start, interceptors=[receives])
    assert [reader.read_next(20_000).data() for _ in filled] == shown(filled)
    assert not reader.has_message_available()
    reader.close()
    ranged = client.create_reader(topic, start, key_hash_ranges=[KeyHashRange(0, 65535)], interceptors=[receives])
    assert [ranged.read_next(20_000).data() for _ in filled] == shown(filled)
    client.create_reader(
        topic, start, reader_listener=lambda _, message: got.append(message.data()), interceptors=[receives]
    )
    eventually(lambda: len(got) == len(filled))
    assert got == shown(filled)
    assert len(receives.received) == 3 * len(filled)


def test_consumer_of_key_ranges_gets_changed_messages(client, topic, filled, receives):
    """Key ranges are filtered before the interceptors are called."""
    builder = client.new_consumer().topic(topic).subscription_name("k").intercept(receives)
    builder = builder.subscription_initial_position(pulsar.InitialPosition.Earliest)
    policy = pulsar_ext.KeySharedPolicy.sticky_hash_range().ranges(KeyHashRange(0, 65535))
    consumer = builder.key_shared_policy(policy).subscribe()
    messages = [consumer.receive(20_000) for _ in filled]
    assert sorted(one.data() for one in messages) == sorted(shown(filled))
    consumer.acknowledge(messages[0])
    assert [one for one, _ in receives.acks] == [messages[0].message_id()]


def test_interceptors_are_called_again_after_seek(client, topic, filled, receives):
    """After a seek, interceptors are called again."""
    consumer = client.subscribe(topic, "s", interceptors=[receives])
    assert [consumer.receive(20_000).data() for _ in filled] == shown(filled)
    consumer.seek(pulsar_ext.MessageId.earliest)
    assert [consumer.receive(20_000).data() for _ in filled] == shown(filled)
    assert receives.received == filled * 2


def test_prefetched_messages_are_intercepted_at_delivery(client, topic, receives):
    """Interceptors are called for delivered messages only, not for thousands of prefetched ones."""
    count = 5_000
    consumer = client.subscribe(topic, "s", interceptors=[receives])
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    producer.send_many([b"%d" % number for number in range(count)])
    for number in range(count):
        assert consumer.receive(20_000).data() == b"<%d>" % number
        assert len(receives.received) == number + 1
    consumer.acknowledge_cumulative(consumer.get_last_message_id())


def test_interceptors_get_the_applications_consumer(client, topic, filled, receives, sends):
    """Interceptors get the application's producers and consumers, also of an asyncio client."""
    consumer = client.subscribe(topic, "s", interceptors=[receives])
    producer = client.create_producer(topic, interceptors=[sends])
    producer.send(b"x")
    consumer.acknowledge(consumer.receive(20_000))
    held = getattr(producer, "awaited", producer)
    assert sends.producers == {type(held).__module__}
    assert receives.consumers == {"InterceptedConsumer"}


def test_interceptors_are_closed_once_with_their_owner(client_factory, broker, topic, filled):
    """Interceptors are closed once, by a close, an unsubscription or the client's close."""
    client, each = client_factory(broker), [Receiving() for _ in range(4)]
    consumer = client.subscribe(topic, "a", interceptors=[each[0]])
    other = client.subscribe(topic, "b", interceptors=[each[1]])
    reader = client.create_reader(topic, pulsar_ext.MessageId.earliest, interceptors=[each[2]])
    client.subscribe(topic, "c", interceptors=[each[3]])
    sends = Sending()
    producer = client.create_producer(topic, interceptors=[sends])
    consumer.close()
    other.unsubscribe()
    reader.close()
    assert [one.closed for one in each] == [1, 1, 1, 0]
    client.close()
    assert [one.closed for one in each] == [1, 1, 1, 1]
    assert sends.closed == 1
    producer.close()
    assert sends.closed == 1


def test_added_partitions_are_reported(client, admin, topic, receives):
    """Added partitions are reported; this polls a real topic once, as all consumers, producers and readers do."""
    reported = threading.Event()

    class Watching(ConsumerInterceptor):
        def on_partitions_change(self, topic, partitions):
            """Record it."""
            if partitions == 3:
                reported.set()

    admin.create_partitioned_topic(topic, 2)
    consumer = client.subscribe(topic, "s", interceptors=[Watching()])
    blocking = consumer.awaited.blocking if hasattr(consumer, "awaited") else consumer
    watch = blocking.chain.watch
    watch.tick(0.0)
    admin.update_partitions(topic, 3)
    watch.tick(0.0)
    assert reported.is_set()


@pytest.mark.blocking_only("is about the classes of interceptors")
def test_normal_classes_without_interceptors(client, topic):
    """Without interceptors, the classes and the producer's `send_async` are the normal ones."""
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic, interceptors=[])
    reader = client.create_reader(topic, pulsar_ext.MessageId.earliest)
    assert {type(consumer), type(reader)} == {pulsar_ext.Consumer, pulsar_ext.Reader}
    assert producer.send_async == producer.sender.send_async
    assert "intercept" not in type(producer.sender).__module__
