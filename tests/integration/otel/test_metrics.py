"""The metrics of an instrumented client are exact, on a real broker."""

from __future__ import annotations

import contextlib
import re

import pulsar as official
import pytest
from chunked import drain, eventually, index_of, payload
from mending import namespace_of
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prefetched import COUNT, fill
from reach import official_client

import pulsar_ext
import pulsar_ext.otel
from pulsar_ext.chunks import leftovers

BOTH_CLIENTS = True

Shared = pulsar_ext.ConsumerType.Shared


@pytest.fixture
def measured(client):
    """Function that returns the sum of a metric of the instrumented client, in total or of a subscription."""
    reader = InMemoryMetricReader()
    pulsar_ext.otel.instrument(getattr(client, "awaited", client), meter_provider=MeterProvider([reader]))

    def points(name):
        resources = reader.get_metrics_data().resource_metrics
        metrics = [one for resource in resources for scope in resource.scope_metrics for one in scope.metrics]
        return [point for one in metrics if one.name == name for point in one.data.data_points]

    def measure(name, subscription=None):
        where = "messaging.destination.subscription.name"
        return sum(one.value for one in points(name) if subscription in (None, one.attributes.get(where)))

    measure.points = points
    return measure


@pytest.mark.core
@pytest.mark.parametrize("batched", [False, True], ids=["plain", "batched"])
def test_bytes(client, topic, measured, batched):
    """The bytes of messages are counted when they are persisted, and when they are delivered."""
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic, batching_enabled=batched).send_many([b"x" * size for size in (1, 20, 300)])
    assert measured("pulsar.client.producer.message.send.size") == 321
    drain(consumer.receive, 3)
    assert measured("pulsar.client.consumer.message.received.size", "s") == 321


def test_redeliveries_and_dead_letters(client, topic, measured):
    """Each redelivery is counted, and each message that is sent to the dead letter topic."""
    policy = official.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "kept")
    consumer = client.subscribe(topic, "s", Shared, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=100)
    dead = client.subscribe(f"{topic}-dead", "kept", Shared)
    client.create_producer(topic).send_many([b"good", b"bad", b"bad"])
    received = 0
    while received < 7:  # each once, and the bad ones two more times
        message = consumer.receive(20_000)
        received += 1
        (consumer.acknowledge if message.data() == b"good" else consumer.negative_acknowledge)(message)
    assert [message.data() for message in drain(dead.receive, 2)] == [b"bad"] * 2
    assert measured("pulsar.client.consumer.message.redelivered", "s") == 4
    assert eventually(lambda: measured("pulsar.client.consumer.message.dlq", "s") == 2)
    assert measured("pulsar.client.consumer.message.dlq", "kept") == 0
    # Each delivery has ended, also the last one of a dead letter.
    assert eventually(lambda: sum(one.count for one in measured.points("messaging.process.duration")) == 7)


def test_send_dead_letter_is_counted(client, topic, measured):
    """A message that send_dead_letter() sends is counted, one of reconsume_later() is not."""
    consumer = client.subscribe(topic, "s", Shared, enable_retry=True)
    client.create_producer(topic).send_many([b"later", b"never"])
    later, never = drain(consumer.receive, 2)
    consumer.reconsume_later(later, 0)
    consumer.send_dead_letter(never)
    assert measured("pulsar.client.consumer.message.dlq", "s") == 1


def test_rejected_duplicates_are_counted(client, admin, topic, measured):
    """A duplicate is counted once, and its bytes are not counted."""
    admin.set_deduplication(namespace_of(topic), value=True)
    producer = client.create_producer(topic, producer_name="p", deduplication=True)
    producer.send(b"once", sequence_id=5)
    with pytest.raises(pulsar_ext.DuplicateMessage):
        producer.send(b"twice", sequence_id=5)
    assert measured("pulsar.client.producer.message.duplicate") == 1
    assert measured("pulsar.client.producer.message.send.size") == 4


def test_pending_acknowledgements(client, topic, measured):
    """Unsent acknowledgements are shown by subscription, summed over its consumers, until they are sent."""
    options = {"ack_group_time_ms": 600_000, "max_ack_group_size": 1_000}
    consumers = [client.subscribe(topic, "s", Shared, **options) for _ in range(2)]
    producer = client.create_producer(topic)
    for index in range(6):
        producer.send(payload(index, 10))
    name = "pulsar.client.consumer.ack.pending"
    assert measured(name, "s") == 0
    for consumer in consumers:
        for message in drain(consumer.receive):
            consumer.acknowledge(message)
    assert measured(name, "s") == 6
    consumers[0].close()
    consumers[1].flush_acks()
    assert measured(name, "s") == 0


def test_gauges_of_several_topics_by_subscription(client, topic, measured):
    """Consumers of a list of topics and of a pattern each have one series, without generated names."""
    pattern = re.compile(f"{topic}-.*")
    for number in range(2):
        client.create_producer(f"{topic}-{number}").close()
    consumers = [client.subscribe(what, "s", Shared) for what in ([f"{topic}-0", f"{topic}-1"], pattern) for _ in "ab"]
    points = measured.points("pulsar.client.consumer.ack.pending")
    assert sorted(one.attributes["messaging.destination.name"] for one in points) == sorted(
        [f"{topic}-0,{topic}-1", pattern.pattern]
    )
    assert {one.subscribed_to() for one in consumers} == {f"{topic}-0,{topic}-1", pattern.pattern}


@pytest.mark.blocking_only("awaited consumers do not prefetch")
def test_gauge_of_prefetched_messages(client, topic, measured):
    """The gauge shows the number of prefetched messages, and 0 once the consumer is closed."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    assert index_of(consumer.receive(10_000)) == 0
    assert eventually(lambda: consumer._prefetch.fetch(400))
    ahead = consumer.fetched_ahead()
    assert 0 < ahead < COUNT
    assert measured("pulsar.client.consumer.fetched_ahead", "s") == ahead
    consumer.close()
    assert measured("pulsar.client.consumer.fetched_ahead", "s") == 0


def test_closed_holes_are_counted(pulsar_fault_proxy, client, admin, broker, topic, measured, monkeypatch):
    """Chunks of a message that will never be complete are counted when they are acknowledged."""
    monkeypatch.setattr(leftovers, "_EXPIRY_SECONDS", 1.0)
    consumer = client.subscribe(topic, "s", Shared)
    proxy = pulsar_fault_proxy(broker)
    proxy.limit(400_000, "to_broker")
    sender = official_client(broker, proxy.service_url)
    sender.create_producer(topic, chunking_enabled=True).send_async(payload(0, 2_000_000), lambda *_: None)
    assert eventually(lambda: admin.internal_stats(topic).number_of_entries > 1)
    proxy.refuse()
    proxy.cut()
    client.create_producer(topic, chunking_enabled=True).send(payload(1))
    consumer.acknowledge(consumer.receive(20_000))

    def backlog():
        return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries

    assert eventually(lambda: backlog() == 0, 90)
    chunks = admin.internal_stats(topic).number_of_entries - 3
    assert measured("pulsar.client.consumer.hole.closed", "s") == chunks > 1
    with contextlib.suppress(official.PulsarException):
        sender.shutdown()
