"""Key-value messages, and messages of schemas unknown to the reader."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
from chunked import eventually
from google.protobuf.timestamp_pb2 import Timestamp

import pulsar_ext as pulsar
from pulsar_ext._native.schemas import EncodedSchema
from pulsar_ext.schema import (
    AutoConsumeSchema,
    AvroSchema,
    GenericRecord,
    JsonSchema,
    KeyValue,
    KeyValueEncoding,
    KeyValueSchema,
)
from pulsar_ext.schema.choice import VersionLookup, schema_of_class

BOTH_CLIENTS = True


@dataclass(frozen=True)
class City:
    """A key or a value."""

    name: str
    people: int | None = None


@dataclass
class Other:
    """A model with an equal Avro name and another field type."""

    __avro_name__: ClassVar[str] = "City"
    name: int


BERLIN = City("Berlin", 3_700_000)
INLINE, SEPARATED = KeyValueEncoding


def test_separated_key_columns_may_be_generators(client, topic):
    """Each generator is read once, and messages before an error are sent."""
    producer = client.create_producer(topic, schema=KeyValueSchema(str, str, SEPARATED))
    rows = [KeyValue("a", "1"), KeyValue("b", "2")]
    assert producer.send_many(iter(rows), properties=({"n": n} for n in "12")).messages == 2
    with pytest.raises(ValueError, match="argument"):
        producer.send_many(rows, properties=({"n": n} for n in "3"))
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert [consumer.receive(10_000).properties() for _ in range(3)] == [{"n": n} for n in "123"]


@pytest.mark.core
@pytest.mark.parametrize("encoding", KeyValueEncoding)
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("key", "given"), [(str, "abcd"), (bytes, b"\xff\x00"), (JsonSchema(City), BERLIN)])
def test_key_value_round_trip(client, topic, key, given, encoding, batched):
    """Keys of any type, even if they look like base64, are read back, sent one by one or together."""
    schema = KeyValueSchema(key, JsonSchema(City), encoding)
    by_key = {"batching_type": pulsar.BatchingType.KeyBased} if batched else {}
    producer = client.create_producer(topic, schema=schema, batching_enabled=batched, **by_key)
    producer.send(KeyValue(given, BERLIN), properties={"a": "b"})
    producer.send_many([KeyValue(given, City("x")), KeyValue(given, City("y"))])
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=pulsar.InitialPosition.Earliest)
    messages = [consumer.receive(10_000) for _ in range(3)]
    assert [message.value() for message in messages] == [
        KeyValue(given, BERLIN),
        (given, City("x")),
        (given, City("y")),
    ]
    assert messages[0].properties() == {"a": "b"}
    assert bool(messages[0].partition_key()) == (encoding is SEPARATED)


def test_incompatible_key_value_schema_raises(client, topic):
    """Another encoding, unreadable parts and other schema types raise for readers and producers."""
    client.create_producer(topic, schema=KeyValueSchema(str, JsonSchema(City)))
    for schema, why in [
        (KeyValueSchema(str, JsonSchema(City), SEPARATED), "keys are INLINE"),
        (KeyValueSchema(str, City), "value: the topic has a schema of type JSON"),
        (City, "the topic has a schema of type KEY_VALUE"),
    ]:
        with pytest.raises(pulsar.SchemaMismatch, match=why):
            client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    for schema, why in [
        (KeyValueSchema(str, JsonSchema(City), SEPARATED), "keys are INLINE"),
        (KeyValueSchema(bytes, JsonSchema(City)), "key: the topic has a schema of type STRING, this one is BYTES"),
        (KeyValueSchema(str, JsonSchema(Other)), r"The broker rejected.*value: City.name: string is written"),
    ]:
        with pytest.raises(pulsar.SchemaMismatch, match=why):
            client.create_producer(topic, schema=schema)


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (KeyValueSchema(str, City), {}),
        (KeyValueSchema(str, str, SEPARATED), {"chunking_enabled": True}),
    ],
)
def test_unsupported_key_value_producers_raise(client, topic, schema, options):
    """Avro parts and chunked separated keys raise, and no producer is opened."""
    with pytest.raises(pulsar.InvalidUse, match="Nothing was opened"):
        client.create_producer(topic, schema=schema, **options)


def test_separated_key_excludes_other_options(client, topic):
    """A send with another key or a delay raises."""
    producer = client.create_producer(topic, schema=KeyValueSchema(str, str, SEPARATED))
    for options in ({"partition_key": "x"}, {"deliver_at": 1}):
        with pytest.raises(pulsar.InvalidUse, match="separated key"):
            producer.send(KeyValue("a", "b"), **options)


@pytest.mark.parametrize("batched", [False, True])
def test_separated_key_without_value_is_a_tombstone(client, topic, admin, batched):
    """A None value is received as None, and compaction removes the key."""
    schema = KeyValueSchema(str, JsonSchema(City), SEPARATED)
    by_key = {"batching_type": pulsar.BatchingType.KeyBased} if batched else {}
    producer = client.create_producer(topic, schema=schema, batching_enabled=batched, **by_key)
    sent = [KeyValue("a", BERLIN), KeyValue("b", BERLIN), KeyValue("a", None)]
    producer.send_many(sent)
    producer.send(KeyValue("c", BERLIN))
    producer.send(KeyValue("c", None))
    for wrong in (None, BERLIN, ("a",)):
        with pytest.raises(pulsar.InvalidUse, match="not a key and value"):
            producer.send(wrong)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    found = [reader.read_next(10_000).value() for _ in range(5)]
    assert sorted(found, key=str) == sorted([*sent, KeyValue("c", BERLIN), KeyValue("c", None)], key=str)
    admin.compact(topic)
    assert eventually(lambda: admin.compaction_status(topic) == "SUCCESS")
    compacted = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema, is_read_compacted=True)
    assert compacted.read_next(10_000).value() == KeyValue("b", BERLIN)
    assert not compacted.has_message_available()


@pytest.mark.core
@pytest.mark.parametrize("ending", ["", "-partition-0"])
def test_schema_version_is_requested_for_the_messages_topic(topic, admin, ending):
    """A partition-like suffix within a topic name does not confuse the lookup with another topic's schema."""
    own = f"{topic}-partition-keys"
    for name, kind in ((topic, Other), (own, City)):
        stored = KeyValueSchema(str, kind)
        parts = {"key": "", "value": json.loads(stored.value.schema_info().schema())}
        admin.upload_schema(name, "KEY_VALUE", json.dumps(parts), stored.properties())
    schema = KeyValueSchema(str, City).of_client(lambda: admin)
    schema.attach_client(VersionLookup(None, int, 0))
    payload = schema.encode(KeyValue("a", BERLIN))
    sent = SimpleNamespace(  # as sent by Java; this library sends no schema version
        topic_name=lambda: own + ending,
        int_schema_version=lambda: 0,
        data=lambda: payload,
        has_null_value=lambda: False,
    )
    assert schema.decode_message(sent) == KeyValue("a", BERLIN)
    sent.topic_name = lambda: topic
    with pytest.raises(pulsar.SchemaMismatch):
        schema.decode_message(sent)


