"""`Record` classes on a broker, read back completely and by the official client."""

from __future__ import annotations

import contextlib
import enum

import pulsar as official
import pulsar.schema
import pytest
from reach import official_client

import pulsar_ext
from pulsar_ext.schema import Array, AvroSchema, Integer, JsonSchema, Map, Record, String

BOTH_CLIENTS = True


class Color(enum.Enum):
    """An enum of texts."""

    RED = "r"


class Base(Record):
    """A base record."""

    id = Integer()


class Item(Base):
    """A record whose base has a field."""

    name = String()
    color = Color


class Order(Base):
    """A record with nested records."""

    shelves = Map(Array(Item()))


class OfficialItem(pulsar.schema.Record):
    """`Item` as an official class."""

    id = pulsar.schema.Integer()
    name = pulsar.schema.String()
    color = Color


OfficialItem.__name__ = "Item"
ITEM = Item(id=1, name="a", color=Color.RED)
ORDER = Order(id=2, shelves={"x": [ITEM]})


@pytest.mark.core
@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_record_with_bases_is_received_completely(client, topic, kind):
    """Inherited fields and nested records, with their enums, are received."""
    client.create_producer(topic, schema=kind(Order)).send(ORDER)
    found = client.create_reader(topic, pulsar_ext.MessageId.earliest, schema=kind(Order)).read_next(10_000).value()
    assert found == ORDER
    assert found.shelves["x"][0].color is Color.RED


@pytest.mark.parametrize("name", ["JsonSchema", "AvroSchema"])
def test_records_are_exchanged_with_official_client(client, topic, broker, name):
    """The official client reads inherited fields, and this client reads official messages."""
    ours, theirs = getattr(pulsar_ext.schema, name)(Item), getattr(pulsar.schema, name)(OfficialItem)
    client.create_producer(topic, schema=ours).send(Item(id=1, name="a"))  # the official client cannot read text enums
    with contextlib.closing(official_client(broker)) as other:
        found = other.create_reader(topic, official.MessageId.earliest, schema=theirs).read_next(10_000).value()
        assert (found.id, found.name) == (1, "a")
        other.create_producer(topic, schema=theirs).send(OfficialItem(id=3, name="b"))
    reader = client.create_reader(topic, pulsar_ext.MessageId.earliest, schema=ours)
    assert [reader.read_next(10_000).value() for _ in range(2)] == [Item(id=1, name="a"), Item(id=3, name="b")]
