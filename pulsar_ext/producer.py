"""Producers: ids that know their chunks, callbacks that cannot take the process down, and no deadlock on chunks.

Mirrors Java's `ProducerImpl`. The official client acquires a place in its queue for every chunk while it holds the lock
that frees places, so a full queue deadlocks it for good, and a refused message leaks the places it had. A producer of
chunked messages therefore runs without the official queue, behind a `Window` of our own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import pulsar

from ._native.fork import closed, refuse_after_fork
from ._native.handles import ProducerDoor, adopt
from ._native.results import raise_result
from ._native.signatures import shaped_like
from ._runtime.callbacks import SENDING, SendCallback, guard_callback, refuse_in_callback
from .errors import InvalidUse
from .ids.message_id import MessageId, from_inner, plain_from_inner
from .produce.outcome import Bulk, SentMany, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .client.client import Client
    from .produce.pending_limit import Window

__all__ = ["Producer"]


_BULK_PENDING = 500
"""How many of `send_many` are on their way at most: half of the official queue's default."""

_SENDERS_SECONDS = 0.001

_unflushed: set[Producer] = set()
"""Producers that have sent without waiting: were one dropped, what it has not sent yet would vanish with it."""


class Producer(ProducerDoor):
    """A `pulsar.Producer` whose sends give whole ids; made by `Client.create_producer()`."""

    __slots__ = ("_barred", "_client", "_closed", "_inside", "_unflushed", "_window", "_wrap")

    def __init__(self) -> None:
        super().__init__()
        self._window: Window | None
        self._client: Client | None = None
        self._inside: list[int] = []
        self._barred = self._closed = False
        self._unflushed = False
        self._window = None
        self._wrap = plain_from_inner

    @classmethod
    def _of(cls, official: pulsar.Producer, client: Client, window: Window | None) -> Self:
        """Take over an official producer; `window` bounds what is pending, in place of the official queue."""
        self = cls.__new__(cls)
        adopt(self, official, client)
        self._inside = []  # the threads that are sending, whom a close waits for
        self._barred = self._closed = False
        self._unflushed = False
        self._window = window
        self._wrap = plain_from_inner if window is None else from_inner
        refuse_after_fork(self)
        return self

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message and wait until it is persisted; the arguments are the official ones.

        Returns:
            The message's id, a `ChunkMessageId` if it was sent in chunks.

        Raises:
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        refuse_in_callback(self._client, "send")
        message = self.build(content, *args, **kwargs)
        window, thread = self._window, get_ident()
        self._inside.append(thread)
        try:
            if self._closed:
                raise_result(pulsar.Result.AlreadyClosed)
            if window is None:
                return self._wrap(self.inner.send(message))
            weight = window.weigh(message.length())
            if not self._enter(window, weight):
                raise pulsar.ProducerQueueIsFull("Pulsar error: ProducerQueueIsFull")
            try:
                return from_inner(self.inner.send(message))
            finally:
                window.release(weight)
        finally:
            self._inside.remove(thread)

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Publish a message and have `callback(result, message_id)` called once it is persisted or has failed.

        The callback runs on the client's I/O thread. What it raises is logged and goes no further; a send, flush or
        close that would wait for that same thread is refused there.

        Args:
            content: the message's value.
            callback: called with a `pulsar.Result` and a `MessageId`; None ignores the outcome.
            *args: the official arguments.
            **kwargs: the official arguments.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"The callback is a {type(callback).__name__}, which cannot be called.")
        message = self.build(content, *args, **kwargs)
        guarded = None if callback is None else guard_callback(callback, self._client, self._wrap)
        if not self._unflushed:
            self._unflushed = True
            _unflushed.add(self)
        thread = get_ident()
        self._inside.append(thread)
        try:
            if self._closed:
                refused = pulsar.Result.AlreadyClosed
            elif self._window is None:
                self.inner.send_async(message, guarded)
                return
            elif self._send_through(self._window, message, guarded):
                return
            else:
                refused = pulsar.Result.ProducerQueueIsFull
        finally:
            self._inside.remove(thread)
        if guarded is not None:
            guarded(refused, MessageId().inner)

    def _send_through(self, window: Window, message: Any, guarded: Callable[[Any, Any], None] | None) -> bool:
        """Send without waiting for the outcome; False if there is no room and the producer does not block."""
        weight = window.weigh(message.length())
        entered = False

        def done(result: Any, inner: Any) -> None:
            window.release(weight)
            if guarded is not None:
                guarded(result, inner)

        try:
            entered = self._enter(window, weight)
            if entered:
                self.inner.send_async(message, done)
        except BaseException:
            if entered:
                window.release(weight)
            raise
        return entered

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
        """Publish many messages; with `batching_enabled` the fastest way to send.

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
        bulk = Bulk()
        taken = 0
        columns = columns_of(partition_keys, ordering_keys, sequence_ids, properties, event_timestamps)
        for content, *row in zip(contents, *columns.values(), strict=True):
            self.send_async(content, bulk.one, **dict(zip(columns, row, strict=True)))
            taken += 1
            bulk.wait(taken - _BULK_PENDING)
        if flush:
            bulk.wait(taken)
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    def last_sequence_id_published(self) -> int:
        """Give the last sequence id that is persisted, as the official `last_sequence_id()`."""
        return int(self.last_sequence_id())

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message has, persisted or on its way.

        Raises:
            InvalidUse: without `deduplication=True` the C++ client gives the ids, and does not tell.
        """
        raise InvalidUse("last_sequence_id_pushed() needs a producer created with deduplication=True.")

    def flush(self) -> None:
        """Send what is batched and wait until everything sent so far is persisted.

        Raises:
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        refuse_in_callback(self._client, "flush")
        self._unflushed = False
        self.inner.flush()
        if not self._unflushed:
            _unflushed.discard(self)

    def close(self) -> None:
        """Wait until everything sent so far is persisted, then close; closing again does nothing.

        The wait ends with the connection, and at the latest after the client's `operation_timeout_seconds`: what is
        pending then fails with `AlreadyClosed`.
        """
        if self._client is None:
            self.inner.close()
            return
        refuse_in_callback(self._client, "close")
        self.finish(time.monotonic() + self._client.context.operation_timeout_seconds)

    def finish(self, deadline: float) -> None:
        """Close, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds."""
        if self._closed:
            return
        self._closed = True
        try:
            self._await_senders(deadline)
            self._flush_until(deadline)  # the official close fails an open batch
        finally:
            try:
                self.inner.close()
            finally:
                self._let_go()

    def _await_senders(self, deadline: float) -> None:
        """Wait for other threads to come back out of the C++ producer: closing forgets what comes in meanwhile."""
        thread = get_ident()
        while any(one != thread for one in list(self._inside)):
            if time.monotonic() >= deadline or not self.inner.is_connected():
                return
            time.sleep(_SENDERS_SECONDS)

    def _flush_until(self, deadline: float) -> None:
        """Flush while the connection lasts: the native flush would wait for a lost one for ever."""
        if not self.inner.is_connected():
            return
        flushed = threading.Event()

        def flush() -> None:
            with contextlib.suppress(pulsar.PulsarException):  # each message's callback has been told
                self.inner.flush()
            flushed.set()

        try:
            threading.Thread(target=flush, name="pulsar_ext-flush", daemon=True).start()
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            self.inner.flush_async(lambda _: flushed.set())
        while not flushed.wait(0.02) and time.monotonic() < deadline and self.inner.is_connected():
            pass

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client was shut down."""
        self._closed = True
        self._let_go()

    def after_fork(self, refusal: Any) -> None:
        """Refuse every use in this child process; the window's lock may have been held at the fork, for good."""
        super().after_fork(refusal)
        self._window = None
        self._barred = True

    def bar(self) -> None:
        """Let nobody enter the C++ producer any more: the program ends."""
        self.inner = closed("Producer")

    def _let_go(self) -> None:
        _unflushed.discard(self)
        if self._window is not None:
            self._window.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enter(self, window: Window, weight: int) -> bool:
        """Take room for a message; False if there is none and the producer does not block."""
        if window.try_acquire(weight):
            return True
        if not window.blocks:
            return False
        refuse_in_callback(self._client, "send_async with a full queue")
        window.acquire(weight)
        return True


SENDING.add(Producer.send_async.__code__)
