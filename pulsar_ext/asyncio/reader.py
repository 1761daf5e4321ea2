"""The awaited reader: `pulsar_ext.Reader` for an event loop, key ranges included."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING

from pulsar_ext._native.handles import AsyncReaderDoor
from pulsar_ext.reader import Reader as BlockingReader
from pulsar_ext.schema.typed import T

from ._receiving import AsyncSeeking

if TYPE_CHECKING:
    from pulsar_ext.key_shared.reader_group import GroupReader
    from pulsar_ext.message import Message

    from ._executor import Executor

__all__ = ["Reader"]

_ARRIVING_SECONDS = 0.05
"""How long a message may take from the C++ client's queue to ours: another thread has to run, and look at its key."""


class Reader(AsyncSeeking[T], AsyncReaderDoor):
    """A `pulsar.asyncio.Reader` with everything of `pulsar_ext.Reader`; made by `Client.create_reader()`.

    It is also an asynchronous iterator, which ends when the reader is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingReader[T] | GroupReader, executor: Executor) -> None:
        super().__init__(blocking)
        plain = type(blocking) is BlockingReader and not blocking._judges_
        self._begin(blocking, executor, attrgetter("read_next_async") if plain else None, blocking.read_next)

    async def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """Read one message. Cancelling loses none: the message that comes later goes to the next caller.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            PulsarException: `Timeout`, or `AlreadyClosed`.
        """
        return await self._receive(timeout_millis)

    async def read_many(self, max_messages: int, timeout_millis: int | None = None) -> list[Message[T]]:
        """Wait for a message, then give up to `max_messages` that need no more waiting; empty after the timeout."""
        return await self._receive_many(max_messages, timeout_millis)

    def topic(self) -> str:
        """Give the topic's name; of several topics what it was asked to read."""
        topic: str = self.blocking.topic()
        return topic

    def topics(self) -> list[str]:
        """Give the full names that a reader of several topics reads now; an AttributeError for others."""
        topics: list[str] = self.blocking.topics()
        return topics

    async def has_message_available(self) -> bool:
        """Tell whether there is a message to read."""
        queue = self._queue
        if queue.has_ready or await self._executor.run(self.blocking.has_message_available):
            return True
        if queue.is_owed():  # what a cancelled read asked for may have left the C++ queue and not have arrived yet
            await asyncio.sleep(_ARRIVING_SECONDS)
        return queue.has_ready
