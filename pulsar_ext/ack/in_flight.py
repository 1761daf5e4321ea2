"""Acknowledgements that left and may not have arrived, to be sent again if their connection was lost (pure)."""

from __future__ import annotations

import math
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from .leaving import NOTHING, Entry, Leaving, Singles

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SentAcks"]


class SentAcks:
    """What left and has not surely arrived, to be sent again if the connection turns out to have been lost.

    Args:
        limit: how many entries are kept at most.
    """

    def __init__(self, limit: int = 50_000) -> None:
        self._limit = limit
        self._sent: deque[tuple[float, Leaving | Singles, Mapping[Entry, Any]]] = deque()
        self._count = 0

    def __len__(self) -> int:
        """How many entries, parts of batches and positions it keeps."""
        return self._count

    def add(self, leaving: Leaving | Singles, now: float, ids: Mapping[Entry, Any]) -> None:
        """Keep what left at the time `now`, in seconds of any steady clock, and by which ids that nobody can make."""
        self._sent.append((now, leaving, ids))
        self._count += len(leaving)
        while self._count > self._limit and len(self._sent) > 1:
            self._count -= len(self._sent.popleft()[1])

    @property
    def oldest(self) -> float:
        """When the oldest left of what is kept; there is some."""
        return self._sent[0][0]

    def expire(self, arrived: float) -> None:
        """Drop what left until a time: it has arrived."""
        while self._sent and self._sent[0][0] <= arrived:
            self._count -= len(self._sent.popleft()[1])

    @property
    def ids(self) -> dict[Entry, Any]:
        """By which ids the kept entries left."""
        return {entry: one for _, _, ids in self._sent for entry, one in ids.items()}

    def take(self, before: float = math.inf) -> Leaving:
        """Give everything that left before a time, as one, and keep no more of it."""
        merged, left = NOTHING, list(takewhile(lambda one: one[0] < before, self._sent))
        if left:
            sent = [one if isinstance(one, Leaving) else Leaving(whole=tuple(one.entries)) for _, one, _ in left]
            cumulative = max((one.cumulative for one in sent if one.cumulative is not None), default=None)
            whole = tuple(entry for one in sent for entry in one.whole)
            indexes = tuple(part for one in sent for part in one.indexes)
            merged = NOTHING.merged(Leaving(cumulative, whole, indexes))
            for _ in left:
                self._count -= len(self._sent.popleft()[1])
        return merged
