"""Failed lookups of chunks, and failures of dead letters."""

from __future__ import annotations

import threading

import pytest
from acked import with_dead_letters_after_two
from chunked import drain, payload

import pulsar_ext as pulsar
from pulsar_ext.chunks.resolver import Resolver
from pulsar_ext.errors import AdminError
from pulsar_ext.redelivery import tracker
from pulsar_ext.redelivery.letters import DeadLetters

SHARED = pulsar.ConsumerType.Shared


@pytest.fixture
def one_failure(monkeypatch):
    """Make the next lookup of chunks fail, once; return a list of failed ids."""
    find, failed = Resolver.to_redeliver, []

    def fail_once(self, topic, message_id):
        if not failed:
            failed.append(message_id)
            raise AdminError("the admin API did not answer")
        return find(self, topic, message_id)

    monkeypatch.setattr(Resolver, "to_redeliver", fail_once)
    monkeypatch.setattr(tracker, "_LOOKUP_RETRY_SECONDS", 0.2)
    return failed


def test_nacked_message_is_redelivered_after_failed_lookup(client, topic, one_failure):
    """A failed lookup is retried, and messages negatively acknowledged with it are redelivered too."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    sender = client.create_producer(topic, chunking_enabled=True)
    for number in range(3):
        sender.send(payload(number))
    for message in drain(consumer.receive, 3):
        consumer.negative_acknowledge(message)
    assert len({message.data() for message in drain(consumer.receive, 3)}) == 3
    assert one_failure


def test_dead_letters_continue_after_failed_lookup(client, topic, monkeypatch, one_failure):
    """A message whose letter failed is redelivered after another lookup, and its letter arrives later."""
    deliver, failures = DeadLetters._deliver, []

    def fail_once(self, inner):
        if not failures:
            failures.append(inner)
            raise pulsar.PulsarException("no producer")
        deliver(self, inner)

    monkeypatch.setattr(DeadLetters, "_deliver", fail_once)
    letters = client.subscribe(topic + "-dead", "d")
    consumer = with_dead_letters_after_two(client, topic)
    client.create_producer(topic, chunking_enabled=True).send(payload(1))
    one_failure.append("not for the first redelivery")
    consumer.negative_acknowledge(consumer.receive(20_000))
    again = consumer.receive(20_000)
    one_failure.clear()
    consumer.negative_acknowledge(again)
    assert letters.receive(20_000).data() == payload(1)
    assert failures
    assert one_failure


def test_dead_letters_continue_after_failed_thread_start(client, topic, monkeypatch):
    """Dead letters are sent as soon as the process can start a thread again."""
    start, failed = threading.Thread.start, []

    def fail_once(self):
        if self.name == "pulsar-ext-dead-letters" and not failed:
            failed.append(self)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    letters = client.subscribe(topic + "-dead", "d")
    consumer = with_dead_letters_after_two(client, topic)
    client.create_producer(topic).send_many([b"one", b"two"])
    for _ in range(2):
        for message in drain(consumer.receive, 2):
            consumer.negative_acknowledge(message)
    assert {letter.data() for letter in drain(letters.receive, 2)} == {b"one", b"two"}
    assert failed


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_initial_subscription_may_have_a_consumer(client, topic, type_):
    """Dead letters arrive although the initial subscription has a consumer of another type."""
    letters = client.subscribe(topic + "-dead", "letters", type_)
    consumer = with_dead_letters_after_two(client, topic, "letters")
    client.create_producer(topic).send(b"refused")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(20_000))
    assert letters.receive(20_000).data() == b"refused"
