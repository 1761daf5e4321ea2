"""Interceptors see and change what is sent and what is received, in every way in which it is."""

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
    """Changes what is sent, and notes the outcomes."""

    def __init__(self):
        self.heard, self.producers, self.closed = [], set(), 0

    def before_send(self, producer, message):
        """Change it."""
        changed = message.replace(value=message.value + b"+", partition_key="theirs")
        return changed.with_properties({"seen": f"{message.partition_key}"})

    def on_send_acknowledgement(self, producer, message, message_id, error):
        """Note it."""
        self.producers.add(type(producer).__module__)
        self.heard.append((message.value, message_id is not None, error))

    def close(self):
        """Note it."""
        self.closed += 1


class Receiving(ConsumerInterceptor, ReaderInterceptor):
    """Changes what is received, and notes what it hears."""

    def __init__(self):
        self.came, self.acks, self.cumulative, self.refused, self.late, self.closed = [], [], [], [], [], 0
        self.consumers = set()

    def before_consume(self, consumer, message):
        """Change it."""
        self.consumers.add(type(consumer).__name__)
        self.came.append(message.data())
        return message.altered(data=b"<" + message.data() + b">", properties={"by": consumer.topic()})

    before_read = before_consume

    def on_acknowledge(self, consumer, message_id, error):
        """Note it."""
        self.acks.append((message_id, error))

    def on_acknowledge_cumulative(self, consumer, message_id, error):
        """Note it."""
        self.cumulative.append((message_id, error))

    def on_negative_acks_send(self, consumer, message_ids):
        """Note it."""
        self.refused.append(message_ids)

    def on_ack_timeout_send(self, consumer, message_ids):
        """Note it."""
        self.late.append(message_ids)

    def close(self):
        """Note it."""
        self.closed += 1


class Raising(ProducerInterceptor, ConsumerInterceptor, ReaderInterceptor):
    """Fails in the midst of the others."""

    def fail(self, *_):
        """Fail."""
        raise RuntimeError

    before_send = before_consume = before_read = on_acknowledge = on_send_acknowledgement = close = fail


def entry_of(message_id):
    """Give what is the same for a message and for the batch that it is in."""
    return message_id.ledger_id(), message_id.entry_id()


def eventually(condition):
    """Wait for what another thread does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sends():
    """A producer's interceptor."""
    return Sending()


@pytest.fixture
def receives():
    """A consumer's or a reader's interceptor."""
    return Receiving()


@pytest.fixture
def filled(client, topic):
    """Have messages in the topic: `0` to `29`, the first of them in batches."""
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
    """Give data as the interceptor changes it."""
    return [b"<" + number + b">" for number in numbers]


RECEIVE = {
    "receive": lambda one, count: [one.receive(20_000) for _ in range(count)],
    "receive_many": lambda one, count: list(islice(iter(lambda: one.receive_many(1, 20_000)[0], None), count)),
    "several": lambda one, count: [one.receive(20_000), *gather(partial(one.receive_many, 7, 20_000), count - 1)],
    "batch_receive": lambda one, count: gather(one.batch_receive, count),
    "for": lambda one, count: list(islice(one, count)),
}


def gather(take, count):
    """Take lists until there are so many messages."""
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
def test_what_is_sent_is_theirs(pulsar_broker_factory, client_factory, pulsar_topic_factory, sends, options):
    """Value, key and properties are the interceptor's with every kind of producer, and it hears of each message."""
    broker = pulsar_broker_factory("dedup")
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
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
    assert sorted(sends.heard) == [(b"%d+" % number, True, None) for number in range(4)]
    producer.close()
    assert sends.closed == 1


def test_partitions_are_chosen_by_the_key_that_they_give(client, admin, topic, sends):
    """The message is routed, and batched, as the interceptor made it: all of one key are in one partition."""
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased, interceptors=[sends]
    )
    producer.send_many([b"%d" % number for number in range(30)], partition_keys=[f"{n}" for n in range(30)])
    ids = [producer.send(b"x", partition_key=f"{number}") for number in range(3)]
    assert len({one.partition() for one in ids}) == 1
    assert len(sends.heard) == 33


