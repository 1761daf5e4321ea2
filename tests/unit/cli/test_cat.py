"""`pulsar-ext cat` reads places in every form, and prints values of every kind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from pulsar_ext.cli.cat import parse_place, plain
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.schema.auto_consume import GenericRecord


@dataclass
class Order:
    """A value of a class."""

    number: int


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("5:7:-1", MessageId(-1, 5, 7)),
        ("1700000000000", 1_700_000_000_000),
        ("2026-11-30T10:00:00+00:00", datetime(2026, 11, 30, 10, tzinfo=UTC)),
        ("earliest", MessageId.earliest),
        ("latest", MessageId.latest),
    ],
)
def test_place_is_read_in_each_form(text, place):
    """Ids, milliseconds, times and names are places."""
    assert parse_place(text) == place


def test_age_is_a_time_before_now():
    """An age is subtracted from the present."""
    place = parse_place("15m")
    ago = datetime.now(UTC) - place
    assert timedelta(minutes=15) <= ago < timedelta(minutes=16)


@pytest.mark.parametrize("text", ["", "yesterday", "5m ago", "5:x"])
def test_other_text_is_no_place(text):
    """The error names the forms."""
    with pytest.raises(InvalidUse, match="is not a place"):
        parse_place(text)


def test_values_are_written_as_json():
    """Bytes are text or base64, records are objects, and other values are text."""
    values = [
        b"text",
        b"\xff",
        GenericRecord({"a": b"b"}, "AVRO", "{}", 0),
        Order(3),
        date(2026, 1, 2),
        {1},
        Decimal("1.5"),
    ]
    written = json.loads(json.dumps(values, default=plain))
    assert written == ["text", {"base64": "/w=="}, {"a": "b"}, {"number": 3}, "2026-01-02", "{1}", 1.5]
