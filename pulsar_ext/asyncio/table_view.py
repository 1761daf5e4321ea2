"""The awaited table view; what it holds is in memory, so that reading it waits for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self

from pulsar_ext.schema.typed import T

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.table_view import TableView as BlockingTableView

    from ._executor import Executor

__all__ = ["TableView"]


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
