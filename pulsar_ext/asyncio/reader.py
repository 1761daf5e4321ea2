"""The awaited reader: `pulsar_ext.Reader` for an event loop, key ranges included."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pulsar_ext._native.handles import AsyncReaderDoor
from pulsar_ext.reader import Reader as BlockingReader

from ._receiving import AsyncSeeking

if TYPE_CHECKING:
    from pulsar_ext.message import Message

    from ._executor import Threads

__all__ = ["Reader"]

_ARRIVING_SECONDS = 0.05
"""How long a message that was asked for may take from the C++ client's queue: another thread's turn, and its key."""


class Reader(AsyncSeeking, AsyncReaderDoor):
    """A `pulsar.asyncio.Reader` with everything of `pulsar_ext.Reader`; made by `Client.create_reader()`.

    It is also an asynchronous iterator, which ends when the reader is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingReader, threads: Threads) -> None:
        super().__init__(blocking)
        plain = type(blocking) is BlockingReader
        self._begin(blocking, threads, blocking.inner.read_next_async if plain else None, blocking.read_next)

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read one message. Cancelling loses none: what comes later is the next caller's.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            PulsarException: `Timeout`, or `AlreadyClosed`.
        """
        return await self._next(timeout_millis)

    async def read_many(self, max_messages: int, timeout_millis: int | None = None) -> list[Message]:
        """Wait for a message, and give it with up to `max_messages` of those that are here; empty after the timeout."""
        return await self._several(max_messages, timeout_millis)

    async def has_message_available(self) -> bool:
        """Tell whether there is a message to read."""
        feed = self._feed
        if feed.holds or await self._threads.run(self.blocking.has_message_available):
            return True
        if feed.awaits:  # what a read that was cancelled had asked for may have left the queue and not be here yet
            await asyncio.sleep(_ARRIVING_SECONDS)
        return feed.holds
