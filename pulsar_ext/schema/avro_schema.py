"""Avro: of dataclasses and pydantic models, and as officially of `Record` classes and definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import pulsar.schema

from pulsar_ext._native.records import read_whole_avro, record_of_avro, refuse_lost_fields
from pulsar_ext._native.schemas import SchemaType, begin_schema, forget_writers, writer_definition
from pulsar_ext.errors import SchemaMismatch

from .avro_model import AvroModel, AvroReader
from .models import is_model
from .typed import T, TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.schemas import Encoded
    from pulsar_ext.admin import PulsarAdmin

__all__ = ["AvroSchema"]


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
