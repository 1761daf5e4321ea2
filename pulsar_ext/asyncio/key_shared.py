"""Key ranges for asyncio: builders, and readers that share a topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pulsar_ext.intercept.chain import ConsumerChain, ReaderChain
from pulsar_ext.key_shared.builders import ConsumerBuilder as BlockingConsumerBuilder
from pulsar_ext.key_shared.builders import ReaderBuilder as BlockingReaderBuilder

from .consumer import Consumer
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.key_shared.reader_group import RangeReaderGroup as BlockingGroup
    from pulsar_ext.schema.typed import TypedSchema

    from ._executor import Executor

H = TypeVar("H", Consumer, Reader)


class _Open(Protocol):
    async def __call__(
        self, opening: Callable[[], Any], kind: type[H], chain: ConsumerChain | ReaderChain | None = None
    ) -> H:
        """Run the blocking `opening`, and return its result as `kind`, with its interceptors."""
        ...


class ReaderBuilder(BlockingReaderBuilder):
    """`pulsar_ext.ReaderBuilder` with a coroutine `create()`; made by `Client.new_reader()`."""

    def __init__(self, context: ClientContext, schema: type | TypedSchema | None, open_as: _Open) -> None:
        super().__init__(context, schema)
        self._open_as = open_as

    async def create(self) -> Reader:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Open the reader; raises like the blocking one. Its listener is called in the loop."""
        builder, listener = self.without("reader_listener")  # the C++ client would call it on its own thread
        builder, interceptors = builder.without("interceptors")
        chain = ReaderChain.of(self._context, interceptors, awaited=True)
        builder = builder.load_conf(interceptors=chain)
        reader = await self._open_as(partial(BlockingReaderBuilder.create, builder), Reader, chain)
        if listener is not None:
            reader._start_listener_(listener)
        return reader


class ConsumerBuilder(BlockingConsumerBuilder):
    """`pulsar_ext.ConsumerBuilder` with a coroutine `subscribe()`; made by `Client.new_consumer()`."""

    def __init__(self, context: ClientContext, schema: type | TypedSchema | None, open_as: _Open) -> None:
        super().__init__(context, schema)
        self._open_as = open_as

    async def subscribe(self) -> Consumer:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Subscribe, then check that every slot has a consumer; raises like the blocking one.

        Its listener is called in the loop.
        """
        builder, listener = self.without("message_listener")  # the C++ client would call it on its own thread
        self.check_listener_action(listens=listener is not None)
        builder, interceptors = builder.without("interceptors")
        chain = ConsumerChain.of(self._context, interceptors, awaited=True)
        builder = builder.load_conf(interceptors=chain)
        consumer = await self._open_as(partial(BlockingConsumerBuilder.subscribe, builder), Consumer, chain)
        if listener is not None:
            consumer._start_listener_(listener)
        return consumer


class GroupReader(Reader):
    """Reader of a group. Close the group, not one reader: the others would stall."""


class RangeReaderGroup:
    """Readers whose ranges cover all slots, like `pulsar_ext.RangeReaderGroup`; from `Client.create_reader_group()`."""

    def __init__(self, blocking: BlockingGroup, executor: Executor) -> None:
        self.blocking, self._executor = blocking, executor
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

    def __repr__(self) -> str:
        return repr(self.blocking)

    def __iter__(self) -> Iterator[GroupReader]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
