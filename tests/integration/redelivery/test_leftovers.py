"""Chunks of official producers: whole messages are received, incomplete ones are acknowledged."""

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
from pulsar_ext.chunks.leftovers import max_concurrent_incomplete
from pulsar_ext.redelivery import stranded

ROUNDS, SIZE = 10, 2_000_000
STEP_SECONDS = 0.0015
TYPES = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared]


@pytest.fixture
def cut_producer(pulsar_fault_proxy, broker):
    """Return a function that sends a chunked message officially, and cuts its connection after `seconds`."""
    proxy = pulsar_fault_proxy(broker)
    client = official_client(broker, proxy.service_url)

    def send(topic, index, seconds):
        producer = client.create_producer(topic, chunking_enabled=True)
        results = []
        producer.send_async(payload(index, SIZE), lambda result, _: results.append(result))
        time.sleep(seconds)
        proxy.cut()
        assert eventually(lambda: results == [official.Result.Ok])
        with contextlib.suppress(official.PulsarException):  # the connection may be lost again
            producer.close()

    yield send
    with contextlib.suppress(official.PulsarException):
        client.close()


def test_messages_dropped_for_others_are_redelivered(broker, client, admin, topic, monkeypatch, caplog):
    """Chunked messages that the C++ client dropped, as too many were incomplete, are redelivered."""
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
    if max_concurrent_incomplete(entries(admin, topic)) > 1:  # otherwise the producers were not concurrent
        assert "max_pending_chunked_message=1" in caplog.text
    for one in clients:
        one.close()


def _is_empty(admin, topic):
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


@pytest.mark.parametrize("type_", TYPES)
def test_messages_resent_by_official_producers_arrive(cut_producer, client, admin, topic, type_):
    """Ten messages whose connections were cut at different times arrive, and no chunk stays in the backlog."""
    consumer = client.subscribe(topic, "s", type_)
    for round_ in range(ROUNDS):
        cut_producer(topic, round_, round_ * STEP_SECONDS)
    received = set()

    def all_received():
        messages = consumer.receive_many(10, 500)
        received.update(map(index_of, messages))
        consumer.acknowledge_many(messages)
        return len(received) == ROUNDS

    assert eventually(all_received, 60)
    assert eventually(lambda: _is_empty(admin, topic), 60)


@pytest.mark.parametrize("type_", TYPES)
def test_incomplete_messages_are_acknowledged(program, client, admin, topic, broker, type_, monkeypatch):
    """The chunks of five killed producers are acknowledged, and a whole message is received."""
    monkeypatch.setattr(leftovers, "_EXPIRY_SECONDS", 1.0)
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


def test_cursors_of_added_partitions_are_checked(client, admin, topic, monkeypatch):
    """After a chunked message, the cursors of partitions added later are checked too."""
    monkeypatch.setattr(stranded, "_SOON_SECONDS", 0.2)
    monkeypatch.setattr(stranded, "_LATER_SECONDS", 0.2)
    check, checked = stranded.LeftoverWatch._check_topic, set()

    def note(self, name, now):
        checked.add(name.rpartition("-")[2])
        return check(self, name, now)

    monkeypatch.setattr(stranded.LeftoverWatch, "_check_topic", note)
    admin.create_partitioned_topic(topic, 1)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic, chunking_enabled=True).send(payload(0))
    consumer.acknowledge(consumer.receive(10_000))
    assert eventually(lambda: checked == {"0"})
    admin.update_partitions(topic, 3)
    assert eventually(lambda: checked == {"0", "1", "2"})
