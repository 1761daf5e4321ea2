"""JSON to Python values of a shape (pure): what this library writes, and what Java's client does.

Jackson writes an `Instant` as seconds with a fraction, a `Date` as milliseconds, local times as arrays, decimals as
numbers, and leaves nulls out.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import uuid
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import SchemaMismatch

from .json_unions import family_of, json_family, short_name
from .json_unions import wraps as is_wrapping
from .scalars import Unfit, python_type, to_plain
from .shapes import Array, Enumeration, Fixed, Mapped, Record, Scalar, Shape, Union, name_of
from .values import each_item, each_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["json_reader", "parse_json"]

_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MILLIS: Final = 1_000
_NANOS: Final = 1_000


_parse: Final = json.JSONDecoder(parse_float=decimal.Decimal).decode


def parse_json(data: bytes) -> Any:
    """Parse JSON, with fractions as `Decimal`.

    Raises:
        SchemaMismatch: it is none.
    """
    try:
        return _parse(data.decode())
    except (ValueError, RecursionError) as error:  # also what is nested too deeply, or has too many digits
        raise SchemaMismatch(f"{len(data)} bytes are not JSON: {error}.", differences=()) from None


def json_reader(shape: Shape, known: dict[int, Any] | None = None) -> Callable[[Any], Any]:
    """Make what turns what `json` has read, with fractions as `Decimal`, into a value of a shape; it raises `Unfit`.

    What a field has no value for is its default, or None, because Java leaves nulls out.
    """
    return _MAKERS[type(shape)](shape, {} if known is None else known)


def _array_reader(array: Array, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert, make = json_reader(array.items, known), array.make
    return lambda values: make(each_of(_checked(values, (list,)), convert))


def _map_reader(mapped: Mapped, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert = json_reader(mapped.values, known)
    return lambda values: each_item(_checked(values, (dict,)), convert, str)


def _record_reader(record: Record, known: dict[int, Any]) -> Callable[[Any], Any]:
    if id(record) in known:
        return lambda value: known[id(record)](value)  # noqa: PLW0108  # made when it is called
    known[id(record)] = None
    kind = record.type
    fields = [(one, (one.name, *one.aliases), json_reader(one.shape, known)) for one in record.fields]

    def read(value: Any) -> Any:
        _checked(value, (dict,))
        arguments = {}
        for field, names, convert in fields:
            name = next((one for one in names if one in value), None)
            try:
                if name is not None:
                    arguments[field.parameter] = convert(value[name])
                else:
                    arguments[field.parameter] = _missing(field.shape, field.default)
            except Unfit as error:
                raise error.within(f".{field.name}") from None
        return kind(**arguments)

    known[id(record)] = read
    return read


def _missing(shape: Shape, default: Callable[[], Any] | None) -> Any:
    if default is not None:
        return default()
    if isinstance(shape, Union) and shape.is_nullable:
        return None
    raise Unfit("is missing, and has no default")


def _enumeration_reader(shape: Enumeration, _: Any) -> Callable[[Any], Any]:
    symbols = shape.symbols
    other = None if shape.default is None else symbols[shape.default]

    def read(value: Any) -> Any:
        found = symbols.get(_checked(value, (str,)), other)
        if found is None:
            raise Unfit(f"is {value!r}, which {shape.name} has not")
        return found

    return read


def _union_reader(union: Union, known: dict[int, Any]) -> Callable[[Any], Any]:
    by_family = {family_of(branch): json_reader(branch, known) for branch in union.branches}
    by_name = {short_name(one): json_reader(one, known) for one in union.branches if isinstance(one, Record | Mapped)}
    wraps = is_wrapping(union)

    def read(value: Any) -> Any:
        if wraps and isinstance(value, dict):
            if len(value) != 1:
                raise Unfit(f"has {len(value)} names, not one of {', '.join(by_name)}")
            ((name, value),) = value.items()
            if name not in by_name:
                raise Unfit(f"is of {name}, which is none of {', '.join(by_name)}")
            return by_name[name](value)
        for family in (json_family(value), "fraction", "text"):  # Jackson writes some times as numbers and arrays
            if family in by_family:
                return by_family[family](value)
        raise Unfit(f"is {value!r}, which is none of {', '.join(map(name_of, union.branches))}")

    return read


def _scalar_reader(scalar: Scalar, _: Any) -> Callable[[Any], Any]:
    kind = python_type(scalar)
    if kind is str:
        return lambda value: _checked(value, (str,))  # also half a surrogate pair, which cannot be written
    if kind in (bool, int, type(None)):
        return to_plain(scalar)
    read = _READERS[kind]
    if kind is dt.datetime and (scalar.logical or "").startswith("local"):
        read = _local_of

    def checked(value: Any) -> Any:
        try:
            return read(value)
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError):  # whatever stands there
            raise Unfit(f"is {value!r}, which is no {kind.__name__}") from None

    return checked


def _float_of(value: Any) -> float:
    if isinstance(value, str):
        return _SPECIAL[value] if value in _SPECIAL else float("no number")
    return float(value) if not isinstance(value, bool) else float("no number")


def _bytes_of(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def _point_of(value: Any) -> dt.datetime:
    if isinstance(value, str):
        point = dt.datetime.fromisoformat(value)
        if point.tzinfo is None:
            raise ValueError(value)
        return point
    micros = int(value * 1_000_000) if isinstance(value, decimal.Decimal) else value * _MILLIS
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _local_of(value: Any) -> dt.datetime:
    if isinstance(value, str):
        point = dt.datetime.fromisoformat(value)
        if point.tzinfo is not None:
            raise ValueError(value)
        return point
    return dt.datetime(*value[:6], *(one // _NANOS for one in value[6:]))  # noqa: DTZ001  # without a zone


def _date_of(value: Any) -> dt.date:
    return dt.date.fromisoformat(value) if isinstance(value, str) else dt.date(*value)


def _time_of(value: Any) -> dt.time:
    if isinstance(value, str):
        return dt.time.fromisoformat(value)
    return dt.time(*value[:3], *(one // _NANOS for one in value[3:]))


def _decimal_of(value: Any) -> decimal.Decimal:
    return decimal.Decimal(value)


_READERS: Final[dict[type[Any], Callable[[Any], Any]]] = {
    float: _float_of,
    bytes: _bytes_of,
    dt.datetime: _point_of,
    dt.date: _date_of,
    dt.time: _time_of,
    decimal.Decimal: _decimal_of,
    uuid.UUID: uuid.UUID,
}


def _checked(values: Any, types: tuple[type[Any], ...]) -> Any:
    if not isinstance(values, types):
        raise Unfit(f"is {type(values).__name__} {values!r}, not {types[0].__name__}")
    return values


_MAKERS: Final[dict[type[Any], Callable[[Any, dict[int, Any]], Callable[[Any], Any]]]] = {
    Scalar: _scalar_reader,
    Fixed: lambda *_: _bytes_of,
    Record: _record_reader,
    Union: _union_reader,
    Array: _array_reader,
    Mapped: _map_reader,
    Enumeration: _enumeration_reader,
}
