"""JSON values of dataclasses, pydantic models and official `Record` classes.

Times are written in ISO 8601, which Jackson reads, bytes as base64, and decimals as text. Readers accept this and the
forms of Java's and the official Python client. Jackson writes an `Instant` as seconds with a fraction, a `Date` as
milliseconds, local times as arrays and decimals as numbers, and omits nulls. The official Python client and pydantic
write bytes as text, and the value of an enum. Such text may also be valid base64, or the name of another member;
`Origin` decides. JSON does not contain the branch of a union value; see `_is_wrapping`.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections.abc import Callable
from typing import Any, Final, Literal

import pulsar.schema

from pulsar_ext._native.records import is_written_as, raise_if_fields_lost, record_of_json
from pulsar_ext._native.schemas import Encoded, SchemaText, SchemaType, begin_schema
from pulsar_ext.errors import InvalidUse, SchemaMismatch

from . import shapes
from .avro_definition import definition_of
from .models import is_model, shape_of_model
from .reading import bytes_on
from .shapes import Convert, Field
from .typed import OfficialJson, T, TypedSchema

_FAMILIES: Final[dict[type[object], str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "fraction",
    list: "array",
    dict: "object",
    decimal.Decimal: "fraction",
}
"""JSON families of Python types; all other types are text."""


def _family_of(shape: shapes.Shape) -> str:
    if _is_object(shape):
        return "object"
    if isinstance(shape, shapes.Array):
        return "array"
    kind = shapes.python_type(shape) if isinstance(shape, shapes.Scalar) else str
    return "text" if kind is decimal.Decimal else _FAMILIES.get(kind, "text")


def _is_wrapping(union: shapes.Union) -> bool:
    """Return whether objects of a union are written as `{"Name": {…}}`, as in Avro's JSON: it has several."""
    return sum(map(_is_object, union.branches)) > 1


def _is_object(shape: shapes.Shape) -> bool:
    return isinstance(shape, shapes.Record | shapes.Mapped)


def _tags_of(record: shapes.Record) -> dict[str, tuple[str, ...]]:
    """Return the `Literal` fields with their allowed texts, such as pydantic's discriminators."""
    literals = ((one.name, one.shape.texts) for one in record.fields if isinstance(one.shape, shapes.Scalar))
    return {name: texts for name, texts in literals if texts}


OFFICIAL_BEGINNING: Final = b"{\n"
"""Start of the official Python client's JSON, which has line breaks."""
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MILLIS: Final = 1_000
_NANOS: Final = 1_000


_parse: Final = json.JSONDecoder(parse_float=decimal.Decimal).decode


def parse_json(data: bytes) -> object:
    """Return parsed JSON, with fractions as `Decimal`."""
    try:
        return _parse(data.decode())
    except (ValueError, RecursionError) as error:  # also raised for deep nesting or too many digits
        raise SchemaMismatch(f"{len(data)} bytes are not JSON: {error}.", differences=()) from None


class Origin(enum.Enum):
    """The writer of JSON."""

    PYTHON = "the official Python client: only its JSON has line breaks"
    SCHEMA = "this library or Java's client: the message has a schema version, and no line breaks"
    UNKNOWN = "no line breaks and no schema version"


