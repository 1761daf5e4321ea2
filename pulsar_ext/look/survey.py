"""Survey of a topic: a map of each partition, computed from the doctor's facts (pure), and its diagnosis.

Entries are numbered from 1 through all stored ledgers; a map is drawn over these numbers, in cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

from pulsar_ext.admin import EntryMetadata, PulsarAdmin, SubscriptionStats
from pulsar_ext.chunks.leftovers import chunked_messages
from pulsar_ext.doctor.examination import Observer, wanted_entries
from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits, Run, TopicFacts
from pulsar_ext.doctor.rules import judge
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.position import Position

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
        backlog_bytes: approximate size of the unacknowledged entries, which are the `stretches`, some of them `holes`.
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
    holes: tuple[Stretch, ...]
    consumers: tuple[str, ...]
    unacknowledged_messages: int
    rate_out: float
    lag_seconds: float | None


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
    later = facts.later[-1][0].messages_in if facts.later else None
    cursors = [_cursor(facts, name) for name in facts.internal.cursors if facts.only in (None, name)]
    return TopicMap(
        name=facts.name,
        entries=facts.ledgers.entries,
        size=facts.internal.total_size,
        ledgers=tuple(_ledgers(facts)),
        cursors=tuple(sorted(cursors, key=lambda one: (-one.backlog_entries, one.name))),
        kinds={number: _kind(one) for number, one in seen.items()},
        batches=dict(sorted(Counter(one.message_count for one in seen.values() if _kind(one) == "batch").items())),
        chunked=tuple(_chunked(seen)),
        rate_in=_rate(facts, facts.stats.raw.get("msgRateIn", 0.0), facts.stats.messages_in, later),
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
        holes=tuple(one for one in stretches if one.acknowledged_behind),
        consumers=stats.consumers if stats is not None else (),
        unacknowledged_messages=stats.unacked_messages if stats is not None else 0,
        rate_out=0.0 if stats is None else _rate_out(facts, name, stats),
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
    numbers = {one.position: number for number, one in seen.items()}
    for chunks in chunked_messages(seen.values()):
        first, last = chunks[0], chunks[-1]
        yield ChunkedMessage(
            producer=first.producer_name,
            sequence_id=first.sequence_id,
            of_chunks=first.num_chunks or 0,
            size=first.total_chunk_size or 0,
            chunks={numbers[one.position]: one.chunk_id or 0 for one in chunks},
            begin=str(first.position),
            end=str(last.position),
        )


def _rate_out(facts: TopicFacts, name: str, stats: SubscriptionStats) -> float:
    later = facts.later[-1][0].subscriptions.get(name) if facts.later else None
    after = None if later is None else later.delivered_messages
    return _rate(facts, stats.raw.get("msgRateOut", 0.0), stats.delivered_messages, after)


def _rate(facts: TopicFacts, of_broker: float, before: int, after: int | None) -> float:
    """Return the messages per second during the watch; without a watch, the broker's rate."""
    seconds = facts.limits.pause_seconds
    return of_broker if after is None or seconds <= 0 else max(after - before, 0) / seconds


T = TypeVar("T")

State = Literal["acknowledged", "unread", "delivered", "hole"]
"""State of an entry for a cursor."""

_STATES: tuple[State, ...] = ("acknowledged", "unread", "delivered", "hole")
_KINDS: tuple[EntryKind | None, ...] = (None, "message", "batch", "chunk")
"""In ascending priority: a cell of several entries shows the highest."""


