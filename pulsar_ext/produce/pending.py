"""How many messages a sender has accepted, and what became of them: room for more, and waits for outcomes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._runtime.condition import Condition

from .outcome import DUPLICATE_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PendingMessages"]


class PendingMessages:
    """Counts the messages of a sender.

    `accepted` and `burden` belong to who holds the sender's lock. The others change under `changed`, which outcomes
    take and hold for a moment only; it is re-entrant, because a signal's handler may send.

    Args:
        limit: how many may have no outcome yet; 0 for any number.
    """

    __slots__ = (
        "_waiting",
        "accepted",
        "barred",
        "burden",
        "changed",
        "completed",
        "failure",
        "held",
        "limit",
        "released",
        "relieved",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit or sys.maxsize
        self.accepted = 0
        self.released = 0
        """How many have left room for others: their callbacks may be running."""
        self.burden = 0
        """How much room beyond a place each was taken, by messages of several chunks."""
        self.relieved = 0
        """How much of that was left to others."""
        self.completed = 0
        """How many have had their outcome, and their callbacks have returned."""
        self.failure: Any = None
        """The first bad result since the last flush."""
        self.held = False
        """Whether nothing may enter for now, however much room there is."""
        self.barred = False
        """Whether nothing may enter any more: closed, inherited across a fork, or ended with the program."""
        self.changed = Condition()
        self._waiting = 0

    def has_room(self, count: int = 1) -> bool:
        """Whether there are so many places now; all of them are enough for whatever needs more."""
        taken = self.accepted - self.released + self.burden - self.relieved
        return not (self.barred or self.held) and taken + min(count, self.limit) <= self.limit

    def release(self, count: int, burden: int = 0) -> None:
        """Leave the room of so many messages to others, and what they took besides."""
        with self.changed:
            self.released += count
            self.relieved += burden
            if self._waiting:
                self.changed.notify_all()

    def complete(self, count: int) -> bool:
        """Count so many outcomes; give whether everything accepted has its outcome now."""
        with self.changed:
            self.completed += count
            if self._waiting:
                self.changed.notify_all()
            return self.completed >= self.accepted

    def fail(self, result: Any) -> None:
        """Keep a bad result for the next flush."""
        if result != pulsar.Result.Ok and result is not DUPLICATE_MESSAGE:
            self.failure = self.failure or result

    def take_failure(self) -> Any:
        """Give the first bad result since this was asked the last time, None if everything went well."""
        failure, self.failure = self.failure, None
        return failure

    def wait_for(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition about outcomes holds; a Ctrl-C ends the wait."""
        with self.changed:
            self._waiting += 1
            try:
                return self.changed.wait_for(condition, seconds)
            finally:
                self._waiting -= 1

    def wait_for_all(self) -> None:
        """Wait until everything that was accepted by now has its outcome."""
        sent = self.accepted
        self.wait_for(lambda: self.completed >= sent)
