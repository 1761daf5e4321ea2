"""Acknowledgements on a silent connection: the same consumer does not receive their messages again."""

from __future__ import annotations

import asyncio
import threading

import pytest
from acked import TYPES, send_batches, send_plain
from awaited import Awaited
from chunked import THREE_CHUNKS, drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
COUNT = 60
SILENCE_SECONDS = 1.0


@pytest.fixture
def profile():
    """Profile of the broker: by default it keeps no acknowledgements inside batches."""
    return "small-chunks"


@pytest.fixture
def broker(pulsar_broker_factory, profile):
    """A broker with the profile."""
    return pulsar_broker_factory(profile)


@pytest.fixture
def proxy(pulsar_fault_proxy, broker):
    """A proxy that can silence the consumer's connection."""
    return pulsar_fault_proxy(broker)


@pytest.fixture
def subscribe(proxy, client_factory, broker, topic):
    """Return a function that subscribes through the proxy."""
    client = client_factory(broker, service_url=proxy.service_url)
    return lambda type_=pulsar.ConsumerType.Shared, **named: client.subscribe(topic, "s", type_, **named)


def while_silent(proxy, *steps):
    """Run steps on a connection that swallows everything, then cut it."""
    proxy.pause()
    for step in steps:
        step()
        eventually(lambda: False, SILENCE_SECONDS / len(steps))
    proxy.cut()
    proxy.resume()


def acknowledgements(consumer, messages):
    """Return a function for each message that acknowledges it."""
    return [lambda one=one: consumer.acknowledge(one) for one in messages]


def has_no_backlog(admin, *topics):
    """Return True once the cursors show everything."""
    return eventually(lambda: not any(admin.stats(one).subscriptions["s"].backlog_entries for one in topics))


def assert_only_new_messages_arrive(consumer, client, admin, topic):
    """Send more messages: only these are received, and no backlog remains."""
    send_plain(client, topic, 10, start=COUNT)
    again = drain(consumer.receive, 10)
    assert [index_of(one) for one in again] == list(range(COUNT, COUNT + 10))
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)


@pytest.mark.parametrize(
    "type_",
    [pytest.param(one, marks=pytest.mark.core(slow="a silence"), id=one.name) for one in TYPES[2:3]]
    + [pytest.param(one, id=one.name) for one in TYPES if one is not TYPES[2]],
)
def test_acks_during_silence_are_not_redelivered(subscribe, client, admin, topic, proxy, type_):
    """Sixty messages acknowledged before the silent connection is cut are delivered once; no backlog remains."""
    consumer = subscribe(type_)
    send_plain(client, topic, COUNT)
    received = drain(consumer.receive, COUNT)
    while_silent(proxy, *acknowledgements(consumer, received))
    assert_only_new_messages_arrive(consumer, client, admin, topic)


@pytest.mark.blocking_only("is about the receive methods of the blocking consumer")
@pytest.mark.parametrize("way", ["many", "batch", "policy", "loop", "listener", "timeout", "letters"])
def test_every_receive_method_drops_duplicates(subscribe, client, admin, topic, proxy, way):
    """Each receiving method drops redelivered messages that were acknowledged, and delivers the others."""
    delivered = []
    options = {
        "policy": {"batch_receive_policy": pulsar.ConsumerBatchReceivePolicy(20, -1, 50)},
        "listener": {"message_listener": lambda _, message: delivered.append(message)},
        "timeout": {"unacked_messages_timeout_ms": 60_000},
        "letters": {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(9, f"{topic}-dead")},
    }
    consumer = subscribe(**options.get(way, {}))

    def receive_some():
        if way == "many":
            return consumer.receive_many(20, 10_000)
        if way in ("batch", "policy"):
            return consumer.batch_receive()
        if way == "listener":
            return [delivered.pop(0)] if delivered else []
        return [next(iter(consumer))] if way == "loop" else [consumer.receive(10_000)]

    def receive(expected):
        received = []
        assert eventually(lambda: (received.extend(receive_some()), len(received) >= expected)[1])
        return received

    send_plain(client, topic, COUNT)
    received = receive(COUNT)
    while_silent(proxy, *acknowledgements(consumer, [one for one in received if index_of(one) % 3]))
    send_plain(client, topic, 10, start=COUNT)
    again = receive(COUNT // 3 + 10)
    assert sorted(map(index_of, again)) == [*range(0, COUNT, 3), *range(COUNT, COUNT + 10)]
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)
    assert not delivered


def test_process_handles_each_message_once(subscribe, client, admin, topic, proxy):
    """Sixty handlers of `process()` return during the silence: each message is handled once, and no backlog remains."""
    consumer, handled, end = subscribe(), [], threading.Event()

    def handle(message):
        handled.append(index_of(message))
        end.wait(60)

    async def handle_awaited(message):
        handled.append(index_of(message))
        while not end.is_set():  # noqa: ASYNC110  # another thread sets it
            await asyncio.sleep(0.02)

    handler = handle_awaited if isinstance(consumer, Awaited) else handle
    processing = threading.Thread(target=consumer.process, args=(handler,), kwargs={"concurrency": COUNT})
    processing.start()
    send_plain(client, topic, COUNT)
    assert eventually(lambda: len(handled) == COUNT)
    while_silent(proxy, end.set)
    send_plain(client, topic, 10, start=COUNT)
    assert eventually(lambda: len(handled) >= COUNT + 10)
    assert has_no_backlog(admin, topic)
    consumer.stop_processing()
    processing.join(60)
    assert sorted(handled) == list(range(COUNT + 10))


