"""The senders of batched producers: one message, one and its id, and many at once.

`MixedKeyCheck` warns once that a producer's batches mix keys while consumers share its topic by key: messages are
misrouted there. It asks the admin API in the background, at the first message with a key; a later send warns. Without
an answer there is no warning.

`SeparatedSender` is for keys and values whose keys are not in the payload: it makes them the messages' keys. Java's
client writes such a key as base64, with a flag. The C++ client cannot write that flag, but for messages of batches that
are written here.
"""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from functools import partial
from itertools import tee
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

import pulsar
import pulsar.schema

from pulsar_ext._native.refusals import check_sequence_id
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.ending import finish_together
from pulsar_ext._wire.batch_payload import NULL_VALUE, Base64Key, key_fields, option_fields
from pulsar_ext.errors import AdminNotAllowed, InvalidUse, PulsarExtError
from pulsar_ext.ids.message_id import MessageId

from .batch import Batch
from .core import joining
from .options import key_of, named_options, parts_of, rows_of, stands_alone
from .outcome import BulkOutcome, OutcomeWaiter, SentMany
from .sender import HandleSender, WrappingSender, check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import FrameType

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.schema.key_value import KeyValueSchema

    from .dispatch import BatchDispatcher
    from .options import SequenceNumbers
    from .sender import Sender


_log = logging.getLogger("pulsar_ext")
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class MixedKeyBatchWarning(UserWarning):
    """A batched producer mixes keys in its batches, and consumers share its topic by key."""


class Named(Protocol):
    """What the warning names: an official producer, or a sender."""

    def topic(self) -> str:
        """Give the topic's name."""
        ...


class MixedKeyCheck:
    """Looks for messages with a key among those of a producer whose batches mix keys.

    Args:
        context: of the client.
    """

    __slots__ = ("_context", "_shared")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._shared: list[bool] | None = None
        """Whether a Key_Shared subscription is there: empty while that is not known, None before it is asked."""

    def look(self, options: dict[str, Any], producer: Named) -> MixedKeyCheck | None:
        """Look at the options of a message; give what looks at the next one, None once there is no more to say."""
        if options.get("partition_key") is None and options.get("ordering_key") is None:
            return self
        if self._shared is None:
            self._shared = shared = []
            topic = producer.topic()
            self._context.inquiries.run(lambda: shared.append(_is_shared_by_key(self._context, topic)))
            return self
        if not self._shared:
            return self
        if self._shared[0]:
            self._shared = [False]  # first, because a warning may be raised as an error
            _warn(producer.topic())
        return None


def mixed_key_check(named: dict[str, Any], context: ClientContext) -> MixedKeyCheck | None:
    """Give the check for a producer of these official arguments, None if its batches do not mix keys."""
    mixes = named["batching_enabled"] is True and named["batching_type"] != pulsar.BatchingType.KeyBased
    return MixedKeyCheck(context) if mixes else None


def _is_shared_by_key(context: ClientContext, topic: str) -> bool:
    """Ask whether a topic, or a topic with partitions, has a Key_Shared subscription; no answer counts as no."""
    try:
        admin = context.admin_api()
        try:
            stats = admin.stats(topic)
        except AdminNotAllowed:  # it has partitions
            stats = admin.partitioned_stats(topic).total
    except PulsarExtError as error:
        _log.debug("Whether %s is shared by key could not be found out: %s", topic, error)
        return False
    return any(one.type == "Key_Shared" for one in stats.subscriptions.values())


def _warn(topic: str) -> None:
    warnings.warn(
        f"A producer on {topic} sends messages with keys in batches that mix keys, and consumers share this topic by "
        "key. The broker gives a whole batch to the consumer that has the key of its first message, so consumers get "
        "messages of other consumers' keys. Create the producer with batching_type=BatchingType.KeyBased.",
        MixedKeyBatchWarning,
        stacklevel=_levels_to_application(),
    )


def _levels_to_application() -> int:
    """Count the calls between the application's line and the caller of this function, for the warning to name it."""
    frame: FrameType | None = inspect.currentframe()
    level = 0
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


_NO_OPTIONS: dict[str, Any] = {}


