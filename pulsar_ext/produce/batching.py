"""Senders of batched producers.

`MixedKeyCheck` warns once if a producer mixes keys in its batches while a Key_Shared subscription consumes its topic:
the broker misroutes such messages. It queries the admin API in the background at the first message with a key, and a
later send warns. It does not warn if the query fails.

`SeparatedSender` sends key-value messages with the key as the message key (`KeyValueEncoding.SEPARATED`). Java's client
writes such a key in base64, with a flag that the C++ client can only write for batches built here.
"""

from __future__ import annotations

import inspect
import logging
import operator
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import get_ident
from traceback import walk_stack
from typing import Any, Protocol

import pulsar
import pulsar.schema

from pulsar_ext._native.answer import Answer
from pulsar_ext._native.handles import ProducerHandle, rebuild_message
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import Arguments, check_sequence_id, with_signature_of
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.batch_payload import NULL_VALUE, Base64Key, key_fields, option_fields
from pulsar_ext.errors import AdminNotAllowed, InvalidUse, PulsarExtError
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.schema.key_value import KeyValueSchema

from .batch import Batch, BatchingConfig, are_plain
from .core import joining
from .dispatch import Dispatcher
from .options import Columns, Options, SequenceCounter, is_single_entry, key_of, named_options, parts_of
from .outcome import BulkOutcome, OutcomeWaiter, SentMany
from .sender import Sender, WrappingSender, check_callback, close_quietly, post_each

_log = logging.getLogger("pulsar_ext")
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class MixedKeyBatchWarning(UserWarning):
    """A batched producer mixes keys in its batches, and consumers share its topic by key."""


class HasTopic(Protocol):
    """An official producer, or a sender: the warning names its topic."""

    def topic(self) -> str:
        """Return the topic's name."""
        ...


class MixedKeyCheck:
    """Warns about messages with a key if the producer's batches mix keys."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._shared: list[bool] | None = None
        """Whether a Key_Shared subscription exists: empty until the answer arrives, None before the query."""

    def check(self, options: Options, producer: HasTopic) -> MixedKeyCheck | None:
        """Check the options of a message; return the check for the next one, or None if no further check is needed."""
        if options.get("partition_key") is None and options.get("ordering_key") is None:
            return self
        topic = str(TopicName.parse(producer.topic()).parent)
        if self._shared is None:
            self._shared = shared = []
            self._context.inquiries.run(lambda: shared.append(_is_shared_by_key(self._context, topic)))
            return self
        if not self._shared:
            return self
        if self._shared[0]:
            self._shared = [False]  # first, because a warning may be raised as an error
            warnings.warn(
                f"The producer on {topic} mixes keys in its batches, but the topic has a Key_Shared "
                "subscription: the broker routes a batch by its first key, so consumers get messages of other "
                "consumers' keys. Create the producer with batching_type=BatchingType.KeyBased.",
                MixedKeyBatchWarning,
                stacklevel=_levels_to_application(),
            )
        return None


def mixed_key_check(named: Arguments, context: ClientContext) -> MixedKeyCheck | None:
    """Return the check for a producer with these official arguments, or None if its batches do not mix keys."""
    mixes = named["batching_enabled"] is True and named["batching_type"] != pulsar.BatchingType.KeyBased
    return MixedKeyCheck(context) if mixes else None


def _is_shared_by_key(context: ClientContext, topic: str) -> bool:
    """Return whether a topic has a Key_Shared subscription; False if the query fails."""
    try:
        admin = context.admin_api()
        try:
            stats = admin.stats(topic)
        except AdminNotAllowed:  # the topic is partitioned
            stats = admin.partitioned_stats(topic).total
    except PulsarExtError as error:
        _log.debug("Could not query whether %s has a Key_Shared subscription: %s", topic, error)
        return False
    return any(subscription.type == "Key_Shared" for subscription in stats.subscriptions.values())


def _levels_to_application() -> int:
    """Count the stack frames of this package, so that the warning names the application's line."""
    files = (frame.f_code.co_filename for frame, _ in walk_stack(inspect.currentframe()))
    return sum(1 for _ in takewhile(lambda file: file.startswith(_PACKAGE), files))


_NO_OPTIONS: Options = {}


