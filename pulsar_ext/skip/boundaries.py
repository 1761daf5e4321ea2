"""Possible positions of a cursor: between two messages, never inside one (pure).

A cursor is between two entries, but entries are not messages: a batch is many messages in one entry, a chunked message
is many entries, and the chunks of several producers interleave. A *clean boundary* is inside no deliverable message.
`BoundaryFinder` gets the items of a topic in order, and finds the clean boundary after a number of messages, or the two
nearest ones. Acknowledged messages do not count, nor do messages that are never delivered because chunks are missing.

`Backlog` is a subscription's backlog, computed from the ledgers' sizes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate, islice
from operator import itemgetter
from typing import Literal, NamedTuple

from pulsar_ext.admin import EntryMetadata, InternalStats, TopicStats
from pulsar_ext.ids.position import Ledgers, Position, PositionRanges


class Strategy(Enum):
    """Method by which messages were counted."""

    INDEX = "index"
    """The broker's message index: a few requests for any count."""
    ARITHMETIC = "arithmetic"
    """Entries per ledger, each being one message: a few requests for any count."""
    ANALYSIS = "analysis"
    """The broker reads the entries and returns the number of messages in them."""
    HEADERS = "headers"
    """The headers of every entry up to the boundary."""
    READER = "reader"
    """A reader reads the topic up to the boundary."""
    SUBSCRIPTION = "subscription"
    """A consumer receives from the subscription, which is the only way to see acknowledgements inside batches."""


_NONE = PositionRanges(())


@dataclass(frozen=True)
class Backlog:
    """Entries after a cursor; `deleted` are the acknowledged ranges after its mark-delete position, in order."""

    ledgers: Ledgers = field(compare=False)
    mark_delete: Position
    deleted: PositionRanges = _NONE

    @classmethod
    def of(cls, stats: InternalStats, subscription: str) -> Backlog:
        """Read the internal statistics of a topic that has the subscription."""
        cursor = stats.cursors[subscription]
        return cls(Ledgers(stats.ledger_sizes()), cursor.mark_delete_position, cursor.individually_deleted)

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """The runs of unacknowledged entries, each by the numbers of its first and last entry in the topic."""
        return list(self.ledgers.unacknowledged(self.mark_delete, self.deleted))

    @cached_property
    def _before(self) -> list[int]:
        """The number of unacknowledged entries before each run, and of all."""
        return list(accumulate((last - first + 1 for first, last in self.runs), initial=0))

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The runs of acknowledged entries after the first unacknowledged entry."""
        ends = (*(first - 1 for first, _ in self.runs[1:]), self.ledgers.entries)
        return [(last + 1, end) for (_, last), end in zip(self.runs, ends, strict=False) if last < end]

    def _runs_up_to(self, number: int) -> int:
        """Return the number of runs that begin at or before an entry."""
        return bisect_right(self.runs, number, key=itemgetter(0))

    def acked_until(self, position: Position) -> Position | None:
        """Return the last entry of the acknowledged run of an entry in its ledger; None if unacknowledged."""
        ledgers, number = self.ledgers, self.ledgers.up_to(position)
        at = self._runs_up_to(number)
        if at and number <= self.runs[at - 1][1]:
            return None
        end = self.runs[at][0] - 1 if at < len(self.runs) else ledgers.entries
        return ledgers[min(end, ledgers.up_to(Position(position.ledger_id + 1, -1)))]

    def unacknowledged_in(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the first entry and the number of entries of each unacknowledged part of consecutive entries."""
        begin, end = (self.ledgers.up_to(Position(ledger_id, entry)) for entry in (first, last))
        for run_first, run_last in islice(self.runs, max(self._runs_up_to(begin) - 1, 0), None):
            if run_first > end:
                break
            if run_last >= begin:
                start = max(run_first, begin)
                yield first + start - begin, min(run_last, end) - start + 1

    def entries(self, last: Position) -> int:
        """Return the number of unacknowledged entries up to `last`."""
        number = self.ledgers.up_to(last)
        at = self._runs_up_to(number)
        return self._before[at] - max(self.runs[at - 1][1] - number, 0) if at else 0

    def entry(self, nth: int) -> Position | None:
        """Return the n-th unacknowledged entry, 1-based; None past the end."""
        at = bisect_left(self._before, nth)
        return self.ledgers[self.runs[at - 1][1] - self._before[at] + nth] if 0 < at <= len(self.runs) else None

    @property
    def total(self) -> int:
        """Number of unacknowledged entries."""
        return self._before[-1]

    @property
    def state(self) -> tuple[Position | None, tuple[tuple[int, int], ...]]:
        """The cursor's state, independent of how it is written: a trim or a new ledger changes the positions in it."""
        offset = self.runs[0][0] if self.runs else 0
        return self.entry(1), tuple((first - offset, last - offset) for first, last in self.gaps)


