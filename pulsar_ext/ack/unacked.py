"""What a consumer received and has not acknowledged, for an acknowledgement timeout (pure).

It is for Exclusive and Failover subscriptions, where one message that is not acknowledged in time has everything
delivered again, and for all where a backoff makes that time longer with each redelivery. Mirrors Java's
`UnAckedMessageTracker` and `UnAckedMessageRedeliveryTracker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .leaving import Entry, Leaving

__all__ = ["Unacked"]

T = TypeVar("T")


class Unacked(Generic[T]):
    """The messages of one consumer. Each step is one operation on a dictionary, so that it needs no lock."""

    def __init__(self) -> None:
        self._received: dict[tuple[str, Entry], dict[int, tuple[float, T]]] = {}

    def receive(self, topic: str, entry: Entry, index: int, due: float, message: T) -> None:
        """Note a message that the application gets, though it got it before.

        Args:
            topic: the full name of its topic or partition.
            entry: its ledger and entry; of a chunked message those of the last chunk.
            index: its place in its batch, -1 if it is in none.
            due: when it is late.
            message: what `late()` gives then.
        """
        self._received.setdefault((topic, entry), {})[index] = (due, message)

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

    def soonest(self) -> float | None:
        """Give when the next message is late; None if none is waited for."""
        times = (due for places in list(self._received.values()) for due, _ in list(places.values()))
        return min(times, default=None)

    def drop(self, topic: str, entry: Entry) -> None:
        """Drop all messages of an entry: they are redelivered anyway."""
        self._received.pop((topic, entry), None)

    def take_late(self, now: float) -> list[tuple[str, T]]:
        """Take what is late out, a topic and one message of each entry: the others of its batch come with it."""
        found = []
        for key, places in list(self._received.items()):
            late = [message for due, message in list(places.values()) if due <= now]
            if late:
                self._received.pop(key, None)
                found.append((key[0], late[0]))
        return found
