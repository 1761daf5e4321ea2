"""Looks at the connections of many consumers in one go, while nothing else is due for them.

The C++ client does not say that a connection was lost and made anew; whoever wants to know has to look several times a
second. A tick of the scheduler for each look of each consumer would keep a processor busy with a thousand of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from .scheduler import Closable

if TYPE_CHECKING:
    from .scheduler import ClientScheduler

__all__ = ["LOOK_SECONDS", "ConnectionLooks", "LookedAt"]

LOOK_SECONDS: Final = 0.04
"""How often the connection is looked at; the C++ client takes 90 ms at least to make a new one."""
_AT_ONCE: Final = 100
"""So many looks take no time that counts."""


class LookedAt(Closable, Protocol):
    """Whose connection is looked at."""

    def is_as_before(self, now: float) -> bool:
        """Look at the connection at a monotonic time in seconds; tell whether nothing has happened to it."""
        ...


class ConnectionLooks:
    """Looks at what has nothing else to do until its next tick; used on the scheduler's thread.

    Args:
        scheduler: calls this, and the tick of whatever is not as before.
    """

    def __init__(self, scheduler: ClientScheduler) -> None:
        self._scheduler = scheduler
        self._each: WeakSet[LookedAt] = WeakSet()

    def begin(self, one: LookedAt) -> None:
        """Look at it from now on."""
        if one not in self._each:
            self._each.add(one)
            self._scheduler.watch(self, LOOK_SECONDS)

    def end(self, one: LookedAt) -> None:
        """Look at it no more."""
        self._each.discard(one)

    def tick(self, now: float) -> float | None:
        """Look at all; the scheduler's call."""
        for count, one in enumerate(list(self._each)):
            if not count % _AT_ONCE:
                now = time.monotonic()
            if not one.is_as_before(now):
                self._each.discard(one)
                self._scheduler.watch(one)
        return LOOK_SECONDS if self._each else None

    def close(self) -> None:
        """Look at nothing any more: the client is closing."""
        self._each.clear()
