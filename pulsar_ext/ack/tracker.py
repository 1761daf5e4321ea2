"""Track what the application has acknowledged, and decide in which form it is sent to the broker (pure).

Mirrors Java's `PersistentAcknowledgmentsGroupingTracker` and its batch bit sets, without a socket and without a clock.
One `AckTracker` represents the cursor of a subscription on one topic or partition. `next_group()` returns:

- whole entries: an unbatched message, a chunk, or a batch whose messages were all acknowledged;
- some messages of a batch: at once if the broker keeps acknowledgements inside batches, otherwise when none was added
  for a while. The broker combines them with the others, which may be acknowledged already and were not delivered. A
  broker that keeps nothing inside batches ignores them;
- one position, if the application acknowledged cumulatively or, with `runs` and a known cursor, if the entries after
  the cursor were acknowledged without a hole.

The broker's cursor then shows exactly what the application has acknowledged. An entry is acknowledged only with all its
messages, and a run ends at the first unacknowledged entry.

`Unacked` stores messages with an acknowledgement timeout (pure). It is for Exclusive and Failover subscriptions, where
one late message causes everything to be redelivered, and for all types with a redelivery backoff. Mirrors Java's
`UnAckedMessageTracker` and `UnAckedMessageRedeliveryTracker`.

`RecentAcks` stores acknowledged messages that may be redelivered because the acknowledgement was lost with a connection
(pure). The consumer drops such a message and sends its acknowledgement again; see `cursor.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from .groups import NO_ENTRY, NOTHING, AckGroup, Entry, Singles, before, whole_without

_MAX_PARTIAL = 10_000
"""Maximum number of partly acknowledged batches; another consumer may have received their other messages."""
_MAX_BEYOND = 100_000
"""Maximum number of acknowledged entries after a hole; beyond it, runs begin again at the next check of the cursor."""


class AckTracker:
    """The acknowledgements of one cursor until they are sent."""

    def __init__(self, *, runs: bool = False, keeps_indexes: bool = False) -> None:
        self._runs, self._keeps_indexes = runs, keeps_indexes
        self._whole: dict[Entry, None] = {}
        self._row: Singles | None = None
        self._sending = NOTHING
        self._partial: dict[Entry, tuple[int, int]] = {}
        self._changed: set[Entry] = set()
        self._idle: set[Entry] = set()
        self._released: set[Entry] = set()
        self._beyond: set[Entry] = set()
        self._cumulative: Entry | None = None
        self._base: Entry | None = None
        self._after_base: Entry | None = None
        self.era = 0
        """Incremented when the cursor position is invalidated; a check that began before is ignored."""
        self.highest = NO_ENTRY
        """The highest entry that was acknowledged, by itself or by a position, since the cursor was moved."""

    @property
    def pending(self) -> int:
        """Number of entries and partly acknowledged batches that were not sent yet."""
        changed = len(self._changed if self._keeps_indexes else self._released)
        row = len(self._row) if self._row is not None else 0
        return row + len(self._whole) + changed + (self._cumulative is not None) + len(self._sending)

    @property
    def needs_base(self) -> bool:
        """True if a check of the cursor could turn single entries into a run."""
        return self._runs and bool(self._beyond)

    # Single messages are mostly acknowledged in order. They are stored as one range of entries, which is expanded into
    # single entries only when another acknowledgement comes in between.

    def add_whole(self, entry: Entry) -> bool:
        """Acknowledge a whole entry."""
        self.highest = max(self.highest, entry)
        self._expand_row()
        return self._put_whole(entry)

    def _put_whole(self, entry: Entry) -> bool:
        if entry in self._whole or self._is_covered(entry):
            return False
        self._whole[entry] = None
        if self._partial:
            self._drop_partial(entry)
        return True

    def add_singles(self, singles: Singles) -> None:
        """Acknowledge the entries of single messages."""
        self.highest = max(self.highest, singles.highest)
        row, more = self._row, singles.entry_ids
        if self._runs and isinstance(more, range) and not self._whole:
            if row is None:
                self._row = singles
                return
            if row.ledger_id == singles.ledger_id and row.entry_ids[-1] + 1 == more[0]:
                self._row = replace(row, entry_ids=range(row.entry_ids[0], more[-1] + 1))
                return
        self._expand_row()
        self._add_wholes(singles.entries)

    def _add_wholes(self, entries: list[Entry]) -> None:
        if self._partial or self._cumulative is not None:
            for entry in entries:
                self._put_whole(entry)
        else:
            self._whole.update(dict.fromkeys(entries))

    def add_bits(self, entry: Entry, size: int, bits: int) -> bool:
        """Acknowledge messages of a batch of `size`, one bit each; return True if any was new."""
        self.highest = max(self.highest, entry)
        self._expand_row()
        if entry in self._whole or self._is_covered(entry):
            return False
        known = self._partial.get(entry, (size, 0))[1]
        after = known | bits
        if after == (1 << size) - 1:
            return self.add_whole(entry)
        # Sending a part resets the broker's redelivery count of the batch, so only a new part is sent.
        if after != known:
            self._changed.add(entry)  # first: an interrupted call is repeated, and finds nothing new then
        self._partial[entry] = (size, after)
        if len(self._partial) > _MAX_PARTIAL:
            self._drop_partial(next(iter(self._partial)))
        return after != known

    def resend_partial(self, entry: Entry) -> None:
        """Resend the acknowledged part of a batch that arrived with redelivery count 0.

        A broker that was killed may have lost the part. Another consumer of the rest could not complete the batch then.
        """
        if entry in self._partial:
            self._changed.add(entry)

    def acknowledge_skipped(self, entry: Entry, size: int, bits: int) -> None:
        """Acknowledge messages that a seek into an entry skips; a part of a batch is sent with the next part only."""
        if not size:
            self.add_whole(entry)
            return
        known = self._partial.get(entry, (size, 0))[1]
        if bits & ~known:
            self.add_bits(entry, size, bits)
            if not known:
                self._changed.discard(entry)

    def add_cumulative(self, entry: Entry, index: int = -1, size: int = 0) -> bool:
        """Acknowledge everything up to and including an entry or a message of a batch."""
        self.highest = max(self.highest, entry)
        self._expand_row()
        upto = (1 << (index + 1)) - 1
        if 0 <= index < size - 1:
            entry, inside = (entry[0], entry[1] - 1), entry
        else:
            inside = None
        new = self._base is None or entry > self._base
        if new:
            self._cumulative = entry
            self._move_base(entry)
        if inside is not None and (self._base is None or inside > self._base):
            new = self.add_bits(inside, size, upto) or new
        return new

    def withdraw(self, entry: Entry, index: int = -1, size: int = 0) -> None:
        """Withdraw the acknowledgement of a message that is to be redelivered."""
        self._expand_row()
        self._beyond.discard(entry)
        if self._is_covered(entry):
            self._cumulative = before(entry)
        if self._base is not None and entry <= self._base:
            self.lose_base()
        if index < 0:
            self._whole.pop(entry, None)
            self._drop_partial(entry)
            return
        if entry in self._whole and size:
            del self._whole[entry]
            self._partial[entry] = (size, (1 << size) - 1)
            self._changed.add(entry)
        if entry in self._partial:
            known, bits = self._partial[entry]
            self._partial[entry] = (known, bits & ~(1 << index))

    def is_duplicate(self, entry: Entry, index: int = -1) -> bool:
        """Return True if a received message was acknowledged already."""
        return (self._base is not None and entry <= self._base) or self.holds(entry, index)

    def holds(self, entry: Entry, index: int = -1) -> bool:
        """Return True if a message was acknowledged, and its whole entry was not sent yet."""
        if entry in self._whole or self._is_covered(entry):
            return True
        if self._row is not None and entry[0] == self._row.ledger_id and entry[1] in self._row.entry_ids:
            return True
        return index >= 0 and bool(self._partial.get(entry, (0, 0))[1] >> index & 1)

    def partial_batches(self) -> dict[Entry, tuple[int, int]]:
        """Return size and bit set of the partly acknowledged batches."""
        return dict(self._partial)

    @property
    def has_partial_batches(self) -> bool:
        """True if batches wait for `release_partial()`."""
        return not self._keeps_indexes and bool(self._changed or self._idle)

    def release_partial(self, *, everything: bool = False) -> None:
        """Release partial batches without new acknowledgements since the last call, or all of them.

        The interval between calls is the time that the other messages of a batch are waited for.
        """
        if not self._keeps_indexes:
            self._released |= self._idle - self._changed
            self._idle = set(self._changed)
            self._changed.clear()
            if everything:
                self._released |= self._idle
                self._idle.clear()

    def set_cursor(self, mark_delete: Entry, after: Entry | None, acknowledged: Iterable[Entry] = ()) -> None:
        """Store the broker's cursor, at which runs can begin, the entry after it, and entries acknowledged beyond."""
        if not self._runs:
            return
        if self._base is None or mark_delete > self._base:
            self._beyond = {entry for entry in self._beyond if entry > mark_delete}
            self._base = mark_delete
        if mark_delete == self._base:
            self._after_base = after
        beyond = {entry for entry in acknowledged if entry > mark_delete}
        self._beyond |= beyond
        self.highest = max(self.highest, mark_delete, *beyond)

    def next_group(self) -> AckGroup:
        """Return what is to be sent; it counts as pending until `group_sent()`.

        A send that is interrupted, by a Ctrl-C for example, is repeated.
        """
        if (reached := self._extend_base_by_row()) is not None:
            self._row, self._cumulative = None, reached
        self._expand_row()
        whole, cumulative = list(self._whole), self._cumulative
        if self._runs:
            whole.sort()
            reached = self._extend_run(whole)
            if reached is not None:
                cumulative = reached
                whole = [entry for entry in whole if entry > reached]
        parts = self._changed if self._keeps_indexes else self._released
        known = ((entry, *self._partial.get(entry, (0, 0))) for entry in sorted(parts))
        indexes = tuple((entry, size, bits) for entry, size, bits in known if bits)
        group = AckGroup(cumulative, tuple(whole), indexes)
        self._sending = self._sending.merged(group) if self._sending else group
        self._whole.clear()
        self._cumulative = None
        parts.clear()
        return self._sending

    def group_sent(self) -> None:
        """Drop the group that `next_group()` returned: it was sent."""
        self._sending = NOTHING

    def clear(self) -> None:
        """Drop everything: the cursor was moved."""
        self._row, self._sending = None, NOTHING
        self._whole.clear()
        self._partial.clear()
        for kept in (self._changed, self._idle, self._released):
            kept.clear()
        self._cumulative = None
        self.highest = NO_ENTRY
        self.lose_base()

    def lose_base(self) -> None:
        """Invalidate the cursor position until the next check: the cursor may have been moved back."""
        self.era += 1
        self._base = self._after_base = None
        self._beyond.clear()

    def _extend_base_by_row(self) -> Entry | None:
        """Move the base to the end of the row and return it, if the row begins there and nothing else is known."""
        if self._row is None or self._base is None or self._beyond or self._partial:
            return None
        first = (self._row.ledger_id, self._row.entry_ids[0])
        if first not in (self._after_base, (self._base[0], self._base[1] + 1)):
            return None
        self._base, self._after_base = (self._row.ledger_id, self._row.entry_ids[-1]), None
        return self._base

    def _expand_row(self) -> None:
        """Replace the row by its single entries."""
        if self._row is not None:
            self._add_wholes(self._row.entries)
            self._row = None  # last: an interrupted call is repeated

    def _extend_run(self, whole: list[Entry]) -> Entry | None:
        """Move the base along acknowledged entries; return it, or None if no entry of `whole` was passed."""
        if len(self._beyond) + len(whole) > _MAX_BEYOND:
            self._beyond.clear()
        self._beyond.update(whole)
        if self._base is None:
            return None
        if any(entry <= self._base for entry in whole[:1]):
            # Acknowledged a second time: the cursor was moved back, so its position is unknown.
            self.lose_base()
            self._beyond.update(whole)
            return None
        reached, following = self._base, self._after_base
        while True:
            if following is None or following not in self._beyond:
                following = (reached[0], reached[1] + 1)
                if following not in self._beyond:
                    break
            self._beyond.discard(following)
            reached, following = following, None
        if reached == self._base:
            return None
        self._base, self._after_base = reached, None
        return reached if any(entry <= reached for entry in whole) else None

    def _move_base(self, entry: Entry) -> None:
        """Set the base; entries and batches up to it need not be sent."""
        self._base, self._after_base = entry, None
        for done in [one for one in self._whole if one <= entry]:
            del self._whole[done]
        for done in [one for one in self._partial if one <= entry]:
            self._drop_partial(done)
        self._beyond = {one for one in self._beyond if one > entry}

    def _is_covered(self, entry: Entry) -> bool:
        """Return True if a pending position acknowledges the entry too."""
        return self._cumulative is not None and entry <= self._cumulative

    def _drop_partial(self, entry: Entry) -> None:
        self._partial.pop(entry, None)
        for kept in (self._changed, self._idle, self._released):
            kept.discard(entry)


