"""Blocking calls of this library, awaited on threads of the client's own."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pulsar

from .errors import awaited, raise_for

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Threads"]

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 64


class Threads:
    """The threads of one client, which begin when they are needed."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_MOST, "pulsar-ext-asyncio")
        self.ended = False
        """Whether the client was closed."""

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call to its end; a cancelled caller does not wait for it, and it ends all the same.

        Raises:
            PulsarException: `AlreadyClosed`; or what the call raises.
        """
        self._refuse_if_ended()
        with awaited():
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args, **kwargs))

    async def open(self, call: Callable[[], T]) -> T:
        """Run a call that opens something; if the caller is cancelled, what it opened is closed."""
        self._refuse_if_ended()
        opening = self._pool.submit(call)
        try:
            with awaited():
                return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._close)
            raise

    def end(self) -> None:
        """Take no more calls; those that run go on."""
        self.ended = True
        self._pool.shutdown(wait=False)

    def _refuse_if_ended(self) -> None:
        if self.ended:
            raise_for(pulsar.Result.AlreadyClosed)

    def _close(self, opening: Any) -> None:
        if not opening.cancelled() and opening.exception() is None:
            with contextlib.suppress(RuntimeError):  # the client was closed meanwhile, and with it what was opened
                self._pool.submit(opening.result().close)
