"""Letters: messages that are sent on to a retry topic or to a dead letter topic, each alone, and whole.

A letter has the bytes, the schema and the encryption of its message, and properties that say where it came from. They
mirror Java's `RetryMessageUtil` and `ConsumerImpl`, so that letters go back and forth between clients of both kinds.

**Dead letters.** The C++ client sends every message of a batch there when one of them is refused, cannot send a chunked
message, and ends the process when sending fails. Here its policy is taken over: the letter is written by a producer
that chunks, in a thread of its own, and its message is acknowledged when it is persisted. If that fails, the message is
redelivered.

**Retry letters.** The consumer reads the retry topic along with its own. The letter is persisted before the message is
acknowledged: if the process dies between the two, the message is delivered twice, and never lost. Mirrors Java's
`reconsumeLater`, and what its `ConsumerBuilderImpl` does with `enableRetry(true)`; the official client has neither.
"""

from __future__ import annotations

import contextlib
import logging
import queue
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar
from pulsar.schema import BytesSchema

from pulsar_ext._native import threads
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext._native.schemas import LETTER_VERSION, PassingSchema, text_of, version_of
from pulsar_ext._wire.batch_payload import Base64Key, bytes_of_base64
from pulsar_ext.ack.confirm import Acknowledging
from pulsar_ext.errors import AdminConflict, AdminError, AdminRequired, InvalidUse, PulsarExtError, SchemaMismatch
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.receive.many import ReceivingMany
from pulsar_ext.schema.key_value import KeyValueEncoding
from pulsar_ext.schema.typed import T

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import PulsarAdmin, SchemaInfo
    from pulsar_ext.message import Message


MAX_RECONSUME_TIMES: Final = 16
"""How many times a message is consumed later where no policy says it."""

REAL_TOPIC: Final = "REAL_TOPIC"
"""Property of a letter: the topic that its message was sent to first."""
_TIMES: Final = "RECONSUMETIMES"
_MOST_MILLIS: Final = timedelta.max // timedelta(milliseconds=1)
"""What a delay can say: 2.7 million years."""


def retry_topic(topic: str, subscription: str) -> str:
    """Name the topic that messages go to until they are consumed later."""
    return f"{TopicName.parse(topic)}-{subscription}-RETRY"


def dead_letter_topic(topic: str, subscription: str) -> str:
    """Name the topic that messages go to which were consumed later too often."""
    return f"{TopicName.parse(topic)}-{subscription}-DLQ"


def origin_properties(properties: Mapping[str, str], topic: str, message_id: str, subscription: str) -> dict[str, str]:
    """Give a letter's properties: the message's own, and where it came from first.

    Args:
        properties: the message's own; of a letter they say already where it came from.
        topic: of the message.
        message_id: in Java's form.
        subscription: of the consumer that sends the letter.
    """
    origin = {
        REAL_TOPIC: topic,
        "ORIGIN_MESSAGE_IDY_TIME": message_id,  # the name that older clients read
        "ORIGIN_MESSAGE_ID": message_id,
        "REAL_SUBSCRIPTION": subscription,
    }
    return origin | dict(properties)


def retried(properties: Mapping[str, str], delay_ms: int) -> tuple[dict[str, str], int]:
    """Count one more time that a message is consumed later.

    Args:
        properties: those of its letter, as far as they are known.
        delay_ms: after how many milliseconds.

    Returns:
        The letter's properties, and how many times it is by now.

    Raises:
        InvalidUse: the message says something else than a count in `RECONSUMETIMES`.
    """
    times = reconsume_times(properties) + 1
    return {**properties, _TIMES: str(times), "DELAY_TIME": str(delay_ms)}, times


def reconsume_times(properties: Mapping[str, str]) -> int:
    """Tell from a message's properties how often it was consumed later.

    Raises:
        InvalidUse: it says something else than a count in `RECONSUMETIMES`.
    """
    times = properties.get(_TIMES, "0")
    if not (times.isascii() and times.isdigit()):
        raise InvalidUse(f"The message's property {_TIMES} is {times!r}, which is no count. It stays unacknowledged.")
    return int(times)


def check_retry(delay_ms: Any, properties: Any) -> None:
    """Refuse what a letter cannot have.

    Raises:
        InvalidUse: the delay is not a number of milliseconds, or the properties are not texts by texts.
    """
    if type(delay_ms) is not int or not 0 <= delay_ms <= _MOST_MILLIS:
        raise InvalidUse(
            f"delay_ms is expected to be a whole number of milliseconds from 0 to {_MOST_MILLIS}, not {delay_ms!r}."
        )
    if properties is None:
        return
    if not isinstance(properties, dict) or not all(isinstance(one, str) for pair in properties.items() for one in pair):
        raise InvalidUse("properties is expected to be a dict whose keys and values are str, or None.")


