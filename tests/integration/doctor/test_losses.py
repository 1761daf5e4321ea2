"""What will be lost, refused or stored twice, on a real broker: provoked, found, and gone when it is mended."""

from __future__ import annotations

import time

import pulsar as official
import pytest
from acked import send_batches, send_plain
from chunked import drain, eventually
from mending import call_rest, found, mend, namespace_of
from reach import official_client

import pulsar_ext as pulsar
from pulsar_ext import DiagnosisLimits
from pulsar_ext.admin import Retention

BY_THE_WAY = DiagnosisLimits(patience_seconds=0.2, pause_seconds=0)


class Order(pulsar.schema.Record):
    """What is sent where there is a schema."""

    number = pulsar.schema.Integer()


@pytest.fixture
def officially(broker):
    """A client of `pulsar`."""
    client = official_client(broker)
    yield client
    client.close()


def is_enabled(admin, topic, status="Enabled"):
    """Whether the broker deduplicates a topic, or does not."""
    return admin.stats(topic).deduplication_status == status


def test_a_reader_behind_the_retention(client, admin, broker, topic):
    """A reader whose unread ledgers only the retention keeps is found, and reads all with the retention proposed."""
    admin.set_retention(namespace_of(topic), Retention(minutes=1, size_mib=100))
    subscription = client.subscribe(topic, "done")
    reader = client.create_reader(topic, pulsar.MessageId.earliest, reader_name="slow", receiver_queue_size=1)
    for start in (0, 5, 10):
        send_plain(client, topic, 5, start)
        admin.unload(topic)
    subscription.acknowledge_many(drain(subscription.receive, 15))
    subscription.flush_acks(confirm=True)
    limits = DiagnosisLimits(quota_share=0.01, pause_seconds=0)
    assert eventually(lambda: len(found(client, topic, "readers-behind", limits=limits)) == 1)
    [behind] = found(client, topic, "readers-behind", limits=limits)
    assert behind.severity == "warning"
    assert [one["reader"] for one in behind.evidence["readers"]] == ["slow"]
    assert behind.evidence["first"].endswith(":0")
    assert (behind.evidence["unread_entries"], behind.evidence["retention_minutes"]) == (15, 1)
    mend(broker, behind)
    assert admin.retention(namespace_of(topic)).minutes == 60
    assert found(client, topic, "readers-behind") == []
    assert len(drain(reader.read_next, 15)) == 15


def test_a_reader_without_a_retention_loses_what_is_found(client, admin, topic):
    """Without a retention it is an error, which comes true: the broker moves the reader over what it deletes."""
    admin.set_retention(namespace_of(topic), Retention(minutes=1, size_mib=100))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=1)
    for start in (0, 5):
        send_plain(client, topic, 5, start)
        admin.unload(topic)
    assert eventually(lambda: admin.stats(topic).subscriptions)
    admin.set_retention(namespace_of(topic), Retention(minutes=0, size_mib=0))
    assert eventually(lambda: found(client, topic, "readers-behind", limits=BY_THE_WAY))
    [behind] = found(client, topic, "readers-behind", limits=BY_THE_WAY)
    assert (behind.severity, behind.evidence["unread_entries"]) == ("error", 10)
    admin.trim(topic)
    assert eventually(lambda: found(client, topic, "readers-behind", limits=BY_THE_WAY) == [])
    assert len(drain(reader.read_next)) < 10


