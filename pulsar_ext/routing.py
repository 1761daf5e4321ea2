"""Which partition a message goes to, as the C++ client decides (pure but for the clock and the dice of its start).

Mirrors `RoundRobinMessageRouter`, `SinglePartitionMessageRouter` and `BoostHash` of the C++ client, whose partitions
for a key are others than Java's.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .batches import Bounds

__all__ = ["RoundRobin", "Router", "SinglePartition", "key_hash"]

_MASK = (1 << 64) - 1
_STEP, _FACTOR = 0x9E3779B97F4A7C15, 0xDF442D22CE4859B9


def key_hash(key: str) -> int:
    """Compute the C++ client's hash of a key, 0 to 2**31 - 1: `boost::hash<std::string>` of Boost 1.83 and later."""
    data = key.encode()
    weight = _mix(_STEP, _FACTOR)
    value = weight ^ len(data)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        weight = (weight + _STEP) & _MASK
        value ^= _mix((int.from_bytes(data[at : at + 8], "little") + weight) & _MASK, _FACTOR)
    weight = (weight + _STEP) & _MASK
    value ^= _mix((_last_word(data[whole:]) + weight) & _MASK, _FACTOR)
    return _mix((value + weight) & _MASK, _FACTOR) & 0x7FFFFFFF


def _mix(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ (product >> 64)


def _last_word(rest: bytes) -> int:
    """Read up to seven bytes, as Boost does in two overlapping reads."""
    count = len(rest)
    if count >= 4:  # noqa: PLR2004  # a word of 32 bits
        upper, lower = int.from_bytes(rest[-4:], "little"), int.from_bytes(rest[:4], "little")
        return ((upper << (count - 4) * 8) | lower) & _MASK
    if not count:
        return 0
    middle, last = (count - 1) & 2, count >> 1
    return rest[middle] << middle * 8 | rest[last] << last * 8 | rest[0]


class Router(Protocol):
    """Decides for messages without a key."""

    def keyless(self, size: int, partitions: int, /) -> int:
        """Give the partition of a message of that many bytes."""
        ...


class SinglePartition:
    """All messages without a key go to one partition, drawn by lot at the start."""

    def __init__(self, partitions: int) -> None:
        self._partition = random.randrange(partitions)  # noqa: S311  # no secret

    def keyless(self, _size: int, _partitions: int) -> int:
        """Give the partition."""
        return self._partition


class RoundRobin:
    """One partition after the other; with batching, each for the messages, the bytes or the time of a batch.

    Args:
        bounds: of a batch; None without batching.
        delay_ms: how long a batch may stay open.
    """

    def __init__(self, bounds: Bounds | None, delay_ms: int) -> None:
        self._bounds = bounds
        self._delay_ms = delay_ms
        self._cursor = random.randrange(1 << 31)  # noqa: S311  # no secret
        self._messages = self._bytes = 0
        self._changed_ms = self._now()

    @staticmethod
    def _now() -> int:
        return time.time_ns() // 1_000_000

    def keyless(self, size: int, partitions: int) -> int:
        """Give the partition."""
        bounds = self._bounds
        if bounds is None:
            self._cursor += 1
            return (self._cursor - 1) % partitions
        now = self._now()
        if (
            self._messages >= bounds.messages
            or size >= bounds.size - self._bytes
            or now - self._changed_ms >= self._delay_ms
        ):
            self._cursor += 1
            self._changed_ms = now
            self._messages, self._bytes = 1, size
        else:
            self._messages += 1
            self._bytes += size
        return self._cursor % partitions
