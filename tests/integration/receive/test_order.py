"""Every kind of receive continues where another ended, and a seek drops what was received before it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from acked import cursor_of, send_batches, send_plain
from chunked import eventually, index_of

import pulsar_ext as pulsar
from pulsar_ext import MessageId

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


@pytest.mark.core
def test_receive_many_and_loops(client, topic):
    """receive_many returns arrived messages in order, waits for the first only, and a loop ends at a close."""
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
def test_receive_returns_a_message_within_its_timeout(client, topic):
    """A receive that waits returns a message that arrives later."""
    consumer = client.subscribe(topic, "s")
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(consumer.receive, 20_000)
        with pytest.raises(TimeoutError):
            receiving.result(0.3)
        send_plain(client, topic, 1)
        assert index_of(receiving.result(20)) == 0


@pytest.mark.core
def test_every_receive_continues_after_another(client, topic, admin):
    """Every kind of receive continues after a loop, and a scope acknowledges only what it received."""
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
    consumer.flush_acks()  # not confirmed: a batch may be received in part, and this broker stores whole batches only
    assert eventually(lambda: cursor_of(admin, topic) == set(range(6, inside // 10)))
    consumer.seek(MessageId.earliest)
    assert index_of(next(iter(consumer))) == 0
    consumer.seek(got[300].message_id())
    assert index_of(consumer.receive()) == 301


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_seek_redelivers_recently_acknowledged_messages(client, topic, type_):
    """Acknowledgements sent before a seek are not resent after it, which would skip redelivered messages."""
    consumer = client.subscribe(topic, "s", type_)
    send_plain(client, topic, 100)
    for _ in range(8):
        for _ in range(100):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.seek(MessageId.earliest)
        assert index_of(consumer.receive(10_000)) == 0
        consumer.seek(MessageId.earliest)


def test_seek_discards_earlier_messages(client, topic):
    """After a seek, receive_many begins at the target, without earlier messages."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    send_plain(client, topic, 30)
    first = [consumer.receive(10_000), *consumer.receive_many(1, 10_000)]
    consumer.seek(first[1].message_id())
    assert index_of(consumer.receive_many(1, 10_000)[0]) == 1