@pytest.mark.parametrize("encoding", KeyValueEncoding)
def test_retry_letter_keeps_key_and_value(client, topic, encoding):
    """A retried message has an unchanged value."""
    schema = KeyValueSchema(str, JsonSchema(City), encoding)
    client.create_producer(topic, schema=schema).send(KeyValue("abcd", BERLIN))
    consumer = client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        schema=schema,
        enable_retry=True,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    consumer.reconsume_later(consumer.receive(10_000), 100)
    letter = consumer.receive(20_000)
    assert letter.topic_name().endswith("-RETRY")
    assert letter.value() == KeyValue("abcd", BERLIN)


@pytest.mark.core
def test_auto_consume_reads_any_schema(client, pulsar_topic_factory, broker):
    """Records, text and bytes are read by their schema, and records state their schema."""
    for schema, value in [(AvroSchema(City), BERLIN), (JsonSchema(City), BERLIN), (str, "ü"), (bytes, b"\xff")]:
        topic = pulsar_topic_factory(broker=broker)
        client.create_producer(topic, schema=schema).send(value)
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AutoConsumeSchema())
        found = reader.read_next(10_000).value()
        if value is BERLIN:
            assert isinstance(found, GenericRecord)
            assert found == {"name": "Berlin", "people": 3_700_000}
            assert (found.schema_type, found.schema_version) == (schema.schema_info().schema_type().name, 0)
            assert "people" in found.definition
        else:
            assert found == value


@pytest.mark.parametrize(
    ("schema", "payload"),
    [(str, b"\xff"), (JsonSchema(City), b"{"), (JsonSchema(City), b"\xff"), (Timestamp, b"\xff")],
)
def test_payload_not_matching_its_schema_raises(client, topic, schema, payload):
    """A payload that does not match its schema raises SchemaMismatch, and `data()` returns its bytes."""
    written = schema_of_class(schema) if isinstance(schema, type) else schema
    producer = client.create_producer(topic, schema=EncodedSchema(written.schema_info(), str(written)))
    producer.send(payload)
    message = client.create_reader(topic, pulsar.MessageId.earliest, schema=AutoConsumeSchema()).read_next(10_000)
    with pytest.raises(pulsar.SchemaMismatch, match=f"{len(payload)} bytes are not"):
        message.value()
    assert message.data() == payload