class BatchingSender(Dispatcher):
    """Sends batches built in Python to a non-partitioned topic or one partition."""

    whole_batch_columns = frozenset[str]()
    """The `send_many` columns that still allow pushing whole batches."""
    many_in_flight = None
    """A patient send waits for room."""
    always_waits = False
    """Whether a send waits for room even without `block_if_queue_full`."""

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        counter: SequenceCounter,
    ) -> None:
        super().__init__(handle, context, config)
        self.counter = counter
        mixes_keys = config.batched and not config.by_key and config.partition <= 0  # the first partition is enough
        self._mixed_keys = MixedKeyCheck(context) if mixes_keys else None
        self.takes_bytes = type(handle.schema) is pulsar.schema.BytesSchema
        """Whether messages are bytes, which need no encoding."""

    def send(self, content: object, *args: object, **kwargs: object) -> MessageId:
        """Send a message together with its open batch, and wait until it is persisted."""
        self.context.callbacks.raise_inside("send")
        options = named_options(args, kwargs)
        if self.pending.barred:
            self._check_open(content, options)
            raise_result(pulsar.Result.AlreadyClosed)
        self.raise_if_inside("send")
        waiter: OutcomeWaiter[MessageId] = OutcomeWaiter()
        self.post(content, waiter, options, patient=False)
        self.push()
        return waiter.wait(options.get("sequence_id"))

    @with_signature_of(pulsar.Producer.send_async)
    def send_async(self, content: object, callback: SendCallback | None, *args: object, **kwargs: object) -> None:
        """Send a message; `callback(result, message_id)` is called when it is persisted or has failed."""
        check_callback(callback)
        options = named_options(args, kwargs) if args or kwargs else _NO_OPTIONS
        if self.pending.barred:
            self._check_open(content, options)
            if callback is not None:
                call_back(callback, pulsar.Result.AlreadyClosed, MessageId())
            return
        self.post(content, callback, options, patient=False)

    def joining(self) -> Callable[..., None]:
        """Return the `send_async` to use; with the native core, plain messages join the open batch in C++."""
        return joining(self.send_async, self, self.counter) if self.takes_bytes else self.send_async

    def send_many(self, contents: Iterable[object], columns: Columns, *, flush: bool) -> SentMany:
        """Send many messages without a callback for each, and wait for room; the fastest way to send."""
        self.raise_if_closed()
        self.raise_if_inside("send_many")
        outcome = BulkOutcome()
        if columns.keys() <= self.whole_batch_columns:
            count = self._send_in_whole_batches(contents, columns.get("sequence_id"), outcome)
        else:
            count = post_each(self, contents, columns, outcome)
        if flush:
            self.push()
        return outcome.sent(count, wait=flush)

    def _check_open(self, content: object, options: Options) -> None:
        """Raise the official error for bad arguments, or the error of a producer inherited across a fork."""
        message = self.handle.build(content, **options)
        if not self.closed:
            self.handle.inner.send(message)

    def post(self, content: object, callback: SendCallback | None, options: Options, *, patient: bool = True) -> None:
        """Add a message to its batch; if not `patient`, wait for room only with `block_if_queue_full`."""
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        patient = patient or self.always_waits
        thread = get_ident()
        if not self.config.batched or (options and is_single_entry(options)):
            self.check_mixed_keys(options)
            self.exclusively(self._post_alone, content, callback, options, patient)
            return
        if options or content is None:
            data, fields, keys = self.encode(content, options)
        else:
            data, fields, keys = self.handle.schema.encode(content), b"", b""
        if type(data) is not bytes:
            self.handle.build(content)  # raises the official error
        with self.lock:  # `exclusively` inlined, to save a call for each message
            if self.inside is not None:
                self.deferred.append(partial(self._join, given, callback, options, patient, (data, fields, keys)))
                return
            self.inside = thread
            try:
                self._join(given, callback, options, patient, (data, fields, keys))
                if self.deferred:
                    self.run_deferred()
            finally:
                self.inside = None

    def _join(
        self,
        given: int | None,
        callback: SendCallback | None,
        options: Options,
        patient: bool,
        written: tuple[bytes, bytes, bytes],
    ) -> None:
        if self.pending.has_room() or self.make_room(callback, patient=patient):
            sequence_id = self.admit(given, callback)
            if sequence_id is not None:
                data, fields, keys = written
                self.join(key_of(options), (data, callback, sequence_id, fields, keys))

    def _post_alone(self, content: object, callback: SendCallback | None, options: Options, patient: bool) -> None:
        given = options.get("sequence_id")
        if self.pending.has_room() or self.make_room(callback, patient=patient):
            upcoming = self.counter.upcoming if given is None else given
            message = self.handle.build(content, **{**options, "sequence_id": upcoming})
            sequence_id = self.admit(given, callback)
            if sequence_id is not None:
                batch = Batch.alone(message, callback, sequence_id)
                batch.options = options
                self.push_whole(batch)

    def admit(self, given: int | None, callback: SendCallback | None) -> int | None:
        """Return the sequence id of the next message; None if it is not sent and is reported. The lock is held."""
        del callback
        counter = self.counter
        sequence_id = counter.upcoming if given is None else given
        counter.last = max(counter.last, sequence_id)
        return sequence_id

    def admit_many(self, count: int, given: Sequence[int | None] | None) -> Sequence[int] | None:
        """Return the sequence ids of `count` messages; None if they must be admitted one by one."""
        return self.counter.admit_many(count) if given is None else None

    def encode(self, content: object, options: Options) -> tuple[bytes, bytes, bytes]:
        """Encode a message's payload, its option fields and its key fields."""
        self.check_mixed_keys(options)
        if not are_plain(options):
            self.handle.build(content, **options)  # raises the official error
        if content is None:
            return b"", NULL_VALUE + option_fields(options), key_fields(options)
        return self.handle.schema.encode(content), option_fields(options), key_fields(options)

    def check_mixed_keys(self, options: Options) -> None:
        """Warn if this is the first message with a key, and batches mix keys."""
        if self._mixed_keys is not None:
            self._mixed_keys = self._mixed_keys.check(options, self)

    def _send_in_whole_batches(
        self, contents: Iterable[object], sequence_ids: Iterable[int | None] | None, outcome: BulkOutcome
    ) -> int:
        """Send without callbacks, in whole batches if possible; return the number of messages."""
        count = 0
        for part, ids in parts_of(contents, sequence_ids, self.max_whole_batch):
            data = self._whole(part)
            if data is None or not self.push_whole_batch(len(data), ids, partial(Batch.of, data, outcome)):
                for index, content in enumerate(part):
                    self.post(content, outcome.one, {} if ids is None else {"sequence_id": ids[index]})
            count += len(part)
        return count

    def _whole(self, contents: list[object]) -> list[bytes] | None:
        """Encode a whole batch; return None if the messages must be posted one by one."""
        encode = self.handle.schema.encode
        try:
            data: list[Any] = [encode(content) if content is not None else None for content in contents]
        except Exception:  # noqa: BLE001  # raised again by `post`, after the messages before it are sent
            return None
        if self.config.by_key or not all(type(one) is bytes for one in data):
            return None
        return data if sum(map(len, data)) <= self.config.bounds.size else None

    @property
    def max_whole_batch(self) -> int:
        """The maximum size of a whole batch: at most half of the queue, so that pushes overlap."""
        most, limit = self.config.bounds.messages, self.config.limit
        return min(most, max(1, limit // 2)) if limit else most

    def push_whole_batch(
        self, count: int, sequence_ids: Sequence[int | None] | None, make: Callable[[Sequence[int]], Batch]
    ) -> bool:
        """Push a whole batch, after waiting for room; return False if it cannot be pushed, and nothing was done."""
        if not self.config.batched:
            return False
        self.raise_if_inside("send_many")
        return bool(self.exclusively(self._push_whole_batch, count, sequence_ids, make))

    def _push_whole_batch(
        self, count: int, sequence_ids: Sequence[int | None] | None, make: Callable[[Sequence[int]], Batch]
    ) -> bool:
        while not self.pending.has_room(count):
            self.raise_if_closed()
            self.push_open()
            self.unlocked(self.pending.wait_for, lambda: self.pending.barred or self.pending.has_room(count))
        ids = self.admit_many(count, sequence_ids)
        if ids is None:
            return False
        self.push_whole(make(ids))
        return True


def rebuilt_message(batch: Batch) -> InnerMessage:
    """Return a new C++ message for a batch: a message that was sent cannot be sent again."""
    if batch.message is None:
        return batch.entry()
    return rebuild_message(batch.message, batch.options, batch.ids[0])


class ReplacingSender(BatchingSender, ABC):
    """A `BatchingSender` that can replace its C++ producer and resend the batches without an outcome."""

    replacing = False
    """Whether the C++ producer is closed, and the next one is being opened."""

    @abstractmethod
    def reopen(self) -> pulsar.Producer:
        """Open an official producer of the topic, as soon as the broker allows it."""

    @abstractmethod
    def give_up(self, error: BaseException) -> None:
        """Fail the batches in flight: no other producer could be opened."""

    def replace(self) -> None:
        """Replace the C++ producer and resend the batches without an outcome; runs on its own thread."""
        try:
            close_quietly(self.inner)
            official = self.reopen()
        except BaseException as error:  # noqa: BLE001  # the senders must get an outcome
            self.give_up(error)
            return
        if not self.exclusively(self._install, official):
            close_quietly(official)
            self.fail_waiting()

    def _install(self, official: pulsar.Producer) -> bool:
        """Use another producer, and resend; return False if sending is not allowed. The lock is held."""
        if self.closed or self.pending.barred or not self.may_push():
            return False
        self.handle.replace(official)
        self.replacing = False
        for batch in list(self._in_flight):
            is_pushed = not operator.length_hint(batch.unsent or (None,))
            if is_pushed:  # otherwise a signal handler interrupted its push, which follows
                self.resend(batch)
        self._push_groups()
        return True

    def resend(self, batch: Batch) -> None:
        """Resend a batch; the lock is held."""
        message = rebuilt_message(batch)
        if batch.message is not None:
            batch.message = message
        self.handle.inner.send_async(message, partial(self.on_outcome, batch))

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails the messages in flight, and those waiting for a replacement."""
        answer = super().begin_close()
        if self.replacing:
            self.fail_waiting()
        return answer

    def fail_waiting(self) -> None:
        """Fail the messages that wait for a replacement producer."""
        self.replacing = False
        self.fail_pending()


def batching_for_keys(named: Arguments) -> Arguments:
    """Return the arguments of a producer with separated keys: batched, with one key a batch if batching was off."""
    if named["chunking_enabled"]:
        raise InvalidUse("Separated keys cannot be sent in chunks: use KeyValueEncoding.INLINE. Nothing was opened.")
    if named["batching_enabled"]:
        return named
    by_key = {"batching_type": pulsar.BatchingType.KeyBased, "batching_max_publish_delay_ms": 1}
    return {**named, "batching_enabled": True, "lazy_start_partitioned_producers": False, **by_key}


class SeparatedSender(WrappingSender):
    """Sends key-value messages with the key as the message key."""

    def __init__(self, sender: Sender, schema: KeyValueSchema[object, object]) -> None:
        super().__init__(sender)
        self._schema = schema

    def send(self, content: object, *args: object, **kwargs: object) -> MessageId:
        """Send a message and wait for its outcome."""
        payload, options = self._with_key(content, named_options(args, kwargs))
        return self._sender.send(payload, **options)

    @with_signature_of(pulsar.Producer.send_async)
    def send_async(self, content: object, callback: SendCallback | None, *args: object, **kwargs: object) -> None:
        """Send a message; `callback(result, message_id)` is called when it is persisted or has failed."""
        payload, options = self._with_key(content, named_options(args, kwargs))
        self._sender.send_async(payload, callback, **options)

    def post(self, content: object, callback: SendCallback, options: Options) -> None:
        """Send one message of `send_many`."""
        payload, options = self._with_key(content, options)
        self._sender.post(payload, callback, options)

    def _with_key(self, content: object, options: Options) -> tuple[object, Options]:
        """Return the payload of a key-value message, None for a None value as in Java's client, and the options."""
        if not isinstance(content, tuple) or len(content) != 2:  # noqa: PLR2004  # a key and a value
            raise InvalidUse(
                f"{content!r} is not a key and value: pass KeyValue(key, value), or KeyValue(key, None), which "
                "compaction treats as a tombstone of the key. Nothing was sent."
            )
        if options.get("partition_key") is not None or is_single_entry(options):
            raise InvalidUse(
                "A message with a separated key takes no partition_key, delay or replication options. Nothing was sent."
            )
        key = Base64Key.of(self._schema.key.encode(content[0]))
        return None if content[1] is None else content, {**options, "partition_key": key}
