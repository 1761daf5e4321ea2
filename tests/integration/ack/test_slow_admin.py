"""A slow admin API delays no acknowledgement, and its outdated answers are ignored."""

from __future__ import annotations

import pytest
from acked import cursor_of, send_plain
from chunked import drain, eventually, payload
from held_admin import HeldAdmin

import pulsar_ext as pulsar
from pulsar_ext.ack import cursor
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.chunks import resolver

SECONDS = 60


@pytest.fixture
def admin(broker):
    """The broker's admin API."""
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        yield admin


@pytest.fixture
def held(broker, monkeypatch):
    """An admin API for the client whose answers a test can hold back."""
    monkeypatch.setattr(cursor, "_DEADLINE_SECONDS", SECONDS)
    monkeypatch.setattr(resolver, "_HEADER_SECONDS", SECONDS)
    with HeldAdmin(broker.admin_url) as held:
        yield held


@pytest.fixture
def client(client_factory, broker, held):
    """A client that uses the held admin API."""
    return client_factory(broker, admin=held.url)


@pytest.fixture
def acks_on_another_topic_arrive(client, pulsar_topic_factory, broker, admin):
    """Return a function that acknowledges on another topic, and returns True when this arrives."""
    topic = pulsar_topic_factory(broker=broker)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_plain(client, topic, 5)
    messages = drain(consumer.receive, 5)

    def arrives():
        for message in messages:
            consumer.acknowledge(message)
        return eventually(lambda: cursor_of(admin, topic) == set(range(5)))

    return arrives


def subscribe_with_a_hole(client, topic, admin):
    """Return a consumer with a hole in its acknowledgements, which needs the cursor, and its messages."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=100)
    send_plain(client, topic, 11)
    messages = drain(consumer.receive, 11)
    for message in messages[:9]:
        consumer.acknowledge(message)
    assert eventually(lambda: cursor_of(admin, topic) == set(range(9)))
    return consumer, messages


def test_acks_are_sent_during_a_cursor_check(client, topic, admin, held, acks_on_another_topic_arrive):
    """Acknowledgements of another consumer reach its cursor before the admin API has answered."""
    consumer, messages = subscribe_with_a_hole(client, topic, admin)
    held.hold()
    consumer.acknowledge(messages[10])
    assert held.asked.wait(SECONDS)
    assert acks_on_another_topic_arrive()
    assert held.holds


def test_acks_are_sent_during_chunk_lookup(client, topic, held, acks_on_another_topic_arrive):
    """A lookup of chunks for a redelivery delays no acknowledgement; the message is redelivered later."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic, chunking_enabled=True).send(payload(1))
    held.hold()
    consumer.negative_acknowledge(consumer.receive(20_000))
    assert held.asked.wait(SECONDS)
    assert acks_on_another_topic_arrive()
    assert held.holds
    held.release()
    assert consumer.receive(20_000).data() == payload(1)


def test_answer_from_before_a_seek_is_ignored(client, topic, admin, held):
    """A cursor read before a seek begins no run: unacknowledged messages stay unacknowledged."""
    consumer, messages = subscribe_with_a_hole(client, topic, admin)
    held.hold()
    consumer.acknowledge(messages[10])
    assert held.asked.wait(SECONDS)
    consumer.seek(pulsar.MessageId.earliest)
    held.release()
    again = drain(consumer.receive, 11)
    consumer.acknowledge(again[9])
    assert eventually(lambda: 9 in cursor_of(admin, topic))
    assert cursor_of(admin, topic) == {9}
