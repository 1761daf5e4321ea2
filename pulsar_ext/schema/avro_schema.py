"""Avro of dataclasses and pydantic models, whatever version of the model wrote it, and of `Record` as officially."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Generic, overload

import pulsar.schema

from pulsar_ext._native.records import read_whole_avro, record_of_avro, refuse_lost_fields
from pulsar_ext._native.schemas import SchemaType, begin_schema, forget_writers, writer_definition
from pulsar_ext.errors import InvalidUse, MissingExtra, SchemaMismatch

from .avro_definition import definition_of, plain_definition, read_definition, shape_of_definition
from .models import is_model, shape_of_model
from .reading import Reading, reading_of
from .shapes import Shape, Unfit
from .typed import T, TypedSchema
from .values import writer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.schemas import Encoded
    from pulsar_ext.admin import PulsarAdmin


def _fastavro() -> Any:
    with MissingExtra.named("schemas", "Avro"):
        import fastavro  # noqa: PLC0415  # only who has Avro needs it
    return fastavro


class AvroReader:
    """Reads what one definition wrote as a shape.

    Args:
        definition: the Avro definition that it was written with, as parsed JSON.
        shape: what is read.
    """

    def __init__(self, definition: Any, shape: Shape) -> None:
        self._avro = _fastavro()
        written = shape_of_definition(definition)
        self._plain = self._avro.parse_schema(read_definition(written))
        self._reading: Reading = reading_of(written, shape)

    def read(self, data: bytes) -> Any:
        """Read a value.

        Raises:
            SchemaMismatch: it has something that cannot be read, or these are no such bytes.
        """
        buffer = io.BytesIO(data)
        try:
            plain = self._avro.schemaless_reader(buffer, self._plain, None, return_named_type=True)
            if left := len(data) - buffer.tell():
                raise ValueError(f"{left} bytes are left")  # noqa: TRY301  # as whatever else is wrong with them
        except Exception as error:  # whatever bytes make of it  # noqa: BLE001
            raise SchemaMismatch(
                f"{len(data)} bytes are not Avro of the schema that they are said to be of: {error!r}.", differences=()
            ) from None
        try:
            return self._reading.convert(plain)
        except Unfit as error:
            found = tuple(map(str, self._reading.differences))
            begin = "It was written with another schema, and" if found else "It"
            raise SchemaMismatch(
                f"{begin} cannot be read: {error.path}: {error.why}.",
                differences=found or (f"{error.path}: {error.why}",),
            ) from None


class AvroModel(Generic[T]):
    """The codec of a dataclass or a pydantic model.

    Raises:
        InvalidUse: it has something that Avro has not.
        MissingExtra: fastavro is not installed.
    """

    def __init__(self, model: type[T]) -> None:
        self.shape = shape_of_model(model)
        self.definition = definition_of(self.shape)
        self._avro = _fastavro()
        self._plain = self._avro.parse_schema(plain_definition(self.shape))
        self._write = writer_of(self.shape)
        self._name = model.__name__
        self._own = self.reader(self.definition)

    def encode(self, value: T) -> bytes:
        """Write a value.

        Raises:
            InvalidUse: it is no such model, or something in it is of another type than its annotation.
        """
        try:
            plain = self._write(value)
        except Unfit as error:
            raise InvalidUse(f"{self._name}{error.path} {error.why}. Nothing was sent.") from None
        buffer = io.BytesIO()
        self._avro.schemaless_writer(buffer, self._plain, plain)
        return buffer.getvalue()

    def decode(self, data: bytes) -> T:
        """Read a value that this model wrote."""
        return self._own.read(data)  # type: ignore[no-any-return]

    def reader(self, definition: Any) -> AvroReader:
        """Make what reads values that another definition wrote."""
        return AvroReader(definition, self.shape)


if TYPE_CHECKING:
    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.AvroSchema


class AvroSchema(TypedSchema[T], _Official):
    """Avro values; mirrors Java's `Schema.AVRO`.

    Args:
        record_cls: a dataclass or a pydantic model, or an official `Record` class; None for dicts.
        schema_definition: for dicts, the Avro definition, as parsed JSON.

    Raises:
        InvalidUse: a field of the model has a type that Avro has not, fastavro is not installed, or an official
            `Record` class loses fields.
    """

    @overload
    def __init__(self, record_cls: type[T], schema_definition: None = None) -> None: ...
    @overload
    def __init__(self: AvroSchema[dict[str, Any]], record_cls: None, schema_definition: dict[str, Any]) -> None: ...
    def __init__(self, record_cls: Any, schema_definition: Any = None) -> None:
        self.model: AvroModel[T] | None = None
        self._readers: dict[tuple[str, int], AvroReader] = {}
        if not is_model(record_cls):
            if record_cls is not None:
                refuse_lost_fields(record_cls)
            official: Any = pulsar.schema.AvroSchema
            official.__init__(self, record_cls, schema_definition)
            self.attach_client(None)
            return
        self.model = AvroModel(record_cls)
        begin_schema(self, record_cls, SchemaType.AVRO, self.model.definition)

    def begin(self, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> None:
        """Know no definition that others wrote with."""
        del admin_api, reads
        self._readers = {}
        forget_writers(self, None if self.model is None else self.model.definition)

    @property
    def is_compared(self) -> bool:
        """Whether it is of a model."""
        return self.model is not None

    def encode(self, obj: T) -> bytes:
        """Write a value.

        Raises:
            InvalidUse: something in a model's value is of another type than its annotation.
        """
        return super().encode(obj) if self.model is None else self.model.encode(obj)

    def decode(self, data: bytes) -> T:
        """Read a value that this very schema wrote."""
        if self.model is not None:
            return self.model.decode(data)
        if self._record_cls is None:
            return super().decode(data)
        return record_of_avro(self, lambda plain: plain.decode(data))  # type: ignore[no-any-return]  # of that class

    def decode_message(self, msg: Encoded) -> T:
        """Read a message with the version of the schema that it was written with.

        Raises:
            pulsar.PulsarException: the broker cannot be asked for that version now.
            SchemaMismatch: the model cannot read what that version wrote.
        """
        model, version = self.model, msg.int_schema_version()
        if model is None:
            if self._record_cls is None:
                return super().decode_message(msg)
            return record_of_avro(self, lambda plain: plain.decode_message(msg))  # type: ignore[no-any-return]
        if version < 0:  # it says nothing of its schema
            return model.decode(msg.data())
        key = msg.topic_name(), version
        reader = self._readers.get(key)
        if reader is None:
            try:
                definition = writer_definition(self, msg)
            except RuntimeError as error:  # another type of schema
                raise SchemaMismatch(f"{error}: it cannot be read as Avro.", differences=()) from None
            reader = self._readers[key] = model.reader(definition)
        return reader.read(msg.data())  # type: ignore[no-any-return]

    def _decode_bytes(self, data: bytes, writer_schema: dict[str, Any]) -> dict[str, Any]:  # official code calls it
        return read_whole_avro(self, data, writer_schema)

    def __str__(self) -> str:
        name = "a definition" if self._record_cls is None else self._record_cls.__name__
        return f"AvroSchema({name})"
