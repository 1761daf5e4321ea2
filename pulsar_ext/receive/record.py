"""Recording what a consumer receives, for blocks that acknowledge all of it at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .source import Source

__all__ = ["Recorder", "Records"]


class Records:
    """Lists in which the same C++ messages are noted, one for each block that is open."""

    def __init__(self) -> None:
        self.lists: list[list[Any]] = []

    def begin(self) -> list[Any]:
        """Give a list in which everything is noted from now on."""
        record: list[Any] = []
        self.lists.append(record)
        return record

    def note(self, inners: Sequence[Any]) -> None:
        """Note C++ messages."""
        for record in self.lists:
            record.extend(inners)

    def end(self, record: list[Any]) -> None:
        """Note nothing in this list any more."""
        self.lists = [one for one in self.lists if one is not record]


class Recorder(Records):
    """A source that notes what comes through it.

    Args:
        source: gives the messages.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    @property
    def each(self) -> Self:
        """Give this: it is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for inner in self.source.each:
            self.note((inner,))
            return inner
        raise StopIteration

    def wait(self, millis: int) -> Any:
        """Receive as the source does."""
        for inner in map(self.source.wait, (millis,)):
            self.note((inner,))
            return inner
        raise AssertionError  # the map above has exactly one item
