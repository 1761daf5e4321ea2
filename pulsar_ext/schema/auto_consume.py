"""Messages of any schema as generic records, primitives and Protobuf; mirrors Java's `Schema.AUTO_CONSUME`.

Primitives mirror `BooleanSchema`, `InstantSchema`, `LocalDateSchema` and so on. Instants are datetimes in UTC; local
dates and times have no time zone. Java has nanoseconds: a value that is not in whole microseconds is a `NanoDatetime`
or a `NanoTime`.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.schemas import SchemaText, text_of, version_of
from pulsar_ext.errors import SchemaMismatch

from .avro_definition import shape_of_definition
from .avro_schema import avro_reader
from .json_schema import parse_json
from .key_value import inline_pair, parts_of, separated_pair
from .typed import ByVersion, Official

if TYPE_CHECKING:
    from google.protobuf.message import Message


class GenericRecord(Mapping[str, Any]):
    """The fields of a record, and type, definition and version of its schema; mirrors Java's `GenericRecord`."""

    __slots__ = ("_fields", "definition", "schema_type", "schema_version")

    def __init__(self, fields: Mapping[str, object], schema_type: str, definition: str, schema_version: int) -> None:
        self._fields, self.schema_type = fields, schema_type
        self.definition, self.schema_version = definition, schema_version

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"GenericRecord({self._fields!r})"


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # naive, for local times; `tzinfo` is added for UTC
_EPOCH_DAY: Final = _EPOCH.toordinal()
_DAY_MILLIS: Final = 24 * 60 * 60 * 1000
_SECOND_NANOS: Final = 1_000_000_000


class _WithNanos:
    nanosecond = 0

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        """Return the arguments for copying and pickling, with the nanoseconds."""
        return (*super().__reduce_ex__(protocol), vars(self))


class NanoDatetime(_WithNanos, datetime):
    """A datetime with additional nanoseconds in `nanosecond`, which comparisons ignore."""


class NanoTime(_WithNanos, time):
    """A time with additional nanoseconds in `nanosecond`, which comparisons ignore."""


def _read_as(form: str, convert: Callable[..., object] = lambda number: number) -> Callable[[bytes], object]:
    unpack = struct.Struct(form).unpack
    return lambda data: convert(*unpack(data))


def _point(seconds: int, nanos: int = 0, zone: tzinfo | None = UTC) -> datetime:
    micros, rest = divmod(nanos, 1000)
    found = (_EPOCH + timedelta(seconds=seconds, microseconds=micros)).replace(tzinfo=zone)
    if rest:
        found = NanoDatetime.combine(found.date(), found.timetz())
        found.nanosecond = rest
    return found


