"""Limit of the messages that a sender accepted and that have no outcome, and waits for their outcomes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._native.core import PendingBase
from pulsar_ext._runtime.condition import Condition

from .outcome import DUPLICATE_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.results import Result


class PendingMessages(PendingBase):
    """Counts the messages of a sender.

    `accepted` and `extra_permits` are guarded by the sender's lock, the other counts by `changed`. Outcomes hold
    `changed` only briefly; it is re-entrant, because a signal handler may send.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit or sys.maxsize  # 0 means unlimited
        self.accepted = 0
        self.released = 0
        """The number of messages whose permits were released; their callbacks may still be running."""
        self.extra_permits = 0
        """The number of permits that chunked messages acquired beyond one each."""
        self.extra_released = 0
        """The number of those permits that were released."""
        self.completed = 0
        """The number of messages whose outcome is known and whose callbacks have returned."""
        self.failure: Result | None = None
        """The first error not reported by a flush; an error reported earlier if all were reported."""
        self.failures = 0
        """The number of errors."""
        self.failed_until = 0
        """The value of `accepted` when the last failed message was sent, or a higher one."""
        self.reported = 0
        """The number of errors that flushes have reported; each flush reports all errors since it began."""
        self.paused = False
        """Whether sends must wait regardless of the limit."""
        self.barred = False
        """Whether no message is accepted any more: closed, inherited across a fork, or the program ends."""
        self.changed = Condition()
        self._waiting = 0

    def has_room(self, count: int = 1) -> bool:
        """Return whether `count` permits are available; a request above the limit needs all permits."""
        in_use = self.accepted - self.released + self.extra_permits - self.extra_released
        return not (self.barred or self.paused) and in_use + min(count, self.limit) <= self.limit

    def enter(self, check_may_wait: Callable[[], object]) -> None:
        """Acquire a permit, waiting if necessary; Ctrl-C ends the wait. Once barred, always return at once."""
        with self.changed:
            if not (self.barred or self.has_room()):
                check_may_wait()
                self.wait_for(lambda: self.barred or self.has_room())
            self.accepted += 1

    def bar(self) -> None:
        """Accept no more messages, and end the waits for permits."""
        with self.changed:
            self.barred = True
            self.changed.notify_all()

    def release(self, count: int, extra_permits: int = 0) -> None:
        """Release the permits of `count` messages, and `extra_permits` more."""
        with self.changed:
            self.released += count
            self.extra_released += extra_permits
            if self._waiting:
                self.changed.notify_all()

    def complete(self, count: int) -> bool:
        """Count outcomes; return whether everything accepted has its outcome."""
        with self.changed:
            self.completed += count
            if self._waiting:
                self.changed.notify_all()
            return self.completed >= self.accepted

    def fail(self, result: Result, accepted: int | None = None) -> None:
        """Record an error for the flushes in progress, and for the next flush unless one of them covers it."""
        if result == pulsar.Result.Ok or result is DUPLICATE_MESSAGE:
            return
        with self.changed:
            if self.failures == self.reported:
                self.failure, self.failed_until = result, 0
            self.failures += 1
            self.failed_until = max(self.failed_until, self.accepted + 1 if accepted is None else accepted)

    def begin_flush(self) -> tuple[int, int]:
        """Return the number of errors already reported, and the number of all errors."""
        return self.reported, self.failures

    def failure_since(self, begun: tuple[int, int], sent: int) -> Result | None:
        """Return the first error that no flush had reported when this one began, or None."""
        reported, known = begun
        with self.changed:
            if self.failures == reported:
                return None
            covered = self.failures if self.failed_until <= sent else known
            self.reported = max(self.reported, covered)
            return self.failure

    def wait_for(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition about outcomes holds; Ctrl-C ends the wait."""
        with self.changed:
            self._waiting += 1
            try:
                return self.changed.wait_for(condition, seconds)
            finally:
                self._waiting -= 1
