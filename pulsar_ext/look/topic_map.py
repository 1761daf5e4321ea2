"""Map of one topic or partition, computed from the admin API's answers, and its rows in cells (pure).

Entries are numbered from 1 through all stored ledgers; a map is drawn over these numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # dataclasses are read at run time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pulsar_ext.admin import EntryMetadata, SubscriptionStats
    from pulsar_ext.doctor.findings import Run, TopicFacts


EntryKind = Literal["message", "batch", "chunk"]


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """Stored ledger from entry number `first` on; `size` is in bytes, and the broker writes to the open one."""

    ledger_id: int
    first: int
    entries: int
    size: int
    is_open: bool
    offloaded: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive entries that a cursor has not acknowledged: their numbers (`first`, `last`) and positions.

    With acknowledged entries after it (`acknowledged_behind`), it is a hole.
    """

    first: int
    last: int
    begin: str
    end: str
    acknowledged_behind: int

    @property
    def entries(self) -> int:
        """Number of entries in the stretch."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class CursorMap:
    """Cursor of a subscription, of a reader or of the compaction.

    Args:
        type: the broker's name of its type, such as Shared; empty if unknown.
        mark_delete: position up to which everything is acknowledged, with the number `acknowledged_until`.
        read_position: position of the next entry that the broker reads for it, after the number `read_until`.
        backlog_bytes: approximate size of the unacknowledged entries, which are the `stretches`.
        unacknowledged_messages: number of messages that consumers hold, as far as the broker counts them.
        rate_out: messages per second.
        lag_seconds: age of the first unacknowledged message; None without one, or if unknown.
    """

    name: str
    type: str
    durable: bool
    mark_delete: str
    acknowledged_until: int
    read_position: str
    read_until: int
    backlog_entries: int
    backlog_bytes: int
    stretches: tuple[Stretch, ...]
    consumers: tuple[str, ...]
    unacknowledged_messages: int
    rate_out: float
    lag_seconds: float | None

    @property
    def holes(self) -> tuple[Stretch, ...]:
        """Stretches before acknowledged entries."""
        return tuple(one for one in self.stretches if one.acknowledged_behind)


@dataclass(frozen=True, slots=True)
class ChunkedMessage:
    """Chunked message of `of_chunks` chunks, and the chunk ids of its inspected entries, by entry number."""

    producer: str
    sequence_id: int
    of_chunks: int
    size: int
    chunks: Mapping[int, int]
    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class TopicMap:
    """Map of one topic or partition.

    Args:
        ledgers: those with entries, in order.
        cursors: the one with the largest backlog first.
        kinds: kind of each inspected entry, by entry number.
        batches: number of inspected batches, by the number of their messages.
        rate_in: messages per second.
    """

    name: str
    entries: int
    size: int
    ledgers: tuple[LedgerSpan, ...]
    cursors: tuple[CursorMap, ...]
    kinds: Mapping[int, EntryKind]
    batches: Mapping[int, int]
    chunked: tuple[ChunkedMessage, ...]
    rate_in: float
    producers: tuple[str, ...]
    deduplication: bool


def map_of(facts: TopicFacts) -> TopicMap:
    """Return the map of a topic."""
    seen = {facts.number_of(position): one for position, one in sorted(facts.entries.items())}
    cursors = [_cursor(facts, name) for name in facts.internal.cursors if facts.only in (None, name)]
    return TopicMap(
        name=facts.name,
        entries=0 if facts.ledgers.last is None else facts.number_of(facts.ledgers.last),
        size=facts.internal.total_size,
        ledgers=tuple(_ledgers(facts)),
        cursors=tuple(sorted(cursors, key=lambda one: (-one.backlog_entries, one.name))),
        kinds={number: _kind(one) for number, one in seen.items()},
        batches=dict(sorted(Counter(one.message_count for one in seen.values() if _kind(one) == "batch").items())),
        chunked=tuple(_chunked(seen)),
        rate_in=_rate_in(facts),
        producers=facts.stats.publishers,
        deduplication=facts.stats.deduplication_status == "Enabled",
    )


def _ledgers(facts: TopicFacts) -> Iterable[LedgerSpan]:
    infos = {one.ledger_id: one for one in facts.internal.ledgers}
    first, last = 1, facts.internal.ledgers[-1].ledger_id if infos else -1
    for ledger_id, entries in facts.ledgers:
        is_open = ledger_id == last
        size = max(infos[ledger_id].size, facts.internal.current_ledger_size if is_open else 0)
        yield LedgerSpan(ledger_id, first, entries, size, is_open, infos[ledger_id].offloaded)
        first += entries


def _cursor(facts: TopicFacts, name: str) -> CursorMap:
    cursor, stats = facts.internal.cursors[name], facts.stats.subscriptions.get(name)
    stretches = tuple(_stretch(facts, run) for run in facts.runs[name])
    entries = sum(one.entries for one in stretches)
    first = facts.entries.get(facts.position(stretches[0].first)) if stretches else None
    return CursorMap(
        name=name,
        type=stats.type if stats is not None else "",
        durable=stats is None or stats.durable,
        mark_delete=str(cursor.mark_delete_position),
        acknowledged_until=facts.number_of(cursor.mark_delete_position),
        read_position=str(cursor.read_position),
        read_until=facts.read_until(name),
        backlog_entries=entries,
        backlog_bytes=round(entries * facts.internal.entry_bytes()),
        stretches=stretches,
        consumers=stats.consumers if stats is not None else (),
        unacknowledged_messages=stats.unacked_messages if stats is not None else 0,
        rate_out=_rate_out(facts, name, stats),
        lag_seconds=None if first is None else facts.seconds_since(first.publish_time),
    )


def _stretch(facts: TopicFacts, run: Run) -> Stretch:
    begin, end = str(facts.position(run.first)), str(facts.position(run.last))
    return Stretch(run.first, run.last, begin, end, run.acknowledged_after)


def _kind(entry: EntryMetadata) -> EntryKind:
    if entry.is_chunk:
        return "chunk"
    return "message" if entry.num_messages_in_batch is None else "batch"


def _chunked(seen: Mapping[int, EntryMetadata]) -> Iterable[ChunkedMessage]:
    messages: dict[object, dict[int, EntryMetadata]] = {}
    for number, one in seen.items():
        if one.is_chunk:
            messages.setdefault((one.uuid, one.producer_name, one.sequence_id), {})[number] = one
    for chunks in messages.values():
        first, last = chunks[min(chunks)], chunks[max(chunks)]
        yield ChunkedMessage(
            producer=first.producer_name,
            sequence_id=first.sequence_id,
            of_chunks=first.num_chunks or 0,
            size=first.total_chunk_size or 0,
            chunks={number: one.chunk_id or 0 for number, one in chunks.items()},
            begin=str(first.position),
            end=str(last.position),
        )


def _rate_in(facts: TopicFacts) -> float:
    """Return the messages per second during the watch; without a watch, the broker's rate."""
    if not facts.later or facts.limits.pause_seconds <= 0:
        rate: float = facts.stats.raw.get("msgRateIn", 0.0)
        return rate
    return max(facts.later[-1][0].messages_in - facts.stats.messages_in, 0) / facts.limits.pause_seconds


