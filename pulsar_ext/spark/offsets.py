"""Offsets: how far a topic partition is read, as JSON that a person can read (pure).

An offset says "everything up to and including this message, or this entry, is read". It never says "entry + 1", which
chunks, compaction and markers make wrong, and "reached" is always >=. A chunked message belongs to where its *first*
chunk is: an offset past that chunk has read the whole message, so a restart never begins inside one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext.errors import InvalidMessageId, InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Ledgers, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["BEGINNING", "Offset", "StreamOffset", "lost_before"]

_WHOLE = 1 << 31
"""Stands for "the whole entry" where batch indexes are compared."""


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
        """By what offsets are ordered: a whole entry comes after each of its messages."""
        return self.ledger, self.entry, self.batch if self.batch >= 0 else _WHOLE

    def __lt__(self, other: Offset) -> bool:
        return self.key < other.key

    def __le__(self, other: Offset) -> bool:
        return self.key <= other.key

    @property
    def position(self) -> Position:
        """The last entry that is read as a whole, or the place before it."""
        return Position(self.ledger, self.entry if self.batch < 0 else self.entry - 1)

    @property
    def last_entry(self) -> Position:
        """The last entry of which anything is read."""
        return Position(self.ledger, self.entry)

    @classmethod
    def at(cls, position: Position) -> Self:
        """Everything up to and including an entry."""
        return cls(position.ledger_id, position.entry_id)

    @classmethod
    def of_message(cls, value: Any) -> Self:
        """Read the id of a message, as a user gives it; the offset includes it.

        Args:
            value: a `MessageId`; its text as `to_text()`, Java and `ledger:entry` write it; its serialized bytes in
                hexadecimal; or an object with `ledger`, `entry` and `batch`. A chunked message is where its first
                chunk is.

        Raises:
            InvalidMessageId: it is none of these.
        """
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
                        f"{value!r} is no message id: write earliest, latest, 'ledger:entry:partition[:batch]', "
                        "'first;last' for a chunked message, or the serialized id in hexadecimal."
                    ) from None
        if not isinstance(found, MessageId):
            raise InvalidMessageId(f"A {type(value).__name__} is not a message id.")
        first = found.first_chunk_message_id() if isinstance(found, ChunkMessageId) else found
        return cls(first.ledger_id(), first.entry_id(), first.batch_index())

    def just_before(self) -> Offset:
        """Give the offset that includes everything before this one's message: where to start to read it."""
        if self.batch > 0:
            return Offset(self.ledger, self.entry, self.batch - 1)
        return Offset(self.ledger, max(self.entry - 1, -1))

    def to_json(self) -> dict[str, int]:
        """Give the one form that is written: the same keys in the same order."""
        return {"ledger": self.ledger, "entry": self.entry, "batch": self.batch}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what `to_json` wrote.

        Raises:
            InvalidMessageId: it is something else.
        """
        keys = {"ledger", "entry", "batch"}
        if not isinstance(value, dict) or not {"ledger", "entry"} <= set(value) <= keys:
            raise InvalidMessageId(f"{value!r} is no offset: expected {{'ledger': …, 'entry': …, 'batch': -1}}.")
        numbers = value["ledger"], value["entry"], value.get("batch", -1)
        if any(isinstance(one, bool) or not isinstance(one, int) or one < -1 for one in numbers):
            raise InvalidMessageId(f"{value!r} is no offset: ledger, entry and batch are whole numbers, -1 or more.")
        return cls(*numbers)

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}" + (f":{self.batch}" if self.batch >= 0 else "")


BEGINNING = Offset(-1, -1)


@dataclass(frozen=True)
class StreamOffset:
    """How far a streaming query is: an offset for each topic partition, and the query's own subscription.

    The end of the first batch carries its `initial` offsets as well: if that batch crashes, Spark asks for the initial
    offsets once more, and "latest" would be somewhere else by then.
    """

    subscription: str
    topics: Mapping[str, Offset]
    initial: Mapping[str, Offset] | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the JSON that goes into the checkpoint. Spark compares it as text, so the order is always the same."""
        found: dict[str, Any] = {"subscription": self.subscription, "topics": _offsets_json(self.topics)}
        if self.initial is not None:
            found["initial"] = _offsets_json(self.initial)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            InvalidUse: the checkpoint is not one of this source.
        """
        try:
            initial = value.get("initial")
            return cls(
                str(value["subscription"]),
                {topic: Offset.from_json(one) for topic, one in value["topics"].items()},
                None if initial is None else {topic: Offset.from_json(one) for topic, one in initial.items()},
            )
        except (KeyError, AttributeError, InvalidMessageId) as error:
            shown = json.dumps(value)[:200]
            raise InvalidUse(f"The checkpoint holds no offset of this source: {shown} ({error!r}).") from None

    def begins(self, start: StreamOffset) -> Mapping[str, Offset]:
        """Give where the batch that ends here begins, if Spark says that it begins at `start`."""
        return start.topics if self.initial is None else self.initial


def _offsets_json(offsets: Mapping[str, Offset]) -> dict[str, dict[str, int]]:
    return {topic: offsets[topic].to_json() for topic in sorted(offsets)}


def lost_before(start: Offset, listed: Iterable[int], mark_delete: Position | None) -> bool:
    """Tell whether entries behind an offset may have been trimmed before they were read.

    A ledger that is gone had perhaps been read to its end. The query's own cursor tells: the broker moves a cursor that
    stands at the end of a ledger to `(next ledger, -1)`, and only an expiry or a person moves it further.

    Args:
        start: how far everything was read.
        listed: the ids of the topic's ledgers, empty ones included.
        mark_delete: the cursor of the query's subscription, None where there is none.
    """
    first = min(listed, default=None)
    if first is None or start == BEGINNING or start.ledger >= first:
        return False
    if mark_delete is None:
        return True
    return mark_delete > Position(first, -1)


def after_all(ledgers: Ledgers, listed: Iterable[int]) -> Offset:
    """Give the offset that includes everything there is."""
    last = ledgers.last
    if last is not None:
        return Offset.at(last)
    newest = max(listed, default=None)
    return BEGINNING if newest is None else Offset(newest, -1)
