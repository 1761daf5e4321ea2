"""The senders without batches of their own: each message is given to the C++ producer. Mirrors Java's `ProducerImpl`.

`DirectSender` leaves batching, if any, to the official client.

`ResendingSender` sends messages in chunks without deduplication, and loses none if the connection ends during one. The
C++ producer resends what has no answer, chunk by chunk, under the same name. If some chunks of a message were written
before, they are on the topic twice then, and consumers of the C++ client drop them all, though the message was
confirmed. The same happens to a message whose name and sequence id were used before, by a process that was killed while
it sent it. So the C++ producer is closed before it can resend anything, and another one, with another name, sends
everything that has no outcome, from the first chunk on and in order. As officially a message may be on the topic twice,
whole, if its answer was in flight.
"""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.fork import closed, refuse_after_fork
from pulsar_ext._native.handles import build_plain
from pulsar_ext._native.results import UNREACHABLE, raise_result, result_of
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._runtime.callbacks import call_back
from pulsar_ext._runtime.condition import Flag, refuse_interrupting
from pulsar_ext._runtime.ending import finish_together
from pulsar_ext._runtime.retry import retry
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.ids.message_id import MessageId, plain_from_inner

from .batching import BatchingSender
from .dispatch import ReplacingDispatcher
from .options import named_options, rows_of
from .outcome import BulkOutcome, SentMany
from .sender import HandleSender, check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext._runtime.context import ClientContext

    from .batch import Batch, BatchingConfig
    from .batching import MixedKeyCheck
    from .options import SendTiming
    from .pending import PendingMessages


_POLL_SECONDS = 0.001
_LEAVING_SECONDS = 0.05
"""How long a thread that waits for an outcome inside the C++ producer has for that, where it may never come."""
_ENTERING_SECONDS = 5.0
"""How long a thread has that waits for nothing there."""

_unflushed: set[DirectSender] = set()
"""Senders that have sent without waiting: were one dropped, what it has not sent yet would vanish with it."""


class _Attempt:
    """The callback of a message that is sent again where there is no room for it.

    Args:
        callback: hears of every other outcome.
    """

    __slots__ = ("_callback", "_full", "_thread")

    def __init__(self, callback: SendCallback) -> None:
        self._callback = callback
        self._thread = get_ident()
        self._full = False

    def __call__(self, result: Any, message_id: MessageId) -> None:
        if result == pulsar.Result.ProducerQueueIsFull and get_ident() == self._thread:
            self._full = True
        else:
            self._callback(result, message_id)

    def found_no_room(self) -> bool:
        """Whether the message was refused, since this was asked the last time."""
        full, self._full = self._full, False
        return full


