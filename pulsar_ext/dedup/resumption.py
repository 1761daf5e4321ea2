"""Where a producer's name goes on: the broker's number for it, judged by what the topic holds (pure).

The broker tells a new producer the highest id that was *pushed* under its name. While writes are pending, or have
failed and are not taken back yet, that is more than what is persisted. What the broker would find after a crash is
certain: the number of its last snapshot, and the name's entries behind that. Mirrors `MessageDeduplication`
(`getLastPublishedSequenceId`, `recoverSequenceIdsMap`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pulsar_ext.admin import EntryMetadata

__all__ = ["OwnEntry", "Resumption", "is_persisted", "not_held", "resume_chunked"]


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """One entry of a name: the id that it goes by, and whether it is a chunk of a message but not its last."""

    carried: int
    is_partial: bool = False

    @classmethod
    def of(cls, entry: EntryMetadata) -> Self:
        """Make it of an entry's headers."""
        carried = max(entry.sequence_id, entry.highest_sequence_id or 0)
        return cls(carried, is_partial=entry.is_chunk and entry.chunk_id != (entry.num_chunks or 0) - 1)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a name goes on: behind `published`; the message `half_written` is to be sent under another name."""

    published: int
    half_written: int | None = None


def is_persisted(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> bool:
    """Whether the broker's number is that of the last entry persisted under the name.

    Args:
        published: the broker's number.
        entries: the name's behind the snapshot, the newest first; read only as far as needed.
        snapshot: the snapshot's number for the name, None if it has none.
    """
    for entry in entries:
        if entry.carried == published:
            return True
        if not entry.is_partial:
            return False
    return snapshot == published


def not_held(asked: Collection[int], carried: Iterable[int]) -> frozenset[int]:
    """Give those of a name's ids that the topic certainly does not hold, though the broker has a higher one.

    The ids of a name's entries go up. So one that is not among them is certainly missing if a lower one is; where the
    entries end before a lower one, because older ones were trimmed, nothing is certain.

    Args:
        asked: the ids that entries would carry.
        carried: the ids that the name's entries carry, the newest first; read only as far as needed.
    """
    lowest, found = min(asked, default=-1), set()
    for one in carried:
        found.add(one)
        if one < lowest:
            break
    seen = min(found, default=None)
    return frozenset() if seen is None else frozenset(one for one in asked if one not in found and one > seen)


def resume_chunked(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> Resumption | None:
    """Decide where a name goes on that sends messages in chunks; None if that is not certain now.

    The broker counts a message by its last chunk, and after it has loaded the topic again by any chunk.

    Args:
        published: the broker's number.
        entries: the name's and those of names derived from it, the newest first; read only as far as needed.
        snapshot: the snapshot's number for the name, None if it has none.
    """
    half: int | None = None
    for entry in entries:
        if entry.is_partial:
            if half is None and entry.carried >= published:
                half = entry.carried
        elif entry.carried > published:
            return Resumption(entry.carried, _above(half, entry.carried))  # sent whole under a derived name
        elif entry.carried == published:
            return Resumption(published, _above(half, published))
        else:
            # What the broker's number stands for is half written, or it is pending or lost.
            return Resumption(published - 1, published) if half == published else None
    if half == published:
        return Resumption(published - 1, published)
    return Resumption(published, half) if snapshot == published else None


def _above(half: int | None, published: int) -> int | None:
    return half if half is not None and half > published else None
