"""The producers and requesters of a broker, one for each topic that is in use."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import pulsar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Hashable

__all__ = ["Outlets"]

_IDLE_SECONDS: Final = 60.0


class _Closable(Protocol):
    async def close(self) -> None: ...


OutletT = TypeVar("OutletT", bound=_Closable)


@dataclass(slots=True)
class _Opened(Generic[OutletT]):
    opening: asyncio.Task[OutletT]
    users: int = 0
    left_at: float = 0.0

    @property
    def has_failed(self) -> bool:
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)


class Outlets(Generic[OutletT]):
    """Opens them as they are needed, one opening for all who wait, and closes those that nobody used for a minute.

    An idle topic may then go, and the topics of replies are many.

    Args:
        is_closed: whether one that was opened has closed by itself; then another one is opened.
        clock: gives a time in seconds.
    """

    def __init__(self, is_closed: Callable[[OutletT], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_closed, self._clock = is_closed, clock
        self._known: dict[Hashable, _Opened[OutletT]] = {}

    @contextlib.asynccontextmanager
    async def lent(self, name: Hashable, opening: Callable[[], Coroutine[Any, Any, OutletT]]) -> AsyncIterator[OutletT]:
        """Lend the one of that name for a block.

        It raises what opening it raises, and opens it again the next time.
        """
        known = self._known.get(name)
        if known is None or known.has_failed or (known.opening.done() and self._is_closed(known.opening.result())):
            known = self._known[name] = _Opened(asyncio.ensure_future(opening()))
        known.users += 1
        try:
            await self._close_idle()
            yield await asyncio.shield(known.opening)  # others may wait for it
        finally:
            known.users -= 1
            known.left_at = self._clock()

    async def close(self) -> None:
        """Close them all, and those that are being opened."""
        leaving = list(self._known.values())
        self._known.clear()
        await asyncio.gather(*map(_close, leaving))

    async def _close_idle(self) -> None:
        before = self._clock() - _IDLE_SECONDS
        idle = [name for name, one in self._known.items() if not one.users and one.left_at < before]
        await asyncio.gather(*[_close(self._known.pop(name)) for name in idle])


async def _close(one: _Opened[Any]) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # it never opened, or is closed
        await (await one.opening).close()
