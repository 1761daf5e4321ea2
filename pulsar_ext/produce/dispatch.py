"""A batched producer that makes its batches itself, so that one native callback tells the outcome of a whole batch.

A batch is one entry, persisted whole or not at all. The official client crosses the interpreter lock for each message
and again for its callback, which is nearly all that a send costs. Here messages wait in Python until their batch is
full, its delay is over, or something flushes; the batch's payload is written in Python, and is handed to a C++ producer
without batching as one message that says how many it holds. No message is handed over alone, and nobody else can cut
the batch. A batch carries the highest sequence id of its messages, and each message keeps its own.
"""

from __future__ import annotations

import logging
import operator
import sys
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar
import pulsar.schema

from pulsar_ext._native.messages import batch_message
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.callbacks import SendCallback, refuse_in_callback
from pulsar_ext._runtime.scheduler import ticker
from pulsar_ext.ids.message_id import MessageId, from_inner, id_in_batch
from pulsar_ext.producer import Producer

from .batch import Batch, Group, ordered
from .outcome import DUPLICATE_MESSAGE, Place, call_back, deliver_each, in_partition
from .sequence_counter import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext.dedup.sequence_ids import Sequence as Numbers

    from .batch import Item
    from .config import Settings

__all__ = ["BatchEngine"]

_OK, _TOO_BIG = pulsar.Result.Ok, pulsar.Result.MessageTooBig
_FULL, _CLOSED = pulsar.Result.ProducerQueueIsFull, pulsar.Result.AlreadyClosed


_log = logging.getLogger("pulsar_ext")


