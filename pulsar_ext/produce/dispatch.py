"""Pushing batches to the C++ producer, in order, and reporting their outcomes.

The official client crosses the interpreter lock for each message and again for its callback, which is nearly all that
a send costs. Here messages wait in Python until their batch is full, its delay is over, or something flushes; its
payload is written in Python, and handed to a C++ producer without batching as one message that says how many it holds.
A batch carries the highest sequence id of its messages, and each message keeps its own.

One thread at a time dispatches (`Exclusive`), also if a signal's handler interrupts that thread and sends with the same
producer. Python runs a handler between any two steps of the main thread, which may hold the lock then: a re-entrant
lock would let the handler into the middle of a send. So what the handler sends is put off until that send is done.
"""

from __future__ import annotations

import logging
import operator
import time
from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.core import DispatchBase
from pulsar_ext._native.fork import closed, refuse_after_fork
from pulsar_ext._native.handles import build_again
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.condition import refuse_interrupting
from pulsar_ext._runtime.scheduler import batch_scheduler
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId, id_in_batch

from .batch import Batch, BatchGroup, ordered
from .outcome import deliver_each, persisted_entry
from .pending import PendingMessages
from .sender import close_quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.context import ClientContext

    from .batch import BatchingConfig
    from .core import Item
    from .outcome import PersistedEntry


_log = logging.getLogger("pulsar_ext")


