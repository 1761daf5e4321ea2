"""Sequence ids as a sender needs them, and those of a producer without deduplication."""

from __future__ import annotations

from typing import Protocol

__all__ = ["SequenceCounter", "SequenceNumbers"]


class SequenceNumbers(Protocol):
    """The sequence ids of one producer on one topic."""

    last: int
    """The highest id that a message has."""
    steady: bool
    """Whether the next id is `last + 1`, so that the sender may take it by itself."""

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        ...


class SequenceCounter:
    """The sequence ids of a producer without deduplication; an explicit one moves the automatic ones behind it."""

    __slots__ = ("last", "steady")

    def __init__(self, last: int) -> None:
        self.last = last
        self.steady = True

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        return self.last + 1
