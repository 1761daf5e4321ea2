"""Messages that will be lost, rejected or stored twice, on a real broker: provoked, found, and gone when remedied."""

from __future__ import annotations

import time

import pulsar as official
import pytest
from acked import send_batches, send_plain
from chunked import drain, eventually
from mending import call_rest, findings_of_kind, mend, namespace_of
from reach import official_client

import pulsar_ext as pulsar
from pulsar_ext import DiagnosisLimits
from pulsar_ext.admin import Retention

NO_WATCH = DiagnosisLimits(patience_seconds=0.2, pause_seconds=0)


class Order(pulsar.schema.Record):
    """Record that is sent to topics with a schema."""

    number = pulsar.schema.Integer()


@pytest.fixture
def officially(broker):
    """Return a client of `pulsar`."""
    client = official_client(broker)
    yield client
    client.close()


def has_deduplication(admin, topic, status="Enabled"):
    """Return True if the topic's deduplication has a status."""
    return admin.stats(topic).deduplication_status == status


def test_lagging_reader_reads_all_after_the_remedy(client, admin, broker, topic):
    """A reader whose unread ledgers only a retention keeps is found; the proposed retention lets it read all."""
    admin.set_retention(namespace_of(topic), Retention(minutes=1, size_mib=100))
    subscription = client.subscribe(topic, "done")
    reader = client.create_reader(topic, pulsar.MessageId.earliest, reader_name="slow", receiver_queue_size=1)
    for start in (0, 5, 10):
        send_plain(client, topic, 5, start)
        admin.unload(topic)
    subscription.acknowledge_many(drain(subscription.receive, 15))
    subscription.flush_acks(confirm=True)
    limits = DiagnosisLimits(quota_share=0.01, pause_seconds=0)
    assert eventually(lambda: len(findings_of_kind(client, topic, "readers-behind", limits=limits)) == 1)
    [lagging] = findings_of_kind(client, topic, "readers-behind", limits=limits)
    assert lagging.severity == "warning"
    assert [one["reader"] for one in lagging.evidence["readers"]] == ["slow"]
    assert lagging.evidence["first"].endswith(":0")
    assert (lagging.evidence["unread_entries"], lagging.evidence["retention_minutes"]) == (15, 1)
    mend(broker, lagging)
    assert admin.retention(namespace_of(topic)).minutes == 60
    assert findings_of_kind(client, topic, "readers-behind") == []
    assert len(drain(reader.read_next, 15)) == 15


def test_reader_without_retention_loses_messages(client, admin, topic):
    """A lagging reader without a retention is an error; the broker then moves it past deleted messages."""
    admin.set_retention(namespace_of(topic), Retention(minutes=1, size_mib=100))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=1)
    for start in (0, 5):
        send_plain(client, topic, 5, start)
        admin.unload(topic)
    assert eventually(lambda: admin.stats(topic).subscriptions)
    admin.set_retention(namespace_of(topic), Retention(minutes=0, size_mib=0))
    assert eventually(lambda: findings_of_kind(client, topic, "readers-behind", limits=NO_WATCH))
    [lagging] = findings_of_kind(client, topic, "readers-behind", limits=NO_WATCH)
    assert (lagging.severity, lagging.evidence["unread_entries"]) == ("error", 10)
    admin.trim(topic)
    assert eventually(lambda: findings_of_kind(client, topic, "readers-behind", limits=NO_WATCH) == [])
    assert len(drain(reader.read_next)) < 10


def test_schema_misfits_are_found_until_skipped(officially, client, broker, topic):
    """Messages without a schema or of a deleted schema version are found until the remedy skips them."""
    client.subscribe(topic, "s").close()
    typed = officially.create_producer(topic, "typed", schema=official.schema.JsonSchema(Order))
    typed.send(Order(number=1))
    assert findings_of_kind(client, topic, "schema-misfits", limits=NO_WATCH) == []
    officially.create_producer(topic, "untyped").send(b"raw")
    [misfits] = findings_of_kind(client, topic, "schema-misfits", limits=NO_WATCH)
    assert (misfits.severity, misfits.evidence["producers"]) == ("warning", ["untyped"])
    assert [one.split(":")[1] for one in misfits.evidence["without"]] == ["1"]
    assert misfits.evidence["versions"] == {"0": "JSON"}
    assert misfits.remedies[1].command.startswith("pulsar-ext admin set-schema-validation-enforced")
    typed.close()
    call_rest(broker, "DELETE", f"schemas/{topic.removeprefix('persistent://')}/schema")
    [misfits] = findings_of_kind(client, topic, "schema-misfits", limits=NO_WATCH)
    assert (misfits.severity, list(misfits.evidence["gone"].values())) == ("error", [0])
    assert [one.split(":")[1] for one in misfits.evidence["gone"]] == ["0"]
    mend(broker, misfits)
    assert findings_of_kind(client, topic, "schema-misfits", limits=NO_WATCH) == []


