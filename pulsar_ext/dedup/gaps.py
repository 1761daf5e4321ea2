"""What a broker may have refused of a name and not been sent again, when the name is opened again.

A broker that cannot store for a moment may refuse messages of a name and then store a later one (see `duplicates.py`).
A process that ends before it has sent the refused ones again leaves them missing below the broker's number. The later
one is the first of its name in a new ledger, because a failed write closes the ledger. So a gap in the ids between a
name's last entry in one ledger and its first in the next may be such messages, or ids that were never used. A batch of
this library says which id was pushed before it, which tells the two apart. The name then counts as persisted up to the
gap, and what is behind it is read from the topic: what is sent again is a duplicate if it is there, and is stored if it
is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext.errors import AdminNotFound, InvalidUse
from pulsar_ext.ids.position import Position

from .resumption import OwnEntry
from .stored import derives_from, is_resent_as, positions_from_end, previous_id, same_name, stored_entry, tail

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin

__all__ = ["Gap", "first_unfilled", "held_behind_gap"]

_MOST_LEDGERS = 16
_MOST_ENTRIES = 5_000
"""How many entries may be behind a gap that is looked for."""
_MOST_FOREIGN = 100
"""How many entries of other producers may be between a ledger's begin, or end, and the name's entry."""
_PROCESSES = 4
"""How many processes of the name may have ended one after the other before the refused messages were sent again."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Where a name's ids leave some out: behind its last entry before a ledger, up to before its first there."""

    ledger_id: int
    before: int
    behind: int


def first_unfilled(gaps: Iterable[Gap], held: Collection[int]) -> Gap | None:
    """Give the first of the gaps, the oldest first, some of whose ids are not held (pure)."""
    ids = sorted(held)
    for gap in gaps:
        if sum(gap.before < one < gap.behind for one in ids) < gap.behind - gap.before - 1:
            return gap
    return None


def held_behind_gap(
    admin: PulsarAdmin, topic: str, stats: InternalStats, name: str, most_pending: int
) -> tuple[int, frozenset[int]] | None:
    """Find the oldest gap in a name's ids that may be messages which the broker refused.

    Args:
        admin: the admin API; a `PatientAdmin`, for what it does not find counts as trimmed.
        topic: the topic or partition.
        stats: of the topic.
        name: the producer's.
        most_pending: how many messages it may have had without an answer, 0 for any number.

    Returns:
        The id in front of the gap, up to which everything is persisted, and the ids above it that are persisted as
        well. None without such a gap, or where encrypted batches keep it from being found.

    Raises:
        AdminError: the admin API refused or did not answer.
    """
    try:
        gaps = sorted(_gaps(admin, topic, stats, name), key=lambda gap: gap.ledger_id)
        if not gaps:
            return None
        held: set[int] = set()
        own = 0
        for entry in tail(admin, topic, stats):
            if entry.position.ledger_id < gaps[0].ledger_id:
                break
            if not _is_own(entry.producer_name, name):
                continue
            if same_name(entry.producer_name, name):
                own += entry.num_messages_in_batch or 1
                if most_pending and own > _PROCESSES * most_pending:  # no older gap was left by a process that ended
                    gaps = [gap for gap in gaps if gap.ledger_id > entry.position.ledger_id]
                    break
            if not OwnEntry.of(entry).is_partial:
                held.update(_ids(admin, topic, entry))
    except InvalidUse:
        return None
    gap = first_unfilled(gaps, held)
    return None if gap is None else (gap.before, frozenset(one for one in held if one > gap.before))


def _gaps(admin: PulsarAdmin, topic: str, stats: InternalStats, name: str) -> Iterator[Gap]:
    """Give the gaps between two ledgers, the newest first."""
    sizes = [(ledger_id, entries) for ledger_id, entries in stats.ledger_sizes() if entries]
    behind = 0
    for index in reversed(range(max(1, len(sizes) - _MOST_LEDGERS), len(sizes))):
        ledger_id, entries = sizes[index]
        behind += entries
        if behind > _MOST_ENTRIES:
            return
        in_ledger = (Position(ledger_id, entry_id) for entry_id in range(entries))
        first = next((one for one in _own(admin, topic, name, in_ledger) if same_name(one.producer_name, name)), None)
        before = _highest_before(admin, topic, name, sizes[:index])
        if first is None or before is None:
            continue
        previous = previous_id(first)
        if previous is None:  # it may have been any
            previous = min(_ids(admin, topic, first)) - 1
        if previous > before:
            yield Gap(ledger_id, before, previous + 1)


def _highest_before(admin: PulsarAdmin, topic: str, name: str, sizes: Sequence[tuple[int, int]]) -> int | None:
    """Give the highest id of a name's last entry in these ledgers, and of derived names' entries behind that."""
    highest = -1
    for entry in _own(admin, topic, name, positions_from_end(sizes)):
        own = OwnEntry.of(entry)
        if not own.is_partial:
            ids = _ids(admin, topic, entry) if previous_id(entry) is None else (own.carried,)
            highest = max(highest, *ids)
            if same_name(entry.producer_name, name):
                return highest
    return None


def _own(admin: PulsarAdmin, topic: str, name: str, positions: Iterable[Position]) -> Iterator[EntryMetadata]:
    """Give the entries of a name, and of names derived from it, until too many are of others, or one was trimmed."""
    foreign = 0
    for position in positions:
        try:
            entry = admin.entry(topic, position.ledger_id, position.entry_id)
        except AdminNotFound:
            return
        if _is_own(entry.producer_name, name):
            yield entry
        elif (foreign := foreign + 1) > _MOST_FOREIGN:
            return


def _is_own(shown: str, name: str) -> bool:
    return same_name(shown, name) or is_resent_as(shown, name) or derives_from(shown, name)


def _ids(admin: PulsarAdmin, topic: str, entry: EntryMetadata) -> tuple[int, ...]:
    """Give the sequence ids of an entry's messages."""
    if entry.num_messages_in_batch is not None:
        entry = admin.entry(topic, entry.position.ledger_id, entry.position.entry_id, payload=True)
    return stored_entry(entry).ids
