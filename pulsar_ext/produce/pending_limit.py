"""How many messages may be pending: the queue of a producer of chunked messages."""

from __future__ import annotations

from pulsar_ext._runtime.condition import Condition, OwnedLock
from pulsar_ext.errors import InvalidUse

__all__ = ["PendingLimit"]

_CHUNK_BYTES = 5 * 1024 * 1024
"""The broker's default `maxMessageSize`. The client does not know the real one; a smaller one loosens the bound."""


class PendingLimit:
    """A limit that a message enters with the weight of its chunks and leaves when it is done.

    A message heavier than the whole limit enters when nothing else is pending, instead of never.

    Args:
        limit: how many chunks may be pending; 0 for any number, as `max_pending_messages=0`.
        blocks: whether `acquire` may be called, as `block_if_queue_full`.
    """

    def __init__(self, limit: int, *, blocks: bool) -> None:
        if limit < 0:
            raise InvalidUse(f"max_pending_messages is {limit}; it must be 0 (no limit) or more.")
        self._limit = limit
        self.blocks = blocks
        self._used = 0
        self._closed = False
        self._changed = Condition()

    @property
    def lock(self) -> OwnedLock:
        """What makes each method one step: a signal's handler asks whether it interrupts one."""
        return self._changed.lock

    @staticmethod
    def weigh(length: int) -> int:
        """Estimate how many chunks a payload of `length` bytes becomes."""
        return max(1, -(-length // _CHUNK_BYTES))

    def try_acquire(self, weight: int) -> bool:
        """Enter if there is room now."""
        with self._changed:
            if not self._has_room(weight):
                return False
            self._used += weight
            return True

    def acquire(self, weight: int) -> None:
        """Enter, waiting for room; a Ctrl-C ends the wait."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(weight))
            self._used += weight

    def release(self, weight: int) -> None:
        """Leave."""
        with self._changed:
            self._used -= weight
            self._changed.notify_all()

    def close(self) -> None:
        """Let every message in: the producer is closed and refuses them itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _has_room(self, weight: int) -> bool:
        return self._closed or not self._limit or self._used == 0 or self._used + weight <= self._limit
