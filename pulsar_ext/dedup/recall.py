"""Finding out what a topic holds of a producer name that the broker has forgotten.

Writers of a *family* have names that begin alike, and write one batch after the other: the ids of a batch are higher
than all those of the batches before, whichever of the names has them, and a batch begins when the one before it is
persisted. So whoever looks from a topic's end backwards knows all that a name has of the current batch as soon as an
entry of the name comes, or one that any name of the family has of an earlier batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pulsar_ext.errors import AdminNotFound

from .resumption import OwnEntry, Resumption
from .stored import derives_from, is_shown_exactly, is_trimmed, positions_from_end, same_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_ext.admin import InternalStats, PulsarAdmin
    from pulsar_ext.ids.position import Position

__all__ = ["MOST_ENTRIES", "FamilyEntry", "Recall", "recalled"]

MOST_ENTRIES = 10_000
"""How many entries are looked at, about 20 s of requests."""


@dataclass(frozen=True, slots=True)
class FamilyEntry:
    """An entry of any producer: its name as the broker shows it, and what `OwnEntry` has."""

    name: str
    own: OwnEntry


def recalled(name: str, family: str, first: int, entries: Iterable[FamilyEntry]) -> tuple[Resumption, bool]:
    """Decide where a forgotten name goes on (pure).

    Args:
        name: the producer's.
        family: what the names of the family begin with; empty if only the name itself is known.
        first: the lowest id of the batch that is about to be written, 0 or more.
        entries: of the topic, the newest first, read only as far as needed.

    Returns:
        Where it goes on, `published` being -1 where there is nothing of the name that matters; and whether that is
        certain, or there may be something behind these entries.
    """
    half: int | None = None
    for entry in entries:
        own = entry.own
        if same_name(entry.name, name) or derives_from(entry.name, name):
            if not own.is_partial:
                return Resumption(own.carried, half if half is not None and half > own.carried else None), True
            half = own.carried if half is None else half
        elif family and entry.name.startswith(family) and own.carried < first:
            return Resumption(-1, half), True
    return Resumption(-1, half), False


class Recall:
    """What an effectively-once producer needs so that the broker may forget its name.

    It keeps the headers that it has asked for, so that the producers of many names on one topic share them.

    Args:
        family: what the names of the family begin with; empty if there is no family.
        first: the lowest id of the batch that is about to be written.
        is_new: whether the application vouches for names of which nothing is found among the last 10,000 entries.
    """

    def __init__(self, family: str, first: int, *, is_new: bool = False) -> None:
        self._family = family if is_shown_exactly(family) else ""
        self._first = first
        self.is_new = is_new
        self._known: dict[str, dict[Position, FamilyEntry]] = {}

    def find(self, admin: PulsarAdmin, topic: str, name: str) -> Resumption | None:
        """Find out where a name goes on, on a topic that has no write pending.

        Returns:
            As `recalled`, where that is certain or all that the topic has was looked at. None if it is not known after
            10,000 entries, or if other names look like this one, because they have characters beyond Latin-1.

        Raises:
            AdminError: the admin API refused or did not answer.
        """
        if not is_shown_exactly(name):
            return None
        stats = admin.internal_stats(topic)
        found, certain = recalled(name, self._family, self._first, self._entries(admin, topic, stats))
        return found if certain or self.is_new or stats.number_of_entries <= MOST_ENTRIES else None

    def _entries(self, admin: PulsarAdmin, topic: str, stats: InternalStats) -> Iterator[FamilyEntry]:
        """Give the last entries of a topic, the newest first; what was asked for before is not asked for again."""
        known = self._known.setdefault(topic, {})
        for position in islice(positions_from_end(stats.ledger_sizes()), MOST_ENTRIES):
            if position not in known:
                try:
                    entry = admin.entry(topic, position.ledger_id, position.entry_id)
                except AdminNotFound:
                    if not is_trimmed(admin.internal_stats(topic), position):
                        raise
                    return  # as all before it
                known[position] = FamilyEntry(entry.producer_name, OwnEntry.of(entry))
            yield known[position]
