"""Groups of acknowledgements as they are sent: entries, parts of batches, one position (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["NOTHING", "NO_ENTRY", "AckGroup", "Entry", "Singles", "before", "whole_without"]

Entry = tuple[int, int]
"""Ledger id and entry id."""
NO_ENTRY: Final[Entry] = (-1, -1)
"""Below every entry."""


@dataclass(frozen=True, slots=True)
class AckGroup:
    """Acknowledgements that are sent together, the cumulative one first."""

    cumulative: Entry | None = None
    whole: tuple[Entry, ...] = ()
    indexes: tuple[tuple[Entry, int, int], ...] = ()
    """`(entry, batch size, bit set of the acknowledged messages)` of batches."""

    def __bool__(self) -> bool:
        return self.cumulative is not None or bool(self.whole) or bool(self.indexes)

    def __len__(self) -> int:
        return (self.cumulative is not None) + len(self.whole) + len(self.indexes)

    def merged(self, later: AckGroup) -> AckGroup:
        """Return both groups as one, without what the cumulative position covers."""
        cumulative = max((one for one in (self.cumulative, later.cumulative) if one is not None), default=None)
        whole = dict.fromkeys((*self.whole, *later.whole))
        indexes: dict[Entry, tuple[int, int]] = {}
        for entry, size, bits in (*self.indexes, *later.indexes):
            indexes[entry] = (size, indexes.get(entry, (size, 0))[1] | bits)
        return AckGroup(
            cumulative,
            tuple(entry for entry in whole if cumulative is None or entry > cumulative),
            tuple(
                (entry, size, bits)
                for entry, (size, bits) in indexes.items()
                if entry not in whole and (cumulative is None or entry > cumulative)
            ),
        )

    def without(self, withdrawn: Iterable[tuple[Entry, int, int]]) -> AckGroup:
        """Return the group without messages that are to be redelivered; a position that covers one is moved before it.

        Each is an entry, a batch index (-1 without a batch) and a batch size (0 if unknown).
        """
        cumulative, whole = self.cumulative, dict.fromkeys(self.whole)
        parts = {entry: (size, bits) for entry, size, bits in self.indexes}
        for entry, index, size in withdrawn:
            if cumulative is not None and entry <= cumulative:
                cumulative = before(entry)
            if entry in whole:
                del whole[entry]
                parts[entry] = size, whole_without(index, size)
            elif entry in parts:
                known, bits = parts[entry]
                parts[entry] = known, bits & ~(1 << index) if index >= 0 else 0
        indexes = tuple((entry, size, bits) for entry, (size, bits) in parts.items() if bits)
        return AckGroup(cumulative, tuple(whole), indexes)


def before(entry: Entry) -> Entry:
    """Return the position before an entry."""
    return entry[0], entry[1] - 1


def whole_without(index: int, size: int) -> int:
    """Return the bit set of all messages of a batch but one; 0 without a batch."""
    return ((1 << size) - 1) & ~(1 << index) if index >= 0 else 0


NOTHING = AckGroup()


@dataclass(frozen=True, slots=True)
class Singles:
    """Entries of single messages, of one ledger of one partition (-1 without one), in order of arrival."""

    partition: int
    ledger_id: int
    entry_ids: Sequence[int]

    def __len__(self) -> int:
        return len(self.entry_ids)

    @property
    def entries(self) -> list[Entry]:
        """The entries as ledger and entry ids."""
        ledger_id = self.ledger_id
        return [(ledger_id, entry_id) for entry_id in self.entry_ids]

    @property
    def highest(self) -> Entry:
        """The highest entry."""
        found = self.entry_ids
        return self.ledger_id, found[-1] if isinstance(found, range) else max(found)
