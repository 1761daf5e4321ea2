"""Offsets: positions in topic partitions up to which messages have been read, as readable JSON (pure).

An offset means "everything up to and including this message, or this entry, has been read". It never means "entry + 1",
which would be wrong with chunks, compaction and markers; a read reaches it at any entry at or after it. The offset of a
chunked message is that of its *first* chunk: an offset at or after that chunk means that the whole message has been
read, so that a restart never begins inside a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pulsar_ext.errors import InvalidMessageId, InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Position

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
    """Return true if entries after an offset may have been trimmed before they were read.

    A deleted ledger may have been read to its end. The mark-delete position of the query's cursor shows that: the
    broker moves a cursor from the end of a deleted ledger to `(next ledger, -1)`; only an expiry or an operator moves
    it further. `first_ledger` is the topic's first one, even if it is empty.
    """
    if first_ledger is None or start == BEGINNING or start.ledger >= first_ledger:
        return False
    if mark_delete is None:
        return True
    return mark_delete > Position(first_ledger, -1)
