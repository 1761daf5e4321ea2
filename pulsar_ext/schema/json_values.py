"""Python values of a shape to JSON that Java's client reads, and JSON to values (pure).

This library writes times in ISO 8601, which Jackson reads, bytes as base64, and decimals as text. It reads that, and
what Java's and the official client write: Jackson writes an `Instant` as seconds with a fraction, a `Date` as
milliseconds, local times as arrays, decimals as numbers, and leaves nulls out. The official Python client writes bytes
as text, and of an enum the value; pydantic does so as well. What is text there may be base64 too, and be the name of
another member: `Origin` decides. A union does not say in JSON of which branch a value is; `is_wrapping` says how it is
found.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext._native.records import is_written_as
from pulsar_ext.errors import InvalidUse, SchemaMismatch

from .shapes import (
    TEXT_BYTES,
    TEXT_OR_BASE64,
    Array,
    Enumeration,
    Fixed,
    Mapped,
    NoText,
    Record,
    Scalar,
    Shape,
    Unfit,
    Union,
    checked_text,
    name_of,
    python_type,
    to_plain,
)
from .values import branch_of, each_item, each_of, enumeration_writer

if TYPE_CHECKING:
    from collections.abc import Callable


_FAMILIES: Final[dict[type[Any], str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "fraction",
    list: "array",
    dict: "object",
    decimal.Decimal: "fraction",
}
"""What a Python type is in JSON; text otherwise."""


def json_family(value: Any) -> str:
    """Give what a value is that `json` has read, with fractions as `Decimal`."""
    return _FAMILIES.get(type(value), "text")


def family_of(shape: Shape) -> str:
    """Give what the values of a shape are written as."""
    if isinstance(shape, Record | Mapped):
        return "object"
    if isinstance(shape, Array):
        return "array"
    kind = python_type(shape) if isinstance(shape, Scalar) else str
    return "text" if kind is decimal.Decimal else _FAMILIES.get(kind, "text")


def is_wrapping(union: Union) -> bool:
    """Whether an object of a union is written as Avro's JSON has it, `{"Name": {…}}`: there are several."""
    return sum(isinstance(one, Record | Mapped) for one in union.branches) > 1


def short_name(shape: Shape) -> str:
    """Give the name that such an object has."""
    return name_of(shape).rpartition(".")[2]


def tags_of(record: Record) -> dict[str, tuple[str, ...]]:
    """Return the fields that are a `Literal`, with the texts that each may have: pydantic's discriminators are."""
    return {one.name: one.shape.texts for one in record.fields if isinstance(one.shape, Scalar) and one.shape.texts}


def has_tags(value: dict[str, Any], tags: dict[str, tuple[str, ...]]) -> bool:
    """Return whether an object has all of these fields, and there is one, each with one of its texts."""
    return bool(tags) and all(value.get(name) in texts for name, texts in tags.items())


def check_json_unions(shape: Shape) -> None:
    """Refuse unions whose branches are the same in JSON, such as a time and text.

    Raises:
        InvalidUse: there is one.
    """
    _check(shape, "", set())


def _check(shape: Shape, path: str, seen: set[int]) -> None:
    match shape:
        case Union():
            families = [family_of(one) for one in shape.branches]
            twice = {one for one in families if families.count(one) > 1} - {"object"}
            if twice:
                both = [name_of(one) for one in shape.branches if family_of(one) in twice]
                raise InvalidUse(f"{path} is {' or '.join(both)}, which look alike in JSON. Nothing was opened.")
            for one in shape.branches:
                _check(one, path, seen)
        case Array():
            _check(shape.items, path, seen)
        case Mapped():
            _check(shape.values, path, seen)
        case Record() if id(shape) not in seen:
            seen.add(id(shape))
            for field in shape.fields:
                _check(field.shape, f"{path or shape.type.__name__}.{field.name}", seen)


OFFICIAL_BEGINNING: Final = b"{\n"
"""How the JSON of the official Python client begins, which writes it with lines."""
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


class Origin(enum.Enum):
    """Who wrote JSON."""

    PYTHON = "the official Python client: its JSON alone has lines"
    SCHEMA = "this library or Java's client: it says its schema, and has no lines"
    UNKNOWN = "it has no lines, and says no schema"


