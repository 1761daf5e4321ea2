"""A batched producer that cuts its batches itself, so that one native callback tells the outcome of a whole batch.

A batch is one entry, persisted whole or not at all. The official client crosses the interpreter lock for each message's
callback, which is nine tenths of what a send costs; here only a batch's last message has a native callback. The id that
it gets tells at which index of a batch of which size it is, and so whether the batch was cut where it was meant to be.

Messages wait in Python until their batch is full, its delay is over, or something flushes; then they are handed to the
C++ producer, whose own limit is set to just that many messages. Nothing of it is timed there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from functools import partial
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import pulsar

from ._official import (
    InnerMessageBuilder,
    limit_batch,
    open_limits,
    raise_result,
    rebuilt_message,
    shaped_like,
)
from ._wire import decode
from .batches import Batch, Group
from .bulk import Bulk, SentMany, columns_of
from .callbacks import DUPLICATE_MESSAGE, SENDING, SendCallback, refuse_in_callback
from .message_id import MessageId, from_inner, id_in_batch
from .producer import Producer
from .sending import Settings, Waiter, call_back, deliver_each, in_partition, key_of, named_options
from .ticker import ticker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


__all__ = ["BatchingProducer"]

_OK, _TOO_BIG = pulsar.Result.Ok, pulsar.Result.MessageTooBig
_FULL, _CLOSED, _UNKNOWN = (
    pulsar.Result.ProducerQueueIsFull,
    pulsar.Result.AlreadyClosed,
    pulsar.Result.UnknownError,
)
_NO_OPTIONS: dict[str, Any] = {}
_log = logging.getLogger("pulsar_ext")


class BatchingProducer(Producer):
    """A `Producer` with batches of its own, on a topic without partitions or on one partition.

    The lock `_lock` orders what is sent; nothing waits while it holds it. Completions only ever take `_done`.
    """

    __slots__ = (
        "_abandoned",
        "_accepted",
        "_completed",
        "_configuration",
        "_done",
        "_failure",
        "_group",
        "_interrupted",
        "_lock",
        "_pushing",
        "_released",
        "_settings",
        "_ticker",
        "_waiting",
        "opened",
    )

    def open(self, settings: Settings, configuration: Any) -> None:
        """Begin: the factory's second step."""
        self._settings = settings
        self._configuration = configuration
        self._group = Group(settings.bounds)
        self._lock = threading.RLock()
        self._done = threading.Condition(threading.Lock())
        self._accepted = self._released = self._completed = self._waiting = 0
        self._pushing: Batch | None = None
        self._failure: Any = None
        self._interrupted: BaseException | None = None
        self._abandoned = False
        self._ticker = ticker()
        if settings.batched:
            open_limits(configuration)

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
        if options:
            message = self.build(content, **options)
            size = message.length()
        elif type(data := self._schema.encode(content) if content is not None else None) is bytes:
            builder = InnerMessageBuilder()
            builder.content(data)
            message = builder.build()
            size = len(data)
        else:
            message = self.build(content)
            size = message.length()
        self.join(message, size, callback, options, patient=patient)

    def join(
        self, message: Any, size: int, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Put a built message into its batch; the arguments are those of `post`."""
        with self._lock:
            if not self._has_room() and not self._make_room(callback, patient=patient):
                return
            if options and (options.get("deliver_at") or options.get("deliver_after")):
                self._push_alone(message, size, callback, None)
                return
            group = self._group
            if group.count and group.size + size > self._settings.bounds.size:
                self._cut()
            self._add(group, message, size, callback, options, None)

    def _add(
        self,
        group: Group,
        message: Any,
        size: int,
        callback: SendCallback | None,
        options: dict[str, Any],
        sequence_id: int | None,
    ) -> None:
        batch = group.batch(key_of(options) if self._settings.by_key else None)
        messages = batch.messages
        if options:
            batch.options[len(messages)] = options
        messages.append(message)
        batch.callbacks.append(callback)
        batch.size += size
        if sequence_id is not None:
            batch.ids.append(sequence_id)
        self._accepted += 1
        if group.joined(size):
            self._cut()
        elif group.count == 1:
            self._opened()

    def _opened(self) -> None:
        """Begin the delay of the first message of a group."""
        self.opened = time.monotonic()
        self._ticker.watch(self, self.opened + self._settings.delay)

    def _has_room(self, count: int = 1) -> bool:
        limit = self._settings.limit
        return not self._barred and (not limit or self._accepted - self._released + count <= limit)

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
            due: float = self.opened + self._settings.delay
            if due > now:
                return due
            self._cut()
            return None

    def _cut(self) -> None:
        batches = self._group.take()
        if batches:
            self._push_all(batches)
            self._reraise()

    def _push_alone(self, message: Any, size: int, callback: SendCallback | None, sequence_id: int | None) -> None:
        """Push a delayed message, which the client sends as an entry of its own, behind what came before it."""
        self._cut()
        batch = Batch(single=True)
        batch.messages.append(message)
        batch.callbacks.append(callback)
        batch.size = size
        if sequence_id is not None:
            batch.ids.append(sequence_id)
        self._accepted += 1
        self._push_all([batch])
        self._reraise()

    def _push_all(self, batches: Iterable[Batch]) -> None:
        """Push batches in this order; one that is too big for the broker, in two halves."""
        waiting = deque(batches)
        while waiting:
            batch = waiting.popleft()
            if not self._push(batch):
                waiting.extendleft(reversed(self._parted(batch)))

    def _parted(self, batch: Batch) -> list[Batch]:
        """Part a batch that was too big, of which nothing was sent; a single message has failed then."""
        if batch.count == 1:
            self._ticker.run(partial(self._deliver, batch, _TOO_BIG, None))
            return []
        halves = list(batch.halves())
        for half in halves:
            half.messages = [
                rebuilt_message(message, options, half.ids[index] if half.ids else options.get("sequence_id"))
                for index, message in enumerate(half.messages)
                for options in (half.options.get(index, _NO_OPTIONS),)
            ]
        return halves

    def _push(self, batch: Batch) -> bool:
        """Hand a batch to the C++ producer, which cuts it there and nowhere else; give whether it took it."""
        count = batch.count = len(batch.messages)
        if self._settings.batched and not batch.single:
            limit_batch(self._configuration, count)
        _unsettled[self] = None
        self._pushing = batch
        messages = iter(batch.messages)
        callbacks = chain(repeat(None, count - 1), (partial(self._told, batch),))
        send = self.inner.send_async
        while True:
            try:
                # Iterated from C. A signal's handler may raise only after a message was handed over: go on behind it.
                deque(map(send, messages, callbacks), 0)
            except BaseException as error:  # noqa: BLE001  # a batch pushed in part would never be cut
                self._interrupted = error
            else:
                break
        if self._pushing is None:
            return False
        self._pushing = None
        batch.messages = []  # the C++ producer holds them
        batch.options = {}
        return True

    def _reraise(self) -> None:
        """Raise what interrupted the push, now that it is whole."""
        interrupted, self._interrupted = self._interrupted, None
        if interrupted is not None:
            raise interrupted

    # Outcomes

    def _told(self, batch: Batch, result: Any, inner: Any) -> None:
        """Hear the outcome of a batch: the native callback."""
        if result == _OK:
            self._settled(batch, inner)
        elif result == _TOO_BIG and self._pushing is batch:
            self._pushing = None  # told before the push returns; nothing else is told there
        else:
            self._ticker.run(partial(self._failed, batch, result))

    def _settled(self, batch: Batch, inner: Any) -> None:
        """Hear that a batch is persisted."""
        place = self._place(batch, inner)
        if place is None:
            self._failed(batch, _UNKNOWN)
        else:
            self._deliver(batch, _OK, place)

    def _place(self, batch: Batch, inner: Any) -> tuple[int, int, int] | list[MessageId] | None:
        """Give where a batch is persisted, or its single message's id; None, and an error, if it was cut elsewhere."""
        if batch.single or not self._settings.batched:
            return [
                from_inner(inner if self._settings.partition < 0 else in_partition(inner, self._settings.partition))
            ]
        found = decode(inner.serialize())
        if (found.batch_index, found.batch_size) == (batch.count - 1, batch.count):
            return found.ledger_id, found.entry_id, self._partition_of(found.partition)
        _log.error(
            "The producer %s on %s pushed a batch of %d messages, and its last one is persisted as number %d of %d at "
            "%s: the batch was cut elsewhere. All its messages are told UnknownError.",
            *(self.producer_name(), self.topic(), batch.count, found.batch_index + 1, found.batch_size, inner),
        )
        return None

    def _partition_of(self, partition: int) -> int:
        own = self._settings.partition
        return partition if own < 0 else own

    def _failed(self, batch: Batch, result: Any) -> None:
        """Hear that a batch has failed; never on a C++ thread that holds the producer's lock."""
        self._deliver(batch, result, None)

    def _deliver(self, batch: Batch, result: Any, place: tuple[int, int, int] | list[MessageId] | None) -> None:
        """Tell each message of a batch its outcome; `place` is where it is persisted, or the ids themselves."""
        _client = self._client  # by this name the guard against waiting in a callback knows the client
        count = batch.count
        with self._done:
            self._released += count
            if self._waiting:
                self._done.notify_all()
        if batch.bulk is not None:
            last = (
                None
                if place is None
                else place[0]
                if isinstance(place, list)
                else id_in_batch((*place, count - 1), count)
            )
            batch.bulk.many(result, count, last)
        else:
            deliver_each(batch.callbacks, result, place, _client)
        if result != _OK and result is not DUPLICATE_MESSAGE:
            self._failure = self._failure or result
        with self._done:
            self._completed += count
            if self._waiting:
                self._done.notify_all()
            if self._completed == self._accepted:
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
            swift = not self._settings.by_key and all(type(one) is bytes for one in data)
            if (
                not swift
                or sum(map(len, data)) > self._settings.bounds.size
                or not self._bulk_push(data, numbers, bulk)
            ):
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
        messages = []
        for one in data:
            builder = InnerMessageBuilder()
            builder.content(one)
            messages.append(builder.build())
        with self._lock:
            self._wait_for_bulk(len(messages))
            self._enter_bulk(messages, bulk, [])
        return True

    def _enter_bulk(self, messages: list[Any], bulk: Bulk, ids: Sequence[int]) -> None:
        self._cut()
        batch = Batch()
        batch.messages, batch.ids, batch.bulk = messages, ids, bulk
        batch.callbacks = [None] * len(messages)
        self._accepted += len(messages)
        self._push_all([batch])
        self._reraise()

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
