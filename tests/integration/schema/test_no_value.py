"""Messages without a value, which every schema reads as None."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel

import pulsar_ext as pulsar
from pulsar_ext.schema import AutoConsumeSchema, JsonSchema, KeyValue, KeyValueEncoding, KeyValueSchema

BOTH_CLIENTS = True


@dataclass
class Item:
    """A dataclass."""

    sku: str


class Model(BaseModel):
    """A pydantic model."""

    sku: str


class Row(pulsar.schema.Record):
    """An official record."""

    sku = pulsar.schema.String()


PAIR = KeyValueSchema(str, JsonSchema(Item))
SEPARATED = KeyValueSchema(str, JsonSchema(Item), KeyValueEncoding.SEPARATED)
VALUES = [
    (Item, Item("a")),
    (Model, Model(sku="a")),
    (JsonSchema(Item), Item("a")),
    (JsonSchema(Model), Model(sku="a")),
    (pulsar.schema.AvroSchema(Row), Row(sku="a")),
    (pulsar.schema.JsonSchema(Row), Row(sku="a")),
    (str, "a"),
    (bytes, b"a"),
    (Timestamp, Timestamp(seconds=5)),
    (PAIR, KeyValue("k", Item("a"))),
]


@pytest.mark.core
@pytest.mark.parametrize("schema", [schema for schema, _ in VALUES], ids=str)
def test_message_without_a_value_is_none(client, topic, schema):
    """A message without a value is None for its schema and AutoConsumeSchema; other values are unchanged."""
    written = next(value for each_schema, value in VALUES if each_schema is schema)
    producer = client.create_producer(topic, schema=schema)
    producer.send(written, partition_key="k")
    producer.send(None, partition_key="k")
    for reads in (schema, AutoConsumeSchema()):
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=reads)
        value, nothing = (reader.read_next(10_000) for _ in range(2))
        assert value.value() is not None
        assert (nothing.has_null_value(), nothing.value()) == (True, None)


@pytest.mark.parametrize("schema", [PAIR, SEPARATED], ids=str)
def test_keys_and_values_may_be_none(client, topic, schema):
    """A value of None, and INLINE a key of None, is received as None."""
    pairs = [KeyValue("k", None), KeyValue("k", Item("a"))]
    if schema is PAIR:
        pairs += [KeyValue(None, Item("a")), KeyValue(None, None), KeyValue("", None)]
    producer = client.create_producer(topic, schema=schema)
    producer.send(pairs[0])
    producer.send_many(pairs[1:])
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    assert [reader.read_next(10_000).value() for _ in pairs] == pairs
