"""JSON: of dataclasses and pydantic models, and as officially of `Record` classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pulsar.schema

from pulsar_ext._native.records import record_of_json, refuse_lost_fields
from pulsar_ext._native.schemas import SchemaType, begin_schema
from pulsar_ext.errors import InvalidUse, SchemaMismatch

from .avro_definition import definition_of
from .json_reading import json_reader, parse_json
from .json_unions import check_json_unions
from .json_writing import json_writer
from .models import is_model, shape_of_model
from .scalars import Unfit
from .typed import T, TypedSchema

if TYPE_CHECKING:
    from .shapes import Record

__all__ = ["JsonSchema"]


_write_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


if TYPE_CHECKING:
    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.JsonSchema


class JsonSchema(TypedSchema[T], _Official):
    """JSON values; mirrors Java's `Schema.JSON`: the topic has an Avro definition of them.

    Args:
        record_cls: a dataclass or a pydantic model, or an official `Record` class.

    Raises:
        InvalidUse: a field has a type that Avro has not, or a union of what looks alike in JSON; or an official
            `Record` class loses fields.
    """

    def __init__(self, record_cls: type[T]) -> None:
        self._shape: Record | None = None
        if not is_model(record_cls):
            refuse_lost_fields(record_cls)
            official: Any = pulsar.schema.JsonSchema
            official.__init__(self, record_cls)
            return
        self._shape = shape_of_model(record_cls)
        check_json_unions(self._shape)
        self._write, self._read = json_writer(self._shape), json_reader(self._shape)
        begin_schema(self, record_cls, SchemaType.JSON, definition_of(self._shape))

    @property
    def is_compared(self) -> bool:
        """Whether it is of a model."""
        return self._shape is not None

    def encode(self, obj: T) -> bytes:
        """Write a value.

        Raises:
            InvalidUse: something in a model's value is of another type than its annotation.
        """
        if self._shape is None:
            return super().encode(obj)
        try:
            written = self._write(obj)
        except Unfit as error:
            raise InvalidUse(f"{self._record_cls.__name__}{error.path} {error.why}. Nothing was sent.") from None
        return _write_json(written).encode()

    def decode(self, data: bytes) -> T:
        """Read a value, with the defaults of fields that it has not; what the model does not know is left out.

        Raises:
            SchemaMismatch: it is not JSON, or something in it is of another type than its annotation; or the text of an
                enum in a `Record` is the value of one member and the name of another.
        """
        if self._shape is None:
            return record_of_json(self._record_cls, data)  # type: ignore[no-any-return]  # of that class
        name, parsed = self._record_cls.__name__, parse_json(data)
        try:
            return self._read(parsed)  # type: ignore[no-any-return]
        except Unfit as error:
            raise SchemaMismatch(
                f"It cannot be read: {name}{error.path} {error.why}.", differences=(f"{name}{error.path}: {error.why}",)
            ) from None

    def __str__(self) -> str:
        return f"JsonSchema({self._record_cls.__name__})"
