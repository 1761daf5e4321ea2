"""JSON in the forms that Java's client writes and reads."""

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
    """Types that Jackson writes in forms of its own."""

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
def test_json_of_jackson_is_decoded(text, value):
    """Times may be numbers, arrays or text; large decimals and omitted fields are read."""
    assert JsonSchema(Times).decode(text.encode()) == value


def test_json_is_encoded_for_jackson():
    """Times are ISO 8601 with Z, bytes base64, and decimals and special floats text."""
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
        (b'{"date": "x"}', "Times.date is 'x', not a valid date"),
        (b'{"instant": "2023-11-14T22:13:20"}', "not a valid datetime"),
        (b'{"picture": "?"}', "not valid base64"),
        (b"[]", "Times is list"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_invalid_json_value_raises_with_path(text, why):
    """The error states the path of the value."""
    with pytest.raises(SchemaMismatch, match=why):
        JsonSchema(Times).decode(text)


@dataclass
class Square:
    """An object."""

    side: int = 0


@dataclass
class Oblong:
    """Another object."""

    sides: list[int] | None = None


@dataclass
class Drawn:
    """A union of objects, and an id."""

    shape: Square | Oblong | None = None
    id: uuid.UUID = NIL


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"shape": {"side": 1, "sides": []}}', "Drawn.shape must have exactly one name of Square, Oblong, got 2"),
        (b'{"shape": {}}', "Drawn.shape must have exactly one name of Square, Oblong, got 0"),
        (b'{"shape": {"side": 1}}', "Drawn.shape has the name side, not one of Square, Oblong"),
        (b'{"id": 5}', "Drawn.id is 5, not a valid UUID"),
        (b'{"id": {"a": 1}}', "Drawn.id is .*, not a valid UUID"),
    ],
)
def test_ambiguous_union_object_raises(text, why):
    """An object of a union must be wrapped in its name; the error states the path."""
    with pytest.raises(SchemaMismatch, match=why):
        JsonSchema(Drawn).decode(text)


def test_lone_surrogate_is_decoded():
    """JSON of other writers may contain lone surrogates."""
    text = dataclasses.make_dataclass("Text", [("a", str), ("b", dict[str, str])])
    assert JsonSchema(text).decode(rb'{"a": "\ud800", "b": {"\udfff": ""}}') == text("\ud800", {"\udfff": ""})


def test_infinite_float_in_union_with_text_is_rejected():
    """Infinity would be read back as text."""

    @dataclass
    class Either:
        value: float | str

    globals()["Either"] = Either
    with pytest.raises(InvalidUse, match="which is text in JSON"):
        JsonSchema(Either).encode(Either(math.inf))
