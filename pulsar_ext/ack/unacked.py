"""What a consumer received and has not acknowledged, for an acknowledgement timeout (pure).

It is for Exclusive and Failover subscriptions, where one message that is not acknowledged in time has everything
delivered again. Mirrors Java's `UnAckedMessageTracker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .leaving import Entry, Leaving

__all__ = ["Unacked"]


class Unacked:
    """The messages of one consumer. Each step is one operation on a dictionary, so that it needs no lock."""

    def __init__(self) -> None:
        self._received: dict[tuple[str, Entry], dict[int, float]] = {}

    def receive(self, topic: str, entry: Entry, index: int, now: float) -> None:
        """Note a message that the application gets, though it got it before.

        Args:
            topic: the full name of its topic or partition.
            entry: its ledger and entry; of a chunked message those of the last chunk.
            index: its place in its batch, -1 if it is in none.
            now: the time.
        """
        self._received.setdefault((topic, entry), {})[index] = now

    def acknowledge(self, topic: str, leaving: Leaving) -> None:
        """Drop what leaves for the broker."""
        for entry in leaving.whole:
            self._received.pop((topic, entry), None)
        if leaving.cumulative is not None:
            for key in list(self._received):
                if key[0] == topic and key[1] <= leaving.cumulative:
                    self._received.pop(key, None)
        for entry, _, bits in leaving.indexes:
            places = self._received.get((topic, entry), {})
            for index in list(places):
                if index >= 0 and bits >> index & 1:
                    places.pop(index, None)

    def clear(self) -> None:
        """Drop everything: it comes again."""
        self._received.clear()

    def oldest(self) -> float | None:
        """Give when the message came that is waited for the longest; None if none is."""
        times = (time for places in list(self._received.values()) for time in list(places.values()))
        return min(times, default=None)
