"""Decoding with the schema that a message was written with, and sending on what is encoded already."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Protocol

from pulsar.schema import AvroSchema

from .results import UNREACHABLE

if TYPE_CHECKING:
    from pulsar.schema import Schema

__all__ = ["Encoded", "passing_bytes", "value_of"]


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


def passing_bytes(schema: Schema) -> Schema:
    """Give a schema of the same type whose values are encoded already, as Java's `Schema.AUTO_PRODUCE_BYTES`."""
    passing: Any = copy.copy(schema)
    passing.encode = _as_it_is
    return passing


def _as_it_is(data: bytes) -> bytes:
    return data
