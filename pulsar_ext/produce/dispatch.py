"""Pushing batches to the C++ producer, in order, and delivering what became of them.

The official client crosses the interpreter lock for each message and again for its callback, which is nearly all that
a send costs. Here messages wait in Python until their batch is full, its delay is over, or something flushes; its
payload is written in Python, and handed to a C++ producer without batching as one message that says how many it holds.
A batch carries the highest sequence id of its messages, and each message keeps its own.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.fork import closed, refuse_after_fork
from pulsar_ext._native.messages import batch_message
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.condition import refuse_interrupting
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.ids.message_id import MessageId, id_in_batch

from .batch import Batch, BatchGroup, ordered
from .exclusive import Exclusive
from .outcome import deliver_each, persisted_entry
from .pending import PendingMessages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.context import ClientContext

    from .batch import Item
    from .config import BatchingConfig
    from .outcome import PersistedEntry

__all__ = ["BatchDispatcher"]

_OK, _TOO_BIG = pulsar.Result.Ok, pulsar.Result.MessageTooBig
_FULL, _CLOSED = pulsar.Result.ProducerQueueIsFull, pulsar.Result.AlreadyClosed
_log = logging.getLogger("pulsar_ext")


class BatchDispatcher(Exclusive):
    """The open batches of one producer, those on their way, and their outcomes.

    The lock `lock` orders what is sent; nothing waits while it holds it. Outcomes only ever take `pending.changed`.
    What a Ctrl-C leaves half done is finished by the next that sends, flushes or ticks.

    Args:
        handle: the C++ producer.
        context: of its client.
        config: how batches are made.
    """

    def __init__(self, handle: ProducerHandle, context: ClientContext, config: BatchingConfig) -> None:
        super().__init__()
        self.handle, self.context, self.config = handle, context, config
        self.group = BatchGroup(config.bounds, by_key=config.by_key)
        """The open batches."""
        self.pending = PendingMessages(config.limit)
        self.closed = self._pushing = self._finished = False
        self._groups: deque[BatchGroup] = deque()
        self._opened = 0.0
        refuse_after_fork(self, "Producer")
        context.senders.add(self)

    @property
    def inner(self) -> Any:
        """The C++ producer."""
        return self.handle.inner

    def join(self, key: str, item: Item) -> None:
        """Put a message into the open batch of its key; the lock is held."""
        while True:  # until no handler of a signal has pushed the group just before
            group = self.group
            if not group.has_room(len(item[0])):
                self.push_open()
                group = self.group
            if group.join(key, item):
                break
        self.pending.accepted += 1
        if group.free <= 0 or group.left <= 0:
            self.push_open()
        elif group.count == 1:
            self._opened = time.monotonic()
            _unsettled[self] = None
            batch_scheduler.watch(self, self.config.delay)

    def make_room(self, callback: SendCallback | None, *, patient: bool) -> bool:
        """Wait for room for a message if there is none; False if the message was refused. The lock is held once.

        Args:
            callback: of the message, which is called if it is refused.
            patient: whether to wait in any case, and not only where the producer blocks.
        """
        while not self.pending.has_room():
            if self.pending.barred:
                self.refuse(callback, _CLOSED)
                return False
            self.push_open()  # what waits for its delay holds room that nothing can use
            if not (self.config.blocks or patient):
                self.refuse(callback, _FULL)
                return False
            self.context.callbacks.refuse("send_async with a full queue")
            self.unlocked(self.pending.wait_for, lambda: self.pending.barred or self.pending.has_room())
        return True

    def refuse(self, callback: SendCallback | None, result: Any) -> None:
        """Report a message's outcome at once, on the sender's own thread; the lock is held, and let go meanwhile."""
        if callback is None:
            self.pending.fail(result)
            return
        self.unlocked(call_back, callback, result, MessageId())

    def push(self) -> None:
        """Push what the open batches hold, and what a signal's handler has sent."""
        self.run_left_over()
        self.exclusively(self.push_open)

    def tick(self, now: float) -> float | None:
        """Push the open batches if their delay is over; the scheduler's call."""
        with self.lock:
            left: float = self._opened + self.config.delay - now
            if self.group.count and left > 0:
                return left
            self.push_open()
            return None

    def push_open(self) -> None:
        """Push what the open batches hold; the lock is held."""
        self._close_group()
        self._push_groups()

    def push_alone(self, message: Any, callback: SendCallback | None, ids: Sequence[int]) -> None:
        """Push a C++ message as an entry of its own, behind what came before it; the lock is held."""
        batch = Batch(message)
        batch.callbacks, batch.ids, batch.count = (callback,), ids, 1
        self.push_whole(batch)

    def push_whole(self, batch: Batch) -> None:
        """Push a batch that is made, behind what came before it; the lock is held."""
        group = BatchGroup(self.config.bounds, by_key=self.config.by_key)
        group.batches[""] = batch
        self._close_group()
        self._groups.append(group)
        self.pending.accepted += batch.count
        self._push_groups()

    def _close_group(self) -> None:
        if self.group.count:
            following = BatchGroup(self.config.bounds, by_key=self.config.by_key)
            # No call from here on: a signal's handler that sends finds the group open, or another one in its place.
            group = self.group
            if group.batches:
                group.closed, self.group = True, following
                self._groups += (group,)

    def _push_groups(self) -> None:
        """Push what is closed, in order."""
        if self._pushing:
            return  # a signal's handler sends: the push that it interrupted goes on with this
        interrupted: BaseException | None = None
        self._pushing = True
        try:
            while self._groups:
                group = self._groups[0]
                if group.sealed is None:
                    group.sealed = self.seal(group)
                while group.sealed:
                    try:
                        self.push_batch(group.sealed[0])
                    except BaseException as error:
                        if operator.length_hint(group.sealed[0].unsent or (None,)):
                            raise  # it is still to be pushed
                        interrupted = error  # a signal's handler raised behind it
                    if group.sealed[0].refused:
                        self.part(group)
                    else:
                        group.sealed.popleft()
                self._groups.popleft()
        finally:
            self._pushing = False
        if interrupted is not None:
            raise interrupted

    def seal(self, group: BatchGroup) -> deque[Batch]:
        """Close a group, and decide in which order its batches are pushed."""
        return ordered(group.close())

    def push_batch(self, batch: Batch) -> None:
        """Hand a batch to the C++ producer."""
        if batch.unsent is None:
            message = batch_message(batch.payload(), batch.count) if batch.message is None else batch.message
            batch.began = time.monotonic()
            _unsettled[self] = None
            batch.unsent = iter((message,))
        # In C from end to end: either the batch is handed over and the feed is empty, or neither.
        deque(map(self.handle.inner.send_async, batch.unsent, (partial(self.on_outcome, batch),)), 0)

    def part(self, group: BatchGroup) -> None:
        """Part the first of a group's batches, which is larger than the broker allows, and was not sent at all."""
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        batch = group.sealed.popleft()
        if batch.count == 1:
            batch_scheduler.run(partial(self.deliver, batch, _TOO_BIG, None))
            return
        halves = batch.halves()
        for half in halves:
            half.close()
        group.sealed = ordered([*halves, *group.sealed])

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a batch: the native callback, out of which nothing may be raised."""
        keep_thread_state()
        if result == _OK:
            try:
                self.settled(batch, inner)
            except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
                _log.exception("The outcome of a batch could not be delivered")
        elif result == _TOO_BIG:
            batch.refused = True  # said while it is pushed, on the thread that pushes it
        else:
            self.doubt(result)
            batch_scheduler.run(partial(self.failed, batch, result))

    def doubt(self, result: Any) -> None:
        """Take note of a result that leaves open whether a batch is persisted, before its senders know."""

    def settled(self, batch: Batch, inner: Any) -> None:
        """Take the id of a batch that is persisted."""
        self.deliver(batch, _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None))

    def failed(self, batch: Batch, result: Any) -> None:
        """Take the result of a batch that has failed; never on a C++ thread that holds the producer's lock."""
        self.deliver(batch, result, None)

    def deliver(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report the outcome of each message of a batch.

        Args:
            batch: closed.
            result: of all its messages.
            entry: where it is persisted, if it is.
        """
        pending, count = self.pending, batch.count
        pending.release(count)
        if batch.outcome is not None:
            last = id_in_batch((*entry, count - 1), count) if isinstance(entry, tuple) else entry
            batch.outcome.many(result, count, last)
        else:
            self.context.callbacks.run(deliver_each, batch.callbacks, result, entry, count)
        pending.fail(result)
        if pending.complete(count):
            _unsettled.pop(self, None)
            if pending.completed < pending.accepted:  # a message has come meanwhile
                _unsettled[self] = None

    def flush(self) -> None:
        """Push the open batches and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message that was sent since the last flush has failed; the first one's error.
        """
        if self.pending.barred:
            self.handle.inner.flush()
            return
        self.refuse_inside("flush")
        self.push()
        sent = self.pending.accepted
        self.pending.wait_for(lambda: self.pending.completed >= sent)
        failure = self.pending.take_failure()
        if failure is not None:
            raise_result(failure)

    def refuse_interrupting(self) -> None:
        """Refuse to close in the handler of a signal that interrupts a send, which a close would wait for."""
        self.refuse_inside("close")
        refuse_interrupting("A close", self.pending.changed.lock)

    def finish(self, deadline: float) -> None:
        """Push the open batches, wait for outcomes until `deadline` while the connection lasts, and close."""
        if self._finished:
            return
        again = self.closed  # by another thread, or it was interrupted
        if self.pending.barred and not again:
            self.handle.inner.close()  # inherited across a fork: raises
        self.refuse_interrupting()
        self.run_left_over()
        self.exclusively(self._bar)
        sent, pending = self.pending.accepted, self.pending
        try:
            while not pending.wait_for(lambda: pending.completed >= sent, 0.02):
                if time.monotonic() >= deadline or not self.handle.is_connected():
                    break
        finally:
            try:
                with contextlib.suppress(*((pulsar.AlreadyClosed,) if again else ())):
                    self.handle.inner.close()
                self._finished = True
            finally:
                pending.wait_for(lambda: pending.completed >= sent, 1.0)  # the rest fails, and is reported
                _unsettled.pop(self, None)

    def _bar(self) -> None:
        """Let nothing enter any more, behind the open batches; the lock is held."""
        self.closed = True
        self.push_open()
        self.pending.barred = True

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client was shut down."""
        self.closed = self._finished = self.pending.barred = True
        self.pending.abandon()
        _unsettled.pop(self, None)

    def bar(self) -> None:
        """Let no thread enter the C++ producer any more: the program ends."""
        self.pending.barred = True
        self.handle.inner = closed("Producer")

    def after_fork(self, refusal: Any) -> None:
        """Refuse every use in this child process; a lock may have been held at the fork, for good."""
        self.handle.inner = refusal
        self.renew()
        self.pending = PendingMessages(-1)
        self.pending.barred = True


_unsettled: dict[BatchDispatcher, None] = {}
"""Those with messages whose outcome is not known yet: were one dropped, they would vanish with it."""
