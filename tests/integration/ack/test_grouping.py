"""Acknowledgements are sent in groups, and each group contains exactly what was acknowledged."""

from __future__ import annotations

import os
import threading
import time

import pytest
from acked import cursor_of, send_batches, send_plain
from chunked import THREE_CHUNKS, drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext import MessageId

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


@pytest.mark.core
def test_group_is_sent_by_time_or_size(client, topic, admin):
    """Acknowledgements are pending for a long group time; a full group is sent at once."""
    consumer = client.subscribe(topic, "s", SHARED, ack_group_time_ms=600_000, max_ack_group_size=5)
    send_plain(client, topic, 9)
    messages = drain(consumer.receive, 9)
    for message in messages[:4]:
        consumer.acknowledge(message)
    time.sleep(0.5)
    assert (consumer.pending_acks(), cursor_of(admin, topic)) == (4, set())
    consumer.acknowledge(messages[4])
    assert eventually(lambda: cursor_of(admin, topic) == {0, 1, 2, 3, 4})
    assert consumer.pending_acks() == 0
    consumer.acknowledge(messages[5])
    consumer.close()
    assert cursor_of(admin, topic) == {0, 1, 2, 3, 4, 5}


@pytest.mark.core
def test_zero_group_time_sends_each_ack_at_once(client, topic, admin):
    """With 0 ms nothing is pending after `acknowledge()`, and the cursor shows it soon."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=0)
    send_plain(client, topic, 3)
    for index, message in enumerate(drain(consumer.receive, 3)):
        consumer.acknowledge(message)
        assert consumer.pending_acks() == 0
        assert eventually(lambda index=index: cursor_of(admin, topic) == set(range(index + 1)))


@pytest.mark.core
@pytest.mark.parametrize("invalid", [{"ack_group_time_ms": -1}, {"ack_group_time_ms": True}, {"max_ack_group_size": 0}])
def test_invalid_grouping_raises(client, topic, admin, invalid):
    """An invalid option raises before a subscription is created."""
    with pytest.raises(pulsar.InvalidUse):
        client.subscribe(topic, "s", **invalid)
    with pytest.raises(pulsar.AdminNotFound):
        admin.stats(topic)


@pytest.mark.core
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
@pytest.mark.parametrize("grouping", [{}, {"ack_group_time_ms": 100}])
def test_cut_connection_loses_no_acks(pulsar_fault_proxy, client_factory, broker, topic, type_, grouping):
    """All messages acknowledged before, during and after a lost connection, in any order, are on the cursor."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", type_, receiver_queue_size=5000, **grouping)
    for start in range(0, 3000, 1000):  # 1000 is the size of a producer's queue
        send_plain(client_factory(broker), topic, 1000, start)
    messages = drain(consumer.receive, 3000)
    assert len(messages) == 3000
    for message in messages[:1000]:
        consumer.acknowledge(message)
    for message in messages[1999:999:-1]:
        consumer.acknowledge(message)
    proxy.refuse()
    proxy.cut()
    for message in messages[2000:2500]:
        consumer.acknowledge(message)
    assert eventually(lambda: not consumer.is_connected())
    for message in messages[2500:]:
        consumer.acknowledge(message)
    proxy.accept()
    assert eventually(lambda: cursor_of(client.context.admin_api(), topic) == set(range(3000)))