class BatchingSender(HandleSender):
    """Sends in batches of its own, on a topic without partitions or on one partition.

    Args:
        dispatch: the batches.
        numbers: gives the sequence ids.
        mixed_keys: looks for the first message with a key, if batches mix keys.
    """

    __slots__ = ("_mixed_keys", "_plain", "config", "dispatch", "numbers")

    many_at_once = frozenset[str]()
    """Which columns of `send_many` go with whole batches at once."""
    many_in_flight = None
    """A send that is patient waits for room."""
    waits = False
    """Whether a send waits for room in any case, and not only where the producer blocks."""

    def __init__(
        self, dispatch: BatchDispatcher, numbers: SequenceNumbers, *, mixed_keys: MixedKeyCheck | None
    ) -> None:
        super().__init__(dispatch.handle, dispatch.context)
        self.dispatch = dispatch
        self.config = dispatch.config
        self.numbers = numbers
        self._mixed_keys = mixed_keys
        self._plain = type(dispatch.handle.schema) is pulsar.schema.BytesSchema

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.dispatch.closed

    # Sending

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message, with what its batch holds by now, and wait until it is persisted.

        Raises:
            DuplicateMessage: with deduplication, the topic holds it already.
        """
        self.context.callbacks.refuse("send")
        options = named_options(args, kwargs)
        if self.dispatch.pending.barred:
            self._check_open(content, options)
            raise_result(pulsar.Result.AlreadyClosed)
        self.dispatch.refuse_inside("send")
        waiter = OutcomeWaiter()
        self.post(content, waiter, options)
        self.dispatch.push()
        return waiter.wait(options.get("sequence_id"))

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        check_callback(callback)
        options = named_options(args, kwargs) if args or kwargs else _NO_OPTIONS
        if self.dispatch.pending.barred:
            self._check_open(content, options)
            if callback is not None:
                call_back(callback, pulsar.Result.AlreadyClosed, MessageId())
            return
        self.post(content, callback, options)

    def joining(self) -> Callable[..., None]:
        """Return what a producer's `send_async` is: with the native core a plain message joins the open batch there."""
        return joining(self.send_async, self.dispatch, self.numbers) if self._plain else self.send_async

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, without a callback for each; the fastest way to send.

        Waits for room where the queue is full, also without `block_if_queue_full`.
        """
        self.dispatch.refuse_closed()
        self.dispatch.refuse_inside("send_many")
        outcome = BulkOutcome()
        if columns.keys() <= self.many_at_once:
            taken = self._send_at_once(contents, columns.get("sequence_id"), outcome)
        else:
            taken = 0
            for content, options in rows_of(contents, columns):
                self.post(content, outcome.one, options, patient=True)
                taken += 1
        if flush:
            self.complete(outcome, taken)
        return SentMany(taken, outcome.duplicates, outcome.last)

    def complete(self, outcome: BulkOutcome, count: int) -> None:
        """Push what batches hold, and wait until so many messages have an outcome.

        Raises:
            pulsar.PulsarException: the error of the first message that failed.
        """
        self.dispatch.push()
        self.dispatch.pending.wait_for(lambda: outcome.done >= count)
        outcome.raise_failure()

    def _check_open(self, content: Any, options: dict[str, Any]) -> None:
        """Raise what the official client raises for bad arguments, or what a producer inherited by a fork raises."""
        message = self.handle.build(content, **options)
        if not self.closed:
            self.handle.inner.send(message)

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Put a message into its batch.

        Args:
            content: its value.
            callback: is called with its outcome.
            options: the official arguments, by name.
            patient: whether to wait for room in any case.
        """
        given = options.get("sequence_id")
        if given is not None:
            check_sequence_id(given)
        patient = patient or self.waits
        dispatch, thread = self.dispatch, get_ident()
        if not self.config.batched or (options and stands_alone(options)):
            self.look_at_keys(options)
            dispatch.exclusively(self._post_alone, content, callback, options, patient)
            return
        if options or content is None:
            data, fields, keys = self.encode(content, options)
        else:
            data, fields, keys = self.handle.schema.encode(content), b"", b""
        if type(data) is not bytes:
            self.handle.build(content)  # raises what the official client raises
        with dispatch.lock:  # as `exclusively` does, which would cost each message one call more
            if dispatch.inside is not None:
                dispatch.deferred.append(partial(self._join, given, callback, options, patient, (data, fields, keys)))
                return
            dispatch.inside = thread
            try:
                self._join(given, callback, options, patient, (data, fields, keys))
                if dispatch.deferred:
                    dispatch.run_deferred()
            finally:
                dispatch.inside = None

    def _join(
        self,
        given: int | None,
        callback: SendCallback | None,
        options: dict[str, Any],
        patient: bool,
        written: tuple[bytes, bytes, bytes],
    ) -> None:
        """Put a message that is written into its batch."""
        dispatch = self.dispatch
        if dispatch.pending.has_room() or dispatch.make_room(callback, patient=patient):
            number = self.admit(given, callback)
            if number is not None:
                data, fields, keys = written
                dispatch.join(key_of(options), (data, callback, number, fields, keys))

    def _post_alone(self, content: Any, callback: SendCallback | None, options: dict[str, Any], patient: bool) -> None:
        """Push a message as an entry of its own."""
        given, dispatch = options.get("sequence_id"), self.dispatch
        if dispatch.pending.has_room() or dispatch.make_room(callback, patient=patient):
            upcoming = self.numbers.upcoming if given is None else given
            message = self.handle.build(content, **{**options, "sequence_id": upcoming})
            number = self.admit(given, callback)
            if number is not None:
                dispatch.push_alone(message, callback, (number,), options)

    def admit(self, given: int | None, callback: SendCallback | None) -> int | None:
        """Decide about the next message; the lock is held.

        Args:
            given: its sequence id, None for the next automatic one.
            callback: of the message.

        Returns:
            Its sequence id; None if the message is not to be sent, and its outcome is cared for.
        """
        del callback
        numbers = self.numbers
        number = numbers.upcoming if given is None else given
        numbers.last = max(numbers.last, number)
        return number

    def admit_many(self, count: int, given: Sequence[int] | None) -> Sequence[int] | None:
        """Give the sequence ids of so many messages at once; None if they have to be admitted one by one."""
        if given is not None:
            return None
        first = self.numbers.upcoming
        self.numbers.last = first + count - 1
        return range(first, first + count)

    def encode(self, content: Any, options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Write a message's payload, what it has besides, and its keys.

        Raises:
            TypeError: as officially, for an argument that the official client does not take.
        """
        self.look_at_keys(options)
        if not self.config.takes(options):
            self.handle.build(content, **options)
        if content is None:
            return b"", NULL_VALUE + option_fields(options), key_fields(options)
        return self.handle.schema.encode(content), option_fields(options), key_fields(options)

    def look_at_keys(self, options: dict[str, Any]) -> None:
        """Warn if this is the first message with a key, and batches mix keys."""
        if self._mixed_keys is not None:
            self._mixed_keys = self._mixed_keys.look(options, self)

    # Whole batches at once

    def _send_at_once(self, contents: Iterable[Any], sequence_ids: Iterable[Any] | None, outcome: BulkOutcome) -> int:
        """Send without callbacks, in whole batches where that is possible; give how many."""
        taken = 0
        for part, numbers in parts_of(contents, sequence_ids, self.most_at_once):
            data = self._whole(part)
            if data is None or not self.push_at_once(len(data), numbers, partial(Batch.of, data, outcome)):
                for index, content in enumerate(part):
                    options = {} if numbers is None else {"sequence_id": numbers[index]}
                    self.post(content, outcome.one, options, patient=True)
            taken += len(part)
        return taken

    def _whole(self, contents: list[Any]) -> list[bytes] | None:
        """Encode what may be one batch; None if it is to go one by one, as far as the first that cannot be encoded."""
        encode = self.handle.schema.encode
        try:
            data: list[Any] = [encode(content) if content is not None else None for content in contents]
        except Exception:  # noqa: BLE001  # it is raised again where what came before is sent
            return None
        if self.config.by_key or not all(type(one) is bytes for one in data):
            return None
        return data if sum(map(len, data)) <= self.config.bounds.size else None

    @property
    def most_at_once(self) -> int:
        """How many messages a batch of `push_at_once` may have: not so many that it has to wait for an empty queue."""
        most, limit = self.config.bounds.messages, self.config.limit
        return min(most, max(1, limit // 2)) if limit else most

    def push_at_once(self, count: int, numbers: Sequence[int] | None, make: Callable[[Sequence[int]], Batch]) -> bool:
        """Push a whole batch, once there is room for it.

        Args:
            count: how many messages it has.
            numbers: their sequence ids; None for this sender's own.
            make: makes the batch of its sequence ids.

        Returns:
            False if that is not possible, and nothing was done.
        """
        if not self.config.batched:
            return False
        self.dispatch.refuse_inside("send_many")
        return bool(self.dispatch.exclusively(self._push_at_once, count, numbers, make))

    def _push_at_once(self, count: int, numbers: Sequence[int] | None, make: Callable[[Sequence[int]], Batch]) -> bool:
        self.await_room(count)
        ids = self.admit_many(count, numbers)
        if ids is None:
            return False
        self.dispatch.push_whole(make(ids))
        return True

    def await_room(self, count: int) -> None:
        """Wait for room for so many messages; the lock is held once."""
        dispatch = self.dispatch
        while not dispatch.pending.has_room(count):
            dispatch.refuse_closed()
            dispatch.push_open()
            dispatch.unlocked(
                dispatch.pending.wait_for, lambda: dispatch.pending.barred or dispatch.pending.has_room(count)
            )

    # The end

    def flush(self) -> None:
        """Push the open batches and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message that was sent since the last flush has failed; the first one's error.
        """
        self.dispatch.flush()

    def finish(self, deadline: float) -> None:
        """Close, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds."""
        finish_together([self.dispatch], deadline)


def batching_for_keys(named: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments of a producer with separated keys: it has batches, if need be of one key each.

    Raises:
        InvalidUse: it is to send in chunks.
    """
    if named["chunking_enabled"]:
        raise InvalidUse("Separated keys cannot be sent in chunks: use KeyValueEncoding.INLINE. Nothing was opened.")
    if named["batching_enabled"]:
        return named
    by_key = {"batching_type": pulsar.BatchingType.KeyBased, "batching_max_publish_delay_ms": 1}
    return {**named, "batching_enabled": True, "lazy_start_partitioned_producers": False, **by_key}


def _column(rows: Iterable[tuple[Any, dict[str, Any]]], name: str) -> Iterable[Any]:
    return (options[name] for _, options in rows)


class SeparatedSender(WrappingSender):
    """Gives messages their keys.

    Args:
        sender: sends them.
        schema: makes keys of values.
    """

    def __init__(self, sender: Sender, schema: KeyValueSchema[Any, Any]) -> None:
        super().__init__(sender)
        self._schema = schema

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait for its outcome."""
        options = self._with_key(content, named_options(args, kwargs))
        return self._sender.send(_payload(content), **options)

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        options = self._with_key(content, named_options(args, kwargs))
        self._sender.send_async(_payload(content), callback, **options)

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> None:
        """Send one of many."""
        options = self._with_key(content, options)
        self._sender.post(_payload(content), callback, options, patient=patient)

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, and with `flush` wait until all of them are persisted."""
        names = (*columns, "partition_key")
        rows = tee(
            ((content, self._with_key(content, options)) for content, options in rows_of(contents, columns)),
            1 + len(names),
        )
        keyed = {name: _column(column, name) for name, column in zip(names, rows[1:], strict=True)}
        return self._sender.send_many((_payload(content) for content, _ in rows[0]), keyed, flush=flush)

    def _with_key(self, content: Any, options: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(content, tuple) or len(content) != 2:  # noqa: PLR2004  # a key and a value
            raise InvalidUse(
                f"{content!r} is no key and value: give KeyValue(key, value), or KeyValue(key, None), which compaction "
                "takes for the end of the key. Nothing was sent."
            )
        if options.get("partition_key") is not None or stands_alone(options):
            raise InvalidUse(
                "A message with a separated key has no other partition_key, and is not delayed or replicated by itself."
            )
        return {**options, "partition_key": Base64Key.of(self._schema.key.encode(content[0]))}


def _payload(content: Any) -> Any:
    """Give what is sent of a key and a value: nothing if the value is None, as Java's client does."""
    return None if content[1] is None else content