class DirectSender(HandleSender):
    """Sends messages one by one.

    Args:
        handle: the C++ producer.
        context: of its client.
        limit: bounds what is pending, in place of the official queue.
        waits_inside: whether a send may wait for room in the official queue.
        mixed_keys: looks for the first message with a key, if batches mix keys.
        timing: has the send timeout run on; None where that is not needed.
    """

    __slots__ = (
        "_finished",
        "_flushing",
        "_forgotten",
        "_inside",
        "_limit",
        "_mixed_keys",
        "_timing",
        "_unflushed",
        "_untimed",
        "_waiting",
        "_waits_inside",
        "closed",
    )

    many_in_flight = 500
    """Half of the official queue's default."""

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        *,
        limit: PendingMessages | None,
        waits_inside: bool,
        mixed_keys: MixedKeyCheck | None,
        timing: SendTiming | None,
    ) -> None:
        super().__init__(handle, context)
        self.closed = self._finished = False
        self._forgotten = False
        # The threads in the C++ producer, whom a close waits for: those that send, and those that wait for outcomes.
        self._inside: list[int] = []
        self._waiting: list[int] = []
        self._limit = limit
        self._waits_inside = waits_inside
        self._mixed_keys = mixed_keys
        self._unflushed = False
        self._timing = timing
        self._untimed = timing is not None
        """Whether nobody looks after the send timeout, which somebody should once something is sent."""
        self._flushing: list[int] = []
        """The threads that wait for a flush, whom no close waits for."""
        refuse_after_fork(self, "Producer")
        context.senders.add(self)

    @property
    def inner(self) -> Any:
        """The C++ producer."""
        return self.handle.inner

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait until it is persisted."""
        self.context.callbacks.refuse("send")
        if self._mixed_keys is not None:
            self._mixed_keys = self._mixed_keys.look(named_options(args, kwargs), self)
        message = self.handle.build(content, *args, **kwargs)
        limit, thread = self._limit, get_ident()
        self._waiting.append(thread)
        try:
            if self.closed:
                raise_result(pulsar.Result.AlreadyClosed)
            if self._untimed:
                self._begin_timing()
            if limit is None:
                return plain_from_inner(self.handle.inner.send(message))
            self._enter(limit)
            try:
                return plain_from_inner(self.handle.inner.send(message))
            finally:
                limit.release(1)
        except pulsar.Interrupted:
            if self.closed:  # while it waited for room
                raise_result(pulsar.Result.AlreadyClosed)
            raise
        finally:
            self._waiting.remove(thread)

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        check_callback(callback)
        if self._mixed_keys is not None:
            self._mixed_keys = self._mixed_keys.look(named_options(args, kwargs), self)
        message = self.handle.build(content, *args, **kwargs)
        guarded = None if callback is None else self.context.callbacks.guarded(callback, plain_from_inner, self._inside)
        if not self._unflushed:
            self._unflushed = True
            _unflushed.add(self)
            if self.closed:  # behind its close it would stay, and its client with it
                _unflushed.discard(self)
        thread = get_ident()
        self._inside.append(thread)
        try:
            if not self.closed:
                if self._untimed:
                    self._begin_timing()
                if self._limit is None:
                    self.handle.inner.send_async(message, guarded)
                else:
                    self._send_within(self._limit, message, guarded)
                if self.closed:
                    self._fail_stranded()
                return
        finally:
            self._inside.remove(thread)
        if callback is not None:
            call_back(callback, pulsar.Result.AlreadyClosed, MessageId())

    def _send_within(self, limit: PendingMessages, message: Any, guarded: Callable[[Any, Any], None] | None) -> None:
        """Send behind a limit, without waiting for the outcome."""
        entered = False
        handed: list[None] = []

        def done(result: Any, inner: Any) -> None:
            limit.release(1)
            if guarded is not None:
                guarded(result, inner)

        try:
            self._enter(limit)
            entered = True
            # In C from end to end: a Ctrl-C behind the call finds that it was made, and `done` leaves the limit.
            handed.extend(map(self.handle.inner.send_async, (message,), (done,)))
        except BaseException:
            if entered and not handed:
                limit.release(1)
            raise

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> None:
        """Send one of many; `patient`, again until there is room, which the C++ producer says at once."""
        if not patient:
            self.send_async(content, callback, **options)
            return
        attempt = _Attempt(callback)
        self.send_async(content, attempt, **options)
        while attempt.found_no_room():
            threads.sleep(_POLL_SECONDS)
            self.send_async(content, attempt, **options)

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages one by one, and with `flush` wait until all of them are persisted."""
        if self.closed:
            raise_result(pulsar.Result.AlreadyClosed)
        outcome = BulkOutcome()
        taken = 0
        for content, options in rows_of(contents, columns):
            self.post(content, outcome.one, options, patient=True)
            taken += 1
            outcome.wait(taken - self.many_in_flight)
        if flush:
            outcome.wait(taken)
            outcome.raise_failure()
        return SentMany(taken, outcome.duplicates, outcome.last)

    def _begin_timing(self) -> None:
        """Have the connection looked at while anything may be on its way."""
        if self._timing is not None:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending and starts no threads any more
                batch_scheduler.watch(self, self._timing.seconds)
        self._untimed = False  # behind it: what a Ctrl-C keeps from being watched is watched with the next message

    def tick(self, now: float) -> float | None:
        """Look at the connection; the scheduler's call."""
        timing = self._timing
        if timing is None or self.closed:
            return None
        with contextlib.suppress(pulsar.PulsarException):  # the program ends, or this is the child process of a fork
            timing.look(now, connected=self.is_connected())
        self._untimed = True  # before it is asked whether anything is: what is sent later has it looked at again
        if self._unflushed or self._waiting or self._inside or self._flushing:
            self._untimed = False
            return timing.seconds
        timing.rest()
        return None

    def flush(self) -> None:
        """Send what is batched and wait until everything sent so far is persisted."""
        thread = get_ident()
        self._flushing.append(thread)
        self._unflushed = False
        try:
            self.handle.inner.flush()
        finally:
            self._flushing.remove(thread)
        if self._forgotten:  # on partitions, of two flushes at once the second says that all is well
            raise_result(pulsar.Result.AlreadyClosed)
        if not self._unflushed:
            _unflushed.discard(self)

    def refuse_interrupting(self) -> None:
        """Refuse to close in the handler of a signal that interrupts a send, which a close would wait for."""
        if self._limit is not None:  # who reports outcomes waits for it
            refuse_interrupting("A close", self._limit.changed.lock)

    def finish(self, deadline: float) -> None:
        """Close, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds."""
        finish_together([self], deadline)

    def stop(self) -> bool:
        """Take no more messages; False if it is closed, and nothing is left to do."""
        self.closed = True
        return not self._finished

    def settle(self, deadline: float) -> None:
        """Wait for outcomes while the connection lasts, until `deadline`, a monotonic time in seconds."""
        self._await_sends(deadline)
        self._let_go()  # who still waits for room enters, and fails with the rest
        self._await_entered()
        self._flush_until(deadline)  # the official close fails an open batch

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails what is still on its way."""
        return self.context.senders.answer_to(self.handle.inner.close_async)

    def conclude(self, deadline: float) -> None:
        """Let those who wait inside the C++ producer come out, until `deadline`, a monotonic time in seconds."""
        self._let_go()
        while self._has_others(self._inside, self._waiting) and time.monotonic() < deadline:
            self._fail_stranded()
            threads.sleep(_POLL_SECONDS)
        self._finished = True

    def _fail_stranded(self) -> None:
        """Fail what entered the C++ producer while it closed: closing it again does that, for good or for nothing.

        Who waits there for room may get it from what the close has failed, and is then forgotten.
        """
        with contextlib.suppress(pulsar.PulsarException):
            self.handle.inner.close_async(None)

    @staticmethod
    def _has_others(*places: list[int]) -> bool:
        """Whether other threads are among those."""
        thread = get_ident()
        return any(one != thread for place in places for one in list(place))

    def _await_sends(self, deadline: float) -> None:
        """Wait for other threads to come back out of the C++ producer: closing forgets what comes in meanwhile."""
        while self._has_others(self._inside, self._waiting):
            if time.monotonic() >= deadline or not self.is_connected():
                return
            threads.sleep(_POLL_SECONDS)

    def _await_entered(self) -> None:
        """Wait for those that wait for nothing in the C++ producer: on partitions nobody else fails what they leave."""
        deadline = time.monotonic() + (_LEAVING_SECONDS if self._waits_inside else _ENTERING_SECONDS)
        while self._has_others(self._inside) and time.monotonic() < deadline:
            threads.sleep(_POLL_SECONDS)

    def _flush_until(self, deadline: float) -> None:
        """Flush while the connection lasts: the native flush would wait for a lost one for ever."""
        if not self.is_connected():
            return
        flushed = Flag()

        def flush() -> None:
            with contextlib.suppress(pulsar.PulsarException):  # each message's callback has been called
                self.handle.inner.flush()
            flushed.set()

        try:
            threads.start(flush, name="pulsar_ext-flush")
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            self.handle.inner.flush_async(lambda _: flushed.set())
        while not flushed.wait(0.02) and time.monotonic() < deadline and self.is_connected():
            pass

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client is shut down."""
        self.closed = self._finished = self._forgotten = True
        self._let_go()

    def fail_pending(self) -> None:
        """Wait until the C++ client, as it closes, will fail every message; `forget` was called."""
        self._await_entered()
        self._await_sends(time.monotonic() + _LEAVING_SECONDS)

    def _bar_(self) -> None:
        """Let no thread enter the C++ producer any more: the program ends."""
        self.handle.inner = closed("Producer")

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process; the limit's lock may have been held at the fork, for good."""
        self.handle.inner = refusal
        self._limit = None

    def _let_go(self) -> None:
        _unflushed.discard(self)
        if self._limit is not None:
            self._limit.bar()

    def _enter(self, limit: PendingMessages) -> None:
        """Take room for a message, waiting for it."""
        limit.enter(partial(self.context.callbacks.refuse, "send_async with a full queue"))