def origin_of(data: bytes, *, says_schema: bool) -> Origin:
    """Find out who wrote JSON.

    Args:
        data: the JSON.
        says_schema: whether its message says the schema that it was written with.
    """
    if data.startswith(OFFICIAL_BEGINNING):
        return Origin.PYTHON
    return Origin.SCHEMA if says_schema else Origin.UNKNOWN


@dataclass(frozen=True, slots=True)
class _Making:
    """What the readers of one walk share: whose JSON they read, and the records that have a reader."""

    origin: Origin
    known: dict[int, Any] = dataclasses.field(default_factory=dict)

    def reader(self, shape: Shape) -> Callable[[Any], Any]:
        return _MAKERS[type(shape)](shape, self)


def json_reader(shape: Shape, origin: Origin = Origin.SCHEMA) -> Callable[[Any], Any]:
    """Make what turns what `json` has read, with fractions as `Decimal`, into a value of a shape; it raises `Unfit`.

    What a field has no value for is its default, or None, because Java leaves nulls out.
    """
    return _Making(origin).reader(shape)


def _array_reader(array: Array, making: _Making) -> Callable[[Any], Any]:
    convert, make = making.reader(array.items), array.make
    return lambda values: make(each_of(_checked(values, (list,)), convert))


def _map_reader(mapped: Mapped, making: _Making) -> Callable[[Any], Any]:
    convert = making.reader(mapped.values)
    return lambda values: each_item(_checked(values, (dict,)), convert, str)


def _record_reader(record: Record, making: _Making) -> Callable[[Any], Any]:
    known = making.known
    if id(record) in known:
        return lambda value: known[id(record)](value)  # noqa: PLW0108  # made when it is called
    known[id(record)] = None
    kind = record.type
    fields = [(one, (one.name, *one.aliases), making.reader(one.shape)) for one in record.fields]

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


def _enumeration_reader(shape: Enumeration, making: _Making) -> Callable[[Any], Any]:
    symbols, is_by_name = shape.symbols, making.origin is Origin.SCHEMA
    other = None if shape.default is None else symbols[shape.default]

    def read(value: Any) -> Any:
        value = float(value) if isinstance(value, decimal.Decimal) else value
        named = symbols.get(value) if isinstance(value, str) else None
        if named is not None and is_by_name:
            return named
        found = [member for member in symbols.values() if is_written_as(member.value, value)]
        if named is not None and named not in found:
            found.append(named)
        if len(found) > 1:
            raise Unfit(f"is {value!r}, the value of {found[0]} and the name of {found[1]}: JSON does not say which")
        if not found and (other is None or not isinstance(value, str)):
            raise Unfit(f"is {value!r}, which {shape.name} has not")
        return found[0] if found else other

    return read


def _union_reader(union: Union, making: _Making) -> Callable[[Any], Any]:
    by_family = {family_of(branch): making.reader(branch) for branch in union.branches}
    by_name = {short_name(one): making.reader(one) for one in union.branches if isinstance(one, Record | Mapped)}
    tagged = [(tags_of(one), by_name[short_name(one)]) for one in union.branches if isinstance(one, Record)]
    wraps = is_wrapping(union)

    def read(value: Any) -> Any:
        if wraps and isinstance(value, dict):
            return _read_object(value, by_name, [read for tags, read in tagged if has_tags(value, tags)])
        for family in (json_family(value), "fraction", "text"):  # Jackson writes some times as numbers and arrays
            if family in by_family:
                return by_family[family](value)
        raise Unfit(f"is {value!r}, which is none of {', '.join(map(name_of, union.branches))}")

    return read


def _read_object(value: dict[str, Any], by_name: dict[str, Any], tagged: list[Callable[[Any], Any]]) -> Any:
    """Read an object of a union of several: by its name around it, or by the tags in it, as pydantic writes it."""
    is_named = len(value) == 1 and not by_name.keys().isdisjoint(value)
    if len(tagged) + is_named > 1:
        raise Unfit(f"may be several of {', '.join(by_name)}")
    if tagged:
        return tagged[0](value)
    if len(value) != 1:
        raise Unfit(f"has {len(value)} names, not one of {', '.join(by_name)}")
    ((name, inside),) = value.items()
    if name not in by_name:
        raise Unfit(f"is of {name}, which is none of {', '.join(by_name)}")
    return by_name[name](inside)


def _scalar_reader(scalar: Scalar, making: _Making) -> Callable[[Any], Any]:
    kind = python_type(scalar)
    if kind is bytes:
        return _bytes_reader(scalar, making)
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


