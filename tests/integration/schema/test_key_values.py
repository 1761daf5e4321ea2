"""Keys and values, and messages of schemas that the reader does not know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
from chunked import eventually
from google.protobuf.timestamp_pb2 import Timestamp

import pulsar_ext as pulsar
from pulsar_ext._native.schemas import PassingSchema
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
    """A key, or a value."""

    name: str
    people: int | None = None


@dataclass
class Other:
    """Has the name of it, and another field's type."""

    __avro_name__: ClassVar[str] = "City"
    name: int


BERLIN = City("Berlin", 3_700_000)
INLINE, SEPARATED = KeyValueEncoding


def test_columns_of_separated_keys_may_be_generators(client, topic):
    """Each is read once, and what comes before an error is sent, as with any other producer."""
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
def test_keys_and_values_come_back(client, topic, key, given, encoding, batched):
    """Whatever a key is, and also where it looks like base64, it comes back, one by one and many at once."""
    schema = KeyValueSchema(key, JsonSchema(City), encoding)
    by_key = {"batching_type": pulsar.BatchingType.KeyBased} if batched else {}
    producer = client.create_producer(topic, schema=schema, batching_enabled=batched, **by_key)
    producer.send(KeyValue(given, BERLIN), properties={"a": "b"})
    producer.send_many([KeyValue(given, City("x")), KeyValue(given, City("y"))])
    consumer = client.subscribe(topic, "s", schema=schema, initial_position=pulsar.InitialPosition.Earliest)
    messages = [consumer.receive(10_000) for _ in range(3)]
    assert [one.value() for one in messages] == [KeyValue(given, BERLIN), (given, City("x")), (given, City("y"))]
    assert messages[0].properties() == {"a": "b"}
    assert bool(messages[0].partition_key()) == (encoding is SEPARATED)


def test_a_topic_of_keys_and_values_is_compared_with_the_reader(client, topic):
    """Another encoding, a part that cannot be read and a schema of another type are refused, and a writer's as well."""
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
        (KeyValueSchema(str, JsonSchema(Other)), r"The broker does not take.*value: City.name: string is written"),
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
def test_what_cannot_be_sent_exactly_is_refused(client, topic, schema, options):
    """Avro parts have no version, and chunks no separated keys: the producer is not opened."""
    with pytest.raises(pulsar.InvalidUse, match="Nothing was opened"):
        client.create_producer(topic, schema=schema, **options)


def test_a_separated_key_is_the_only_one(client, topic):
    """A send that brings another key, or leaves alone without the flag of its key, is refused."""
    producer = client.create_producer(topic, schema=KeyValueSchema(str, str, SEPARATED))
    for options in ({"partition_key": "x"}, {"deliver_at": 1}):
        with pytest.raises(pulsar.InvalidUse, match="separated key"):
            producer.send(KeyValue("a", "b"), **options)


@pytest.mark.parametrize("batched", [False, True])
def test_a_separated_key_without_a_value_is_the_end_of_it(client, topic, admin, batched):
    """It comes as None, one by one and many at once, and compaction leaves nothing of the key."""
    schema = KeyValueSchema(str, JsonSchema(City), SEPARATED)
    by_key = {"batching_type": pulsar.BatchingType.KeyBased} if batched else {}
    producer = client.create_producer(topic, schema=schema, batching_enabled=batched, **by_key)
    sent = [KeyValue("a", BERLIN), KeyValue("b", BERLIN), KeyValue("a", None)]
    producer.send_many(sent)
    producer.send(KeyValue("c", BERLIN))
    producer.send(KeyValue("c", None))
    for wrong in (None, BERLIN, ("a",)):
        with pytest.raises(pulsar.InvalidUse, match="no key and value"):
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
def test_a_version_is_asked_for_of_the_messages_own_topic(topic, admin, ending):
    """Also where the topic's name has in it what a partition's ends with, and another topic has what is before it."""
    own = f"{topic}-partition-keys"
    for name, kind in ((topic, Other), (own, City)):
        stored = KeyValueSchema(str, kind)
        parts = {"key": "", "value": json.loads(stored.value.schema_info().schema())}
        admin.upload_schema(name, "KEY_VALUE", json.dumps(parts), stored.properties())
    schema = KeyValueSchema(str, City).of_client(lambda: admin, reads=True)
    schema.attach_client(VersionLookup(None, int, 0))
    payload = schema.encode(KeyValue("a", BERLIN))
    sent = SimpleNamespace(  # as Java's producer sends it: this library's cannot say a version
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
def test_a_retry_letter_has_the_key_and_the_value(client, topic, encoding):
    """What is consumed later comes again as it was."""
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
def test_any_schema_is_read_by_what_the_topic_says(client, pulsar_topic_factory, broker):
    """Records, text and bytes come as what they are, and records know their schema."""
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
def test_bytes_that_are_not_of_the_schema_that_they_say_raise(client, topic, schema, payload):
    """Whatever the schema, it is a SchemaMismatch, and the bytes are there."""
    written = schema_of_class(schema) if isinstance(schema, type) else schema
    producer = client.create_producer(topic, schema=PassingSchema(written.schema_info(), str(written)))
    producer.send(payload)
    message = client.create_reader(topic, pulsar.MessageId.earliest, schema=AutoConsumeSchema()).read_next(10_000)
    with pytest.raises(pulsar.SchemaMismatch, match=f"{len(payload)} bytes are no"):
        message.value()
    assert message.data() == payload
