"""Positions in a topic: their order, their texts, and how many entries lie between two of them (pure).

Mirrors `org.apache.bookkeeper.mledger.Position`, the ranges of `LongPairRangeSet`, and
`ManagedLedgerImpl.getPositionAfterN`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

from pulsar_ext.errors import InvalidMessageId, InvalidUse

__all__ = ["Ledgers", "Position", "PositionRange", "position_after"]

_POSITION = re.compile(r"(-?[0-9]+):(-?[0-9]+)", re.ASCII)
_RANGE = re.compile(rf"([(\[]){_POSITION.pattern}(?:\.\.|‥){_POSITION.pattern}([)\]])", re.ASCII)
_LONG = range(-(2**63), 2**63)


class Position(NamedTuple):
    """One entry of a topic: its ledger, and its number within that ledger.

    Ordered as the broker orders entries. Entry -1 stands before the ledger's first entry, which is where the cursor of
    a new subscription's mark-delete position is.
    """

    ledger_id: int
    entry_id: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `ledger:entry`, the form of internal statistics and of entry headers.

        Raises:
            InvalidMessageId: the text is not two 64-bit numbers joined by a colon.
        """
        match = _POSITION.fullmatch(text)
        if not match:
            raise InvalidMessageId(f"Not a position: {text!r}; expected 'ledger:entry'")
        return _position(*match.groups())

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Consecutive entries: those after `after`, up to and including `last`."""

    after: Position
    last: Position

    def __str__(self) -> str:
        return f"({self.after}..{self.last}]"

    def __contains__(self, position: object) -> bool:
        return isinstance(position, Position) and self.after < position <= self.last

    @classmethod
    def parse_all(cls, text: str) -> tuple[PositionRange, ...]:
        """Read a list of ranges such as `[(9:2..9:3],(9:5..10:0]]`, the form of `individuallyDeletedMessages`.

        Raises:
            InvalidMessageId: the text is not a list of ranges that are open below and closed above.
        """
        inner = text[1:-1]
        matches = list(_RANGE.finditer(inner))
        if text != f"[{inner}]" or ",".join(match[0] for match in matches) != inner.replace(", ", ","):
            raise InvalidMessageId(f"Not a list of position ranges: {text!r}")
        parts = [match.groups() for match in matches]
        if any((begin, end) != ("(", "]") for begin, *_, end in parts):
            raise InvalidMessageId(f"A position range is not open below and closed above: {text!r}")
        return tuple(cls(_position(*part[1:3]), _position(*part[3:5])) for part in parts)


def _position(ledger_id: str, entry_id: str) -> Position:
    position = Position(int(ledger_id), int(entry_id))
    if position.ledger_id not in _LONG or position.entry_id not in _LONG:
        raise InvalidMessageId(f"Not a position: '{position}'; expected 'ledger:entry', each of 64 bits")
    return position


class Ledgers:
    """How many entries each ledger of a topic holds, and so which entry follows which.

    Ledgers without entries do not matter: the open one has none at first, and a fenced one may have stayed empty.

    Args:
        sizes: `(ledger_id, entries)`, in any order; ids need not be consecutive.
    """

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        self._sizes = sorted((ledger_id, entries) for ledger_id, entries in sizes if entries > 0)
        self._ids = [ledger_id for ledger_id, _ in self._sizes]
        self._before = [0, *accumulate(entries for _, entries in self._sizes)]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._sizes)

    @property
    def last(self) -> Position | None:
        """The last entry of the topic, None if it has none."""
        return Position(self._ids[-1], self._sizes[-1][1] - 1) if self._sizes else None

    def up_to(self, position: Position) -> int:
        """Count the entries up to and including a position, which need not be an entry's."""
        at = bisect_left(self._ids, position.ledger_id)
        if at == len(self._ids) or self._ids[at] != position.ledger_id:
            return self._before[at]
        return self._before[at] + min(max(position.entry_id + 1, 0), self._sizes[at][1])

    def between(self, after: Position, last: Position) -> int:
        """Count the entries behind `after`, up to and including `last`."""
        return self.up_to(last) - self.up_to(after)

    def number(self, nth: int) -> Position | None:
        """Give the n-th entry of the topic, 1-based; None where there is none."""
        if not 1 <= nth <= self._before[-1]:
            return None
        at = bisect_left(self._before, nth) - 1
        return Position(self._ids[at], nth - self._before[at] - 1)

    def next(self, position: Position) -> Position | None:
        """Give the first entry behind a position, None at the end of the topic."""
        return self.number(self.up_to(position) + 1)


class HasLedgers(Protocol):
    """What knows the ledgers of a topic, as `InternalStats` does."""

    def ledger_sizes(self) -> list[tuple[int, int]]:
        """Give `(ledger_id, entries)` of each ledger."""
        ...


def position_after(ledgers: HasLedgers | Iterable[tuple[int, int]], start: Position, count: int) -> Position:
    """Give the position that is `count` entries behind `start`: where the broker's skip puts a cursor without holes.

    Mirrors `ManagedLedgerImpl.getPositionAfterN(start, count, startExcluded)`: the entries left in the ledger of
    `start`, then those of the next ledgers that have any, and past the end the last entry.

    Args:
        ledgers: internal statistics, or `(ledger_id, entries)` of every ledger, the open one with its true count.
        start: a mark-delete position, which counts as read; its ledger may be trimmed already.
        count: how many entries, 0 or more.

    Raises:
        InvalidUse: the count is not an int, or is negative.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InvalidUse(f"count must be an int, 0 or more, not {count!r}")
    # Internal statistics know the open ledger's count apart from its list.
    sizes = ledgers if isinstance(ledgers, Iterable) else ledgers.ledger_sizes()
    every = Ledgers(sizes)
    if count == 0 or every.last is None or start >= every.last:
        return start
    return every.number(every.up_to(start) + count) or every.last
