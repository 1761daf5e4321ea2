"""Recording what a consumer receives, for blocks that acknowledge all of it at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .source import Source

__all__ = ["Recorder"]


class Recorder:
    """A source that notes what comes through it, in every list that it was given.

    Args:
        source: gives the messages.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records: list[list[Any]] = []
        self._each = source.each
        self._wait = source.wait

    @property
    def each(self) -> Self:
        """Give this: it is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for inner in self._each:
            self.note((inner,))
            return inner
        raise StopIteration

    def wait(self, millis: int) -> Any:
        """Receive as the source does."""
        for inner in map(self._wait, (millis,)):
            self.note((inner,))
            return inner
        raise AssertionError  # the map above has exactly one item

    def note(self, inners: Iterable[Any]) -> None:
        """Note C++ messages."""
        for record in self.records:
            record.extend(inners)

    def end(self, record: list[Any]) -> None:
        """Note nothing in this list any more."""
        self.records = [one for one in self.records if one is not record]
