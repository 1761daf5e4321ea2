"""Recording what a consumer receives, for blocks that acknowledge all of it at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .source import Source

__all__ = ["Recorder", "Records"]


class _Record(list[Any]):
    """What is noted in one block."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity
    __eq__ = object.__eq__


class Records:
    """Lists in which the same C++ messages are noted, one for each block that is open.

    They are kept weakly: a Ctrl-C may come before a block that has begun knows its list, or before it ends it.
    """

    def __init__(self) -> None:
        self.lists: WeakSet[_Record] = WeakSet()

    def begin(self) -> list[Any]:
        """Give a list in which everything is noted from now on, for as long as it is kept."""
        record = _Record()
        self.lists.add(record)
        return record

    def note(self, inners: Sequence[Any]) -> None:
        """Note C++ messages."""
        for record in self.lists:
            record.extend(inners)

    def drop(self) -> None:
        """Drop what was noted: it is of another cluster."""
        for record in self.lists:
            record.clear()

    def end(self, record: list[Any]) -> None:
        """Note nothing in this list any more."""
        self.lists.discard(record)  # type: ignore[arg-type]  # made here


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
