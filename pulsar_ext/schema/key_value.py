"""Key-value messages, with a schema each for key and value; mirrors Java's `KeyValueSchema`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import pulsar.schema

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.schemas import SchemaText, text_of, version_of
from pulsar_ext.admin import SchemaInfo as StoredSchema
from pulsar_ext.errors import AdminConflict, AdminNotFound, InvalidUse, SchemaMismatch

from .avro_schema import AvroSchema
from .choice import schema_of_class
from .reading import cannot_read
from .typed import ByVersion, Official, TypedSchema

_Decode = Callable[[bytes], object]
_Pair: TypeAlias = "KeyValue[Any, Any]"

K = TypeVar("K")
V = TypeVar("V")

_LENGTH_BYTES = 4
_NO_LENGTH = -1
"""The length that is written for None."""


class KeyValue(NamedTuple, Generic[K, V]):
    """A key and a value; mirrors Java's `KeyValue`."""

    key: K
    value: V


class KeyValueEncoding(Enum):
    """The place of the key; mirrors Java's `KeyValueEncodingType`."""

    INLINE = "INLINE"
    """In the payload, before the value."""
    SEPARATED = "SEPARATED"
    """In the message key, which routes and compacts the message; the payload is the value only."""


class KeyValueSchema(ByVersion[KeyValue[K, V]], Official):
    """Keys and values; mirrors Java's `Schema.KeyValue`.

    A producer uploads the schema over the admin API, because the C++ client cannot register its parts. Its messages
    have no schema version, so only consumers and readers may use Avro parts.

    Args:
        key: the schema of keys, as accepted by `schema=`.
        value: the schema of values.
        encoding: the place of the key.
    """

    def __init__(
        self,
        key: type[K] | TypedSchema[K],
        value: type[V] | TypedSchema[V],
        encoding: KeyValueEncoding = KeyValueEncoding.INLINE,
    ) -> None:
        self.key, self.value, self.encoding = _part(key), _part(value), KeyValueEncoding(encoding)
        self._record_cls = KeyValue
        self._evolves = any(isinstance(part, AvroSchema) and part.is_compared for part in (self.key, self.value))
        self._versions = {}

    def register(self, topic: str) -> None:
        """Upload this schema, with its parts, to a topic; raise if a part is Avro, or if the broker rejects it."""
        if any(isinstance(part, pulsar.schema.AvroSchema) for part in (self.key, self.value)):
            raise InvalidUse(
                f"{self} has an Avro part, whose messages need a schema version, which the C++ client cannot set for "
                "key-value messages: use JsonSchema(…) for both parts to send. Nothing was opened."
            )
        data = {"key": _definition(self.key), "value": _definition(self.value)}
        stored = self._stored(topic)
        if stored is not None and (found := self._type_differences(stored)):  # the broker may consider them equal
            raise SchemaMismatch(
                f"{self} does not match the schema of {topic}: {'; '.join(found)}. Nothing was opened.",
                differences=found,
            )
        try:
            self._admin_api_().upload_schema(topic, "KEY_VALUE", json.dumps(data), self.properties())
        except AdminConflict as error:
            found = self.cannot_read(topic)
            raise SchemaMismatch(
                f"The broker rejected {self} for {topic}: {error}. The differences: {'; '.join(found)}. Nothing "
                "was opened.",
                differences=found,
            ) from None

    def properties(self) -> dict[str, str]:
        """Return the properties that describe the parts, as Java's client writes them."""
        found = {"kv.encoding.type": self.encoding.value}
        for name, ours in self._parts():
            found |= {f"{name}.schema.name": "", f"{name}.schema.type": ours.type, f"{name}.schema.properties": "{}"}
        return found

    def _parts(self) -> Iterator[tuple[str, SchemaText]]:
        for name, part in (("key", self.key), ("value", self.value)):
            yield name, text_of(part.schema_info())

    def cannot_read(self, topic: str, _: object = None, /) -> tuple[str, ...]:
        """Return the differences that prevent this schema from reading the topic's last schema."""
        found = self._stored(topic)
        if found is None:
            return ()
        if type_differences := self._type_differences(found):
            return type_differences
        pairs = zip(self._parts(), parts_of(found), strict=True)
        return tuple(f"{name}: {one}" for (name, ours), theirs in pairs for one in cannot_read(ours, theirs))

    def _stored(self, topic: str) -> StoredSchema | None:
        try:
            return self._admin_api_().schema(topic)
        except AdminNotFound:
            return None

    def _type_differences(self, stored: StoredSchema) -> tuple[str, ...]:
        """Return differences to a topic's schema in its type, its encoding or the types of its parts."""
        if stored.type != "KEY_VALUE":
            return (f"the topic has a schema of type {stored.type}, this one is KEY_VALUE",)
        encoding = stored.properties.get("kv.encoding.type", "INLINE")
        if encoding != self.encoding.value:
            return (f"the topic's keys are {encoding}, this schema's are {self.encoding.value}",)
        return tuple(
            f"{name}: the topic has a schema of type {theirs.type}, this one is {ours.type}"
            for (name, ours), theirs in zip(self._parts(), parts_of(stored), strict=True)
            if theirs.type != ours.type
        )

    def encode(self, obj: KeyValue[K, V]) -> bytes:
        """Return the payload; a key or a value of None has no bytes, as in Java's client."""
        key, value = obj
        written: bytes | None = None if value is None else self.value.encode(value)
        if self.encoding is KeyValueEncoding.SEPARATED:
            return written or b""
        return with_length(None if key is None else self.key.encode(key)) + with_length(written)

    def decode(self, data: bytes) -> KeyValue[K, V]:
        """Return the pair in a payload that contains its key."""
        return _pair(data, self.key.decode, self.value.decode)

    def decode_message(self, msg: Any) -> KeyValue[K, V] | None:  # type: ignore[override]  # None for no value
        """Return the pair of a message by its schema version; a part or an INLINE message without a value is None."""
        pair = inline_pair if self.encoding is KeyValueEncoding.INLINE else separated_pair
        return pair(msg, *self._readers(msg))

    def _readers(self, msg: InnerMessage) -> tuple[_Decode, _Decode]:
        key = topic, version = msg.topic_name(), version_of(msg)
        if version < 0 or not self._evolves or self._client is None:
            return self.key.decode, self.value.decode
        if key not in self._versions:
            stored = parts_of(self._client.stored(self._admin_api_, topic, version))
            self._versions[key] = tuple(map(_reader, (self.key, self.value), stored))
        read_key, read_value = self._versions[key]
        return read_key, read_value

    def __str__(self) -> str:
        return f"KeyValueSchema({self.key}, {self.value}, {self.encoding.name})"


