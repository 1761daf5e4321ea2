"""Offsets, the segments of topic partitions between them, and the division of segments among tasks (pure).

An offset means "everything up to and including this message, or this entry, has been read". It never means "entry + 1",
which would be wrong with chunks, compaction and markers; a read reaches it at any entry at or after it. The offset of a
chunked message is that of its *first* chunk: an offset at or after that chunk means that the whole message has been
read, so that a restart never begins inside a message. In a checkpoint, offsets are readable JSON.

A segment is a range of entries of one topic partition, `(after, until]`. Segments are cut by ledger arithmetic, so that
no entry is read twice. A message belongs to the segment with its entry; a chunked one, to that with its first chunk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pulsar_ext.errors import InvalidMessageId, InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

_WHOLE = 1 << 31
"""Batch index that represents the whole entry in comparisons."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Everything up to and including message `batch` of entry `entry`; with `batch` -1, the whole entry.

    `(ledger, -1)` is before the first entry of a ledger, `(-1, -1)` before everything.
    """

    ledger: int
    entry: int
    batch: int = -1

    @property
    def key(self) -> tuple[int, int, int]:
        """Sort key: a whole entry is after each of its messages."""
        return self.ledger, self.entry, self.batch if self.batch >= 0 else _WHOLE

    def __lt__(self, other: Offset) -> bool:
        return self.key < other.key

    def __le__(self, other: Offset) -> bool:
        return self.key <= other.key

    @property
    def position(self) -> Position:
        """Last entry that has been read as a whole, or the position before the first one."""
        return Position(self.ledger, self.entry if self.batch < 0 else self.entry - 1)

    @property
    def last_entry(self) -> Position:
        """Last entry of which any message has been read."""
        return Position(self.ledger, self.entry)

    @classmethod
    def at(cls, position: Position) -> Self:
        """Return the offset of everything up to and including an entry."""
        return cls(position.ledger_id, position.entry_id)

    @classmethod
    def of_message(cls, value: object) -> Self:
        """Return the offset up to and including a message, given by its id, text, hexadecimal bytes or JSON."""
        if isinstance(value, dict):
            return cls.from_json(value)
        found = value
        if isinstance(value, str):
            try:
                found = MessageId.parse(value)
            except InvalidMessageId:
                try:
                    found = MessageId.deserialize(bytes.fromhex(value))
                except ValueError:
                    raise InvalidMessageId(
                        f"{value!r} is not a message id: write earliest, latest, 'ledger:entry:partition[:batch]', "
                        "'first;last' for a chunked message, or the serialized id in hexadecimal."
                    ) from None
        if not isinstance(found, MessageId):
            raise InvalidMessageId(f"{value!r:.100} is not a message id.")
        first = found.first_chunk_message_id() if isinstance(found, ChunkMessageId) else found
        return cls(first.ledger_id(), first.entry_id(), first.batch_index())

    def just_before(self) -> Offset:
        """Return the offset of everything before this message: a read that starts there includes the message."""
        if self.batch > 0:
            return Offset(self.ledger, self.entry, self.batch - 1)
        return Offset(self.ledger, max(self.entry - 1, -1))

    def to_json(self) -> dict[str, int]:
        """Return the offset as JSON, always with equal keys in equal order."""
        return {"ledger": self.ledger, "entry": self.entry, "batch": self.batch}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Parse the value of `to_json`."""
        keys = {"ledger", "entry", "batch"}
        if not isinstance(value, dict) or not {"ledger", "entry"} <= set(value) <= keys:
            raise InvalidMessageId(f"{value!r} is not an offset: expected {{'ledger': …, 'entry': …, 'batch': -1}}.")
        numbers = value["ledger"], value["entry"], value.get("batch", -1)
        if any(isinstance(one, bool) or not isinstance(one, int) or one < -1 for one in numbers):
            raise InvalidMessageId(
                f"{value!r} is not an offset: ledger, entry and batch are whole numbers, -1 or more."
            )
        return cls(*numbers)

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}" + (f":{self.batch}" if self.batch >= 0 else "")


BEGINNING = Offset(-1, -1)
"""Offset before everything."""


