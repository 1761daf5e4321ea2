"""Sequence ids of an effectively-once producer (pure): which are new, and how batches carry them.

The broker deduplicates entries, not messages. It keeps one number for each producer name, the highest sequence id that
it persisted, and drops an entry whose id is not above it. A batch is one entry and goes by one id. Mirrors Java's
`ProducerImpl` (`lastSequenceIdPushed`, `lastSequenceIdPublished`) and the broker's `MessageDeduplication`, and goes
beyond both: each batch carries an id such that **every id up to the broker's number is persisted**, always.

That holds for a batch that carries its highest id. Batches by key are pushed as a group, sorted by their first ids;
each carries its first id, and the last one the highest id of the group. A group of which only a part was persisted
leaves nothing missing below the broker's number; `SequenceIds` gets to know at the start what is persisted above it.
"""

from __future__ import annotations

import operator
from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from pulsar_ext._native.core import SequenceBase
from pulsar_ext._native.refusals import MAX_SEQUENCE_ID, check_sequence_id
from pulsar_ext.errors import SequenceIdRejected
from pulsar_ext.produce.batch import InFlight

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


class Standing(Enum):
    """What a sequence id is to the producer."""

    NEW = "new"
    DUPLICATE = "duplicate"
    """Its message is persisted."""
    POSSIBLE = "possible duplicate"
    """Its message has been pushed, and the broker has not answered yet."""