def test_a_send_that_fails_is_told(client, topic, sends):
    """The error that the application gets, the interceptor gets first; what it made of the message is its own."""
    producer = client.create_producer(topic, interceptors=[sends], batching_enabled=False)
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"x" * 200_000)
    (heard,) = sends.heard
    assert heard[1] is False
    assert isinstance(heard[2], pulsar.PulsarException)


@pytest.mark.core
@pytest.mark.parametrize("way", RECEIVE)
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED], ids=["exclusive", "shared"])
def test_what_is_received_is_theirs(client, topic, filled, receives, way, type_):
    """Each message is changed, once, when it is handed out, in whichever way; the next one is called, too."""
    consumer = client.subscribe(topic, "s", type_, interceptors=[receives, Raising()])
    messages = RECEIVE[way](consumer, len(filled))
    assert sorted(one.data() for one in messages) == sorted(shown(filled))
    assert [one.properties()["by"] for one in messages] == [consumer.topic()] * len(filled)
    assert sorted(receives.came) == sorted(filled)
    consumer.acknowledge_many(messages)
    consumer.flush_acks(confirm=True)
    assert sorted(entry_of(one) for one, _ in receives.acks) == sorted(entry_of(one.message_id()) for one in messages)


@pytest.mark.core
@pytest.mark.through
def test_acknowledgements_of_every_form_are_told_once(client, topic, filled, receives):
    """By message, by id, many at once, in a block: each is told with its id, and what the cursor shows is right."""
    consumer = client.subscribe(topic, "s", SHARED, interceptors=[receives])
    first, second, third, fourth = (consumer.receive(20_000) for _ in range(4))
    consumer.acknowledge(first)
    consumer.acknowledge(second.message_id())
    consumer.acknowledge_many([third, fourth.message_id()])
    with consumer.ack_scope():
        rest = [consumer.receive(20_000) for _ in range(len(filled) - 4)]
    told = [one.message_id() for one in (first, second, third, fourth, *rest)]
    assert [one for one, _ in receives.acks] == told
    assert {error for _, error in receives.acks} == {None}
    assert consumer.receive_many(1, 500) == []


def test_a_cumulative_acknowledgement_is_told_and_a_refused_one_with_its_error(client, topic, filled, receives):
    """On a Shared subscription it is refused, and the interceptor hears why."""
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


