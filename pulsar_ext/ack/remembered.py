"""What was acknowledged and may be delivered again, because the acknowledgement was lost with a connection (pure).

A broker that has not got an acknowledgement delivers its message again on the next connection. The consumer knows
better: it drops such a message, whose acknowledgement is sent again; see `sending_again.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .leaving import Leaving, before, whole_without

if TYPE_CHECKING:
    from .leaving import Entry, Singles

__all__ = ["Remembered"]


class Remembered:
    """Acknowledged messages of one topic or partition.

    Args:
        since: when the oldest acknowledgement in question was sent, in seconds of any steady clock.
        arrived: an entry that the broker surely knows as acknowledged; None if no such entry is known.
    """

    __slots__ = ("_is_reset", "_parts", "_upto", "_whole", "arrived", "since")

    def __init__(self, since: float = -math.inf, arrived: Entry | None = None) -> None:
        self.since, self.arrived = since, arrived
        self._whole: set[Entry] = set()
        self._parts: dict[Entry, int] = {}
        self._upto: Entry | None = None
        self._is_reset = False

    def add(self, leaving: Leaving | Singles) -> None:
        """Remember what was sent."""
        if not isinstance(leaving, Leaving):
            self._whole.update(leaving.entries)
            return
        self._whole.update(leaving.whole)
        if leaving.cumulative is not None:
            self._upto = max(leaving.cumulative, self._upto or leaving.cumulative)
        for entry, _, bits in leaving.indexes:
            self._parts[entry] = self._parts.get(entry, 0) | bits

    def take_back(self, entry: Entry, index: int = -1, size: int = 0) -> None:
        """Forget a message: it is to be delivered again.

        Args:
            entry: its entry.
            index: its place in its batch; -1 if it is not in a batch.
            size: number of messages in its batch; 0 if that is not known.
        """
        if self._upto is not None and entry <= self._upto:
            self._upto = before(entry)
        if entry in self._whole:
            self._whole.discard(entry)
            self._parts[entry] = whole_without(index, size)
        elif entry in self._parts:
            self._parts[entry] = self._parts[entry] & ~(1 << index) if index >= 0 else 0

    def shows_reset(self, entry: Entry) -> bool:
        """Whether the broker's cursor was moved back, now that a message of an entry is delivered.

        An entry that the broker surely knows as acknowledged is delivered again only then, and everything after it is
        to be delivered again.
        """
        self._is_reset = self._is_reset or entry == self.arrived
        return self._is_reset

    def has(self, entry: Entry, index: int = -1) -> bool:
        """Whether a message was acknowledged.

        Args:
            entry: its entry.
            index: its place in its batch; -1 if it is not in a batch.
        """
        if entry in self._whole or (self._upto is not None and entry <= self._upto):
            return True
        return index >= 0 and bool(self._parts.get(entry, 0) >> index & 1)
