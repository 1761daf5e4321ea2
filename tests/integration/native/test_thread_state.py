"""The C++ client's threads keep their Python thread state between callbacks."""

from __future__ import annotations

import threading

import pytest
from chunked import eventually

import pulsar_ext as pulsar
from pulsar_ext._native import thread_state as native_threads

HANG_SECONDS = 60
COUNT = 20


@pytest.fixture(autouse=True)
def free_slots(monkeypatch):
    """Leave free slots: the clients of earlier tests have used all slots of the process."""
    monkeypatch.setattr(native_threads, "_slots", iter(range(8)))


def call_one_by_one(client, topic, batching):
    """Send messages; return the thread of each callback, and what it found of the callback before."""
    own, found, called = threading.local(), [], threading.Semaphore(0)

    def callback(result, message_id):
        found.append((threading.get_ident(), getattr(own, "before", None)))
        own.before = len(found)
        called.release()

    with client.create_producer(topic, batching_enabled=batching, batching_max_publish_delay_ms=1) as producer:
        for _ in range(COUNT):
            producer.send_async(b"x", callback)
            assert called.acquire(timeout=HANG_SECONDS)
    return found


@pytest.mark.core
@pytest.mark.parametrize("batching", [False, True])
def test_send_callbacks_keep_thread_local_data(client, topic, batching):
    """A value that a send callback stores in a threading.local is there in the next callback."""
    found = call_one_by_one(client, topic, batching)
    assert found == [(found[0][0], before or None) for before in range(COUNT)]
    assert found[0][0] != threading.get_ident()


@pytest.mark.parametrize("opened_by", ["subscribe", "create_reader"])
def test_listeners_keep_thread_local_data(client, topic, opened_by):
    """A value that a listener stores in a threading.local is there at the next message."""
    own, found = threading.local(), []

    def listen(_, message):
        found.append(getattr(own, "before", None))
        own.before = message.data()

    if opened_by == "subscribe":
        client.subscribe(topic, "s", message_listener=listen)
    else:
        client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=listen)
    producer = client.create_producer(topic)
    sent = [b"%d" % number for number in range(COUNT)]
    for content in sent:
        producer.send(content)
    assert eventually(lambda: len(found) == COUNT, HANG_SECONDS)
    assert found == [None, *sent[:-1]]


def test_callbacks_work_without_a_free_slot(client, topic, monkeypatch):
    """Each callback is called with a new thread state if no more may be kept, as officially."""
    monkeypatch.setattr(native_threads, "_slots", iter(()))
    found = call_one_by_one(client, topic, batching=False)
    assert [before for _, before in found] == [None] * COUNT


def test_python_threads_use_no_slot(client, topic, monkeypatch):
    """A callback of an immediate rejection on the sender's own thread uses no slot."""
    called = []
    producer = client.create_producer(topic)
    producer.close()
    monkeypatch.setattr(native_threads, "_slots", iter(range(1)))
    producer.send_async(b"x", lambda result, message_id: called.append((threading.get_ident(), result)))
    assert called == [(threading.get_ident(), pulsar.Result.AlreadyClosed)]
    assert list(native_threads._slots) == [0]