@pytest.mark.parametrize("profile", ["small-chunks", "batch-index-acks"])
@pytest.mark.parametrize("early", [False, True])
def test_rest_of_a_partial_batch_is_redelivered(subscribe, client, admin, topic, proxy, early):
    """The unacknowledged messages of batches acknowledged in part, during the silence or before, are delivered once."""
    consumer = subscribe()
    send_batches(client, topic, 4, 10)
    received = drain(consumer.receive, 40)
    done = [one for one in received if index_of(one) % 10 < 4 or index_of(one) >= 30]
    if early:
        consumer.acknowledge_many(done)
        consumer.flush_acks()
        eventually(lambda: False, 2.0)  # acknowledgements sent more than a second ago have arrived
        done = []
    while_silent(proxy, *acknowledgements(consumer, done), lambda: None)
    again = drain(consumer.receive, 18)
    assert sorted(map(index_of, again)) == [index for index in range(30) if index % 10 >= 4]
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)


def test_chunked_message_is_not_redelivered(subscribe, client, admin, topic, proxy):
    """Only the third of three chunked messages, two of which were acknowledged during the silence, is delivered."""
    consumer = subscribe()
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    for index in range(3):
        producer.send(payload(index, THREE_CHUNKS))
    received = drain(consumer.receive, 3)
    while_silent(proxy, *acknowledgements(consumer, received[:2]))
    again = drain(consumer.receive, 1)
    assert {index_of(one) for one in again} == {2}  # incomplete messages are requested, and may arrive twice
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)


@pytest.mark.parametrize("several", [False, True])
def test_several_topics_redeliver_nothing(proxy, client_factory, broker, client, admin, topic, several):
    """A consumer of three partitions or topics receives no acknowledged message again on any of them."""
    names = [f"{topic}-{'' if several else 'partition-'}{index}" for index in range(3)]
    if not several:
        admin.create_partitioned_topic(topic, 3)
    through = client_factory(broker, service_url=proxy.service_url)
    consumer = through.subscribe(names if several else topic, "s", pulsar.ConsumerType.Shared)
    for index, one in enumerate(names):
        send_plain(client, one, 20, start=index * 20)
    received = drain(consumer.receive, 60)
    while_silent(proxy, *acknowledgements(consumer, received))
    for index, one in enumerate(names):
        send_plain(client, one, 1, start=COUNT + index)
    again = drain(consumer.receive, 3)
    assert sorted(map(index_of, again)) == [COUNT, COUNT + 1, COUNT + 2]
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, *names)


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_position_during_silence_covers_redelivery(subscribe, client, admin, topic, proxy, type_):
    """After a cumulative acknowledgement of the fiftieth message only the last ten are delivered."""
    consumer = subscribe(type_)
    send_plain(client, topic, COUNT)
    received = drain(consumer.receive, COUNT)
    while_silent(
        proxy,
        lambda: consumer.acknowledge_cumulative(received[20]),
        lambda: consumer.acknowledge_cumulative(received[49]),
    )
    again = drain(consumer.receive, 10)
    assert [index_of(one) for one in again] == list(range(50, COUNT))
    consumer.acknowledge_cumulative(again[-1])
    assert has_no_backlog(admin, topic)


@pytest.mark.parametrize("batched", [False, True])
def test_nack_after_ack_is_redelivered(subscribe, client, admin, topic, proxy, batched):
    """Five messages acknowledged and then negatively acknowledged during the silence are redelivered."""
    consumer = subscribe(negative_ack_redelivery_delay_ms=100)
    if batched:
        send_batches(client, topic, 6, 10)
    else:
        send_plain(client, topic, COUNT)
    received = drain(consumer.receive, COUNT)
    negative = received[5:10]
    steps = [lambda one=one: consumer.negative_acknowledge(one) for one in negative]
    while_silent(proxy, lambda: consumer.acknowledge_many(received), *steps)
    again = drain(consumer.receive, 5)
    assert {index_of(one) for one in again} == {index_of(one) for one in negative}
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)


def test_seek_after_silence_delivers_everything(subscribe, client, admin, topic, proxy):
    """A seek to the beginning, as soon as there is a connection, has all sixty messages delivered."""
    consumer = subscribe()
    send_plain(client, topic, COUNT)
    received = drain(consumer.receive, COUNT)
    while_silent(proxy, *acknowledgements(consumer, received))
    assert eventually(consumer.is_connected)
    consumer.seek(pulsar.MessageId.earliest)
    again = drain(consumer.receive, COUNT)
    assert sorted({index_of(one) for one in again}) == list(range(COUNT))
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)


def test_ack_after_the_cut_is_not_redelivered(subscribe, client, admin, topic, proxy):
    """Messages that the broker redelivered before a slow application acknowledged them are not delivered again."""
    consumer = subscribe()
    send_plain(client, topic, COUNT)
    received = drain(consumer.receive, COUNT)
    proxy.cut()
    assert eventually(lambda: not consumer.is_connected())
    assert eventually(lambda: admin.stats(topic).subscriptions["s"].consumers and consumer.is_connected())
    eventually(lambda: False, 1.0)
    consumer.acknowledge_many(received)
    assert_only_new_messages_arrive(consumer, client, admin, topic)


def test_nack_redelivers_no_acknowledged_messages(client, admin, topic):
    """The acknowledged messages of a batch that the broker redelivers whole are not delivered."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    send_batches(client, topic, 1, 10)
    received = drain(consumer.receive, 10)
    consumer.acknowledge_many(received[:4])
    consumer.negative_acknowledge(received[7])
    again = drain(consumer.receive, 6)
    assert {index_of(one) for one in again} == set(range(4, 10))
    consumer.acknowledge_many(again)
    assert has_no_backlog(admin, topic)
