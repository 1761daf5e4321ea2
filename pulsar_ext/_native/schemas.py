"""Decoding with the writer's schema, and schemas for encoded values."""

from __future__ import annotations

import copy
import json
import logging
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

import _pulsar
import pulsar
import pulsar.schema
from pulsar.schema import AvroSchema, BytesSchema, Schema

from pulsar_ext.errors import InvalidUse, SchemaMismatch

from .c_api import TRIED
from .results import UNREACHABLE

SchemaInfo = _pulsar.SchemaInfo
SchemaType = _pulsar.SchemaType
LETTER_VERSION: Final = "PULSAR_EXT_SCHEMA_VERSION"
"""Property of a dead or retry letter whose schema the C++ client cannot send: its version on the letter's topic.

Such schemas are those of keys and values, numbers and times.
"""
_UNNAMED: Final = {
    5: "BOOLEAN",
    12: "DATE",
    13: "TIME",
    14: "TIMESTAMP",
    16: "INSTANT",
    17: "LOCAL_DATE",
    18: "LOCAL_TIME",
    19: "LOCAL_DATE_TIME",
}
"""Schema types that the binding has no names for, by their protocol numbers."""
_log = logging.getLogger("pulsar_ext.schema")


class Encoded(Protocol):
    """An encoded message: a C++ message, or a copy of its data."""

    def data(self) -> bytes: ...
    def has_null_value(self) -> bool: ...
    def topic_name(self) -> str: ...
    def int_schema_version(self) -> int: ...


def value_of(schema: Schema, message: Encoded) -> Any:
    """Decode a message; return None for one without a value, unless the schema reads the key as well.

    If the writer's schema cannot be looked up now, the official client uses the reader's instead, and silently swaps
    fields that are in another order. This function raises the broker's error.
    """
    if message.has_null_value() and not getattr(schema, "reads_null_values", False):
        return None
    if isinstance(schema, AvroSchema):
        prove_avro()
        try:
            schema._get_writer_schema(message.topic_name(), message.int_schema_version())
        except (*UNREACHABLE, SchemaMismatch):
            raise
        except Exception:  # noqa: BLE001, S110  # not Avro, or no such version: the official code logs it and continues
            pass
    return schema.decode_message(message)


class _Witness:
    """An Avro message of known content, which is also the client that knows its writer's schema."""

    has_null_value = bool

    def __init__(self, *fields: str) -> None:
        self.definition = {"type": "record", "name": "Known", "fields": [{"name": n, "type": "string"} for n in fields]}

    def data(self) -> bytes:
        return b"\x02x\x02y"

    def topic_name(self) -> str:
        return "topic"

    def int_schema_version(self) -> int:
        return 7

    def message_id(self) -> str:
        return "of known content"

    def get_schema_info(self, *_: object) -> SchemaInfo:
        return SchemaInfo(SchemaType.AVRO, "AVRO", json.dumps(self.definition))


@cache
def prove_avro() -> None:
    """Check that an official Avro schema object decodes a message with the writer's schema."""
    straight, crossed = _Witness("a", "b"), _Witness("b", "a")
    with suppress(Exception):  # any exception: the check failed
        schema, found = AvroSchema(None, straight.definition), []
        for one in (crossed, straight):  # of one version: the second lookup shows that the first was not cached
            schema = without_writers(schema)
            schema._client = one
            found += [writer_definition(schema, one)["fields"][0]["name"], schema.decode_message(one)]
        if found == ["b", {"a": "y", "b": "x"}, "a", {"a": "x", "b": "y"}]:
            return
    raise InvalidUse(
        f"pulsar-client {pulsar.__version__} decodes Avro differently from {TRIED}: it may swap fields of an earlier "
        f"schema version. The message was not decoded; data() has its bytes. Use pulsar-client {TRIED}."
    )


class SchemaText(NamedTuple):
    """A schema as the broker stores it: the name of its type, and its definition as text."""

    type: str
    definition: str


def text_of(info: SchemaInfo) -> SchemaText:
    """Return the type and definition of a `SchemaInfo`; the definition of a key-value schema is empty (not text)."""
    kind = info.schema_type()
    name = _UNNAMED.get(kind.value) or kind.name
    try:
        return SchemaText(name, info.schema())
    except UnicodeDecodeError:
        return SchemaText(name, "")


def begin_schema(schema: Schema, record_class: object, kind: SchemaType, definition: object) -> None:
    """Initialize an official schema object with a definition, without the constructor's handling of a `Record`."""
    pulsar.schema.Schema.__init__(schema, record_class, kind, definition, kind.name)
    schema._client = None
    reset_writer_schemas(schema, definition)


def reset_writer_schemas(schema: Schema, definition: object) -> None:
    """Clear an Avro schema's cached writer definitions, and set its own definition unless it is None."""
    schema._writer_schemas = {}
    if definition is not None:
        schema._schema, schema._logger = definition, _log


def without_writers(schema: Schema) -> Schema:
    other = copy.copy(schema)
    if isinstance(schema, AvroSchema):
        other._writer_schemas = {}
    return other


def writer_definition(schema: Schema, message: Encoded) -> dict[str, Any]:
    """Return the writer's Avro definition of a message, looked up once per version."""
    found: dict[str, Any] = schema._get_writer_schema(message.topic_name(), message.int_schema_version())
    return found


class EncodedSchema(BytesSchema):  # type: ignore[misc]  # the official client has no type hints
    """Schema whose values are already encoded, like Java's `Schema.AUTO_PRODUCE_BYTES`."""

    def __init__(self, info: SchemaInfo, name: str) -> None:
        super().__init__()
        self._schema_info, self._name = info, name

    def __str__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  # pyright takes `str` for a type
        return self._name


def version_of(message: _pulsar.Message) -> int:
    """Return the version of the writer's schema, of some letters by `LETTER_VERSION`; -1 without one."""
    version = message.int_schema_version()
    if version < 0 and (said := message.properties().get(LETTER_VERSION, "")).isdecimal():
        return int(said)
    return version
