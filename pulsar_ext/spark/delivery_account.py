"""What a task has been delivered of a segment, and so what is missing (pure).

Deliveries come in order of their (last) entries. An entry that did not come by itself is a chunk of a message, a
marker, trimmed or lost by a client on a reconnect: `missing` lists them, for headers to tell which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pulsar_ext.ids.position import Position

from .offsets import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .splits import Segment

__all__ = ["Deliveries", "Ids", "Sizes"]


class Ids(Protocol):
    """The (ledger, entry, batch index) of each delivery of a block."""

    def __len__(self) -> int:
        """Give how many there are."""
        ...

    def __getitem__(self, index: int, /) -> tuple[int, int, int]:
        """Give one."""
        ...


class Sizes(Protocol):
    """How many messages the batch of each delivery of a block has."""

    def __getitem__(self, index: int, /) -> int:
        """Give one."""
        ...


class Deliveries:
    """Keeps account of one segment.

    Args:
        segment: what is to be read.

    `last` is the last position that was delivered, `reached` whether everything up to the segment's end has passed by.
    """

    def __init__(self, segment: Segment) -> None:
        self._after, self._until = segment.after, segment.until
        self._ledgers = segment.ledgers
        self._end = segment.until.last_entry
        begin = segment.after.position
        self.last = begin
        self._last_key: tuple[int, int, int] = (begin.ledger_id, begin.entry_id, 1 << 31)
        self._gaps: list[tuple[Position, Position]] = []
        self._known: set[Position] = set()
        self.reached = False

    def feed(
        self,
        ids: Ids,
        *,
        firsts: Mapping[int, Position],
        sizes: Sizes,
        columns: tuple[Any, Any, Any],
    ) -> list[int] | None:
        """Take note of deliveries, and tell which of them are this segment's.

        Args:
            ids: the (ledger, entry, batch index) of each delivery, lazily: asked for single ones.
            firsts: where the first chunk is, by index, of chunked messages.
            sizes: how many messages the batch has, by index; asked for at the segment's last entry only.
            columns: the same numbers as numpy arrays.

        Returns:
            The indexes of what is to be kept; None for all of them.
        """
        import numpy as np  # noqa: PLC0415  # only where Spark is

        ledger, entry, batch = columns
        count = len(ledger)
        fresh = self._is_ascending(np, ledger, entry, batch)
        if not fresh:
            return self._feed_slowly(ids, firsts, sizes)
        # Where a new entry begins.
        starts = np.flatnonzero((np.diff(ledger) != 0) | (np.diff(entry) != 0)) + 1
        starts = np.concatenate(([0], starts))
        unusual = np.concatenate(
            ([True], (ledger[starts[1:]] != ledger[starts[:-1]]) | (entry[starts[1:]] != entry[starts[:-1]] + 1))
        )
        for at in starts[unusual].tolist():
            before = Position(int(ledger[at - 1]), int(entry[at - 1])) if at else self.last
            self._step(before, Position(int(ledger[at]), int(entry[at])))
        for first in firsts.values():
            self._known.add(first)
        self.last = Position(int(ledger[-1]), int(entry[-1]))
        self._last_key = (int(ledger[-1]), int(entry[-1]), int(batch[-1]))
        self._see_end(count - 1, ids, sizes)
        return self._kept(count, ids, firsts)

    def missing(self) -> Iterator[Position]:
        """Give the entries of the segment that have passed by without being delivered, and are not settled yet."""
        for first, last in self._gaps:
            yield from self._open(first, last)

    def rest(self) -> Iterator[Position]:
        """Give the entries of the segment behind the last delivery that are not settled yet."""
        first = None if self.reached else self._ledgers.next(self.last)
        if first is not None:
            yield from self._open(first, self._end)

    def settled(self) -> None:
        """Count everything that passed by as accounted for."""
        self._gaps.clear()

    def keep(self) -> tuple[Any, ...]:
        """Give what `restore` needs to forget the deliveries that come now; call it with nothing missing."""
        return self.last, self._last_key, self.reached

    def restore(self, kept: tuple[Any, ...]) -> None:
        """Forget the deliveries since `keep`."""
        self.last, self._last_key, self.reached = kept
        self._gaps.clear()

    def _open(self, first: Position, last: Position) -> Iterator[Position]:
        at: Position | None = first
        while at is not None and at <= last:
            if at not in self._known:
                yield at
            at = self._ledgers.next(at)

    def owns(self, position: Position) -> bool:
        """Whether a message that begins at this entry belongs to the segment."""
        return self._after.last_entry < position <= self._end

    def settle(self, position: Position) -> None:
        """Count an entry as accounted for."""
        self._known.add(position)

    def _is_ascending(self, np: Any, ledger: Any, entry: Any, batch: Any) -> bool:
        """Whether all deliveries come behind one another and behind what came before."""
        if not self._last_key < (int(ledger[0]), int(entry[0]), int(batch[0])):
            return False
        if len(ledger) == 1:
            return True
        ledgers, entries, indexes = np.diff(ledger), np.diff(entry), np.diff(batch)
        ok = (ledgers > 0) | ((ledgers == 0) & ((entries > 0) | ((entries == 0) & (indexes > 0))))
        return bool(ok.all())

    def _feed_slowly(self, ids: Ids, firsts: Mapping[int, Position], sizes: Sizes) -> list[int]:
        """Take deliveries one by one: after a reconnect some come again."""
        kept = []
        for index in range(len(ids)):
            key = ids[index]
            if key <= self._last_key:
                continue
            here = Position(key[0], key[1])
            if here != self.last:
                self._step(self.last, here)
            if index in firsts:
                self._known.add(firsts[index])
            self.last, self._last_key = here, key
            self._see_end(index, ids, sizes)
            if self.is_kept(key, firsts.get(index)):
                kept.append(index)
        return kept

    def _step(self, before: Position, here: Position) -> None:
        """Note what lies between two deliveries."""
        expected = self._ledgers.next(before)
        if expected is None or expected >= here or expected > self._end:
            return
        last = self._ledgers.number(self._ledgers.up_to(Position(here.ledger_id, here.entry_id - 1)))
        if last is not None:
            self._gaps.append((expected, min(last, self._end)))

    def _see_end(self, index: int, ids: Ids, sizes: Sizes) -> None:
        ledger, entry, batch = ids[index]
        here = Position(ledger, entry)
        if here < self._end:
            return
        if here > self._end or batch < 0:
            self.reached = True
        elif self._until.batch >= 0:
            self.reached = batch >= self._until.batch or batch + 1 >= sizes[index]
        else:
            self.reached = batch + 1 >= sizes[index]

    def _kept(self, count: int, ids: Ids, firsts: Mapping[int, Position]) -> list[int] | None:
        if self.is_kept(ids[0], firsts.get(0)) and self.is_kept(ids[count - 1], firsts.get(count - 1)) and not firsts:
            return None
        return [index for index in range(count) if self.is_kept(ids[index], firsts.get(index))]

    def is_kept(self, key: tuple[int, int, int], first: Position | None) -> bool:
        """Whether a message belongs to the segment, by its id and, of a chunked one, where its first chunk is."""
        owner = Offset(*key) if first is None else Offset.at(first)
        if first is None and key[2] < 0:
            return self._after < owner and owner.last_entry <= self._end
        return self._after < owner <= self._until