def test_validating_broker_rejects_untyped_producers(officially, client, broker, topic):
    """With the proposed schema validation, the broker rejects a producer without a schema."""
    client.subscribe(topic, "s").close()
    officially.create_producer(topic, "typed", schema=official.schema.JsonSchema(Order)).send(Order(number=1))
    officially.create_producer(topic, "untyped").send(b"raw")
    [misfits] = findings_of_kind(client, topic, "schema-misfits", limits=NO_WATCH)
    mend(broker, misfits)

    def is_rejected():
        try:
            officially.create_producer(topic).close()
        except official.IncompatibleSchema:
            return True
        return False

    assert eventually(is_rejected)


def test_blocked_slots_are_found_until_the_holder_closes(client, topic):
    """Keys that moved to a new consumer are blocked until the old consumer acknowledges or closes."""
    kind = pulsar.ConsumerType.KeyShared
    slow = client.subscribe(topic, "s", kind, consumer_name="slow")
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"first", partition_key=f"key-{number}")
    drain(slow.receive, 40)
    new = client.subscribe(topic, "s", kind, consumer_name="new")
    for number in range(40):
        producer.send(b"then", partition_key=f"key-{number}")
    assert eventually(lambda: len(findings_of_kind(client, topic, "blocked-slots")) == 1)
    [blocked] = findings_of_kind(client, topic, "blocked-slots")
    assert (blocked.severity, blocked.subscription, list(blocked.evidence["held_by"])) == ("error", "s", ["slow"])
    assert blocked.evidence["waiting_consumers"] == ["new"]
    assert 0 < blocked.evidence["held_messages"] <= 40
    assert 0 < blocked.evidence["waiting_messages"] <= 40
    slow.close()
    new.acknowledge_many(drain(new.receive, 80))
    assert eventually(lambda: findings_of_kind(client, topic, "blocked-slots") == [])


def test_forgotten_producer_continues_under_a_new_name(officially, client, admin, topic):
    """A connected producer that deduplication forgot is found with its last id, and continues under another name."""
    producer = officially.create_producer(topic, "sender")
    admin.set_deduplication(namespace_of(topic), value=False)
    assert eventually(lambda: has_deduplication(admin, topic, "Disabled"))
    for number in (5, 6, 7):
        producer.send(b"%d" % number, sequence_id=number)
    admin.set_deduplication(namespace_of(topic), value=True)
    assert eventually(lambda: has_deduplication(admin, topic))
    assert eventually(lambda: len(findings_of_kind(client, topic, "forgotten-producers")) == 1)
    [forgotten] = findings_of_kind(client, topic, "forgotten-producers")
    assert list(forgotten.evidence["producers"]) == ["sender"]
    assert forgotten.evidence["producers"]["sender"]["sequence_id"] == 7
    assert forgotten.evidence["producers"]["sender"]["last_entry"].endswith(":2")
    assert "after sequence id 7" in forgotten.remedies[0].what
    producer.close()
    with pytest.raises(pulsar.ProducerForgotten):
        client.create_producer(topic, producer_name="sender", deduplication=True)
    client.create_producer(topic, producer_name="sender-again", deduplication=True).send(b"8", sequence_id=8)
    assert findings_of_kind(client, topic, "forgotten-producers") == []


def test_200_healthy_topics_have_no_findings(client, admin, broker, pulsar_topic_factory):
    """A namespace of 200 topics with all kinds of producers, subscriptions and policies has no findings."""
    topics = [pulsar_topic_factory(broker=broker, partitions=24) for _ in range(8)]
    topics += [pulsar_topic_factory(broker=broker) for _ in range(8)]
    namespace = namespace_of(topics[0])
    admin.set_retention(namespace, Retention(minutes=60, size_mib=100))
    admin.set_deduplication(namespace, value=True)
    kinds = [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared, pulsar.ConsumerType.Failover]
    for number, topic in enumerate(topics):
        consumer = client.subscribe(topic, "s", kinds[number % 3])
        if number % 4 == 0:
            producer = client.create_producer(topic, schema=pulsar.schema.JsonSchema(Order))
            sent = [producer.send(Order(number=one), partition_key=f"key-{one}") for one in range(30)]
        elif number % 4 == 1:
            producer = client.create_producer(topic, "sender", deduplication=True)
            producer.send_many([b"x"] * 30)
            sent = range(30)
        elif number % 4 == 2:  # chunks; not on Key_Shared
            producer = client.create_producer(topic, chunking_enabled=True)
            sent = [producer.send(bytes(150_000), partition_key=f"key-{one}") for one in range(5)]
        else:
            send_batches(client, topic, 3, 5)
            sent = range(15)
        consumer.acknowledge_many(drain(consumer.receive, len(sent)))
        consumer.flush_acks(confirm=True)
        if number >= 8:
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            while reader.has_message_available():
                reader.read_next(10_000)
    assert eventually(lambda: not client.diagnose(namespace).findings, 60)
    time.sleep(1)
    diagnosis = client.diagnose(namespace)
    assert (diagnosis.findings, diagnosis.left_out, diagnosis.topics) == ((), (), 200)
