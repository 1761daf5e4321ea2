"""The C++ client's threads keep their Python thread state from one callback to the next."""

from __future__ import annotations

import threading

import pytest
from chunked import eventually

import pulsar_ext as pulsar
from pulsar_ext._native import thread_state as native_threads

HANG_SECONDS = 60
COUNT = 20


@pytest.fixture(autouse=True)
def places(monkeypatch):
    """Leave places: the clients of the tests before have taken all that a process has."""
    monkeypatch.setattr(native_threads, "_places", iter(range(8)))


def told_one_by_one(client, topic, batching):
    """Send some messages, and give what each callback found of the one before, by their thread."""
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
def test_send_callbacks_keep_what_is_of_their_thread(client, topic, batching):
    """What a send callback puts into a threading.local is there in the next one, which officially begins anew."""
    found = told_one_by_one(client, topic, batching)
    assert found == [(found[0][0], before or None) for before in range(COUNT)]
    assert found[0][0] != threading.get_ident()


@pytest.mark.parametrize("how", ["subscribe", "create_reader"])
def test_listeners_keep_what_is_of_their_thread(client, topic, how):
    """What a listener puts into a threading.local is there at the next message."""
    own, found = threading.local(), []

    def listen(_, message):
        found.append(getattr(own, "before", None))
        own.before = message.data()

    if how == "subscribe":
        client.subscribe(topic, "s", message_listener=listen)
    else:
        client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=listen)
    producer = client.create_producer(topic)
    sent = [b"%d" % number for number in range(COUNT)]
    for content in sent:
        producer.send(content)
    assert eventually(lambda: len(found) == COUNT, HANG_SECONDS)
    assert found == [None, *sent[:-1]]


def test_only_so_many_are_kept_and_others_are_told_as_well(client, topic, monkeypatch):
    """Where no thread state may be kept any more, every callback is called on a new one, as officially."""
    monkeypatch.setattr(native_threads, "_places", iter(()))
    found = told_one_by_one(client, topic, batching=False)
    assert [before for _, before in found] == [None] * COUNT


def test_a_thread_of_pythons_own_takes_no_place(client, topic, monkeypatch):
    """A callback that reports a refusal on the sender's own thread leaves the places to the client's threads."""
    called = []
    producer = client.create_producer(topic)
    producer.close()
    monkeypatch.setattr(native_threads, "_places", iter(range(1)))
    producer.send_async(b"x", lambda result, message_id: called.append((threading.get_ident(), result)))
    assert called == [(threading.get_ident(), pulsar.Result.AlreadyClosed)]
    assert list(native_threads._places) == [0]
