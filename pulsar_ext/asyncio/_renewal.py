"""Awaiting the C++ object that takes the place of another one, while the broker cannot be reached perhaps.

However many receives wait for it, also such as are cancelled soon, one thread tries. It is none of the client's other
threads, so that those are there for a close, and the end of the process does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._native import threads

from .errors import error_of, translated

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Renewal"]


class Renewal:
    """What the receives of one consumer or reader wait for together.

    Args:
        renew: has another C++ object take the place; tries until it is there, or until a close.
    """

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._under_way: Future[None] | None = None

    async def wait(self) -> None:
        """Wait until another C++ object is there. Cancelling leaves it under way, for the next caller.

        Raises:
            PulsarException: `AlreadyClosed`; or what the broker refused it with.
        """
        renewing = self._under_way
        if renewing is None or renewing.done():
            renewing = self._under_way = Future()
            renewing.set_running_or_notify_cancel()
            threads.start(self._run, renewing, name="pulsar-ext-renew")
        await asyncio.wrap_future(renewing)

    def end(self) -> None:
        """Have whoever waits raise `AlreadyClosed`."""
        if self._under_way is not None:
            _settle(self._under_way, error_of(pulsar.Result.AlreadyClosed))

    def _run(self, renewing: Future[None]) -> None:
        try:
            self._renew()
        except BaseException as error:  # noqa: BLE001  # it is raised where it is awaited
            _settle(renewing, translated(error))
        else:
            _settle(renewing, None)


def _settle(renewing: Future[None], error: BaseException | None) -> None:
    """Settle it, unless a close has."""
    with contextlib.suppress(InvalidStateError):
        if error is None:
            renewing.set_result(None)
        else:
            renewing.set_exception(error)