def separated_pair(msg: InnerMessage, read_key: _Decode, read_value: _Decode) -> _Pair:
    """Return the pair of a message with a separated key; the value is None if the message has none."""
    value = None if msg.has_null_value() else read_value(msg.data())
    return KeyValue(read_key(key_bytes(msg.partition_key())), value)


def inline_pair(msg: InnerMessage, read_key: _Decode, read_value: _Decode) -> _Pair | None:
    """Return the pair of a message with the key in its payload; None if it has no payload."""
    return None if msg.has_null_value() else _pair(msg.data(), read_key, read_value)


def _pair(data: bytes, read_key: _Decode, read_value: _Decode) -> _Pair:
    key, value = split_inline(data)
    return KeyValue(None if key is None else read_key(key), None if value is None else read_value(value))


def key_bytes(text: str) -> bytes:
    """Return the bytes of a separated key: base64 as written by Java's client and this one, otherwise UTF-8 text."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()


def split_inline(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return key and value of a payload: each is a length, -1 for None, and bytes, as in Java's `KeyValue.decode`."""
    parts: list[bytes | None] = []
    begin = 0
    for _ in range(2):
        start = begin + _LENGTH_BYTES
        size = int.from_bytes(data[begin:start], "big", signed=True)
        begin = start + max(size, 0)
        if size < _NO_LENGTH or begin > len(data):
            raise SchemaMismatch(f"{len(data)} bytes are not a key-value payload.", differences=())
        parts.append(None if size == _NO_LENGTH else data[start:begin])
    if begin != len(data):
        raise SchemaMismatch(f"{len(data)} bytes are not a key-value payload.", differences=())
    return parts[0], parts[1]


def with_length(data: bytes | None) -> bytes:
    """Return a part of an INLINE payload: its length and its bytes; see `split_inline()`."""
    if data is None:
        return _NO_LENGTH.to_bytes(_LENGTH_BYTES, "big", signed=True)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _part(schema: object) -> pulsar.schema.Schema:
    if isinstance(schema, type):
        return schema_of_class(schema)
    if isinstance(schema, pulsar.schema.Schema):
        return schema
    raise InvalidUse(f"key and value must be schemas or classes of values, got {schema!r}. Nothing was opened.")


def _definition(part: pulsar.schema.Schema) -> object:
    """Return the definition of a part for the admin API; empty for text and bytes."""
    found = text_of(part.schema_info())
    return json.loads(found.definition) if found.type in ("AVRO", "JSON", "PROTOBUF_NATIVE") else ""


def parts_of(stored: StoredSchema) -> tuple[SchemaText, SchemaText]:
    """Return the schemas of keys and of values in a stored key-value schema."""
    data, properties = json.loads(stored.data), stored.properties
    key, value = (
        SchemaText(properties.get(f"{name}.schema.type", "BYTES"), json.dumps(data[name])) for name in ("key", "value")
    )
    return key, value


def _reader(part: pulsar.schema.Schema, stored: SchemaText) -> _Decode:
    if isinstance(part, AvroSchema) and part.is_compared:
        return part.reader_of(json.loads(stored.definition))
    decode: _Decode = part.decode
    return decode
