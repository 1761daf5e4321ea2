"""Damaged message ids as inputs of fuzz tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random


def damaged(good: bytes, random: Random, count: int) -> Iterator[bytes]:
    """Yield `count` byte strings: random ones, and `good` cut, with bits flipped, or with bytes inserted."""
    for _ in range(count):
        raw = bytearray(good)
        match random.randrange(4):
            case 0:
                raw = bytearray(random.randbytes(random.randrange(40)))
            case 1:
                del raw[random.randrange(len(raw)) :]
            case 2:
                for _ in range(random.randrange(1, 4)):
                    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
            case 3:
                at = random.randrange(len(raw))
                raw[at:at] = random.randbytes(random.randrange(1, 6))
        yield bytes(raw)