def test_messages_without_a_schema_and_of_a_version_that_is_gone(officially, client, broker, topic):
    """What was sent without a schema where there is one, or with one that was deleted, is found until it is skipped."""
    client.subscribe(topic, "s").close()
    typed = officially.create_producer(topic, "typed", schema=official.schema.JsonSchema(Order))
    typed.send(Order(number=1))
    assert found(client, topic, "schema-misfits", limits=BY_THE_WAY) == []
    officially.create_producer(topic, "untyped").send(b"raw")
    [misfits] = found(client, topic, "schema-misfits", limits=BY_THE_WAY)
    assert (misfits.severity, misfits.evidence["producers"]) == ("warning", ["untyped"])
    assert [one.split(":")[1] for one in misfits.evidence["without"]] == ["1"]
    assert misfits.evidence["versions"] == {"0": "JSON"}
    assert misfits.remedies[1].command.startswith("pulsar-ext admin set-schema-validation-enforced")
    typed.close()
    call_rest(broker, "DELETE", f"schemas/{topic.removeprefix('persistent://')}/schema")
    [misfits] = found(client, topic, "schema-misfits", limits=BY_THE_WAY)
    assert (misfits.severity, list(misfits.evidence["gone"].values())) == ("error", [0])
    assert [one.split(":")[1] for one in misfits.evidence["gone"]] == ["0"]
    mend(broker, misfits)
    assert found(client, topic, "schema-misfits", limits=BY_THE_WAY) == []


def test_a_broker_that_validates_schemas_refuses_what_was_found(officially, client, broker, topic):
    """With the validation that is proposed, a producer without a schema cannot be opened any more."""
    client.subscribe(topic, "s").close()
    officially.create_producer(topic, "typed", schema=official.schema.JsonSchema(Order)).send(Order(number=1))
    officially.create_producer(topic, "untyped").send(b"raw")
    [misfits] = found(client, topic, "schema-misfits", limits=BY_THE_WAY)
    mend(broker, misfits)

    def is_refused():
        try:
            officially.create_producer(topic).close()
        except official.IncompatibleSchema:
            return True
        return False

    assert eventually(is_refused)


def test_slots_behind_a_consumer_that_holds_them(client, topic):
    """Keys that moved to a new consumer wait for the old one's acknowledgements; closing it gives them away."""
    kind = pulsar.ConsumerType.KeyShared
    slow = client.subscribe(topic, "s", kind, consumer_name="slow")
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"first", partition_key=f"key-{number}")
    drain(slow.receive, 40)
    new = client.subscribe(topic, "s", kind, consumer_name="new")
    for number in range(40):
        producer.send(b"then", partition_key=f"key-{number}")
    assert eventually(lambda: len(found(client, topic, "blocked-slots")) == 1)
    [blocked] = found(client, topic, "blocked-slots")
    assert (blocked.severity, blocked.subscription, list(blocked.evidence["held_by"])) == ("error", "s", ["slow"])
    assert blocked.evidence["waiting_consumers"] == ["new"]
    assert 0 < blocked.evidence["held_messages"] <= 40
    assert 0 < blocked.evidence["waiting_messages"] <= 40
    slow.close()
    new.acknowledge_many(drain(new.receive, 80))
    assert eventually(lambda: found(client, topic, "blocked-slots") == [])


def test_a_producer_that_deduplication_has_forgotten(officially, client, admin, topic):
    """A connected producer of whom the broker keeps no id is found with its last one; it goes on under another name."""
    producer = officially.create_producer(topic, "sender")
    admin.set_deduplication(namespace_of(topic), value=False)
    assert eventually(lambda: is_enabled(admin, topic, "Disabled"))
    for number in (5, 6, 7):
        producer.send(b"%d" % number, sequence_id=number)
    admin.set_deduplication(namespace_of(topic), value=True)
    assert eventually(lambda: is_enabled(admin, topic))
    assert eventually(lambda: len(found(client, topic, "forgotten-producers")) == 1)
    [forgotten] = found(client, topic, "forgotten-producers")
    assert list(forgotten.evidence["producers"]) == ["sender"]
    assert forgotten.evidence["producers"]["sender"]["sequence_id"] == 7
    assert forgotten.evidence["producers"]["sender"]["last_entry"].endswith(":2")
    assert "behind the sequence id 7" in forgotten.remedies[0].what
    producer.close()
    with pytest.raises(pulsar.ProducerForgotten):
        client.create_producer(topic, producer_name="sender", deduplication=True)
    client.create_producer(topic, producer_name="sender-again", deduplication=True).send(b"8", sequence_id=8)
    assert found(client, topic, "forgotten-producers") == []


def test_200_healthy_topics(client, admin, broker, pulsar_topic_factory):
    """A namespace of 200 topics, with every kind of sender, subscription and policy, has nothing that is wrong."""
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
