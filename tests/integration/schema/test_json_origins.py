"""JSON beside the official client on one topic: bytes, enums, and who made the topic's schema."""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass

import pulsar as official
import pulsar.schema
import pytest
from pydantic import BaseModel
from reach import official_client

import pulsar_ext
from pulsar_ext.schema import JsonSchema

BOTH_CLIENTS = True
EARLIEST = pulsar_ext.MessageId.earliest


class Color(enum.Enum):
    """Its values are numbers."""

    RED = 1


@dataclass
class Row:
    """What each of the clients has a form of its own for."""

    data: bytes | None = None
    color: Color | None = None


class Model(BaseModel):
    """The same, of pydantic."""

    data: bytes | None = None
    color: Color | None = None


class OfficialRow(pulsar.schema.Record):
    """The same, of the official client."""

    data = pulsar.schema.Bytes()
    color = Color


OfficialRow.__name__ = Model.__name__ = "Row"
THEIRS = pulsar.schema.JsonSchema(OfficialRow)


@pytest.mark.core(each="model")
@pytest.mark.parametrize("model", [Row, Model])
@pytest.mark.parametrize("first", ["official", "ours"])
def test_both_clients_read_each_others_bytes(client, topic, broker, model, first):
    """Whoever made the topic's schema: `b"abcd"` is read as such by both, though it looks like base64."""
    sent = {"data": b"abcd", "color": Color.RED}
    with contextlib.closing(official_client(broker)) as other:
        if first == "official":
            other.create_producer(topic, schema=THEIRS).send(OfficialRow(**sent))
        client.create_producer(topic, schema=JsonSchema(model)).send(model(**sent))
        if first == "ours":
            other.create_producer(topic, schema=THEIRS).send(OfficialRow(**sent))
        reader = other.create_reader(topic, official.MessageId.earliest, schema=THEIRS)
        assert [reader.read_next(10_000).value() for _ in range(2)] == [OfficialRow(**sent)] * 2
    ours = client.create_reader(topic, EARLIEST, schema=JsonSchema(model))
    assert [ours.read_next(10_000).value() for _ in range(2)] == [model(**sent)] * 2


def test_bytes_that_are_no_text_are_not_sent_to_official_readers(client, topic, broker):
    """Where the topic's schema is the official client's, which could not read them; on other topics they are sent."""
    with contextlib.closing(official_client(broker)) as other:
        other.create_producer(topic, schema=THEIRS).close()
    for _ in range(2):  # also when this library's schema is the last one
        producer = client.create_producer(topic, schema=JsonSchema(Row))
        with pytest.raises(pulsar_ext.InvalidUse, match="Nothing was sent"):
            producer.send(Row(b"\xff"))
    for bytes_as in (None, "base64"):
        schema = JsonSchema(Row, bytes_as=bytes_as)
        client.create_producer(f"{topic}-{bytes_as}", schema=schema).send(Row(b"\xff"))
        assert client.create_reader(f"{topic}-{bytes_as}", EARLIEST, schema=schema).read_next(10_000).value() == Row(
            b"\xff"
        )


def test_base64_without_a_schema_raises(client, topic):
    """What pydantic wrote and was sent as bytes says no schema; what can be one thing only is read."""
    reader = client.create_reader(topic, EARLIEST, schema=JsonSchema(Model))  # which gives the topic a schema
    producer = client.create_producer(topic)
    for data in (b"a b", b"abcd"):
        producer.send(Model(data=data, color=Color.RED).model_dump_json().encode())
    assert reader.read_next(10_000).value() == Model(data=b"a b", color=Color.RED)
    with pytest.raises(pulsar_ext.SchemaMismatch, match="base64, or text"):
        reader.read_next(10_000).value()