_PATIENCE_SECONDS: Final = 1.0
_log = logging.getLogger("pulsar_ext")


class LetterEncryption:
    """Chooses the key of each letter of one consumer.

    Args:
        key: the name of the key that every letter is encrypted with; None for that of its message, if any.
        reader: the `CryptoKeyReader` with the public key; None for the consumer's own.
        own: the consumer's `CryptoKeyReader`, or None.

    Raises:
        InvalidUse: an argument is of another kind, or does not go without another; nothing was opened.
    """

    def __init__(self, key: str | None = None, reader: Any = None, own: Any = None) -> None:
        if key is not None and (not isinstance(key, str) or not key):
            raise InvalidUse(f"letter_encryption_key must be the name of a key, not {key!r}. Nothing was opened.")
        if reader is not None and not isinstance(reader, pulsar.CryptoKeyReader):
            raise InvalidUse(f"letter_crypto_key_reader must be a CryptoKeyReader, not {reader!r}. Nothing was opened.")
        if key is not None and reader is None and own is None:
            raise InvalidUse(
                "letter_encryption_key needs letter_crypto_key_reader, or the consumer's crypto_key_reader, with the "
                "public key. Nothing was opened."
            )
        self._key, self._reader = key, reader or own
        self._must = key is not None or reader is not None
        self._warned = False

    def key_of(self, inner: Any) -> str | None:
        """Return the name of the key that the letter of a C++ message is encrypted with; None for none."""
        if self._key is not None or self._reader is None:
            return self._key
        encryption = inner.encryption_context()
        if encryption is None or encryption.is_decryption_failed():
            return None
        keys = encryption.keys()
        return min((str(one.key) for one in keys), default=None)

    def options(self, key: str | None) -> dict[str, Any]:
        """Return the arguments of the producer of letters that are encrypted with a key."""
        return {} if key is None else {"encryption_key": key, "crypto_key_reader": self._reader}

    @staticmethod
    def refuse_clear(topic: str, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Refuse letters in the clear where the namespace requires encryption: the C++ client would time out.

        Args:
            topic: where they go.
            admin_api: returns the admin API; where that does not say, nothing is refused.

        Raises:
            pulsar.CryptoError: encryption is required; nothing was sent.
        """
        namespace = TopicName.parse(topic).namespace_name
        with contextlib.suppress(AdminError, AdminRequired):
            if admin_api().within(_PATIENCE_SECONDS).policies(namespace).raw.get("encryption_required"):
                raise pulsar.CryptoError(
                    f"Pulsar error: CryptoError: {namespace} requires encryption; the letter to {topic} would be in "
                    "the clear. Nothing was sent; give subscribe() letter_encryption_key and letter_crypto_key_reader."
                )

    def leaves_in_clear(self, topic: str) -> bool:
        """Return if a letter that could not be encrypted is sent in the clear, which is logged once.

        Args:
            topic: where it goes.
        """
        if not self._must and not self._warned:
            self._warned = True
            _log.warning(
                "Letters to %s are sent in the clear, though their messages were encrypted: the consumer's "
                "crypto_key_reader has no public key. Give subscribe() letter_encryption_key and "
                "letter_crypto_key_reader to encrypt them.",
                topic,
            )
        return not self._must


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


_IDLE_SECONDS = 10.0


class DeadLetters:
    """The dead letters of one consumer.

    Args:
        producers: what the letters are sent with.
        policy: the official `ConsumerDeadLetterPolicy`.
        subscription: the consumer's subscription.
        acknowledge: is given each C++ message that is persisted.
        redeliver: is given each that could not be.
        cluster: returns the number of the cluster that messages are received from; neither is given one of another.
    """

    def __init__(
        self,
        producers: LetterProducers,
        policy: Any,
        subscription: str,
        *,
        acknowledge: Callable[[Any], None],
        redeliver: Callable[[Any], None],
        cluster: Callable[[], int] = lambda: 0,
    ) -> None:
        self.max_redeliver_count: int = policy.max_redeliver_count
        self._producers, self._policy, self._subscription = producers, policy, subscription
        self._acknowledge, self._redeliver, self._cluster = acknowledge, redeliver, cluster
        self.tell: Callable[[Any], None] | None = None
        """Hears which C++ messages were acknowledged, because they are letters by now."""
        self._letters: queue.SimpleQueue[tuple[bytes, Any]] = threads.Queue()
        self._on_their_way: set[bytes] = set()
        self._lock = Lock()
        self._has_thread = False
        self._closed = False

    def send(self, inner: Any) -> None:
        """Send a C++ message to the dead letter topic, once, however often it is asked for meanwhile."""
        key = self._cluster_key() + inner.topic_name().encode() + bytes(inner.message_id().serialize())
        with self._lock:
            if self._closed or key in self._on_their_way:
                return
            if not self._has_thread:  # first: where no thread can begin, it is sent the next time
                threads.start(self._run, name="pulsar-ext-dead-letters")
                self._has_thread = True
            self._on_their_way.add(key)
            self._letters.put((key, inner))

    def close(self) -> None:
        """Send no more: what is left stays unacknowledged, and comes again to another consumer."""
        with self._lock:
            self._closed = True
            if self._has_thread:
                self._letters.put((b"", None))  # to wake it

    def _run(self) -> None:
        while True:
            try:
                key, inner = self._letters.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._letters.empty():
                        self._has_thread = False
                        return
                continue
            if self._closed:
                return
            try:
                self._deliver(inner)
            except Exception as error:  # noqa: BLE001  # whatever it was, the message is redelivered
                _log.error(
                    "%r could not be sent to its dead letter topic and is redelivered: %s",
                    from_inner(inner.message_id()),
                    error,
                )
                then = self._redeliver
            else:
                then = self._acknowledge
            try:
                if key.startswith(self._cluster_key()):  # else its id is of another cluster by now
                    then(inner)
                if then is self._acknowledge and self.tell is not None:
                    self.tell(inner)
            except Exception:  # noqa: BLE001  # the other letters still go
                _log.exception("%r is neither acknowledged nor redelivered yet", from_inner(inner.message_id()))
            with self._lock:
                self._on_their_way.discard(key)

    def _cluster_key(self) -> bytes:
        return b"%d " % self._cluster()

    def _deliver(self, inner: Any) -> None:
        topic = inner.topic_name()
        message_id = from_inner(inner.message_id()).to_text()
        self._producers.send_dead(
            self._policy.dead_letter_topic or dead_letter_topic(topic, self._subscription),
            inner,
            origin_properties(inner.properties(), topic, message_id, self._subscription),
            self._subscription,
            self._policy.initial_subscription_name,
        )


class RetryTopics:
    """What a consumer with `enable_retry` reads, and where its letters go.

    Args:
        topic: what `subscribe()` was given.
        subscription: its name.
        policy: the official `ConsumerDeadLetterPolicy`, or None for the default one.
        retry_letter_topic: None for the default one.

    Raises:
        InvalidUse: the topic is a pattern, which names no topic of its own; nothing was opened.
    """

    def __init__(self, topic: Any, subscription: str, policy: Any, retry_letter_topic: str | None) -> None:
        given = [topic] if isinstance(topic, str) else topic
        if not isinstance(given, list) or not given:
            raise InvalidUse("enable_retry needs a topic or a list of topics: a pattern has no name for a retry topic.")
        names = {str(TopicName.parse(one)) for one in given}
        first = min(given)  # Java's consumer keeps the topics sorted
        self.retry = retry_letter_topic or retry_topic(first, subscription)
        self.topics: list[str] = given if str(TopicName.parse(self.retry)) in names else [*given, self.retry]
        """What the consumer reads."""
        known = policy or pulsar.ConsumerDeadLetterPolicy(MAX_RECONSUME_TIMES)
        self.policy = pulsar.ConsumerDeadLetterPolicy(
            known.max_redeliver_count,
            known.dead_letter_topic or dead_letter_topic(first, subscription),
            known.initial_subscription_name,
        )
        """Where what was consumed later too often goes, and after how many times."""


class RetryLetters:
    """The retry letters of one consumer.

    Args:
        producers: what they are sent with.
        topics: where they go.
        subscription: the consumer's.
    """

    def __init__(self, producers: LetterProducers, topics: RetryTopics, subscription: str) -> None:
        self._producers, self._topics, self._subscription = producers, topics, subscription
        self._read = {_parent(topic) for topic in topics.topics}

    def send(self, inner: Any, delay_ms: int, properties: dict[str, str] | None) -> None:
        """Send a C++ message to the retry topic, or to the dead letter topic if it was there often enough.

        Raises:
            InvalidUse: it cannot be counted, or is of a topic that the consumer does not read; nothing was sent.
            pulsar.PulsarException: the letter was not persisted, or nobody knows whether it was.
        """
        letter, times = retried(self._properties(inner, properties), delay_ms)
        if times > self._topics.policy.max_redeliver_count:
            self._send_dead(inner, letter)
        else:
            self._producers.send(self._topics.retry, inner, letter, delay_ms=delay_ms)

    def send_dead(self, inner: Any, properties: dict[str, str] | None) -> None:
        """Send a C++ message to the dead letter topic, however often it came; raises as `send()`."""
        self._send_dead(inner, self._properties(inner, properties))

    def _send_dead(self, inner: Any, letter: dict[str, str]) -> None:
        policy = self._topics.policy
        self._producers.send_dead(
            policy.dead_letter_topic, inner, letter, self._subscription, policy.initial_subscription_name
        )

    def _properties(self, inner: Any, properties: dict[str, str] | None) -> dict[str, str]:
        """Give a letter's properties: the message's own, where it came from, and those that win over them."""
        topic = _parent(inner.topic_name())
        if topic not in self._read:
            raise InvalidUse(
                f"The message is of {topic}, which this consumer does not read: reconsume it with the consumer that "
                "received it. Nothing was sent."
            )
        message_id = from_inner(inner.message_id()).to_text()
        return {**origin_properties(inner.properties(), topic, message_id, self._subscription), **(properties or {})}


class Reconsuming(Acknowledging, ReceivingMany[T]):
    """What a `Consumer` does with messages that are to be consumed later."""

    __slots__ = ()
    _redelivery: Any

    def reconsume_later(self, message: Any, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        """Have one message come again after a delay, as a letter in the retry topic, and acknowledge it.

        It returns when the letter is persisted. A message that was consumed later `max_redeliver_count` times goes to
        the dead letter topic instead. After an error the message is not acknowledged, and may come twice. Java's
        `reconsumeLater`.

        Args:
            message: a received message; of a batch that one message, of a chunked one all of it.
            delay_ms: after how many milliseconds it comes again; on an Exclusive or Failover subscription the broker
                takes no notice of it.
            properties: are added to the message's own, and win over them.

        Raises:
            InvalidUse: the consumer was opened without `enable_retry`, the delay or the properties are not valid, or
                this is a callback of the client's; nothing was sent.
            pulsar.PulsarException: the letter was not persisted, or nobody knows whether it was.
        """
        ours, letters = self._lettered("reconsume_later", message, delay_ms, properties)
        letters.send(ours.inner, delay_ms, properties)
        self.acknowledge(ours)

    def reconsume_later_cumulative(self, message: Any, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        """Have one message come again as `reconsume_later()`, and acknowledge every message up to it and it too.

        Of several topics those of the message's own topic, or partition. Java's `reconsumeLaterCumulative`.

        Raises:
            InvalidUse, pulsar.PulsarException: as `reconsume_later()`.
            pulsar.CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription; nothing was sent.
        """
        if self._splits:
            self.acknowledge_cumulative(message)  # refuses, before anything is sent
        ours, letters = self._lettered("reconsume_later_cumulative", message, delay_ms, properties)
        letters.send(ours.inner, delay_ms, properties)
        self.acknowledge_cumulative(ours)

    def send_dead_letter(self, message: Any, properties: dict[str, str] | None = None) -> None:
        """Have one message go to the dead letter topic at once, and acknowledge it: to try again would not help.

        It returns when the letter is persisted. After an error the message is not acknowledged, and may come twice.

        Args:
            message: a received message; of a batch that one message, of a chunked one all of it.
            properties: are added to the message's own, and win over them.

        Raises:
            InvalidUse, pulsar.PulsarException: as `reconsume_later()`.
        """
        ours, letters = self._lettered("send_dead_letter", message, 0, properties)
        letters.send_dead(ours.inner, properties)
        self.acknowledge(ours)

    @property
    def _has_letters_(self) -> bool:
        """Whether it was opened with `enable_retry=True`."""
        return self._redelivery.retry_letters is not None

    def _lettered(
        self, method: str, message: Any, delay_ms: int, properties: dict[str, str] | None
    ) -> tuple[Message, RetryLetters]:
        """Give a message as one of this consumer's, and what sends its letter, if it can have one."""
        self._context.callbacks.refuse(method)
        self._refuse_closed()
        letters: RetryLetters | None = self._redelivery.retry_letters
        if letters is None:
            raise InvalidUse(f"{method}() needs a consumer that was opened with subscribe(…, enable_retry=True).")
        if not isinstance(message, InnerMessage | pulsar.Message):
            raise InvalidUse(f"{method}() takes a received message, not {type(message).__name__}: an id has no data.")
        check_retry(delay_ms, properties)
        return self._own(message), letters


def _parent(topic: str) -> str:
    return str(TopicName.parse(topic).parent)
