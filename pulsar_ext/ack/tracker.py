"""What the application acknowledged, and what of it leaves for the broker, in which form (pure).

Mirrors Java's `PersistentAcknowledgmentsGroupingTracker` and its batch bit sets, without a socket and without a clock.
One `AckTracker` stands for one cursor: a subscription on one topic or one partition. The application says what it has
acknowledged; `leave()` decides what is sent to the broker:

- a whole entry: an unbatched message, a chunk, or a batch all of whose messages were acknowledged;
- some messages of a batch: at once where the broker was said to keep acknowledgements inside batches, else when none
  was added for a while. The others may be acknowledged on the broker already, and were never delivered: the broker puts
  both together. One that keeps nothing inside batches passes over it;
- one position, everything up to which was acknowledged: what the application acknowledged cumulatively or, where runs
  are wanted and it is known where the cursor stands, a run of entries without a gap.

The broker's cursor then has exactly what the application acknowledged, never more: an entry counts only when every
message of it was, and a run ends at the first entry that was not, whatever that entry is.

What a consumer received and has not acknowledged, for an acknowledgement timeout (pure).

It is for Exclusive and Failover subscriptions, where one message that is not acknowledged in time has everything
delivered again, and for all where a backoff makes that time longer with each redelivery. Mirrors Java's
`UnAckedMessageTracker` and `UnAckedMessageRedeliveryTracker`.

What was acknowledged and may be delivered again, because the acknowledgement was lost with a connection (pure).

A broker that has not got an acknowledgement delivers its message again on the next connection. The consumer knows
better: it drops such a message, whose acknowledgement is sent again; see `cursor.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from .leaving import NOTHING, Leaving, before, whole_without

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .leaving import Entry, Singles


_MAX_PARTIAL = 10_000
"""How many batches are remembered of which some messages were acknowledged; another consumer may have the others."""
_MAX_BEYOND = 100_000
"""How many acknowledged entries behind a hole are remembered; without them runs begin anew at the next look."""


class AckTracker:
    """The acknowledgements of one cursor, until they leave.

    Args:
        runs: whether runs without a gap leave as one position (Exclusive and Failover subscriptions).
        keeps_indexes: whether some messages of a batch leave at once.
    """

    def __init__(self, *, runs: bool = False, keeps_indexes: bool = False) -> None:
        self._runs, self._keeps_indexes = runs, keeps_indexes
        self._whole: dict[Entry, None] = {}
        self._row: Singles | None = None
        self._leaving = NOTHING
        self._partial: dict[Entry, tuple[int, int]] = {}
        self._changed: set[Entry] = set()
        self._resting: set[Entry] = set()
        self._settled: set[Entry] = set()
        self._beyond: set[Entry] = set()
        self._cumulative: Entry | None = None
        self._base: Entry | None = None
        self._after_base: Entry | None = None
        self.era = 0
        """Is another one whenever it is forgotten where the cursor stands: a look that began before says nothing."""

    @property
    def pending(self) -> int:
        """How many entries, or parts of entries, have not left yet."""
        changed = len(self._changed if self._keeps_indexes else self._settled)
        row = len(self._row) if self._row is not None else 0
        return row + len(self._whole) + changed + (self._cumulative is not None) + len(self._leaving)

    @property
    def wants_base(self) -> bool:
        """Whether a look at the cursor could turn single entries into a run."""
        return self._runs and bool(self._beyond)

    # Where messages are single, most are acknowledged as they come: they wait as one row of entries, and are listed one
    # by one only when something else comes in between.

    def add_whole(self, entry: Entry) -> bool:
        """Acknowledge a whole entry."""
        self._spread()
        return self._put_whole(entry)

    def _put_whole(self, entry: Entry) -> bool:
        if entry in self._whole or self._is_covered(entry):
            return False
        self._whole[entry] = None
        if self._partial:
            self._drop_partial(entry)
        return True

    def add_singles(self, singles: Singles) -> None:
        """Acknowledge whole entries."""
        row, more = self._row, singles.entry_ids
        if self._runs and isinstance(more, range) and not self._whole:
            if row is None:
                self._row = singles
                return
            if row.ledger_id == singles.ledger_id and row.entry_ids[-1] + 1 == more[0]:
                self._row = replace(row, entry_ids=range(row.entry_ids[0], more[-1] + 1))
                return
        self._spread()
        self._add_wholes(singles.entries)

    def _add_wholes(self, entries: list[Entry]) -> None:
        if self._partial or self._cumulative is not None:
            for entry in entries:
                self._put_whole(entry)
        else:
            self._whole.update(dict.fromkeys(entries))

    def add_bits(self, entry: Entry, size: int, bits: int) -> bool:
        """Acknowledge messages of a batch of `size`, one bit each."""
        self._spread()
        if entry in self._whole or self._is_covered(entry):
            return False
        known = self._partial.get(entry, (size, 0))[1]
        after = known | bits
        if after == (1 << size) - 1:
            return self.add_whole(entry)
        # A part that leaves has the broker count the redeliveries of its batch from 0 again: only what is new does.
        if after != known:
            self._changed.add(entry)  # first: what is interrupted is done again, and is not new then
        self._partial[entry] = (size, after)
        if len(self._partial) > _MAX_PARTIAL:
            self._drop_partial(next(iter(self._partial)))
        return after != known

    def add_again(self, entry: Entry) -> None:
        """Have what is known of a batch leave once more: it came as if never delivered, so a broker has forgotten it.

        One that was killed may. Who gets the others of the batch then does not complete it alone.
        """
        if entry in self._partial:
            self._changed.add(entry)

    def leave_out(self, entry: Entry, size: int, bits: int) -> None:
        """Count messages as acknowledged that a seek leaves out, one bit each; as a part they leave with others of it.

        Args:
            entry: theirs.
            size: how many messages its batch has; 0 if it is not a batch.
            bits: which of them.
        """
        if not size:
            self.add_whole(entry)
            return
        known = self._partial.get(entry, (size, 0))[1]
        if bits & ~known:
            self.add_bits(entry, size, bits)
            if not known:
                self._changed.discard(entry)

    def add_cumulative(self, entry: Entry, index: int = -1, size: int = 0) -> bool:
        """Acknowledge everything up to an entry and it too, or up to a message of a batch.

        Returns:
            Whether anything was new: a position below an earlier one is ignored.
        """
        self._spread()
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

    def take_back(self, entry: Entry, index: int = -1, size: int = 0) -> None:
        """Forget an acknowledgement: the message is to be delivered again."""
        self._spread()
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
        """Whether a message that arrives was acknowledged already."""
        return (self._base is not None and entry <= self._base) or self.holds(entry, index)

    def holds(self, entry: Entry, index: int = -1) -> bool:
        """Whether a message was acknowledged, and its whole entry has not left yet."""
        if entry in self._whole or self._is_covered(entry):
            return True
        if self._row is not None and entry[0] == self._row.ledger_id and entry[1] in self._row.entry_ids:
            return True
        return index >= 0 and bool(self._partial.get(entry, (0, 0))[1] >> index & 1)

    def partly(self) -> dict[Entry, tuple[int, int]]:
        """Give the batches of which some messages were acknowledged: number of messages, bit set."""
        return dict(self._partial)

    @property
    def is_settling(self) -> bool:
        """Whether batches wait for `settle()`."""
        return not self._keeps_indexes and bool(self._changed or self._resting)

    def settle(self, *, everything: bool = False) -> None:
        """Have messages of those batches leave to which nothing was added since the last call, or of all.

        It is called again and again, and the time between is how long the others of a batch are waited for.
        """
        if not self._keeps_indexes:
            self._settled |= self._resting - self._changed
            self._resting = set(self._changed)
            self._changed.clear()
            if everything:
                self._settled |= self._resting
                self._resting.clear()

    def looked(self, mark_delete: Entry, after: Entry | None, acknowledged: Iterable[Entry] = ()) -> None:
        """Learn where the cursor stands, so that runs can begin there.

        Args:
            mark_delete: everything up to it is acknowledged.
            after: the entry that follows it, None if there is none yet.
            acknowledged: entries behind it that are acknowledged.
        """
        if not self._runs:
            return
        if self._base is None or mark_delete > self._base:
            self._beyond = {entry for entry in self._beyond if entry > mark_delete}
            self._base = mark_delete
        if mark_delete == self._base:
            self._after_base = after
        self._beyond.update(entry for entry in acknowledged if entry > mark_delete)

    def leave(self) -> Leaving:
        """Decide what is sent to the broker; it counts as pending until `left()`.

        What interrupts a sender in between, such as a Ctrl-C, has it sent once more, never not at all.
        """
        if (reached := self._row_from_base()) is not None:
            self._row, self._cumulative = None, reached
        self._spread()
        whole, cumulative = list(self._whole), self._cumulative
        if self._runs:
            whole.sort()
            reached = self._run(whole)
            if reached is not None:
                cumulative = reached
                whole = [entry for entry in whole if entry > reached]
        parts = self._changed if self._keeps_indexes else self._settled
        known = ((entry, *self._partial.get(entry, (0, 0))) for entry in sorted(parts))
        indexes = tuple((entry, size, bits) for entry, size, bits in known if bits)
        leaving = Leaving(cumulative, tuple(whole), indexes)
        self._leaving = self._leaving.merged(leaving) if self._leaving else leaving
        self._whole.clear()
        self._cumulative = None
        parts.clear()
        return self._leaving

    def left(self) -> None:
        """Forget what leaves: it is on its way."""
        self._leaving = NOTHING

    def clear(self) -> None:
        """Forget everything: the cursor was moved elsewhere."""
        self._row, self._leaving = None, NOTHING
        self._whole.clear()
        self._partial.clear()
        for kept in (self._changed, self._resting, self._settled):
            kept.clear()
        self._cumulative = None
        self.lose_base()

    def lose_base(self) -> None:
        """Begin no run before the next look: the cursor may have been moved back."""
        self.era += 1
        self._base = self._after_base = None
        self._beyond.clear()

    def _row_from_base(self) -> Entry | None:
        """Go to the end of the row if it begins behind the base, and nothing is known behind its end."""
        if self._row is None or self._base is None or self._beyond or self._partial:
            return None
        first = (self._row.ledger_id, self._row.entry_ids[0])
        if first not in (self._after_base, (self._base[0], self._base[1] + 1)):
            return None
        self._base, self._after_base = (self._row.ledger_id, self._row.entry_ids[-1]), None
        return self._base

    def _spread(self) -> None:
        """Have the entries of the row wait one by one."""
        if self._row is not None:
            self._add_wholes(self._row.entries)
            self._row = None  # behind it: what is interrupted is done again

    def _run(self, whole: list[Entry]) -> Entry | None:
        """Go from the base along what is acknowledged; give how far, None if nowhere."""
        if len(self._beyond) + len(whole) > _MAX_BEYOND:
            self._beyond.clear()
        self._beyond.update(whole)
        if self._base is None:
            return None
        if any(entry <= self._base for entry in whole[:1]):
            # Acknowledged again: the cursor is not where it was, so nothing may be concluded from there.
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
        """Everything up to `entry` is acknowledged, and need not be sent one by one."""
        self._base, self._after_base = entry, None
        for done in [one for one in self._whole if one <= entry]:
            del self._whole[done]
        for done in [one for one in self._partial if one <= entry]:
            self._drop_partial(done)
        self._beyond = {one for one in self._beyond if one > entry}

    def _is_covered(self, entry: Entry) -> bool:
        """Whether a position that has not left yet acknowledges the entry as well."""
        return self._cumulative is not None and entry <= self._cumulative

    def _drop_partial(self, entry: Entry) -> None:
        self._partial.pop(entry, None)
        for kept in (self._changed, self._resting, self._settled):
            kept.discard(entry)


T = TypeVar("T")


class Unacked(Generic[T]):
    """The messages of one consumer. Each step is one operation on a dictionary, so that it needs no lock."""

    def __init__(self) -> None:
        self._received: dict[tuple[str, Entry], dict[int, tuple[float, T]]] = {}

    def receive(self, topic: str, entry: Entry, index: int, due: float, message: T) -> None:
        """Note a message that the application gets, though it got it before.

        Args:
            topic: the full name of its topic or partition.
            entry: its ledger and entry; of a chunked message those of the last chunk.
            index: its place in its batch, -1 if it is in none.
            due: when it is late.
            message: what `late()` gives then.
        """
        self._received.setdefault((topic, entry), {})[index] = (due, message)

    def acknowledge(self, topic: str, leaving: Leaving) -> None:
        """Drop what leaves for the broker."""
        for entry in leaving.whole:
            self._received.pop((topic, entry), None)
        if leaving.cumulative is not None:
            for key in list(self._received):
                if key[0] == topic and key[1] <= leaving.cumulative:
                    self._received.pop(key, None)
        for entry, _, bits in leaving.indexes:
            places = self._received.get((topic, entry), {})
            for index in list(places):
                if index >= 0 and bits >> index & 1:
                    places.pop(index, None)

    def clear(self) -> None:
        """Drop everything: it comes again."""
        self._received.clear()

    def soonest(self) -> float | None:
        """Give when the next message is late; None if none is waited for."""
        times = (due for places in list(self._received.values()) for due, _ in list(places.values()))
        return min(times, default=None)

    def drop(self, topic: str, entry: Entry) -> None:
        """Drop all messages of an entry: they are redelivered anyway."""
        self._received.pop((topic, entry), None)

    def take_late(self, now: float) -> list[tuple[str, T]]:
        """Take what is late out, a topic and one message of each entry: the others of its batch come with it."""
        found = []
        for key, places in list(self._received.items()):
            late = [message for due, message in list(places.values()) if due <= now]
            if late:
                self._received.pop(key, None)
                found.append((key[0], late[0]))
        return found


class Remembered:
    """Acknowledged messages of one topic or partition.

    Args:
        since: when the oldest acknowledgement in question was sent, in seconds of any steady clock.
        arrived: an entry that the broker surely knows as acknowledged; None if no such entry is known.
    """

    __slots__ = ("_is_reset", "_parts", "_upto", "_whole", "arrived", "since")

    def __init__(self, since: float = -math.inf, arrived: Entry | None = None) -> None:
        self.since, self.arrived = since, arrived
        self._whole: set[Entry] = set()
        self._parts: dict[Entry, int] = {}
        self._upto: Entry | None = None
        self._is_reset = False

    def add(self, leaving: Leaving | Singles) -> None:
        """Remember what was sent."""
        if not isinstance(leaving, Leaving):
            self._whole.update(leaving.entries)
            return
        self._whole.update(leaving.whole)
        if leaving.cumulative is not None:
            self._upto = max(leaving.cumulative, self._upto or leaving.cumulative)
        for entry, _, bits in leaving.indexes:
            self._parts[entry] = self._parts.get(entry, 0) | bits

    def take_back(self, entry: Entry, index: int = -1, size: int = 0) -> None:
        """Forget a message: it is to be delivered again.

        Args:
            entry: its entry.
            index: its place in its batch; -1 if it is not in a batch.
            size: number of messages in its batch; 0 if that is not known.
        """
        if self._upto is not None and entry <= self._upto:
            self._upto = before(entry)
        if entry in self._whole:
            self._whole.discard(entry)
            self._parts[entry] = whole_without(index, size)
        elif entry in self._parts:
            self._parts[entry] = self._parts[entry] & ~(1 << index) if index >= 0 else 0

    def shows_reset(self, entry: Entry) -> bool:
        """Whether the broker's cursor was moved back, now that a message of an entry is delivered.

        An entry that the broker surely knows as acknowledged is delivered again only then, and everything after it is
        to be delivered again.
        """
        self._is_reset = self._is_reset or entry == self.arrived
        return self._is_reset

    def has(self, entry: Entry, index: int = -1) -> bool:
        """Whether a message was acknowledged.

        Args:
            entry: its entry.
            index: its place in its batch; -1 if it is not in a batch.
        """
        if entry in self._whole or (self._upto is not None and entry <= self._upto):
            return True
        return index >= 0 and bool(self._parts.get(entry, 0) >> index & 1)
