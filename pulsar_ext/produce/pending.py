"""The limit of the messages that a sender has accepted and that have no outcome yet, and waits for their outcomes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.core import PendingBase
from pulsar_ext._runtime.condition import Condition

from .outcome import DUPLICATE_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable


class PendingMessages(PendingBase):
    """Counts the messages of a sender.

    `accepted` and `burden` belong to who holds the sender's lock. The others change under `changed`, which outcomes
    take and hold for a moment only; it is re-entrant, because a signal's handler may send.

    Args:
        limit: how many may have no outcome yet; 0 for any number.
    """

    __slots__ = (
        "_waiting",
        "barred",
        "burden",
        "changed",
        "completed",
        "failed_until",
        "failure",
        "failures",
        "held",
        "relieved",
        "reported",
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
        """The first bad result that no flush has reported; one that was reported, if there is none."""
        self.failures = 0
        """How many bad results there were."""
        self.failed_until = 0
        """How many messages had been accepted when the last of those was sent that failed, or more."""
        self.reported = 0
        """How many bad results flushes have reported; each flush says that of all since it began."""
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

    def enter(self, refuse: Callable[[], object]) -> None:
        """Take a place, waiting for it; a Ctrl-C ends the wait. Once barred, everybody enters, and is refused later.

        Args:
            refuse: is called before a wait, and raises where none is possible.
        """
        with self.changed:
            if not (self.barred or self.has_room()):
                refuse()
                self.wait_for(lambda: self.barred or self.has_room())
            self.accepted += 1

    def bar(self) -> None:
        """Let nothing in any more, and end the waits for room."""
        with self.changed:
            self.barred = True
            self.changed.notify_all()

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

    def fail(self, result: Any, accepted: int | None = None) -> None:
        """Keep a bad result for the flushes that have begun, and for the next one unless one of them covers it.

        Args:
            result: of a message, bad or not.
            accepted: how many messages had been accepted when it was sent; None if it was not accepted itself.
        """
        if result == pulsar.Result.Ok or result is DUPLICATE_MESSAGE:
            return
        with self.changed:
            if self.failures == self.reported:
                self.failure, self.failed_until = result, 0
            self.failures += 1
            self.failed_until = max(self.failed_until, self.accepted + 1 if accepted is None else accepted)

    def begin_flush(self) -> tuple[int, int]:
        """Give how many bad results have been reported, and how many there are."""
        return self.reported, self.failures

    def failure_since(self, begun: tuple[int, int], sent: int) -> Any:
        """Give the first bad result that no flush had reported when this one began, None if everything went well.

        Args:
            begun: what `begin_flush` gave.
            sent: how many messages the flush has waited for: later ones need not report again what became of them.
        """
        reported, known = begun
        with self.changed:
            if self.failures == reported:
                return None
            covered = self.failures if self.failed_until <= sent else known
            self.reported = max(self.reported, covered)
            return self.failure

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
