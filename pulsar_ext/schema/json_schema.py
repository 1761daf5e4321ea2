"""JSON values of dataclasses, pydantic models and official `Record` classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

import pulsar.schema

from pulsar_ext._native.records import raise_if_fields_lost, record_of_json
from pulsar_ext._native.schemas import SchemaType, begin_schema
from pulsar_ext.errors import InvalidUse, SchemaMismatch

from .avro_definition import definition_of
from .json_values import JsonReader, JsonWriter, Origin, origin_of, parse_json
from .models import is_model, shape_of_model
from .reading import bytes_on
from .shapes import PLAIN_BYTES, TEXT_BYTES, TEXT_OR_BASE64, InvalidText, InvalidValue, Record, Scalar
from .typed import T, TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.schemas import Encoded, SchemaText

    _Official = object  # the official class is untyped
else:
    _Official = pulsar.schema.JsonSchema

_write_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_write_lines = json.JSONEncoder(indent=1).encode
"""Writes JSON with line breaks, as the official Python client does; readers then treat bytes as text."""
_BYTES: Final = {"text": TEXT_BYTES, "base64": PLAIN_BYTES}


class JsonSchema(TypedSchema[T], _Official):
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
        self._shape: Record | None = None
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

    def _define(self, record_cls: type[T], bytes_as: Scalar) -> None:
        shape = self._shape = shape_of_model(record_cls, bytes_as)
        try:
            self._write = JsonWriter().of(shape)
        except InvalidValue as error:
            raise InvalidUse(f"{record_cls.__name__}{error.path} {error.why}. Nothing was opened.") from None
        self._to_text = _write_json if bytes_as is PLAIN_BYTES else _write_lines
        self._otherwise = JsonWriter().of(shape_of_model(record_cls)) if bytes_as is TEXT_OR_BASE64 else None
        self._readers: dict[Origin, Callable[[object], T]] = {}
        begin_schema(self, record_cls, SchemaType.JSON, definition_of(shape))

    def adapt_to_topic(self, topic_schema: Callable[[], SchemaText | None], /) -> None:
        """Choose how to write bytes, by the topic's last schema; it is queried only if the model has bytes."""
        if self._shape is None or self._has_fixed_bytes or '"bytes"' not in self.schema_info().schema():
            return
        self._define(self._record_cls, bytes_on(topic_schema()))

    @property
    def is_compared(self) -> bool:
        """True if the schema is of a model."""
        return self._shape is not None

    def encode(self, obj: T) -> bytes:
        """Return the JSON of a value.

        Raises:
            InvalidUse: a part of a model's value does not match its annotation, or bytes are not text where the
                official Python client reads them.
        """
        if self._shape is None:
            return super().encode(obj)
        try:
            try:
                return self._to_text(self._write(obj)).encode()
            except InvalidText:
                if self._otherwise is None:
                    raise
                return _write_json(self._otherwise(obj)).encode()
        except InvalidValue as error:
            raise InvalidUse(f"{self._record_cls.__name__}{error.path} {error.why}. Nothing was sent.") from None

    def decode(self, data: bytes) -> T:
        """Return the value of JSON. Missing fields get their defaults, and unknown fields are ignored.

        Raises:
            SchemaMismatch: it is not JSON, or a part of it does not match its annotation or is ambiguous, such as text
                that is the value of one enum member and the name of another.
        """
        return self._decode(data, has_schema_version=True)

    def decode_message(self, msg: Encoded) -> T:
        """Return the value of a message; without a schema version, bytes that may be base64 or text raise too."""
        return self._decode(msg.data(), has_schema_version=msg.int_schema_version() >= 0)

    def _decode(self, data: bytes, *, has_schema_version: bool) -> T:
        if self._shape is None:
            record: T = record_of_json(self._record_cls, data)
            return record
        name, parsed = self._record_cls.__name__, parse_json(data)
        origin = origin_of(data, has_schema_version=has_schema_version)
        read = self._readers.get(origin)
        if read is None:
            read = self._readers[origin] = JsonReader(origin).of(self._shape)
        try:
            return read(parsed)
        except InvalidValue as error:
            raise SchemaMismatch(
                f"The message cannot be read: {name}{error.path} {error.why}.",
                differences=(f"{name}{error.path}: {error.why}",),
            ) from None

    def __str__(self) -> str:
        return f"JsonSchema({self._record_cls.__name__})"
