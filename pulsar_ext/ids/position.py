"""Positions in a topic: their order, their texts, and how many entries lie between two of them (pure).

Mirrors `org.apache.bookkeeper.mledger.Position`, the ranges of `LongPairRangeSet`, and
`ManagedLedgerImpl.getPositionAfterN`.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, repeat
from typing import NamedTuple, Protocol, Self

from pulsar_ext.errors import InvalidMessageId, InvalidUse

_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)
_POSITION = re.compile(rf"({_NUMBER.pattern}):({_NUMBER.pattern})", re.ASCII)
_ENTRY = f"{_NUMBER.pattern}:{_NUMBER.pattern}"
_RANGE = rf"\({_ENTRY}(?:\.\.|‥){_ENTRY}\]"
_RANGES = re.compile(rf"\[(?:{_RANGE}(?:, ?{_RANGE})*)?\]", re.ASCII)
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
        position = cls(int(match[1]), int(match[2]))
        _check_long(position, text)
        return position

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


@dataclass(frozen=True, slots=True)
class PositionRanges:
    """Many ranges, in the order of their ends; kept as numbers, for a cursor may have a million."""

    _numbers: tuple[int, ...]
    """Four of each range: the ledger and the entry of `after`, and those of `last`."""

    def __repr__(self) -> str:
        return f"[{','.join(map(str, self))}]"

    def __len__(self) -> int:
        return len(self._numbers) // 4

    def __iter__(self) -> Iterator[PositionRange]:
        n = self._numbers
        for after, last in zip(zip(n[::4], n[1::4], strict=True), zip(n[2::4], n[3::4], strict=True), strict=True):
            yield PositionRange(Position(*after), Position(*last))

    def __contains__(self, position: tuple[int, ...]) -> bool:
        at = 4 * bisect_left(range(len(self)), position, key=self._last)
        return at < len(self._numbers) and self._numbers[at : at + 2] < position

    def covering(self, positions: Sequence[tuple[int, int]]) -> list[bool]:
        """Tell of each of many positions whether it is in one of the ranges."""
        n = self._numbers
        afters, lasts = list(zip(n[::4], n[1::4], strict=True)), list(zip(n[2::4], n[3::4], strict=True))
        places = map(bisect_left, repeat(lasts), positions)
        return [at < len(afters) and afters[at] < one for at, one in zip(places, positions, strict=True)]

    def _last(self, index: int) -> tuple[int, ...]:
        return self._numbers[4 * index + 2 : 4 * index + 4]

    @classmethod
    def of(cls, ranges: Iterable[PositionRange]) -> Self:
        """Make them of ranges in any order."""
        rows = sorted(((*one.after, *one.last) for one in ranges), key=operator.itemgetter(2, 3))
        return cls(tuple(chain.from_iterable(rows)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a list of ranges such as `[(9:2..9:3],(9:5..10:0]]`, the form of `individuallyDeletedMessages`.

        Raises:
            InvalidMessageId: the text is not a list of ranges that are open below and closed above.
        """
        if not _RANGES.fullmatch(text):
            raise InvalidMessageId(f"Not a list of position ranges, open below and closed above: {text!r}")
        numbers = list(map(int, _NUMBER.findall(text)))
        _check_long(numbers, text)
        lasts = list(zip(numbers[2::4], numbers[3::4], strict=True))
        ranges = cls(tuple(numbers))
        return cls.of(ranges) if any(map(operator.gt, lasts, islice(lasts, 1, None))) else ranges


def _check_long(numbers: Sequence[int], text: str) -> None:
    if numbers and not (min(numbers) in _LONG and max(numbers) in _LONG):
        raise InvalidMessageId(f"Not a position: {text!r}; expected 'ledger:entry', each of 64 bits")


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

    def first(self, count: int) -> Ledgers:
        """Return the first `count` entries of the topic."""
        sizes = zip(self._sizes, self._before, strict=False)
        return Ledgers((ledger_id, min(entries, count - before)) for (ledger_id, entries), before in sizes)

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
