"""Findings about backlogs on a real broker: each problem is provoked, found, and gone after its remedy."""

from __future__ import annotations

import threading
import time

import pulsar as official
import pytest
from acked import send_batches, send_plain
from chunked import drain, eventually, index_of, payload
from indexes import INDEXES
from mending import findings_of_kind, mend
from reach import official_client

import pulsar_ext as pulsar
from pulsar_ext import DiagnosisLimits

Shared = pulsar.ConsumerType.Shared
USUAL = DiagnosisLimits(pause_seconds=0)
"""Limits with the default patience, which a skip has too."""


@pytest.fixture
def officially(broker):
    """Return a client of `pulsar`."""
    client = official_client(broker)
    yield client
    client.close()


def acknowledge_except(consumer, messages, indexes):
    """Acknowledge all messages except those with some indexes."""
    consumer.acknowledge_many([one for one in messages if index_of(one) not in indexes])
    consumer.flush_acks(confirm=True)


def test_unload_redelivers_a_held_hole(client, broker, topic):
    """A hole held by a consumer is found with its name and count; an unload redelivers the messages."""
    consumer = client.subscribe(topic, "s", Shared, consumer_name="forgetful")
    send_plain(client, topic, 12)
    acknowledge_except(consumer, drain(consumer.receive, 12), {2, 3})
    [hole] = findings_of_kind(client, topic, "holes")
    assert (hole.severity, hole.subscription, hole.evidence["entries"]) == ("warning", "s", 2)
    [run] = hole.evidence["holes"]
    assert [run["first"].split(":")[1], run["last"].split(":")[1]] == ["2", "3"]
    assert [(one["consumer"], one["unacknowledged_messages"]) for one in hole.evidence["held_by"]] == [("forgetful", 2)]
    assert hole.evidence["acknowledged_behind"] == 8
    mend(broker, hole)
    again = drain(consumer.receive, 2)
    assert sorted(map(index_of, again)) == [2, 3]
    acknowledge_except(consumer, again, ())
    assert findings_of_kind(client, topic, "holes") == []


@pytest.mark.core
def test_skip_closes_a_hole_without_a_holder(client, broker, topic):
    """A hole that no consumer holds is an error, and the proposed skip moves the cursor past it only."""
    consumer = client.subscribe(topic, "s", Shared)
    send_plain(client, topic, 8)
    acknowledge_except(consumer, drain(consumer.receive, 8), {1})
    consumer.close()
    send_plain(client, topic, 2, start=8)
    [hole] = findings_of_kind(client, topic, "holes")
    assert (hole.severity, hole.evidence["held_by"]) == ("error", [])
    mend(broker, hole, 1)
    assert findings_of_kind(client, topic, "holes") == []
    assert sorted(map(index_of, drain(client.subscribe(topic, "s", Shared).receive, 2))) == [8, 9]


@pytest.mark.core
def test_partly_acknowledged_batch_is_found(pulsar_broker_factory, client_factory, pulsar_topic_factory):
    """The finding has the number of messages acknowledged in a batch; acknowledging the rest closes the hole."""
    broker = pulsar_broker_factory(INDEXES)
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    consumer = client.subscribe(topic, "s", Shared, batch_index_ack_enabled=True)
    send_batches(client, topic, 5, 10)
    messages = drain(consumer.receive, 50)
    acknowledge_except(consumer, messages, {4, 5, 6, 7, 8, 9})
    [hole] = findings_of_kind(client, topic, "holes")
    assert list(hole.evidence["batches"].values()) == [10]
    assert hole.evidence["messages_acknowledged_in_batches"] == 4
    acknowledge_except(consumer, messages, ())
    assert findings_of_kind(client, topic, "holes") == []


def test_partly_acknowledged_chunks_are_skipped(officially, client, admin, broker, topic):
    """Chunks before an acknowledged last chunk are found, and the remedy skips them."""
    consumer = officially.subscribe(topic, "s", official.ConsumerType.Shared)
    producer = officially.create_producer(topic, chunking_enabled=True)
    for index in range(2):
        producer.send(payload(index))
    for _ in range(2):
        at = consumer.receive(10_000).message_id()
        rebuilt = official.MessageId(at.partition(), at.ledger_id(), at.entry_id(), at.batch_index())
        consumer.acknowledge(rebuilt)
    consumer.close()
    assert eventually(lambda: len(findings_of_kind(client, topic, "chunks")) == 1)
    [chunks] = findings_of_kind(client, topic, "chunks")
    assert (chunks.severity, chunks.evidence["chunks"]) == ("error", 4)
    assert [one["acknowledged_chunks"] for one in chunks.evidence["messages"]] == [[2], [2]]
    assert 0 < chunks.evidence["bytes"] < 2 * len(payload(0))
    mend(broker, chunks)
    assert findings_of_kind(client, topic, "chunks") == []
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


