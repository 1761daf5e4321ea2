"""Letters: copies of single messages sent to a retry topic or to a dead letter topic.

A letter has the bytes, the schema and the encryption of its message, and properties with its origin. They mirror Java's
`RetryMessageUtil` and `ConsumerImpl`, so that Python and Java clients read each other's letters.

**Dead letters.** For one negatively acknowledged message the C++ client sends every message of its batch to the dead
letter topic. It cannot send a chunked message, and ends the process when sending fails. Here a producer with chunking
writes the letter, in a thread of its own, and the message is acknowledged when the letter is persisted. If that fails,
the message is redelivered.

**Retry letters.** The consumer reads the retry topic along with its own topics. The letter is persisted before the
message is acknowledged: if the process dies in between, the message is delivered twice, but never lost. Mirrors Java's
`reconsumeLater`, and `ConsumerBuilderImpl` with `enableRetry(true)`; the official client has neither.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

import pulsar
from pulsar.schema import BytesSchema

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext._native.schemas import LETTER_VERSION, EncodedSchema, text_of, version_of
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.scheduler import ClientScheduler
from pulsar_ext._wire.batch_payload import Base64Key, bytes_of_base64
from pulsar_ext.admin import PulsarAdmin, SchemaInfo
from pulsar_ext.errors import AdminConflict, AdminError, AdminRequired, InvalidUse, PulsarExtError, SchemaMismatch
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.producer import Producer
from pulsar_ext.schema.key_value import KeyValueEncoding

MAX_RECONSUME_TIMES: Final = 16
"""Maximum number of retries of a message without a policy."""

REAL_TOPIC: Final = "REAL_TOPIC"
"""Property of a letter: the topic to which its message was sent first."""
_TIMES: Final = "RECONSUMETIMES"
_DELAY: Final = "DELAY_TIME"
_ORIGIN_IDS: Final = ("ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME")
"""The second one is the name that older clients read."""
_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
LETTER_PROPERTIES: Final = frozenset((REAL_TOPIC, _TIMES, _DELAY, *_ORIGIN_IDS, _SUBSCRIPTION, LETTER_VERSION))
"""Properties that a letter has besides its message's own."""
_MAX_DELAY_MS: Final = timedelta.max // timedelta(milliseconds=1)
"""Maximum of a delay: 2.7 million years."""


def dead_letter_topic(topic: str, subscription: str) -> str:
    """Return the name of the default dead letter topic."""
    return f"{TopicName.parse(topic)}-{subscription}-DLQ"


def origin_properties(properties: Mapping[str, str], topic: str, message_id: str, subscription: str) -> dict[str, str]:
    """Return a letter's properties: the message's own, and its origin."""
    ids = dict.fromkeys(_ORIGIN_IDS, message_id)
    return {REAL_TOPIC: topic, **ids, _SUBSCRIPTION: subscription, **properties}


def _properties_of(inner: InnerMessage, topic: str, subscription: str) -> dict[str, str]:
    return origin_properties(inner.properties(), topic, from_inner(inner.message_id()).to_text(), subscription)


def count_retry(properties: Mapping[str, str], delay_ms: int) -> tuple[dict[str, str], int]:
    """Count another retry of a message."""
    times = reconsume_times(properties) + 1
    return {**properties, _TIMES: str(times), _DELAY: str(delay_ms)}, times


def reconsume_times(properties: Mapping[str, str]) -> int:
    """Return the number of retries of a message; raise `InvalidUse` if its property is not a count."""
    times = properties.get(_TIMES, "0")
    if not (times.isascii() and times.isdigit()):
        raise InvalidUse(f"The message's property {_TIMES} must be a count, got {times!r}. It stays unacknowledged.")
    return int(times)


def check_retry(delay_ms: object, properties: object) -> None:
    """Raise `InvalidUse` if the delay of a letter is not milliseconds, or its properties are not a dict of str."""
    if type(delay_ms) is not int or not 0 <= delay_ms <= _MAX_DELAY_MS:
        raise InvalidUse(
            f"delay_ms must be an int from 0 to {_MAX_DELAY_MS} (milliseconds), got {delay_ms!r}. Nothing was sent."
        )
    if properties is None:
        return
    if not isinstance(properties, dict) or not all(isinstance(one, str) for pair in properties.items() for one in pair):
        raise InvalidUse("properties must be None or a dict with keys and values of type str. Nothing was sent.")


_PATIENCE_SECONDS: Final = 1.0
_log = logging.getLogger("pulsar_ext")


