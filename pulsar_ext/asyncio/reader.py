"""The awaited reader, key ranges included, and the awaited table view, which is in memory and waits for nothing."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Self

from pulsar_ext._native.handles import AsyncReaderDoor
from pulsar_ext.reader import Reader as BlockingReader
from pulsar_ext.schema.typed import T

from ._receiving import AsyncSeeking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.key_shared.reader_group import GroupReader
    from pulsar_ext.message import Message
    from pulsar_ext.table_view import TableView as BlockingTableView

    from ._executor import Executor


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


class TableView(Generic[T]):
    """A `pulsar.TableView` for an event loop; made by `Client.create_table_view()`."""

    def __init__(self, blocking: BlockingTableView[T], executor: Executor) -> None:
        self.blocking, self._executor = blocking, executor

    def get(self, key: str) -> T | None:
        """Give the value of a key; None if there is none."""
        return self.blocking.get(key)

    def keys(self) -> list[str]:
        """Give the keys that there are now, in the order in which they came."""
        return self.blocking.keys()

    def values(self) -> list[T]:
        """Give the values that there are now, in the order of `keys()`."""
        return self.blocking.values()

    def items(self) -> list[tuple[str, T]]:
        """Give the keys that there are now, each with its value."""
        return self.blocking.items()

    def for_each(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every key there is now."""
        self.blocking.for_each(callback)

    def __len__(self) -> int:
        return len(self.blocking)

    def __contains__(self, key: object) -> bool:
        return key in self.blocking

    def __iter__(self) -> Iterator[str]:
        return iter(self.blocking)

    async def listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every change from now on, on a thread of the client's."""
        await self._executor.run(self.blocking.listen, callback)

    async def for_each_and_listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every key there is now and for every change, on a thread of the client's."""
        await self._executor.run(self.blocking.for_each_and_listen, callback)

    async def close(self) -> None:
        """Close; closing again, or behind the client's close, does nothing."""
        if not self._executor.closed:
            await self._executor.run(self.blocking.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
