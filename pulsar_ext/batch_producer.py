"""A batched producer that makes its batches itself, so that one native callback tells the outcome of a whole batch.

A batch is one entry, persisted whole or not at all. The official client crosses the interpreter lock for each message
and again for its callback, which is nearly all that a send costs. Here messages wait in Python until their batch is
full, its delay is over, or something flushes; the batch's payload is written in Python, and is handed to a C++ producer
without batching as one message that says how many it holds. No message is handed over alone, and nobody else can cut
the batch. A batch carries the highest sequence id of its messages, and each message keeps its own.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pulsar
import pulsar.schema

from ._official import batch_message, raise_result, shaped_like
from .batch_wire import NULL_VALUE, key_fields, option_fields
from .batches import Batch, Group
from .bulk import Bulk, SentMany, columns_of
from .callbacks import DUPLICATE_MESSAGE, SENDING, SendCallback, refuse_in_callback
from .message_id import MessageId, from_inner, id_in_batch
from .producer import Producer
from .sending import (
    Counter,
    Place,
    Settings,
    Waiter,
    call_back,
    deliver_each,
    in_partition,
    key_of,
    named_options,
    stands_alone,
)
from .ticker import ticker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .batches import Item
    from .dedup import Sequence as Numbers

__all__ = ["BatchingProducer"]

_OK, _TOO_BIG, _UNKNOWN = pulsar.Result.Ok, pulsar.Result.MessageTooBig, pulsar.Result.UnknownError
_FULL, _CLOSED = pulsar.Result.ProducerQueueIsFull, pulsar.Result.AlreadyClosed
_NO_OPTIONS: dict[str, Any] = {}


class BatchingProducer(Producer):
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

    # Sending

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message, with what its batch holds by now, and wait until it is persisted.

        Raises:
            DuplicateMessage: with deduplication, the topic holds it already.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        refuse_in_callback(self._client, "send")
        if self._barred:
            return super().send(content, *args, **kwargs)
        waiter = Waiter()
        options = named_options(args, kwargs)
        self.post(content, waiter, options)
        self.cut()
        return waiter.wait(options.get("sequence_id"))

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Publish a message and have `callback(result, message_id)` called once it is persisted or has failed.

        The callback runs on the client's I/O thread, or on one of this library's. What it raises is logged and goes no
        further; a send, flush or close that would wait for that same thread is refused there.
        """
        if not (args or kwargs) and type(content) is bytes and self._plain and callable(callback):
            with self._lock:  # what nearly every message is: it joins a batch that it does not fill
                group, numbers = self._group, self._numbers
                left = group.left - len(content)
                if (
                    group.only is not None
                    and group.free > 1
                    and left > 0
                    and numbers.steady
                    and self._accepted - self._released < self._most
                ):
                    number = numbers.last + 1
                    group.only.append((content, callback, number, b"", b""))
                    numbers.last = number
                    group.free -= 1
                    group.left = left
                    self._accepted += 1
                    return
        if callback is not None and not callable(callback):
            raise TypeError(f"The callback is a {type(callback).__name__}, which cannot be called.")
        if self._barred:
            super().send_async(content, callback, *args, **kwargs)
            return
        self.post(content, callback, named_options(args, kwargs) if args or kwargs else _NO_OPTIONS)

    def send_many(
        self,
        contents: Iterable[Any],
        *,
        partition_keys: Iterable[str | None] | None = None,
        ordering_keys: Iterable[str | None] | None = None,
        sequence_ids: Iterable[int | None] | None = None,
        properties: Iterable[dict[str, str] | None] | None = None,
        event_timestamps: Iterable[int | None] | None = None,
        flush: bool = True,
    ) -> SentMany:
        """Publish many messages, without a callback for each; the fastest way to send.

        Waits for room where the queue is full, also without `block_if_queue_full`.

        Args:
            contents: the messages' values.
            partition_keys: one for each message.
            ordering_keys: one for each message.
            sequence_ids: one for each message.
            properties: one for each message.
            event_timestamps: one for each message, in milliseconds since the epoch.
            flush: whether to wait until all of them are persisted.

        Raises:
            pulsar.PulsarException: with `flush`, the error of the first message that failed.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
            ValueError: the iterables are not equally long; what came before is sent.
        """
        refuse_in_callback(self._client, "send_many")
        if self._barred:
            self.inner.flush()  # raises what a closed producer raises
        bulk = Bulk()
        columns = columns_of(partition_keys, ordering_keys, sequence_ids, properties, event_timestamps)
        if set(columns) <= self._swift:
            taken = self.bulk_post(contents, columns.get("sequence_id"), bulk)
        else:
            taken = 0
            for content, *row in zip(contents, *columns.values(), strict=True):
                self.post(content, bulk.one, dict(zip(columns, row, strict=True)), patient=True)
                taken += 1
        if flush:
            self.cut()
            self.await_done(lambda: bulk.done >= taken)
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    _swift = frozenset[str]()
    """Which columns of `send_many` go with whole batches at once."""

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
        if options and stands_alone(options):
            with self._lock:
                if self._has_room() or self._make_room(callback, patient=patient):
                    number = self._number(options)
                    message = self.build(content, **{**options, "sequence_id": number})
                    self._push_alone(message, callback, (number,))
                    self._numbers.last = max(self._numbers.last, number)
            return
        data, fields, keys = (
            self.encode(content, options)
            if options or content is None
            else (
                self._schema.encode(content),
                b"",
                b"",
            )
        )
        if type(data) is not bytes:
            self.build(content)  # raises what the official client raises
        with self._lock:
            if not self._has_room() and not self._make_room(callback, patient=patient):
                return
            sequence_id = self._number(options)
            self._join(key_of(options), (data, callback, sequence_id, fields, keys))
            self._numbers.last = max(self._numbers.last, sequence_id)

    def _number(self, options: dict[str, Any]) -> int:
        """Give a message's sequence id: an automatic one goes on behind explicit ones."""
        given: int | None = options.get("sequence_id")
        return self._numbers.last + 1 if given is None else given

    def encode(self, content: Any, options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Write a message's payload, what it has besides, and its keys.

        Raises:
            TypeError: as officially, for an argument that the official client does not take.
        """
        if not self._settings.takes(options):
            self.build(content, **options)
        if content is None:
            return b"", NULL_VALUE + option_fields(options), key_fields(options)
        return self._schema.encode(content), option_fields(options), key_fields(options)

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
        return deque(group.close())

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
        group.sealed.extendleft(reversed(halves))

    # Outcomes

    def _told(self, batch: Batch, result: Any, inner: Any) -> None:
        """Hear the outcome of a batch: the native callback."""
        if result == _OK:
            self._settled(batch, inner)
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

    # Bulk

    def bulk_post(self, contents: Iterable[Any], sequence_ids: Iterable[Any] | None, bulk: Bulk) -> int:
        """Send without callbacks, in whole batches where that is possible; give how many."""
        limit, taken = self._settings.limit, 0
        step = self._settings.bounds.messages if not limit else min(self._settings.bounds.messages, max(1, limit // 2))
        source = iter(contents)
        ids = None if sequence_ids is None else iter(sequence_ids)
        encode = self._schema.encode
        while part := list(islice(source, step)):
            numbers = None if ids is None else list(islice(ids, len(part)))
            if numbers is not None and len(numbers) != len(part):
                raise ValueError(f"There are fewer sequence_ids than contents: {taken + len(numbers)}.")
            data: list[Any] = [encode(content) if content is not None else None for content in part]
            whole = not self._settings.by_key and all(type(one) is bytes for one in data)
            whole = whole and sum(map(len, data)) <= self._settings.bounds.size
            if not whole or not self._bulk_push(data, numbers, bulk):
                for index, content in enumerate(part):
                    options = {} if numbers is None else {"sequence_id": numbers[index]}
                    self.post(content, bulk.one, options, patient=True)
            taken += len(part)
        if ids is not None and next(ids, None) is not None:
            raise ValueError(f"There are more sequence_ids than contents: {taken}.")
        return taken

    def _bulk_push(self, data: list[bytes], numbers: list[Any] | None, bulk: Bulk) -> bool:
        """Push a batch of its own at once; False if that is not possible, and nothing was done."""
        if numbers is not None:
            return False
        with self._lock:
            self._wait_for_bulk(len(data))
            first = self._numbers.last + 1
            self._numbers.last += len(data)
            self._push_whole(Batch.of(data, range(first, first + len(data)), bulk))
        return True

    def _wait_for_bulk(self, count: int) -> None:
        """Wait for room for so many; the lock is held once."""
        while not self._has_room(count):
            if self._barred:
                self.inner.flush()  # raises what a closed producer raises
            self._cut()
            self._lock.release()
            try:
                self.await_done(lambda: self._barred or self._has_room(count))
            finally:
                self._lock.acquire()

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


_unsettled: dict[BatchingProducer, None] = {}
"""Producers with messages whose outcome is not told yet: were one dropped, they would vanish with it."""


SENDING.add(BatchingProducer.send_async.__code__)
