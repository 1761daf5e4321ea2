"""Values with a schema: JSON or Avro, decoded into columns by an Avro schema of the user or of the topic."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pulsar_ext.errors import AdminNotFound, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .avro_types import field_types, json_converter
from .connection import admin_of
from .planning import topics_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructField

    from .message_block import MessageBlock
    from .options import Settings

__all__ = ["ValueDecoder", "value_decoder"]


def value_decoder(settings: Settings) -> ValueDecoder | None:
    """Give the decoder of a read's values; None if option `valueFormat` is "bytes" or "string".

    Raises:
        InvalidUse: there is no schema, it has no fields, or topics have different ones.
    """
    kind = settings["valueFormat"]
    if kind in ("bytes", "string"):
        return None
    text = settings["valueSchema"]
    return ValueDecoder(kind, json.loads(text) if text else _registered(settings, kind), settings)


def _registered(settings: Settings, kind: str) -> Any:
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
    return json.loads(schemas[0])


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
        self._convert = json_converter(schema) if kind == "json" else None
        self._writers: dict[tuple[str, int], Any] = {}

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
            if self._convert is not None:
                row = json.loads(value)
                if not isinstance(row, dict):
                    raise TypeError("it is not a JSON object")  # noqa: TRY301  # reported like errors of the parser
                return self._convert(row)
            return self._avro(block, index, value)
        except (ValueError, TypeError, EOFError, IndexError, KeyError, StopIteration) as error:
            raise InvalidUse(
                f"The value of {block.inners[index].message_id()} on {block.topic} is not {self._kind} of this schema: "
                f"{error}. Read it with valueFormat=bytes."
            ) from None

    def _avro(self, block: MessageBlock, index: int, value: bytes) -> Mapping[str, Any]:
        import fastavro  # noqa: PLC0415  # only for Avro

        if not self._writers:
            self._writers["", -1] = fastavro.parse_schema(self._schema)
        reader = self._writers["", -1]
        version = block.inners[index].int_schema_version()
        writer = self._writer(block.topic, version, fastavro) if not self._settings["valueSchema"] else reader
        found: Any = fastavro.schemaless_reader(io.BytesIO(value), writer, reader)
        return found  # type: ignore[no-any-return]

    def _writer(self, topic: str, version: int, fastavro: Any) -> Any:
        """Give the schema that a message was written with: producers may change it, and messages have its version."""
        parent = str(TopicName.parse(topic).parent)
        known = self._writers.get((parent, version))
        if known is None:
            stored = admin_of(self._settings).schema(parent, None if version < 0 else version)
            known = self._writers[parent, version] = fastavro.parse_schema(json.loads(stored.data))
        return known
