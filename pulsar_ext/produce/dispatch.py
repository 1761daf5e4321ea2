"""Pushing of batches to the C++ producer, in order, and reporting of their outcomes.

The official client acquires the GIL for each message and again for its callback, which is nearly the whole cost of a
send. Here, messages wait in Python until their batch is full, its delay ends, or a flush. The batch payload is encoded
in Python and passed to a C++ producer without batching, as one message that states the size of the batch. A batch
carries the highest sequence id of its messages, and each message keeps its own.

One thread at a time dispatches (`Exclusive`), even if a signal handler interrupts that thread and sends with the same
producer. Python runs a handler between any two steps of the main thread, which may hold the lock then: a re-entrant
lock would let the handler into the middle of a send. So the handler's sends are deferred until that send is done.
"""

from __future__ import annotations

import logging
import operator
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from threading import get_ident
from typing import TypeVar, TypeVarTuple

import pulsar

from pulsar_ext._native.answer import Answer
from pulsar_ext._native.core import DispatchBase
from pulsar_ext._native.fork import closed, refuse_after_fork
from pulsar_ext._native.handles import ProducerHandle
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerMessageId, InnerProducer
from pulsar_ext._native.results import Result, raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.condition import raise_if_interrupting
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId, id_in_batch

from .batch import Batch, BatchGroup, BatchingConfig, ordered
from .core import Item
from .outcome import PendingMessages, PersistedEntry, deliver_each, persisted_entry
from .sender import HandleSender

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger("pulsar_ext")


