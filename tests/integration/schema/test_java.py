"""Values of every kind of schema exchanged with Java's client, with and without AutoConsumeSchema."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from java_peer import run_java
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext.schema import (
    AutoConsumeSchema,
    AvroSchema,
    Int32,
    JsonSchema,
    KeyValue,
    KeyValueEncoding,
    KeyValueSchema,
    ProtobufNativeSchema,
)
from pulsar_ext.testing.backend import process_problem

BOTH_CLIENTS = True

PROBLEM = process_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=f"the Java client cannot be run here: {PROBLEM}")


class Status(enum.Enum):
    """Java's enum."""

    OPEN = 1
    PAID = 2


@dataclass
class Item:
    """Java's class, with nullable references and an int."""

    sku: str | None = None
    count: Int32 = 0


@dataclass
class Order:
    """Java's class."""

    id: int
    name: str | None = None
    placed: dt.datetime | None = None
    total: decimal.Decimal | None = None
    uid: uuid.UUID | None = None
    status: Status | None = None
    items: list[Item] | None = None
    weights: dict[str, float] | None = field(default=None)
    picture: bytes | None = None
    due: dt.date | None = None


ORDER = Order(
    7,
    "Ünï",
    dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC),
    decimal.Decimal("12.500"),
    uuid.UUID(int=(1 << 64) + 2),
    Status.PAID,
    [Item("a", 3)],
    {"w": 0.5},
    bytes([0, 1, 200]),
    dt.date(2030, 1, 2),
)
SCHEMAS = {
    "avro": (AvroSchema(Order), ORDER),
    "json": (JsonSchema(Order), ORDER),
    "inline": (KeyValueSchema(str, JsonSchema(Order)), KeyValue("abcd", ORDER)),
    "separated": (
        KeyValueSchema(JsonSchema(Item), JsonSchema(Order), KeyValueEncoding.SEPARATED),
        KeyValue(Item("a", 3), ORDER),
    ),
    "protobuf": (ProtobufNativeSchema(Timestamp), Timestamp(seconds=5, nanos=6)),
}


@pytest.fixture
def java(broker):
    """Return a function that runs the Java program and returns its output."""

    def run(mode, topic):
        lines = run_java("Schemas", Reach.of(broker).java_settings(), mode, topic)
        return [line.split("\t") for line in lines if line.startswith(("READ\t", "AUTO\t"))]

    return run


def _plain(value):
    """Return the plain value of an auto-consumed value."""
    if isinstance(value, KeyValue):
        return KeyValue(_plain(value.key), _plain(value.value))
    return dict(value) if hasattr(value, "schema_type") else value


def test_java_and_python_read_each_other(client, topic, pulsar_topic_factory, broker, java):
    """Java reads from this library what it reads from itself; this library reads from Java what it sends."""
    ours, theirs = topic, pulsar_topic_factory(broker=broker)
    java("send", f"{theirs}-")
    for kind, (schema, value) in SCHEMAS.items():
        client.create_producer(f"{ours}-{kind}", schema=schema).send(value)
    automatic = {}
    for kind, (schema, value) in SCHEMAS.items():
        for where in (ours, theirs):
            reader = client.create_reader(f"{where}-{kind}", pulsar.MessageId.earliest, schema=schema)
            assert reader.read_next(10_000).value() == value, kind
            reader = client.create_reader(f"{where}-{kind}", pulsar.MessageId.earliest, schema=AutoConsumeSchema())
            automatic[where, kind] = _plain(reader.read_next(10_000).value())
    assert automatic[theirs, "separated"] == KeyValue({"sku": "a", "count": 3}, automatic[theirs, "json"])
    assert isinstance(automatic[ours, "inline"], bytes)  # no schema version: bytes in Java too
    for kind in ("avro", "protobuf"):
        assert automatic[ours, kind] == automatic[theirs, kind]
    assert automatic[theirs, "avro"]["placed"] == ORDER.placed
    assert automatic[theirs, "json"].keys() == automatic[ours, "json"].keys()
    assert automatic[theirs, "inline"].key == "abcd"
    reader = client.create_reader(f"{theirs}-keyed-avro", pulsar.MessageId.earliest, schema=KeyValueSchema(Item, Order))
    assert reader.read_next(10_000).value() == KeyValue(Item("a", 3), ORDER)
    read, expected = java("read", f"{ours}-"), java("read", f"{theirs}-")
    assert [line for line in read if line[2] != "BYTES[]"] == [line for line in expected if "KEY_VALUE" not in line[2]]
    assert {kind for how, kind, _ in read if how == "READ"} == SCHEMAS.keys()
