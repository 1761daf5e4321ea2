"""Key ranges, awaited: builders, and readers that share a topic."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext.key_shared.builders import ConsumerBuilder as BlockingConsumerBuilder
from pulsar_ext.key_shared.builders import ReaderBuilder as BlockingReaderBuilder

from ._receiving import AsyncReceiving
from .consumer import Consumer
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pulsar_ext.key_shared.reader import RangeReader
    from pulsar_ext.key_shared.reader_group import GroupReader as BlockingGroupReader
    from pulsar_ext.key_shared.reader_group import RangeReaderGroup as BlockingGroup
    from pulsar_ext.message import Message

    from ._executor import Threads

__all__ = ["ConsumerBuilder", "GroupReader", "RangeReaderGroup", "ReaderBuilder"]


class ReaderBuilder(BlockingReaderBuilder):
    """`pulsar_ext.ReaderBuilder`, whose `create()` is awaited; made by `Client.new_reader()`."""

    _opened: Callable[[Callable[[], Any], type[Any]], Awaitable[Any]]

    async def create(self) -> Reader:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Open the reader; raises as the blocking one. Its listener is called in the loop."""
        quiet = copy(self)
        listener = quiet.take("reader_listener")  # which would be called on a thread of the C++ client
        reader: Reader = await self._opened(partial(BlockingReaderBuilder.create, quiet), Reader)
        if listener is not None:
            reader._listen(listener)  # noqa: SLF001  # this package's own
        return reader


class ConsumerBuilder(BlockingConsumerBuilder):
    """`pulsar_ext.ConsumerBuilder`, whose `subscribe()` is awaited; made by `Client.new_consumer()`."""

    _opened: Callable[[Callable[[], Any], type[Any]], Awaitable[Any]]

    async def subscribe(self) -> Consumer:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Subscribe, then check that every slot has a consumer; raises as the blocking one.

        Its listener is called in the loop.
        """
        quiet = copy(self)
        listener = quiet.take("message_listener")  # which would be called on a thread of the C++ client
        self.refuse_raising_to_listener(listens=listener is not None)
        consumer: Consumer = await self._opened(partial(BlockingConsumerBuilder.subscribe, quiet), Consumer)
        if listener is not None:
            consumer._listen(listener)  # noqa: SLF001
        return consumer


class GroupReader(AsyncReceiving):
    """One reader of a group: an asynchronous iterator."""

    def __init__(self, blocking: BlockingGroupReader | RangeReader, threads: Threads) -> None:
        self._begin(blocking, threads, None, blocking.read_next)
        self.key_hash_ranges = blocking.key_hash_ranges

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read the next message of these ranges, as `pulsar_ext.GroupReader`; cancelling loses none."""
        return await self._next(timeout_millis)

    def topic(self) -> str:
        """Give the topic's name."""
        return str(self.blocking.topic())

    async def close(self) -> None:
        """Close this reader; without it, the others stall. Close the group instead."""
        await self._threads.run(self.blocking.close)
        self._feed.close()

    async def __aexit__(self, *_: object) -> None:
        if not self._threads.ended:
            await self.close()


class RangeReaderGroup:
    """Readers whose ranges tile the slots, as `pulsar_ext.RangeReaderGroup`; made by `Client.create_reader_group()`."""

    def __init__(self, blocking: BlockingGroup, threads: Threads) -> None:
        self.blocking, self._threads = blocking, threads
        self.readers = tuple(GroupReader(reader, threads) for reader in blocking)
        self.filtering, self.reason = blocking.filtering, blocking.reason

    async def close(self) -> None:
        """Close the readers and delete their subscription; closing again does nothing."""
        await self._threads.run(self.blocking.close)
        for reader in self.readers:
            reader._feed.close()  # noqa: SLF001  # this package's own

    def __repr__(self) -> str:
        return repr(self.blocking)

    def __iter__(self) -> Iterator[GroupReader]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._threads.ended:
            await self.close()
