"""Sequence ids of an effectively-once producer (pure): which ids are new, and which id each batch has.

The broker deduplicates entries, not messages. It keeps the highest persisted sequence id of each producer name, and
drops an entry whose id is not above it. A batch is one entry with one id. Mirrors Java's `ProducerImpl`
(`lastSequenceIdPushed`, `lastSequenceIdPublished`) and the broker's `MessageDeduplication`, with a stronger invariant:
each batch has an id such that **every id up to the broker's last id is persisted**.

A batch with the highest id of its messages keeps the invariant. Key-based batches are pushed as a group, sorted by
their first ids; each batch has its first id, and the last one has the highest id of the group. So if only part of a
group is persisted, nothing is missing below the broker's id; `SequenceIds` starts with the persisted ids above it.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from itertools import islice
from typing import Any, TypeGuard

from pulsar_ext._native.signatures import MAX_SEQUENCE_ID, check_sequence_id
from pulsar_ext.errors import SequenceIdRejected
from pulsar_ext.produce.batch import InFlight
from pulsar_ext.produce.options import SequenceCounter


class IdStatus(Enum):
    """State of a sequence id in a producer."""

    NEW = "new"
    DUPLICATE = "duplicate"
    """The message is persisted."""
    POSSIBLE = "possible duplicate"
    """The message is in flight."""


class SequenceIds(SequenceCounter):
    """The sequence ids of one producer name on one non-partitioned topic or partition.

    Ids must ascend; gaps are allowed. The application sets either all ids or none. Only the sender may call `admit`,
    `admit_many` and `push`; other threads may call `complete` and `fail`, one at a time.
    """

    def __init__(self, published: int, above: Collection[int] = (), *, first: int = 0) -> None:
        super().__init__(published)
        self.published = published
        """The id up to which every message is persisted, -1 if none."""
        self.pushed = published
        """The highest id pushed to the broker, persisted or not."""
        self.broken: str | None = None
        """The reason why sending has stopped: it is unknown whether a pushed message is persisted. None before."""
        self.steady = False
        self._above = set(above)
        """The ids above `published` that were persisted when the producer was opened."""
        self._rejected: set[int] = set()
        """Explicit ids whose messages were rejected, until they are sent again."""
        self._in_flight: deque[InFlight] = deque()
        self._explicit: bool | None = None
        self._next = max(first, published + 1, max(self._above, default=-1) + 1)

    @property
    def highest(self) -> int:
        """The highest id of all messages: persisted, in flight, or in an open batch."""
        return max(self.last, max(self._above, default=-1))

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        return max(self._next, self.last + 1)

    def admit(self, sequence_id: int | None) -> tuple[int, IdStatus]:
        """Admit the next message, or change nothing and raise; return its id and state: only a new id joins a batch."""
        if sequence_id is None:
            self._use(explicit=False)
            self.last = upcoming = self.upcoming
            self.steady = self.broken is None
            return upcoming, IdStatus.NEW
        check_sequence_id(sequence_id)
        if self._explicit is not True:
            self._use(explicit=True)
        if sequence_id > self.last and sequence_id not in self._above:
            self.last = sequence_id
            self._rejected.discard(sequence_id)
            return sequence_id, IdStatus.NEW
        if sequence_id in self._rejected:
            raise self._going_back_error(sequence_id, "its message was rejected, and later ones have been sent")
        if sequence_id <= self.published or sequence_id in self._above:
            self.last = max(self.last, sequence_id)
            return sequence_id, IdStatus.DUPLICATE
        if self.in_flight_with(sequence_id) is not None:
            return sequence_id, IdStatus.POSSIBLE
        if sequence_id > self.pushed:
            why = "the open batch already has this id, or a higher one"
        else:
            why = f"a message of id {self.pushed} has been sent, and the broker would drop a lower one"
        raise self._going_back_error(sequence_id, why)

    def admit_many(self, count: int) -> range:
        """Return `count` automatic ids."""
        self._use(explicit=False)
        return super().admit_many(count)

    def admit_ascending(self, ids: Sequence[int | None]) -> TypeGuard[Sequence[int]]:
        """Admit explicit ids at once if all are new and ascending; otherwise change nothing and return False."""
        if self._explicit is False or self._above or not _are_ascending(ids, self.last):
            return False
        self._explicit = True
        self._rejected.difference_update(ids)
        self.last = ids[-1]
        return True

    def push(self, batches: Sequence[Sequence[int]]) -> InFlight:
        """Record a group of batches that is about to be pushed."""
        group = InFlight(batches)
        self._in_flight.append(group)
        return group

    def in_flight_with(self, sequence_id: int) -> InFlight | None:
        """Return the group in flight that has this id, or None."""
        return next((group for group in tuple(self._in_flight) if sequence_id in group), None)

    def reject(self, group: InFlight, sequence_id: int) -> None:
        """Record that a message of a group about to be pushed is too big, and not sent."""
        group.drop(sequence_id)
        self._rejected.add(sequence_id)
        if sequence_id == self.last:
            self.last = max(self.pushed, group.highest)

    def complete(self, group: InFlight) -> bool:
        """Record the outcome of a batch of the group, in push order; return whether it was the last one."""
        group.unanswered -= 1
        if group.unanswered:
            return False
        if group in self._in_flight:
            self._in_flight.remove(group)
        if self.broken is None:
            self.published = max(self.published, group.highest)
        return True

    def fail(self, why: str) -> None:
        """Stop sending: the outcome of a pushed message is unknown."""
        if self.broken is None:
            self.broken = why
            self.steady = False

    def _going_back_error(self, sequence_id: int, why: str) -> SequenceIdRejected:
        return SequenceIdRejected(
            f"Sequence id {sequence_id} goes back: {why}. Ids must ascend. Nothing was sent.",
            sequence_id=sequence_id,
            last_pushed=self.last,
            last_published=self.published,
        )

    def _use(self, *, explicit: bool) -> None:
        if self._explicit is None:
            self._explicit = explicit
        elif self._explicit is not explicit:
            raise SequenceIdRejected(
                "Some messages of this producer have a sequence_id and others have none: the broker would silently "
                "drop messages. Set it for all messages, or for none. Nothing was sent.",
                sequence_id=None,
                last_pushed=self.last,
                last_published=self.published,
            )


def _are_ascending(ids: Sequence[Any], last: int) -> TypeGuard[Sequence[int]]:
    """Return whether these are ascending sequence ids above `last`."""
    if not ids or type(ids[0]) is not int or ids[0] <= last:
        return False
    is_ascending = set(map(type, ids)) == {int} and all(map(operator.lt, ids, islice(ids, 1, None)))
    return is_ascending and ids[-1] <= MAX_SEQUENCE_ID


def persisted_above(published: int, entries: Iterable[Sequence[int]], messages: int) -> frozenset[int]:
    """Return the persisted ids above the broker's: of a contiguous group of `messages`, by entries, newest first."""
    found: set[int] = set()
    seen = 0
    for ids in entries:
        found.update(one for one in ids if one > published)
        seen += len(ids)
        if seen >= messages:
            break
    return frozenset(found)