class SequenceIds(SequenceBase):
    """The sequence ids of one producer name on one topic without partitions, or on one partition.

    Ids go up; gaps are allowed. Either the application gives all of them or none. `admit`, `admit_many` and `push`
    belong to the sender; `complete` and `fail` may be called from another thread, one at a time.

    Args:
        published: the broker's number: every message up to this id is persisted, -1 if there is none.
        above: ids above it that are persisted as well.
        first: where automatic ids begin at the earliest.
    """

    __slots__ = (
        "_above",
        "_explicit",
        "_flying",
        "_next",
        "_refused",
        "broken",
        "published",
        "pushed",
    )

    def __init__(self, published: int, above: Collection[int] = (), *, first: int = 0) -> None:
        self.published = published
        self.pushed = published
        """The highest id that was pushed to the broker, persisted or not."""
        self.last = published
        """The highest id that a message has, pushed or in an open batch."""
        self.broken: str | None = None
        """Why nothing may be sent any more: it is not known whether something pushed is persisted."""
        self.steady = False
        """Whether ids are automatic and the next one is `last + 1`, so that the sender may take it by itself."""
        self._above = set(above)
        self._refused: set[int] = set()
        """The application's ids whose messages were refused, until they are sent again."""
        self._flying: deque[InFlight] = deque()
        self._explicit: bool | None = None
        self._next = max(first, published + 1, max(self._above, default=-1) + 1)

    @property
    def highest(self) -> int:
        """The highest id of all that a message has: persisted, on its way, or in an open batch."""
        return max(self.last, max(self._above, default=-1))

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        return max(self._next, self.last + 1)

    def admit(self, sequence_id: int | None) -> tuple[int, Standing]:
        """Decide about the next message.

        Args:
            sequence_id: the application's, None for the next automatic one.

        Returns:
            Its id and what that is. Only a message with a new id joins a batch.

        Raises:
            SequenceIdRejected: it is not a sequence id, goes back to one that no message in flight has, is that of a
                message in the open batch, or explicit and automatic ids are mixed; nothing has changed.
        """
        if sequence_id is None:
            self._use(explicit=False)
            self.last = upcoming = self.upcoming
            self.steady = self.broken is None
            return upcoming, Standing.NEW
        check_sequence_id(sequence_id)
        if self._explicit is not True:
            self._use(explicit=True)
        if sequence_id > self.last and sequence_id not in self._above:
            self.last = sequence_id
            self._refused.discard(sequence_id)
            return sequence_id, Standing.NEW
        if sequence_id in self._refused:
            raise self._backwards(sequence_id, "its message was refused, and later ones have been sent")
        if sequence_id <= self.published or sequence_id in self._above:
            self.last = max(self.last, sequence_id)
            return sequence_id, Standing.DUPLICATE
        if self.flying_with(sequence_id) is not None:
            return sequence_id, Standing.POSSIBLE
        if sequence_id > self.pushed:
            why = "the batch that is open has this id, or a higher one, already"
        else:
            why = f"a message of id {self.pushed} has been sent, and the broker would drop a lower one"
        raise self._backwards(sequence_id, why)

    def admit_many(self, count: int) -> range:
        """Give the ids of so many messages that have none.

        Raises:
            SequenceIdRejected: messages before had ids of the application's.
        """
        self._use(explicit=False)
        first = self.upcoming
        self.last = first + count - 1
        return range(first, first + count)

    def admit_ascending(self, ids: Sequence[int]) -> bool:
        """Take explicit ids at once if all are new and go up; else change nothing and say so."""
        if self._explicit is False or self._above or not ids or type(ids[0]) is not int or ids[0] <= self.last:
            return False
        is_ascending = set(map(type, ids)) == {int} and all(map(operator.lt, ids, islice(ids, 1, None)))
        if not is_ascending or ids[-1] > MAX_SEQUENCE_ID:
            return False
        self._explicit = True
        self._refused.difference_update(ids)
        self.last = ids[-1]
        return True

    def push(self, batches: Sequence[Sequence[int]]) -> InFlight:
        """Note that a group of batches is about to be pushed."""
        group = InFlight(batches)
        self._flying.append(group)
        return group

    def flying_with(self, sequence_id: int) -> InFlight | None:
        """Give the group on its way that has this id."""
        return next((group for group in tuple(self._flying) if sequence_id in group), None)

    def part(self, group: InFlight) -> None:
        """Note that a batch of a group about to be pushed becomes two."""
        group.left += 1

    def refuse(self, group: InFlight, sequence_id: int) -> None:
        """Note that a message of a group about to be pushed was refused, as too big: it is not on its way."""
        group.drop(sequence_id)
        self._refused.add(sequence_id)
        if sequence_id == self.last:
            self.last = max(self.pushed, group.highest)

    def complete(self, group: InFlight) -> bool:
        """Note that one more batch of the group has its outcome; give whether it was the last.

        They complete in the order of the pushes.
        """
        group.left -= 1
        if group.left:
            return False
        if group in self._flying:
            self._flying.remove(group)
        if self.broken is None:
            self.published = max(self.published, group.highest)
        return True

    def fail(self, why: str) -> None:
        """Note that the outcome of something pushed is not known, so that nothing may follow it."""
        if self.broken is None:
            self.broken = why
            self.steady = False

    def _backwards(self, sequence_id: int, why: str) -> SequenceIdRejected:
        return SequenceIdRejected(
            f"Sequence id {sequence_id} goes back: {why}. Ids must go up; nothing was sent.",
            sequence_id=sequence_id,
            last_pushed=self.last,
            last_published=self.published,
        )

    def _use(self, *, explicit: bool) -> None:
        if self._explicit is None:
            self._explicit = explicit
        elif self._explicit is not explicit:
            raise SequenceIdRejected(
                "Some messages of this producer have a sequence_id and some have none: the broker would drop messages "
                "without a word. Give all of them one, or none; nothing was sent.",
                sequence_id=None,
                last_pushed=self.last,
                last_published=self.published,
            )


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry of this producer on the topic: the id that it carries, and those that its messages carry."""

    carried: int
    ids: tuple[int, ...]


def persisted_above(published: int, entries: Iterable[StoredEntry], messages: int) -> frozenset[int]:
    """Find the ids above the broker's number that are persisted: a part of a group of batches by key.

    All of a group's messages were sent one after the other, so there are at most as many as a group may have.

    Args:
        published: the broker's number.
        entries: this producer's, the newest first; read only as far as needed.
        messages: how many messages a group may have.
    """
    found: set[int] = set()
    seen = 0
    for entry in entries:
        found.update(one for one in entry.ids if one > published)
        seen += len(entry.ids)
        if seen >= messages:
            break
    return frozenset(found)
