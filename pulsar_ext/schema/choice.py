"""The schema that an application means by what it gives as `schema=`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pulsar.schema

from pulsar_ext._native.records import record_class_of
from pulsar_ext.errors import InvalidUse

from .avro_schema import AvroSchema
from .json_schema import JsonSchema
from .models import is_model
from .protobuf_schema import ProtobufNativeSchema
from .typed import TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin

__all__ = ["schema_of", "schema_of_class", "with_schema"]

_OFFICIAL: Final[dict[type[Any], type[Any]]] = {
    pulsar.schema.JsonSchema: JsonSchema,
    pulsar.schema.AvroSchema: AvroSchema,
}
"""What takes the place of an official schema of a `Record` class, which loses fields or cannot read its own values."""


def schema_of(given: Any, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> Any:
    """Give the schema object of one producer, consumer or reader.

    Args:
        given: a schema object; or a class: `bytes`, `str`, one that protobuf made, or a dataclass or a pydantic model,
            which is Avro.
        admin_api: gives the client's admin API.
        reads: whether it is a consumer or a reader.

    Raises:
        InvalidUse: it is a class that there is no schema of, or the model has a field that Avro has not, or an official
            `Record` class loses fields.
    """
    if isinstance(given, type):
        given = schema_of_class(given)
    elif (
        type(given) in _OFFICIAL and (record := record_class_of(given)) is not None
    ):  # as of `from pulsar.schema import *`
        given = _OFFICIAL[type(given)](record)
    return given.of_client(admin_api, reads=reads) if isinstance(given, TypedSchema) else given


def with_schema(given: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Give arguments by name with the schema among them, if there is one: it may be given by its place as well."""
    return named if given is None else {**named, "schema": given}


def schema_of_class(kind: type[Any]) -> Any:
    """Give the schema object of a class of values.

    Raises:
        InvalidUse: there is none, or the model has a field that Avro has not.
    """
    if kind is bytes:
        return pulsar.schema.BytesSchema()
    if kind is str:
        return pulsar.schema.StringSchema()
    if is_model(kind) or issubclass(kind, pulsar.schema.Record):
        return AvroSchema(kind)
    if hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString"):
        return ProtobufNativeSchema(kind)
    raise InvalidUse(
        f"There is no schema of {kind.__name__}: give a dataclass, a pydantic model, a protobuf message, str or bytes, "
        "or a schema object. Nothing was opened."
    )
