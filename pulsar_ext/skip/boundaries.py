"""Where a cursor can stand: at the boundary of two messages, never inside one (pure).

A cursor stands between two entries. Messages are something else: a batch is many of them in one entry, a chunked one is
many entries, and the chunks of several producers interleave. A *clean boundary* is one that no deliverable message lies
across. `BoundaryFinder` is fed what a topic holds, in order, and finds the clean boundary that so many messages lie
before, or the two nearest. What is acknowledged counts nothing, nor does a message that can never be delivered whole.

`Backlog` is a subscription's backlog as ledger arithmetic, with what the broker's counters prove about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pulsar_ext.chunks.search import AskEntry
from pulsar_ext.ids.position import Ledgers, Position, PositionRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata, InternalStats, TopicStats
    from pulsar_ext.chunks.search import Search


@dataclass(frozen=True)
class Backlog:
    """What a cursor has before it.

    Args:
        ledgers: the topic's entries.
        mark_delete: everything up to here is acknowledged.
        deleted: what is acknowledged behind that, in order.
    """

    ledgers: Ledgers = field(compare=False)
    mark_delete: Position
    deleted: tuple[PositionRange, ...] = ()

    @classmethod
    def of(cls, stats: InternalStats, subscription: str) -> Backlog:
        """Read the internal statistics of a topic that has the subscription."""
        cursor = stats.cursors[subscription]
        return cls(
            Ledgers(stats.ledger_sizes()),
            cursor.mark_delete_position,
            tuple(cursor.individually_deleted),
        )

    def acked_until(self, position: Position) -> Position | None:
        """Give the last entry of its ledger that is acknowledged with this one; None if this one is not."""
        ledgers = self.ledgers
        for one in (PositionRange(Position(-1, -1), self.mark_delete), *self.deleted):
            if position in one:
                end = ledgers.number(min(ledgers.up_to(one.last), ledgers.up_to(Position(position.ledger_id + 1, -1))))
                return max(position, end or position)
        return None

    def entries(self, last: Position) -> int:
        """Count the entries up to `last` that are not acknowledged."""
        holes = sum(
            self.ledgers.between(max(one.after, self.mark_delete), min(one.last, last))
            for one in self.deleted
            if one.last > self.mark_delete and one.after < last
        )
        return self.ledgers.between(self.mark_delete, last) - holes

    def entry(self, nth: int) -> Position | None:
        """Give the n-th entry, 1-based, that is not acknowledged; None past the end."""
        number = self.ledgers.up_to(self.mark_delete) + nth
        for one in self.deleted:
            first = max(self.ledgers.up_to(one.after), self.ledgers.up_to(self.mark_delete)) + 1
            if number < first:
                break
            number += max(self.ledgers.up_to(one.last) - first + 1, 0)
        return self.ledgers.number(number)

    @property
    def state(self) -> tuple[Position | None, tuple[tuple[int, int], ...]]:
        """Where the cursor stands, the same for every way to write it: a trim or a new ledger changes how it reads."""
        base = self.ledgers.up_to(self.mark_delete)
        holes = ((self.ledgers.up_to(one.after) - base, self.ledgers.up_to(one.last) - base) for one in self.deleted)
        first = self.entry(1)
        gone = 0 if first is None else self.ledgers.up_to(first) - base
        return first, tuple((after - gone, last - gone) for after, last in holes if last > gone)


def is_fresh(internal: InternalStats, backlog: Backlog) -> bool:
    """Whether the whole backlog was written since the broker loaded the topic, so that its counters cover it."""
    last = backlog.ledgers.last
    behind = 0 if last is None else backlog.ledgers.between(backlog.mark_delete, last)
    added: int = internal.raw["entriesAddedCounter"]
    return behind <= added


def is_unbatched(internal: InternalStats, stats: TopicStats, backlog: Backlog) -> bool:
    """Whether the broker's counters show that no entry of the backlog is a batch: as many messages as entries came.

    The statistics have to be younger than the internal ones: a message that comes in between then disproves it.
    """
    # Transactions and replicated subscriptions write markers, entries that no message was counted for.
    marked = any(stats.raw.get(f"{kind}TxnCount") for kind in ("ongoing", "committed", "aborted")) or any(
        one.raw.get("isReplicated") for one in stats.subscriptions.values()
    )
    added: int = internal.raw["entriesAddedCounter"]
    return is_fresh(internal, backlog) and stats.messages_in == added and not marked


Unit = Literal["message", "entry"]
MessageKey = tuple[str | None, str, int]
"""What the chunks of one message share: uuid, producer, sequence id."""


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Consecutive entries of one ledger, each of so many messages, none of them a chunk; markers have 0 messages."""

    ledger_id: int
    first: int
    last: int
    messages: int

    @property
    def end(self) -> Position:
        """The last entry of the run."""
        return Position(self.ledger_id, self.last)


