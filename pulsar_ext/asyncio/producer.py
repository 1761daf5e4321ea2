"""The awaited producer: `pulsar_ext.Producer` for an event loop, effectively once included."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self

import pulsar
import pulsar.asyncio

from pulsar_ext._native.handles import AsyncProducerDoor
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext.produce.options import named_options
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, duplicate_message
from pulsar_ext.producer import Producer as BlockingProducer
from pulsar_ext.schema.typed import T

from ._executor import Executor, awaited
from ._loop_bridge import running_loop_bridge
from .errors import error_of, raise_for, translating

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.produce.outcome import SentMany


_OK = pulsar.Result.Ok


class Producer(AsyncProducerDoor, Generic[T]):
    """A `pulsar.asyncio.Producer` with everything of `pulsar_ext.Producer`; made by `Client.create_producer()`.

    Args:
        blocking: what sends.
        executor: runs the calls that wait.
        capacity: how many messages may be pending before a send may block; None if no send ever blocks.
        patience: how many seconds a close waits for the sends that wait for room.
    """

    def __init__(
        self, blocking: BlockingProducer[T], executor: Executor, capacity: int | None, *, patience: float
    ) -> None:
        super().__init__(blocking)
        self.blocking = blocking
        self._executor = executor
        self._capacity = capacity
        self._patience = patience
        self._in_flight = 0
        """How many sends have no outcome yet."""
        self._queued = 0
        """How many of them wait on the sending thread for room, or for those before them."""
        self._sending_many = 0
        """How many `send_many()` are under way, whose messages have no place in these counts."""
        self._left_unflushed = self._flushed = 0
        """How many of them have ended and left messages without outcome; and how many of those a flush came behind."""
        self._closing = False
        self._sending_thread: ThreadPoolExecutor | None = None
        self._last_begun: Future[int] | None = None
        """Once it is closing: done when every send that waited for room has begun; several closes may wait for it."""

    @shaped_like(pulsar.asyncio.Producer.send)
    async def send(self, content: T, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message and wait until it is persisted; the arguments are the official ones.

        If the queue is full and `block_if_queue_full` is set, it waits for room without holding up the loop. A
        cancelled send may be persisted all the same.

        Raises:
            PulsarException: the official error.
            DuplicateMessage: with deduplication, the topic already has it.
        """
        options = named_options(args, kwargs)
        if options.get("disable_replication", False) is None:
            options = {**options, "disable_replication": False}
        loop = asyncio.get_running_loop()
        future: asyncio.Future[MessageId] = loop.create_future()
        callback = partial(running_loop_bridge().call_soon, self._settle, future, options.get("sequence_id"))
        begin = partial(self.blocking.send_async, content, callback, **options)
        with translating():
            if self._has_room():
                begin()
                self._in_flight += 1
            else:
                await self._send_on_thread(begin)
        return await future

    async def send_many(self, contents: Iterable[T], **columns: Any) -> SentMany:
        """Publish many messages and wait until they are persisted; the arguments are those of the blocking one."""
        sending = asyncio.ensure_future(self._executor.run(self.blocking.send_many, contents, **columns))
        self._sending_many += 1
        sending.add_done_callback(partial(self._sent_many, flushed=columns.get("flush", True)))
        return await asyncio.shield(sending)  # a caller that is cancelled leaves it under way

    stats = awaited(BlockingProducer.stats)

    async def flush(self) -> None:
        """Send what is batched and wait until everything sent so far is persisted, what waits for room as well."""
        thread = self._sending_thread
        begun = self._last_begun if thread is None else thread.submit(int)
        if begun is not None:
            await asyncio.wait({asyncio.wrap_future(begun)})
        left = self._left_unflushed
        await self._executor.run(self.blocking.flush)
        self._flushed = max(self._flushed, left)

    async def close(self) -> None:
        """Send what waits for room and what is batched, wait until it is persisted, and close.

        Raises:
            PulsarException: `AlreadyClosed`, if it is closed, as officially.
        """
        if self.blocking.sender.closed:
            raise_for(pulsar.Result.AlreadyClosed)
        await self._finish_queued_()
        await self._executor.run(self.blocking.close)

    def last_sequence_id_published(self) -> int:
        """Give the last sequence id that is persisted."""
        return self.blocking.last_sequence_id_published()

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message has, persisted or on its way; with deduplication only."""
        return self.blocking.last_sequence_id_pushed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not (self.blocking.sender.closed or self._executor.closed):
            await self.close()

    async def _finish_queued_(self) -> None:
        """Let the sends that wait for room begin, and refuse new ones: one begun after the close has no outcome."""
        self._refuse_queued_()
        if self._last_begun is not None:
            await asyncio.wait({asyncio.wrap_future(self._last_begun)}, timeout=self._patience)

    def _refuse_queued_(self) -> None:
        """Refuse new sends that would wait for room; those that wait now go on."""
        self._closing = True
        if self._sending_thread is not None:
            self._last_begun = self._sending_thread.submit(int)
            self._sending_thread.shutdown(wait=False)
            self._sending_thread = None

    def _has_room(self) -> bool:
        """Whether a send that begins now surely need not wait."""
        if self._capacity is None:
            return True
        uncounted = self._sending_many or self._flushed < self._left_unflushed
        return self._in_flight < self._capacity and not (self._queued or uncounted)

    def _sent_many(self, _: object, *, flushed: bool) -> None:
        self._sending_many -= 1
        if not flushed:
            self._left_unflushed += 1

    async def _send_on_thread(self, send: Any) -> None:
        """Send on the one thread that may wait for room, which keeps the order, in a copy of the caller's context."""
        if self._closing:
            raise_for(pulsar.Result.AlreadyClosed)
        if self._sending_thread is None:
            self._sending_thread = ThreadPoolExecutor(1, "pulsar-ext-send")
        self._queued += 1
        self._in_flight += 1
        sending = self._sending_thread.submit(contextvars.copy_context().run, send)
        # Counted until the thread is done with it, also if the caller is cancelled.
        sending.add_done_callback(partial(running_loop_bridge().call_soon, self._left_queue))
        await asyncio.shield(asyncio.wrap_future(sending))

    def _left_queue(self, sending: Future[None]) -> None:
        self._queued -= 1
        if sending.exception() is not None:
            self._in_flight -= 1  # it was refused, and the callback is not called

    def _settle(self, future: asyncio.Future[MessageId], sequence_id: int | None, result: Any, sent: MessageId) -> None:
        """Settle the future of a send with its outcome, in the loop."""
        self._in_flight -= 1
        if future.done():
            return
        if result is DUPLICATE_MESSAGE:
            future.set_exception(duplicate_message(sequence_id))
        elif result == _OK:
            future.set_result(sent)
        else:
            future.set_exception(error_of(result))
