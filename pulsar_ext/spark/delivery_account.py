"""Record of the messages of a segment that a task has received, and of the missing entries (pure, on numpy).

Messages arrive in the order of their last entries. An entry without a message is a chunk or a marker, was trimmed, or
was lost by the client on a reconnect. `missing` lists these entries; their headers distinguish the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pulsar_ext.ids.position import Position

from .offsets import Offset, Segment

Positions = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Ledgers, entries and batch indexes of messages."""

_Key = tuple[int, int, int]
"""Ledger, entry and batch index of a message."""


class DeliveryAccount:
    """Account of one segment; `last` is the last position received, `reached` true if it is at the end or after it."""

    def __init__(self, segment: Segment) -> None:
        self._after, self._until = segment.after, segment.until
        self._ledgers = segment.ledgers
        self._end = segment.until.last_entry
        begin = segment.after.position
        self.last = begin
        self._last_key: _Key = (begin.ledger_id, begin.entry_id, 1 << 31)
        self._kept_key = self._last_key
        self._gaps: list[tuple[Position, Position]] = []
        self.accounted: set[Position] = set()
        """Entries whose content is known."""
        self.reached = False

    def feed(
        self, columns: Positions, *, first_chunks: Mapping[int, Position], batch_size: Callable[[int], int]
    ) -> list[int] | None:
        """Record messages; return the indexes of those that belong to this segment, or None for all of them."""
        ledger, entry, _ = columns
        if not self._is_ascending(columns):
            return self._feed_one_by_one(columns, first_chunks, batch_size)
        # Indexes of the first message of each entry.
        starts = np.flatnonzero((np.diff(ledger) != 0) | (np.diff(entry) != 0)) + 1
        starts = np.concatenate(([0], starts))
        unusual = np.concatenate(
            ([True], (ledger[starts[1:]] != ledger[starts[:-1]]) | (entry[starts[1:]] != entry[starts[:-1]] + 1))
        )
        for at in starts[unusual].tolist():
            before = Position(int(ledger[at - 1]), int(entry[at - 1])) if at else self.last
            self._note_gap(before, Position(int(ledger[at]), int(entry[at])))
        self.accounted.update(first_chunks.values())
        count = len(ledger)
        self._last_key = key = _key(columns, count - 1)
        self.last = Position(key[0], key[1])
        self._note_end(key, count - 1, batch_size)
        if not first_chunks and self._is_kept(_key(columns, 0), None) and self._is_kept(key, None):
            self._kept_key = key
            return None
        kept = [index for index in range(count) if self._is_kept(_key(columns, index), first_chunks.get(index))]
        if kept:
            self._kept_key = _key(columns, kept[-1])
        return kept

    @property
    def last_missing(self) -> Position | None:
        """Last entry of the segment that was skipped and is not accounted for; None if there is no such entry."""
        return max((last for _, last in self._gaps), default=None)

    def missing(self, after: Position | None = None) -> Iterator[Position]:
        """Yield the skipped entries of the segment, after `after`, that are not accounted for."""
        for first, last in self._gaps:
            yield from self._unaccounted(first, last, after)

    def rest(self, after: Position | None = None) -> Iterator[Position]:
        """Yield the entries after the last received message, and after `after`, that are not accounted for."""
        first = None if self.reached else self._ledgers.next(self.last)
        if first is not None:
            yield from self._unaccounted(first, self._end, after)

    def account_for_missing(self) -> None:
        """Mark every skipped entry as accounted for."""
        self._gaps.clear()

    def owns(self, position: Position) -> bool:
        """Return true if a message that begins at this entry belongs to the segment."""
        return self._after < Offset.at(position) <= self._until

    def _unaccounted(self, first: Position, last: Position, after: Position | None) -> Iterator[Position]:
        at: Position | None = first if after is None or after < first else self._ledgers.next(after)
        while at is not None and at <= last:
            if at not in self.accounted:
                yield at
            at = self._ledgers.next(at)

    def _is_ascending(self, columns: Positions) -> bool:
        if not self._last_key < _key(columns, 0):
            return False
        ledgers, entries, indexes = map(np.diff, columns)
        ok = (ledgers > 0) | ((ledgers == 0) & ((entries > 0) | ((entries == 0) & (indexes > 0))))
        return bool(ok.all())

    def _feed_one_by_one(
        self, columns: Positions, first_chunks: Mapping[int, Position], batch_size: Callable[[int], int]
    ) -> list[int]:
        """Record messages one by one: after a reconnect some are redelivered, with perhaps a new chunked one."""
        kept = []
        for index in range(len(columns[0])):
            key, first_chunk = _key(columns, index), first_chunks.get(index)
            if key > self._last_key:
                here = Position(key[0], key[1])
                if here != self.last:
                    self._note_gap(self.last, here)
                self.last, self._last_key = here, key
                self._note_end(key, index, batch_size)
            if first_chunk is not None:
                self.accounted.add(first_chunk)
            # After the segment's end, a chunked message may arrive after others from there, which are not kept.
            if key > self._kept_key and self._is_kept(key, first_chunk):
                kept.append(index)
                self._kept_key = key
        return kept

    def _note_gap(self, before: Position, here: Position) -> None:
        expected = self._ledgers.next(before)
        if expected is None or expected >= here or expected > self._end:
            return
        last = self._ledgers.number(self._ledgers.up_to(Position(here.ledger_id, here.entry_id - 1)))
        if last is not None:
            self._gaps.append((expected, min(last, self._end)))

    def _note_end(self, key: _Key, index: int, batch_size: Callable[[int], int]) -> None:
        ledger, entry, batch = key
        here = Position(ledger, entry)
        if here < self._end:
            return
        is_past = here > self._end or batch < 0 or 0 <= self._until.batch <= batch
        self.reached = is_past or batch + 1 >= batch_size(index)

    def _is_kept(self, key: _Key, first_chunk: Position | None) -> bool:
        owner = Offset(*key) if first_chunk is None else Offset.at(first_chunk)
        if first_chunk is None and key[2] < 0:
            return self._after < owner and owner.last_entry <= self._end
        return self._after < owner <= self._until


def _key(columns: Positions, index: int) -> _Key:
    ledger, entry, batch = columns
    return int(ledger[index]), int(entry[index]), int(batch[index])
