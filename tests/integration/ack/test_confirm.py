"""Confirmed flushes: the cursor shows everything, or an error is raised."""

from __future__ import annotations

import threading
import time

import pytest
from acked import TYPES, cursor_of, send_plain
from chunked import drain, eventually, index_of

import pulsar_ext as pulsar
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ids.position import Position

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


@pytest.mark.core(awaited=True)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("grouping", [{}, {"ack_group_time_ms": 100}])
def test_confirmed_flush_is_on_the_cursor(client, topic, admin, type_, grouping):
    """After `flush_acks(confirm=True)` the cursor shows exactly what was acknowledged, holes included."""
    consumer = client.subscribe(topic, "s", type_, **grouping)
    send_plain(client, topic, 12)
    messages = drain(consumer.receive, 12)
    for index in (0, 1, 2, 5, 6, 9):
        consumer.acknowledge(messages[index])
    consumer.flush_acks(confirm=True)
    assert consumer.pending_acks() == 0
    assert cursor_of(admin, topic) == {0, 1, 2, 5, 6, 9}
    consumer.acknowledge_many(messages[3:])
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == set(range(12))


@pytest.mark.core
def test_unconfirmed_flush_raises_and_keeps_acks(pulsar_fault_proxy, client_factory, broker, topic):
    """Without a connection a confirmed flush raises; pending acknowledgements arrive after the reconnection."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    admin = client.context.admin_api()
    consumer = client.subscribe(topic, "s", SHARED)
    send_plain(client_factory(broker), topic, 20)
    messages = drain(consumer.receive, 20)
    consumer.acknowledge_many(messages[:5])
    proxy.refuse()
    proxy.cut()
    assert eventually(lambda: not consumer.is_connected())
    consumer.acknowledge_many(messages[5:10])
    with pytest.raises(pulsar.AckNotConfirmed):
        consumer.flush_acks(confirm=True, timeout_ms=200)
    assert consumer.pending_acks() >= 5
    proxy.accept()
    assert eventually(lambda: cursor_of(admin, topic) == set(range(10)))
    assert consumer.pending_acks() == 0


def test_slow_poll_sends_nothing_without_connection(pulsar_fault_proxy, client_factory, broker, topic, monkeypatch):
    """Acknowledgements made when the connection is lost right after a poll stay pending until the reconnection."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", SHARED)
    send_plain(client_factory(broker), topic, 20)
    messages = drain(consumer.receive, 20)
    poll, seen, may_continue = Acknowledger._poll_connection, threading.Event(), threading.Event()

    def slowly(self, inner, now, *, connected):
        must_request = poll(self, inner, now, connected=connected)
        if connected and not seen.is_set():
            seen.set()
            assert may_continue.wait(30)
        return must_request

    monkeypatch.setattr(Acknowledger, "_poll_connection", slowly)
    consumer.acknowledge(messages[0])
    assert seen.wait(30)
    proxy.refuse()
    proxy.cut()
    assert eventually(lambda: not consumer.is_connected())
    consumer.acknowledge_many(messages[1:6])
    may_continue.set()
    assert consumer.pending_acks() == 6
    proxy.accept()
    consumer.flush_acks(confirm=True)
    assert consumer.pending_acks() == 0


@pytest.mark.twin_on_demand
def test_acks_follow_a_cursor_moved_back(client, topic, admin):
    """Messages acknowledged cumulatively are redelivered after a reset; the C++ client alone drops them."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=100)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    consumer.acknowledge_cumulative(messages[8])
    consumer.flush_acks(confirm=True)
    time.sleep(2)  # acknowledgements sent just before a reset are resent after it
    ledger_id = messages[0].message_id().ledger_id()
    admin.reset_cursor(topic, "s", Position(ledger_id, 2))
    again = drain(consumer.receive, 8, quiet_millis=1_000)
    assert {index_of(message) for message in again} >= set(range(2, 10))
    consumer.acknowledge_many(again)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: cursor_of(admin, topic) == set(range(10)))


@pytest.mark.core
@pytest.mark.through
def test_each_partition_and_topic_is_confirmed(client, pulsar_topic_factory, broker, admin):
    """Every partition and every topic of a list has a cursor, and all of them are flushed and confirmed."""
    parts, other = pulsar_topic_factory(partitions=3, broker=broker), pulsar_topic_factory(broker=broker)
    for what, topics in ((parts, [f"{parts}-partition-{one}" for one in range(3)]), ([parts, other], [other])):
        consumer = client.subscribe(what, "s", initial_position=pulsar.InitialPosition.Earliest)
        for one in [parts] * 9 + [other] * (not isinstance(what, str)):
            client.create_producer(one).send(b"0.")
        expected = 9 if isinstance(what, str) else 10
        messages = drain(consumer.receive, expected)
        consumer.acknowledge_many(messages[:-1])
        consumer.acknowledge(messages[-1].message_id())
        consumer.flush_acks(confirm=True)
        for name in topics:
            assert admin.stats(name, precise_backlog=True).subscriptions["s"].backlog_entries == 0
        consumer.close()


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("grouping", [{}, {"ack_group_time_ms": 100}])
def test_non_persistent_topic_needs_no_confirmation(client, topic, type_, grouping):
    """On a topic without a cursor a confirmed flush sends acknowledgements and returns, and a scope ends."""
    volatile = topic.replace("persistent", "non-persistent", 1)
    consumer = client.subscribe(volatile, "s", type_, **grouping)
    send_plain(client, volatile, 6)
    messages = drain(consumer.receive, 6)
    consumer.acknowledge_many(messages[:2])
    consumer.acknowledge(messages[2].message_id())
    consumer.flush_acks(confirm=True)
    with consumer.ack_scope(messages[3:]):
        pass
    assert consumer.pending_acks() == 0


def test_persistent_topics_of_a_mixed_list_are_confirmed(client, topic, admin):
    """The persistent topics of a list are confirmed, although another one has no cursor."""
    volatile = topic.replace("persistent", "non-persistent", 1)
    consumer = client.subscribe([volatile, topic], "s", ack_group_time_ms=100)
    for name in (volatile, topic):
        send_plain(client, name, 5)
    consumer.acknowledge_many(drain(consumer.receive, 10))
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


@pytest.mark.core
def test_scope_acknowledges_all_or_redelivers_all(client, topic, admin):
    """The end of a scope has everything on the cursor; an exception has everything redelivered."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    send_plain(client, topic, 10)

    def fail_over_four():
        with consumer.ack_scope():
            for _ in range(4):
                consumer.receive(10_000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_over_four()
    assert len(drain(consumer.receive, 10)) == 10
    consumer.redeliver_unacknowledged_messages()
    with consumer.ack_scope(drain(consumer.receive, 10)) as messages:
        assert len(messages) == 10
    assert cursor_of(admin, topic) == set(range(10))