def is_fresh(internal: InternalStats, backlog: Backlog) -> bool:
    """Return whether the whole backlog was written after the broker loaded the topic, so that its counters cover it."""
    added: int = internal.raw["entriesAddedCounter"]
    return backlog.ledgers.entries - backlog.ledgers.up_to(backlog.mark_delete) <= added


def is_unbatched(internal: InternalStats, stats: TopicStats, backlog: Backlog) -> bool:
    """Return whether the broker counted as many messages as entries, for `stats` that were read after `internal`."""
    # Transactions and replicated subscriptions write markers: entries that the message counter does not count.
    marked = any(stats.raw.get(f"{kind}TxnCount") for kind in ("ongoing", "committed", "aborted")) or any(
        one.raw.get("isReplicated") for one in stats.subscriptions.values()
    )
    added: int = internal.raw["entriesAddedCounter"]
    return is_fresh(internal, backlog) and stats.messages_in == added and not marked


Unit = Literal["message", "entry"]
MessageKey = tuple[str | None, str, int]
"""Key that the chunks of one message share: uuid, producer name, sequence id."""


class EntryRun(NamedTuple):
    """Consecutive entries of one ledger with `messages` messages each; markers have 0. Chunks are excluded."""

    ledger_id: int
    first: int
    last: int
    messages: int


class PartialBatch(NamedTuple):
    """A batch with some messages acknowledged; `indexes` are the unacknowledged ones."""

    position: Position
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Chunk of a message."""

    position: Position
    message: MessageKey
    index: int
    of: int
    publish_time: int


ScanItem = EntryRun | PartialBatch | Chunk


def entry_after(item: ScanItem, ledgers: Ledgers) -> Position:
    """Return the entry after an item; at the end of the topic, the last position plus one."""
    end = Position(item.ledger_id, item.last) if isinstance(item, EntryRun) else item.position
    return ledgers.next(end) or Position(end.ledger_id, end.entry_id + 1)


def item_of(headers: EntryMetadata) -> ScanItem:
    """Return the item for an entry's headers."""
    at = headers.position
    if headers.is_chunk:
        key = (headers.uuid, headers.producer_name, headers.sequence_id)
        return Chunk(at, key, headers.chunk_id or 0, headers.num_chunks or 0, headers.publish_time)
    undelivered = headers.marker_type is not None or headers.txn_aborted
    return EntryRun(at.ledger_id, at.entry_id, at.entry_id, 0 if undelivered else headers.message_count)


@dataclass(frozen=True, slots=True)
class Boundary:
    """A cursor's position, and what is before it; a `batch_index` is of the next message, inside the next entry."""

    position: Position
    messages: int
    entries: int
    batch_index: int | None = None

    def count(self, unit: Unit) -> int:
        """Return the number of messages or entries before it."""
        return self.messages if unit == "message" else self.entries


@dataclass(slots=True)
class OpenMessage:
    """Chunked message whose last chunk was not read yet: the first chunk, and the newest chunk's publish time."""

    first: Position
    newest: int
    seen: int = 0


