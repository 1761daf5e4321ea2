"""Positions in a topic: their order, their texts, and the number of entries between them (pure).

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
    """Position of an entry: its ledger id, and its number in that ledger.

    Ordered as the broker orders entries. Entry -1 is before the ledger's first entry; it is the mark-delete position of
    a new subscription.
    """

    ledger_id: int
    entry_id: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position of the text `ledger:entry`, the form in internal statistics and entry headers.

        Raises:
            InvalidMessageId: the text is not two 64-bit numbers separated by a colon.
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
    """Many ranges, in the order of their ends; stored as numbers, because a cursor may have a million."""

    _numbers: tuple[int, ...]
    """Four numbers for each range: ledger and entry of `after`, ledger and entry of `last`."""

    def __repr__(self) -> str:
        return f"[{','.join(map(str, self))}]"

    def __len__(self) -> int:
        return len(self._numbers) // 4

    def __iter__(self) -> Iterator[PositionRange]:
        n = self._numbers
        for after, last in zip(zip(n[::4], n[1::4], strict=True), zip(n[2::4], n[3::4], strict=True), strict=True):
            yield PositionRange(Position(*after), Position(*last))

    def __contains__(self, position: tuple[int, ...]) -> bool:
        at = 4 * bisect_left(range(len(self)), position, key=lambda one: self._numbers[4 * one + 2 : 4 * one + 4])
        return at < len(self._numbers) and self._numbers[at : at + 2] < position

    def covering(self, positions: Sequence[tuple[int, int]]) -> list[bool]:
        """Return for each of many positions whether one of the ranges contains it."""
        n = self._numbers
        afters, lasts = list(zip(n[::4], n[1::4], strict=True)), list(zip(n[2::4], n[3::4], strict=True))
        indexes = map(bisect_left, repeat(lasts), positions)
        return [at < len(afters) and afters[at] < one for at, one in zip(indexes, positions, strict=True)]

    @classmethod
    def of(cls, ranges: Iterable[PositionRange]) -> Self:
        """Return the ranges, given in any order."""
        rows = sorted(((*one.after, *one.last) for one in ranges), key=operator.itemgetter(2, 3))
        return cls(tuple(chain.from_iterable(rows)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the ranges of a text `[(9:2..9:3],(9:5..10:0]]`, of statistics, or raise `InvalidMessageId`."""
        if not _RANGES.fullmatch(text):
            raise InvalidMessageId(f"Not a list of position ranges, open below and closed above: {text!r}")
        numbers = list(map(int, _NUMBER.findall(text)))
        _check_long(numbers, text)
        lasts = list(zip(numbers[2::4], numbers[3::4], strict=True))
        ranges = cls(tuple(numbers))
        return cls.of(ranges) if any(map(operator.gt, lasts, islice(lasts, 1, None))) else ranges


def _check_long(numbers: Sequence[int], text: str) -> None:
    if numbers and not (min(numbers) in _LONG and max(numbers) in _LONG):
        raise InvalidMessageId(f"Not a position: {text!r}; expected 'ledger:entry', each a 64-bit number")


class Ledgers:
    """Arithmetic with the positions of a topic, by `(ledger_id, entries)` in any order; empty ledgers are ignored."""

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        self._sizes = sorted((ledger_id, entries) for ledger_id, entries in sizes if entries > 0)
        self._ids = [ledger_id for ledger_id, _ in self._sizes]
        self._before = [0, *accumulate(entries for _, entries in self._sizes)]
        self.entries = self._before[-1]
        """The number of entries of the topic."""
        self.last = Position(self._ids[-1], self._sizes[-1][1] - 1) if self._sizes else None
        """The last entry of the topic, None if it has none."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._sizes)

    def up_to(self, position: Position) -> int:
        """Return the number of entries up to and including a position, which need not be an entry's."""
        at = bisect_left(self._ids, position.ledger_id)
        if at == len(self._ids) or self._ids[at] != position.ledger_id:
            return self._before[at]
        return self._before[at] + min(max(position.entry_id + 1, 0), self._sizes[at][1])

    def between(self, after: Position, last: Position) -> int:
        """Return the number of entries after `after`, up to and including `last`."""
        return self.up_to(last) - self.up_to(after)

    def number(self, nth: int) -> Position | None:
        """Return the n-th entry of the topic, 1-based; None if it does not exist."""
        return self[nth] if 1 <= nth <= self.entries else None

    def __getitem__(self, nth: int) -> Position:  # the n-th entry, which exists
        at = bisect_left(self._before, nth) - 1
        return Position(self._ids[at], nth - self._before[at] - 1)

    def first(self, count: int) -> Ledgers:
        """Return the first `count` entries of the topic."""
        sizes = zip(self._sizes, self._before, strict=False)
        return Ledgers((ledger_id, min(entries, count - before)) for (ledger_id, entries), before in sizes)

    def next(self, position: Position) -> Position | None:
        """Return the first entry after a position, None at the end of the topic."""
        return self.number(self.up_to(position) + 1)

    def unacknowledged(self, mark_delete: Position, deleted: Iterable[PositionRange]) -> Iterator[tuple[int, int]]:
        """Yield first and last number of each run of entries after a mark-delete position, outside of the ranges."""
        at = self.up_to(mark_delete)
        for one in deleted:
            before, last = self.up_to(one.after), self.up_to(one.last)
            if last > max(before, at):  # otherwise it has no stored entry
                if before > at:
                    yield at + 1, before
                at = last
        if at < self.entries:
            yield at + 1, self.entries


class HasLedgers(Protocol):
    """An object with a topic's ledgers, such as `InternalStats`."""

    def ledger_sizes(self) -> list[tuple[int, int]]:
        """Return `(ledger_id, entries)` of each ledger."""
        ...


def position_after(ledgers: HasLedgers | Iterable[tuple[int, int]], start: Position, count: int) -> Position:
    """Return the position `count` entries after `start`: the target of the broker's skip for a cursor without holes.

    Mirrors `ManagedLedgerImpl.getPositionAfterN(start, count, startExcluded)`: it counts the remaining entries of the
    ledger of `start`, then those of the next non-empty ledgers, and returns the last entry past the end.

    Args:
        ledgers: internal statistics, or `(ledger_id, entries)` of every ledger, the open one with its true count.
        start: a mark-delete position; its ledger may have been trimmed.
        count: number of entries, 0 or more.

    Raises:
        InvalidUse: the count is not an int, or is negative.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InvalidUse(f"count must be an int >= 0, got {count!r}")
    # Internal statistics have the open ledger's count in a separate field.
    sizes = ledgers if isinstance(ledgers, Iterable) else ledgers.ledger_sizes()
    every = Ledgers(sizes)
    if count == 0 or every.last is None or start >= every.last:
        return start
    return every.number(every.up_to(start) + count) or every.last