def _in_cells(topic: TopicMap, cells: int, parts: Iterable[tuple[T, int, int]], values: Sequence[T]) -> list[T]:
    """Draw values of entries, from a first to a last number, in cells: the one that is last in `values` is on top."""
    drawn = [values[0]] * cells
    for value, first, last in parts:
        begin, end = ((number - 1) * cells // topic.entries for number in (first, last))
        for at in range(begin, end + 1) if first <= last else ():
            drawn[at] = max(drawn[at], value, key=values.index)
    return drawn


def cursor_states(topic: TopicMap, cursor: CursorMap, cells: int) -> list[State]:
    """Return a cursor's state in each cell; the time is linear in its stretches and the cells."""
    parts: list[tuple[State, int, int]] = []
    for one in cursor.stretches:
        read = min(max(cursor.read_until, one.first - 1), one.last)
        if one.acknowledged_behind:
            parts.append(("hole", one.first, one.last))
        else:
            parts += ("delivered", one.first, read), ("unread", read + 1, one.last)
    return _in_cells(topic, cells, parts, _STATES)


def ledger_cells(topic: TopicMap, cells: int) -> list[str]:
    """Return the id of the ledger in which each cell begins."""
    found: list[str] = []
    for one in topic.ledgers:
        last = (one.first + one.entries - 2) * cells // topic.entries
        found += [str(one.ledger_id)] * (last + 1 - len(found))
    return found


def entry_kinds(topic: TopicMap, cells: int) -> list[EntryKind | None]:
    """Return the kind of the entries of each cell; None if none of them was inspected."""
    return _in_cells(topic, cells, ((kind, number, number) for number, kind in topic.kinds.items()), _KINDS)


def joined(cells: Sequence[T]) -> list[tuple[int, int, T]]:
    """Join equal neighbours to triples of the first cell, the number of cells, and the value."""
    parts, at = [], 0
    for what, same in groupby(cells):
        count = len(list(same))
        parts.append((at, count, what))
        at += count
    return parts


@dataclass(frozen=True, slots=True)
class MapLimits(DiagnosisLimits):
    """Limits of a survey: those of a diagnosis, with more entries, and a shorter watch that measures rates.

    Args:
        entries: Maximum number of entries to inspect per topic. Each takes a request.
        pause_seconds: Seconds to count messages for the rates. With 0 the rates are the broker's.
    """

    entries: int = 200
    pause_seconds: float = 1.0


@dataclass(frozen=True)
class Survey:
    """Maps and diagnosis of a topic, from the same answers.

    Args:
        maps: of the topic, or of each of its partitions.
        diagnosis: the doctor's findings.
    """

    maps: tuple[TopicMap, ...]
    diagnosis: Diagnosis

    def to_dict(self) -> dict[str, Any]:
        """Return the survey as JSON values."""
        return {"topics": list(map(asdict, self.maps)), "diagnosis": self.diagnosis.to_dict()}


def survey(
    admin: PulsarAdmin,
    topic: str,
    subscription: str | None = None,
    limits: DiagnosisLimits | None = None,
) -> Survey:
    """Survey a topic; arguments and errors are those of `doctor.examination.examine`."""
    if isinstance(topic, str) and "://" not in topic and topic.count("/") == 1:
        raise InvalidUse(f"{topic!r} is a namespace; name a topic, such as public/default/orders")
    chosen = MapLimits() if limits is None else limits
    seen = Observer(admin, subscription, chosen, lambda _: None, mapped_entries, lambda _: True).observe(topic)
    return Survey(tuple(map(map_of, seen.facts)), judge(seen))


def mapped_entries(facts: TopicFacts, limit: int) -> list[Position]:
    """Choose the entries to inspect: all; or each cursor's first one, the doctor's, and evenly spaced ones."""
    end = facts.ledgers.entries
    if end <= limit:
        return [facts.position(number) for number in range(1, end + 1)]
    firsts = [position for name in facts.internal.cursors for position in facts.first_unacknowledged(name, 1)]
    wanted = dict.fromkeys(firsts[: limit // 2]) | dict.fromkeys(wanted_entries(facts, limit // 3))
    room = max(limit - len(wanted), 0)
    between = (facts.position((2 * nth + 1) * end // (2 * room) + 1) for nth in range(room))
    return list(wanted | dict.fromkeys(between))[:limit]
