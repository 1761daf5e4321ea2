"""The asyncio producer, like `pulsar_ext.Producer`, also with deduplication."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic

import pulsar
import pulsar.asyncio

from pulsar_ext._native.handles import AsyncProducerHandle
from pulsar_ext._native.results import Result
from pulsar_ext._native.signatures import with_signature_of
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.produce.options import named_options
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, SentMany, duplicate_message
from pulsar_ext.producer import Producer as BlockingProducer
from pulsar_ext.schema.typed import T

from ._executor import Closable, Executor, awaited, forwarded, running_loop_bridge
from .errors import error_of, translating

_OK = pulsar.Result.Ok


class Producer(Closable, AsyncProducerHandle, Generic[T]):
    """A `pulsar.asyncio.Producer` with the features of `pulsar_ext.Producer`; made by `Client.create_producer()`."""

    def __init__(
        self, blocking: BlockingProducer[T], executor: Executor, capacity: int | None, *, patience: float
    ) -> None:
        super().__init__(blocking)
        self.blocking = blocking
        self._executor = executor
        self._capacity = capacity
        """Number of pending messages up to which a send never blocks; None if no send ever blocks."""
        self._patience = patience
        """Time in seconds that a close waits for sends that wait for room."""
        self._in_flight = 0
        """Number of sends without a result."""
        self._queued = 0
        """Number of sends that wait on the sending thread, for room or for earlier sends."""
        self._sending_many = 0
        """Number of `send_many()` in progress, whose messages are not counted here."""
        self._unflushed = self._flushed = 0
        """Number of `send_many()` that ended without a flush, and the number of those that were flushed later."""
        self._closing = False
        self._sending_thread: ThreadPoolExecutor | None = None
        self._last_begun: Future[int] | None = None
        """When closing: done when every waiting send has begun; several closes may wait for it."""

    @with_signature_of(pulsar.asyncio.Producer.send)
    async def send(self, content: T, *args: object, **kwargs: object) -> MessageId:
        """Publish a message and wait until it is persisted, with the official arguments.

        If the queue is full and `block_if_queue_full` is set, it waits for room without blocking the loop. A cancelled
        send may still be persisted. With deduplication, it raises `DuplicateMessage` if the topic has the message.
        """
        options = named_options(args, kwargs)
        if options.get("disable_replication", False) is None:
            options = {**options, "disable_replication": False}
        loop = asyncio.get_running_loop()
        future: asyncio.Future[MessageId] = loop.create_future()
        callback = partial(running_loop_bridge().call_soon, self._complete_send, future, options.get("sequence_id"))
        begin = partial(self.blocking.send_async, content, callback, **options)
        with translating():
            if self._has_room():
                begin()
                self._in_flight += 1
            else:
                await self._send_on_thread(begin)
        return await future

    async def send_many(self, contents: Iterable[T], **columns: Any) -> SentMany:
        """Publish many messages and wait until they are persisted, with the arguments of the blocking method."""
        sending = asyncio.ensure_future(self._executor.run(self.blocking.send_many, contents, **columns))
        self._sending_many += 1
        sending.add_done_callback(partial(self._sent_many, flushed=columns.get("flush", True)))
        return await asyncio.shield(sending)  # a cancelled caller does not cancel it

    stats = awaited(BlockingProducer.stats)
    last_sequence_id_published = forwarded(BlockingProducer.last_sequence_id_published)
    last_sequence_id_pushed = forwarded(BlockingProducer.last_sequence_id_pushed)

    async def flush(self) -> None:
        """Send the open batch, and wait until all sent messages are persisted, also those that wait for room."""
        thread = self._sending_thread
        begun = self._last_begun if thread is None else thread.submit(int)
        if begun is not None:
            await asyncio.wait({asyncio.wrap_future(begun)})
        left = self._unflushed
        await self._executor.run(self.blocking.flush)
        self._flushed = max(self._flushed, left)

    async def close(self) -> None:
        """Send all messages, wait until they are persisted, and close; a second close raises `AlreadyClosed`."""
        if self.blocking.sender.closed:
            raise error_of(pulsar.Result.AlreadyClosed)
        await self._complete_queued_()
        await self._executor.run(self.blocking.close)

    @property
    def _is_closed(self) -> bool:
        return self.blocking.sender.closed or self._executor.closed

    async def _complete_queued_(self) -> None:
        """Begin the sends that wait for room, and reject new ones: a send after the close would have no result."""
        self._reject_queued_()
        if self._last_begun is not None:
            await asyncio.wait({asyncio.wrap_future(self._last_begun)}, timeout=self._patience)

    def _reject_queued_(self) -> None:
        """Reject new sends that would wait for room; waiting sends continue."""
        self._closing = True
        if self._sending_thread is not None:
            self._last_begun = self._sending_thread.submit(int)
            self._sending_thread.shutdown(wait=False)
            self._sending_thread = None

    def _has_room(self) -> bool:
        """Return whether a send that begins now certainly does not block."""
        if self._capacity is None:
            return True
        uncounted = self._sending_many or self._flushed < self._unflushed
        return self._in_flight < self._capacity and not (self._queued or uncounted)

    def _sent_many(self, _: object, *, flushed: bool) -> None:
        self._sending_many -= 1
        if not flushed:
            self._unflushed += 1

    async def _send_on_thread(self, send: Callable[[], object]) -> None:
        """Send on the thread that may wait for room and keeps the order, in a copy of the caller's context."""
        if self._closing:
            raise error_of(pulsar.Result.AlreadyClosed)
        if self._sending_thread is None:
            self._sending_thread = ThreadPoolExecutor(1, "pulsar-ext-send")
        self._queued += 1
        self._in_flight += 1
        sending = self._sending_thread.submit(contextvars.copy_context().run, send)
        # Counted until the thread has finished with it, also if the caller is cancelled.
        sending.add_done_callback(partial(running_loop_bridge().call_soon, self._leave_queue))
        await asyncio.shield(asyncio.wrap_future(sending))

    def _leave_queue(self, sending: Future[None]) -> None:
        self._queued -= 1
        if sending.exception() is not None:
            self._in_flight -= 1  # it was rejected, and the callback is not called

    def _complete_send(
        self, future: asyncio.Future[MessageId], sequence_id: int | None, result: Result, sent: MessageId
    ) -> None:
        self._in_flight -= 1
        if future.done():
            return
        if result is DUPLICATE_MESSAGE:
            future.set_exception(duplicate_message(sequence_id))
        elif result == _OK:
            future.set_result(sent)
        else:
            future.set_exception(error_of(result))
