"""JSON: of dataclasses and pydantic models, and as officially of `Record` classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

import pulsar.schema

from pulsar_ext._native.records import record_of_json, refuse_lost_fields
from pulsar_ext._native.schemas import SchemaType, begin_schema
from pulsar_ext.errors import InvalidUse, SchemaMismatch

from .avro_definition import definition_of
from .json_values import Origin, check_json_unions, json_reader, json_writer, origin_of, parse_json
from .models import is_model, shape_of_model
from .reading import SchemaText, bytes_on
from .shapes import PLAIN_BYTES, TEXT_BYTES, TEXT_OR_BASE64, NoText, Record, Scalar, Unfit
from .typed import T, TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.schemas import Encoded


_write_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_write_lines = json.JSONEncoder(indent=1).encode
"""As the official Python client writes it, by which readers know that bytes are text."""
_BYTES: Final = {"text": TEXT_BYTES, "base64": PLAIN_BYTES}


if TYPE_CHECKING:
    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.JsonSchema


class JsonSchema(TypedSchema[T], _Official):
    """JSON values; mirrors Java's `Schema.JSON`: the topic has an Avro definition of them.

    Bytes are written as text, as the official Python client does, on a topic whose schema is that client's; on a topic
    without a schema too, or in base64 if they are no text; elsewhere in base64, as Java does. Each is read.

    Args:
        record_cls: a dataclass or a pydantic model, or an official `Record` class.
        bytes_as: "text" or "base64" for what is written, whatever the topic's schema; None to go by that.

    Raises:
        InvalidUse: a field has a type that Avro has not, or a union of what looks alike in JSON; an official `Record`
            class loses fields; or bytes_as is another one, or is given with a `Record` class.
    """

    def __init__(self, record_cls: type[T], *, bytes_as: Literal["text", "base64"] | None = None) -> None:
        self._shape: Record | None = None
        if bytes_as not in (None, *_BYTES) or (bytes_as and not is_model(record_cls)):
            raise InvalidUse(
                f"bytes_as must be 'text', 'base64' or None, and None for a Record class, got {bytes_as!r}."
            )
        self._is_settled = bytes_as is not None
        if not is_model(record_cls):
            refuse_lost_fields(record_cls)
            official: Any = pulsar.schema.JsonSchema
            official.__init__(self, record_cls)
            return
        self._define(record_cls, _BYTES[bytes_as or "base64"])

    def _define(self, record_cls: type[T], bytes_as: Scalar) -> None:
        shape = self._shape = shape_of_model(record_cls, bytes_as)
        check_json_unions(shape)
        self._write, self._to_text = json_writer(shape), _write_json if bytes_as is PLAIN_BYTES else _write_lines
        self._otherwise: Callable[[Any], Any] | None = None
        if bytes_as is TEXT_OR_BASE64:
            self._otherwise = json_writer(shape_of_model(record_cls))
        self._readers: dict[Origin, Callable[[Any], T]] = {}
        begin_schema(self, record_cls, SchemaType.JSON, definition_of(shape))

    def settle(self, theirs: Callable[[], tuple[str, str] | None], /) -> None:
        """Write bytes as others read them on the topic that is opened, which is asked for if there are bytes."""
        if self._shape is None or self._is_settled or '"bytes"' not in self.schema_info().schema():
            return
        found = theirs()
        self._define(self._record_cls, bytes_on(None if found is None else SchemaText(*found)))

    @property
    def is_compared(self) -> bool:
        """Whether it is of a model."""
        return self._shape is not None

    def encode(self, obj: T) -> bytes:
        """Write a value.

        Raises:
            InvalidUse: something in a model's value is of another type than its annotation, or bytes are no text where
                the official Python client reads them.
        """
        if self._shape is None:
            return super().encode(obj)
        try:
            try:
                return self._to_text(self._write(obj)).encode()
            except NoText:
                if self._otherwise is None:
                    raise
                return _write_json(self._otherwise(obj)).encode()
        except Unfit as error:
            raise InvalidUse(f"{self._record_cls.__name__}{error.path} {error.why}. Nothing was sent.") from None

    def decode(self, data: bytes) -> T:
        """Read a value, with the defaults of fields that it has not; what the model does not know is left out.

        Raises:
            SchemaMismatch: it is not JSON, or something in it is of another type than its annotation, or may be one of
                two things, as an enum's text that is the value of one member and the name of another.
        """
        return self._decode(data, says_schema=True)

    def decode_message(self, msg: Encoded) -> T:
        """Read a message, as `decode()`; where it says no schema, bytes that may be base64 or text raise as well."""
        return self._decode(msg.data(), says_schema=msg.int_schema_version() >= 0)

    def _decode(self, data: bytes, *, says_schema: bool) -> T:
        if self._shape is None:
            return record_of_json(self._record_cls, data)  # type: ignore[no-any-return]  # of that class
        name, parsed = self._record_cls.__name__, parse_json(data)
        origin = origin_of(data, says_schema=says_schema)
        read = self._readers.get(origin)
        if read is None:
            read = self._readers[origin] = json_reader(self._shape, origin)
        try:
            return read(parsed)
        except Unfit as error:
            raise SchemaMismatch(
                f"It cannot be read: {name}{error.path} {error.why}.", differences=(f"{name}{error.path}: {error.why}",)
            ) from None

    def __str__(self) -> str:
        return f"JsonSchema({self._record_cls.__name__})"
