"""KEY_VALUE topics, as Debezium and Pulsar IO write them: keys and values as columns, by schema version."""

from __future__ import annotations

import json

import pytest
from java_peer import run_java
from reach import Reach
from spark_topics import keep_everything, options_of

import pulsar_ext

pytest.importorskip("pyspark")

import pyarrow as pa

from pulsar_ext.errors import InvalidUse
from pulsar_ext.key_shared.hashing import KeyForm, batch_forms
from pulsar_ext.schema import KeyValue, KeyValueEncoding, KeyValueSchema
from pulsar_ext.spark import PulsarDataSource
from pulsar_ext.spark.options import parse_options
from pulsar_ext.spark.sink import TaskProducers, rows_by_group
from pulsar_ext.testing.backend import process_problem

PROBLEM = process_problem()
pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(PROBLEM is not None, reason=f"the Java client cannot be run here: {PROBLEM}"),
]

WAYS = [(encoding, kind) for encoding in ("SEPARATED", "INLINE") for kind in ("avro", "json")]


def read(broker, topic, **options):
    """Read a topic as tasks do."""
    source = PulsarDataSource(options_of(broker, topic, **options))
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.core(slow="Java is started")
def test_keys_and_values_use_their_schema_version(broker, admin, pulsar_topic_factory):
    """Keys and values are decoded by the topic's schema or the user's; a null value keeps its separated key."""
    topics = [pulsar_topic_factory(f"{encoding}-{kind}", broker=broker) for encoding, kind in WAYS]
    keep_everything(admin, topics[0])
    ways = [
        word for topic, (encoding, kind) in zip(topics, WAYS, strict=True) for word in (topic, encoding, kind.upper())
    ]
    run_java("KeyedVersions", Reach.of(broker).java_settings(), *ways)
    for topic, (_, kind) in zip(topics, WAYS, strict=True):
        columns = {"valueFormat": kind, "keyFormat": kind}
        found = read(broker, topic, columns="value,__keyPart", **columns)
        assert [(row["name"], row["flag"]) for row in found] == [("n1", b"\1"), (None, None), ("n2", b"\2")], topic
        first = {"country": None, "region": "r1"}
        assert [row["__keyPart"] for row in found] == [first, first, {"country": "c2", "region": "r2"}], topic
        assert [row["area"] for row in found] == [None, None, "a2"], topic
        parts = json.loads(admin.schema(topic, 0).data)
        own = {"valueSchema": json.dumps(parts["value"]), "keySchema": json.dumps(parts["key"])}
        found = read(broker, topic, columns="name,__keyPart", **columns, **own)
        assert [(row["name"], row["__keyPart"]) for row in found] == [
            ("n1", {"region": "r1"}),
            (None, {"region": "r1"}),
            ("n2", {"region": "r2"}),
        ], topic


@pytest.mark.parametrize("encoding", KeyValueEncoding)
def test_keys_may_be_text_or_bytes(broker, client, admin, topic, encoding):
    """Keys sent by this library are read as text or bytes; text that is valid base64 stays text."""
    keep_everything(admin, topic)
    client.create_producer(topic, schema=KeyValueSchema(str, str, encoding)).send(KeyValue("abcd", "v"))
    for kind, key in (("string", "abcd"), ("bytes", b"abcd")):
        assert read(broker, topic, keyFormat=kind, columns="__keyPart") == [{"__keyPart": key}]


def test_value_of_another_schema_type_raises(broker, admin, topic):
    """An error names the topic's schema type if it differs from the option's."""
    keep_everything(admin, topic)
    run_java("KeyedVersions", Reach.of(broker).java_settings(), topic, "SEPARATED", "JSON")
    with pytest.raises(InvalidUse, match=rf"The schema of {topic} is JSON, but option valueFormat is avro"):
        read(broker, topic, valueFormat="avro", columns="value")
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    with pytest.raises(InvalidUse, match="its topic has a json schema for it"):
        read(broker, topic, valueFormat="avro", valueSchema=schema, columns="value")


def test_trailing_bytes_raise(broker, client, admin, topic):
    """A value with bytes after the end of its schema raises."""
    keep_everything(admin, topic)
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    with client.create_producer(topic) as producer:
        producer.send(b"\x02xy")
    with pytest.raises(InvalidUse, match="1 bytes remain"):
        read(broker, topic, valueFormat="avro", valueSchema=json.dumps(schema), columns="value")


def write(broker, topic, keys, values, **options):
    """Write rows as a task does."""
    settings = parse_options(options_of(broker, topic, **options), "batch write")
    batch = pa.record_batch({"__key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    with TaskProducers(settings, None, 0) as producers:
        for group, rows in rows_by_group(batch, settings, "0"):
            producers.send(group, rows)
        producers.finish()


KEYS, VALUES = [b"abcd", b"\xff", b"abcd"], [b'{"a":1}', b'{"a":2}', None]


@pytest.mark.parametrize("batches", ["Default", "KeyBased"])
@pytest.mark.parametrize("encoding", KeyValueEncoding)
def test_keys_and_values_are_written(broker, client, admin, topic, encoding, batches):
    """Written rows are read by Spark and by this library's schema; a separated key is marked as bytes."""
    keep_everything(admin, topic)
    schema = KeyValueSchema(bytes, bytes, encoding)
    client.create_producer(topic, schema=schema).close()  # registers the topic's schema
    options = {"keyValueEncoding": encoding.value, "pulsar.producer.batchingType": batches}
    write(broker, topic, KEYS, VALUES, **options)
    expected = sorted(zip(KEYS, VALUES, strict=True), key=str)
    reader = client.create_reader(topic, pulsar_ext.MessageId.earliest, schema=schema)
    messages = [reader.read_next(10_000) for _ in KEYS]
    assert sorted((tuple(message.value()) for message in messages), key=str) == expected
    keys = [row["__keyPart"] for row in read(broker, topic, keyFormat="bytes", columns="__keyPart")]
    assert sorted(keys) == sorted(KEYS)
    if encoding is KeyValueEncoding.SEPARATED:
        found = messages[0].message_id()
        entry = admin.entry(topic, found.ledger_id(), found.entry_id(), payload=True)
        assert set(batch_forms(entry.payload, entry.num_messages_in_batch)) == {KeyForm.BASE64}


def test_invalid_keys_are_not_written(broker, client, admin, topic):
    """A null separated key, a write without batches and another key encoding raise before anything is sent."""
    keep_everything(admin, topic)
    client.create_producer(topic, schema=KeyValueSchema(bytes, bytes)).close()
    for options, keys, why in (
        ({"keyValueEncoding": "SEPARATED"}, [None, b"a"], "__key is null in 1 rows"),
        ({"keyValueEncoding": "SEPARATED"}, [b"a", b"a"], "keys of .* are INLINE"),
        ({"keyValueEncoding": "SEPARATED", "pulsar.producer.chunkingEnabled": "true"}, [b"a", b"a"], "needs batches"),
    ):
        with pytest.raises(InvalidUse, match=why):
            write(broker, topic, keys, [b"v", b"v"], **options)
    assert admin.internal_stats(topic).number_of_entries == 0