@dataclass(eq=False)
class BoundaryFinder:
    """Search for the clean boundary after `wanted` messages or entries.

    Feed it the items of a scan, in the order of the topic, until `done`. If `exact`, `boundary` is the wanted one.
    Otherwise `boundary` is the last clean one before it, and `following` the first one after it, None if the topic ends
    first. `broken` are messages that proved undeliverable after boundaries inside them had been excluded. A second
    search with these as `abandoned`, whose remaining chunks are never written, may find a better boundary.
    """

    backlog: Backlog
    wanted: int
    unit: Unit
    inside_batches: bool = field(default=False, kw_only=True)
    abandoned: frozenset[MessageKey] = field(default=frozenset(), kw_only=True)
    boundary: Boundary = field(init=False)
    following: Boundary | None = field(default=None, init=False)
    saw_batches: bool = field(default=False, init=False)
    broken: set[MessageKey] = field(default_factory=set, init=False)
    unfinished: dict[MessageKey, OpenMessage] = field(default_factory=dict, init=False)
    _messages: int = field(default=0, init=False)
    _entries: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.boundary = Boundary(self.backlog.mark_delete, 0, 0)

    @property
    def exact(self) -> bool:
        """True if `boundary` is the wanted one."""
        return self.boundary.count(self.unit) == self.wanted

    @property
    def done(self) -> bool:
        """True if more items would change nothing."""
        return self.exact or self.following is not None

    def feed(self, item: ScanItem) -> None:
        """Add the next item of the scan."""
        if isinstance(item, Chunk):
            self._take_chunk(item)
        elif isinstance(item, PartialBatch):
            self.saw_batches = True
            self._take_entries(item.position.ledger_id, item.position.entry_id, 1, item.indexes)
        else:
            self.saw_batches |= item.messages > 1
            for first, count in self.backlog.unacknowledged_in(item.ledger_id, item.first, item.last):
                self._take_entries(item.ledger_id, first, count, range(item.messages))
                if self.done:
                    break

    def _take_entries(self, ledger_id: int, first: int, count: int, indexes: Sequence[int]) -> None:
        """Add consecutive unacknowledged entries, each with messages of these indexes."""
        each = len(indexes)
        step = each if self.unit == "message" else 1
        whole, inside = count, 0
        if not self.unfinished and step:
            missing = self.wanted - (self._messages if self.unit == "message" else self._entries)
            whole, inside = min(count, missing // step), missing % step
        if whole:
            self._add(Position(ledger_id, first + whole - 1), each * whole, whole)
        if whole == count or not inside:
            return
        if self.inside_batches:
            self.boundary = Boundary(
                Position(ledger_id, first + whole - 1), self.wanted, self._entries, indexes[inside]
            )
        else:
            self._add(Position(ledger_id, first + whole), each, 1)

    def _take_chunk(self, chunk: Chunk) -> None:
        acked = self.backlog.acked_until(chunk.position) is not None
        key = chunk.message
        one = self.unfinished.get(key)
        if acked or key in self.abandoned:
            self._drop(key)
        elif chunk.index == 0:
            self.unfinished[key] = OpenMessage(chunk.position, chunk.publish_time, 1)
        elif one is not None and chunk.index == one.seen:
            one.seen, one.newest = one.seen + 1, chunk.publish_time
        elif one is not None and chunk.index > one.seen:
            self._drop(key)
        whole = key in self.unfinished and self.unfinished[key].seen == chunk.of
        if whole:
            del self.unfinished[key]
        self._add(chunk.position, int(whole), int(not acked))

    def _drop(self, key: MessageKey) -> None:
        if self.unfinished.pop(key, None) is not None:
            self.broken.add(key)

    def _add(self, position: Position, messages: int, entries: int) -> None:
        self._messages += messages
        self._entries += entries
        if self.unfinished:
            return
        here = Boundary(position, self._messages, self._entries)
        if here.count(self.unit) <= self.wanted:
            self.boundary = here
        else:
            self.following = here


def before_open_transactions(ledgers: Ledgers, headers_of: Callable[[Position], EntryMetadata | None]) -> Ledgers:
    """Return the entries that consumers can get before an open transaction ends; bisect if the last one is not.

    The broker delivers nothing after the first message of an open transaction until the transaction ends: an abort
    would revoke its messages. So the number of messages after it is unknown.
    """

    def is_undeliverable(nth: int) -> bool:
        at = ledgers.number(nth)
        headers = None if at is None else headers_of(at)
        return headers is not None and headers.txn_uncommitted

    if not is_undeliverable(ledgers.entries):
        return ledgers
    return ledgers.first(bisect_left(range(1, ledgers.entries), x=True, key=is_undeliverable))
