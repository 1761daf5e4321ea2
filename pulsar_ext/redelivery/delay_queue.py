"""What is to be redelivered, and when (pure).

Mirrors Java's `NegativeAcksTracker` and its `UnAckedMessageTracker` for chunked messages. The C++ client starts its
timer anew at each negative acknowledgement, so a steady stream of them holds up every redelivery; here what is due
leaves in groups, however many come after it.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, Final, Generic, TypeVar

__all__ = ["Delayed"]

T = TypeVar("T")
_NEVER: Final = -math.inf
_NOTHING_DUE: Final[list[Any]] = []
_NOTHING_WAITS: Final[dict[Any, Any]] = {}
"""Where nothing was ever added, which is so for most consumers; nothing is ever put into these two."""


class Delayed(Generic[T]):
    """Things that become due, each once.

    Args:
        gap: the least time between two groups, in the unit of every time here.
    """

    __slots__ = ("_gap", "_last", "_number", "_queue", "_things")

    def __init__(self, gap: float = 0.0) -> None:
        self._gap = gap
        self._queue: list[tuple[float, int, object]] = _NOTHING_DUE
        """When something is due, and its number and key; what was dropped since stays in it."""
        self._things: dict[object, tuple[int, T]] = _NOTHING_WAITS
        """What waits, by key, with its number."""
        self._number = 0
        self._last = _NEVER

    def __len__(self) -> int:
        return len(self._things)

    def add(self, key: object, thing: T, due: float) -> None:
        """Have a thing come due at a time; if its key waits already, the earlier time counts."""
        if self._things is _NOTHING_WAITS:
            self._queue, self._things = [], {}
        waiting = self._things.get(key)
        if waiting is None:
            self._number += 1
            waiting = self._things[key] = self._number, thing
        heapq.heappush(self._queue, (due, waiting[0], key))

    def drop(self, key: object) -> None:
        """Have nothing come due for a key."""
        self._things.pop(key, None)

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()
        self._things.clear()

    def due(self, now: float, slack: float = 0.0) -> list[T]:
        """Give what is due, or will be within the slack, in order; nothing within the gap after the group before."""
        if now < self._last + self._gap:
            return []
        found: list[T] = []
        while self._queue and self._queue[0][0] <= now + slack:
            _, number, key = heapq.heappop(self._queue)
            if self._waits(number, key):
                found.append(self._things.pop(key)[1])
        if found:
            self._last = now
        return found

    def wait(self, now: float) -> float | None:
        """Give how long until something is due; None if nothing waits."""
        while self._queue and not self._waits(*self._queue[0][1:]):
            heapq.heappop(self._queue)
        if not self._queue:
            return None
        return max(self._queue[0][0] - now, self._last + self._gap - now, 0.0)

    def _waits(self, number: int, key: object) -> bool:
        """Whether a thing of this number was neither dropped nor given: its key may wait anew."""
        waiting = self._things.get(key)
        return waiting is not None and waiting[0] == number