class Exclusive(DispatchBase):
    """A re-entrant lock that defers the calls of a signal handler which interrupts the holder."""

    def __init__(self) -> None:
        self.lock = OwnedLock()
        self.inside: int | None = None
        """The thread working with the lock held; a caller that gets the lock and finds one has interrupted it."""
        self.deferred: deque[Callable[[], object]] = deque()
        """Calls that run after the interrupted work."""

    def exclusively(self, work: Callable[[*Ts], T], *args: *Ts) -> T | None:
        """Call `work(*args)` with the lock held and return its result; None if the call is deferred."""
        thread = get_ident()
        with self.lock:
            if self.inside is not None:
                self.deferred.append(partial(work, *args))
                return None
            self.inside = thread
            try:
                result = work(*args)
                self.run_deferred()
            finally:
                self.inside = None
        return result

    def run_deferred(self) -> None:
        """Run the deferred calls; the lock is held and `inside` is set, so calls made during this are deferred too."""
        while self.deferred:
            work = self.deferred.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001  # the handler has returned
                _log.exception("A message sent in a signal handler was rejected")

    def flush_deferred(self) -> None:
        """Run deferred calls that remain because the interrupted work failed."""
        if self.deferred:
            self.exclusively(int)

    def unlocked(self, call: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call `call(*args)` without the lock, which is held exactly once."""
        inside, self.inside = self.inside, None
        for _ in map(operator.call, (self.lock.release,)):  # no call between the release and the `try`
            try:
                call(*args)
            finally:
                self.lock.acquire()
                self.inside = inside

    def raise_if_inside(self, call: str) -> None:
        """Raise if a call that waits for outcomes is made in a signal handler that interrupts a send."""
        if self.inside == get_ident():
            raise InvalidUse(
                f"{call} in a signal handler would wait for the send that it interrupts. Use send_async()."
            )


_OK = pulsar.Result.Ok
_FULL = pulsar.Result.ProducerQueueIsFull
_CLOSED = pulsar.Result.AlreadyClosed
_TOO_BIG = pulsar.Result.MessageTooBig


class Dispatcher(Exclusive, HandleSender):
    """The open batches of one producer, the batches in flight, and their outcomes.

    `lock` orders pushes; nothing waits while holding it. Outcomes only take `pending.changed`. Work that a Ctrl-C
    interrupts is finished by the next send, flush or tick.
    """

    group: BatchGroup
    """The open batches."""
    pending: PendingMessages

    def __init__(self, handle: ProducerHandle, context: ClientContext, config: BatchingConfig) -> None:
        super().__init__()
        HandleSender.__init__(self, handle, context)
        self.config = config
        self.pending = PendingMessages(config.limit)
        self.closed = False
        self.finished = False
        """Whether a close is complete."""
        self.client_closed = False
        """Whether the client was shut down: nothing is sent any more and no outcome arrives."""
        self.group = BatchGroup(config.bounds, by_key=config.by_key)
        self._groups: deque[BatchGroup] = deque()
        self._pushing = False
        self._opened = 0.0
        self._in_flight: dict[Batch, None] = {}
        """The batches in flight, oldest first; the thread that removes one reports its outcome."""
        refuse_after_fork(self, "Producer")
        context.senders.add(self)

    def join(self, key: str, item: Item) -> None:
        """Add a message to the open batch of its key; the lock is held."""
        while True:  # repeat if a signal handler has pushed the group
            group = self.group
            if not group.has_room(len(item[0])):
                self.push_open()
                group = self.group
            if group.join(key, item):
                break
        self.pending.accepted += 1
        if group.free_messages <= 0 or group.free_bytes <= 0:
            self.push_open()
        elif group.count == 1:
            self._opened = time.monotonic()
            self.keep_alive()
            try:
                batch_scheduler.watch(self, self.config.delay)
            except RuntimeError:  # no new threads at interpreter exit, so push now
                self.push_open()

    def make_room(self, callback: SendCallback | None, *, patient: bool, permits: int = 1) -> bool:
        """Wait for permits for a message; return False if it was rejected. The lock is held exactly once."""
        while not self.pending.has_room(permits):
            if self.pending.barred:
                self.reject(callback, _CLOSED)
                return False
            self.push_open()  # open batches hold permits
            if not (self.config.blocks or patient):
                self.reject(callback, _FULL)
                return False
            self.context.callbacks.raise_inside("send_async with a full queue")
            self.unlocked(self.pending.wait_for, lambda: self.pending.barred or self.pending.has_room(permits))
        return True

    def reject(self, callback: SendCallback | None, result: Result) -> None:
        """Report a rejection on the sender's thread; the lock is held, and released during the callback."""
        if callback is None:
            self.pending.fail(result)
            return
        self.unlocked(call_back, callback, result, MessageId())

    def push(self) -> None:
        """Push the open batches, and the deferred messages of signal handlers."""
        self.flush_deferred()
        self.exclusively(self.push_open)

    def tick(self, now: float) -> float | None:
        """Push the open batches if their delay is over; called by the scheduler."""
        with self.lock:
            left: float = self._opened + self.config.delay - now
            if self.group.count and left > 0:
                return left
            self.push_open()
            return None

    def push_open(self) -> None:
        """Push the open batches; the lock is held."""
        self._close_group()
        self._push_groups()

    def push_whole(self, batch: Batch) -> None:
        """Push a complete batch, after the messages before it; the lock is held."""
        group = BatchGroup(self.config.bounds, by_key=self.config.by_key)
        group.batches[""] = batch
        self._close_group()
        self._groups.append(group)
        self.pending.accepted += batch.count
        self.pending.extra_permits += batch.extra_permits
        self._push_groups()

    def _close_group(self) -> None:
        if self.group.count:
            following = BatchGroup(self.config.bounds, by_key=self.config.by_key)
            # No call from here on: a signal handler that sends sees either the open group or the new one.
            group = self.group
            if group.batches:
                group.closed, self.group = True, following
                self._groups += (group,)

    def _push_groups(self) -> None:
        if self._pushing:
            return  # in a signal handler: the interrupted push continues with this group
        self._pushing = True
        try:
            interrupted = self._push_each()
        finally:
            self._pushing = False
        if interrupted is not None:
            raise interrupted

    def _push_each(self) -> BaseException | None:
        """Push the closed groups; return what a signal handler raised after a push; see `_native/locks.py`."""
        interrupted: BaseException | None = None
        while self._groups:
            group = self._groups[0]
            if group.sealed is None:
                group.sealed = self.seal(group)
            while group.sealed:
                try:
                    self.push_batch(group.sealed[0])
                except BaseException as error:
                    if operator.length_hint(group.sealed[0].unsent or (None,)):
                        raise  # not pushed yet
                    interrupted = error
                if group.sealed[0].too_big:
                    self.split_first(group)
                else:
                    group.sealed.popleft()
            self._groups.popleft()
        return interrupted

    def seal(self, group: BatchGroup) -> deque[Batch]:
        """Close a group; return its batches in push order."""
        return ordered(group.close())

    def push_batch(self, batch: Batch) -> None:
        """Pass a batch to the C++ producer, if sending is allowed."""
        if batch.unsent is None:
            message = batch.entry() if batch.message is None else batch.message
            self.mark_in_flight(batch)
            if not self.may_push():
                self.context.outcomes.run(partial(self.failed, batch, _CLOSED))
                return
            batch.unsent = iter((message,))
        # `deque(map())` runs in C: either the batch is passed on and the iterator is empty, or neither.
        deque(map(self.handle.inner.send_async, batch.unsent, (partial(self.on_outcome, batch),)), 0)

    def may_push(self) -> bool:
        """Return whether a batch may follow those already pushed."""
        return not self.client_closed

    def split_first(self, group: BatchGroup) -> None:
        """Split the first batch of a group, which exceeds the broker's size limit and was not sent."""
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        batch = group.sealed[0]
        if batch.count == 1:
            self.context.outcomes.run(partial(self.deliver, batch, _TOO_BIG, None))
            group.sealed.popleft()
            return
        group.sealed = ordered([*batch.halves(), *islice(group.sealed, 1, None)])
        self._in_flight.pop(batch, None)

    def keep_alive(self) -> None:
        """Keep a reference until every message has its outcome: garbage collection would lose pending messages."""
        _with_pending[self] = None

    def mark_in_flight(self, batch: Batch) -> None:
        """Record a batch as in flight, once, just before its push."""
        if batch.pushed_at:
            return
        self.keep_alive()
        batch.accepted = self.pending.accepted
        batch.pushed_at = time.monotonic()
        # No call in between: a batch in flight always has its time.
        self._in_flight[batch] = None

    def on_outcome(self, batch: Batch, result: Result, inner: InnerMessageId) -> None:
        """Record the outcome of a batch; this native callback must not raise."""
        keep_thread_state()
        try:
            if result == _OK:
                self.persisted(batch, inner)
            elif result == _TOO_BIG:
                batch.too_big = True  # reported during the push, on the pushing thread
            else:
                self.note_uncertain(result)
                self.context.outcomes.run(partial(self.failed, batch, result))
        except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
            _log.exception("Could not report the outcome of a batch")

    def note_uncertain(self, result: Result) -> None:
        """Record an ambiguous result (the batch may be persisted or not), before it is reported."""

    def persisted(self, batch: Batch, inner: InnerMessageId) -> None:
        """Report a persisted batch."""
        self.deliver(batch, _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None))

    def failed(self, batch: Batch, result: Result) -> None:
        """Report a failed batch; never called on a C++ thread that holds the producer's lock."""
        self.deliver(batch, result, None)

    def deliver(self, batch: Batch, result: Result, entry: PersistedEntry | None) -> None:
        """Report the outcome of a batch, unless it was reported."""
        if self._in_flight.pop(batch, self) is None:
            self.report(batch, result, entry)

    def report(self, batch: Batch, result: Result, entry: PersistedEntry | None) -> None:
        """Report the outcome of each message of a closed batch; `entry` is its position, if persisted."""
        pending, count = self.pending, batch.count
        pending.release(count, batch.extra_permits)
        if batch.outcome is not None:
            last = id_in_batch((*entry, count - 1), count) if isinstance(entry, tuple) else entry
            batch.outcome.many(result, count, last)
        else:
            self.context.callbacks.run(deliver_each, batch.callbacks, result, entry)
        pending.fail(result, batch.accepted)
        if pending.complete(count):
            _with_pending.pop(self, None)
            if pending.completed < pending.accepted:  # a message was accepted in the meantime
                self.keep_alive()

    def flush(self) -> None:
        """Push the open batches and wait until everything sent before is persisted; raise the first error since."""
        self.end_flush(self.begin_flush())

    def begin_flush(self) -> tuple[int, int]:
        """Push the open batches; return the token to pass to `end_flush()`."""
        self.raise_if_closed()
        self.raise_if_inside("flush")
        begun = self.pending.begin_flush()
        self.push()
        return begun

    def end_flush(self, begun: tuple[int, int]) -> None:
        """Wait until everything sent before is persisted; raise the first error."""
        sent = self.pending.accepted
        self.pending.wait_for(lambda: self.pending.completed >= sent)
        failure = self.pending.failure_since(begun, sent) or (_CLOSED if self.client_closed else None)
        if failure is not None:
            raise_result(failure)

    def raise_if_closed(self) -> None:
        """Raise if the producer was closed, or inherited across a fork."""
        if self.pending.barred:
            if not self.closed:
                self.handle.inner.flush()  # raises after a fork or at program end
            raise_result(_CLOSED)

    def raise_if_interrupting(self) -> None:
        """Raise if called in a signal handler that interrupts a send for which a close would wait."""
        self.raise_if_inside("close")
        raise_if_interrupting("A close", self.pending.changed.lock)

    def stop(self) -> bool:
        """Accept no more messages, and push the open batches; return False if the close is already finished."""
        if self.finished:
            return False
        if not self.closed:
            self.raise_if_closed()
        self.flush_deferred()
        self.exclusively(self._bar)
        return True

    def _bar(self) -> None:
        """Push the open batches, then accept no more messages; the lock is held."""
        self.closed = True
        self.push_open()
        self.pending.barred = True

    def await_outcomes(self, deadline: float) -> None:
        """Wait for outcomes while connected, until `deadline`, a monotonic time in seconds."""
        while not self.pending.wait_for(self._all_completed, 0.02):
            if time.monotonic() >= deadline or not self.is_connected():
                return

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails the messages in flight."""
        return self.context.senders.answer_to(self.handle.inner.close_async)

    def conclude(self, deadline: float) -> None:
        """Wait until failures are reported, until `deadline`, a monotonic time in seconds."""
        self.pending.wait_for(self._all_completed, max(deadline - time.monotonic(), 0))
        _with_pending.pop(self, None)
        self.finished = True

    def _all_completed(self) -> bool:
        return self.pending.completed >= self.pending.accepted

    def forget(self) -> None:
        """Mark as closed without waiting: the client is shut down."""
        self.client_closed = self.closed = self.finished = self.pending.barred = True

    def fail_pending(self) -> None:
        """Report every message without an outcome as failed with `AlreadyClosed`; `forget` was called before."""
        self.context.outcomes.run(self._fail_rest)  # on another thread: an interrupted send may hold the lock

    def _fail_rest(self) -> None:
        self.flush_deferred()
        with self.lock:
            self.push_open()
            failed = list(self._in_flight)
        for batch in failed:
            if not batch.too_big:  # otherwise its halves fail instead
                self.failed(batch, _CLOSED)

    def _block_(self) -> None:
        """Let no thread enter the C++ producer any more: the program ends."""
        self.pending.barred = True
        self.handle.inner = closed("Producer")

    def _after_fork_(self, refusal: InnerProducer) -> None:
        """Raise on every use in this child process; a lock may have been held at the fork."""
        self.handle.inner = refusal
        self.lock, self.inside = OwnedLock(), None
        self.deferred.clear()
        self.pending = PendingMessages(-1)
        self.pending.barred = True


_with_pending: dict[Dispatcher, None] = {}
"""Senders with pending messages, kept alive."""
