"""Conversion of JSON values of Avro schemas, from Java's client and this library, to Arrow values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from pulsar_ext.spark.schema import json_reader

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ARROW = {
    "int": pa.int32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "decimal": pa.decimal128(9, 2),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}
MOMENT = datetime(2020, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


def read(kind, text):
    """Return a value of a type, converted by Arrow."""
    row = json_reader({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", kind]}]})(
        f'{{"a": {text}, "unknown": 1.5}}'.encode()
    )
    logical = kind if isinstance(kind, str) else kind["logicalType"]
    return pa.array([row["a"]], ARROW[logical]).to_pylist()[0]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bytes", '"/w=="', b"\xff"),
        ("bytes", '""', b""),
        ("int", "7.0", 7),
        ("int", "null", None),
        ("double", "1.1", 1.1),
        ("double", "1", 1.0),
        (MILLIS, "1577836800500", MOMENT),
        (MICROS, "1577836800500000", MOMENT),
        (MILLIS, "1577836800.500000000", MOMENT),
        (MICROS, "1577836800.500000999", MOMENT),
        (MILLIS, '"2020-01-01T00:00:00.5Z"', MOMENT),
        (MICROS, '"2020-01-01T01:00:00.500+01:00"', MOMENT),
        (DAY, "18262", date(2020, 1, 1)),
        (DAY, '"2020-01-01"', date(2020, 1, 1)),
        (DAY, "[2020, 1, 1]", date(2020, 1, 1)),
        (MONEY, "1.25", Decimal("1.25")),
        (MONEY, '"1.25"', Decimal("1.25")),
        (MONEY, "3", Decimal("3.00")),
    ],
)
def test_json_values_convert_to_arrow(kind, text, value):
    """Each JSON form of a value converts to that value."""
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("bytes", '"\u00e9"', "base64"),
        ("bytes", '"abc"', "base64"),
        ("int", "1.5", "whole number"),
        ("int", "1e999999999", "too large"),
        (MILLIS, '"2020-01-01T00:00:00"', "without a zone"),
        (DAY, "1.5", "whole number"),
        (MONEY, '"}"', "decimal"),
    ],
)
def test_json_values_that_do_not_fit_raise(kind, text, words):
    """A value that does not fit the schema raises."""
    with pytest.raises(ValueError, match=words):
        read(kind, text)
