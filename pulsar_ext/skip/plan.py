"""Planning a skip: to which clean boundary, by which strategy, and when it is impossible.

`plan_skip` reads as little as possible through `Queries`: a few headers if these prove the count (`HeaderCounter`),
otherwise every entry up to the boundary.

**What a few entry headers prove.** With the index interceptor, the broker increments the index for each message and for
each chunk. A producer increments its sequence id once for each message, chunked or not. So if two entries of one
producer differ by the same number in sequence id and in index, there are no chunks and no messages of other producers
between them. Without an index, the count of entries replaces it, if the broker's counters show that no entry is a
batch. A range that this does not prove is halved until it does, or until `_MAX_HEADERS` headers were read; then the
topic is read. Without an index on a topic with batches, sequence ids locate the entry, and the broker counts the
messages before it. If both numbers are equal, there are no chunks and no other producers in that range.

There are two assumptions. Applications do not set explicit sequence ids whose gaps compensate for chunks. And a message
of which only one chunk was stored, between other messages of its producer, counts as a message; then the skip is one
message short. If the broker reports chunks on the topic, no proof is tried.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from pulsar_ext.admin import EntryMetadata
from pulsar_ext.errors import InvalidUse, SkipInsideMessage
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted

from .boundaries import Backlog, Boundary, BoundaryFinder, MessageKey, OpenMessage, Strategy, Unit
from .queries import Queries

_SAMPLES = 8
"""Number of entries whose headers are read before the broker is asked to count all of them."""

_GUESSES = 4
"""Number of guesses of an entry from the batch sizes seen; most batches of a topic have similar sizes."""

_COUNTABLE_BATCH = 8
"""Minimal batch size for a count by the broker: a reader receives about 10 messages while it counts one entry."""

_DETOUR = 4
"""Limit of entries that the broker reads for each skipped one, as it counts to the end of the topic."""

_MAX_HEADERS = 96
"""Limit of headers for a proof, about 0.1 s of requests; beyond it, reading the topic costs less."""


class CountedEntry(NamedTuple):
    """Entry of the wanted message, proved."""

    position: Position
    messages: int
    """Number of messages up to the end of the entry."""
    size: int


class _UnprovedError(Exception):
    """The headers prove nothing."""


class HeaderCounter:
    """Search for the entry of the n-th message after a cursor; if `unbatched`, no entry of the backlog is a batch."""

    def __init__(self, queries: Queries, backlog: Backlog, *, unbatched: bool) -> None:
        self._queries, self._backlog, self._unbatched = queries, backlog, unbatched
        self._headers_left = _MAX_HEADERS
        self._known: dict[Position, EntryMetadata] = {}
        self._fetched: dict[Position, EntryMetadata | None] = {}
        self._base = 0
        self.indexed = False

    def find(self, nth: int, unit: Unit) -> CountedEntry | None:
        """Return the entry of the n-th message or entry, 1-based, or the last one; None if nothing is proved."""
        first = self._backlog.entry(1)
        if first is None:
            return None
        try:
            begin = self._headers(first)
            self.indexed, self._base = begin.index is not None, begin.sequence_id
            if self.indexed:
                found = self._by_index(begin, nth, unit)
            elif self._unbatched:
                at = self._entry(nth)
                found = CountedEntry(at, self._backlog.entries(at), 1)
            else:
                found = self._by_count(begin, nth, unit)
            if self.indexed or self._unbatched:
                end = self._headers(found.position)
                self._prove(begin, end)
            upcoming = self._backlog.ledgers.next(found.position)
            if upcoming is not None and self._headers(upcoming).chunk_id:
                return None  # threads that share a producer can write into each other's messages
        except _UnprovedError:
            return None
        return found

    def _entry(self, nth: int) -> Position:
        return self._backlog.entry(nth) or self._backlog.ledgers[self._backlog.runs[-1][1]]

    def _by_index(self, begin: EntryMetadata, nth: int, unit: Unit) -> CountedEntry:
        """Find the entry by the index, subtracting the messages of acknowledged entries."""
        before = self._first(begin)
        fixed = self._entry(nth) if unit == "entry" else None
        goal = before + nth - 1
        holes: list[tuple[Position, int]] = []
        ledgers = self._backlog.ledgers
        for start, end in ((ledgers[first], ledgers[last]) for first, last in self._backlog.gaps):
            low = self._headers(start)
            if start > fixed if fixed else self._first(low) > goal:
                break
            high = self._headers(end)
            holes.append((start, self._last(high) - self._first(low) + 1))
            goal += holes[-1][1]
        found = None if fixed else self._seek(begin, goal)
        if found is None:
            at = fixed or self._entry_of_index(begin, goal)
            found = self._headers(at or self._entry(nth))
            if fixed is None and at is not None and not self._first(found) <= goal <= self._last(found):
                raise _UnprovedError
        at = found.position
        acked = sum(size for start, size in holes if start < at)
        return CountedEntry(at, self._last(found) + 1 - before - acked, found.message_count)

    def _entry_of_index(self, begin: EntryMetadata, goal: int) -> Position | None:
        """Ask the broker to search for the index, which costs it about 12 reads; None past the end."""
        at, last = self._queries.entry_of_index(goal), self._backlog.ledgers.last
        if at is None or (last is not None and at > last):  # an open transaction holds it back
            return None
        if at.ledger_id < 0:  # the broker's answer for an index inside the topic's first batch
            return self._backlog.ledgers.number(1) or begin.position
        return at

    def _by_count(self, begin: EntryMetadata, nth: int, unit: Unit) -> CountedEntry:
        """Find the entry by sequence ids, and have the broker count the messages before it."""
        backlog, ledgers = self._backlog, self._backlog.ledgers
        ahead = backlog.entries(ledgers.last or begin.position)
        if unit == "message" and nth < ahead * _COUNTABLE_BATCH:
            raise _UnprovedError
        if unit == "entry":
            found = self._headers(self._entry(nth))
        else:
            guessed = self._seek(begin, nth - 1)
            found = guessed or self._headers(self._entry(nth))
            if guessed is None and self._last(found) >= nth - 1:
                raise _UnprovedError  # the topic holds the message, but the guesses missed it
        # The producer's sequence ids and the broker's count agree only if the range holds nothing else.
        before, passed = self._first(found), backlog.entries(found.position)
        holes = ledgers.between(begin.position, found.position) + 1 - passed
        read = 2 * (ahead - passed) + passed
        same_producer = begin.producer_name == found.producer_name and "?" not in begin.producer_name
        worthwhile = before >= read * _COUNTABLE_BATCH and read <= passed * _DETOUR
        if holes or not same_producer or not worthwhile or begin.is_chunk or found.is_chunk:
            raise _UnprovedError
        if self._queries.messages_between(ledgers, begin.position, found.position) != before:
            raise _UnprovedError
        return CountedEntry(found.position, before + found.message_count, found.message_count)

    def _seek(self, begin: EntryMetadata, goal: int) -> EntryMetadata | None:
        """Guess the entry that holds a message from the batch sizes seen so far; None if the guesses miss it."""
        ledgers = self._backlog.ledgers
        low, high = ledgers.up_to(begin.position), ledgers.up_to(ledgers.last or begin.position)
        near, each = begin, float(begin.message_count)
        for _ in range(_GUESSES):
            away = int((goal - self._first(near)) // each)
            away = max(away, 1) if goal > self._last(near) else away
            number = min(max(ledgers.up_to(near.position) + away, low), high)
            pair = ledgers.number(number), ledgers.number(number + 1)  # find() needs the entry after it as well
            wanted = [at for at in pair if at is not None and at not in self._known]
            if wanted:
                self._fetched.update(zip(wanted, self._queries.entries(wanted), strict=True))
            for at in pair:
                near = near if at is None else self._headers(at)
                if self._first(near) <= goal <= self._last(near):
                    return near
            if not self.indexed and near.producer_name != begin.producer_name:
                break
            between = ledgers.between(begin.position, near.position)
            each = max((self._first(near) - self._first(begin)) / max(between, 1), 1.0)
        return None

    def _first(self, headers: EntryMetadata) -> int:
        """Return the number of an entry's first message: the index, or the sequence id relative to the first entry."""
        if self.indexed and headers.index is not None:
            return headers.index - headers.message_count + 1
        # A batch carries the sequence id of its first message.
        return headers.sequence_id - self._base

    def _last(self, headers: EntryMetadata) -> int:
        return self._first(headers) + headers.message_count - 1

    def _prove(self, begin: EntryMetadata, end: EntryMetadata) -> None:
        """Raise unless the range between two entries, both included, is free of chunks."""
        if begin.is_chunk or end.is_chunk:
            raise _UnprovedError
        entries = self._backlog.ledgers.between(begin.position, end.position)
        if entries <= 1 or self._is_straight(begin, end, entries):
            return
        ledgers = self._backlog.ledgers
        half = self._headers(ledgers[ledgers.up_to(begin.position) + entries // 2])
        self._prove(begin, half)
        self._prove(half, end)

    def _is_straight(self, begin: EntryMetadata, end: EntryMetadata, entries: int) -> bool:
        # A header cannot represent every character of a name, so two names could appear equal.
        if begin.producer_name != end.producer_name or "?" in begin.producer_name:
            return False
        step = end.sequence_id - begin.sequence_id
        if not self.indexed:
            return step == entries
        return step == self._first(end) - self._first(begin)

    def _headers(self, position: Position) -> EntryMetadata:
        if position in self._known:
            return self._known[position]
        self._headers_left -= 1
        if self._headers_left < 0:
            raise _UnprovedError
        headers = self._fetched.pop(position, None) or self._queries.entry(position)
        if (
            headers is None
            or headers.marker_type is not None
            or headers.txn_aborted
            or (self.indexed and headers.index is None)
        ):
            raise _UnprovedError
        self._known[position] = headers
        return headers


def _is_unbatched(queries: Queries, backlog: Backlog, count: int) -> bool:
    """Return whether each of the next `count` entries is one message or one chunk; False if reading them costs less.

    The broker counts faster than a client reads, and several ranges at a time, but it counts chunks as messages.
    """
    count = min(count, backlog.total)
    first, last = backlog.entry(1), backlog.entry(count)
    if count <= _FEW_ENTRIES or first is None or last is None:
        return False
    entries = backlog.ledgers.between(first, last)
    for sample in range(_SAMPLES + 1):
        headers = queries.entry(backlog.ledgers[backlog.ledgers.up_to(first) + entries * sample // _SAMPLES])
        if headers is None or headers.message_count != 1 or headers.marker_type is not None:
            return False
    return queries.all_unbatched(backlog.ledgers, first, last)


_MAX_LONG = 2**63 - 1

_FEW_ENTRIES = 256
"""Up to this number of entries, reading each one's headers costs less than opening a reader."""

_BIG_ENTRY_BYTES = 512 * 1024
"""From this average size on, reading an entry's headers costs less than reading its content."""

_ABANDONED_MS = 60_000
"""Age after which an incomplete message counts as lost; consumers use `expireTimeOfIncompleteChunkedMessage`."""


@dataclass(frozen=True)
class Situation:
    """State of the topic and the subscription before the count; times are in milliseconds since the epoch."""

    backlog: Backlog
    unbatched: bool
    """The broker's counters show that no entry is a batch."""
    may_hide_acks: bool
    """Messages inside a batch may be acknowledged, which the broker does not show."""
    idle: bool
    """The subscription has no consumer."""
    batch_index_acks: bool | None
    """The broker persists acknowledgements inside batches; None to query it when needed."""
    chunked: bool
    """The broker has detected chunks on the topic, which it does late and forgets."""
    entry_bytes: float
    now_ms: int
    last_ack_ms: int = 0
    """Time of the subscription's last acknowledgement, 0 for never."""
    may_hide_new_acks: bool = True
    """Acknowledgements inside batches, which the broker does not show, may arrive later."""


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """A skip to `boundary` that can be executed in `situation`.

    `exact` is false past the end, and if messages in batches may be acknowledged, which the broker does not show: then
    fewer are skipped, never more.
    """

    situation: Situation
    boundary: Boundary
    strategy: Strategy
    exact: bool

    @property
    def moves(self) -> bool:
        """True if the skip moves the cursor."""
        return self.boundary.entries > 0 or self.boundary.batch_index is not None


def plan_skip(queries: Queries, situation: Situation, count: int, unit: Unit) -> SkipPlan:
    """Return the plan to skip `count` messages or entries; raise `SkipInsideMessage` with the possible counts."""
    finder = BoundaryFinder(situation.backlog, count, unit)
    first = situation.backlog.entry(1)
    if finder.exact or first is None:
        return SkipPlan(situation, finder.boundary, Strategy.ARITHMETIC, exact=finder.exact)
    if not situation.chunked:
        plan = _count(queries, situation, count, unit)
        if plan is not None:
            return plan
    if situation.batch_index_acks is None and unit == "message":
        situation = replace(situation, batch_index_acks=bool(queries.keeps_batch_indexes()))
    through_subscription = situation.may_hide_acks and situation.idle
    cheapest = cheapest_scan(situation.backlog, count, situation.entry_bytes)
    strategy = Strategy.SUBSCRIPTION if through_subscription else cheapest
    finder = _scan(queries, situation, count, unit, strategy, frozenset())
    ignored: set[MessageKey] = set()
    while not finder.exact:
        late = {key for key, one in finder.unfinished.items() if situation.now_ms - one.newest > _ABANDONED_MS}
        undeliverable = finder.broken if finder.following else finder.broken | late
        if undeliverable <= ignored:
            break
        ignored |= undeliverable
        finder = _scan(queries, situation, count, unit, strategy, frozenset(ignored))
    if not finder.exact and (finder.following or finder.unfinished):
        raise _inside_message_error(finder.boundary, finder.following, count, unit, finder.unfinished)
    hidden = situation.may_hide_acks and strategy is not Strategy.SUBSCRIPTION and finder.saw_batches
    return SkipPlan(situation, finder.boundary, strategy, exact=finder.exact and not hidden)


def _count(queries: Queries, situation: Situation, count: int, unit: Unit) -> SkipPlan | None:
    """Count without reading the topic; None if nothing is proved."""
    backlog, unbatched = situation.backlog, situation.unbatched
    counter, found = HeaderCounter(queries, backlog, unbatched=unbatched), None
    if unbatched or not (situation.may_hide_acks and situation.idle):
        found = counter.find(count, unit)
    if found is None and not unbatched and not counter.indexed and _is_unbatched(queries, backlog, count):
        counter, unbatched = HeaderCounter(queries, backlog, unbatched=True), True
        found = counter.find(count, unit)
    if found is None:
        return None
    uncounted = Strategy.ARITHMETIC if unbatched else Strategy.ANALYSIS
    strategy = Strategy.INDEX if counter.indexed else uncounted
    counted = replace(situation, may_hide_acks=situation.may_hide_acks and not unbatched)
    return _from_count(queries, counted, found, count, unit, strategy)


def check_count(count: int) -> None:
    """Raise if a count is not an int, is negative, or exceeds the broker's 64 bits."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MAX_LONG:
        raise InvalidUse(f"The count must be an int from 0 to {_MAX_LONG}, got {count!r}. Nothing was moved.")


def cheapest_scan(backlog: Backlog, count: int, entry_bytes: float) -> Strategy:
    """Choose the scan for `count` messages, if headers show everything that is needed."""
    few = min(count, backlog.total) <= _FEW_ENTRIES or entry_bytes >= _BIG_ENTRY_BYTES
    return Strategy.HEADERS if few else Strategy.READER


def _scan(
    queries: Queries, situation: Situation, count: int, unit: Unit, strategy: Strategy, abandoned: frozenset[MessageKey]
) -> BoundaryFinder:
    finder = BoundaryFinder(
        situation.backlog, count, unit, inside_batches=bool(situation.batch_index_acks), abandoned=abandoned
    )
    first = situation.backlog.entry(1)
    assert first is not None  # noqa: S101  # plan_skip() has checked it
    with contextlib.closing(queries.scan(situation.backlog, strategy, first)) as items:
        for item in items:
            finder.feed(item)
            if finder.done:
                break
    return finder


def _from_count(
    queries: Queries, situation: Situation, found: CountedEntry, count: int, unit: Unit, strategy: Strategy
) -> SkipPlan:
    backlog = situation.backlog
    end = Boundary(found.position, found.messages, backlog.entries(found.position))
    hidden = situation.may_hide_acks and end.messages > end.entries
    if end.count(unit) <= count:
        return SkipPlan(situation, end, strategy, exact=end.count(unit) == count and not hidden)
    before = backlog.ledgers.number(backlog.ledgers.up_to(found.position) - 1) or backlog.mark_delete
    start = Boundary(max(before, backlog.mark_delete), found.messages - found.size, backlog.entries(before))
    inside = count - start.messages
    batch_index_acks = situation.batch_index_acks
    if inside and batch_index_acks is None:
        batch_index_acks = bool(queries.keeps_batch_indexes())
    if inside and not batch_index_acks:
        raise _inside_message_error(start, end, count, unit, {})
    boundary = replace(start, messages=count, batch_index=inside) if inside else start
    return SkipPlan(situation, boundary, strategy, exact=not hidden)


def _inside_message_error(
    boundary: Boundary, following: Boundary | None, count: int, unit: Unit, unfinished: dict[MessageKey, OpenMessage]
) -> SkipInsideMessage:
    below, above = boundary.count(unit), None if following is None else following.count(unit)
    begin = f"Skipping {counted(count, unit)} would end inside a message after {boundary.position}"
    if above is not None:
        what = (
            f"{begin}; possible counts are {below} and {above}. Nothing was moved. A skip can end inside a batch only "
            "if the broker has acknowledgmentAtBatchIndexLevelEnabled, and never inside a chunked message."
        )
    else:
        first = min(one.first for one in unfinished.values())
        what = (
            f"{begin}; the highest possible count is {below} while the chunked message that begins at {first} is "
            f"incomplete. Nothing was moved. Retry later: without a new chunk for {_ABANDONED_MS // 1000} s, that "
            "message counts as lost, as it does for consumers."
        )
    return SkipInsideMessage(what, requested=count, unit=unit, below=below, above=above, position=boundary.position)