@dataclass(frozen=True, slots=True)
class PartialBatch:
    """A batch of which some messages are acknowledged: the indexes of those that are not."""

    position: Position
    indexes: tuple[int, ...]

    @property
    def end(self) -> Position:
        """The entry."""
        return self.position


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a message."""

    position: Position
    message: MessageKey
    index: int
    of: int
    publish_time: int

    @property
    def end(self) -> Position:
        """The entry."""
        return self.position


ScanItem = EntryRun | PartialBatch | Chunk
"""What a scan of a topic gives, one after the other."""


def entry_after(item: ScanItem, ledgers: Ledgers) -> Position:
    """Give where a scan goes on behind an item, at the end of the topic one entry further."""
    end = item.end
    return ledgers.next(end) or Position(end.ledger_id, end.entry_id + 1)


def item_of(headers: EntryMetadata) -> ScanItem:
    """Make an item of an entry's headers."""
    at = headers.position
    if headers.is_chunk:
        key = (headers.uuid, headers.producer_name, headers.sequence_id)
        return Chunk(at, key, headers.chunk_id or 0, headers.num_chunks or 0, headers.publish_time)
    unseen = headers.marker_type is not None or headers.txn_aborted
    return EntryRun(at.ledger_id, at.entry_id, at.entry_id, 0 if unseen else headers.message_count)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a cursor can stand: behind the entry `position`, with so much before it that is not acknowledged.

    With a `batch_index`, the boundary is inside the next entry: before that message of its batch.
    """

    position: Position
    messages: int
    entries: int
    batch_index: int | None = None

    def count(self, unit: Unit) -> int:
        """Give what lies before it, in messages or entries."""
        return self.messages if unit == "message" else self.entries


@dataclass(slots=True)
class _Open:
    """A chunked message whose last chunk has not come yet."""

    first: Position
    newest: int
    seen: int = 0


class BoundaryFinder:
    """Finds the clean boundary that `wanted` messages or entries lie before.

    Feed it the items of a scan, in the order of the topic, until `done`. Then `exact` says whether there is such a
    boundary: it is `boundary`, else `boundary` is the last clean one before it, and `following` the first one behind
    it, None where the topic ends first. `broken` are messages that turned out to be undeliverable after boundaries
    inside them had been passed over: looking again with these as `abandoned` may find a better one.

    Args:
        backlog: where the cursor stands.
        wanted: how many, 0 or more.
        unit: of what.
        inside_batches: whether a boundary may be inside a batch.
        abandoned: chunked messages whose rest never comes.
    """

    def __init__(
        self,
        backlog: Backlog,
        wanted: int,
        unit: Unit,
        *,
        inside_batches: bool = False,
        abandoned: frozenset[MessageKey] = frozenset(),
    ) -> None:
        self.boundary = Boundary(backlog.mark_delete, 0, 0)
        self.following: Boundary | None = None
        self.saw_batches = False
        self.broken: set[MessageKey] = set()
        self._wanted, self._inside_batches, self._abandoned = wanted, inside_batches, abandoned
        self._unit: Unit = unit
        self._messages = self._entries = 0
        self._open: dict[MessageKey, _Open] = {}
        self._acknowledged = _Acknowledged(backlog)

    @property
    def exact(self) -> bool:
        """Whether `boundary` is the one that was asked for."""
        return self.boundary.count(self._unit) == self._wanted

    @property
    def done(self) -> bool:
        """Whether more items would change nothing."""
        return self.exact or self.following is not None

    @property
    def unfinished(self) -> dict[MessageKey, tuple[Position, int]]:
        """The chunked messages that lie across the end: where each begins, and when its newest chunk was published."""
        return {key: (one.first, one.newest) for key, one in self._open.items()}

    def feed(self, item: ScanItem) -> None:
        """Take the next item of the scan."""
        if isinstance(item, Chunk):
            self._take_chunk(item)
        elif isinstance(item, PartialBatch):
            self.saw_batches = True
            self._take_entries(item.position.ledger_id, item.position.entry_id, 1, item.indexes)
        else:
            self.saw_batches |= item.messages > 1
            for first, count in self._acknowledged.rest_of(item):
                self._take_entries(item.ledger_id, first, count, range(item.messages))
                if self.done:
                    break

    def _take_entries(self, ledger_id: int, first: int, count: int, indexes: Sequence[int]) -> None:
        """Take consecutive entries, none acknowledged, each with messages of these indexes."""
        each = len(indexes)
        step = each if self._unit == "message" else 1
        whole, inside = count, 0
        if not self._open and step:
            missing = self._wanted - (self._messages if self._unit == "message" else self._entries)
            whole, inside = min(count, missing // step), missing % step
        if whole:
            self._add(Position(ledger_id, first + whole - 1), each * whole, whole)
        if whole == count or not inside:
            return
        if self._inside_batches:
            self.boundary = Boundary(
                Position(ledger_id, first + whole - 1), self._wanted, self._entries, indexes[inside]
            )
        else:
            self._add(Position(ledger_id, first + whole), each, 1)

    def _take_chunk(self, chunk: Chunk) -> None:
        acked = self._acknowledged.holds(chunk.position)
        key = chunk.message
        one = self._open.get(key)
        if acked or key in self._abandoned:
            self._drop(key)
        elif chunk.index == 0:
            self._open[key] = _Open(chunk.position, chunk.publish_time, 1)
        elif one is not None and chunk.index == one.seen:
            one.seen, one.newest = one.seen + 1, chunk.publish_time
        elif one is not None and chunk.index > one.seen:
            self._drop(key)
        whole = key in self._open and self._open[key].seen == chunk.of
        if whole:
            del self._open[key]
        self._add(chunk.position, int(whole), int(not acked))

    def _drop(self, key: MessageKey) -> None:
        if self._open.pop(key, None) is not None:
            self.broken.add(key)

    def _add(self, position: Position, messages: int, entries: int) -> None:
        self._messages += messages
        self._entries += entries
        if self._open:
            return
        here = Boundary(position, self._messages, self._entries)
        if here.count(self._unit) <= self._wanted:
            self.boundary = here
        else:
            self.following = here


class _Acknowledged:
    """Takes what is acknowledged out of what the topic holds; asked in the order of the topic."""

    def __init__(self, backlog: Backlog) -> None:
        self._mark = backlog.mark_delete
        self._ranges = list(reversed(backlog.deleted))

    def holds(self, position: Position) -> bool:
        """Whether the entry is acknowledged."""
        self._forget(position)
        return position <= self._mark or bool(self._ranges and position in self._ranges[-1])

    def rest_of(self, run: EntryRun) -> Iterator[tuple[int, int]]:
        """Give `(first, count)` of the stretches of a run that are not acknowledged."""
        ledger, at = run.ledger_id, run.first
        while at <= run.last:
            here = Position(ledger, at)
            self._forget(here)
            if here <= self._mark:
                at = run.last + 1 if ledger < self._mark.ledger_id else self._mark.entry_id + 1
            elif self._ranges and here in self._ranges[-1]:
                at = run.last + 1 if self._ranges[-1].last.ledger_id > ledger else self._ranges[-1].last.entry_id + 1
            else:
                after = self._ranges[-1].after if self._ranges else Position(ledger, run.last)
                end = run.last if after.ledger_id > ledger else min(after.entry_id, run.last)
                yield at, end - at + 1
                at = end + 1

    def _forget(self, position: Position) -> None:
        while self._ranges and self._ranges[-1].last < position:
            self._ranges.pop()


def before_open_transactions(ledgers: Ledgers) -> Search[Ledgers]:
    """Return the entries that consumers may get now: by the last one's headers and, if need be, those of a few more.

    The broker delivers nothing from the first message of an open transaction on, other messages included, until that
    transaction ends: an abort would take its messages back. So how many messages follow there is not known yet.
    """
    readable, last = 0, ledgers.last
    end = 0 if last is None else ledgers.up_to(last)
    if not (yield from _is_held_back(ledgers, end)):
        return ledgers
    while end - readable > 1:  # the entry `end` is held back, the entry `readable` is not
        middle = (readable + end) // 2
        if (yield from _is_held_back(ledgers, middle)):
            end = middle
        else:
            readable = middle
    return ledgers.first(readable)


def _is_held_back(ledgers: Ledgers, nth: int) -> Search[bool]:
    at = ledgers.number(nth)
    headers: EntryMetadata | None = None if at is None else (yield AskEntry(at))
    return headers is not None and headers.txn_uncommitted
