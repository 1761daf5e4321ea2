"""A confirmed flush: on the cursor, or an error."""

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
def test_a_confirmed_flush_is_on_the_cursor(client, topic, admin, type_, grouping):
    """After flush_acks(confirm=True) the cursor has what was acknowledged, holes included, and nothing else."""
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
def test_what_cannot_be_confirmed_raises_and_is_kept(pulsar_fault_proxy, client_factory, broker, topic):
    """While the broker cannot be reached a confirmed flush raises; acknowledgements given then arrive afterwards."""
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


def test_a_slow_look_sends_nothing_without_a_connection(pulsar_fault_proxy, client_factory, broker, topic, monkeypatch):
    """The connection ends after a look has seen it: what is acknowledged then is pending until there is another one."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", SHARED)
    send_plain(client_factory(broker), topic, 20)
    messages = drain(consumer.receive, 20)
    look, seen, goes_on = Acknowledger._look_at_connection, threading.Event(), threading.Event()

    def slowly(self, now, *, connected):
        asks = look(self, now, connected=connected)
        if connected and not seen.is_set():
            seen.set()
            assert goes_on.wait(30)
        return asks

    monkeypatch.setattr(Acknowledger, "_look_at_connection", slowly)
    consumer.acknowledge(messages[0])
    assert seen.wait(30)
    proxy.refuse()
    proxy.cut()
    assert eventually(lambda: not consumer.is_connected())
    consumer.acknowledge_many(messages[1:6])
    goes_on.set()
    assert consumer.pending_acks() == 6
    proxy.accept()
    consumer.flush_acks(confirm=True)
    assert consumer.pending_acks() == 0


@pytest.mark.twin_on_demand
def test_a_cursor_that_an_operator_moved_back_is_followed(client, topic, admin):
    """What was acknowledged cumulatively is delivered again after a reset; the C++ client alone drops it."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=100)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    consumer.acknowledge_cumulative(messages[8])
    consumer.flush_acks(confirm=True)
    time.sleep(2)  # what left just before a reset is sent again after it
    ledger_id = messages[0].message_id().ledger_id()
    admin.reset_cursor(topic, "s", Position(ledger_id, 2))
    again = drain(consumer.receive, 8, quiet_millis=1_000)
    assert {index_of(message) for message in again} >= set(range(2, 10))
    consumer.acknowledge_many(again)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: cursor_of(admin, topic) == set(range(10)))  # nothing is taken back without coming again


@pytest.mark.core
@pytest.mark.through
def test_partitions_and_lists_are_confirmed_each(client, pulsar_topic_factory, broker, admin):
    """Every partition and every topic of a list has a cursor of its own, and all are flushed and confirmed."""
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
def test_a_non_persistent_topic_has_nothing_to_confirm(client, topic, type_, grouping):
    """A confirmed flush sends what was acknowledged on a topic that has no cursor, and returns; a scope ends."""
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


def test_beside_a_non_persistent_topic_the_others_are_confirmed(client, topic, admin):
    """Of a list of topics of both kinds, those with a cursor are confirmed."""
    volatile = topic.replace("persistent", "non-persistent", 1)
    consumer = client.subscribe([volatile, topic], "s", ack_group_time_ms=100)
    for name in (volatile, topic):
        send_plain(client, name, 5)
    consumer.acknowledge_many(drain(consumer.receive, 10))
    consumer.flush_acks(confirm=True)
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


@pytest.mark.core
def test_a_scope_acknowledges_all_or_redelivers_all(client, topic, admin):
    """At the end of the block everything is on the cursor; an exception has everything delivered again."""
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
