"""What official producers leave of messages in chunks: received whole where it is there, else acknowledged."""

from __future__ import annotations

import contextlib
import threading
import time

import pulsar as official
import pytest
from chunked import eventually, index_of, payload
from reach import official_client
from stored import entries

import pulsar_ext as pulsar
from pulsar_ext.chunks import leftovers
from pulsar_ext.chunks.leftovers import most_begun
from pulsar_ext.redelivery import stranded

ROUNDS, SIZE = 10, 2_000_000
STEP_SECONDS = 0.0015
TYPES = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared]


@pytest.fixture
def cut_producer(pulsar_fault_proxy, broker):
    """Sends a message in chunks with the official client, and cuts its connection so many seconds later."""
    proxy = pulsar_fault_proxy(broker)
    client = official_client(broker, proxy.service_url)

    def send(topic, index, seconds):
        producer = client.create_producer(topic, chunking_enabled=True)
        results = []
        producer.send_async(payload(index, SIZE), lambda result, _: results.append(result))
        time.sleep(seconds)
        proxy.cut()
        assert eventually(lambda: results == [official.Result.Ok])
        with contextlib.suppress(official.PulsarException):  # it may be without a connection once more
            producer.close()

    yield send
    with contextlib.suppress(official.PulsarException):
        client.close()


def test_messages_dropped_for_others_are_redelivered(broker, client, admin, topic, monkeypatch, caplog):
    """Chunked messages that the C++ client drops, as more are begun at a time than it keeps, come all the same."""
    monkeypatch.setattr(stranded, "_SOON_SECONDS", 0.5)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, max_pending_chunked_message=1)
    clients = [official_client(broker) for _ in range(4)]

    def send(index, own):
        producer = own.create_producer(topic, chunking_enabled=True)
        for number in range(2):
            producer.send(payload(2 * index + number, SIZE // 2))

    threads = [threading.Thread(target=send, args=one) for one in enumerate(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found = set()
    while len(found) < 8:
        message = consumer.receive(60_000)
        found.add(index_of(message))
        consumer.acknowledge(message)
    consumer.flush_acks(confirm=True)
    assert _is_empty(admin, topic)
    if most_begun(entries(admin, topic)) > 1:  # else the broker had them one behind the other
        assert "max_pending_chunked_message=1" in caplog.text
    for one in clients:
        one.close()


def _is_empty(admin, topic):
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


@pytest.mark.parametrize("type_", TYPES)
def test_what_an_official_producer_sent_again_amid_it_is_received(cut_producer, client, admin, topic, type_):
    """Ten connections are cut sooner and later amid a message; each of them comes, and no chunk stays."""
    consumer = client.subscribe(topic, "s", type_)
    for round_ in range(ROUNDS):
        cut_producer(topic, round_, round_ * STEP_SECONDS)
    came = set()

    def all_came():
        messages = consumer.receive_many(10, 500)
        came.update(map(index_of, messages))
        consumer.acknowledge_many(messages)
        return len(came) == ROUNDS

    assert eventually(all_came, 60)
    assert eventually(lambda: _is_empty(admin, topic), 60)


@pytest.mark.parametrize("type_", TYPES)
def test_what_has_no_end_is_acknowledged(program, client, admin, topic, broker, type_, monkeypatch):
    """Five producers are killed amid a message, and one sends a whole one; then nothing of theirs stays."""
    monkeypatch.setattr(leftovers, "_PATIENCE_SECONDS", 1.0)
    consumer = client.subscribe(topic, "s", type_)
    for round_ in range(5):
        program(
            f"""
            import os, threading
            producer = connect().create_producer({topic!r}, chunking_enabled=True)
            producer.send_async(b"7." * {SIZE // 2}, None)
            threading.Timer({STEP_SECONDS * round_}, os.kill, (os.getpid(), 9)).start()
            producer.flush()
            """
        )
    client.create_producer(topic, chunking_enabled=True).send(payload(0, SIZE))
    while index_of(message := consumer.receive(10_000)) != 0:
        consumer.acknowledge(message)
    consumer.acknowledge(message)
    assert eventually(lambda: _is_empty(admin, topic), 60)


def test_partitions_that_came_later_are_looked_at(client, admin, topic, monkeypatch):
    """Where chunked messages come, the cursors of partitions that the topic did not have before are looked at too."""
    monkeypatch.setattr(stranded, "_SOON_SECONDS", 0.2)
    monkeypatch.setattr(stranded, "_LATER_SECONDS", 0.2)
    look, looked = stranded.LeftoverWatch._look, set()

    def note(self, name, now):
        looked.add(name.rpartition("-")[2])
        return look(self, name, now)

    monkeypatch.setattr(stranded.LeftoverWatch, "_look", note)
    admin.create_partitioned_topic(topic, 1)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic, chunking_enabled=True).send(payload(0))
    consumer.acknowledge(consumer.receive(10_000))
    assert eventually(lambda: looked == {"0"})
    admin.update_partitions(topic, 3)
    assert eventually(lambda: looked == {"0", "1", "2"})
