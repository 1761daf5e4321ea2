"""How many messages may be pending: the queue of a producer on partitions that waits for room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext._runtime.condition import Condition

if TYPE_CHECKING:
    from pulsar_ext._native.locks import OwnedLock

__all__ = ["PendingLimit"]


class PendingLimit:
    """A limit that a message enters, waiting for room, and leaves when it is done.

    Args:
        limit: how many may be pending; more than 0.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._closed = False
        self._changed = Condition()

    @property
    def lock(self) -> OwnedLock:
        """What makes each method one step: a signal's handler asks whether it interrupts one."""
        return self._changed.lock

    def try_acquire(self) -> bool:
        """Enter if there is room now."""
        with self._changed:
            if not self._has_room():
                return False
            self._used += 1
            return True

    def acquire(self) -> None:
        """Enter, waiting for room; a Ctrl-C ends the wait."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._used += 1

    def release(self) -> None:
        """Leave."""
        with self._changed:
            self._used -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let every message in: the producer is closed and refuses them itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._closed or self._used < self._limit
