"""The schema object of a `schema=` argument, and the lookup of schema versions.

Versions are looked up only at the cluster of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import pulsar.schema

from pulsar_ext._native.records import record_class_of
from pulsar_ext._native.schemas import SchemaInfo
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.admin import SchemaInfo as StoredSchema
from pulsar_ext.errors import InvalidUse, SchemaMismatch
from pulsar_ext.ids.topic_name import TopicName

from .avro_schema import AvroSchema
from .json_schema import JsonSchema
from .models import is_model
from .typed import OfficialProtobuf, T, TypedSchema


class ProtobufNativeSchema(TypedSchema[T], OfficialProtobuf):
    """Values of a generated protobuf class; mirrors Java's `Schema.PROTOBUF_NATIVE`."""

    def __init__(self, record_cls: type[T]) -> None:
        pulsar.schema.ProtobufNativeSchema.__init__(self, record_cls)


Found = TypeVar("Found")


class VersionLookup:
    """Looks up schema versions at cluster `number` only; schema objects use it in place of the C++ client."""

    def __init__(self, ask: Callable[[str, int], SchemaInfo], connected_to: Callable[[], int], number: int) -> None:
        self._ask, self._connected_to, self._number = ask, connected_to, number

    def at(self, number: int) -> VersionLookup:
        """Return the lookup for messages of another cluster."""
        return VersionLookup(self._ask, self._connected_to, number)

    def get_schema_info(self, topic: str, version: int) -> SchemaInfo:
        """Return a version of a topic's schema from the C++ client."""
        return self._checked(partial(self._ask, topic, version), topic, version)

    def stored(self, admin_api: Callable[[], PulsarAdmin], topic: str, version: int) -> StoredSchema:
        """Return a version of a topic's schema from the admin API, which also has the parts of key-value schemas."""
        parent = str(TopicName.parse(topic).parent)
        return self._checked(lambda: admin_api().schema(parent, version), topic, version)

    def _checked(self, ask: Callable[[], Found], topic: str, version: int) -> Found:
        self._check_cluster(topic, version)
        found = ask()
        self._check_cluster(topic, version)  # the answer may be from another cluster
        return found

    def _check_cluster(self, topic: str, version: int) -> None:
        if self._connected_to() != self._number:
            raise SchemaMismatch(
                f"Version {version} of the schema of {topic} cannot be looked up: the client is connected to another "
                "cluster, whose versions are different. The message was not decoded; data() returns its bytes.",
                differences=(),
            )


_OFFICIAL: Final[dict[type[object], type[JsonSchema | AvroSchema]]] = {
    pulsar.schema.JsonSchema: JsonSchema,
    pulsar.schema.AvroSchema: AvroSchema,
}
"""Replacements for official schemas of a `Record` class, which lose fields or cannot read their own values."""


def schema_of(schema: object, admin_api: Callable[[], PulsarAdmin]) -> pulsar.schema.Schema:
    """Return the schema object of one producer, consumer or reader, for any value of `schema=`."""
    if isinstance(schema, type):
        schema = schema_of_class(schema)
    elif type(schema) in _OFFICIAL and (record := record_class_of(schema)) is not None:  # by `import *`
        schema = _OFFICIAL[type(schema)](record)
    return schema.of_client(admin_api) if isinstance(schema, TypedSchema) else schema


def schema_of_class(kind: type[object]) -> pulsar.schema.Schema:
    """Return the schema object of a class of values."""
    if kind is bytes:
        return pulsar.schema.BytesSchema()
    if kind is str:
        return pulsar.schema.StringSchema()
    if is_model(kind) or issubclass(kind, pulsar.schema.Record):
        return AvroSchema(kind)
    if hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString"):
        return ProtobufNativeSchema(kind)
    raise InvalidUse(
        f"{kind.__name__} has no schema: pass a dataclass, a pydantic model, a protobuf message, str or bytes, or a "
        "schema object. Nothing was opened."
    )
