"""JSON values of Avro schemas, as what Arrow takes (pure).

They are read as Java's client and this library's schemas write them: bytes in base64, and as text in what the official
Python client writes, whose JSON has lines; points in time and dates as
numbers of the schema's unit or in ISO 8601; and what Jackson makes of an `Instant`, which is seconds with a fraction,
and of a `LocalDate`, an array. What would be something else in the column is refused.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.schema.json_values import OFFICIAL_BEGINNING

from .avro_types import expanded, not_null

if TYPE_CHECKING:
    from collections.abc import Callable

    _Simple = dict[str, Callable[[Any], Any]]
    """What converts the values of each type that has no logical type."""

__all__ = ["json_reader"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ONE: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLION: Final = 1_000_000
_MOST_DIGITS: Final = 20

_parse = json.JSONDecoder(parse_float=Decimal).decode


def json_reader(schema: Any) -> Callable[[bytes], dict[str, Any]]:
    """Make what reads the JSON of a record; it raises ValueError or TypeError where that does not fit the schema."""
    whole = expanded(schema)
    compact, with_lines = _record(whole, _SIMPLE), _record(whole, _SIMPLE | {"bytes": str.encode})

    def read(data: bytes) -> dict[str, Any]:
        row = _parse(data.decode())
        if not isinstance(row, dict):
            raise TypeError("it is not a JSON object")
        return (with_lines if data.startswith(OFFICIAL_BEGINNING) else compact)(row)

    return read


def _converter(kind: Any, simple: _Simple) -> Callable[[Any], Any] | None:
    """Make what converts values of a type that are not null; None if they stay as they are."""
    kind = not_null(kind)
    if isinstance(kind, str):
        return simple.get(kind)
    name = kind["type"]
    if kind.get("logicalType") in _LOGICAL:
        return _LOGICAL[kind["logicalType"]]
    if name == "record":
        return _record(kind, simple)
    if name in ("array", "map"):
        return _each(name, _converter(kind["items" if name == "array" else "values"], simple))
    return _converter(name, simple)


def _record(schema: Any, simple: _Simple) -> Callable[[dict[str, Any]], dict[str, Any]]:
    converters = {field["name"]: _converter(field["type"], simple) for field in schema["fields"]}
    needed = {name: converter for name, converter in converters.items() if converter is not None}
    if not needed:
        return lambda row: row

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {
            name: needed[name](value) if name in needed and value is not None else value for name, value in row.items()
        }

    return convert


def _each(name: str, one: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if one is None:
        return None
    if name == "array":
        return lambda items: [None if item is None else one(item) for item in items]
    return lambda items: {key: None if item is None else one(item) for key, item in items.items()}


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not bytes in base64") from None


def _whole(value: Any) -> Any:
    if isinstance(value, Decimal):
        if value != (whole := _integer(value)):
            raise ValueError(f"{value} is not a whole number")  # Arrow would leave out the fraction
        return whole
    return value


def _integer(value: Decimal) -> int:
    """Give a number without its fraction; not one that would fill the memory with its zeros."""
    if value.adjusted() > _MOST_DIGITS:
        raise ValueError(f"{value} is too large")
    return int(value)


def _fraction(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _micros(unit: int, value: Any) -> Any:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(f"{value} is a time without a zone")
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(value, Decimal):
        return _integer(value * _MILLION)  # an `Instant`
    return value * unit


def _days(value: Any) -> Any:
    if isinstance(value, str):
        return date.fromisoformat(value).toordinal() - _DAY_ONE
    return date(*value).toordinal() - _DAY_ONE if isinstance(value, list) else _whole(value)


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None


_SIMPLE: Final[_Simple] = {
    "bytes": _bytes_of,
    "fixed": _bytes_of,
    "int": _whole,
    "long": _whole,
    "float": _fraction,
    "double": _fraction,
}
_LOGICAL: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp-millis": partial(_micros, 1000),
    "timestamp-micros": partial(_micros, 1),
    "date": _days,
    "decimal": _decimal,
}