@dataclass(frozen=True)
class StreamOffset:
    """Progress of a streaming query: an offset for each topic partition, and the name of the query's subscription."""

    subscription: str
    topics: Mapping[str, Offset]
    initial: Mapping[str, Offset] | None = None
    """Of the first batch: if it crashes, Spark requests them again, and "latest" would be another position by then."""

    def to_json(self) -> dict[str, object]:
        """Return the JSON for the checkpoint, always in the same order, because Spark compares it as text."""
        found: dict[str, object] = {"subscription": self.subscription, "topics": _offsets_json(self.topics)}
        if self.initial is not None:
            found["initial"] = _offsets_json(self.initial)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the value of `to_json`."""
        try:
            initial = value.get("initial")
            return cls(
                str(value["subscription"]),
                {topic: Offset.from_json(one) for topic, one in value["topics"].items()},
                None if initial is None else {topic: Offset.from_json(one) for topic, one in initial.items()},
            )
        except (KeyError, AttributeError, InvalidMessageId) as error:
            shown = json.dumps(value)[:200]
            raise InvalidUse(f"The checkpoint is not one of this source: {shown} ({error!r}).") from None

    def begins(self, start: StreamOffset) -> Mapping[str, Offset]:
        """Return the offsets at which the batch that ends here begins, given the `start` that Spark passes."""
        return start.topics if self.initial is None else self.initial


def _offsets_json(offsets: Mapping[str, Offset]) -> dict[str, dict[str, int]]:
    return {topic: offsets[topic].to_json() for topic in sorted(offsets)}


def lost_before(start: Offset, first_ledger: int | None, mark_delete: Position | None) -> bool:
    """Return true if entries after an offset may have been trimmed unread; `first_ledger` is a topic's, even if empty.

    The broker moves a cursor from a deleted ledger's end to `(next ledger, -1)`, an expiry or an operator further.
    """
    if first_ledger is None or start == BEGINNING or start.ledger >= first_ledger:
        return False
    if mark_delete is None:
        return True
    return mark_delete > Position(first_ledger, -1)


@dataclass(frozen=True)
class TopicState:
    """State of one topic partition: `(ledger id, entries)` of every ledger, and its stored bytes.

    `messages_per_entry` is the smallest number of messages, and `message_bytes` the largest uncompressed size of a
    message with all its chunks, in a sample of entries. For a read of the compacted view, `compacted_entries` is the
    number of entries that compaction kept, possibly from deleted ledgers; None without a compaction.
    """

    topic: str
    sizes: tuple[tuple[int, int], ...]
    total_bytes: int
    messages_per_entry: int = 1
    message_bytes: int = 1
    compacted_entries: int | None = None

    @property
    def ledgers(self) -> Ledgers:
        """Ledgers for arithmetic."""
        return Ledgers(self.sizes)

    @property
    def first_ledger(self) -> int | None:
        """Id of the first ledger, even if it is empty; None without ledgers."""
        return min((ledger for ledger, _ in self.sizes), default=None)

    @property
    def end(self) -> Offset:
        """Offset of everything that the topic partition has."""
        last = self.ledgers.last
        if last is not None:
            return Offset.at(last)
        newest = max((ledger for ledger, _ in self.sizes), default=None)
        return BEGINNING if newest is None else Offset(newest, -1)

    @property
    def bytes_per_entry(self) -> int:
        """Average stored size of an entry, at least 1."""
        entries = sum(count for _, count in self.sizes)
        return max(self.total_bytes // entries, 1) if entries else 1


@dataclass(frozen=True)
class Segment:
    """Entries of one topic partition, after `after`, up to and including `until`.

    `sizes` are the ledgers that the segment touches, from which a task knows the expected entries; `bytes_per_message`
    is an estimate that limits prefetching. `only_compacted` is the number of entries of the compacted view that may be
    older than all remaining ledgers.
    """

    topic: str
    after: Offset
    until: Offset
    sizes: tuple[tuple[int, int], ...]
    bytes_per_message: int = 1
    only_compacted: int = 0

    @classmethod
    def of(cls, state: TopicState, after: Offset, until: Offset) -> Segment:
        """Create a segment of a topic partition."""
        touched = tuple((ledger, count) for ledger, count in state.sizes if after.ledger <= ledger <= until.ledger)
        weight = max(state.bytes_per_entry // state.messages_per_entry, state.message_bytes, 1)
        outlived = after.ledger < (state.first_ledger or 0)
        return cls(state.topic, after, until, touched, weight, (state.compacted_entries or 0) if outlived else 0)

    @property
    def ledgers(self) -> Ledgers:
        """Ledgers that the segment touches."""
        return Ledgers(self.sizes)

    @property
    def entries(self) -> int:
        """Number of entries, including those read in part."""
        return self.only_compacted + max(self.ledgers.between(self.after.position, self.until.last_entry), 0)

    def cut(self, parts: int) -> list[Segment]:
        """Cut it into `parts` segments with similar numbers of entries, or fewer if there are fewer entries."""
        count = self.entries
        parts = min(parts, count)
        if parts <= 1:
            return [self] if count else []
        ledgers = self.ledgers
        read = ledgers.up_to(self.after.position)
        cuts = [ledgers.number(read + count * part // parts) for part in range(1, parts)]
        ends = [*(Offset.at(cut) for cut in cuts if cut is not None), self.until]
        starts = [self.after, *ends[:-1]]
        return [
            replace(
                self,
                after=start,
                until=end,
                sizes=tuple(one for one in self.sizes if start.ledger <= one[0] <= end.ledger),
            )
            for start, end in zip(starts, ends, strict=True)
        ]


@dataclass(frozen=True)
class Split:
    """Input of one task: segments one after the other, and the slots of `ranges` in them, or all if that is None."""

    segments: tuple[Segment, ...]
    ranges: KeyHashRanges | None = None


def plan_splits(
    segments: Sequence[Segment], split_by: str | None, min_partitions: int | None, ranges: KeyHashRanges | None
) -> list[Split]:
    """Divide segments among at least `min_partitions` tasks, if there are as many entries, or slots of `ranges`."""
    wanted = [segment for segment in segments if segment.entries]
    if not wanted:
        return []
    if split_by == "keyHash":
        full = ranges or KeyHashRanges.full()
        parts = min_partitions or len(wanted)
        if parts > full.slots:
            raise InvalidUse(f"minPartitions {parts} is more than the {full.slots} slots that are to be read.")
        return [Split(tuple(wanted), part) for part in full.split(parts)]
    if split_by == "partition" or min_partitions is None:
        return [Split((segment,), ranges) for segment in wanted]
    total = sum(segment.entries for segment in wanted)
    # Rounded up, so that there are at least `min_partitions` pieces.
    shares = [(segment, -(-segment.entries * min_partitions // total)) for segment in wanted]
    return [Split((piece,), ranges) for segment, share in shares for piece in segment.cut(share)]


def limit_entries(
    states: Sequence[TopicState],
    start: dict[str, Offset],
    end: dict[str, Offset],
    entries: int | None,
    size: int | None,
) -> dict[str, Offset]:
    """Return the ends of a limited batch: each partition gets a share of its unread entries, at least one if any."""
    todo = {
        state.topic: Segment.of(state, start[state.topic], end[state.topic]).entries
        for state in states
        if state.topic in end
    }
    total = sum(todo.values())
    volume = sum(todo[state.topic] * state.bytes_per_entry for state in states if state.topic in todo)
    shares = [limit / whole for limit, whole in ((entries, total), (size, volume)) if limit is not None and whole]
    if (share := min(shares, default=1.0)) >= 1.0:
        return end
    left = min(entries if entries is not None else total, total)
    limited = dict(start)
    # The fullest first, so that an entry for each of the emptiest never exceeds the limit.
    for state in sorted(states, key=lambda one: -todo.get(one.topic, 0)):
        count = todo.get(state.topic, 0)
        take = min(max(int(count * share), 1), left, count)
        if take <= 0:
            continue
        left -= take
        begin = start[state.topic]
        ledgers = state.ledgers
        cut = ledgers.number(ledgers.up_to(begin.position) + take)
        limited[state.topic] = end[state.topic] if cut is None or take == count else Offset.at(cut)
    return limited
