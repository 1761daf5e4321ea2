"""Every kind of receive goes on where another ended, and a seek drops what was received before it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from acked import cursor_of, send_batches, send_plain
from chunked import index_of

import pulsar_ext as pulsar
from pulsar_ext import MessageId

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


@pytest.mark.core
def test_many_and_one_by_one(client, topic):
    """receive_many takes what is there, in order, and waits for the first only; a for loop ends when it is closed."""
    consumer = client.subscribe(topic, "s")
    assert consumer.receive_many(5, 50) == []
    send_plain(client, topic, 10)
    messages = []
    while len(messages) < 7:
        messages += consumer.receive_many(7 - len(messages), 10_000)
    for message in consumer:
        messages.append(message)
        if len(messages) == 10:
            break
    assert [index_of(message) for message in messages] == list(range(10))
    for wrong in (0, True, "5"):
        with pytest.raises(pulsar.InvalidUse):
            consumer.receive_many(wrong)
    waiter = threading.Thread(target=lambda: messages.extend(consumer))
    waiter.start()
    consumer.close()
    waiter.join(20)
    assert not waiter.is_alive()
    assert len(messages) == 10


@pytest.mark.core
def test_a_receive_gets_what_comes_within_its_timeout(client, topic):
    """No message is there at first, nor for some time."""
    consumer = client.subscribe(topic, "s")
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(consumer.receive, 20_000)
        with pytest.raises(TimeoutError):
            receiving.result(0.3)
        send_plain(client, topic, 1)
        assert index_of(receiving.result(20)) == 0


@pytest.mark.core
def test_every_receive_goes_on_where_another_ended(client, topic, admin):
    """After a break every kind of receive goes on where the loop was; a scope acknowledges what it received alone."""
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    send_batches(client, topic, 60, 10)
    got = []
    for message in consumer:
        got.append(message)
        if len(got) == 50:
            break
    got += [consumer.receive(), consumer.receive(1_000), consumer.receive(50)]
    got += consumer.receive_many(7)
    with consumer.ack_scope(confirm=False) as _:
        got += [consumer.receive() for _ in range(10)]
        got += consumer.receive_many(13)
        got += consumer.batch_receive()
        inside = len(got)
    while len(got) < 600:
        got += consumer.receive_many(100, 10_000)
    assert [index_of(message) for message in got] == list(range(600))
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == set(range(6, inside // 10))
    consumer.seek(MessageId.earliest)
    assert index_of(next(iter(consumer))) == 0
    consumer.seek(got[300].message_id())
    assert index_of(consumer.receive()) == 301


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_what_was_acknowledged_just_before_a_seek_comes_again(client, topic, type_):
    """Nothing that was sent before a seek is sent again when the consumer is back: it would skip what comes anew."""
    consumer = client.subscribe(topic, "s", type_)
    send_plain(client, topic, 100)
    for _ in range(8):
        for _ in range(100):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.seek(MessageId.earliest)
        assert index_of(consumer.receive(10_000)) == 0
        consumer.seek(MessageId.earliest)


def test_nothing_prefetched_survives_a_seek(client, topic):
    """After a seek receive_many begins where the seek went, with nothing from before."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    send_plain(client, topic, 30)
    first = [consumer.receive(10_000), *consumer.receive_many(1, 10_000)]
    consumer.seek(first[1].message_id())
    assert index_of(consumer.receive_many(1, 10_000)[0]) == 1
