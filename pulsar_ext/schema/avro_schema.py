"""Avro values of dataclasses and pydantic models, with schema evolution, and of official `Record` classes."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any, overload

import pulsar.schema

from pulsar_ext._native.records import raise_if_fields_lost, read_whole_avro, record_of_avro
from pulsar_ext._native.schemas import Encoded, SchemaType, begin_schema, reset_writer_schemas, writer_definition
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import InvalidUse, MissingExtra, SchemaMismatch

from .avro_definition import Form, definition_of, shape_of_definition
from .models import is_model, shape_of_model
from .reading import reading_of
from .shapes import Convert, Definition, InvalidValue, Record, Shape, Writer
from .typed import OfficialAvro, T, TypedSchema


def fastavro() -> ModuleType:
    """Return the package that reads and writes Avro; raise `MissingExtra` without it."""
    with MissingExtra.named("schemas", "Avro"):
        import fastavro  # noqa: PLC0415  # needed for Avro only
    return fastavro


def avro_reader(definition: Definition, shape: Shape) -> Convert:
    """Return a function that reads Avro bytes of a definition as values of a shape."""
    read_avro, written = fastavro().schemaless_reader, shape_of_definition(definition)
    plain = fastavro().parse_schema(definition_of(written, Form.READ))
    convert, differences = reading_of(written, shape)

    def read(data: bytes) -> object:
        buffer = io.BytesIO(data)
        try:
            value = read_avro(buffer, plain, None, return_named_type=True)
            if remaining := len(data) - buffer.tell():
                raise ValueError(f"{remaining} bytes remain")  # noqa: TRY301  # handled with other invalid bytes
        except Exception as error:  # invalid bytes may raise anything  # noqa: BLE001
            raise SchemaMismatch(
                f"{len(data)} bytes are not a valid Avro value of their schema: {error!r}.", differences=()
            ) from None
        try:
            return convert(value)
        except InvalidValue as error:
            begin = "The message was written with another schema and" if differences else "The message"
            raise SchemaMismatch(
                f"{begin} cannot be read: {error.path}: {error.why}.",
                differences=differences or (f"{error.path}: {error.why}",),
            ) from None

    return read


class AvroSchema(TypedSchema[T], OfficialAvro):
    """Avro values; mirrors Java's `Schema.AVRO`.

    Args:
        record_cls: a dataclass, a pydantic model, or an official `Record` class; None for dicts.
        schema_definition: for dicts, the Avro definition as parsed JSON.

    Raises:
        InvalidUse: a field has a type that Avro does not support, fastavro is not installed, or an official `Record`
            class loses fields.
    """

    @overload
    def __init__(self, record_cls: type[T], schema_definition: None = None) -> None: ...
    @overload
    def __init__(self: AvroSchema[dict[str, Any]], record_cls: None, schema_definition: dict[str, Any]) -> None: ...
    def __init__(self, record_cls: type[T] | None, schema_definition: dict[str, object] | None = None) -> None:
        self._shape: Record | None = None
        self.is_compared = is_model(record_cls)
        self._readers: dict[tuple[str, int], Callable[[bytes], T]] = {}
        if not is_model(record_cls):
            if record_cls is not None:
                raise_if_fields_lost(record_cls)
            pulsar.schema.AvroSchema.__init__(self, record_cls, schema_definition)
            self.attach_client(None)
            return
        self._shape = shape_of_model(record_cls)
        self._definition = definition_of(self._shape)
        self._plain = fastavro().parse_schema(definition_of(self._shape, Form.PLAIN))
        self._write, self._write_avro = Writer().of(self._shape), fastavro().schemaless_writer
        self._read_own = self.reader_of(self._definition)
        begin_schema(self, record_cls, SchemaType.AVRO, self._definition)

    def begin(self, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Forget the known definitions of other writers."""
        del admin_api
        self._readers = {}
        reset_writer_schemas(self, self._definition if self.is_compared else None)

    def encode(self, obj: T) -> bytes:
        """Return the Avro bytes of a value; raise `InvalidUse` if a part does not match its annotation."""
        if self._shape is None:
            return super().encode(obj)
        try:
            plain = self._write(obj)
        except InvalidValue as error:
            raise InvalidUse(f"{self._record_cls.__name__}{error.path} {error.why}. Nothing was sent.") from None
        buffer = io.BytesIO()
        self._write_avro(buffer, self._plain, plain)
        return buffer.getvalue()

    def reader_of(self, definition: Definition) -> Callable[[bytes], T]:
        """Return a function that reads bytes of a definition as values of this schema's model."""
        assert self._shape is not None  # noqa: S101  # of a model
        return avro_reader(definition, self._shape)

    def decode(self, data: bytes) -> T:
        """Return the value of bytes that this schema has written."""
        if self._shape is not None:
            return self._read_own(data)
        if self._record_cls is None:
            return super().decode(data)
        return record_of_avro(self, lambda plain: plain.decode(data))  # type: ignore[no-any-return]  # of that class

    def decode_message(self, msg: Encoded) -> T:
        """Return the value of a message by its schema version; raise `SchemaMismatch`, or the look-up's error."""
        version = msg.int_schema_version()
        if self._shape is None:
            if self._record_cls is None:
                return super().decode_message(msg)
            return record_of_avro(self, lambda plain: plain.decode_message(msg))  # type: ignore[no-any-return]
        if version < 0:  # no schema version
            return self._read_own(msg.data())
        key = msg.topic_name(), version
        reader = self._readers.get(key)
        if reader is None:
            try:
                definition = writer_definition(self, msg)
            except RuntimeError as error:  # a schema of another type
                raise SchemaMismatch(f"{error}: the message cannot be read as Avro.", differences=()) from None
            reader = self._readers[key] = self.reader_of(definition)
        return reader(msg.data())

    def _decode_bytes(self, data: bytes, writer_schema: dict[str, object]) -> dict[str, object]:  # by official code
        return read_whole_avro(self, data, writer_schema)

    def __str__(self) -> str:
        name = "a definition" if self._record_cls is None else self._record_cls.__name__
        return f"AvroSchema({name})"
