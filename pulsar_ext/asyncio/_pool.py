"""Pool of producers or requesters, by name: opened once for all tasks, closed when idle."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import pulsar

from .errors import error_of

_IDLE_SECONDS: Final = 60.0


class _Closable(Protocol):
    async def close(self) -> None: ...


EndpointT = TypeVar("EndpointT", bound=_Closable)


@dataclass(slots=True)
class _Opened(Generic[EndpointT]):
    open: Callable[[], Awaitable[EndpointT]]
    """Keeps alive what it refers to; the endpoint's name may contain the id of it."""
    opening: asyncio.Future[EndpointT]
    users: int = 0
    last_used: float = 0.0

    @property
    def has_failed(self) -> bool:
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)


class EndpointPool(Generic[EndpointT]):
    """Pool of producers or requesters, opened once, and closed after an idle minute: the broker deletes idle topics."""

    def __init__(self, is_closed: Callable[[EndpointT], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_closed, self._clock = is_closed, clock
        self._known: dict[Hashable, _Opened[EndpointT]] = {}
        self._is_ended = False

    @contextlib.asynccontextmanager
    async def use(self, name: Hashable, opening: Callable[[], Awaitable[EndpointT]]) -> AsyncIterator[EndpointT]:
        """Yield the endpoint of a name for a block; a failed opening raises, and is repeated by the next use."""
        if self._is_ended:
            raise error_of(pulsar.Result.AlreadyClosed)
        known = self._known.get(name)
        if known is None or known.has_failed or (known.opening.done() and self._is_closed(known.opening.result())):
            known = self._known[name] = _Opened(opening, asyncio.ensure_future(opening()))
        known.users += 1
        try:
            await self._close_idle()
            yield await asyncio.shield(known.opening)  # others may wait for it
        finally:
            known.users -= 1
            known.last_used = self._clock()

    async def close(self) -> None:
        """Close all endpoints, also those that are being opened; later uses raise `AlreadyClosed`."""
        self._is_ended = True
        opened = list(self._known.values())
        self._known.clear()
        await asyncio.gather(*map(_close, opened))

    async def _close_idle(self) -> None:
        before = self._clock() - _IDLE_SECONDS
        idle = [name for name, one in self._known.items() if not one.users and one.last_used < before]
        if idle:
            await asyncio.gather(*[_close(self._known.pop(name)) for name in idle])


async def _close(one: _Opened[EndpointT]) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # its opening failed, or it is closed
        await (await one.opening).close()
