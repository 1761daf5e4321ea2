"""JSON as Java's client writes it, and as it reads it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import math
import uuid
from dataclasses import dataclass

import pytest

from pulsar_ext import InvalidUse, SchemaMismatch
from pulsar_ext.schema import JsonSchema, LocalTimestamp


@dataclass
class Times:
    """Everything that Jackson writes in a way of its own."""

    instant: dt.datetime | None = None
    local: LocalTimestamp | None = None
    date: dt.date | None = None
    time: dt.time | None = None
    price: decimal.Decimal | None = None
    picture: bytes | None = None
    share: float | None = None


NIL = uuid.UUID(int=0)
POINT = dt.datetime(2023, 11, 14, 22, 13, 20, 123456, dt.UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"instant": 1700000000.123456000}', Times(instant=POINT)),
        ('{"instant": 1700000000123}', Times(instant=POINT.replace(microsecond=123000))),
        ('{"instant": "2023-11-14T23:13:20.123456+01:00"}', Times(instant=POINT)),
        ('{"local": [2024, 1, 2, 3, 4, 5, 6000]}', Times(local=dt.datetime(2024, 1, 2, 3, 4, 5, 6))),  # noqa: DTZ001
        ('{"local": [2024, 1, 2, 3, 4]}', Times(local=dt.datetime(2024, 1, 2, 3, 4))),  # noqa: DTZ001  # as written
        ('{"date": [2024, 1, 2]}', Times(date=dt.date(2024, 1, 2))),
        ('{"time": [1, 2]}', Times(time=dt.time(1, 2))),
        ('{"time": [1, 2, 3, 456789000]}', Times(time=dt.time(1, 2, 3, 456789))),
        ('{"price": 12.500000000000000000001}', Times(price=decimal.Decimal("12.500000000000000000001"))),
        ('{"picture": "Acg="}', Times(picture=b"\x01\xc8")),
        ('{"share": "Infinity"}', Times(share=math.inf)),
        ('{"share": 1, "unknown": {}}', Times(share=1.0)),
    ],
)
def test_what_jackson_writes_is_read(text, value):
    """Times as numbers, arrays and text; numbers that no float has; and what is left out."""
    assert JsonSchema(Times).decode(text.encode()) == value


def test_what_is_written_is_what_jackson_reads():
    """ISO 8601 with Z, base64, and text for decimals and what JSON has no number for."""
    value = Times(
        POINT, POINT.replace(tzinfo=None), POINT.date(), dt.time(1), decimal.Decimal("1.50"), b"\xff", -math.inf
    )
    assert json.loads(JsonSchema(Times).encode(value)) == {
        "instant": "2023-11-14T22:13:20.123456Z",
        "local": "2023-11-14T22:13:20.123456",
        "date": "2023-11-14",
        "time": "01:00:00",
        "price": "1.50",
        "picture": "/w==",
        "share": "-Infinity",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"date": "x"}', "Times.date is 'x', which is no date"),
        (b'{"instant": "2023-11-14T22:13:20"}', "which is no datetime"),
        (b'{"picture": "?"}', "which is no bytes"),
        (b"[]", "Times is list"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_what_is_something_else_raises(text, why):
    """The error says where it is."""
    with pytest.raises(SchemaMismatch, match=why):
        JsonSchema(Times).decode(text)


@dataclass
class Square:
    """One object."""

    side: int = 0


@dataclass
class Oblong:
    """Another one."""

    sides: list[int] | None = None


@dataclass
class Drawn:
    """One of several objects, and an id."""

    shape: Square | Oblong | None = None
    id: uuid.UUID = NIL


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"shape": {"side": 1, "sides": []}}', "Drawn.shape has 2 names, not one of Square, Oblong"),
        (b'{"shape": {}}', "Drawn.shape has 0 names"),
        (b'{"shape": {"side": 1}}', "Drawn.shape is of side, which is none of Square, Oblong"),
        (b'{"id": 5}', "Drawn.id is 5, which is no UUID"),
        (b'{"id": {"a": 1}}', "Drawn.id is .*, which is no UUID"),
    ],
)
def test_an_object_that_does_not_say_what_it_is_raises(text, why):
    """Of a union of objects each has the name of its own; the error says where it is."""
    with pytest.raises(SchemaMismatch, match=why):
        JsonSchema(Drawn).decode(text)


def test_a_text_that_cannot_be_written_is_read():
    """JSON can have half a surrogate pair in it, and others write it."""
    text = dataclasses.make_dataclass("Text", [("a", str), ("b", dict[str, str])])
    assert JsonSchema(text).decode(rb'{"a": "\ud800", "b": {"\udfff": ""}}') == text("\ud800", {"\udfff": ""})


def test_a_float_that_would_be_text_is_not_written_where_text_is_another_branch():
    """It would be read as text."""

    @dataclass
    class Either:
        value: float | str

    globals()["Either"] = Either
    with pytest.raises(InvalidUse, match="which is text in JSON"):
        JsonSchema(Either).encode(Either(math.inf))