class BatchEngine(Producer):
    """A `Producer` with batches of its own, on a topic without partitions or on one partition.

    The lock `_lock` orders what is sent; nothing waits while it holds it. Outcomes only ever take `_done`. A Ctrl-C can
    come between any two steps here: what is half done then is finished by the next that sends, flushes or ticks.
    """

    __slots__ = (
        "_abandoned",
        "_accepted",
        "_completed",
        "_cutting",
        "_done",
        "_failure",
        "_group",
        "_groups",
        "_lock",
        "_most",
        "_numbers",
        "_opened",
        "_plain",
        "_released",
        "_settings",
        "_ticker",
        "_waiting",
    )

    def open(self, settings: Settings) -> None:
        """Begin: the factory's second step."""
        self._settings = settings
        self._group = Group(settings.bounds, by_key=settings.by_key)
        self._groups: deque[Group] = deque()
        self._cutting = self._abandoned = False
        self._lock = threading.RLock()
        self._done = threading.Condition(threading.Lock())
        self._accepted = self._released = self._completed = self._waiting = 0
        self._failure: Any = None
        self._opened = 0.0
        self._numbers: Numbers | Counter = Counter(int(self.inner.last_sequence_id()))
        self._most = settings.limit or sys.maxsize
        self._plain = type(self._schema) is pulsar.schema.BytesSchema
        self._ticker = ticker()

    # Joining a batch

    def _join(self, key: str, item: Item) -> None:
        """Put a message into the open batch of its key; the lock is held."""
        group = self._group
        if not group.has_room(len(item[0])):
            self._cut()
            group = self._group
        full = group.join(key, item)
        self._accepted += 1
        if full:
            self._cut()
        elif group.count == 1:
            self._opened = time.monotonic()
            self._ticker.watch(self, self._opened + self._settings.delay)

    def _has_room(self, count: int = 1) -> bool:
        return not self._barred and self._accepted - self._released + count <= self._most

    def _make_room(self, callback: SendCallback | None, *, patient: bool) -> bool:
        """Wait for room, or tell that there is none; the lock is held once."""
        while not self._has_room():
            if self._barred:
                self._refuse(callback, _CLOSED)
                return False
            self._cut()  # what waits for its delay holds room that nobody can use
            if not (self._settings.blocks or patient):
                self._refuse(callback, _FULL)
                return False
            refuse_in_callback(self._client, "send_async with a full queue")
            self._lock.release()
            try:
                self.await_done(lambda: self._barred or self._has_room())
            finally:
                self._lock.acquire()
        return True

    def _refuse(self, callback: SendCallback | None, result: Any) -> None:
        """Tell a message's outcome at once, on the sender's own thread."""
        if callback is None:
            if result is not DUPLICATE_MESSAGE:
                self._failure = self._failure or result
            return
        self._lock.release()
        try:
            call_back(callback, result, MessageId(), self._client)
        finally:
            self._lock.acquire()

    # Batches

    def cut(self) -> None:
        """Push what the open batches hold."""
        with self._lock:
            self._cut()

    def tick(self, now: float) -> float | None:
        """Push the open batches whose delay is over; the ticker's call."""
        with self._lock:
            if not self._group.count:
                return None
            due: float = self._opened + self._settings.delay
            if due > now:
                return due
            self._cut()
            return None

    def _cut(self) -> None:
        if self._group.batches:
            if not self._groups or self._groups[-1] is not self._group:
                self._groups.append(self._group)
            self._group = Group(self._settings.bounds, by_key=self._settings.by_key)
        self._push_groups()

    def _push_alone(self, message: Any, callback: SendCallback | None, ids: Sequence[int]) -> None:
        """Push a C++ message as an entry of its own, behind what came before it."""
        batch = Batch(message)
        batch.callbacks, batch.ids, batch.count = (callback,), ids, 1
        self._push_whole(batch)

    def _push_whole(self, batch: Batch) -> None:
        """Push a batch that is made, behind what came before it."""
        group = Group(self._settings.bounds, by_key=self._settings.by_key)
        group.batches[""] = batch
        if self._group.batches:
            self._groups.append(self._group)
            self._group = Group(self._settings.bounds, by_key=self._settings.by_key)
        self._groups.append(group)
        self._accepted += batch.count
        self._push_groups()

    def _push_groups(self) -> None:
        """Push what is closed, in order."""
        if self._cutting:
            return  # a signal's handler sends: the push that it interrupted goes on with this
        interrupted: BaseException | None = None
        self._cutting = True
        try:
            while self._groups:
                group = self._groups[0]
                if group.sealed is None:
                    group.sealed = self._seal(group)
                while group.sealed:
                    try:
                        self._push(group.sealed[0])
                    except BaseException as error:
                        if operator.length_hint(group.sealed[0].feed or (None,)):
                            raise  # it is still to be pushed
                        interrupted = error  # a signal's handler raised behind it
                    if group.sealed[0].refused:
                        self._part(group)
                    else:
                        group.sealed.popleft()
                self._groups.popleft()
        finally:
            self._cutting = False
        if interrupted is not None:
            raise interrupted

    def _seal(self, group: Group) -> deque[Batch]:
        """Decide in which order a group's batches are pushed."""
        return ordered(group.close())

    def _push(self, batch: Batch) -> None:
        """Hand a batch to the C++ producer."""
        if batch.feed is None:
            message = batch_message(batch.payload(), batch.count) if batch.message is None else batch.message
            batch.began = time.monotonic()
            _unsettled[self] = None
            batch.feed = iter((message,))
        # In C from end to end: either the batch is handed over and the feed is empty, or neither.
        deque(map(self.inner.send_async, batch.feed, (partial(self._told, batch),)), 0)

    def _part(self, group: Group) -> None:
        """Part a batch that is larger than the broker allows, and of which nothing was sent."""
        assert group.sealed is not None  # noqa: S101  # it is being pushed
        batch = group.sealed.popleft()
        if batch.count == 1:
            self._ticker.run(partial(self._deliver, batch, _TOO_BIG, None))
            return
        halves = batch.halves()
        for half in halves:
            half.close()
        group.sealed = ordered([*halves, *group.sealed])

    # Outcomes

    def _told(self, batch: Batch, result: Any, inner: Any) -> None:
        """Hear the outcome of a batch: the native callback, out of which nothing may be raised."""
        keep_thread_state()
        if result == _OK:
            try:
                self._settled(batch, inner)
            except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
                _log.exception("The outcome of a batch could not be told")
        elif result == _TOO_BIG:
            batch.refused = True  # told while it is pushed, by the thread that pushes it
        else:
            self._ticker.run(partial(self._failed, batch, result))

    def _settled(self, batch: Batch, inner: Any) -> None:
        """Hear that a batch is persisted."""
        self._deliver(batch, _OK, self._place(batch, inner))

    def _place(self, batch: Batch, inner: Any) -> Place:
        """Give where a batch is persisted, or the id of an entry that is no batch."""
        own = self._settings.partition
        if batch.message is not None:
            return from_inner(inner if own < 0 else in_partition(inner, own))
        return inner.ledger_id(), inner.entry_id(), inner.partition() if own < 0 else own

    def _failed(self, batch: Batch, result: Any) -> None:
        """Hear that a batch has failed; never on a C++ thread that holds the producer's lock."""
        self._deliver(batch, result, None)

    def _deliver(self, batch: Batch, result: Any, place: Place | None) -> None:
        """Tell each message of a batch its outcome; `place` is where it is persisted, or the ids themselves."""
        _client = self._client  # by this name the guard against waiting in a callback knows the client
        count = batch.count
        with self._done:
            self._released += count
            if self._waiting:
                self._done.notify_all()
        if batch.bulk is not None:
            last = id_in_batch((*place, count - 1), count) if isinstance(place, tuple) else place
            batch.bulk.many(result, count, last)
        else:
            deliver_each(batch.callbacks, result, place, count, _client)
        if result != _OK and result is not DUPLICATE_MESSAGE:
            self._failure = self._failure or result
        with self._done:
            self._completed += count
            if self._waiting:
                self._done.notify_all()
            if self._completed >= self._accepted:
                _unsettled.pop(self, None)

    def await_all(self) -> None:
        """Wait until everything that was accepted by now has its outcome."""
        sent = self._accepted
        self.await_done(lambda: self._completed >= sent)

    def await_done(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition about outcomes holds; a Ctrl-C ends the wait."""
        with self._done:
            self._waiting += 1
            try:
                return self._done.wait_for(lambda: condition() or self._abandoned, seconds)
            finally:
                self._waiting -= 1

    # The end

    def flush(self) -> None:
        """Push the open batches and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message that was sent since the last flush has failed; the first one's error.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        refuse_in_callback(self._client, "flush")
        if self._barred:
            self.inner.flush()
            return
        with self._lock:
            self._cut()
            sent = self._accepted
        self.await_done(lambda: self._completed >= sent)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise_result(failure)

    def finish(self, deadline: float) -> None:
        """Push the open batches, wait for outcomes until `deadline` while the connection lasts, and close."""
        if self._closed:
            return
        if self._barred:
            self.inner.close()  # inherited across a fork: raises
        with self._lock:
            self._closed = True
            self._cut()
            self._barred = True
            sent = self._accepted
        try:
            while not self.await_done(lambda: self._completed >= sent, 0.02):
                if time.monotonic() >= deadline or not self.inner.is_connected():
                    break
        finally:
            try:
                self.inner.close()
            finally:
                self.await_done(lambda: self._completed >= sent, 1.0)  # the rest is told that it has failed
                self._let_go()

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client was shut down."""
        self._closed = self._barred = self._abandoned = True
        with self._done:
            self._done.notify_all()
        self._let_go()

    def _let_go(self) -> None:
        _unsettled.pop(self, None)


_unsettled: dict[BatchEngine, None] = {}
"""Producers with messages whose outcome is not told yet: were one dropped, they would vanish with it."""