def _point_of_millis(millis: int) -> datetime:
    return _point(millis // 1000, millis % 1000 * 1_000_000)


def _local_time(nanos: int) -> time:
    point = _local(0, nanos)
    if not isinstance(point, NanoDatetime):
        return point.time()
    found = NanoTime(point.hour, point.minute, point.second, point.microsecond)
    found.nanosecond = point.nanosecond
    return found


def _local(days: int, nanos: int) -> datetime:
    if not 0 <= nanos < _DAY_MILLIS * 1_000_000:
        raise ValueError(f"nanosecond of day out of range: {nanos}")
    return _point(days * 86_400 + nanos // _SECOND_NANOS, nanos % _SECOND_NANOS, None)


PRIMITIVES: Final[dict[str, Callable[[bytes], object]]] = {
    "INT8": _read_as(">b"),
    "INT16": _read_as(">h"),
    "INT32": _read_as(">i"),
    "INT64": _read_as(">q"),
    "FLOAT": _read_as(">f"),
    "DOUBLE": _read_as(">d"),
    "BOOLEAN": _read_as("?"),
    "DATE": _read_as(">q", _point_of_millis),
    "TIMESTAMP": _read_as(">q", _point_of_millis),
    "TIME": _read_as(">q", lambda millis: _point_of_millis(millis % _DAY_MILLIS).time()),
    "INSTANT": _read_as(">qi", _point),
    "LOCAL_DATE": _read_as(">q", lambda days: date.fromordinal(_EPOCH_DAY + days)),
    "LOCAL_TIME": _read_as(">q", _local_time),
    "LOCAL_DATE_TIME": _read_as(">qq", _local),
}
"""Readers of payloads, by schema type."""


def _fields_reader(definition: dict[str, str]) -> Callable[[bytes], dict[str, object]]:
    """Return a reader of a Protobuf message's fields, by Java's `ProtobufNativeSchemaData`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415  # only for Protobuf

    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(definition["fileDescriptorSet"]))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(definition["rootMessageTypeName"]))
    return lambda data: _fields_of(kind.FromString(data))


def _fields_of(message: Message) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = {key: _plain(item) for key, item in value.items()}
        elif hasattr(value, "append") or hasattr(value, "add"):
            found[field.name] = [_plain(item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _plain(value)
    return found


def _plain(value: object) -> object:
    return _fields_of(value) if hasattr(value, "DESCRIPTOR") else value


class AutoConsumeSchema(ByVersion, Official):
    """Reads each message by its writer's schema, as a `GenericRecord`, a `KeyValue` or a plain value.

    A message without a schema version is read as bytes, as in Java.
    """

    def __init__(self) -> None:
        self._record_cls = object
        self._versions = {}

    def cannot_read(self, _: str, __: object, /) -> tuple[str, ...]:
        """Return no differences: any schema can be read."""
        return ()

    def encode(self, obj: object) -> bytes:
        """Raise `TypeError`: this schema only reads."""
        raise TypeError(f"AutoConsumeSchema only reads, and cannot encode {type(obj).__name__}. Nothing was sent.")

    def decode(self, data: bytes) -> bytes:
        """Return the bytes: without a message there is no schema version."""
        return data

    def decode_message(self, msg: Any) -> object:
        """Return the value of a message; raise if it does not match its schema version, or that is not found."""
        key = topic, version = msg.topic_name(), version_of(msg)
        if version < 0:
            return None if msg.has_null_value() else msg.data()
        if key not in self._versions:
            self._versions[key] = self._reader_of(topic, version)
        return self._versions[key](msg)

    def _reader_of(self, topic: str, version: int) -> Callable[[InnerMessage], object]:
        found = text_of(self._client.get_schema_info(topic, version))
        if found.type != "KEY_VALUE":
            read = _reader(found, version)
            return lambda message: None if message.has_null_value() else read(message.data())
        stored = self._client.stored(self._admin_api_, topic, version)
        read_key, read_value = (_reader(part, version) for part in parts_of(stored))
        pair = separated_pair if stored.properties.get("kv.encoding.type") == "SEPARATED" else inline_pair
        return lambda message: pair(message, read_key, read_value)

    def __str__(self) -> str:
        return "AutoConsumeSchema()"


def _reader(schema: SchemaText, version: int) -> Callable[[bytes], object]:
    text = schema.definition

    def record(fields: object) -> object:
        return GenericRecord(fields, schema.type, text, version) if isinstance(fields, dict) else fields

    match schema.type:
        case "AVRO":
            definition = json.loads(text)
            avro = avro_reader(definition, shape_of_definition(definition))
            return lambda data: record(avro(data))
        case "JSON":
            return lambda data: record(parse_json(data))
        case "PROTOBUF_NATIVE":
            protobuf = _fields_reader(json.loads(text))
            return _checked_reader(lambda data: record(protobuf(data)), schema.type)
        case "STRING":
            return _checked_reader(bytes.decode, schema.type)
        case "BYTES" | "NONE":
            return bytes
    if schema.type in PRIMITIVES:
        return _checked_reader(PRIMITIVES[schema.type], schema.type)
    raise SchemaMismatch(f"Schema type {schema.type} is not supported by AutoConsumeSchema.", differences=())


def _checked_reader(read: Callable[[bytes], object], kind: str) -> Callable[[bytes], object]:
    def checked(data: bytes) -> object:
        try:
            return read(data)
        except Exception as error:  # invalid bytes may raise anything  # noqa: BLE001
            raise SchemaMismatch(
                f"{len(data)} bytes are not a valid {kind} payload: {error}.", differences=()
            ) from None

    return checked
