"""Sequence ids of a producer without deduplication."""

from __future__ import annotations

__all__ = ["Counter"]


class Counter:
    """The sequence ids of a producer without deduplication; an explicit one moves the automatic ones behind it."""

    __slots__ = ("last", "steady")

    def __init__(self, last: int) -> None:
        self.last = last
        self.steady = True
