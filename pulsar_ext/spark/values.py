"""Values with a schema: JSON or Avro, decoded into columns by an Avro schema of the user or of the topic."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_ext.errors import AdminNotFound, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .avro_types import field_types, plain
from .connection import admin_of
from .json_values import json_reader
from .planning import topics_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import StructField

    from .message_block import MessageBlock
    from .options import Settings

__all__ = ["ValueDecoder", "value_decoder", "with_value_schema"]

_UNREADABLE = (ValueError, TypeError, AttributeError, EOFError, LookupError, StopIteration, RecursionError)
"""What is raised by bytes that are not of a schema."""


def with_value_schema(settings: Settings) -> Settings:
    """Give the options with the schema that the topics have now, so that all tasks of a query read by the same one.

    Raises:
        InvalidUse: there is no schema, or topics have different ones.
    """
    kind = settings["valueFormat"]
    if kind in ("bytes", "string") or settings["valueSchema"]:
        return settings
    return settings.having("valueSchema", _registered(settings, kind))


def value_decoder(settings: Settings) -> ValueDecoder | None:
    """Give the decoder of a read's values; None if option `valueFormat` is "bytes" or "string".

    Raises:
        InvalidUse: the schema has no fields, or one with a type that Spark does not have.
    """
    kind = settings["valueFormat"]
    return None if kind in ("bytes", "string") else ValueDecoder(kind, json.loads(settings["valueSchema"]), settings)


def _registered(settings: Settings, kind: str) -> str:
    """Ask the broker for the schema of the topics."""
    admin = admin_of(settings)
    found: dict[str, str] = {}
    for topic in dict.fromkeys(str(TopicName.parse(name).parent) for name in topics_of(admin, settings)):
        try:
            schema = admin.schema(topic)
        except AdminNotFound:
            raise InvalidUse(f"{topic} has no schema: set option valueSchema to an Avro schema in JSON.") from None
        if schema.type.lower() != kind:
            raise InvalidUse(f"The schema of {topic} is {schema.type}, but option valueFormat is {kind}.")
        found[topic] = schema.data
    if not found:
        raise InvalidUse("None of the topics exists yet, so their schema is not known: set option valueSchema.")
    schemas = list(dict.fromkeys(found.values()))
    if len(schemas) > 1 and not settings["allowDifferentTopicSchemas"]:
        raise InvalidUse(
            f"The topics have {len(schemas)} different schemas: {', '.join(found)}. Set option valueSchema, or "
            "allowDifferentTopicSchemas=true to use the first topic's."
        )
    return schemas[0]


class ValueDecoder:
    """Decodes the values of a block into columns.

    Args:
        kind: "json" or "avro".
        schema: the Avro schema, as parsed JSON.
        settings: the options.

    Raises:
        InvalidUse: the schema has no fields, or one with a type that Spark does not have.
    """

    def __init__(self, kind: str, schema: Any, settings: Settings) -> None:
        self._kind = kind
        self._schema = schema
        self._settings = settings
        self.fields: list[StructField] = field_types(schema)
        self._read_json = json_reader(schema) if kind == "json" else None
        self._resolutions: dict[tuple[str, int], tuple[Any, Any]] = {}

    def columns(self, block: MessageBlock, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Give the wanted fields as Arrow arrays of these types; a null value has null in each of them.

        Raises:
            InvalidUse: a value does not fit the schema; the error names the message.
        """
        rows = [{} if value is None else self._row(block, index, value) for index, value in enumerate(block.values)]
        try:
            return {name: pa.array([row.get(name) for row in rows], kind) for name, kind in wanted.items()}
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidUse(f"A value on {block.topic} does not fit the schema: {error}.") from None

    def _row(self, block: MessageBlock, index: int, value: bytes) -> Mapping[str, Any]:
        try:
            return self._avro(block, index, value) if self._read_json is None else self._read_json(value)
        except _UNREADABLE as error:
            raise InvalidUse(
                f"The value of {block.inners[index].message_id()} on {block.topic} is not {self._kind} of this schema: "
                f"{error}. Read it with valueFormat=bytes."
            ) from None

    def _avro(self, block: MessageBlock, index: int, value: bytes) -> Mapping[str, Any]:
        import fastavro  # noqa: PLC0415  # only for Avro
        from fastavro.read import SchemaResolutionError  # noqa: PLC0415  # likewise

        key = block.topic, block.inners[index].int_schema_version()
        if key not in self._resolutions:
            self._resolutions[key] = self._resolution(*key, fastavro.parse_schema)
        try:
            found: Any = fastavro.schemaless_reader(io.BytesIO(value), *self._resolutions[key])
        except SchemaResolutionError:
            raise ValueError(f"it was written with version {key[1]}, which cannot be read as this one") from None
        return found  # type: ignore[no-any-return]

    def _resolution(self, topic: str, version: int, parse: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Give the schema that a message was written with, and the one it is read as.

        Producers may change the schema, and messages have the version of theirs.
        """
        schema, stored = plain(self._schema), self._stored(str(TopicName.parse(topic).parent), version)
        if stored is None:
            return parse(schema), parse(schema)
        # What is read as something of another name has to name that.
        aliases = [*schema.get("aliases", ()), stored["name"]]
        return parse(plain(stored)), parse({**schema, "aliases": aliases})

    def _stored(self, topic: str, version: int) -> Any:
        """Give a version of a topic's schema; None for a message of no version, or if only a person knows it.

        Raises:
            InvalidUse: it is gone, or is not an Avro schema, and option `valueSchema` was not given.
        """
        if version < 0:
            return None
        try:
            found = admin_of(self._settings).schema(topic, version)
        except AdminNotFound:
            found = None
        if found is not None and found.type.lower() == "avro":
            return json.loads(found.data)
        if "valueSchema" in self._settings.given:
            return None
        raise InvalidUse(f"its topic has no Avro schema of version {version}, with which it was written")
