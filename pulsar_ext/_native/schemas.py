"""Decoding with the schema that a message was written with, and sending on what is encoded already."""

from __future__ import annotations

import copy
import json
import logging
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import pulsar
import pulsar.schema
from _pulsar import SchemaInfo, SchemaType
from pulsar.schema import AvroSchema, BytesSchema

from pulsar_ext.errors import InvalidUse, SchemaMismatch

from .c_api import TRIED
from .results import UNREACHABLE

if TYPE_CHECKING:
    from pulsar.schema import Schema

__all__ = [
    "LETTER_VERSION",
    "Encoded",
    "PassingSchema",
    "SchemaInfo",
    "SchemaType",
    "begin_schema",
    "forget_writers",
    "known_avro",
    "text_of",
    "value_of",
    "version_of",
    "without_writers",
    "writer_definition",
]


LETTER_VERSION: Final = "PULSAR_EXT_SCHEMA_VERSION"
"""The property of a letter whose schema the C++ client cannot send: the version of it on the letter's own topic."""
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
"""The types of schemas that the binding has no names of, by their numbers in the protocol."""
_log = logging.getLogger("pulsar_ext.schema")


class Encoded(Protocol):
    """What decoding takes: a C++ message, or what was kept of one."""

    def data(self) -> bytes:
        """Give the bytes."""
        ...

    def has_null_value(self) -> bool:
        """Return whether the message was sent without a value."""
        ...

    def topic_name(self) -> str:
        """Give the topic, or the partition, that the message is on."""
        ...

    def int_schema_version(self) -> int:
        """Give the version of the schema that it was written with; -1 if there is none."""
        ...


def value_of(schema: Schema, message: Encoded) -> Any:
    """Decode a message; one without a value is None, but for schemas that read its key as well.

    Where the broker cannot be asked for the schema that an Avro message was written with, the official client takes the
    reader's in its place: fields in another order are exchanged without a word.

    Raises:
        pulsar.PulsarException: the broker cannot be asked for that schema now.
        SchemaMismatch: the client is connected to another cluster than the message's.
        InvalidUse: it is Avro, which this build of the official client reads in another way.
    """
    if message.has_null_value() and not getattr(schema, "reads_null_values", False):
        return None
    if isinstance(schema, AvroSchema):
        known_avro()
        untyped: Any = schema
        try:
            untyped._get_writer_schema(message.topic_name(), message.int_schema_version())
        except (*UNREACHABLE, SchemaMismatch):
            raise
        except Exception:  # noqa: BLE001, S110  # no Avro, or no such version: the official code logs that, and goes on
            pass
    return schema.decode_message(message)


class _Witness:
    """An Avro message of known content, and the client that knows the schema that it was written with."""

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

    def get_schema_info(self, *_: object) -> Any:
        return SchemaInfo(SchemaType.AVRO, "AVRO", json.dumps(self.definition))


@cache
def known_avro() -> None:
    """Prove that an official Avro schema object reads a message by the schema that it was written with.

    Raises:
        InvalidUse: this build of the official client does not, or not where it is expected to.
    """
    straight, crossed = _Witness("a", "b"), _Witness("b", "a")
    with suppress(Exception):  # whatever it is, it is not as expected
        schema, found = AvroSchema(None, straight.definition), []
        for one in (crossed, straight):  # of one version: the second is asked for, because the first is not kept
            schema = without_writers(schema)
            schema._client = one
            found += [writer_definition(schema, one)["fields"][0]["name"], schema.decode_message(one)]
        if found == ["b", {"a": "y", "b": "x"}, "a", {"a": "x", "b": "y"}]:
            return
    raise InvalidUse(
        f"pulsar-client {pulsar.__version__} reads Avro in another way than {TRIED}, which works: fields of an earlier "
        "version of the schema may be exchanged. The message was not decoded; data() has its bytes."
    )


def text_of(info: Any) -> tuple[str, str]:
    """Give the type and the definition of a `SchemaInfo`; none of keys and values, which is no text."""
    kind = info.schema_type()
    name = _UNNAMED.get(int(kind)) or str(kind.name)
    try:
        return name, info.schema()
    except UnicodeDecodeError:
        return name, ""


def begin_schema(schema: Any, record_class: Any, kind: SchemaType, definition: Any) -> None:
    """Make an official schema object one of a definition, without what its own constructor makes of a `Record`."""
    pulsar.schema.Schema.__init__(schema, record_class, kind, definition, kind.name)
    schema._client = None
    forget_writers(schema, definition)


def forget_writers(schema: Any, definition: Any) -> None:
    """Have an Avro schema know no definition that others wrote with, and its own if it is given."""
    schema._writer_schemas = {}
    if definition is not None:
        schema._schema, schema._logger = definition, _log


def without_writers(schema: Any) -> Any:
    """Return a copy of an official schema that knows no definition that others wrote with."""
    other = copy.copy(schema)
    if isinstance(schema, AvroSchema):
        other._writer_schemas = {}
    return other


def writer_definition(schema: Any, message: Encoded) -> Any:
    """Give the Avro definition that a message was written with, which an Avro schema object asks the broker for once.

    Raises:
        pulsar.PulsarException: the broker cannot be asked now, or knows no such version.
        RuntimeError: it is no Avro.
    """
    return schema._get_writer_schema(message.topic_name(), message.int_schema_version())


class PassingSchema(BytesSchema):  # type: ignore[misc]  # the official client ships no types
    """A schema whose values are encoded already, as Java's `Schema.AUTO_PRODUCE_BYTES`.

    Args:
        info: the schema as the broker knows it.
        name: what errors call it.
    """

    def __init__(self, info: Any, name: str) -> None:
        super().__init__()
        self._schema_info, self._name = info, name

    def __str__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  # pyright takes its text for a type
        return self._name


def version_of(message: Any) -> int:
    """Return the version of the schema that a message was written with; -1 if there is none.

    A property says it of a letter whose schema the C++ client cannot send: of keys and values, numbers and times.
    """
    version: int = message.int_schema_version()
    if version < 0 and (said := message.properties().get(LETTER_VERSION, "")).isdecimal():
        return int(said)
    return version
