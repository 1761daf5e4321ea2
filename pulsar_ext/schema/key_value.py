"""Messages that are a key and a value, each with a schema of its own; mirrors Java's `KeyValueSchema`."""

from __future__ import annotations

import base64
import binascii
import json
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import pulsar.schema

from pulsar_ext._native.schemas import SchemaInfo, SchemaType, version_of
from pulsar_ext.errors import AdminConflict, AdminNotFound, InvalidUse, SchemaMismatch

from .avro_schema import AvroSchema
from .choice import schema_of_class
from .reading import SchemaText, cannot_read
from .typed import TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.admin import SchemaInfo as StoredSchema

    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.Schema

K = TypeVar("K")
V = TypeVar("V")

_LENGTH_BYTES = 4
_NO_LENGTH = -1
"""The length of a key or a value of None."""


class KeyValue(NamedTuple, Generic[K, V]):
    """A key and a value; mirrors Java's `KeyValue`."""

    key: K
    value: V


class KeyValueEncoding(Enum):
    """Where the key is; mirrors Java's `KeyValueEncodingType`."""

    INLINE = "INLINE"
    """In the payload, before the value."""
    SEPARATED = "SEPARATED"
    """The message's key, by which it is routed and compacted; the payload is the value alone, None for no value."""


class KeyValueSchema(TypedSchema[KeyValue[K, V]], _Official):
    """Keys and values; mirrors Java's `Schema.KeyValue`.

    A producer gives the topic the schema over the admin API, because the C++ client cannot say what it is made of. Its
    messages do not say which version wrote them: no part may be Avro, but for consumers and readers.

    Args:
        key: the schema of keys, as `schema=` takes it.
        value: the schema of values.
        encoding: where the key is.
    """

    reads_null_values = True

    def __init__(
        self,
        key: type[K] | TypedSchema[K],
        value: type[V] | TypedSchema[V],
        encoding: KeyValueEncoding = KeyValueEncoding.INLINE,
    ) -> None:
        self.key, self.value, self.encoding = _part(key), _part(value), KeyValueEncoding(encoding)
        self._record_cls = KeyValue
        self._client: Any = None
        self._admin_api: Callable[[], PulsarAdmin] | None = None
        self._versions: dict[tuple[str, int], tuple[Callable[[bytes], Any], Callable[[bytes], Any]]] = {}

    def begin(self, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> None:
        """Know no version yet."""
        del reads
        self._admin_api, self._versions = admin_api, {}

    def schema_info(self) -> Any:
        """Give what the C++ client is told: nothing, for it would want keys and values of its own making."""
        return SchemaInfo(SchemaType.BYTES, "BYTES", "")

    def register(self, topic: str) -> None:
        """Give a topic this schema, with what it is made of.

        Raises:
            InvalidUse: a part is Avro.
            SchemaMismatch: the broker does not take it.
            AdminRequired, AdminError: it could not be asked.
        """
        if any(isinstance(one, pulsar.schema.AvroSchema) for one in (self.key, self.value)):
            raise InvalidUse(
                f"{self} has a part in Avro, which is read by the version that wrote it, and the C++ client cannot say "
                "which one that is of keys and values: use JsonSchema(…) for both to send. Nothing was opened."
            )
        assert self._admin_api is not None  # noqa: S101  # it is a client's
        data = {"key": _definition(self.key), "value": _definition(self.value)}
        stored = self._stored(topic)
        if stored is not None and (found := self._made_otherwise(stored)):  # which the broker may take for the same
            raise SchemaMismatch(f"{self} is not {topic}'s: {'; '.join(found)}. Nothing was opened.", differences=found)
        try:
            self._admin_api().upload_schema(topic, "KEY_VALUE", json.dumps(data), self.properties())
        except AdminConflict as error:
            found = self.cannot_read(topic)
            raise SchemaMismatch(
                f"The broker does not take {self} for {topic}: {error}. The differences: {'; '.join(found)}. Nothing "
                "was opened.",
                differences=found,
            ) from None

    def properties(self) -> dict[str, str]:
        """Give what the schema is made of, as Java's client writes it."""
        found = {"kv.encoding.type": self.encoding.value}
        for name, part in (("key", self.key), ("value", self.value)):
            info = part.schema_info()
            found |= {f"{name}.schema.name": "", f"{name}.schema.type": info.schema_type().name}
            found[f"{name}.schema.properties"] = "{}"
        return found

    def cannot_read(self, topic: str, _: Any = None, /) -> tuple[str, ...]:
        """Give what keeps this from reading a topic's last schema."""
        found = self._stored(topic)
        if found is None:
            return ()
        if otherwise := self._made_otherwise(found):
            return otherwise
        differ: list[str] = []
        for name, part in (("key", self.key), ("value", self.value)):
            theirs = SchemaText(found.properties.get(f"{name}.schema.type", "BYTES"), _part_text(found.data, name))
            info = part.schema_info()
            ours = SchemaText(info.schema_type().name, info.schema())
            differ += [f"{name}: {one}" for one in cannot_read(ours, theirs)]
        return tuple(differ)

    def _stored(self, topic: str) -> StoredSchema | None:
        assert self._admin_api is not None  # noqa: S101  # it is a client's
        try:
            return self._admin_api().schema(topic)
        except AdminNotFound:
            return None

    def _made_otherwise(self, stored: StoredSchema) -> tuple[str, ...]:
        """Give how a topic's schema is made of something else: its type, where keys are, and the parts' types."""
        if stored.type != "KEY_VALUE":
            return (f"the topic has a schema of type {stored.type}, this one is KEY_VALUE",)
        encoding = stored.properties.get("kv.encoding.type", "INLINE")
        if encoding != self.encoding.value:
            return (f"the topic's keys are {encoding}, this schema's are {self.encoding.value}",)
        found = []
        for name, ours in self.properties().items():
            part, _, _ = name.partition(".schema.type")
            theirs = stored.properties.get(name, "BYTES")
            if name.endswith(".schema.type") and theirs != ours:
                found.append(f"{part}: the topic has a schema of type {theirs}, this one is {ours}")
        return tuple(found)

    def encode(self, obj: KeyValue[K, V]) -> bytes:
        """Write the payload; a key or a value of None has no bytes, as Java's client writes it."""
        key, value = obj
        written: bytes | None = None if value is None else self.value.encode(value)
        if self.encoding is KeyValueEncoding.SEPARATED:
            return written or b""
        return with_length(None if key is None else self.key.encode(key)) + with_length(written)

    def decode(self, data: bytes) -> KeyValue[K, V]:
        """Read a payload that has its key in it."""
        return _pair(data, self.key.decode, self.value.decode)

    def decode_message(self, msg: Any) -> KeyValue[K, V] | None:  # type: ignore[override]  # None for no value
        """Read a message, each part with the version of the schema that it was written with.

        A part that was written without a value is None, and so is a message without a value whose key would be in it.

        Raises:
            SchemaMismatch: a part cannot be read.
            AdminRequired, AdminError: the version could not be asked for.
        """
        read_key, read_value = self._readers(msg)
        if self.encoding is KeyValueEncoding.INLINE:
            return inline_pair(msg, read_key, read_value)
        return separated_pair(msg, read_key, read_value)

    def _evolves(self) -> bool:
        """Whether it has to be known which version wrote a message."""
        return any(isinstance(one, AvroSchema) and one.model is not None for one in (self.key, self.value))

    def _readers(self, msg: Any) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
        version = version_of(msg)
        if version < 0 or not self._evolves() or self._client is None:
            return self.key.decode, self.value.decode
        topic = msg.topic_name()
        known = self._versions.get((topic, version))
        if known is None:
            data = self._client.stored(self._admin_api, topic, version).data
            read = [_reader(part, _part_text(data, name)) for name, part in (("key", self.key), ("value", self.value))]
            known = self._versions[topic, version] = (read[0], read[1])
        return known

    def __str__(self) -> str:
        return f"KeyValueSchema({self.key}, {self.value}, {self.encoding.name})"


def separated_pair(
    msg: Any, read_key: Callable[[bytes], Any], read_value: Callable[[bytes], Any]
) -> KeyValue[Any, Any]:
    """Read a message whose key is separated; its value is None if it has none."""
    value = None if msg.has_null_value() else read_value(msg.data())
    return KeyValue(read_key(key_bytes(msg.partition_key())), value)


def inline_pair(
    msg: Any, read_key: Callable[[bytes], Any], read_value: Callable[[bytes], Any]
) -> KeyValue[Any, Any] | None:
    """Read a message whose key is in its payload; None if it has no payload."""
    return None if msg.has_null_value() else _pair(msg.data(), read_key, read_value)


def _pair(data: bytes, read_key: Callable[[bytes], Any], read_value: Callable[[bytes], Any]) -> KeyValue[Any, Any]:
    key, value = split_inline(data)
    return KeyValue(None if key is None else read_key(key), None if value is None else read_value(value))


def key_bytes(text: str) -> bytes:
    """Return the bytes of a separated key: base64, as Java's client and this one write it, or else text."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()


def split_inline(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a payload that is a length and a key, and a length and a value.

    A length of -1 stands for None, as in Java's `KeyValue.decode`.

    Raises:
        SchemaMismatch: it is not.
    """
    parts: list[bytes | None] = []
    begin = 0
    for _ in range(2):
        start = begin + _LENGTH_BYTES
        size = int.from_bytes(data[begin:start], "big", signed=True)
        begin = start + max(size, 0)
        if size < _NO_LENGTH or begin > len(data):
            raise SchemaMismatch(f"{len(data)} bytes are not a key and a value.", differences=())
        parts.append(None if size == _NO_LENGTH else data[start:begin])
    if begin != len(data):
        raise SchemaMismatch(f"{len(data)} bytes are not a key and a value.", differences=())
    return parts[0], parts[1]


def with_length(data: bytes | None) -> bytes:
    """Return a part of an INLINE payload: its length and its bytes, as `split_inline()` takes them apart."""
    if data is None:
        return _NO_LENGTH.to_bytes(_LENGTH_BYTES, "big", signed=True)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def _part(given: Any) -> Any:
    if isinstance(given, type):
        return schema_of_class(given)
    if isinstance(given, pulsar.schema.Schema):
        return given
    raise InvalidUse(f"{given!r} is no schema, and no class of values. Nothing was opened.")


def _definition(part: Any) -> Any:
    """Give the definition of a part as the admin API takes it: none for text and bytes."""
    info = part.schema_info()
    return json.loads(info.schema()) if info.schema_type().name in ("AVRO", "JSON", "PROTOBUF_NATIVE") else ""


def _part_text(data: str, name: str) -> str:
    return json.dumps(json.loads(data)[name])


def _reader(part: Any, definition: str) -> Callable[[bytes], Any]:
    if isinstance(part, AvroSchema) and part.model is not None:
        return part.model.reader(json.loads(definition)).read
    decode: Callable[[bytes], Any] = part.decode
    return decode
