"""The asyncio reader, also of key ranges and in groups, the reading from place to place, and the table view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Self

from pulsar_ext._native.handles import AsyncReaderHandle
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.key_shared.reader_group import GroupReader as BlockingGroupReader
from pulsar_ext.key_shared.reader_group import RangeReaderGroup as BlockingGroup
from pulsar_ext.message import Message
from pulsar_ext.reader import Reader as BlockingReader
from pulsar_ext.reading import Reading as BlockingReading
from pulsar_ext.schema.typed import T
from pulsar_ext.table_view import TableView as BlockingTableView
from pulsar_ext.topics_reader import TopicsReader

from ._executor import Closing, Executor, forwarded
from ._receiving import AsyncSeeking

_ARRIVING_SECONDS = 0.05
"""Time in seconds for a message to get from the C++ queue to this one: another thread screens its key."""


class Reader(AsyncSeeking[T], AsyncReaderHandle):
    """A `pulsar.asyncio.Reader` with the features of `pulsar_ext.Reader`; made by `Client.create_reader()`.

    It is also an asynchronous iterator, which ends when the reader is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingReader[T] | BlockingGroupReader, executor: Executor) -> None:
        super().__init__(blocking)
        plain = type(blocking) is BlockingReader and not blocking._screens_
        self._begin(blocking, executor, attrgetter("read_next_async") if plain else None, blocking.read_next)

    async def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """Read one message, with the timeout and the errors of `Consumer.receive()`; cancelling loses no message."""
        return await self._receive(timeout_millis)

    async def read_many(self, max_messages: int, timeout_millis: int | None = None) -> list[Message[T]]:
        """Wait for a message, then return up to `max_messages` available ones; return an empty list on timeout."""
        return await self._receive_many(max_messages, timeout_millis)

    topic = forwarded(BlockingReader.topic)
    topics = forwarded(TopicsReader.topics)

    async def has_message_available(self) -> bool:
        """Return whether a message is available."""
        queue = self._queue
        if queue.has_ready or await self._executor.run(self.blocking.has_message_available):
            return True
        if queue.awaits_answer():  # a cancelled read's message may have left the C++ queue and not arrived here yet
            await asyncio.sleep(_ARRIVING_SECONDS)
        return queue.has_ready


class GroupReader(Reader):
    """Reader of a group. Close the group, not one reader: the others would stall."""


class RangeReaderGroup(Closing[BlockingGroup]):
    """Readers whose ranges cover all slots, like `pulsar_ext.RangeReaderGroup`; from `Client.create_reader_group()`."""

    def __init__(self, blocking: BlockingGroup, executor: Executor) -> None:
        super().__init__(blocking, executor)
        self.readers = tuple(GroupReader(reader, executor) for reader in blocking)
        self.filtering, self.reason = blocking.filtering, blocking.reason

    async def close(self) -> None:
        """Close the readers and delete their subscription; may be called again, also after the client's close."""
        if self._executor.closed:
            return
        await self._executor.end(self.blocking.close, self._end_receives)

    def _end_receives(self) -> None:
        for reader in self.readers:
            reader._end_receives_()

    __repr__ = forwarded(BlockingGroup.__repr__)
    __len__ = forwarded(BlockingGroup.__len__)

    def __iter__(self) -> Iterator[GroupReader]:
        return iter(self.readers)


_TAKEN = 100
"""Number of messages that a thread reads in one turn."""


class Reading(Closing[BlockingReading[T]]):
    """A `pulsar_ext.Reading` for asyncio; made by `Client.read()`. Cancelling loses no message."""

    def __init__(self, blocking: BlockingReading[T], executor: Executor) -> None:
        super().__init__(blocking, executor)
        self._ready: Iterator[Message[T]] = iter(())
        self._taking: asyncio.Future[list[Message[T]]] | None = None
        self.last_read: dict[str, MessageId] = {}
        """Id of the last message of each topic or partition that was returned; see the blocking counterpart."""

    @property
    def total(self) -> int:
        """Number of stored entries between the places; see the blocking counterpart."""
        return self.blocking.total

    @property
    def done(self) -> int:
        """Number of those entries that were read."""
        return self.blocking.done

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        while True:
            for message in self._ready:
                self.last_read[message.topic_name()] = message.message_id()
                return message
            taking = self._taking = self._taking or asyncio.ensure_future(
                self._executor.run(self.blocking.take, _TAKEN)
            )
            messages = await asyncio.shield(taking)
            if self._taking is taking:  # otherwise another task has got them
                self._taking, self._ready = None, iter(messages)
            if not messages:
                raise StopAsyncIteration


class TableView(Closing[BlockingTableView[T]]):
    """A `pulsar.TableView` for asyncio; made by `Client.create_table_view()`."""

    keys = forwarded(BlockingTableView.keys)
    __len__ = forwarded(BlockingTableView.__len__)
    __contains__ = forwarded(BlockingTableView.__contains__)
    __iter__ = forwarded(BlockingTableView.__iter__)

    def get(self, key: str) -> T | None:
        """Return the value of a key, or None."""
        return self.blocking.get(key)

    def values(self) -> list[T]:
        """Return the current values, in the order of `keys()`."""
        return self.blocking.values()

    def items(self) -> list[tuple[str, T]]:
        """Return the current keys and values."""
        return self.blocking.items()

    def for_each(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for each current key."""
        self.blocking.for_each(callback)

    async def listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for every later change, on one of the client's threads."""
        await self._executor.run(self.blocking.listen, callback)

    async def for_each_and_listen(self, callback: Callable[[str, T], object]) -> None:
        """Call `callback(key, value)` for each current key and every later change, on one of the client's threads."""
        await self._executor.run(self.blocking.for_each_and_listen, callback)
