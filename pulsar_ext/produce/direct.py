"""Senders without batches of their own: each message goes to the C++ producer directly. Mirrors Java's `ProducerImpl`.

`DirectSender` leaves batching, if enabled, to the official client.

`ResendingSender` sends chunked messages without deduplication, and loses none if the connection is lost during one. The
C++ producer resends unacknowledged chunks one by one, under the same producer name. If the broker had stored some of
them before, those chunks are on the topic twice, and consumers of the C++ client then drop the whole message although
it was confirmed. The same happens to a message whose producer name and sequence id were used by a process that was
killed while sending. So the C++ producer is closed before it can resend, and another one with another name resends
every message without an outcome, in order and from the first chunk. As with the official client, a complete message may
be on the topic twice if its receipt was lost.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from typing import Any, Final

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import Answer, answered_within
from pulsar_ext._native.fork import closed, refuse_after_fork
from pulsar_ext._native.handles import ProducerHandle, build_plain
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerMessage, InnerMessageId, InnerProducer
from pulsar_ext._native.results import UNREACHABLE, Result, raise_result, result_of
from pulsar_ext._native.signatures import with_signature_of
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.condition import Flag, raise_if_interrupting
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.retry import retry
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.ids.message_id import MessageId, plain_from_inner

from .batch import Batch, BatchingConfig
from .batching import MixedKeyCheck, ReplacingSender
from .options import Columns, Options, SendTiming, SequenceCounter, named_options
from .outcome import BulkOutcome, OutcomeWaiter, PendingMessages, SentMany
from .sender import HandleSender, check_callback, post_each

_CLOSED: Final = pulsar.Result.AlreadyClosed
_NO_CALLBACK: Any = None
"""Accepted by the binding in place of any callback."""
_POLL_SECONDS = 0.001
_LEAVING_SECONDS = 0.05
"""Maximum wait for threads inside the C++ producer whose outcome may never come."""
_ENTERING_SECONDS = 5.0
"""Maximum wait for threads inside the C++ producer that do not wait for an outcome."""

_NO_ID: Final = InnerMessageId(-1, -1, -1, -1)

_unflushed: set[DirectSender] = set()
"""Senders with unflushed messages, kept alive: the messages would be lost with a collected sender."""


class _WithPermits(dict[int, SendCallback | None]):
    """Callbacks of messages within a limit: removing one releases its permit."""

    def __init__(self, limit: PendingMessages) -> None:
        super().__init__()
        self._limit = limit

    def pop(self, number: int, default: object = None) -> Any:
        """Remove and return the callback of a message, and release its permit; return the default if it is missing."""
        callback = super().pop(number, self)
        if callback is self:
            return default
        self._limit.release(1)
        return callback


class DirectSender(HandleSender):
    """Sends messages one by one.

    A `limit` bounds the pending messages instead of the official queue, in which a send may otherwise wait for room
    (`may_block_inside`).
    """

    many_in_flight = 500
    """Half of the official queue's default."""

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        *,
        limit: PendingMessages | None,
        may_block_inside: bool,
        mixed_keys: MixedKeyCheck | None,
        timing: SendTiming | None,
    ) -> None:
        super().__init__(handle, context)
        self._limit, self._may_block_inside = limit, may_block_inside
        self._mixed_keys, self._timing = mixed_keys, timing
        self.closed = self._finished = self._unflushed = False
        self._timeout_unwatched = timing is not None
        """Whether the send timeout is not watched yet; the next message starts the watch."""
        # The threads inside the C++ producer, for which a close waits: those that send, wait for an outcome, or flush.
        self._inside: list[int] = []
        self._waiting: list[int] = []
        self._flushing: list[int] = []
        self._flush_lock = OwnedLock()
        self._unanswered: dict[int, SendCallback | None] = {} if limit is None else _WithPermits(limit)
        """The callbacks of messages without an outcome, by number."""
        self._numbers = itertools.count()
        self._report = context.callbacks.reporter(self._unanswered, plain_from_inner, self._inside)
        refuse_after_fork(self, "Producer")
        context.senders.add(self)

    def send(self, content: object, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait until it is persisted."""
        self.context.callbacks.raise_inside("send")
        if self._mixed_keys is not None:
            self._mixed_keys = self._mixed_keys.check(named_options(args, kwargs), self)
        message = self.handle.build(content, *args, **kwargs)
        limit, thread = self._limit, get_ident()
        self._waiting.append(thread)
        try:
            if self.closed:
                raise_result(_CLOSED)
            if self._timeout_unwatched:
                self._watch_timeout()
            if limit is None:
                return plain_from_inner(self.handle.inner.send(message))
            waiter: OutcomeWaiter[MessageId] = OutcomeWaiter()
            self._send_within(limit, message, waiter)
            return waiter.wait(None)
        except pulsar.Interrupted:
            if self.closed:  # closed while it waited for room
                raise_result(_CLOSED)
            raise
        finally:
            self._waiting.remove(thread)

    @with_signature_of(pulsar.Producer.send_async)
    def send_async(self, content: object, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message; `callback(result, message_id)` is called when it is persisted or has failed."""
        check_callback(callback)
        if self._mixed_keys is not None:
            self._mixed_keys = self._mixed_keys.check(named_options(args, kwargs), self)
        message = self.handle.build(content, *args, **kwargs)
        if not self._unflushed:
            self._keep_alive()
        thread = get_ident()
        self._inside.append(thread)
        try:
            if not self.closed:
                if self._timeout_unwatched:
                    self._watch_timeout()
                if self._limit is not None:
                    self._send_within(self._limit, message, callback)
                elif callback is None:
                    self.handle.inner.send_async(message, _NO_CALLBACK)
                else:
                    number = next(self._numbers)
                    self._unanswered[number] = callback
                    try:
                        self.handle.inner.send_async(message, partial(self._report, number))
                    except pulsar.PulsarException:  # a forked child process, or the end of the program
                        self._unanswered.pop(number, None)
                        raise
                if self._finished:
                    self._fail_unanswered()
                return
        finally:
            self._inside.remove(thread)
        if callback is not None:
            call_back(callback, _CLOSED, MessageId())

    def _keep_alive(self) -> None:
        """Keep a reference until the next flush."""
        self._unflushed = True
        _unflushed.add(self)
        if self.closed:  # a closed sender would stay in the set forever, with its client
            _unflushed.discard(self)

    def _send_within(self, limit: PendingMessages, message: InnerMessage, callback: SendCallback | None) -> None:
        """Send within a limit, without waiting for the outcome."""
        number, pushed = next(self._numbers), deque[None]()
        try:
            limit.enter(partial(self.context.callbacks.raise_inside, "send_async with a full queue"))
            self._unanswered[number] = callback
            # `map` runs in C: after a Ctrl-C, `pushed` shows whether the call was made, which is answered then.
            pushed.extend(map(self.handle.inner.send_async, (message,), (partial(self._report, number),)))
        except BaseException:
            if not pushed:
                self._unanswered.pop(number, None)
            raise

    def post(self, content: object, callback: SendCallback, options: Options) -> None:
        """Send one message of `send_many`; retry while the official queue is full."""
        thread, is_full = get_ident(), False

        def attempted(result: Result, message_id: MessageId) -> None:
            nonlocal is_full
            if result == pulsar.Result.ProducerQueueIsFull and get_ident() == thread:
                is_full = True
            else:
                callback(result, message_id)

        self.send_async(content, attempted, **options)
        while is_full:
            is_full = False
            threads.sleep(_POLL_SECONDS)
            self.send_async(content, attempted, **options)

    def send_many(self, contents: Iterable[object], columns: Columns, *, flush: bool) -> SentMany:
        """Send many messages one by one; with `flush`, wait until all of them are persisted."""
        if self.closed:
            raise_result(_CLOSED)
        outcome = BulkOutcome()
        return outcome.sent(post_each(self, contents, columns, outcome), wait=flush)

    def _watch_timeout(self) -> None:
        """Watch the connection while messages may be in flight."""
        if self._timing is not None:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending and starts no threads any more
                batch_scheduler.watch(self, self._timing.seconds)
        self._timeout_unwatched = False  # last: after a Ctrl-C above, the next message tries again

    def tick(self, now: float) -> float | None:
        """Poll the connection; called by the scheduler."""
        timing = self._timing
        if timing is None or self.closed:
            return None
        with contextlib.suppress(pulsar.PulsarException):  # the program ends, or this is a forked child process
            timing.poll(now, connected=self.is_connected())
        self._timeout_unwatched = True  # before the check, so that a later message starts the watch again
        if self._unflushed or self._waiting or self._inside or self._flushing:
            self._timeout_unwatched = False
            return timing.seconds
        timing.reset()
        return None

    def flush(self) -> None:
        """Send what is batched and wait until everything sent before is persisted."""
        thread = get_ident()
        self._flushing.append(thread)
        self._unflushed = False
        try:
            with self._flush_lock:  # if two native flushes to partitions begin together, one may never be answered
                if self.closed:
                    raise_result(_CLOSED)
                if self._limit is None:
                    self.handle.inner.flush()
                elif error := self._flush_until(lambda: self._finished):
                    raise error
        finally:
            self._flushing.remove(thread)
        if self._finished:  # on a partitioned topic, the native flush then returns the result of any partition
            raise_result(_CLOSED)
        if not self._unflushed:
            _unflushed.discard(self)

    def raise_if_interrupting(self) -> None:
        """Raise if called in a signal handler that interrupts a send for which a close would wait."""
        if self._limit is not None:  # reporting an outcome needs this lock
            raise_if_interrupting("A close", self._limit.changed.lock)

    def stop(self) -> bool:
        """Accept no more messages; return False if the close is already finished."""
        self.closed = True
        return not self._finished

    def await_outcomes(self, deadline: float) -> None:
        """Wait for outcomes while connected, until `deadline`, a monotonic time in seconds."""
        self._await_threads(deadline, self._inside, self._waiting)
        self._release_waiters()  # threads that wait for room enter, and fail with the rest
        self._await_entered()
        self._await_threads(deadline, self._flushing)
        if self.is_connected():  # the official close would fail an open batch
            self._flush_until(lambda: time.monotonic() >= deadline or not self.is_connected())

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails the messages in flight."""
        return self.context.senders.answer_to(self.handle.inner.close_async)

    def conclude(self, deadline: float) -> None:
        """Wait for threads to return from the C++ producer, until `deadline`, a monotonic time in seconds."""
        self._release_waiters()
        while self._has_others(self._inside, self._waiting) and time.monotonic() < deadline:
            # A thread that waits for room there may get it from a message that the close fails; then only another close
            # fails its own message.
            with contextlib.suppress(pulsar.PulsarException):
                self.handle.inner.close_async(_NO_CALLBACK)
            threads.sleep(_POLL_SECONDS)
        self._finished = True
        self._fail_unanswered()

    def _fail_unanswered(self) -> None:
        """Report messages whose outcomes the C++ client has lost: when it closes, it loses some of partitions."""
        for number in list(self._unanswered):
            self._report(number, _CLOSED, _NO_ID)

    @staticmethod
    def _has_others(*inside: list[int]) -> bool:
        """Return whether another thread than this one is in these lists."""
        thread = get_ident()
        return any(other != thread for each in inside for other in list(each))

    def _await_threads(self, deadline: float, *inside: list[int]) -> None:
        """Wait for threads to return from the C++ producer while connected: a close loses what enters during it."""
        seconds = deadline - time.monotonic()
        answered_within(seconds, lambda: self._has_others(*inside) and self.is_connected())

    def _await_entered(self) -> None:
        """Wait for sending threads: on a partitioned topic nothing else fails messages that enter during a close."""
        seconds = _LEAVING_SECONDS if self._may_block_inside else _ENTERING_SECONDS
        answered_within(seconds, lambda: self._has_others(self._inside))

    def _flush_until(self, is_over: Callable[[], bool]) -> pulsar.PulsarException | None:
        """Flush until `is_over`, and return the error: the native flush waits forever for an outcome that is lost."""
        flushed = Flag()
        errors: list[pulsar.PulsarException] = []

        def flush() -> None:
            try:
                self.handle.inner.flush()
            except pulsar.PulsarException as error:
                errors.append(error)
            flushed.set()

        try:
            threads.start(flush, name="pulsar_ext-flush")
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            self.handle.inner.flush_async(lambda _: flushed.set())
        while not flushed.wait(0.02) and not is_over():
            pass
        return next(iter(errors), None)

    def forget(self) -> None:
        """Mark as closed without waiting: the client is shut down."""
        self.closed = self._finished = True
        self._release_waiters()

    def fail_pending(self) -> None:
        """Wait until the closing C++ client can fail every message; `forget` was called before."""
        self._await_entered()
        self._await_threads(time.monotonic() + _LEAVING_SECONDS, self._inside, self._waiting)

    def _block_(self) -> None:
        """Let no thread enter the C++ producer any more: the program ends."""
        self.handle.inner = closed("Producer")

    def _after_fork_(self, refusal: InnerProducer) -> None:
        """Raise on every use in this child process; a lock may have been held at the fork."""
        self.handle.inner = refusal
        self._limit, self._flush_lock = None, OwnedLock()

    def _release_waiters(self) -> None:
        _unflushed.discard(self)
        if self._limit is not None:
            self._limit.bar()


_TIMEOUT, _TOO_BIG = pulsar.Result.Timeout, pulsar.Result.MessageTooBig
_NAME_IN_USE = (pulsar.ProducerBusy, pulsar.ProducerFenced)
"""Errors of an opening while the broker still counts the lost connection, or another producer was first."""
_RESEND_POLL_SECONDS: Final = 0.005
"""The polling interval of the connection; the C++ producer reconnects after 100 ms."""
_PAUSE_SECONDS: Final = 0.2
_SLACK_SECONDS: Final = 1.0
_NAME_IN_USE_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 5 * 1024 * 1024
"""The broker's default `maxMessageSize`; the client does not know the actual one. A smaller one loosens the bound."""

_log = logging.getLogger("pulsar_ext")


class ResendingSender(ReplacingSender):
    """A sender with `chunking_enabled` that replaces the C++ producer after a connection loss.

    Each message needs one permit for each chunk, as in the official client. That one acquires those permits while it
    holds the lock that releases them, so a full queue deadlocks it.
    """

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        counter: SequenceCounter,
        open_again: Callable[[str | None, int], pulsar.Producer],
        *,
        named: bool,
        timeout: float,
    ) -> None:
        super().__init__(handle, context, config, counter)
        self._open_again = open_again
        self._name = str(handle.producer_name()) if named else None
        self._attempts = 0
        self._timeout = timeout

    def push_batch(self, batch: Batch) -> None:
        """Push a message, and watch the connection from now on."""
        if batch.unsent is None:
            batch_scheduler.watch(self, _RESEND_POLL_SECONDS)
        super().push_batch(batch)

    def tick(self, now: float) -> float | None:
        """Replace the C++ producer if its connection was lost while messages are in flight; called by the scheduler."""
        oldest = next(iter(list(self._in_flight)), None)  # a copy: other threads remove messages with an outcome
        if oldest is None or self.client_closed:
            return None
        # Resends extend the native timeout.
        if self._timeout and now > oldest.pushed_at + self._timeout + _SLACK_SECONDS:
            if self._in_flight.pop(oldest, self) is None:
                self.context.outcomes.run(partial(self.report, oldest, _TIMEOUT, None))
        elif not (self.replacing or self.closed or self.is_connected()):
            self.replacing = True
            try:
                threads.start(self.replace, name="pulsar_ext-resend")
            except RuntimeError:  # the interpreter is ending and starts no threads any more
                return None
        return _RESEND_POLL_SECONDS

    def on_outcome(self, batch: Batch, result: Result, inner: InnerMessageId) -> None:
        """Report an outcome, except the `AlreadyClosed` that a replaced C++ producer reports."""
        if result != _CLOSED or self.closed or self.pending.barred:
            super().on_outcome(batch, result, inner)

    def give_up(self, error: BaseException) -> None:
        """Fail the messages in flight; a later message opens the next producer."""
        if not isinstance(error, pulsar.PulsarException):
            _log.exception("Could not open another producer to resend messages; they fail", exc_info=error)
        result = _CLOSED if self.closed else result_of(error)
        failed = list(self._in_flight)
        self.replacing = False
        for batch in failed:
            self.failed(batch, result)

    def reopen(self) -> pulsar.Producer:
        """Open another producer; retry while the broker starts or loads the topic."""
        deadline = time.monotonic() + _NAME_IN_USE_SECONDS

        def open_next() -> pulsar.Producer:
            self._attempts += 1
            name = None if self._name is None else f"{self._name}~{self._attempts}"
            return self._open_again(name, int(self.handle.last_sequence_id()))

        def may_retry(error: Exception) -> bool:
            if self.closed or self.pending.barred or not self._in_flight:
                return False
            return isinstance(error, UNREACHABLE) or (isinstance(error, _NAME_IN_USE) and time.monotonic() < deadline)

        return retry(open_next, may_retry, seconds=_PAUSE_SECONDS)

    def resend(self, batch: Batch) -> None:
        """Resend a message; the broker's size limit may be lower than before."""
        super().resend(batch)
        if batch.too_big:
            self.context.outcomes.run(partial(self.deliver, batch, _TOO_BIG, None))

    def _post_alone(self, content: object, callback: SendCallback | None, options: Options, patient: bool) -> None:
        """Push a message, after acquiring permits for all of its chunks."""
        data = None if content is None else self.handle.schema.encode(content)
        if data is not None and type(data) is not bytes:
            self.handle.build(content)  # raises the official error
        chunks = max(1, -(-len(data or b"") // _CHUNK_BYTES))
        given = options.get("sequence_id")
        if self.make_room(callback, patient=patient, permits=chunks):
            upcoming = self.counter.upcoming if given is None else given
            message = build_plain(data, {**options, "sequence_id": upcoming})
            sequence_id = self.admit(given, callback)
            if sequence_id is not None:
                batch = Batch.alone(message, callback, sequence_id)
                batch.options, batch.extra_permits = options, chunks - 1
                self.push_whole(batch)
