"""What is to be redelivered, and when (pure).

Mirrors Java's `NegativeAcksTracker` and its `UnAckedMessageTracker` for chunked messages. The C++ client starts its
timer anew at each negative acknowledgement, so a steady stream of them holds up every redelivery; here what is due
leaves in groups, however many come after it.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

__all__ = ["Delayed"]

T = TypeVar("T")


class Delayed(Generic[T]):
    """Things that become due, each once.

    Args:
        gap: the least time between two groups, in the unit of every time here.
    """

    def __init__(self, gap: float = 0.0) -> None:
        self._gap = gap
        self._queue: list[tuple[float, int]] = []
        self._things: dict[int, tuple[object, T]] = {}
        self._numbers: dict[object, int] = {}
        self._number = 0
        self._last = float("-inf")

    def __len__(self) -> int:
        return len(self._things)

    def add(self, key: object, thing: T, due: float) -> None:
        """Have a thing come due at a time; if its key waits already, the earlier time counts."""
        waiting = self._numbers.get(key)
        self._number += 1
        heapq.heappush(self._queue, (due, self._number if waiting is None else waiting))
        if waiting is None:
            self._numbers[key] = self._number
            self._things[self._number] = (key, thing)

    def drop(self, key: object) -> None:
        """Have nothing come due for a key."""
        number = self._numbers.pop(key, None)
        if number is not None:
            del self._things[number]

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()
        self._things.clear()
        self._numbers.clear()

    def due(self, now: float, slack: float = 0.0) -> list[T]:
        """Give what is due, or will be within the slack, in order; nothing within the gap after the group before."""
        if now < self._last + self._gap:
            return []
        found: list[T] = []
        while self._queue and self._queue[0][0] <= now + slack:
            _, number = heapq.heappop(self._queue)
            if number in self._things:
                key, thing = self._things.pop(number)
                del self._numbers[key]
                found.append(thing)
        if found:
            self._last = now
        return found

    def wait(self, now: float) -> float | None:
        """Give how long until something is due; None if nothing waits."""
        while self._queue and self._queue[0][1] not in self._things:
            heapq.heappop(self._queue)
        if not self._queue:
            return None
        return max(self._queue[0][0] - now, self._last + self._gap - now, 0.0)
