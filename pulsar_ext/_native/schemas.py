"""Decoding with the schema that a message was written with, and sending on what is encoded already."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, Protocol

import pulsar.schema
from _pulsar import SchemaInfo, SchemaType
from pulsar.schema import AvroSchema

from .results import UNREACHABLE

if TYPE_CHECKING:
    from pulsar.schema import Schema

__all__ = [
    "Encoded",
    "SchemaInfo",
    "SchemaType",
    "begin_schema",
    "forget_writers",
    "passing_bytes",
    "text_of",
    "value_of",
    "writer_definition",
]


_log = logging.getLogger("pulsar_ext.schema")


class Encoded(Protocol):
    """What decoding takes: a C++ message, or what was kept of one."""

    def data(self) -> bytes:
        """Give the bytes."""
        ...

    def topic_name(self) -> str:
        """Give the topic, or the partition, that the message is on."""
        ...

    def int_schema_version(self) -> int:
        """Give the version of the schema that it was written with; -1 if there is none."""
        ...


def value_of(schema: Schema, message: Encoded) -> Any:
    """Decode a message.

    Where the broker cannot be asked for the schema that an Avro message was written with, the official client takes the
    reader's in its place: fields in another order are exchanged without a word.

    Raises:
        pulsar.PulsarException: the broker cannot be asked for that schema now.
    """
    if isinstance(schema, AvroSchema):
        untyped: Any = schema
        try:
            untyped._get_writer_schema(message.topic_name(), message.int_schema_version())
        except UNREACHABLE:
            raise
        except Exception:  # noqa: BLE001, S110  # no Avro, or no such version: the official code logs that, and goes on
            pass
    return schema.decode_message(message)


def text_of(info: Any) -> tuple[str, str]:
    """Give the type and the definition of a `SchemaInfo`; none of keys and values, which is no text."""
    try:
        return info.schema_type().name, info.schema()
    except UnicodeDecodeError:
        return info.schema_type().name, ""


def begin_schema(schema: Any, record_class: Any, kind: SchemaType, definition: Any) -> None:
    """Make an official schema object one of a definition, without what its own constructor makes of a `Record`."""
    pulsar.schema.Schema.__init__(schema, record_class, kind, definition, kind.name)
    schema._client = None
    forget_writers(schema, definition)


def forget_writers(schema: Any, definition: Any) -> None:
    """Have an Avro schema know no definition that others wrote with."""
    schema._schema, schema._writer_schemas, schema._logger = definition, {}, _log


def writer_definition(schema: Any, message: Encoded) -> Any:
    """Give the Avro definition that a message was written with, which an Avro schema object asks the broker for once.

    Raises:
        pulsar.PulsarException: the broker cannot be asked now, or knows no such version.
        RuntimeError: it is no Avro.
    """
    return schema._get_writer_schema(message.topic_name(), message.int_schema_version())


def passing_bytes(schema: Schema) -> Schema:
    """Give a schema of the same type whose values are encoded already, as Java's `Schema.AUTO_PRODUCE_BYTES`."""
    passing: Any = copy.copy(schema)
    passing.encode = _as_it_is
    return passing


def _as_it_is(data: bytes) -> bytes:
    return data