class JsonReader(shapes.Writer):
    """Maker of functions from parsed JSON to values; a missing field gets its default or None, as Java omits nulls."""

    def __init__(self, origin: Origin = Origin.SCHEMA) -> None:
        super().__init__()
        self._origin = origin

    def _array(self, array: shapes.Array, convert: Convert) -> Convert:
        make = array.make
        return lambda values: make(shapes.convert_each(shapes.checked(values, list), convert))

    def _mapped(self, convert: Convert) -> Convert:
        return lambda values: shapes.convert_items(shapes.checked(values, dict), convert, str)

    def _record(self, record: shapes.Record) -> tuple[Convert, Callable[[Field, Convert], None]]:
        kind = record.type
        fields: list[tuple[Field, tuple[str, ...], Convert]] = []

        def read(value: object) -> object:
            given = shapes.checked(value, dict)
            arguments = {}
            for field, names, convert in fields:
                name = next((known_name for known_name in names if known_name in given), None)
                try:
                    if name is not None:
                        arguments[field.parameter] = convert(given[name])
                    else:
                        arguments[field.parameter] = _missing(field.shape, field.default)
                except shapes.InvalidValue as error:
                    raise error.within(f".{field.name}") from None
            return kind(**arguments)

        return read, lambda field, convert: fields.append((field, (field.name, *field.aliases), convert))

    def _enumeration(self, shape: shapes.Enumeration) -> Convert:
        symbols, is_by_name = shape.symbols, self._origin is Origin.SCHEMA
        other = None if shape.default is None else symbols[shape.default]

        def read(value: object) -> object:
            value = float(value) if isinstance(value, decimal.Decimal) else value
            named = symbols.get(value) if isinstance(value, str) else None
            if named is not None and is_by_name:
                return named
            found = [member for member in symbols.values() if is_written_as(member.value, value)]
            if named is not None and named not in found:
                found.append(named)
            if len(found) > 1:
                raise shapes.InvalidValue(
                    f"is {value!r}, the value of {found[0]} and the name of {found[1]}: ambiguous in JSON"
                )
            if not found and (other is None or not isinstance(value, str)):
                raise shapes.InvalidValue(f"is {value!r}, not a value of {shape.name}")
            return found[0] if found else other

        return read

    def _union(self, union: shapes.Union) -> Convert:
        by_family = {_family_of(branch): self.of(branch) for branch in union.branches}
        by_name = {shapes.short_name(one): self.of(one) for one in union.branches if _is_object(one)}
        records = [one for one in union.branches if isinstance(one, shapes.Record)]
        tagged = [(tags, by_name[shapes.short_name(one)]) for one in records if (tags := _tags_of(one))]
        wraps = _is_wrapping(union)

        def read(value: object) -> object:
            if wraps and isinstance(value, dict):
                fitting = [read for tags, read in tagged if all(value.get(name) in tags[name] for name in tags)]
                return _read_object(value, by_name, fitting)
            # Jackson writes some times as numbers or arrays.
            for family in (_FAMILIES.get(type(value), "text"), "fraction", "text"):
                if family in by_family:
                    return by_family[family](value)
            raise shapes.InvalidValue(f"is {value!r}, not one of {', '.join(map(shapes.name_of, union.branches))}")

        return read

    def _scalar(self, scalar: shapes.Scalar) -> Convert:
        kind = shapes.python_type(scalar)
        if kind is bytes:
            return self._bytes
        if kind is str:
            return lambda value: shapes.checked(value, str)  # accepts lone surrogates, which cannot be written
        if kind in (bool, int, type(None)):
            return shapes.to_plain(scalar)
        read = _READERS[kind]
        if kind is dt.datetime and (scalar.logical or "").startswith("local"):
            read = _local_of

        def convert(value: object) -> object:
            try:
                return read(value)
            except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError):  # all are of invalid values
                raise shapes.InvalidValue(f"is {value!r}, not a valid {kind.__name__}") from None

        return convert

    def _bytes(self, value: object) -> bytes:
        text, origin = shapes.checked(value, str), self._origin
        decoded = None if origin is Origin.PYTHON else _base64_of(text)
        if decoded is None and origin is not Origin.SCHEMA:
            return shapes.checked_text(text).encode()
        if decoded is None:
            raise shapes.InvalidValue(f"is {value!r}, not valid base64")
        if decoded and origin is Origin.UNKNOWN:
            raise shapes.InvalidValue(f"is {text[:40]!r}: base64, or text; without a schema version this is ambiguous")
        return decoded


def _missing(shape: shapes.Shape, default: Callable[[], object] | None) -> object:
    if default is not None:
        return default()
    if isinstance(shape, shapes.Union) and shape.is_nullable:
        return None
    raise shapes.InvalidValue("is missing, and has no default")


def _read_object(value: dict[str, object], by_name: dict[str, Convert], tagged: list[Convert]) -> object:
    """Read an object of a union with several objects, by its wrapping name or by pydantic's tags."""
    is_named = len(value) == 1 and not by_name.keys().isdisjoint(value)
    if len(tagged) + is_named > 1:
        raise shapes.InvalidValue(f"matches several of {', '.join(by_name)}")
    if tagged:
        return tagged[0](value)
    if len(value) != 1:
        raise shapes.InvalidValue(f"must have exactly one name of {', '.join(by_name)}, got {len(value)}")
    ((name, inside),) = value.items()
    if name not in by_name:
        raise shapes.InvalidValue(f"has the name {name}, not one of {', '.join(by_name)}")
    return by_name[name](inside)