@pytest.mark.through
def test_cumulative_ack_on_lost_connection_arrives(pulsar_fault_proxy, client_factory, broker, topic):
    """The official client loses such an acknowledgement, and drops the redelivered messages as duplicates."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s")
    send_plain(client_factory(broker), topic, 10)
    messages = drain(consumer.receive, 10)
    proxy.refuse()
    proxy.cut()
    consumer.acknowledge_cumulative(messages[6])
    proxy.accept()
    assert eventually(lambda: cursor_of(client.context.admin_api(), topic) == set(range(7)))


@pytest.mark.core
def test_chunked_messages_are_acknowledged_whole(client, topic, admin):
    """Chunked messages are acknowledged whole, by the message and by stored ids, with and without runs."""
    for grouping in ({}, {"ack_group_time_ms": 100}):
        big, small = client.create_producer(topic, chunking_enabled=True), client.create_producer(topic)
        consumer = client.subscribe(topic, "s", **grouping)
        for index in range(4):
            (small if index % 2 else big).send(payload(index, 20 if index % 2 else THREE_CHUNKS))
        messages = drain(consumer.receive, 4)
        consumer.acknowledge(messages[0])
        consumer.acknowledge(messages[1])
        consumer.acknowledge(MessageId.deserialize(messages[2].message_id().serialize()))
        consumer.flush_acks(confirm=True)
        assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 1
        consumer.acknowledge(messages[3])
        consumer.flush_acks(confirm=True)
        assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0
        consumer.close()


def test_threads_receive_and_acknowledge_concurrently(client, topic, admin):
    """With four threads on one consumer each message is received once, and all are on the cursor."""
    consumer = client.subscribe(topic, "s", SHARED, ack_group_time_ms=100, max_ack_group_size=50)
    send_batches(client, topic, 100, 10)
    seen: list[int] = []

    def consume():
        while messages := consumer.receive_many(7, 1_000):
            for message in messages:
                seen.append(index_of(message))
                consumer.acknowledge(message)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    consumer.flush_acks(confirm=True)
    assert sorted(seen) == list(range(1000))
    assert cursor_of(admin, topic) == set(range(100))


def test_listener_acks_are_grouped(client, pulsar_topic_factory, broker, admin):
    """The consumer groups acknowledgements of its listener, also those of partitions."""
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    delivered: list[int] = []

    def listener(consumer, message):
        delivered.append(index_of(message))
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", message_listener=listener, ack_group_time_ms=100)
    producer = client.create_producer(topic)
    for index in range(20):
        producer.send(payload(index, 20))
    assert eventually(lambda: len(delivered) == 20)
    consumer.flush_acks(confirm=True)
    backlog = admin.partitioned_stats(topic).total.subscriptions["s"].backlog_entries
    assert backlog == 0


@pytest.mark.core
def test_closed_consumer_raises_on_ack(client, topic):
    """An acknowledgement after `close()` raises instead of being lost silently."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 1)
    message = consumer.receive(10_000)
    consumer.close()
    for use in (consumer.acknowledge, consumer.negative_acknowledge):
        with pytest.raises(pulsar.AlreadyClosed):
            use(message)


def test_failed_unsubscribe_keeps_acks_and_nacks(client, topic):
    """Acknowledgements and negative acknowledgements before a failing `unsubscribe()` stay valid."""
    consumer = client.subscribe(
        topic, "s", SHARED, ack_group_time_ms=60_000, negative_ack_redelivery_delay_ms=2_000, receiver_queue_size=20
    )
    send_plain(client, topic, 20)
    messages = drain(consumer.receive, 20)
    consumer.acknowledge_many(messages[:15])
    for message in messages[15:]:
        consumer.negative_acknowledge(message)
    other = client.subscribe(topic, "s", SHARED)
    with pytest.raises(pulsar.PulsarException):
        consumer.unsubscribe()
    other.close()
    assert consumer.pending_acks() == 15
    assert sorted(map(index_of, drain(consumer.receive, 5))) == [15, 16, 17, 18, 19]
    consumer.close()
    assert sorted(map(index_of, drain(client.subscribe(topic, "s", SHARED).receive, 5))) == [15, 16, 17, 18, 19]


@pytest.mark.core
@pytest.mark.blocking_only("a forked child has no event loop")
def test_fork_with_pending_acks(client, topic, admin):
    """The child raises and can exit; the parent's acknowledgements arrive."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 10)
    for message in drain(consumer.receive, 10):
        consumer.acknowledge(message)
    child = os.fork()
    if child == 0:
        raised = 0
        for use in (consumer.pending_acks, consumer.flush_acks, lambda: consumer.acknowledge(message)):
            try:
                use()
            except pulsar.ForkedClientError:
                raised += 1
        try:
            client.close()
        except pulsar.ForkedClientError:
            raised += 1
        os._exit(raised)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    consumer.flush_acks(confirm=True)
    assert cursor_of(admin, topic) == set(range(10))