def _rate_out(facts: TopicFacts, name: str, stats: SubscriptionStats | None) -> float:
    if stats is None:
        return 0.0
    later = facts.later[-1][0].subscriptions.get(name) if facts.later else None
    if later is None or facts.limits.pause_seconds <= 0:
        rate: float = stats.raw.get("msgRateOut", 0.0)
        return rate
    return max(later.delivered_messages - stats.delivered_messages, 0) / facts.limits.pause_seconds


T = TypeVar("T")

State = Literal["acknowledged", "unread", "delivered", "hole"]
"""State of an entry for a cursor, in ascending priority: a cell of several entries shows the highest."""

_WEIGHT: dict[State, int] = {"acknowledged": 0, "unread": 1, "delivered": 2, "hole": 3}
_KIND_WEIGHT: dict[EntryKind | None, int] = {None: 0, "message": 1, "batch": 2, "chunk": 3}


def cells_of(entries: int, limit: int) -> int:
    """Return the number of cells for `entries` entries: one each, up to the limit."""
    return min(entries, limit)


def _cell(number: int, entries: int, cells: int) -> int:
    """Return the 0-based cell of an entry."""
    return (number - 1) * cells // entries


def cursor_states(topic: TopicMap, cursor: CursorMap, cells: int) -> list[State]:
    """Return a cursor's state in each cell; the time is linear in its stretches and the cells."""
    states: list[State] = ["acknowledged"] * cells
    for one in cursor.stretches:
        read = min(max(cursor.read_until, one.first - 1), one.last)
        if one.acknowledged_behind:
            _raise_to(states, "hole", _cell(one.first, topic.entries, cells), _cell(one.last, topic.entries, cells))
            continue
        if read >= one.first:
            _raise_to(states, "delivered", _cell(one.first, topic.entries, cells), _cell(read, topic.entries, cells))
        if read < one.last:
            _raise_to(states, "unread", _cell(read + 1, topic.entries, cells), _cell(one.last, topic.entries, cells))
    return states


def _raise_to(states: list[State], state: State, first: int, last: int) -> None:
    for at in range(first, last + 1):
        if _WEIGHT[states[at]] < _WEIGHT[state]:
            states[at] = state


def ledger_cells(topic: TopicMap, cells: int) -> list[str]:
    """Return the id of the ledger in which each cell begins."""
    found: list[str] = []
    for one in topic.ledgers:
        last = _cell(one.first + one.entries - 1, topic.entries, cells)
        found += [str(one.ledger_id)] * (last + 1 - len(found))
    return found


def entry_kinds(topic: TopicMap, cells: int) -> list[EntryKind | None]:
    """Return the kind of the entries of each cell; None if none of them was inspected."""
    kinds: list[EntryKind | None] = [None] * cells
    for number, kind in topic.kinds.items():
        at = _cell(number, topic.entries, cells)
        if _KIND_WEIGHT[kinds[at]] < _KIND_WEIGHT[kind]:
            kinds[at] = kind
    return kinds


def joined(cells: Sequence[T]) -> list[tuple[int, int, T]]:
    """Join equal neighbours to triples of the first cell, the number of cells, and the value."""
    parts, at = [], 0
    for what, same in groupby(cells):
        count = len(list(same))
        parts.append((at, count, what))
        at += count
    return parts
