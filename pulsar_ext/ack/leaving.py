"""What leaves for the broker: entries, parts of batches, one position (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["NOTHING", "Entry", "Leaving", "Singles", "before", "whole_without"]

Entry = tuple[int, int]
"""Ledger and entry."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """What is sent to the broker, cumulative first.

    Args:
        cumulative: everything up to this entry.
        whole: single entries.
        indexes: for a batch `(entry, number of its messages, bit set of the acknowledged ones)`.
    """

    cumulative: Entry | None = None
    whole: tuple[Entry, ...] = ()
    indexes: tuple[tuple[Entry, int, int], ...] = ()

    def __bool__(self) -> bool:
        return self.cumulative is not None or bool(self.whole) or bool(self.indexes)

    def __len__(self) -> int:
        return (self.cumulative is not None) + len(self.whole) + len(self.indexes)

    def merged(self, later: Leaving) -> Leaving:
        """Give both as one: what a cumulative position covers is not sent again."""
        cumulative = max((one for one in (self.cumulative, later.cumulative) if one is not None), default=None)
        whole = dict.fromkeys((*self.whole, *later.whole))
        indexes: dict[Entry, tuple[int, int]] = {}
        for entry, size, bits in (*self.indexes, *later.indexes):
            indexes[entry] = (size, indexes.get(entry, (size, 0))[1] | bits)
        return Leaving(
            cumulative,
            tuple(entry for entry in whole if cumulative is None or entry > cumulative),
            tuple(
                (entry, size, bits)
                for entry, (size, bits) in indexes.items()
                if entry not in whole and (cumulative is None or entry > cumulative)
            ),
        )

    def without(self, taken_back: Iterable[tuple[Entry, int, int]]) -> Leaving:
        """Give it without some messages, which are to be delivered again.

        Args:
            taken_back: of each the entry, its place in its batch, -1 if it is in none, and the batch's size, 0 if that
                is not known. A position that covers one of them ends before it.
        """
        cumulative, whole = self.cumulative, dict.fromkeys(self.whole)
        parts = {entry: (size, bits) for entry, size, bits in self.indexes}
        for entry, index, size in taken_back:
            if cumulative is not None and entry <= cumulative:
                cumulative = before(entry)
            if entry in whole:
                del whole[entry]
                parts[entry] = size, whole_without(index, size)
            elif entry in parts:
                known, bits = parts[entry]
                parts[entry] = known, bits & ~(1 << index) if index >= 0 else 0
        indexes = tuple((entry, size, bits) for entry, (size, bits) in parts.items() if bits)
        return Leaving(cumulative, tuple(whole), indexes)


def before(entry: Entry) -> Entry:
    """Give the position of everything before an entry."""
    return entry[0], entry[1] - 1


def whole_without(index: int, size: int) -> int:
    """Give the bit set of all messages of a batch of `size` but one; empty for what is not in a batch."""
    return ((1 << size) - 1) & ~(1 << index) if index >= 0 else 0


NOTHING = Leaving()


@dataclass(frozen=True, slots=True)
class Singles:
    """Entries of one ledger of one partition that are a message each.

    Args:
        partition: its index, -1 if none.
        ledger_id: the ledger.
        entry_ids: the entries, as they came; a range if they are neighbours in their order.
    """

    partition: int
    ledger_id: int
    entry_ids: Sequence[int]

    def __len__(self) -> int:
        return len(self.entry_ids)

    @property
    def entries(self) -> list[Entry]:
        """All of them."""
        ledger_id = self.ledger_id
        return [(ledger_id, entry_id) for entry_id in self.entry_ids]