T = TypeVar("T")


class Unacked(Generic[T]):
    """Messages of one consumer with an acknowledgement timeout. Single dictionary operations need no lock."""

    def __init__(self) -> None:
        self._received: dict[tuple[str, Entry], dict[int, tuple[float, T]]] = {}

    def receive(self, topic: str, entry: Entry, index: int, due: float, message: T) -> None:
        """Store a message delivered to the application, also if it was delivered before."""
        self._received.setdefault((topic, entry), {})[index] = (due, message)

    def acknowledge(self, topic: str, group: AckGroup) -> None:
        """Remove messages whose acknowledgements are sent."""
        for entry in group.whole:
            self._received.pop((topic, entry), None)
        if group.cumulative is not None:
            for key in list(self._received):
                if key[0] == topic and key[1] <= group.cumulative:
                    self._received.pop(key, None)
        for entry, _, bits in group.indexes:
            indexes = self._received.get((topic, entry), {})
            for index in list(indexes):
                if index >= 0 and bits >> index & 1:
                    indexes.pop(index, None)

    def clear(self) -> None:
        """Remove everything: it is redelivered."""
        self._received.clear()

    def next_due(self) -> float | None:
        """Return the earliest deadline; None without messages."""
        times = (due for indexes in list(self._received.values()) for due, _ in list(indexes.values()))
        return min(times, default=None)

    def drop(self, topic: str, entry: Entry) -> None:
        """Remove all messages of an entry: they are redelivered anyway."""
        self._received.pop((topic, entry), None)

    def pop_overdue(self, now: float) -> list[tuple[str, T]]:
        """Remove overdue entries; return the topic and one message of each: its whole batch is redelivered."""
        found = []
        for key, indexes in list(self._received.items()):
            late = [message for due, message in list(indexes.values()) if due <= now]
            if late:
                self._received.pop(key, None)
                found.append((key[0], late[0]))
        return found


