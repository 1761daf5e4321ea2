"""A paused consumer hands out nothing, takes nothing more from the broker, and loses nothing."""

from __future__ import annotations

import threading

import pytest
from acked import TYPES, send_plain
from awaited import blocking_of
from chunked import drain, eventually, index_of, payload

import pulsar_ext as pulsar

BOTH_CLIENTS = True
EARLIEST = pulsar.InitialPosition.Earliest


def nothing_comes(consumer):
    """Every kind of receive waits in vain, for less than a native wait and for more."""
    for millis in (0, 50, 300):
        with pytest.raises(pulsar.Timeout):
            consumer.receive(millis)
    return consumer.receive_many(10, 200) == []


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.through
def test_nothing_is_handed_out_until_it_is_resumed(client, topic, type_):
    """Receives of every kind time out in a pause, though messages are here; behind it each comes once, in order."""
    consumer = client.subscribe(topic, "s", type_, initial_position=EARLIEST)
    send_plain(client, topic, 40)
    first = [index_of(consumer.receive(10_000)), *map(index_of, consumer.receive_many(5, 10_000))]
    consumer.pause()
    assert consumer.is_paused
    assert nothing_comes(consumer)
    consumer.resume()
    assert not consumer.is_paused
    assert first + [index_of(one) for one in drain(consumer.receive, 40 - len(first))] == list(range(40))


@pytest.mark.blocking_only("the awaited one waits until a message has come")
def test_a_batch_is_empty_in_a_pause(client, topic):
    """In a pause `batch_receive()` gives nothing, and what came meanwhile behind it."""
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
def test_the_broker_sends_no_more_than_there_is_room_for(client, topic, admin, size):
    """In a pause the broker has delivered what the receiver queue has room for, and no more."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=size)
    consumer.pause()
    send_plain(client, topic, 50)
    room = max(size, 1)
    assert nothing_comes(consumer)
    assert admin.stats(topic).subscriptions["s"].unacked_messages <= room
    consumer.resume()
    assert sorted(index_of(one) for one in drain(consumer.receive, 50)) == list(range(50))


def test_who_waits_gets_the_first_message_behind_the_pause(client, topic):
    """A receive that began in a pause has the message that came meanwhile once it is resumed."""
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


def test_a_loop_goes_on_behind_the_pause(client, topic):
    """A loop waits in a pause that its own body began, and goes on with the next message when another ends it."""
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


def test_a_listener_waits(client, topic):
    """A listener is not called in a pause, and is for every message behind it."""
    came = []
    consumer = client.subscribe(topic, "s", message_listener=lambda _, message: came.append(index_of(message)))
    consumer.pause()
    send_plain(client, topic, 10)
    assert not eventually(lambda: bool(came), 1.0)
    consumer.resume()
    assert eventually(lambda: came == list(range(10)))


def test_a_paused_listener_is_not_called_behind_a_seek(client, topic):
    """What the C++ consumer was told of its listener holds for the next one as well; resumed, it hears all again."""
    came = []
    consumer = client.subscribe(topic, "s", message_listener=lambda _, message: came.append(index_of(message)))
    send_plain(client, topic, 10)
    assert eventually(lambda: came == list(range(10)))
    consumer.pause_message_listener()
    consumer.seek(pulsar.MessageId.earliest)
    assert not eventually(lambda: len(came) > 10, 1.0)
    consumer.pause()
    consumer.resume()
    assert not eventually(lambda: len(came) > 10, 0.5)
    consumer.resume_message_listener()
    assert eventually(lambda: came == [*range(10), *range(10)])


@pytest.mark.core
def test_a_pause_outlasts_a_seek(client, topic):
    """Behind a seek another C++ consumer is as paused; resumed, it begins where was sought."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 10)
    assert len(drain(consumer.receive, 10)) == 10
    consumer.pause()
    consumer.seek(pulsar.MessageId.earliest)
    assert nothing_comes(consumer)
    consumer.resume()
    assert [index_of(one) for one in drain(consumer.receive, 10)] == list(range(10))


def test_a_close_ends_who_waits_in_a_pause(client, topic):
    """A receive, a loop and a late `pause()` of a paused consumer that is closed end with AlreadyClosed, or end."""
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


def test_whole_messages_and_records(client, topic):
    """Chunked messages come whole behind a pause, also to a block that records, and a pause in the block is one."""
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic, chunking_enabled=True)
    for number in range(4):
        producer.send(payload(number))
    with consumer.ack_scope(confirm=False) as scope:
        assert index_of(consumer.receive(10_000)) == 0
        consumer.pause()
        assert nothing_comes(consumer)
        consumer.resume()
        assert [index_of(one) for one in drain(consumer.receive, 3)] == [1, 2, 3]
        del scope
    consumer.flush_acks(confirm=True)
    assert blocking_of(consumer).pending_acks() == 0