_CLOSED, _TIMEOUT = pulsar.Result.AlreadyClosed, pulsar.Result.Timeout
_TOO_BIG = pulsar.Result.MessageTooBig
_TAKEN = (pulsar.ProducerBusy, pulsar.ProducerFenced)
"""What an opening says before the broker has counted out the connection that ended, or where others came first."""
_RESEND_POLL_SECONDS: Final = 0.005
"""How often the connection is looked at; the C++ producer has another one after 100 ms."""
_PAUSE_SECONDS: Final = 0.2
_SLACK_SECONDS: Final = 1.0
_TAKEN_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 5 * 1024 * 1024
"""The broker's default `maxMessageSize`. The client does not know the real one; a smaller one loosens the bound."""

_log = logging.getLogger("pulsar_ext")


class ResendingDispatcher(ReplacingDispatcher):
    """A `BatchDispatcher` of single messages that are sent by another C++ producer where the connection ends.

    Args, besides those of `BatchDispatcher`:
        open_again: opens an official producer of the same topic, given a name and the sequence id to go on behind.
        named: whether the application gave the producer's name; else the broker gives each one its own.
        timeout: after how many seconds a message has failed, 0 for never.
    """

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        open_again: Callable[[str | None, int], pulsar.Producer],
        *,
        named: bool,
        timeout: float,
    ) -> None:
        super().__init__(handle, context, config)
        self._open_again = open_again
        self._name = str(handle.producer_name()) if named else None
        self._attempts = 0
        self._timeout = timeout

    def push_batch(self, batch: Batch) -> None:
        """Hand a message to the C++ producer, and look after its connection from now on."""
        if batch.unsent is None:
            batch_scheduler.watch(self, _RESEND_POLL_SECONDS)
        super().push_batch(batch)

    def tick(self, now: float) -> float | None:
        """Have the C++ producer replaced if its connection has ended amid something; the scheduler's call."""
        oldest = next(iter(list(self._flying)), None)  # at once: others take out what has its outcome
        if oldest is None or self.forgotten:
            return None
        if self._timeout and now > oldest.began + self._timeout + _SLACK_SECONDS:  # it was sent again meanwhile
            if self._flying.pop(oldest, self) is None:
                self.context.outcomes.run(partial(self.report, oldest, _TIMEOUT, None))
        elif not (self.replacing or self.closed or self.handle.is_connected()):
            self.replacing = True
            try:
                threads.start(self.replace, name="pulsar_ext-resend")
            except RuntimeError:  # the interpreter is ending and starts no threads any more
                return None
        return _RESEND_POLL_SECONDS

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a message, if it is one: a C++ producer that is replaced fails what it has."""
        if result != _CLOSED or self.closed or self.pending.barred:
            super().on_outcome(batch, result, inner)

    def give_up(self, error: BaseException) -> None:
        """Fail what is in flight; what is sent later has the next producer opened."""
        if not isinstance(error, pulsar.PulsarException):
            _log.exception("Messages could not be sent again", exc_info=error)
        result = _CLOSED if self.closed else result_of(error)
        lost = list(self._flying)
        self.replacing = False
        for batch in lost:
            self.failed(batch, result)

    def reopen(self) -> pulsar.Producer:
        """Open another producer: the broker may be starting, or loading the topic."""
        deadline = time.monotonic() + _TAKEN_SECONDS

        def open_next() -> pulsar.Producer:
            self._attempts += 1
            name = None if self._name is None else f"{self._name}~{self._attempts}"
            return self._open_again(name, int(self.handle.last_sequence_id()))

        def may(error: Exception) -> bool:
            if self.closed or self.pending.barred or not self._flying:
                return False
            return isinstance(error, UNREACHABLE) or (isinstance(error, _TAKEN) and time.monotonic() < deadline)

        return retry(open_next, may, seconds=_PAUSE_SECONDS)

    def resend(self, batch: Batch) -> None:
        """Give a message to the C++ producer again; the broker may allow less than before."""
        super().resend(batch)
        if batch.refused:
            self.context.outcomes.run(partial(self.deliver, batch, _TOO_BIG, None))


class ResendingSender(BatchingSender):
    """A sender with `chunking_enabled`, where each message takes as much room as it has chunks, as officially.

    The official client acquires that room while it holds the lock that frees it, so a full queue deadlocks it for good.
    """

    __slots__ = ()

    def _post_alone(self, content: Any, callback: SendCallback | None, options: dict[str, Any], patient: bool) -> None:
        """Push a message, once there is room for all of its chunks."""
        data = None if content is None else self.handle.schema.encode(content)
        if data is not None and type(data) is not bytes:
            self.handle.build(content)  # raises what the official client raises
        chunks = max(1, -(-len(data or b"") // _CHUNK_BYTES))
        given, dispatch = options.get("sequence_id"), self.dispatch
        if dispatch.make_room(callback, patient=patient, places=chunks):
            upcoming = self.numbers.upcoming if given is None else given
            message = build_plain(data, {**options, "sequence_id": upcoming})
            number = self.admit(given, callback)
            if number is not None:
                dispatch.push_alone(message, callback, (number,), options, burden=chunks - 1)
