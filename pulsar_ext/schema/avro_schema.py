"""Avro values of dataclasses and pydantic models, with schema evolution, and of official `Record` classes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Generic, overload

import pulsar.schema

from pulsar_ext._native.records import raise_if_fields_lost, read_whole_avro, record_of_avro
from pulsar_ext._native.schemas import SchemaType, begin_schema, reset_writer_schemas, writer_definition
from pulsar_ext.errors import InvalidUse, MissingExtra, SchemaMismatch

from .avro_definition import Form, definition_of, shape_of_definition
from .models import is_model, shape_of_model
from .reading import reading_of
from .shapes import InvalidValue, Writer
from .typed import T, TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pulsar_ext._native.schemas import Encoded
    from pulsar_ext.admin import PulsarAdmin

    from .shapes import Definition, Shape

    _Official = object  # the official class is untyped
else:
    _Official = pulsar.schema.AvroSchema


def _fastavro() -> ModuleType:
    with MissingExtra.named("schemas", "Avro"):
        import fastavro  # noqa: PLC0415  # needed for Avro only
    return fastavro


class AvroReader(Generic[T]):
    """Reads values of one definition as a shape."""

    def __init__(self, definition: Definition, shape: Shape) -> None:
        self._avro = _fastavro()
        written = shape_of_definition(definition)
        self._plain = self._avro.parse_schema(definition_of(written, Form.READ))
        self._convert, self._differences = reading_of(written, shape)

    def read(self, data: bytes) -> T:
        """Return the value of Avro bytes."""
        buffer = io.BytesIO(data)
        try:
            plain = self._avro.schemaless_reader(buffer, self._plain, None, return_named_type=True)
            if remaining := len(data) - buffer.tell():
                raise ValueError(f"{remaining} bytes remain")  # noqa: TRY301  # handled with other invalid bytes
        except Exception as error:  # invalid bytes may raise anything  # noqa: BLE001
            raise SchemaMismatch(
                f"{len(data)} bytes are not a valid Avro value of their schema: {error!r}.", differences=()
            ) from None
        try:
            value: T = self._convert(plain)
        except InvalidValue as error:
            found = self._differences
            begin = "The message was written with another schema and" if found else "The message"
            raise SchemaMismatch(
                f"{begin} cannot be read: {error.path}: {error.why}.",
                differences=found or (f"{error.path}: {error.why}",),
            ) from None
        return value


class AvroModel(Generic[T]):
    """The codec of a dataclass or a pydantic model."""

    def __init__(self, model: type[T]) -> None:
        self.shape = shape_of_model(model)
        self.definition = definition_of(self.shape)
        self._avro = _fastavro()
        self._plain = self._avro.parse_schema(definition_of(self.shape, Form.PLAIN))
        self._write = Writer().of(self.shape)
        self._name = model.__name__
        self.decode = self.reader(self.definition).read
        """Return the value of bytes that this model has written."""

    def encode(self, value: T) -> bytes:
        """Return the Avro bytes of a value."""
        try:
            plain = self._write(value)
        except InvalidValue as error:
            raise InvalidUse(f"{self._name}{error.path} {error.why}. Nothing was sent.") from None
        buffer = io.BytesIO()
        self._avro.schemaless_writer(buffer, self._plain, plain)
        return buffer.getvalue()

    def reader(self, definition: Definition) -> AvroReader[T]:
        """Return a reader of values written with another definition."""
        return AvroReader(definition, self.shape)


class AvroSchema(TypedSchema[T], _Official):
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
        self.model: AvroModel[T] | None = None
        self._readers: dict[tuple[str, int], AvroReader[T]] = {}
        if not is_model(record_cls):
            if record_cls is not None:
                raise_if_fields_lost(record_cls)
            pulsar.schema.AvroSchema.__init__(self, record_cls, schema_definition)
            self.attach_client(None)
            return
        self.model = AvroModel(record_cls)
        begin_schema(self, record_cls, SchemaType.AVRO, self.model.definition)

    def begin(self, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Forget the known definitions of other writers."""
        del admin_api
        self._readers = {}
        reset_writer_schemas(self, None if self.model is None else self.model.definition)

    @property
    def is_compared(self) -> bool:
        """True if the schema is of a model."""
        return self.model is not None

    def encode(self, obj: T) -> bytes:
        """Return the Avro bytes of a value.

        Raises:
            InvalidUse: a part of a model's value does not match its annotation.
        """
        return super().encode(obj) if self.model is None else self.model.encode(obj)

    def decode(self, data: bytes) -> T:
        """Return the value of bytes that this schema has written."""
        if self.model is not None:
            return self.model.decode(data)
        if self._record_cls is None:
            return super().decode(data)
        return record_of_avro(self, lambda plain: plain.decode(data))  # type: ignore[no-any-return]  # of that class

    def decode_message(self, msg: Encoded) -> T:
        """Return the value of a message, read with the writer's schema version.

        Raises:
            pulsar.PulsarException: the broker did not return that version.
            SchemaMismatch: the model cannot read values of that version.
        """
        model, version = self.model, msg.int_schema_version()
        if model is None:
            if self._record_cls is None:
                return super().decode_message(msg)
            return record_of_avro(self, lambda plain: plain.decode_message(msg))  # type: ignore[no-any-return]
        if version < 0:  # no schema version
            return model.decode(msg.data())
        key = msg.topic_name(), version
        reader = self._readers.get(key)
        if reader is None:
            try:
                definition = writer_definition(self, msg)
            except RuntimeError as error:  # a schema of another type
                raise SchemaMismatch(f"{error}: the message cannot be read as Avro.", differences=()) from None
            reader = self._readers[key] = model.reader(definition)
        return reader.read(msg.data())

    def _decode_bytes(self, data: bytes, writer_schema: dict[str, object]) -> dict[str, object]:  # by official code
        return read_whole_avro(self, data, writer_schema)

    def __str__(self) -> str:
        name = "a definition" if self._record_cls is None else self._record_cls.__name__
        return f"AvroSchema({name})"