def _float_of(value: str | int | decimal.Decimal) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    return _SPECIAL[value] if isinstance(value, str) else float(value)


def _base64_of(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _point_of(value: str | int | decimal.Decimal) -> dt.datetime:
    if isinstance(value, str):
        point = dt.datetime.fromisoformat(value)
        if point.tzinfo is None:
            raise ValueError(value)
        return point
    micros = int(value * 1_000_000) if isinstance(value, decimal.Decimal) else value * _MILLIS
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _of_parts(kind: Any, whole: int) -> Convert:
    """Return a reader of ISO 8601, or of an array whose numbers after the first `whole` ones are nanoseconds."""

    def read(value: str | list[int]) -> object:
        if isinstance(value, str):
            return kind.fromisoformat(value)
        return kind(*value[:whole], *(one // _NANOS for one in value[whole:]))

    return read


def _local_of(value: str | list[int]) -> dt.datetime:
    point: dt.datetime = _of_parts(dt.datetime, 6)(value)
    if point.tzinfo is not None:
        raise ValueError(value)
    return point


_READERS: Final[dict[type[object], Convert]] = {
    float: _float_of,
    dt.datetime: _point_of,
    dt.date: _of_parts(dt.date, 3),
    dt.time: _of_parts(dt.time, 3),
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: uuid.UUID,
}


_SPECIAL_TEXTS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Names of special floats in Jackson; JSON itself has none."""


class JsonWriter(shapes.Writer):
    """Maker of functions from values of a shape to what `json` writes; they raise `InvalidValue`."""

    def _union(self, union: shapes.Union) -> Convert:
        made = {id(branch): self.of(branch) for branch in union.branches}
        families = [_family_of(branch) for branch in union.branches]
        alike = [
            shapes.name_of(one) for one in union.branches if families.count(_family_of(one)) > 1 and not _is_object(one)
        ]
        if alike:  # such as a time and text
            raise shapes.InvalidValue(f"is {' or '.join(alike)}, which look alike in JSON")
        wraps = _is_wrapping(union)

        def write(value: object) -> object:
            if value is None and union.is_nullable:
                return None
            branch = shapes.branch_of(union, value)
            written = made[id(branch)](value)
            if isinstance(value, float) and isinstance(written, str) and "text" in families:
                raise shapes.InvalidValue(
                    f"is {value!r}, which is text in JSON, and would be read as another branch of the union"
                )
            return {shapes.short_name(branch): written} if wraps and _is_object(branch) else written

        return write

    def _scalar(self, scalar: shapes.Scalar) -> Convert:
        check, kind = shapes.to_plain(scalar), shapes.python_type(scalar)
        cut = "milliseconds" if (scalar.logical or "").endswith("-millis") else "auto"

        def text(value: object) -> str:
            check(value)
            if isinstance(value, dt.datetime):
                utc = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
                return utc.isoformat(timespec=cut) + ("" if value.tzinfo is None else "Z")
            return value.isoformat(timespec=cut) if isinstance(value, dt.time) else str(value)

        def number(value: float) -> float | str:
            value = check(value)
            return value if math.isfinite(value) else _SPECIAL_TEXTS[str(value)]

        if scalar in (shapes.TEXT_BYTES, shapes.TEXT_OR_BASE64):
            return lambda value: _text_of(check(value))
        if kind is bytes:
            return lambda value: base64.b64encode(check(value)).decode()
        if kind is float:
            return number
        return check if kind in (bool, int, str, type(None)) else text


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise shapes.InvalidText(
            f"is {value[:20]!r}, not UTF-8 text, which the official Python client requires of bytes in JSON"
        ) from None


_write_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_write_lines = json.JSONEncoder(indent=1).encode
"""Writes JSON with line breaks, as the official Python client does; readers then treat bytes as text."""
_BYTES: Final = {"text": shapes.TEXT_BYTES, "base64": shapes.PLAIN_BYTES}


class JsonSchema(TypedSchema[T], OfficialJson):
    """JSON values; mirrors Java's `Schema.JSON`: the schema of the topic is an Avro definition.

    Bytes are written as text, as the official Python client does, if the topic's schema is from that client. On a topic
    without a schema they are written as text if possible and otherwise as base64; on other topics as base64, as in
    Java. All forms are read.

    Args:
        record_cls: a dataclass, a pydantic model, or an official `Record` class.
        bytes_as: "text" or "base64" to fix how bytes are written; None to decide by the topic's schema.

    Raises:
        InvalidUse: a field has a type that Avro does not support, or a union whose branches look alike in JSON; an
            official `Record` class loses fields; or `bytes_as` is invalid, or set for a `Record` class.
    """

    def __init__(self, record_cls: type[T], *, bytes_as: Literal["text", "base64"] | None = None) -> None:
        self._shape: shapes.Record | None = None
        self.is_compared = is_model(record_cls)
        if bytes_as not in (None, *_BYTES) or (bytes_as and not is_model(record_cls)):
            raise InvalidUse(
                f"bytes_as must be 'text', 'base64' or None, and None for a Record class, got {bytes_as!r}."
            )
        self._has_fixed_bytes = bytes_as is not None
        if not is_model(record_cls):
            raise_if_fields_lost(record_cls)
            pulsar.schema.JsonSchema.__init__(self, record_cls)
            return
        self._define(record_cls, _BYTES[bytes_as or "base64"])

    def _define(self, record_cls: type[T], bytes_as: shapes.Scalar) -> None:
        shape = self._shape = shape_of_model(record_cls, bytes_as)
        try:
            self._write = JsonWriter().of(shape)
        except shapes.InvalidValue as error:
            raise InvalidUse(f"{record_cls.__name__}{error.path} {error.why}. Nothing was opened.") from None
        self._to_text = _write_json if bytes_as is shapes.PLAIN_BYTES else _write_lines
        self._otherwise = JsonWriter().of(shape_of_model(record_cls)) if bytes_as is shapes.TEXT_OR_BASE64 else None
        self._readers: dict[Origin, Callable[[object], T]] = {}
        begin_schema(self, record_cls, SchemaType.JSON, definition_of(shape))

    def adapt_to_topic(self, topic_schema: Callable[[], SchemaText | None], /) -> None:
        """Choose how to write bytes, by the topic's last schema; it is queried only if the model has bytes."""
        if self._shape is None or self._has_fixed_bytes or '"bytes"' not in self.schema_info().schema():
            return
        self._define(self._record_cls, bytes_on(topic_schema()))

    def encode(self, obj: T) -> bytes:
        """Return the JSON of a value; raise `InvalidUse` if a part of it does not match its annotation or the topic."""
        if self._shape is None:
            return super().encode(obj)
        try:
            try:
                return self._to_text(self._write(obj)).encode()
            except shapes.InvalidText:
                if self._otherwise is None:
                    raise
                return _write_json(self._otherwise(obj)).encode()
        except shapes.InvalidValue as error:
            raise InvalidUse(f"{self._record_cls.__name__}{error.path} {error.why}. Nothing was sent.") from None

    def decode(self, data: bytes) -> T:
        """Return the value of JSON, with missing fields' defaults; raise `SchemaMismatch` if invalid or ambiguous."""
        return self._decode(data, has_schema_version=True)

    def decode_message(self, msg: Encoded) -> T:
        """Return the value of a message; without a schema version, bytes that may be base64 or text raise too."""
        return self._decode(msg.data(), has_schema_version=msg.int_schema_version() >= 0)

    def _decode(self, data: bytes, *, has_schema_version: bool) -> T:
        if self._shape is None:
            record: T = record_of_json(self._record_cls, data)
            return record
        name, parsed = self._record_cls.__name__, parse_json(data)
        origin = Origin.SCHEMA if has_schema_version else Origin.UNKNOWN
        if data.startswith(OFFICIAL_BEGINNING):
            origin = Origin.PYTHON
        read = self._readers.get(origin)
        if read is None:
            read = self._readers[origin] = JsonReader(origin).of(self._shape)
        try:
            return read(parsed)
        except shapes.InvalidValue as error:
            raise SchemaMismatch(
                f"The message cannot be read: {name}{error.path} {error.why}.",
                differences=(f"{name}{error.path}: {error.why}",),
            ) from None

    def __str__(self) -> str:
        return f"JsonSchema({self._record_cls.__name__})"
