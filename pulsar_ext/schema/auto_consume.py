"""Messages of whatever schema; mirrors Java's `Schema.AUTO_CONSUME`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pulsar.schema

from pulsar_ext._native.schemas import SchemaInfo, SchemaType, text_of, version_of
from pulsar_ext.errors import SchemaMismatch

from .avro_definition import shape_of_definition
from .avro_model import AvroReader
from .comparison import SchemaText
from .generic_record import GenericRecord
from .json_reading import parse_json
from .key_value import inline_pair, separated_pair
from .primitives import PRIMITIVES
from .typed import TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_ext.admin import PulsarAdmin

    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.Schema

__all__ = ["AutoConsumeSchema"]


class AutoConsumeSchema(TypedSchema[Any], _Official):
    """Reads each message by the schema that it was written with: a `GenericRecord`, a `KeyValue`, or a plain value.

    Bytes are what a message is that does not say its schema, as for Java.
    """

    reads_null_values = True

    def __init__(self) -> None:
        self._record_cls = object
        self._client: Any = None
        self._admin_api: Any = None
        self._versions: dict[tuple[str, int], Callable[[Any], Any]] = {}

    def begin(self, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> None:
        """Know no version yet."""
        del reads
        self._admin_api, self._versions = admin_api, {}

    def schema_info(self) -> Any:
        """Give what the broker is told: nothing."""
        return SchemaInfo(SchemaType.BYTES, "BYTES", "")

    def cannot_read(self, _: str, __: Callable[[], tuple[str, str] | None], /) -> tuple[str, ...]:
        """Give nothing: it reads everything."""
        return ()

    def encode(self, obj: Any) -> bytes:
        """Refuse: what is sent has a schema of its own.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{type(obj).__name__} cannot be sent with AutoConsumeSchema, which only reads.")

    def decode(self, data: bytes) -> Any:
        """Give the bytes, of which nothing is known."""
        return data

    def decode_message(self, msg: Any) -> Any:
        """Read a message.

        Raises:
            SchemaMismatch: its bytes are not of the schema that it says.
            pulsar.PulsarException: the broker cannot be asked for that schema now.
            AdminRequired, AdminError: nor the admin API, which knows those of keys and values.
        """
        key = topic, version = msg.topic_name(), version_of(msg)
        if version < 0:
            return None if msg.has_null_value() else msg.data()
        read = self._versions.get(key)
        if read is None:
            read = self._versions[key] = self._reader_of(topic, version)
        return read(msg)

    def _reader_of(self, topic: str, version: int) -> Callable[[Any], Any]:
        found = SchemaText(*text_of(self._client.get_schema_info(topic, version)))
        if found.type != "KEY_VALUE":
            read = _reader(found, version)
            return lambda message: None if message.has_null_value() else read(message.data())
        stored = self._client.stored(self._admin_api, topic, version)
        return _key_value_reader(stored.data, stored.properties, version)

    def __str__(self) -> str:
        return "AutoConsumeSchema()"


def _key_value_reader(data: str, properties: Mapping[str, str], version: int) -> Callable[[Any], Any]:
    parts = json.loads(data)
    read_key, read_value = (
        _reader(SchemaText(properties.get(f"{name}.schema.type", "BYTES"), json.dumps(parts[name])), version)
        for name in ("key", "value")
    )
    separated = properties.get("kv.encoding.type") == "SEPARATED"

    def read(message: Any) -> Any:
        if separated:
            return separated_pair(message, read_key, read_value)
        return inline_pair(message, read_key, read_value)

    return read


def _reader(schema: SchemaText, version: int) -> Callable[[bytes], Any]:
    """Make what reads a payload of a schema."""
    text = schema.definition

    def record(fields: dict[str, Any]) -> Any:
        return GenericRecord(fields, schema.type, text, version) if isinstance(fields, dict) else fields

    match schema.type:
        case "AVRO":
            definition = json.loads(text)
            avro = AvroReader(definition, shape_of_definition(definition))
            return lambda data: record(avro.read(data))
        case "JSON":
            return lambda data: record(parse_json(data))
        case "PROTOBUF_NATIVE":
            from .protobuf_reading import fields_reader  # noqa: PLC0415  # protobuf may be missing

            protobuf = fields_reader(json.loads(text))
            return _said(lambda data: record(protobuf(data)), schema.type)
        case "STRING":
            return _said(bytes.decode, schema.type)
        case "BYTES" | "NONE":
            return bytes
    if schema.type in PRIMITIVES:
        return _said(PRIMITIVES[schema.type], schema.type)
    raise SchemaMismatch(f"Messages of a schema of type {schema.type} cannot be read.", differences=())


def _said(read: Callable[[bytes], Any], kind: str) -> Callable[[bytes], Any]:
    def careful(data: bytes) -> Any:
        try:
            return read(data)
        except Exception as error:  # whatever bytes make of it  # noqa: BLE001
            raise SchemaMismatch(f"{len(data)} bytes are no {kind}: {error}.", differences=()) from None

    return careful