class RecentAcks:
    """Acknowledged messages of one topic or partition that may be redelivered."""

    __slots__ = ("_is_reset", "_parts", "_upto", "_whole", "arrived", "since")

    def __init__(self, since: float = -math.inf, arrived: Entry | None = None) -> None:
        self.since, self.arrived = since, arrived
        self._whole: set[Entry] = set()
        self._parts: dict[Entry, int] = {}
        self._upto: Entry | None = None
        self._is_reset = False

    def add(self, group: AckGroup | Singles) -> None:
        """Store what was sent."""
        if not isinstance(group, AckGroup):
            self._whole.update(group.entries)
            return
        self._whole.update(group.whole)
        if group.cumulative is not None:
            self._upto = max(group.cumulative, self._upto or group.cumulative)
        for entry, _, bits in group.indexes:
            self._parts[entry] = self._parts.get(entry, 0) | bits

    def withdraw(self, entry: Entry, index: int = -1, size: int = 0) -> None:
        """Remove a message that is to be redelivered; see `AckGroup.without()`."""
        if self._upto is not None and entry <= self._upto:
            self._upto = before(entry)
        if entry in self._whole:
            self._whole.discard(entry)
            self._parts[entry] = whole_without(index, size)
        elif entry in self._parts:
            self._parts[entry] = self._parts[entry] & ~(1 << index) if index >= 0 else 0

    def detects_reset(self, entry: Entry) -> bool:
        """Return True if a message shows, now or earlier, that the broker's cursor was moved back.

        The broker redelivers an entry that it knows as acknowledged only after that. Everything after it is to be
        redelivered too.
        """
        self._is_reset = self._is_reset or entry == self.arrived
        return self._is_reset

    def has(self, entry: Entry, index: int = -1) -> bool:
        """Return True if a message was acknowledged; `index` is -1 without a batch."""
        if entry in self._whole or (self._upto is not None and entry <= self._upto):
            return True
        return index >= 0 and bool(self._parts.get(entry, 0) >> index & 1)