def test_consumer_with_a_full_queue_is_found(client, topic):
    """A consumer with a full queue is found with its name and permits until it receives again."""
    consumer = client.subscribe(topic, "s", Shared, receiver_queue_size=5, consumer_name="asleep")
    send_plain(client, topic, 20)
    assert eventually(lambda: len(findings_of_kind(client, topic, "stalled-consumers")) == 1)
    [stalled] = findings_of_kind(client, topic, "stalled-consumers")
    [one] = stalled.evidence["consumers"]
    assert (stalled.severity, one["consumer"], one["permits"] <= 0) == ("error", "asleep", True)
    assert one["address"].startswith("/")
    acknowledge_except(consumer, drain(consumer.receive, 20), ())
    assert findings_of_kind(client, topic, "stalled-consumers") == []


def test_redelivery_storm_is_found(officially, client, topic):
    """Repeated negative acknowledgements of three messages are a storm until they are acknowledged."""
    consumer = officially.subscribe(
        topic, "s", official.ConsumerType.Shared, negative_ack_redelivery_delay_ms=50, consumer_name="picky"
    )
    send_plain(client, topic, 3)
    ended = threading.Event()

    def reject():
        while not ended.is_set():
            try:
                consumer.negative_acknowledge(consumer.receive(50))
            except official.Timeout:
                continue

    rejecting = threading.Thread(target=reject)
    rejecting.start()
    try:
        assert eventually(lambda: len(findings_of_kind(client, topic, "redelivery-storm")) == 1)
        [storm] = findings_of_kind(client, topic, "redelivery-storm")
    finally:
        ended.set()
        rejecting.join()
    assert storm.evidence["entries"] == 3
    assert storm.evidence["delivered"] >= 2
    assert storm.evidence["consumers"] == ["picky"]
    for _ in range(3):
        consumer.acknowledge(consumer.receive(10_000))
    assert eventually(lambda: findings_of_kind(client, topic, "redelivery-storm") == [])


@pytest.mark.core
def test_subscription_without_consumers_is_found(client, broker, topic):
    """A subscription without consumers is found with its backlog until it is deleted."""
    client.subscribe(topic, "s").close()
    send_plain(client, topic, 5)
    assert eventually(lambda: len(findings_of_kind(client, topic, "no-consumers")) == 1)
    [unconsumed] = findings_of_kind(client, topic, "no-consumers")
    assert unconsumed.evidence["entries"] == 5
    assert unconsumed.evidence["bytes"] > 0
    mend(broker, unconsumed)
    assert findings_of_kind(client, topic, "no-consumers") == []


def test_incomplete_chunked_message_is_skipped(pulsar_fault_proxy, client, admin, broker, topic):
    """The chunks of a message whose producer lost its connection for good are found, and the remedy skips them."""
    client.subscribe(topic, "s").close()
    proxy = pulsar_fault_proxy(broker)
    proxy.limit(400_000, "to_broker")
    sender = official_client(broker, proxy.service_url)
    producer = sender.create_producer(topic, "interrupted", chunking_enabled=True)
    producer.send_async(payload(0, 2_000_000), lambda *_: None)
    assert eventually(lambda: admin.internal_stats(topic).number_of_entries > 1)
    proxy.refuse()
    proxy.cut()
    assert len(findings_of_kind(client, topic, "chunks", limits=USUAL)) == 0  # its end may still arrive
    assert eventually(lambda: time.sleep(2) or len(findings_of_kind(client, topic, "chunks", limits=USUAL)) == 1, 120)
    [chunks] = findings_of_kind(client, topic, "chunks", limits=USUAL)
    [message] = chunks.evidence["messages"]
    assert (chunks.severity, message["producer"], message["acknowledged_chunks"]) == ("warning", "interrupted", [])
    assert 1 < chunks.evidence["chunks"] == len(message["chunks"]) < message["of_chunks"]
    mend(broker, chunks)
    assert findings_of_kind(client, topic, "chunks", limits=USUAL) == []
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0
    sender.shutdown()
