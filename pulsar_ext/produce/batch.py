"""Open and closed batches (pure), limited by message count and bytes like the C++ client's batches.

`BatchingConfig` holds the `create_producer` arguments that a batching sender needs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.core import GroupBase

from .core import Items, batch_payload, entry_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .core import Item
    from .outcome import BulkOutcome


_PLAIN = {"partition_key": str, "ordering_key": str, "sequence_id": int, "event_timestamp": int}
_MAX_NUMBER = (1 << 63) - 1


class BatchingConfig:
    """Batching and queue limits of a sender.

    Args:
        named: the official arguments, by name.
        limit: the maximum number of pending messages, if not `max_pending_messages`; 0 means unlimited.
        partition: the partition to send to, -1 for a non-partitioned topic.
    """

    def __init__(self, named: dict[str, Any], *, limit: int | None = None, partition: int = -1) -> None:
        batched = named["batching_enabled"]
        self.batched: bool = batched
        self.bounds = Bounds(
            named["batching_max_messages"] if batched else 1, named["batching_max_allowed_size_in_bytes"]
        )
        self.delay = named["batching_max_publish_delay_ms"] / 1000
        self.by_key: bool = batched and named["batching_type"] == pulsar.BatchingType.KeyBased
        self.limit: int = named["max_pending_messages"] if limit is None else limit
        self.blocks: bool = named["block_if_queue_full"]
        self.partition = partition

    @staticmethod
    def are_plain(options: dict[str, Any]) -> bool:
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


class Bounds:
    """Size limits of a group of open batches.

    Args:
        messages: see `batching_max_messages`.
        size: see `batching_max_allowed_size_in_bytes`; a larger message becomes a batch by itself.
    """

    __slots__ = ("messages", "size")

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.size = size


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


class Batch:
    """The messages of one entry, each with its sequence id and its callback or None.

    Args:
        message: the C++ message of an entry that is not a batch: delayed, chunked, or sent without batching.
        items: the messages.
    """

    __slots__ = (
        "accepted",
        "callbacks",
        "contents",
        "count",
        "entry_property",
        "entry_sequence_id",
        "extra_permits",
        "fields",
        "ids",
        "in_flight",
        "items",
        "keys",
        "message",
        "options",
        "outcome",
        "pushed_at",
        "too_big",
        "unsent",
    )

    def __init__(self, message: Any = None, items: Iterable[Item] = ()) -> None:
        self.message = message
        self.items = Items()
        """The messages that joined."""
        for item in items:
            self.items.append(item)
        self.contents: Sequence[bytes] = ()
        self.callbacks: Sequence[Any] = ()
        self.ids: Sequence[int] = ()
        self.fields: Sequence[bytes] | None = None
        self.keys = b""
        """The key fields of the first message, which route the entry."""
        self.entry_property = b""
        """An encoded property of the entry only, not of its messages; see `property_field`."""
        self.count = 0
        self.entry_sequence_id: int | None = None
        """The sequence id of the entry, if not the highest of its messages."""
        self.in_flight: InFlight | None = None
        self.outcome: BulkOutcome | None = None
        """Counts the outcomes of messages that have no callbacks."""
        self.options: dict[str, Any] = {}
        """The official arguments of a message that may have to be rebuilt."""
        self.extra_permits = 0
        """The number of permits it holds beyond one for each message."""
        self.unsent: Iterator[Any] | None = None
        """Yields the C++ message until it is pushed; None before the message is built."""
        self.too_big = False
        """Whether the broker's size limit rejected it."""
        self.pushed_at = 0.0
        self.accepted: int | None = None
        """The number of messages that the producer had accepted when this batch was pushed."""

    @classmethod
    def of(cls, contents: Sequence[bytes], outcome: BulkOutcome, ids: Sequence[int]) -> Self:
        """Return a full batch of messages without callbacks or options."""
        batch = cls()
        batch.contents, batch.ids, batch.outcome, batch.count = contents, ids, outcome, len(contents)
        return batch

    def close(self) -> None:
        """Split the items into columns; no message joins after this."""
        if self.items and not self.count:
            self.contents, self.callbacks, self.ids, fields, keys = self.items.columns()
            self.fields = fields if any(fields) else None
            self.keys = keys[0]
            self.count = len(self.contents)

    def payload(self) -> bytes:
        """Return the payload of its messages."""
        return batch_payload(self.contents, self.ids, self.fields)

    def entry(self) -> Any:
        """Return the C++ message that carries the batch."""
        sequence_id = max(self.ids) if self.entry_sequence_id is None else self.entry_sequence_id
        return entry_message(self.payload(), self.count, sequence_id, self.keys + self.entry_property)

    def halves(self) -> list[Batch]:
        """Return the first and the second half of a batch of at least two messages."""
        middle = self.count // 2
        if self.outcome is not None:
            return [
                Batch.of(self.contents[part], self.outcome, self.ids[part])
                for part in (slice(None, middle), slice(middle, None))
            ]
        items = list(zip(*self.items.columns(), strict=True))
        return [Batch(items=items[:middle]), Batch(items=items[middle:])]


class BatchGroup(GroupBase):
    """The open batches of a producer: one, or one for each key.

    Args:
        bounds: limits for all of them together, as in the C++ client's `BatchMessageKeyBasedContainer`.
        by_key: whether each key has its own batch.
    """

    __slots__ = ("_by_key", "_most", "batches", "closed", "in_flight", "sealed")

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
    """Choose the push order of a group of batches, and the sequence id of each entry.

    Args:
        batches: the sequence ids of each batch, ascending; no id occurs twice.

    Returns:
        For each batch in push order: its index, and the sequence id of its entry.
    """
    order = sorted(range(len(batches)), key=lambda index: batches[index][0])
    pushes = [(index, batches[index][0]) for index in order]
    pushes[-1] = (order[-1], max(batch[-1] for batch in batches))
    return pushes
