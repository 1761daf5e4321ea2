"""Routing of messages to partitions as in the official client (pure), and the application's own routers.

The C++ client hashes keys with Boost, unlike any other client. If producers in several languages share a partitioned
topic, the messages of a key go to several partitions and lose their order. `HashingScheme` mirrors Java's.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Final

import mmh3
import pulsar

from pulsar_ext._native.messages import InnerMessage, official_message
from pulsar_ext._native.signatures import Arguments

from .batch import BatchingConfig, Bounds
from .options import Options

_MASK = (1 << 64) - 1
_STEP, _FACTOR = 0x9E3779B97F4A7C15, 0xDF442D22CE4859B9
_POSITIVE: Final = 0x7FFFFFFF
_WORD: Final = 1 << 32


class HashingScheme(enum.Enum):
    """The hash of message keys that chooses the partition."""

    BoostHash = "BoostHash"
    """The default of the C++ client, and the only choice of the official Python client."""
    JavaStringHash = "JavaStringHash"
    """The default of the Java client: `String.hashCode()`."""
    Murmur3_32Hash = "Murmur3_32Hash"
    """Available in the Go, Node.js and Java clients."""


def key_hash(key: str) -> int:
    """Return the C++ client's hash of a key, 0 to 2**31 - 1: `boost::hash<std::string>` of Boost 1.83 and later."""
    data = key.encode()
    weight = _mix(_STEP, _FACTOR)
    value = weight ^ len(data)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        weight = (weight + _STEP) & _MASK
        value ^= _mix((int.from_bytes(data[at : at + 8], "little") + weight) & _MASK, _FACTOR)
    weight = (weight + _STEP) & _MASK
    value ^= _mix((_last_word(data[whole:]) + weight) & _MASK, _FACTOR)
    return _mix((value + weight) & _MASK, _FACTOR) & _POSITIVE


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


def _java_string_hash(key: str) -> int:
    """Return Java's `String.hashCode()` of a key, computed on UTF-16, with the sign bit cleared."""
    value = 0
    units = memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) % _WORD
    return value & _POSITIVE


def _murmur3_32_hash(key: str) -> int:
    value: int = mmh3.hash(key.encode(), signed=False)
    return value & _POSITIVE


@cache
def hash_of(scheme: HashingScheme) -> Callable[[str], int]:
    """Return the hash function of a scheme, 0 to 2**31 - 1; it caches the last 65,536 keys."""
    hashes = {
        HashingScheme.BoostHash: key_hash,
        HashingScheme.JavaStringHash: _java_string_hash,
        HashingScheme.Murmur3_32Hash: _murmur3_32_hash,
    }
    return lru_cache(maxsize=1 << 16)(hashes[scheme])


class Routing:
    """Partition choice of a producer; with `deduplicates`, a resent message goes to the same partition."""

    def __init__(
        self,
        named: Arguments,
        config: BatchingConfig,
        partitions: int,
        router: Callable[[object, int], int] | None,
        *,
        deduplicates: bool,
        scheme: HashingScheme = HashingScheme.BoostHash,
    ) -> None:
        self.router = router
        self._hash = hash_of(scheme)
        self._fixed: int | None = None
        """The partition of all messages without a key."""
        if named["message_routing_mode"] == pulsar.PartitionsRoutingMode.UseSinglePartition:
            number = key_hash(named["producer_name"]) if deduplicates else random.getrandbits(31)
            self._fixed = number % partitions
        self._deduplicates = deduplicates
        bounds = config.bounds if config.batched else None
        self._round_robin = RoundRobin(bounds, named["batching_max_publish_delay_ms"])

    def choose(self, message: InnerMessage | None, size: int, options: Options, partitions: int) -> int:
        """Return the partition of a message; a custom router may return an invalid one."""
        if self.router is not None:
            return self.router(official_message(message), partitions)
        key = options.get("partition_key")
        if key is not None:
            return self._hash(key) % partitions
        if self._fixed is not None:
            return self._fixed
        sequence_id = options.get("sequence_id")
        if self._deduplicates and isinstance(sequence_id, int):
            return sequence_id % partitions
        return self._round_robin.next(size, partitions)

    def choose_many(
        self, keys: Sequence[str | None], sizes: Sequence[int], ids: Sequence[int] | None, partitions: int
    ) -> list[int]:
        """Return the partitions of many messages, for a producer without a custom router."""
        hash_key = self._hash
        if self._fixed is None and self._deduplicates and ids is not None:
            return [
                (sequence_id if key is None else hash_key(key)) % partitions
                for key, sequence_id in zip(keys, ids, strict=True)
            ]
        following, fixed = self._round_robin.next, self._fixed
        return [
            hash_key(key) % partitions if key is not None else following(size, partitions) if fixed is None else fixed
            for key, size in zip(keys, sizes, strict=True)
        ]


class RoundRobin:
    """Cycles through the partitions; with batching, moves on after the messages, bytes or time of a batch."""

    def __init__(self, bounds: Bounds | None, delay_ms: int) -> None:
        self._bounds = bounds
        self._delay_ms = delay_ms
        self._cursor = random.getrandbits(31)
        self._messages = self._bytes = 0
        self._changed_ms = self._now()

    @staticmethod
    def _now() -> int:
        return time.time_ns() // 1_000_000

    def next(self, size: int, partitions: int) -> int:
        """Return the partition of a message of `size` bytes."""
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
