"""The producers of one consumer's letters: what was received is sent on, whole, with its own bytes and schema."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar
from pulsar.schema import BytesSchema

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.schemas import LETTER_VERSION
from pulsar_ext._wire.batch_payload import Base64Key, bytes_of_base64
from pulsar_ext.errors import AdminRequired, SchemaMismatch

from .letter_encryption import LetterEncryption
from .letter_schemas import NO_SCHEMA, LetterSchemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_ext._runtime.context import ClientContext

    from .letter_schemas import LetterSchema

__all__ = ["LetterProducers"]

_log = logging.getLogger("pulsar_ext")

_IN_CHUNKS: Final = {"chunking_enabled": True}
_FLAGGED: Final = {
    "batching_enabled": True,
    "batching_type": pulsar.BatchingType.KeyBased,
    "batching_max_publish_delay_ms": 1,
}
"""Only batches that are written here can say that a key is bytes."""


@dataclass(frozen=True, slots=True)
class _Letterbox:
    """A producer of letters of one schema, and the properties that each of its letters gets."""

    producer: Any
    properties: Mapping[str, str]
    key_type: type[str]


_Key = tuple[int, str, tuple[Any, ...], str | None, type[str]]
"""Number of a cluster, a topic, content of a schema, name of an encryption key, and what keys are written as."""


class LetterProducers:
    """The producers of one consumer's letters: one for each topic and schema, opened with the first such letter.

    Each letter has the bytes of its message and the schema that the message was written with. A producer sends in
    chunks what is too large, and a chunked letter is whole though its connection ends amid it.

    Args:
        context: of the consumer's client, which opens and closes them.
        schema: the consumer's. Without one, a letter whose schema its topic rejects is sent without it.
        encryption: chooses the key of each letter.
    """

    def __init__(self, context: ClientContext, schema: Any, encryption: LetterEncryption | None = None) -> None:
        self._context, self._schemas = context, LetterSchemas(context, schema)
        self._encryption = encryption or LetterEncryption()
        self._only_bytes = type(schema) is BytesSchema
        self._boxes: dict[_Key, _Letterbox] = {}
        """Versions of a schema belong to one cluster."""
        self._lock = Lock()
        self._closed = False

    def send(
        self, topic: str, inner: Any, properties: dict[str, str], *, delay_ms: int = 0, subscription: str | None = None
    ) -> None:
        """Send a C++ message to a topic, and wait until it is persisted.

        Args:
            topic: where it goes.
            inner: what was received.
            properties: the letter's.
            delay_ms: after how many milliseconds a Shared or Key_Shared subscription gets it.
            subscription: what the topic shall have as its first letter comes; None for nothing.

        Raises:
            SchemaMismatch: the topic rejects the message's schema, or the broker does not have it; nothing was sent.
            pulsar.PulsarException: it was not persisted, or nobody knows whether it was.
        """
        send = partial(self._send_whole, topic, inner, properties, delay_ms=delay_ms, subscription=subscription)
        encryption_key = self._encryption.key_of(inner)
        try:
            send(encryption_key=encryption_key)
        except pulsar.CryptoError:  # nothing was sent
            if encryption_key is None or not self._encryption.leaves_in_clear(topic):
                raise
            send(encryption_key=None)

    def _send_whole(
        self, topic: str, inner: Any, properties: dict[str, str], *, delay_ms: int, **options: str | None
    ) -> None:
        """Send with the flag of a separated key where that is possible: in no chunks, and without a delay."""
        if not delay_ms and bytes_of_base64(inner.partition_key()) is not None:
            try:
                return self._send(topic, inner, properties, delay_ms=0, flags=True, **options)
            except pulsar.MessageTooBig:
                pass
        return self._send(topic, inner, properties, delay_ms=delay_ms, flags=False, **options)

    def _send(
        self,
        topic: str,
        inner: Any,
        properties: dict[str, str],
        *,
        delay_ms: int,
        subscription: str | None,
        encryption_key: str | None,
        flags: bool,
    ) -> None:
        key, box = self._letterbox(topic, inner, subscription, encryption_key, flags=flags)
        try:
            box.producer.send(
                None if inner.has_null_value() else inner.data(),
                properties={name: value for name, value in properties.items() if name != LETTER_VERSION}
                | dict(box.properties),
                partition_key=box.key_type(inner.partition_key()) or None,
                ordering_key=inner.ordering_key() or None,
                event_timestamp=inner.event_timestamp() or None,
                deliver_after=timedelta(milliseconds=delay_ms) if delay_ms else None,
            )
        except BaseException:
            with self._lock:
                if box.producer.sender.closed and self._boxes.get(key) is box:
                    del self._boxes[key]  # the next letter opens another one
            raise

    def send_dead(
        self, topic: str, inner: Any, properties: dict[str, str], of: str, initial_subscription: str | None
    ) -> None:
        """Send a C++ message to a dead letter topic, as `send()`, and tell of it.

        Args:
            topic: where it goes.
            inner: what was received.
            properties: the letter's.
            of: the subscription that it was received on.
            initial_subscription: what the topic shall have as its first letter comes; None for nothing.
        """
        self.send(topic, inner, properties, subscription=initial_subscription)
        self._context.tell("dead letter", inner.topic_name(), of, 1)

    def close(self) -> None:
        """Send no more letters."""
        with self._lock:
            self._closed = True
            boxes = list(self._boxes.values())
            self._boxes.clear()
        for box in boxes:
            with contextlib.suppress(pulsar.PulsarException):
                box.producer.close()

    def _letterbox(
        self, topic: str, inner: Any, subscription: str | None, encryption_key: str | None, *, flags: bool
    ) -> tuple[_Key, _Letterbox]:
        schema, key_type = NO_SCHEMA, str
        try:
            schema = self._schemas.of(inner)
            if flags and schema.separates:
                key_type = Base64Key
            return self._opened(topic, schema, subscription, encryption_key, key_type)
        except (SchemaMismatch, AdminRequired) as error:
            if not self._only_bytes:
                raise
            _log.warning("Letters to %s are sent as bytes, without the schema of their messages: %s", topic, error)
        key, box = self._opened(topic, NO_SCHEMA, subscription, encryption_key, key_type)
        self._boxes[key[0], topic, schema.content, encryption_key, key_type] = box
        return key, box

    def _opened(
        self,
        topic: str,
        schema: LetterSchema,
        subscription: str | None,
        encryption_key: str | None,
        key_type: type[str],
    ) -> tuple[_Key, _Letterbox]:
        key = self._context.cluster.number(), topic, schema.content, encryption_key, key_type
        known = self._boxes.get(key)
        if known is not None:
            return key, known
        if encryption_key is None:
            self._encryption.refuse_clear(topic, self._context.admin_api)
        opener = self._context.opener
        if subscription:
            with contextlib.suppress(pulsar.ConsumerBusy):  # it has a consumer of its own type: it is there
                opener.subscribe(
                    topic,
                    subscription,
                    pulsar.ConsumerType.Shared,
                    initial_position=pulsar.InitialPosition.Earliest,
                ).close()
        properties = schema.register(self._context, topic)
        producer = opener.create_producer(
            topic,
            schema=schema.passing,
            max_pending_messages=0,
            **(_IN_CHUNKS if key_type is str else _FLAGGED),
            **self._encryption.options(encryption_key),
        )
        opened = _Letterbox(producer, properties, key_type)
        with self._lock:
            if not self._closed:
                known = self._boxes.setdefault(key, opened)
        if known is not opened:  # another thread was faster, or the consumer was closed
            producer.close()
        if known is None:
            raise pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the consumer of the letter's message is closed.")
        return key, known