class LetterEncryption:
    """Choose the encryption key of each letter of one consumer."""

    def __init__(
        self,
        key: str | None = None,
        reader: pulsar.CryptoKeyReader | None = None,
        own: pulsar.CryptoKeyReader | None = None,
    ) -> None:
        if key is not None and (not isinstance(key, str) or not key):
            raise InvalidUse(f"letter_encryption_key must be the name of a key, got {key!r}. Nothing was opened.")
        if reader is not None and not isinstance(reader, pulsar.CryptoKeyReader):
            raise InvalidUse(f"letter_crypto_key_reader must be a CryptoKeyReader, got {reader!r}. Nothing was opened.")
        if key is not None and reader is None and own is None:
            raise InvalidUse(
                "letter_encryption_key needs letter_crypto_key_reader, or the consumer's crypto_key_reader, with the "
                "public key. Nothing was opened."
            )
        self._key, self._reader = key, reader or own
        self._is_required = key is not None or reader is not None
        self._warned = False

    def key_of(self, inner: InnerMessage) -> str | None:
        """Return the name of the key that encrypts the letter of a native message; None without encryption."""
        if self._key is not None or self._reader is None:
            return self._key
        encryption = inner.encryption_context()
        if encryption is None or encryption.is_decryption_failed():
            return None
        keys = encryption.keys()
        return min((str(one.key) for one in keys), default=None)

    def options(self, key: str | None) -> dict[str, object]:
        """Return the producer options for letters encrypted with a key."""
        return {} if key is None else {"encryption_key": key, "crypto_key_reader": self._reader}

    @staticmethod
    def raise_if_encryption_required(topic: str, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Raise `pulsar.CryptoError` if the namespace requires encryption: the C++ client would time out.

        Nothing is raised if the admin API does not answer.
        """
        namespace = TopicName.parse(topic).namespace_name
        with contextlib.suppress(AdminError, AdminRequired):
            if admin_api().within(_PATIENCE_SECONDS).policies(namespace).raw.get("encryption_required"):
                raise pulsar.CryptoError(
                    f"Pulsar error: CryptoError: {namespace} requires encryption, and the letter to {topic} has no "
                    "key. Nothing was sent; pass letter_encryption_key and letter_crypto_key_reader to subscribe()."
                )

    def allows_clear_text(self, topic: str) -> bool:
        """Return True if a letter that cannot be encrypted may be sent in the clear, and log this once."""
        if not self._is_required and not self._warned:
            self._warned = True
            _log.warning(
                "Letters to %s are sent in the clear although their messages were encrypted: the consumer's "
                "crypto_key_reader has no public key. To encrypt them, pass letter_encryption_key and "
                "letter_crypto_key_reader to subscribe().",
                topic,
            )
        return not self._is_required


@dataclass(frozen=True, slots=True)
class LetterSchema:
    """The schema of a letter."""

    content: tuple[object, ...]
    """Type and definition, by which schemas of several topics are compared."""
    encoded: pulsar.schema.Schema
    """For encoded bytes."""
    stored: SchemaInfo | None = None
    """Schema in the admin API, if the C++ client cannot send messages of its type."""
    has_separate_key: bool = False
    """True if the message's key is the key of a key-value schema: bytes, stored in base64 with a flag."""

    def register(self, context: ClientContext, topic: str) -> Mapping[str, str]:
        """Register a stored schema with a topic, and return the properties with its version there."""
        stored = self.stored
        if stored is None:
            return {}
        try:
            version = context.admin_api().upload_schema(topic, stored.type, stored.data, stored.properties)
        except AdminConflict as error:
            raise SchemaMismatch(f"The broker rejects {self.encoded} for {topic}: {error}", differences=()) from error
        return {LETTER_VERSION: str(version)}


_NATIVE_TYPES: Final = ("STRING", "JSON", "AVRO", "PROTOBUF", "PROTOBUF_NATIVE")
"""Schema types of which the C++ client can send messages with a version."""
NO_SCHEMA: Final = LetterSchema((), BytesSchema())
"""For messages without a schema, of a consumer without one."""
_SEPARATED: Final = LetterSchema((), BytesSchema(), has_separate_key=True)
"""For messages with separate keys and without a schema version, such as those of this library."""


class LetterSchemas:
    """The schemas of one consumer's letters."""

    def __init__(self, context: ClientContext, schema: pulsar.schema.Schema) -> None:
        self._context = context
        info = schema.schema_info()
        kind, definition = text_of(info)
        encoded = EncodedSchema(info, str(schema))
        without = _SEPARATED if getattr(schema, "encoding", None) is KeyValueEncoding.SEPARATED else NO_SCHEMA
        self._own = without if kind == "BYTES" else LetterSchema((kind, definition), encoded)
        self._known: dict[tuple[int, str, int], LetterSchema] = {}

    def of(self, inner: InnerMessage) -> LetterSchema:
        """Return the schema with which a native message was written; each version is looked up once."""
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
        """Return the schema for messages without a version, on a topic that may have separate keys."""
        try:
            return _SEPARATED if _has_separate_key(self._context.admin_api().schema(topic)) else NO_SCHEMA
        except (PulsarExtError, pulsar.PulsarException):  # without a schema or an admin API
            return NO_SCHEMA

    def _look_up(self, topic: str, version: int) -> LetterSchema:
        name = f"the schema of version {version} of {topic}"
        try:
            info = self._context.schema_info(topic, version)
        except UNREACHABLE:
            raise
        except pulsar.PulsarException as error:
            raise SchemaMismatch(
                f"The letter cannot be sent: the broker does not have {name}: {error}", differences=()
            ) from error
        kind, definition = text_of(info)
        if kind in _NATIVE_TYPES:
            return LetterSchema((kind, definition), EncodedSchema(info, name))
        stored = self._context.admin_api().schema(topic, version)
        content = (kind, stored.data, tuple(sorted(stored.properties.items())))
        encoded = EncodedSchema(BytesSchema().schema_info(), name)
        return LetterSchema(content, encoded, stored, has_separate_key=_has_separate_key(stored))


def _has_separate_key(stored: SchemaInfo) -> bool:
    encoding = stored.properties.get("kv.encoding.type")
    return stored.type == "KEY_VALUE" and encoding == KeyValueEncoding.SEPARATED.value


_IN_CHUNKS: Final = {"chunking_enabled": True}
_FLAGGED: Final = {
    "batching_enabled": True,
    "batching_type": pulsar.BatchingType.KeyBased,
    "batching_max_publish_delay_ms": 1,
}
"""Only batches written by this library can contain the flag for a key in base64."""


@dataclass(frozen=True, slots=True)
class _Letterbox:
    """A producer of letters with one schema, and the properties added to each letter."""

    producer: Producer
    properties: Mapping[str, str]
    key_type: type[str]


_Key = tuple[int, str, tuple[object, ...], str | None, type[str]]
"""Cluster number, topic, content of the schema, name of the encryption key, and type of the keys."""


class Letter(NamedTuple):
    """A letter to send, and the subscription to create on its topic before the first one, if any."""

    topic: str
    inner: InnerMessage
    properties: dict[str, str]
    delay_ms: int = 0
    subscription: str | None = None


class LetterProducers:
    """The producers of one consumer's letters, one for each topic and schema, opened for their first letter.

    Each letter has the bytes and the schema of its message. Large letters are sent in chunks, and all chunks of a
    letter are sent even if its connection is lost in between.
    """

    def __init__(
        self, context: ClientContext, schema: pulsar.schema.Schema, encryption: LetterEncryption | None = None
    ) -> None:
        self._context, self._schemas = context, LetterSchemas(context, schema)
        self._encryption = encryption or LetterEncryption()
        self._only_bytes = type(schema) is BytesSchema
        self._boxes: dict[_Key, _Letterbox] = {}
        """Keys contain the cluster, as versions of a schema belong to one cluster."""
        self._lock = Lock()
        self._closed = False

    def send(self, letter: Letter) -> None:
        """Send a letter, and wait until it is persisted."""
        encryption_key = self._encryption.key_of(letter.inner)
        try:
            self._send_flagged_if_possible(letter, encryption_key)
        except pulsar.CryptoError:  # nothing was sent
            if encryption_key is None or not self._encryption.allows_clear_text(letter.topic):
                raise
            self._send_flagged_if_possible(letter, None)

    def _send_flagged_if_possible(self, letter: Letter, encryption_key: str | None) -> None:
        """Send with the flag of a separate key if possible: unchunked and without a delay."""
        if not letter.delay_ms and bytes_of_base64(letter.inner.partition_key()) is not None:
            try:
                return self._send(letter, encryption_key, flags=True)
            except pulsar.MessageTooBig:
                pass
        return self._send(letter, encryption_key, flags=False)

    def _send(self, letter: Letter, encryption_key: str | None, *, flags: bool) -> None:
        key, box = self._letterbox(letter, encryption_key, flags=flags)
        inner, delay_ms = letter.inner, letter.delay_ms
        try:
            box.producer.send(
                None if inner.has_null_value() else inner.data(),
                properties={name: value for name, value in letter.properties.items() if name != LETTER_VERSION}
                | dict(box.properties),
                partition_key=box.key_type(inner.partition_key()) or None,
                ordering_key=inner.ordering_key() or None,
                event_timestamp=inner.event_timestamp() or None,
                deliver_after=timedelta(milliseconds=delay_ms) if delay_ms else None,
            )
        except BaseException:
            with self._lock:
                if box.producer.sender.closed and self._boxes.get(key) is box:
                    del self._boxes[key]  # the next letter opens another producer
            raise

    def send_dead(self, letter: Letter, received_on: str) -> None:
        """Send a letter to a dead letter topic, and report the event; see `send()`."""
        self.send(letter)
        self._context.report_event("dead letter", letter.inner.topic_name(), received_on, 1)

    def close(self) -> None:
        """Close the producers; no more letters are sent."""
        with self._lock:
            self._closed = True
            boxes = list(self._boxes.values())
            self._boxes.clear()
        for box in boxes:
            with contextlib.suppress(pulsar.PulsarException):
                box.producer.close()

    def _letterbox(self, letter: Letter, encryption_key: str | None, *, flags: bool) -> tuple[_Key, _Letterbox]:
        schema, key_type, topic = NO_SCHEMA, str, letter.topic
        try:
            schema = self._schemas.of(letter.inner)
            if flags and schema.has_separate_key:
                key_type = Base64Key
            return self._opened(letter, schema, encryption_key, key_type)
        except (SchemaMismatch, AdminRequired) as error:
            if not self._only_bytes:
                raise
            _log.warning("Letters to %s are sent as bytes, without the schema of their messages: %s", topic, error)
        key, box = self._opened(letter, NO_SCHEMA, encryption_key, key_type)
        self._boxes[key[0], topic, schema.content, encryption_key, key_type] = box
        return key, box

    def _opened(
        self, letter: Letter, schema: LetterSchema, encryption_key: str | None, key_type: type[str]
    ) -> tuple[_Key, _Letterbox]:
        topic, subscription = letter.topic, letter.subscription
        key = self._context.cluster.number(), topic, schema.content, encryption_key, key_type
        known = self._boxes.get(key)
        if known is not None:
            return key, known
        if encryption_key is None:
            self._encryption.raise_if_encryption_required(topic, self._context.admin_api)
        opener = self._context.opener
        if subscription:
            with contextlib.suppress(pulsar.ConsumerBusy):  # the subscription exists and has an exclusive consumer
                earliest = pulsar.InitialPosition.Earliest
                opener.subscribe(topic, subscription, pulsar.ConsumerType.Shared, initial_position=earliest).close()
        properties = schema.register(self._context, topic)
        producer = opener.create_producer(
            topic,
            schema=schema.encoded,
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


class DeadLetters:
    """The dead letters of one consumer."""

    def __init__(
        self,
        producers: LetterProducers,
        policy: pulsar.ConsumerDeadLetterPolicy,
        subscription: str,
        *,
        acknowledge: Callable[[InnerMessage], None],
        redeliver: Callable[[InnerMessage], None],
        cluster: Callable[[], int] = lambda: 0,
    ) -> None:
        self.max_redeliver_count: int = policy.max_redeliver_count
        self._producers, self._policy, self._subscription = producers, policy, subscription
        self._acknowledge, self._redeliver, self._cluster = acknowledge, redeliver, cluster
        self.on_acknowledged: Callable[[InnerMessage], None] | None = None
        """Called with each native message that was acknowledged because its letter is persisted."""
        self._worker = ClientScheduler("pulsar-ext-dead-letters", _log, "A dead letter could not be handled")
        self._letters_in_flight: set[bytes] = set()
        self._lock = Lock()
        self._closed = False

    def send(self, inner: InnerMessage) -> None:
        """Send a native message to the dead letter topic, unless its letter is in flight."""
        key = self._cluster_key() + inner.topic_name().encode() + bytes(inner.message_id().serialize())
        with self._lock:
            if not (self._closed or key in self._letters_in_flight):
                self._worker.run(partial(self._handle, key, inner))  # first: if it fails, the next delivery tries again
                self._letters_in_flight.add(key)

    def close(self) -> None:
        """Stop sending: remaining messages stay unacknowledged, and are redelivered to another consumer."""
        self._closed = True
        self._worker.close()

    def _handle(self, key: bytes, inner: InnerMessage) -> None:
        if self._closed:
            return
        try:
            self._deliver(inner)
        except Exception as error:  # noqa: BLE001  # the message is redelivered after any error
            message_id = from_inner(inner.message_id())
            _log.error("The dead letter of %r could not be sent; the message is redelivered: %s", message_id, error)
            action = self._redeliver
        else:
            action = self._acknowledge
        try:
            if key.startswith(self._cluster_key()):  # otherwise its id belongs to another cluster
                action(inner)
            if action is self._acknowledge and self.on_acknowledged is not None:
                self.on_acknowledged(inner)
        except Exception:  # noqa: BLE001  # the letter is not in flight any more
            _log.exception("%r was neither acknowledged nor redelivered yet", from_inner(inner.message_id()))
        with self._lock:
            self._letters_in_flight.discard(key)

    def _cluster_key(self) -> bytes:
        return b"%d " % self._cluster()

    def _deliver(self, inner: InnerMessage) -> None:
        topic, policy = inner.topic_name(), self._policy
        dead = policy.dead_letter_topic or dead_letter_topic(topic, self._subscription)
        properties = _properties_of(inner, topic, self._subscription)
        letter = Letter(dead, inner, properties, subscription=policy.initial_subscription_name)
        self._producers.send_dead(letter, self._subscription)


class RetryTopics:
    """The topics of a consumer with `enable_retry`, and of its letters."""

    def __init__(
        self,
        topic: object,
        subscription: str,
        policy: pulsar.ConsumerDeadLetterPolicy | None,
        retry_letter_topic: str | None,
    ) -> None:
        subscribed = [topic] if isinstance(topic, str) else topic
        if not isinstance(subscribed, list) or not subscribed:
            raise InvalidUse(
                "enable_retry needs a topic or a list of topics: a pattern has no name for a retry topic. Nothing was "
                "opened."
            )
        names = {str(TopicName.parse(one)) for one in subscribed}
        first = min(subscribed)  # Java's consumer keeps the topics sorted
        self.retry = retry_letter_topic or f"{TopicName.parse(first)}-{subscription}-RETRY"
        self.topics: list[str] = subscribed if str(TopicName.parse(self.retry)) in names else [*subscribed, self.retry]
        """The topics that the consumer reads."""
        known = policy or pulsar.ConsumerDeadLetterPolicy(MAX_RECONSUME_TIMES)
        self.policy = pulsar.ConsumerDeadLetterPolicy(
            known.max_redeliver_count,
            known.dead_letter_topic or dead_letter_topic(first, subscription),
            known.initial_subscription_name,
        )
        """The dead letter topic, and the number of retries before it."""


class RetryLetters:
    """The retry letters of one consumer."""

    def __init__(self, producers: LetterProducers, topics: RetryTopics, subscription: str) -> None:
        self._producers, self._topics, self._subscription = producers, topics, subscription
        self._parents = {_parent(topic) for topic in topics.topics}

    def send(self, inner: InnerMessage, delay_ms: int, properties: dict[str, str] | None) -> None:
        """Send a native message to the retry topic, or to the dead letter topic after the last retry."""
        letter, times = count_retry(self._properties(inner, properties), delay_ms)
        if times > self._topics.policy.max_redeliver_count:
            self._send_dead(inner, letter)
        else:
            self._producers.send(Letter(self._topics.retry, inner, letter, delay_ms))

    def send_dead(self, inner: InnerMessage, properties: dict[str, str] | None) -> None:
        """Send a native message to the dead letter topic, whatever its retry count; raises what `send()` raises."""
        self._send_dead(inner, self._properties(inner, properties))

    def _send_dead(self, inner: InnerMessage, letter: dict[str, str]) -> None:
        policy = self._topics.policy
        dead = Letter(policy.dead_letter_topic, inner, letter, subscription=policy.initial_subscription_name)
        self._producers.send_dead(dead, self._subscription)

    def _properties(self, inner: InnerMessage, properties: dict[str, str] | None) -> dict[str, str]:
        """Return a letter's properties: the message's own, its origin, and the given ones, which take precedence."""
        topic = _parent(inner.topic_name())
        if topic not in self._parents:
            raise InvalidUse(
                f"The message is from {topic}, which this consumer does not read. Nothing was sent; use the consumer "
                "that received it."
            )
        return _properties_of(inner, topic, self._subscription) | (properties or {})


def _parent(topic: str) -> str:
    return str(TopicName.parse(topic).parent)