class Exclusive(DispatchBase):
    """A re-entrant lock, and what has to wait because its holder is interrupted."""

    def __init__(self) -> None:
        self.lock = OwnedLock()
        self.inside: int | None = None
        """The thread that is at work with the lock held: who finds one there, with the lock, has interrupted it."""
        self.deferred: deque[Callable[[], object]] = deque()
        """What waits for the interrupted work."""

    def exclusively(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call `work(*args)` with the lock held, and give what it returns; None if it has to wait."""
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
        """Do what had to wait; the lock is held, and `inside` set, so that what comes meanwhile waits behind it."""
        while self.deferred:
            work = self.deferred.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001  # it concerns the handler, which has returned
                _log.exception("A message that a signal's handler sent was refused")

    def run_left_over(self) -> None:
        """Do what had to wait and was left when the work that was interrupted failed."""
        if self.deferred:
            self.exclusively(int)

    def unlocked(self, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)` without the lock, which is held once."""
        inside, self.inside = self.inside, None
        for _ in map(operator.call, (self.lock.release,)):  # no call between it and the block that takes it again
            try:
                call(*args)
            finally:
                self.lock.acquire()
                self.inside = inside

    def refuse_inside(self, what: str) -> None:
        """Refuse a call that waits for outcomes in a signal's handler that interrupts a send.

        Raises:
            InvalidUse: the handler runs on the thread of that send, and would wait for it.
        """
        if self.inside == get_ident():
            raise InvalidUse(
                f"{what} in a signal's handler would wait for the send that it interrupts. Use send_async."
            )

    def renew(self) -> None:
        """Begin anew in a child process, where the lock may have been held at the fork, for good."""
        self.lock = OwnedLock()
        self.inside = None
        self.deferred.clear()


_OK = pulsar.Result.Ok
_FULL = pulsar.Result.ProducerQueueIsFull
_CLOSED = pulsar.Result.AlreadyClosed
_TOO_BIG = pulsar.Result.MessageTooBig


class BatchDispatcher(Exclusive):
    """The open batches of one producer, those in flight, and their outcomes.

    The lock `lock` orders what is sent; nothing waits while it holds it. Outcomes only ever take `pending.changed`.
    What a Ctrl-C leaves half done is finished by the next that sends, flushes or ticks.

    Args:
        handle: the C++ producer.
        context: of its client.
        config: how batches are made.
    """

    group: BatchGroup
    pending: PendingMessages

    def __init__(self, handle: ProducerHandle, context: ClientContext, config: BatchingConfig) -> None:
        super().__init__()
        self.handle = handle
        self.context = context
        self.config = config
        self.pending = PendingMessages(config.limit)
        self.closed = False
        self.finished = False
        """Whether nothing is left to do of a close."""
        self.forgotten = False
        """Whether the client was shut down, so that nothing is sent any more and no outcome comes."""
        self.group = BatchGroup(config.bounds, by_key=config.by_key)
        """The open batches."""
        self._groups: deque[BatchGroup] = deque()
        self._pushing = False
        self._opened = 0.0
        self._flying: dict[Batch, None] = {}
        """The batches in flight, the oldest first; whoever takes one out reports its outcome."""
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
            self.stay()
            try:
                batch_scheduler.watch(self, self.config.delay)
            except RuntimeError:  # the interpreter is ending and starts no threads any more: nobody would push it later
                self.push_open()

    def make_room(self, callback: SendCallback | None, *, patient: bool, places: int = 1) -> bool:
        """Wait for room for a message if there is none; False if the message was refused. The lock is held once.

        Args:
            callback: of the message, which is called if it is refused.
            patient: whether to wait in any case, and not only where the producer blocks.
            places: how much room it takes.
        """
        while not self.pending.has_room(places):
            if self.pending.barred:
                self.refuse(callback, _CLOSED)
                return False
            self.push_open()  # what waits for its delay holds room that nothing can use
            if not (self.config.blocks or patient):
                self.refuse(callback, _FULL)
                return False
            self.context.callbacks.refuse("send_async with a full queue")
            self.unlocked(self.pending.wait_for, lambda: self.pending.barred or self.pending.has_room(places))
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

    def push_alone(
        self,
        message: Any,
        callback: SendCallback | None,
        ids: Sequence[int],
        options: dict[str, Any],
        *,
        burden: int = 0,
    ) -> None:
        """Push a C++ message as an entry of its own, behind what came before it; the lock is held.

        Args:
            message: built.
            callback: is called with its outcome.
            ids: its sequence id.
            options: the official arguments, by name.
            burden: how much room it takes beyond one place.
        """
        batch = Batch(message)
        batch.callbacks, batch.ids, batch.count = (callback,), ids, 1
        batch.options, batch.burden = options, burden
        self.push_whole(batch)

    def push_whole(self, batch: Batch) -> None:
        """Push a batch that is made, behind what came before it; the lock is held."""
        group = BatchGroup(self.config.bounds, by_key=self.config.by_key)
        group.batches[""] = batch
        self._close_group()
        self._groups.append(group)
        self.pending.accepted += batch.count
        self.pending.burden += batch.burden
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
        self._pushing = True
        try:
            interrupted = self._push_each()
        finally:
            self._pushing = False
        if interrupted is not None:
            raise interrupted

    def _push_each(self) -> BaseException | None:
        """Push them; give what a signal's handler raised behind one. Apart: see `_native/locks.py`."""
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
                        raise  # it is still to be pushed
                    interrupted = error
                if group.sealed[0].refused:
                    self.part(group)
                else:
                    group.sealed.popleft()
            self._groups.popleft()
        return interrupted

    def seal(self, group: BatchGroup) -> deque[Batch]:
        """Close a group, and decide in which order its batches are pushed."""
        return ordered(group.close())

    def push_batch(self, batch: Batch) -> None:
        """Hand a batch to the C++ producer, if anything may be sent."""
        if batch.unsent is None:
            message = batch.entry() if batch.message is None else batch.message
            self.take_off(batch)
            if not self.may_push():
                self.context.outcomes.run(partial(self.failed, batch, _CLOSED))
                return
            batch.unsent = iter((message,))
        # In C from end to end: either the batch is handed over and the feed is empty, or neither.
        deque(map(self.handle.inner.send_async, batch.unsent, (partial(self.on_outcome, batch),)), 0)

    def may_push(self) -> bool:
        """Whether a batch may follow those that were pushed."""
        return not self.forgotten

    def part(self, group: BatchGroup) -> None:
        """Part the first of a group's batches, which is larger than the broker allows, and was not sent at all."""
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        batch = group.sealed[0]
        if batch.count == 1:
            self.context.outcomes.run(partial(self.deliver, batch, _TOO_BIG, None))
            group.sealed.popleft()
            return
        halves = batch.halves()
        for half in halves:
            half.close()
        group.sealed = ordered([*halves, *islice(group.sealed, 1, None)])
        self._flying.pop(batch, None)

    def stay(self) -> None:
        """Stay alive until everything has its outcome: were this dropped, what is pending would vanish with it."""
        _unsettled[self] = None

    def take_off(self, batch: Batch) -> None:
        """Count a batch as on its way, once: it is about to be pushed, or would be but for a Ctrl-C."""
        if batch.began:
            return
        self.stay()
        batch.accepted = self.pending.accepted
        batch.began = time.monotonic()
        # No call in between: who has a time is noted, and the scheduler finds no batch without one.
        self._flying[batch] = None

    # Outcomes

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a batch: the native callback, out of which nothing may be raised."""
        keep_thread_state()
        try:
            if result == _OK:
                self.settled(batch, inner)
            elif result == _TOO_BIG:
                batch.refused = True  # said while it is pushed, on the thread that pushes it
            else:
                self.doubt(result)
                self.context.outcomes.run(partial(self.failed, batch, result))
        except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
            _log.exception("The outcome of a batch could not be delivered")

    def doubt(self, result: Any) -> None:
        """Take note of a result that leaves open whether a batch is persisted, before its senders know."""

    def settled(self, batch: Batch, inner: Any) -> None:
        """Take the id of a batch that is persisted."""
        self.deliver(batch, _OK, persisted_entry(inner, self.config.partition, batched=batch.message is None))

    def failed(self, batch: Batch, result: Any) -> None:
        """Take the result of a batch that has failed; never on a C++ thread that holds the producer's lock."""
        self.deliver(batch, result, None)

    def deliver(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report what became of a batch, unless that is done; the arguments are those of `report`."""
        if self._flying.pop(batch, self) is None:
            self.report(batch, result, entry)

    def report(self, batch: Batch, result: Any, entry: PersistedEntry | None) -> None:
        """Report the outcome of each message of a batch.

        Args:
            batch: closed.
            result: of all its messages.
            entry: where it is persisted, if it is.
        """
        pending, count = self.pending, batch.count
        pending.release(count, batch.burden)
        if batch.outcome is not None:
            last = id_in_batch((*entry, count - 1), count) if isinstance(entry, tuple) else entry
            batch.outcome.many(result, count, last)
        else:
            self.context.callbacks.run(deliver_each, batch.callbacks, result, entry)
        pending.fail(result, batch.accepted)
        if pending.complete(count):
            _unsettled.pop(self, None)
            if pending.completed < pending.accepted:  # a message has come meanwhile
                self.stay()

    # The end

    def flush(self) -> None:
        """Push the open batches and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message that was sent since the last flush has failed; the first one's error.
        """
        self.end_flush(self.begin_flush())

    def begin_flush(self) -> tuple[int, int]:
        """Push the open batches; give what `end_flush` is to be told."""
        self.refuse_closed()
        self.refuse_inside("flush")
        begun = self.pending.begin_flush()
        self.push()
        return begun

    def end_flush(self, begun: tuple[int, int]) -> None:
        """Wait until everything sent so far is persisted, and raise what failed."""
        sent = self.pending.accepted
        self.pending.wait_for(lambda: self.pending.completed >= sent)
        failure = self.pending.failure_since(begun, sent) or (_CLOSED if self.forgotten else None)
        if failure is not None:
            raise_result(failure)

    def refuse_closed(self) -> None:
        """Raise what a producer raises that was closed, or inherited across a fork."""
        if self.pending.barred:
            if not self.closed:
                self.handle.inner.flush()  # what a fork, or the end of the program, has put there raises
            raise_result(_CLOSED)

    def refuse_interrupting(self) -> None:
        """Refuse to close in the handler of a signal that interrupts a send, which a close would wait for."""
        self.refuse_inside("close")
        refuse_interrupting("A close", self.pending.changed.lock)

    def stop(self) -> bool:
        """Take no more messages, and push the open batches; False if it is closed, and nothing is left to do."""
        if self.finished:
            return False
        if not self.closed:
            self.refuse_closed()
        self.run_left_over()
        self.exclusively(self._bar)
        return True

    def _bar(self) -> None:
        """Let nothing enter any more, behind the open batches; the lock is held."""
        self.closed = True
        self.push_open()
        self.pending.barred = True

    def settle(self, deadline: float) -> None:
        """Wait for outcomes while the connection lasts, until `deadline`, a monotonic time in seconds."""
        while not self.pending.wait_for(self._is_settled, 0.02):
            if time.monotonic() >= deadline or not self.handle.is_connected():
                return

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails what is still on its way."""
        return self.context.senders.answer_to(self.handle.inner.close_async)

    def conclude(self, deadline: float) -> None:
        """Wait until what failed is reported, until `deadline`, a monotonic time in seconds."""
        self.pending.wait_for(self._is_settled, max(deadline - time.monotonic(), 0))
        _unsettled.pop(self, None)
        self.finished = True

    def _is_settled(self) -> bool:
        """Whether everything has its outcome."""
        return self.pending.completed >= self.pending.accepted

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client is shut down."""
        self.forgotten = self.closed = self.finished = self.pending.barred = True

    def fail_pending(self) -> None:
        """Report every message that has no outcome as failed with `AlreadyClosed`; `forget` was called."""
        self.context.outcomes.run(self._fail_rest)  # the lock comes free when a send is done that a signal interrupted

    def _fail_rest(self) -> None:
        self.run_left_over()
        with self.lock:
            self.push_open()
            lost = list(self._flying)
        for batch in lost:
            if not batch.refused:  # or its halves are lost, and not the whole
                self.failed(batch, _CLOSED)

    def _bar_(self) -> None:
        """Let no thread enter the C++ producer any more: the program ends."""
        self.pending.barred = True
        self.handle.inner = closed("Producer")

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process; a lock may have been held at the fork, for good."""
        self.handle.inner = refusal
        self.renew()
        self.pending = PendingMessages(-1)
        self.pending.barred = True


_unsettled: dict[BatchDispatcher, None] = {}
"""Those with messages whose outcome is not known yet."""


def built_again(batch: Batch) -> Any:
    """Return the C++ message of a batch, made again: one that was sent cannot be sent again."""
    if batch.message is None:
        return batch.entry()
    return build_again(batch.message, batch.options, batch.ids[0])


class ReplacingDispatcher(BatchDispatcher, ABC):
    """A `BatchDispatcher` that may close its C++ producer, and resend by another one what has no outcome."""

    replacing = False
    """Whether the C++ producer is closed, and another one is being opened."""

    @abstractmethod
    def reopen(self) -> pulsar.Producer:
        """Open an official producer of the topic, as soon as the broker allows it."""

    @abstractmethod
    def give_up(self, error: BaseException) -> None:
        """Fail what is in flight: no other producer could be opened."""

    def replace(self) -> None:
        """Close the C++ producer, and resend by another one what has no outcome; on a thread of its own."""
        try:
            close_quietly(self.handle)
            official = self.reopen()
        except BaseException as error:  # noqa: BLE001  # its senders must get an answer
            self.give_up(error)
            return
        if not self.exclusively(self._install, official):
            close_quietly(official)
            self.fail_waiting()

    def _install(self, official: pulsar.Producer) -> bool:
        """Take another producer, and resend what has no outcome; False if nothing may be sent. The lock is held."""
        if self.closed or self.pending.barred or not self.may_push():
            return False
        self.handle.replace(official)
        self.replacing = False
        for batch in list(self._flying):
            is_pushed = not operator.length_hint(batch.unsent or (None,))
            if is_pushed:  # else a signal's handler ended its push, which is still to be done
                self.resend(batch)
        self._push_groups()
        return True

    def resend(self, batch: Batch) -> None:
        """Give a batch to the C++ producer again; the lock is held."""
        message = built_again(batch)
        if batch.message is not None:
            batch.message = message
        self.handle.inner.send_async(message, partial(self.on_outcome, batch))

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails what is in flight; what waits for another one fails, too."""
        answer = super().begin_close()
        if self.replacing:
            self.fail_waiting()
        return answer

    def fail_waiting(self) -> None:
        """Fail what waits for another C++ producer."""
        self.replacing = False
        self.fail_pending()
