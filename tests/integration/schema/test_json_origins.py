"""JSON exchanged with the official client on one topic: bytes, enums, and the topic's schema."""

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
    """An enum of numbers."""

    RED = 1


@dataclass
class Row:
    """Types for which each client has a form of its own."""

    data: bytes | None = None
    color: Color | None = None


class Model(BaseModel):
    """The model in pydantic."""

    data: bytes | None = None
    color: Color | None = None


class OfficialRow(pulsar.schema.Record):
    """The model as an official record."""

    data = pulsar.schema.Bytes()
    color = Color


OfficialRow.__name__ = Model.__name__ = "Row"
THEIRS = pulsar.schema.JsonSchema(OfficialRow)


@pytest.mark.core(each="model")
@pytest.mark.parametrize("model", [Row, Model])
@pytest.mark.parametrize("first", ["official", "ours"])
def test_bytes_are_exchanged_on_one_topic(client, topic, broker, model, first):
    """Both clients read `b"abcd"`, which looks like base64, whichever client made the topic's schema."""
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


def test_non_text_bytes_are_not_sent_to_official_readers(client, topic, broker):
    """Bytes that are not UTF-8 raise on topics of the official client, which cannot read them, and only there."""
    with contextlib.closing(official_client(broker)) as other:
        other.create_producer(topic, schema=THEIRS).close()
    for _ in range(2):  # the second time this library's schema is the last one
        producer = client.create_producer(topic, schema=JsonSchema(Row))
        with pytest.raises(pulsar_ext.InvalidUse, match="Nothing was sent"):
            producer.send(Row(b"\xff"))
    for bytes_as in (None, "base64"):
        schema = JsonSchema(Row, bytes_as=bytes_as)
        client.create_producer(f"{topic}-{bytes_as}", schema=schema).send(Row(b"\xff"))
        assert client.create_reader(f"{topic}-{bytes_as}", EARLIEST, schema=schema).read_next(10_000).value() == Row(
            b"\xff"
        )


def test_ambiguous_base64_without_schema_raises(client, topic):
    """JSON of pydantic without a schema version is read if it is unambiguous, and raises otherwise."""
    reader = client.create_reader(topic, EARLIEST, schema=JsonSchema(Model))  # registers a schema for the topic
    producer = client.create_producer(topic)
    for data in (b"a b", b"abcd"):
        producer.send(Model(data=data, color=Color.RED).model_dump_json().encode())
    assert reader.read_next(10_000).value() == Model(data=b"a b", color=Color.RED)
    with pytest.raises(pulsar_ext.SchemaMismatch, match="base64, or text"):
        reader.read_next(10_000).value()
