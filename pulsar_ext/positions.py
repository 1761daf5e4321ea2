"""Positions in a topic: the order of entries and the texts that the broker prints them in (pure).

Mirrors `org.apache.bookkeeper.mledger.Position` and the ranges of `LongPairRangeSet`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulsar_ext.errors import InvalidMessageId

__all__ = ["Position", "PositionRange"]

_POSITION = re.compile(r"(-?[0-9]+):(-?[0-9]+)", re.ASCII)
_RANGE = re.compile(r"([(\[])(-?[0-9]+:-?[0-9]+)(?:\.\.|‥)(-?[0-9]+:-?[0-9]+)([)\]])", re.ASCII)
_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True, order=True)
class Position:
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
        if not match or (ledger_id := int(match[1])) not in _LONG or (entry_id := int(match[2])) not in _LONG:
            raise InvalidMessageId(f"Not a position: {text!r}; expected 'ledger:entry'")
        return cls(ledger_id, entry_id)

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
            InvalidMessageId: the text is no list of ranges that are open below and closed above.
        """
        inner = text[1:-1]
        matches = list(_RANGE.finditer(inner))
        if text != f"[{inner}]" or ",".join(match[0] for match in matches) != inner.replace(", ", ","):
            raise InvalidMessageId(f"Not a list of position ranges: {text!r}")
        if any((match[1], match[4]) != ("(", "]") for match in matches):
            raise InvalidMessageId(f"A position range is not open below and closed above: {text!r}")
        return tuple(cls(Position.parse(match[2]), Position.parse(match[3])) for match in matches)
