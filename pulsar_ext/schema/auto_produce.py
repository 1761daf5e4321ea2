"""JSON, as `pulsar-ext cat` prints it, as bytes of a topic's schema; mirrors Java's `Schema.AUTO_PRODUCE_BYTES`."""

from __future__ import annotations

import base64
import decimal
import io
import json
from collections.abc import Callable
from typing import Final

from pulsar_ext._native.schemas import EncodedSchema, SchemaInfo, text_of
from pulsar_ext.errors import InvalidUse, SchemaMismatch

from . import shapes
from .avro_definition import shape_of_definition
from .avro_schema import fastavro
from .json_schema import JsonReader, JsonWriter
from .shapes import Convert, Field, InvalidValue

_RAW: Final = ("BYTES", "NONE")
_parse: Final = json.JSONDecoder(parse_float=decimal.Decimal).decode


def parse_value(text: str) -> object:
    """Return parsed JSON, with fractions as `Decimal`; raise `ValueError` if it is not JSON."""
    return _parse(text)


def number_of(value: decimal.Decimal) -> float | str:
    """Return the float that JSON writes with exactly this value, or text if there is none."""
    number = float(value)
    return number if decimal.Decimal(repr(number)) == value else str(value)


def _is_base64(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"base64"}


def _bytes(value: object) -> bytes:
    """Return the bytes of text, or of an object `{"base64": …}`, which stands for bytes that are not text."""
    if not _is_base64(value):
        return shapes.checked_text(value).encode()
    try:
        return base64.b64decode(shapes.checked(value, dict)["base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"is not valid base64 ({error})") from None


def _payload(value: object) -> bytes:
    """Return bytes, or any other JSON as text."""
    return _bytes(value) if isinstance(value, str) or _is_base64(value) else _json(value)


class _StrictReader(JsonReader):
    """Reader of records that rejects unknown fields, which would be lost."""

    def _record(self, record: shapes.Record) -> tuple[Convert, Callable[[Field, Convert], None]]:
        read, add = super()._record(record)
        known = {name for one in record.fields for name in (one.name, *one.aliases)}

        def checked(value: object) -> object:
            if unknown := shapes.checked(value, dict).keys() - known:
                raise InvalidValue(f"has unknown fields: {', '.join(sorted(unknown))}")
            return read(value)

        return checked, add


class _AvroReader(_StrictReader):
    def _bytes(self, value: object) -> bytes:
        return _bytes(value)


class AutoProduceSchema(EncodedSchema):
    """A version of a topic's schema, or none, for encoded bytes; `write()` encodes.

    Raises:
        SchemaMismatch: values of its type cannot be made of JSON.
    """

    def __init__(self, info: SchemaInfo, name: str) -> None:
        super().__init__(info, name)
        self._kind, definition = text_of(info)
        try:
            self._write = _writer(self._kind, definition)
        except InvalidValue as error:
            raise SchemaMismatch(f"{name} cannot be made of JSON: {error}.", differences=()) from None

    def write(self, value: object) -> bytes | None:
        """Return the bytes of parsed JSON, None for null; raise `InvalidUse` if it does not match the schema."""
        if value is None:
            return None
        try:
            return self._write(value)
        except InvalidValue as error:
            raise InvalidUse(f"value{error.path} {error.why}, by {self}") from None

    def write_line(self, line: bytes) -> bytes | None:
        """Return the bytes of a value that is alone on a line: bytes or text as it is, or JSON."""
        if self._kind in _RAW:
            return line
        return self.write(line.decode() if self._kind == "STRING" else parse_value(line.decode()))


def _writer(kind: str, definition: str) -> Callable[[object], bytes]:
    if kind in _RAW:
        return _payload
    match kind:
        case "STRING":
            return lambda value: shapes.checked_text(value).encode()
        case "JSON":
            return _json_writer(definition)
        case "AVRO":
            return _avro_writer(definition)
    raise InvalidValue(f"its type is {kind}")


def _json_writer(definition: str) -> Callable[[object], bytes]:
    check = _StrictReader().of(shape_of_definition(json.loads(definition)))

    def write(value: object) -> bytes:
        check(value)
        return _json(value)

    return write


def _avro_writer(definition: str) -> Callable[[object], bytes]:
    parsed, avro = json.loads(definition), fastavro()
    shape = shape_of_definition(parsed)
    schema, read = avro.parse_schema(parsed), _AvroReader().of(shape)
    JsonWriter().of(shape)  # raises if a union has branches that look alike in JSON

    def write(value: object) -> bytes:
        buffer, converted = io.BytesIO(), read(value)
        try:
            avro.schemaless_writer(buffer, schema, converted)
        except Exception as error:  # values out of range may raise anything  # noqa: BLE001
            raise InvalidValue(f"cannot be written: {error}") from None
        return buffer.getvalue()

    return write


def _json(value: object) -> bytes:
    return json.dumps(value, default=number_of, ensure_ascii=False, separators=(",", ":")).encode()
