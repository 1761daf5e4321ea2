"""Open and closed batches (pure), limited by message count and bytes like the C++ client's batches.

`BatchingConfig` holds the `create_producer` arguments that a batching sender needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import pulsar

from pulsar_ext._native.core import GroupBase
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.callbacks import SendCallback

from .core import Item, Items, batch_payload, entry_message
from .options import Options
from .outcome import BulkOutcome

_PLAIN = {"partition_key": str, "ordering_key": str, "sequence_id": int, "event_timestamp": int}
_MAX_NUMBER = (1 << 63) - 1


class BatchingConfig:
    """Batching and queue limits of a sender, whose partition is -1 on a non-partitioned topic."""

    def __init__(self, named: Arguments, *, limit: int | None = None, partition: int = -1) -> None:
        batched = named["batching_enabled"]
        self.batched: bool = batched
        self.bounds = Bounds(
            named["batching_max_messages"] if batched else 1, named["batching_max_allowed_size_in_bytes"]
        )
        self.delay = named["batching_max_publish_delay_ms"] / 1000
        self.by_key: bool = batched and named["batching_type"] == pulsar.BatchingType.KeyBased
        self.limit: int = named["max_pending_messages"] if limit is None else limit
        """The maximum number of pending messages; 0 means unlimited."""
        self.blocks: bool = named["block_if_queue_full"]
        self.partition = partition


def are_plain(options: Options) -> bool:
    """Return whether the send options have plain types, which the official client need not validate."""
    for name, value in options.items():
        if value is None:
            continue
        if name == "properties":
            if type(value) is not dict or not all(type(k) is str and type(v) is str for k, v in value.items()):
                return False
        elif type(value) is not _PLAIN.get(name) or (type(value) is int and not 0 <= value <= _MAX_NUMBER):
            return False
    return True


class Bounds(NamedTuple):
    """Size limits of a group of open batches; a larger message becomes a batch by itself."""

    messages: int
    size: int


class InFlight:
    """A group of batches in flight: the sequence ids of each batch, and the number of batches without an outcome."""

    __slots__ = ("batches", "highest", "unanswered")

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        self.batches = batches
        self.unanswered = len(batches)
        self.highest = max(batch[-1] for batch in batches)

    def __contains__(self, sequence_id: int) -> bool:
        return any(sequence_id in batch for batch in self.batches)

    def drop(self, sequence_id: int) -> None:
        """Remove the sequence id of a message that was not sent."""
        self.batches = [[other for other in batch if other != sequence_id] for batch in self.batches]
        self.highest = max((batch[-1] for batch in self.batches if batch), default=-1)


@dataclass(slots=True, eq=False)
class Batch:
    """The messages of one entry, each with its sequence id and its callback or None."""

    message: InnerMessage | None = None
    """The C++ message of an entry that is not a batch: delayed, chunked, or sent without batching."""
    items: Items = field(default_factory=Items)
    """The messages that joined."""
    contents: Sequence[bytes] = ()
    callbacks: Sequence[SendCallback | None] = ()
    ids: Sequence[int] = ()
    fields: Sequence[bytes] = ()
    keys: bytes = b""
    """The key fields of the first message, which route the entry."""
    all_keys: Sequence[bytes] = ()
    """The key fields of each message."""
    entry_property: bytes = b""
    """An encoded property of the entry only, not of its messages; see `property_field`."""
    count: int = 0
    entry_sequence_id: int | None = None
    """The sequence id of the entry, if not the highest of its messages."""
    in_flight: InFlight | None = None
    outcome: BulkOutcome | None = None
    """Counts the outcomes of messages that have no callbacks."""
    options: Options = field(default_factory=dict)
    """The official arguments of a message that may have to be rebuilt."""
    extra_permits: int = 0
    """The number of permits it holds beyond one for each message."""
    unsent: Iterator[InnerMessage] | None = None
    """Yields the C++ message until it is pushed; None before the message is built."""
    too_big: bool = False
    """Whether the broker's size limit rejected it."""
    pushed_at: float = 0.0
    accepted: int | None = None
    """The number of messages that the producer had accepted when this batch was pushed."""

    @classmethod
    def of(
        cls,
        contents: Sequence[bytes],
        outcome: BulkOutcome | None,
        ids: Sequence[int],
        fields: Sequence[bytes] = (),
        keys: Sequence[bytes] = (),
        callbacks: Sequence[SendCallback | None] = (),
    ) -> Self:
        """Return a full batch of messages, with the encoded options and keys of each, and callbacks or an outcome."""
        made = cls(contents=contents, callbacks=callbacks, ids=ids, fields=fields, count=len(contents), outcome=outcome)
        made.all_keys, made.keys = keys, keys[0] if keys else b""
        return made

    @classmethod
    def alone(cls, message: InnerMessage, callback: SendCallback | None, sequence_id: int) -> Self:
        """Return the batch of a C++ message that is a single entry."""
        return cls(message, callbacks=(callback,), ids=(sequence_id,), count=1)

    def close(self) -> None:
        """Split the items into columns; no message joins after this."""
        if self.items and not self.count:
            self.contents, self.callbacks, self.ids, fields, self.all_keys = self.items.columns()
            self.fields = fields if any(fields) else ()
            self.keys = self.all_keys[0]
            self.count = len(self.contents)

    def payload(self) -> bytes:
        """Return the payload of its messages."""
        return batch_payload(self.contents, self.ids, self.fields or None)

    def entry(self) -> InnerMessage:
        """Return the C++ message that carries the batch."""
        sequence_id = max(self.ids) if self.entry_sequence_id is None else self.entry_sequence_id
        return entry_message(self.payload(), self.count, sequence_id, self.keys + self.entry_property)

    def halves(self) -> list[Batch]:
        """Return the first and the second half of a batch of at least two messages."""
        return [
            Batch.of(
                self.contents[part],
                self.outcome,
                self.ids[part],
                self.fields[part],
                self.all_keys[part],
                self.callbacks[part],
            )
            for part in (slice(None, self.count // 2), slice(self.count // 2, None))
        ]


class BatchGroup(GroupBase):
    """The open batches of a producer: one, or one for each key, with limits for all of them as in the C++ client."""

    def __init__(self, bounds: Bounds, *, by_key: bool) -> None:
        self._by_key = by_key
        self._most = bounds.messages
        self.batches: dict[str, Batch] = {}
        self.free_messages = bounds.messages
        """The number of messages that still fit."""
        self.free_bytes = bounds.size
        """The number of bytes that still fit."""
        self.only_items: Items | None = None
        """The items of the batch, if batches are not by key; a caller that has checked the limits may append."""
        self.closed = False
        """Whether no message may join any more."""
        self.sealed: deque[Batch] | None = None
        """The closed batches, in the order to push."""
        self.in_flight: InFlight | None = None

    @property
    def count(self) -> int:
        """Number of messages in the group."""
        return self._most - self.free_messages

    def has_room(self, size: int) -> bool:
        """Return whether a message of `size` bytes may join."""
        return size <= self.free_bytes or not self.batches

    def join(self, key: str, item: Item) -> bool:
        """Add a message; return False if the group is closed."""
        size = len(item[0])
        if not self._by_key:
            key = ""
        batch = self.batches.get(key)
        if batch is None:
            batch = self.batches[key] = Batch()
            if not self._by_key:
                self.only_items = batch.items
        if self.closed:
            return False
        # Signal handlers run only after a call: from the check of `closed` to the end nothing can interrupt.
        self.free_messages -= 1
        self.free_bytes -= size
        batch.items.append(item)
        return True

    def close(self) -> list[Batch]:
        """Close the batches, and return them in the order of their first messages."""
        for batch in self.batches.values():
            batch.close()
        return [batch for batch in self.batches.values() if batch.count]


def ordered(batches: Sequence[Batch]) -> deque[Batch]:
    """Return batches in push order, with ascending sequence ids: a deduplicating broker drops a lower id."""
    if len(batches) < 2:  # noqa: PLR2004  # nothing to order
        return deque(batches)
    ordered: deque[Batch] = deque()
    for index, entry_sequence_id in seal([batch.ids for batch in batches]):
        batches[index].entry_sequence_id = entry_sequence_id
        ordered.append(batches[index])
    return ordered


def seal(batches: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the index and the entry's sequence id of each batch in push order, from the ascending ids of each."""
    order = sorted(range(len(batches)), key=lambda index: batches[index][0])
    pushes = [(index, batches[index][0]) for index in order]
    pushes[-1] = (order[-1], max(batch[-1] for batch in batches))
    return pushes