def _bytes_reader(_: Any, making: _Making) -> Callable[[Any], bytes]:
    origin = making.origin

    def read(value: Any) -> bytes:
        text: str = _checked(value, (str,))
        decoded = None if origin is Origin.PYTHON else _base64_of(text)
        if decoded is None and origin is not Origin.SCHEMA:
            return checked_text(text).encode()
        if decoded is None:
            raise Unfit(f"is {value!r}, which is no bytes in base64")
        if decoded and origin is Origin.UNKNOWN:
            raise Unfit(f"is {text[:40]!r}: base64, or text, and its message says no schema that would tell")
        return decoded

    return read


def _base64_of(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


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


_MAKERS: Final[dict[type[Any], Callable[[Any, _Making], Callable[[Any], Any]]]] = {
    Scalar: _scalar_reader,
    Fixed: _bytes_reader,
    Record: _record_reader,
    Union: _union_reader,
    Array: _array_reader,
    Mapped: _map_reader,
    Enumeration: _enumeration_reader,
}


_SPECIAL_TEXTS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""As Jackson writes and reads them, which JSON has not."""


def json_writer(shape: Shape, known: dict[int, Any] | None = None) -> Callable[[Any], Any]:
    """Make what turns a value of a shape into what `json` writes; it raises `Unfit`."""
    return _WRITERS[type(shape)](shape, {} if known is None else known)


def _array_writer(array: Array, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert, types = json_writer(array.items, known), array.types
    return lambda values: each_of(_checked(values, types), convert)


def _map_writer(mapped: Mapped, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert = json_writer(mapped.values, known)
    return lambda values: each_item(_checked(values, (dict,)), convert)


def _record_writer(record: Record, known: dict[int, Any]) -> Callable[[Any], Any]:
    if id(record) in known:
        return lambda value: known[id(record)](value)  # noqa: PLW0108  # made when it is called
    known[id(record)] = None
    kind = record.type
    fields = [(one.name, one.attribute, json_writer(one.shape, known)) for one in record.fields]

    def write(value: Any) -> Any:
        _checked(value, (kind,))
        written = {}
        for name, attribute, convert in fields:
            try:
                written[name] = convert(getattr(value, attribute))
            except Unfit as error:
                raise error.within(f".{name}") from None
        return written

    known[id(record)] = write
    return write


def _union_writer(union: Union, known: dict[int, Any]) -> Callable[[Any], Any]:
    made = {id(branch): json_writer(branch, known) for branch in union.branches}
    families = {family_of(branch) for branch in union.branches}
    wraps = is_wrapping(union)

    def write(value: Any) -> Any:
        if value is None and union.is_nullable:
            return None
        branch = branch_of(union, value)
        written = made[id(branch)](value)
        if isinstance(value, float) and isinstance(written, str) and "text" in families:
            raise Unfit(f"is {value!r}, which is text in JSON, and would be read as another branch of the union")
        return {short_name(branch): written} if wraps and isinstance(branch, Record | Mapped) else written

    return write


def _scalar_writer(scalar: Scalar, _: Any) -> Callable[[Any], Any]:
    check, kind = to_plain(scalar), python_type(scalar)
    cut = "milliseconds" if (scalar.logical or "").endswith("-millis") else "auto"

    def text(value: Any) -> Any:
        check(value)
        if kind is dt.datetime:
            if value.tzinfo is None:
                return value.isoformat(timespec=cut)
            return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec=cut) + "Z"
        return value.isoformat(timespec=cut) if kind is dt.time else str(value)

    def number(value: Any) -> Any:
        value = check(value)
        return value if math.isfinite(value) else _SPECIAL_TEXTS[str(value)]

    if scalar in (TEXT_BYTES, TEXT_OR_BASE64):
        return lambda value: _text_of(check(value))
    if kind is bytes:
        return lambda value: _base64(check(value))
    if kind is float:
        return number
    return check if kind in (bool, int, str, type(None)) else text


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise NoText(
            f"is {value[:20]!r}, which is no text, as the official Python client reads bytes in JSON"
        ) from None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_WRITERS: Final[dict[type[Any], Callable[[Any, dict[int, Any]], Callable[[Any], Any]]]] = {
    Scalar: _scalar_writer,
    Fixed: lambda *_: _base64,
    Record: _record_writer,
    Union: _union_writer,
    Array: _array_writer,
    Mapped: _map_writer,
    Enumeration: enumeration_writer,
}
