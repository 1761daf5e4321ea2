"""The awaited producer: `pulsar_ext.Producer` for an event loop, effectively once included."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pulsar
import pulsar.asyncio

from pulsar_ext._native.handles import AsyncProducerDoor
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext.produce.options import named_options
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, duplicate_message

from ._loop_bridge import mailbox
from .errors import PulsarException, awaited, raise_for

if TYPE_CHECKING:
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.produce.outcome import SentMany
    from pulsar_ext.producer import Producer as BlockingProducer

    from ._executor import Threads

__all__ = ["Producer"]

_OK = pulsar.Result.Ok


class Producer(AsyncProducerDoor):
    """A `pulsar.asyncio.Producer` with everything of `pulsar_ext.Producer`; made by `Client.create_producer()`.

    Args:
        blocking: what sends.
        threads: where it may wait.
        room: how many messages it surely takes without waiting for room; None if it never waits.
    """

    def __init__(self, blocking: BlockingProducer, threads: Threads, room: int | None) -> None:
        super().__init__(blocking)
        self.blocking = blocking
        self._threads = threads
        self._room = room
        self._flying = self._queued = 0
        self._closing = False
        self._unheard: set[asyncio.Future[MessageId]] = set()
        self._lane: ThreadPoolExecutor | None = None

    @shaped_like(pulsar.asyncio.Producer.send)
    async def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message and wait until it is persisted; the arguments are the official ones.

        Where the queue is full and `block_if_queue_full` is set, it waits for room without holding up the loop. A
        cancelled send may be persisted all the same.

        Raises:
            PulsarException: the official error.
            DuplicateMessage: with deduplication, the topic holds it already.
        """
        options = named_options(args, kwargs)
        if options.get("disable_replication", False) is None:
            options = {**options, "disable_replication": False}
        loop = asyncio.get_running_loop()
        future: asyncio.Future[MessageId] = loop.create_future()
        self._unheard.add(future)
        future.add_done_callback(self._unheard.discard)
        told = partial(mailbox().post, self._told, future, options.get("sequence_id"))
        self._flying += 1
        try:
            with awaited():
                if self._room is None or (self._flying <= self._room and not self._queued):
                    self.blocking.send_async(content, told, **options)
                else:
                    await self._send_in_lane(partial(self.blocking.send_async, content, told, **options))
        except Exception:
            self._flying -= 1  # it was refused, and nobody will tell more
            future.cancel()
            raise
        return await future

    async def send_many(self, contents: Any, **columns: Any) -> SentMany:
        """Publish many messages and wait until they are persisted; the arguments are those of the blocking one."""
        return await self._threads.run(self.blocking.send_many, contents, **columns)

    async def flush(self) -> None:
        """Send what is batched and wait until everything sent so far is persisted."""
        await self._threads.run(self.blocking.flush)

    async def close(self) -> None:
        """Send what waits for room and what is batched, wait until it is persisted, and close.

        Raises:
            PulsarException: `AlreadyClosed`, if it is closed, as officially.
        """
        if self.blocking.sender.closed:
            raise_for(pulsar.Result.AlreadyClosed)
        await self._empty_lane()
        await self._threads.run(self.blocking.close)

    def last_sequence_id_published(self) -> int:
        """Give the last sequence id that is persisted."""
        return self.blocking.last_sequence_id_published()

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message has, persisted or on its way; with deduplication only."""
        return self.blocking.last_sequence_id_pushed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not (self.blocking.sender.closed or self._threads.ended):
            await self.close()

    def _forget(self) -> None:
        """Tell whoever awaits a send that it is closed: after a shutdown the C++ client tells nobody."""
        for future in list(self._unheard):
            if not future.done():
                future.set_exception(PulsarException(pulsar.Result.AlreadyClosed))

    async def _empty_lane(self) -> None:
        """Let what waits for room be sent, and nothing new: closed beneath, it would never hear what became of it."""
        self._closing = True
        if self._lane is not None:
            last = asyncio.wrap_future(self._lane.submit(int))
            self._lane.shutdown(wait=False)
            await asyncio.wait({last}, timeout=self.blocking.sender.context.operation_timeout_seconds)
            self._lane = None

    async def _send_in_lane(self, call: Any) -> None:
        """Send on a thread that may wait for room; one behind the other, so that the order is kept."""
        if self._closing:
            raise_for(pulsar.Result.AlreadyClosed)
        if self._lane is None:
            self._lane = ThreadPoolExecutor(1, "pulsar-ext-lane")
        self._queued += 1
        sending = self._lane.submit(call)
        # Counted until the lane is done with it, also if the caller is cancelled.
        sending.add_done_callback(partial(mailbox().post, self._left_lane))
        await asyncio.shield(asyncio.wrap_future(sending))

    def _left_lane(self, _: object) -> None:
        self._queued -= 1

    def _told(self, future: asyncio.Future[MessageId], sequence_id: int | None, result: Any, sent: MessageId) -> None:
        """Hear the outcome, in the loop."""
        self._flying -= 1
        if future.done():
            return
        if result is DUPLICATE_MESSAGE:
            future.set_exception(duplicate_message(sequence_id))
        elif result == _OK:
            future.set_result(sent)
        else:
            try:
                raise_for(result)
            except PulsarException as error:
                future.set_exception(error)
