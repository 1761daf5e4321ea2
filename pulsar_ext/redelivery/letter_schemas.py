"""The schemas of letters: each letter has the schema that its message was written with.

Mirrors Java's `newMessage(Schema.AUTO_PRODUCE_BYTES(message.getReaderSchema()))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pulsar
from pulsar.schema import BytesSchema

from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext._native.schemas import LETTER_VERSION, PassingSchema, text_of, version_of
from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext.errors import AdminConflict, PulsarExtError, SchemaMismatch
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.schema.key_value import KeyValueEncoding

from .letter_properties import REAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import SchemaInfo

__all__ = ["NO_SCHEMA", "LetterSchema", "LetterSchemas"]


@dataclass(frozen=True, slots=True)
class LetterSchema:
    """The schema of a letter.

    Args:
        content: its type and its definition, by which schemas of several topics are compared.
        passing: the schema object of the producer, which takes encoded bytes.
        stored: the schema as the admin API knows it, of a type that the C++ client cannot send messages of.
        separates: if it has a key and a value, and the key is the message's: bytes, stored in base64 with a flag.
    """

    content: tuple[Any, ...]
    passing: Any
    stored: SchemaInfo | None = None
    separates: bool = False

    def register(self, context: ClientContext, topic: str) -> Mapping[str, str]:
        """Register a stored schema with a topic, and return the properties that name its version there.

        Raises:
            SchemaMismatch: the broker rejects it.
            AdminRequired, AdminError: the admin API could not be asked.
        """
        stored = self.stored
        if stored is None:
            return {}
        try:
            version = context.admin_api().upload_schema(topic, stored.type, stored.data, stored.properties)
        except AdminConflict as error:
            raise SchemaMismatch(f"The broker rejects {self.passing} for {topic}: {error}", differences=()) from error
        return {LETTER_VERSION: str(version)}


_SENT: Final = ("STRING", "JSON", "AVRO", "PROTOBUF", "PROTOBUF_NATIVE")
"""The types of schemas that the C++ client can send messages of, with their version."""
NO_SCHEMA: Final = LetterSchema((), BytesSchema())
"""For messages without a schema, received by a consumer without one."""
_SEPARATED: Final = LetterSchema((), BytesSchema(), separates=True)
"""For messages with separated keys that do not say their version, as those of this library."""


class LetterSchemas:
    """The schemas of one consumer's letters.

    Args:
        context: of the consumer's client, which is asked for schemas.
        schema: the consumer's, which letters of messages without a schema have.
    """

    def __init__(self, context: ClientContext, schema: Any) -> None:
        self._context = context
        info = schema.schema_info()
        kind, definition = text_of(info)
        passing = PassingSchema(info, str(schema))
        without = _SEPARATED if getattr(schema, "encoding", None) is KeyValueEncoding.SEPARATED else NO_SCHEMA
        self._own = without if kind == "BYTES" else LetterSchema((kind, definition), passing)
        self._known: dict[tuple[int, str, int], LetterSchema] = {}

    def of(self, inner: Any) -> LetterSchema:
        """Return the schema that a C++ message was written with; its version is looked up once.

        Raises:
            SchemaMismatch: the broker does not have that version any more.
            pulsar.PulsarException: the broker cannot be asked now.
            AdminRequired, AdminError: the C++ client cannot send its type, and the admin API could not be asked.
        """
        version, topic = version_of(inner), inner.topic_name()
        if version < 0:
            if self._own is not NO_SCHEMA or bytes_of_base64(inner.partition_key()) is None:
                return self._own
            topic = inner.properties().get(REAL_TOPIC, topic)
        topic = str(TopicName.parse(topic).parent)
        key = self._context.cluster.number(), topic, version
        known = self._known.get(key)
        if known is None:
            look_up = self._look_up if version >= 0 else self._without_version
            known = self._known[key] = look_up(topic, version)
        return known

    def _without_version(self, topic: str, _: int) -> LetterSchema:
        """Return what messages have that say no version, on a topic that may have separated keys."""
        try:
            return _SEPARATED if _separates(self._context.admin_api().schema(topic)) else NO_SCHEMA
        except (PulsarExtError, pulsar.PulsarException):  # no schema, or no admin API answers
            return NO_SCHEMA

    def _look_up(self, topic: str, version: int) -> LetterSchema:
        name = f"the schema of version {version} of {topic}"
        try:
            info = self._context.schema_info(topic, version)
        except UNREACHABLE:
            raise
        except pulsar.PulsarException as error:
            raise SchemaMismatch(
                f"A letter cannot be sent with {name}, which the broker does not have: {error}", differences=()
            ) from error
        kind, definition = text_of(info)
        if kind in _SENT:
            return LetterSchema((kind, definition), PassingSchema(info, name))
        stored = self._context.admin_api().schema(topic, version)
        content = (kind, stored.data, tuple(sorted(stored.properties.items())))
        passing = PassingSchema(BytesSchema().schema_info(), name)
        return LetterSchema(content, passing, stored, separates=_separates(stored))


def _separates(stored: SchemaInfo) -> bool:
    encoding = stored.properties.get("kv.encoding.type")
    return stored.type == "KEY_VALUE" and encoding == KeyValueEncoding.SEPARATED.value
