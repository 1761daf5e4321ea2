"""`AutoProduceSchema` writes the JSON that `cat` prints as bytes of a schema, or rejects it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsar.schema import BytesSchema, StringSchema

from pulsar_ext.cli.cat import plain
from pulsar_ext.errors import InvalidUse, SchemaMismatch
from pulsar_ext.schema import AvroSchema, JsonSchema
from pulsar_ext.schema.auto_consume import GenericRecord
from pulsar_ext.schema.auto_produce import AutoProduceSchema, parse_value
from pulsar_ext.schema.avro_definition import shape_of_definition
from pulsar_ext.schema.avro_schema import avro_reader


@dataclass
class Order:
    """A record with a field of each kind."""

    number: int
    price: float
    note: str | None
    data: bytes
    at: datetime
    day: date
    id: UUID
    tags: list[str]
    counts: dict[str, int]


ORDERS = st.builds(
    Order,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.text(),
    st.binary(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.uuids(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.integers(0, 9)),
)


def produce(schema):
    return AutoProduceSchema(schema.schema_info(), "the schema of orders")


def printed(value):
    """Return a value as `cat` prints it."""
    return parse_value(json.dumps(value, default=plain))


@given(ORDERS)
def test_avro_values_survive_cat(order):
    """The bytes written from what `cat` prints are those of the value."""
    schema = AvroSchema(Order)
    definition = json.loads(schema.schema_info().schema())
    data = schema.encode(order)
    fields = avro_reader(definition, shape_of_definition(definition))(data)
    assert produce(schema).write(printed(GenericRecord(fields, "AVRO", "", 0))) == data


@given(ORDERS)
def test_json_values_survive_cat(order):
    """The JSON written from what `cat` prints is that of the value."""
    schema = JsonSchema(Order)
    written = parse_value(schema.encode(order).decode())
    again = produce(schema).write(printed(GenericRecord(written, "JSON", "", 0)))
    assert schema.decode(again) == order


@pytest.mark.parametrize(
    ("value", "data"),
    [("text", b"text"), ({"base64": "/w=="}, b"\xff"), ({"a": Decimal("1.50")}, b'{"a":1.5}'), (None, None), (1, b"1")],
)
def test_values_without_a_schema_are_bytes(value, data):
    """Text, base64 and other JSON are the payload."""
    assert produce(BytesSchema()).write(value) == data


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        (StringSchema(), 5, "not a str"),
        (BytesSchema(), {"base64": "?"}, "is not valid base64"),
        (JsonSchema(Order), {"number": "x"}, "value.number is str 'x'"),
        (AvroSchema(Order), {"number": 1}, "value.price is missing"),
        (AvroSchema(Order), {"number": 2**63}, "value.number"),
        (AvroSchema(Order), {"other": 1}, "value has unknown fields: other"),
    ],
)
def test_other_values_are_rejected(schema, value, error):
    """The error names the part that does not match the schema."""
    with pytest.raises(InvalidUse, match=error):
        produce(schema).write(value)


@dataclass
class Ambiguous:
    """Text and a time look alike in JSON."""

    either: str | datetime


def test_ambiguous_schema_is_rejected():
    """A schema whose values look alike in JSON raises before anything is sent."""
    with pytest.raises(SchemaMismatch, match="look alike in JSON"):
        produce(AvroSchema(Ambiguous))


def test_line_is_a_value():
    """A line is the payload without a schema, and JSON with one of records."""
    assert produce(BytesSchema()).write_line(b"\xff") == b"\xff"
    assert produce(StringSchema()).write_line("ä".encode()) == "ä".encode()
    with pytest.raises(ValueError, match="utf-8"):
        produce(StringSchema()).write_line(b"\xff")