def test_negative_acknowledgements_are_told_as_they_are_sent(client, topic, filled, receives):
    """The entry that is asked for is told once, with the consumer open, and the message comes again."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=200, interceptors=[receives])
    messages = [consumer.receive(20_000) for _ in filled]
    consumer.acknowledge_many(messages[:-1])
    consumer.negative_acknowledge(messages[-1])
    assert consumer.receive(20_000).data() == shown(filled)[-1]
    (refused,) = receives.refused
    assert {entry_of(one) for one in refused} == {entry_of(messages[-1].message_id())}
    assert not receives.late


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED], ids=["exclusive", "shared"])
def test_acknowledgement_timeouts_are_told(client, topic, filled, receives, type_):
    """What was not acknowledged in time is told when it is asked for, on subscriptions of either kind."""
    consumer = client.subscribe(topic, "s", type_, unacked_messages_timeout_ms=10_000, interceptors=[receives])
    messages = [consumer.receive(20_000) for _ in filled]
    consumer.acknowledge_many(messages[:-1])
    assert consumer.receive(30_000).data() == shown(filled)[-1]
    assert entry_of(messages[-1].message_id()) in {entry_of(one) for late in receives.late for one in late}
    assert not receives.refused


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_a_listener_is_called_behind_them(client, topic, filled, receives, several):
    """A listener gets what they give, of one topic or of several, and what it acknowledges is told."""
    got = []

    def listen(consumer, message):
        got.append(message.data())
        consumer.acknowledge(message)

    topics = [topic, topic + "-other"] if several else topic
    client.subscribe(topics, "s", SHARED, message_listener=listen, interceptors=[receives])
    eventually(lambda: len(got) == len(receives.acks) == len(filled))
    assert sorted(got) == sorted(shown(filled))


def test_a_reader_reads_what_they_give(client, topic, filled, receives):
    """Readers of whole topics and of key ranges, and with listeners."""
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
    assert len(receives.came) == 3 * len(filled)


def test_a_consumer_of_key_ranges_hands_out_what_they_give(client, topic, filled, receives):
    """The ranges are judged before the interceptors look: these see only what is handed out."""
    builder = client.new_consumer().topic(topic).subscription_name("k").intercept(receives)
    builder = builder.subscription_initial_position(pulsar.InitialPosition.Earliest)
    policy = pulsar_ext.KeySharedPolicy.sticky_hash_range().ranges(KeyHashRange(0, 65535))
    consumer = builder.key_shared_policy(policy).subscribe()
    messages = [consumer.receive(20_000) for _ in filled]
    assert sorted(one.data() for one in messages) == sorted(shown(filled))
    consumer.acknowledge(messages[0])
    assert [one for one, _ in receives.acks] == [messages[0].message_id()]


def test_a_seek_has_them_look_again(client, topic, filled, receives):
    """What is sought goes through them as well."""
    consumer = client.subscribe(topic, "s", interceptors=[receives])
    assert [consumer.receive(20_000).data() for _ in filled] == shown(filled)
    consumer.seek(pulsar_ext.MessageId.earliest)
    assert [consumer.receive(20_000).data() for _ in filled] == shown(filled)
    assert receives.came == filled * 2


def test_what_is_fetched_ahead_is_looked_at_when_it_is_handed_out(client, topic, receives):
    """Of thousands that are fetched at full speed, an interceptor has seen as many as the application."""
    count = 5_000
    consumer = client.subscribe(topic, "s", interceptors=[receives])
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    producer.send_many([b"%d" % number for number in range(count)])
    for number in range(count):
        assert consumer.receive(20_000).data() == b"<%d>" % number
        assert len(receives.came) == number + 1
    consumer.acknowledge_cumulative(consumer.get_last_message_id())


def test_they_see_the_consumer_that_the_application_holds(client, topic, filled, receives, sends):
    """An asyncio client's interceptors get its own producers and consumers."""
    consumer = client.subscribe(topic, "s", interceptors=[receives])
    producer = client.create_producer(topic, interceptors=[sends])
    producer.send(b"x")
    consumer.acknowledge(consumer.receive(20_000))
    held = getattr(producer, "awaited", producer)
    assert sends.producers == {type(held).__module__}
    assert receives.consumers == {"InterceptedConsumer"}


def test_they_are_closed_once_with_what_they_are_of(client_factory, broker, topic, filled):
    """With a close, an unsubscription, or the client; closing again closes no interceptor again."""
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


def test_added_partitions_are_told(client, admin, topic, receives):
    """Consumers, producers and readers look for them in the same way; this is one look, at a real topic."""
    told = threading.Event()

    class Told(ConsumerInterceptor):
        def on_partitions_change(self, topic, partitions):
            """Note it."""
            if partitions == 3:
                told.set()

    admin.create_partitioned_topic(topic, 2)
    consumer = client.subscribe(topic, "s", interceptors=[Told()])
    blocking = consumer.awaited.blocking if hasattr(consumer, "awaited") else consumer
    watch = blocking.chain.watch
    watch.tick(0.0)
    admin.update_partitions(topic, 3)
    watch.tick(0.0)
    assert told.is_set()


@pytest.mark.blocking_only("is about interceptors that are looked for in a class")
def test_without_interceptors_nothing_is_in_the_way(client, topic):
    """The classes, and the producer's `send_async`, are those of a program that knows of no interceptors."""
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic, interceptors=[])
    reader = client.create_reader(topic, pulsar_ext.MessageId.earliest)
    assert {type(consumer), type(reader)} == {pulsar_ext.Consumer, pulsar_ext.Reader}
    assert producer.send_async == producer.sender.send_async
    assert "intercept" not in type(producer.sender).__module__
