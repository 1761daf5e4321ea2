"""The sender of a batched producer: one message, one and its id, and many at once."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pulsar
import pulsar.schema

from pulsar_ext._native.refusals import check_sequence_id
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.ending import finish_together
from pulsar_ext._wire.batch_payload import NULL_VALUE, key_fields, option_fields
from pulsar_ext.ids.message_id import MessageId

from .batch import Batch
from .options import key_of, named_options, parts_of, rows_of, stands_alone
from .outcome import BulkOutcome, OutcomeWaiter, SentMany
from .sender import HandleSender, check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .dispatch import BatchDispatcher
    from .mixed_keys import MixedKeyCheck
    from .sequence_counter import SequenceNumbers

__all__ = ["BatchingSender"]

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
        if not (args or kwargs) and type(content) is bytes and self._plain and callable(callback):
            dispatch, size = self.dispatch, len(content)
            with dispatch.lock:  # what nearly every message is: it joins a batch that it does not fill
                group, pending, numbers = dispatch.group, dispatch.pending, self.numbers
                items, left = group.only, group.left - size
                if (
                    items is not None
                    and dispatch.inside is None
                    and group.free > 1
                    and left > 0
                    and numbers.steady
                    and pending.accepted - pending.released < pending.limit
                ):
                    # A signal's handler can run only behind a call, so nothing comes between these lines.
                    numbers.last = number = numbers.last + 1
                    group.free -= 1
                    group.left = left
                    pending.accepted += 1
                    items.append((content, callback, number, b"", b""))
                    return
        check_callback(callback)
        options = named_options(args, kwargs) if args or kwargs else _NO_OPTIONS
        if self.dispatch.pending.barred:
            self._check_open(content, options)
            if callback is not None:
                call_back(callback, pulsar.Result.AlreadyClosed, MessageId())
            return
        self.post(content, callback, options)

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
