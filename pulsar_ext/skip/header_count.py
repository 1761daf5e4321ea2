"""Counting messages without reading them: what a handful of entry headers proves (pure).

The broker numbers messages, where it has the index interceptor, but gives every chunk a number as well. A producer
numbers its messages too, by sequence ids, and a chunked message gets one. So where two entries of one producer are as
far apart by sequence id as they are by index, no chunk lies between them, and nothing of another producer. Without an
index, entries take its place, where the broker's counters show that no entry is a batch. What a proof does not cover is
halved until it does, or until the search has asked for too much: then the topic has to be read. Without an index on a
topic of batches, sequence ids show where to look, and the broker counts the messages up to there: as many by both, and
there is neither a chunk nor another producer among them.

Two things it takes for granted: no application gives explicit sequence ids whose leaps make up for chunks, and a
message of which only one chunk was ever stored, between other messages of its producer, counts as a message: one too
few is skipped then. Where the broker reports chunks on the topic, no proof is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext.chunks.queries import AskEntry
from pulsar_ext.ids.position import Position

from .queries import AskCount, AskEntries, AskIndex, AskUnbatched

if TYPE_CHECKING:
    from pulsar_ext.admin import EntryMetadata
    from pulsar_ext.chunks.queries import Search

    from .backlog import Backlog
    from .boundaries import Unit

__all__ = ["CountedEntry", "HeaderCounter", "prove_unbatched"]

_SAMPLES = 8
"""How many entries are looked at before the broker is asked to count all of them."""

_GUESSES = 4
"""How often an entry is guessed from the sizes of those that were seen; most batches of a topic are about as big."""

_COUNTABLE_BATCH = 8
"""The broker reads an entry to count it in the time in which a reader gets about ten messages of a batch."""

_DETOUR = 4
"""Counting goes on to the end of the topic, so at most so many entries are read for each one that is skipped."""

_MAX_HEADERS = 96
"""How many headers a proof may ask for, about 0.1 s of requests: reading the topic soon costs less."""


@dataclass(frozen=True, slots=True)
class CountedEntry:
    """Where the wanted message is, proved.

    Args:
        position: its entry.
        messages: how many messages lie before the end of that entry.
        size: how many of them are that entry's own.
    """

    position: Position
    messages: int
    size: int


class _UnprovedError(Exception):
    """The headers prove nothing."""


class HeaderCounter:
    """Finds the entry of the n-th message behind a cursor, by requests whose number does not depend on n.

    Args:
        backlog: where to count from, and what not to count.
        unbatched: whether it is known that every entry of the backlog is one message or one chunk.
    """

    def __init__(self, backlog: Backlog, *, unbatched: bool) -> None:
        self._backlog, self._unbatched = backlog, unbatched
        self._left = _MAX_HEADERS
        self._known: dict[Position, EntryMetadata] = {}
        self._looked: dict[Position, EntryMetadata | None] = {}
        self._base = 0
        self.indexed = False

    def find(self, nth: int, unit: Unit) -> Search[CountedEntry | None]:
        """Find the entry of the n-th message, or the n-th entry, 1-based; the last one if there are fewer.

        Returns:
            None if the headers prove nothing.
        """
        first = self._backlog.entry(1)
        if first is None:
            return None
        try:
            begin = yield from self._headers(first)
            self.indexed, self._base = begin.index is not None, begin.sequence_id
            if self.indexed:
                found = yield from self._by_index(begin, nth, unit)
            elif self._unbatched:
                at = self._entry(nth)
                found = CountedEntry(at, self._backlog.entries(at), 1)
            else:
                found = yield from self._by_count(begin, nth, unit)
            if self.indexed or self._unbatched:
                end = yield from self._headers(found.position)
                yield from self._prove(begin, end)
            upcoming = self._backlog.ledgers.next(found.position)
            if upcoming is not None and (yield from self._headers(upcoming)).chunk_id:
                return None  # threads that share a producer can write into each other's messages
        except _UnprovedError:
            return None
        return found

    def _entry(self, nth: int) -> Position:
        at = self._backlog.entry(nth)
        if at is None:
            last = self._backlog.ledgers.last
            at = None if last is None else self._backlog.entry(self._backlog.entries(last))
        assert at is not None  # noqa: S101  # find() has seen a first entry
        return at

    def _by_index(self, begin: EntryMetadata, nth: int, unit: Unit) -> Search[CountedEntry]:
        """Find it by the index, to which the messages of acknowledged entries add nothing."""
        before = self._first(begin)
        fixed = self._entry(nth) if unit == "entry" else None
        goal = before + nth - 1
        holes: list[tuple[Position, int]] = []
        ledgers = self._backlog.ledgers
        for hole in self._backlog.deleted:
            start, end = ledgers.next(max(hole.after, begin.position)), ledgers.number(ledgers.up_to(hole.last))
            if start is None or end is None or end < start:
                continue
            low = yield from self._headers(start)
            if start > fixed if fixed else self._first(low) > goal:
                break
            high = yield from self._headers(end)
            holes.append((start, self._last(high) - self._first(low) + 1))
            goal += holes[-1][1]
        found = None if fixed else (yield from self._seek(begin, goal))
        if found is None:
            at = fixed or (yield from self._ask_index(begin, goal))
            found = yield from self._headers(at or self._entry(nth))
            if fixed is None and at is not None and not self._first(found) <= goal <= self._last(found):
                raise _UnprovedError
        at = found.position
        acked = sum(size for start, size in holes if start < at)
        return CountedEntry(at, self._last(found) + 1 - before - acked, found.message_count)

    def _ask_index(self, begin: EntryMetadata, goal: int) -> Search[Position | None]:
        """Have the broker search, which reads a dozen entries for it; None past the end."""
        at, last = (yield AskIndex(goal)), self._backlog.ledgers.last
        if not isinstance(at, Position) or (last is not None and at > last):  # which an open transaction holds back
            return None
        if at.ledger_id < 0:  # its answer for an index inside the topic's first batch
            return self._backlog.ledgers.number(1) or begin.position
        return at

    def _by_count(self, begin: EntryMetadata, nth: int, unit: Unit) -> Search[CountedEntry]:
        """Find it by sequence ids, and have the broker count what is before it."""
        backlog, ledgers = self._backlog, self._backlog.ledgers
        ahead = backlog.entries(ledgers.last or begin.position)
        if unit == "message" and nth < ahead * _COUNTABLE_BATCH:
            raise _UnprovedError
        if unit == "entry":
            found = yield from self._headers(self._entry(nth))
        else:
            sought = yield from self._seek(begin, nth - 1)
            found = sought or (yield from self._headers(self._entry(nth)))
            if sought is None and self._last(found) >= nth - 1:
                raise _UnprovedError  # it is somewhere, and not the last one
        # Its producer's number and the broker's count agree on what is before an entry only if nothing else is there.
        before, passed = self._first(found), backlog.entries(found.position)
        holes = ledgers.between(begin.position, found.position) + 1 - passed
        read = 2 * (ahead - passed) + passed
        alike = begin.producer_name == found.producer_name and "?" not in begin.producer_name
        worth = before >= read * _COUNTABLE_BATCH and read <= passed * _DETOUR
        if holes or not alike or not worth or begin.is_chunk or found.is_chunk:
            raise _UnprovedError
        if (yield AskCount(begin.position, found.position)) != before:
            raise _UnprovedError
        return CountedEntry(found.position, before + found.message_count, found.message_count)

    def _seek(self, begin: EntryMetadata, goal: int) -> Search[EntryMetadata | None]:
        """Guess the entry that holds a message, by how many those seen so far hold; None if that does not find it."""
        ledgers = self._backlog.ledgers
        low, high = ledgers.up_to(begin.position), ledgers.up_to(ledgers.last or begin.position)
        near, each = begin, float(begin.message_count)
        for _ in range(_GUESSES):
            away = int((goal - self._first(near)) // each)
            away = max(away, 1) if goal > self._last(near) else away
            number = min(max(ledgers.up_to(near.position) + away, low), high)
            pair = ledgers.number(number), ledgers.number(number + 1)  # what follows the entry found is needed as well
            yield from self._look_at(*pair)
            for at in pair:
                near = near if at is None else (yield from self._headers(at))
                if self._first(near) <= goal <= self._last(near):
                    return near
            if not self.indexed and near.producer_name != begin.producer_name:
                break
            between = ledgers.between(begin.position, near.position)
            each = max((self._first(near) - self._first(begin)) / max(between, 1), 1.0)
        return None

    def _first(self, headers: EntryMetadata) -> int:
        """Give the number of an entry's first message: the broker's, else its producer's from the first entry on."""
        if self.indexed and headers.index is not None:
            return headers.index - headers.message_count + 1
        # A batch carries the sequence id of its first message.
        return headers.sequence_id - self._base

    def _last(self, headers: EntryMetadata) -> int:
        return self._first(headers) + headers.message_count - 1

    def _prove(self, begin: EntryMetadata, end: EntryMetadata) -> Search[None]:
        """Raise unless no chunk lies from one entry to the other, both included."""
        if begin.is_chunk or end.is_chunk:
            raise _UnprovedError
        entries = self._backlog.ledgers.between(begin.position, end.position)
        if entries <= 1 or self._is_straight(begin, end, entries):
            return
        ledgers = self._backlog.ledgers
        middle = ledgers.number(ledgers.up_to(begin.position) + entries // 2)
        assert middle is not None  # noqa: S101  # it lies between two entries
        half = yield from self._headers(middle)
        yield from self._prove(begin, half)
        yield from self._prove(half, end)

    def _is_straight(self, begin: EntryMetadata, end: EntryMetadata, entries: int) -> bool:
        # A header cannot carry every character of a name, so two producers could look like one.
        if begin.producer_name != end.producer_name or "?" in begin.producer_name:
            return False
        step = end.sequence_id - begin.sequence_id
        if not self.indexed:
            return step == entries
        return step == self._first(end) - self._first(begin)

    def _look_at(self, *positions: Position | None) -> Search[None]:
        """Ask for the headers of several entries at once, all of which will be needed."""
        wanted = tuple(at for at in positions if at is not None and at not in self._known)
        answers = (yield AskEntries(wanted)) if wanted else ()
        self._looked.update(zip(wanted, answers, strict=True))

    def _headers(self, position: Position) -> Search[EntryMetadata]:
        if position in self._known:
            return self._known[position]
        self._left -= 1
        if self._left < 0:
            raise _UnprovedError
        answer = self._looked.pop(position, None) or (yield AskEntry(position))
        if answer is None:
            raise _UnprovedError
        headers: EntryMetadata = answer
        if headers.marker_type is not None or headers.txn_aborted or (self.indexed and headers.index is None):
            raise _UnprovedError
        self._known[position] = headers
        return headers


def prove_unbatched(backlog: Backlog, count: int) -> Search[bool]:
    """Find out whether each of the next `count` entries of a backlog is one message or one chunk.

    The broker counts faster than a client reads, and several stretches at a time, but it counts chunks as messages.
    """
    first, last = backlog.entry(1), backlog.entry(count) or backlog.ledgers.last
    if first is None or last is None:
        return False
    entries = backlog.ledgers.between(first, last)
    for sample in range(_SAMPLES + 1):
        at = backlog.ledgers.number(backlog.ledgers.up_to(first) + entries * sample // _SAMPLES)
        headers: EntryMetadata | None = (yield AskEntry(at)) if at is not None else None
        if headers is None or headers.message_count != 1 or headers.marker_type is not None:
            return False
    return bool((yield AskUnbatched(first, last)))
