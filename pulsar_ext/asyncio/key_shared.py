"""Key ranges for asyncio: builders, and readers that share a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.intercept import ConsumerChain, ReaderChain
from pulsar_ext.key_shared.builders import ConsumerBuilder as BlockingConsumerBuilder
from pulsar_ext.key_shared.builders import ReaderBuilder as BlockingReaderBuilder
from pulsar_ext.key_shared.reader_group import RangeReaderGroup as BlockingGroup
from pulsar_ext.schema.typed import TypedSchema

from ._executor import Closing, Executor, forwarded
from .consumer import Consumer
from .reader import Reader

OpenAs = Callable[[Callable[[], Any], type[Any], ConsumerChain | ReaderChain | None, Any], Awaitable[Any]]
"""`Client._open_as`."""

H = TypeVar("H", Consumer, Reader)


class _AwaitedBuilder:
    """Builder whose last method is a coroutine; precedes the blocking builder among the bases."""

    def __init__(self, context: ClientContext, schema: type | TypedSchema | None, open_as: OpenAs) -> None:
        super().__init__(context, schema)  # type: ignore[call-arg]  # of the blocking builder
        self._open_as = open_as

    async def _opened(
        self: Any, method: Callable[[Any], Any], kind: type[H], chains: type[ConsumerChain | ReaderChain], listener: str
    ) -> H:
        """Call the blocking builder's method; its chain is awaited, the option named `listener` called in the loop."""
        builder, called = self.without(listener)
        builder, interceptors = builder.without("interceptors")
        chain = chains.of(self._context, interceptors, awaited=True)
        opening = partial(method, builder.load_conf(interceptors=chain))
        opened: H = await self._open_as(opening, kind, chain, called)
        return opened


class ReaderBuilder(_AwaitedBuilder, BlockingReaderBuilder):
    """`pulsar_ext.ReaderBuilder` with a coroutine `create()`; made by `Client.new_reader()`."""

    async def create(self) -> Reader:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Open the reader; raises like the blocking one. Its listener is called in the loop."""
        return await self._opened(BlockingReaderBuilder.create, Reader, ReaderChain, "reader_listener")


class ConsumerBuilder(_AwaitedBuilder, BlockingConsumerBuilder):
    """`pulsar_ext.ConsumerBuilder` with a coroutine `subscribe()`; made by `Client.new_consumer()`."""

    async def subscribe(self) -> Consumer:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Subscribe as the blocking builder does, with every slot checked; the listener is called in the loop."""
        self.check_listener_action(listens=self.without("message_listener")[1] is not None)
        return await self._opened(BlockingConsumerBuilder.subscribe, Consumer, ConsumerChain, "message_listener")


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
