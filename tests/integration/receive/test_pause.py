"""A paused consumer delivers nothing, requests no more from the broker, and loses nothing."""

from __future__ import annotations

import threading

import pytest
from acked import TYPES, send_plain
from awaited import blocking_of
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
EARLIEST = pulsar.InitialPosition.Earliest


def receives_nothing(consumer):
    """Return whether every kind of receive times out, with timeouts shorter and longer than a native wait."""
    for millis in (0, 50, 300):
        with pytest.raises(pulsar.Timeout):
            consumer.receive(millis)
    return consumer.receive_many(10, 200) == []


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.through
def test_paused_consumer_delivers_nothing_until_resumed(client, topic, type_):
    """Every kind of receive times out during a pause; after it each message arrives once, in order."""
    consumer = client.subscribe(topic, "s", type_, initial_position=EARLIEST)
    send_plain(client, topic, 40)
    first = [index_of(consumer.receive(10_000)), *map(index_of, consumer.receive_many(5, 10_000))]
    consumer.pause()
    assert consumer.is_paused
    assert receives_nothing(consumer)
    consumer.resume()
    assert not consumer.is_paused
    assert first + [index_of(one) for one in drain(consumer.receive, 40 - len(first))] == list(range(40))


@pytest.mark.blocking_only("the awaited one waits until a message has come")
def test_batch_receive_is_empty_during_a_pause(client, topic):
    """During a pause `batch_receive()` returns no messages, and afterwards those that have arrived."""
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    consumer.pause()
    send_plain(client, topic, 10)
    assert consumer.batch_receive() == []
    consumer.resume()
    batch = []
    while len(batch) < 10:
        batch += consumer.batch_receive()
    assert [index_of(one) for one in batch] == list(range(10))


@pytest.mark.parametrize("size", [0, 1, 10])
def test_paused_consumer_limits_the_broker_to_its_queue(client, topic, admin, size):
    """During a pause the broker delivers only as many messages as the receiver queue holds."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=size)
    consumer.pause()
    send_plain(client, topic, 50)
    room = max(size, 1)
    assert receives_nothing(consumer)
    assert admin.stats(topic).subscriptions["s"].unacked_messages <= room
    consumer.resume()
    assert sorted(index_of(one) for one in drain(consumer.receive, 50)) == list(range(50))


def test_waiting_receive_returns_after_the_pause(client, topic):
    """A receive that began during a pause returns a message that arrived during it once it is resumed."""
    consumer = client.subscribe(topic, "s")
    consumer.pause()
    send_plain(client, topic, 1)
    came = []
    waiting = threading.Thread(target=lambda: came.append(index_of(consumer.receive())))
    waiting.start()
    waiting.join(0.5)
    assert came == []
    consumer.resume()
    waiting.join(30)
    assert came == [0]


def test_loop_continues_after_the_pause(client, topic):
    """A loop waits during a pause that its own body began, and continues after another thread's resume."""
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    send_plain(client, topic, 20)
    came, resumed = [], []

    def resume():
        resumed.append(len(came))
        consumer.resume()

    for message in consumer:
        came.append(index_of(message))
        if len(came) == 20:
            break
        if len(came) == 7:
            consumer.pause()
            threading.Timer(0.5, resume).start()
    assert came == list(range(20))
    assert resumed == [7]


def test_pause_stops_the_listener(client, topic):
    """A listener is not called during a pause, and is called for every message after it."""
    came = []
    consumer = client.subscribe(topic, "s", message_listener=lambda _, message: came.append(index_of(message)))
    consumer.pause()
    send_plain(client, topic, 10)
    assert not eventually(lambda: bool(came), 1.0)
    consumer.resume()
    assert eventually(lambda: came == list(range(10)))


def test_paused_listener_stays_paused_after_a_seek(client, topic):
    """A paused listener stays paused for the reopened C++ consumer; resumed, it gets all messages again.

    It may be called with messages that arrive before the reopened C++ consumer is paused.
    """
    came = []
    consumer = client.subscribe(topic, "s", message_listener=lambda _, message: came.append(index_of(message)))
    send_plain(client, topic, 10)
    assert eventually(lambda: came == list(range(10)))
    consumer.pause_message_listener()
    consumer.seek(pulsar.MessageId.earliest)
    producer = client.create_producer(topic)
    producer.send(payload(10, 20))
    assert not eventually(lambda: 10 in came, 1.0)
    consumer.pause()
    consumer.resume()
    assert not eventually(lambda: 10 in came, 0.5)
    consumer.resume_message_listener()
    assert eventually(lambda: came == [*range(10), *range(11)])


@pytest.mark.core
def test_pause_outlasts_a_seek(client, topic):
    """The C++ consumer reopened by a seek stays paused; resumed, it begins at the target."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 10)
    assert len(drain(consumer.receive, 10)) == 10
    consumer.pause()
    consumer.seek(pulsar.MessageId.earliest)
    assert receives_nothing(consumer)
    consumer.resume()
    assert [index_of(one) for one in drain(consumer.receive, 10)] == list(range(10))


def test_close_ends_waits_during_a_pause(client, topic):
    """A receive and `pause()` of a paused consumer that is closed raise AlreadyClosed, and a loop ends."""
    consumer = client.subscribe(topic, "s")
    consumer.pause()
    ended = []

    def receive():
        try:
            consumer.receive()
        except pulsar.AlreadyClosed:
            ended.append("receive")

    def loop():
        ended.extend(consumer)
        ended.append("loop")

    threads = [threading.Thread(target=one) for one in (receive, loop)]
    for one in threads:
        one.start()
    consumer.close()
    for one in threads:
        one.join(30)
    assert sorted(ended) == ["loop", "receive"]
    for call in (consumer.pause, consumer.resume):
        with pytest.raises(pulsar.AlreadyClosed):
            call()


def test_pause_with_chunked_messages_in_a_scope(client, topic):
    """Chunked messages arrive whole after a pause, also inside a scope that contains a pause."""
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic, chunking_enabled=True)
    for number in range(4):
        producer.send(payload(number))
    with consumer.ack_scope(confirm=False) as scope:
        assert index_of(consumer.receive(10_000)) == 0
        consumer.pause()
        assert receives_nothing(consumer)
        consumer.resume()
        assert [index_of(one) for one in drain(consumer.receive, 3)] == [1, 2, 3]
        del scope
    consumer.flush_acks(confirm=True)
    assert blocking_of(consumer).pending_acks() == 0
