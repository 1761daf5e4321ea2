"""An admin API that takes its time holds up no acknowledgement, and what it answers too late is not believed."""

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
    """An admin API that answers at once."""
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        yield admin


@pytest.fixture
def held(broker, monkeypatch):
    """The admin API that the client has; it is waited for as long as the test takes."""
    monkeypatch.setattr(cursor, "_LOOK_DEADLINE_SECONDS", SECONDS)
    monkeypatch.setattr(resolver, "_HEADER_SECONDS", SECONDS)
    with HeldAdmin(broker.admin_url) as held:
        yield held


@pytest.fixture
def client(client_factory, broker, held):
    """A client that asks there."""
    return client_factory(broker, admin=held.url)


@pytest.fixture
def acknowledged_elsewhere(client, pulsar_topic_factory, broker, admin):
    """Acknowledge on another topic, with the same client; whether that arrives."""
    topic = pulsar_topic_factory(broker=broker)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    send_plain(client, topic, 5)
    messages = drain(consumer.receive, 5)

    def arrives():
        for message in messages:
            consumer.acknowledge(message)
        return eventually(lambda: cursor_of(admin, topic) == set(range(5)))

    return arrives


def with_a_hole(client, topic, admin):
    """A consumer whose runs are interrupted, so that it is going to look at the cursor, and its messages."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=100)
    send_plain(client, topic, 11)
    messages = drain(consumer.receive, 11)
    for message in messages[:9]:
        consumer.acknowledge(message)
    assert eventually(lambda: cursor_of(admin, topic) == set(range(9)))
    return consumer, messages


def test_acknowledgements_leave_while_a_cursor_is_looked_at(client, topic, admin, held, acknowledged_elsewhere):
    """Those of another consumer are on its cursor before the admin API has answered."""
    consumer, messages = with_a_hole(client, topic, admin)
    held.hold()
    consumer.acknowledge(messages[10])
    assert held.asked.wait(SECONDS)
    assert acknowledged_elsewhere()
    assert held.holds


def test_acknowledgements_leave_while_chunks_are_looked_for(client, topic, held, acknowledged_elsewhere):
    """A refused message in chunks, which cannot be found yet, holds up no acknowledgement, and comes again later."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic, chunking_enabled=True).send(payload(1))
    held.hold()
    consumer.negative_acknowledge(consumer.receive(20_000))
    assert held.asked.wait(SECONDS)
    assert acknowledged_elsewhere()
    assert held.holds
    held.release()
    assert consumer.receive(20_000).data() == payload(1)


def test_an_answer_of_before_a_seek_is_not_believed(client, topic, admin, held):
    """No run begins where the cursor was before it: what was not acknowledged since stays unacknowledged."""
    consumer, messages = with_a_hole(client, topic, admin)
    held.hold()
    consumer.acknowledge(messages[10])
    assert held.asked.wait(SECONDS)
    consumer.seek(pulsar.MessageId.earliest)
    held.release()
    again = drain(consumer.receive, 11)
    consumer.acknowledge(again[9])
    assert eventually(lambda: 9 in cursor_of(admin, topic))
    assert cursor_of(admin, topic) == {9}
