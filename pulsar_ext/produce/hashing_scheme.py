"""Which hash of its key sends a message to a partition (pure); mirrors Java's `HashingScheme`.

The C++ client hashes by Boost, which no other client does: where producers of several languages share a partitioned
topic, the messages of one key lie on several partitions, and their order is lost. The names are Java's.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import mmh3

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HashingScheme", "hash_of", "key_hash"]

_MASK = (1 << 64) - 1
_STEP, _FACTOR = 0x9E3779B97F4A7C15, 0xDF442D22CE4859B9
_POSITIVE: Final = 0x7FFFFFFF
_WORD: Final = 1 << 32


class HashingScheme(enum.Enum):
    """How the key of a message is hashed to choose its partition."""

    BoostHash = "BoostHash"
    """As the C++ client does by default, and so the official Python client always."""
    JavaStringHash = "JavaStringHash"
    """As the Java client does by default: `String.hashCode()`."""
    Murmur3_32Hash = "Murmur3_32Hash"
    """As the clients in Go and Node.js can, and Java when it is asked to."""


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
    """Compute what `String.hashCode()` gives, over the key's UTF-16, without its sign."""
    value = 0
    units = memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) % _WORD
    return value & _POSITIVE


def _murmur3_32_hash(key: str) -> int:
    value: int = mmh3.hash(key.encode(), signed=False)
    return value & _POSITIVE


_HASHES: Final[dict[HashingScheme, Callable[[str], int]]] = {
    scheme: lru_cache(maxsize=1 << 16)(one)
    for scheme, one in (
        (HashingScheme.BoostHash, key_hash),
        (HashingScheme.JavaStringHash, _java_string_hash),
        (HashingScheme.Murmur3_32Hash, _murmur3_32_hash),
    )
}


def hash_of(scheme: HashingScheme) -> Callable[[str], int]:
    """Give what computes a key's hash, 0 to 2**31 - 1; it remembers those of the last 65,536 keys."""
    return _HASHES[scheme]
