"""Batches before they are pushed (pure): where one ends, by count and by bytes, as the C++ client counts.

`BatchingConfig` has the arguments of `create_producer` that a sender with batches of its own needs.
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
    """How a sender makes its batches, and how much may be pending.

    Args:
        named: the official arguments, by name.
        limit: how many messages may be pending, if not `max_pending_messages`; 0 for any number.
        partition: whose messages it sends, -1 for a topic without partitions.
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
    def takes(options: dict[str, Any]) -> bool:
        """Whether the arguments of a send are of the plain types that need no check by the official client."""
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
    """How large a group of open batches may become.

    Args:
        messages: as `batching_max_messages`.
        size: as `batching_max_allowed_size_in_bytes`; a message above it is a batch of its own.
    """

    __slots__ = ("messages", "size")

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.size = size


class InFlight:
    """A group of batches on its way: the ids of each batch, and how many batches have no outcome yet."""

    __slots__ = ("batches", "highest", "left")

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        self.batches = batches
        self.left = len(batches)
        self.highest = max(batch[-1] for batch in batches)

    def __contains__(self, sequence_id: int) -> bool:
        return any(sequence_id in batch for batch in self.batches)

    def drop(self, sequence_id: int) -> None:
        """Take an id out that is not on its way after all."""
        self.batches = [[one for one in batch if one != sequence_id] for batch in self.batches]
        self.highest = max((batch[-1] for batch in self.batches if batch), default=-1)


class Batch:
    """One entry to be: its messages, each with its sequence id and its callback or None.

    Args:
        message: the C++ message of an entry that is not a batch: a delayed one, a chunked one, one without batching.
        items: the messages.
    """

    __slots__ = (
        "accepted",
        "began",
        "burden",
        "callbacks",
        "carried",
        "contents",
        "count",
        "fields",
        "flight",
        "ids",
        "items",
        "keys",
        "message",
        "note",
        "options",
        "outcome",
        "refused",
        "unsent",
    )

    def __init__(self, message: Any = None, items: Iterable[Item] = ()) -> None:
        self.message = message
        self.items = Items()
        """What joined."""
        for item in items:
            self.items.append(item)
        self.contents: Sequence[bytes] = ()
        self.callbacks: Sequence[Any] = ()
        self.ids: Sequence[int] = ()
        self.fields: Sequence[bytes] | None = None
        self.keys = b""
        """The first message's keys, by which the entry goes."""
        self.note = b""
        """A property of its entry, which no message has, as `property_field` writes it."""
        self.count = 0
        self.carried: int | None = None
        """The sequence id that its entry carries, if not the highest one."""
        self.flight: InFlight | None = None
        self.outcome: BulkOutcome | None = None
        """Counts what became of its messages, if they have no callbacks."""
        self.options: dict[str, Any] = {}
        """The official arguments of a message that may have to be built again."""
        self.burden = 0
        """How much room it takes beyond a place for each message."""
        self.unsent: Iterator[Any] | None = None
        """The C++ message, until it is handed over; None before it is made."""
        self.refused = False
        """Whether it was too big for the broker."""
        self.began = 0.0
        self.accepted: int | None = None
        """How many messages its producer had accepted when it was pushed."""

    @classmethod
    def of(cls, contents: Sequence[bytes], outcome: BulkOutcome, ids: Sequence[int]) -> Self:
        """Give a whole batch of messages without callbacks or options."""
        batch = cls()
        batch.contents, batch.ids, batch.outcome, batch.count = contents, ids, outcome, len(contents)
        return batch

    def close(self) -> None:
        """Take its messages apart, now that no more join."""
        if self.items and not self.count:
            self.contents, self.callbacks, self.ids, fields, keys = self.items.columns()
            self.fields = fields if any(fields) else None
            self.keys = keys[0]
            self.count = len(self.contents)

    def payload(self) -> bytes:
        """Return the payload of its messages."""
        return batch_payload(self.contents, self.ids, self.fields)

    def entry(self) -> Any:
        """Return the C++ message that is all of it."""
        carried = max(self.ids) if self.carried is None else self.carried
        return entry_message(self.payload(), self.count, carried, self.keys + self.note)

    def halves(self) -> list[Batch]:
        """Give the first and the second half of it, which has two messages or more."""
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
        bounds: of all of them together, as the C++ client's `BatchMessageKeyBasedContainer`.
        by_key: whether there is one for each key.
    """

    __slots__ = ("_by_key", "_most", "batches", "closed", "flight", "sealed")

    def __init__(self, bounds: Bounds, *, by_key: bool) -> None:
        self._by_key = by_key
        self._most = bounds.messages
        self.batches: dict[str, Batch] = {}
        self.free = bounds.messages
        """How many messages more may join, and fill it."""
        self.left = bounds.size
        """How many bytes more may join, and fill it."""
        self.only: Items | None = None
        """The messages of the only batch, once there is one and if it is the only one: who has room may append."""
        self.closed = False
        """Whether no message may join any more."""
        self.sealed: deque[Batch] | None = None
        """Its batches in the order to push, once it is closed."""
        self.flight: InFlight | None = None

    @property
    def count(self) -> int:
        """How many messages it has."""
        return self._most - self.free

    def has_room(self, size: int) -> bool:
        """Whether a message of that many bytes may join."""
        return size <= self.left or not self.batches

    def join(self, key: str, item: Item) -> bool:
        """Take a message in; False if it is closed."""
        size = len(item[0])
        if not self._by_key:
            key = ""
        batch = self.batches.get(key)
        if batch is None:
            batch = self.batches[key] = Batch()
            if not self._by_key:
                self.only = batch.items
        if self.closed:
            return False
        # A signal's handler can run only behind a call: from the look at `closed` to the end nothing comes between.
        self.free -= 1
        self.left -= size
        batch.items.append(item)
        return True

    def close(self) -> list[Batch]:
        """Give its batches, closed, in the order of their first messages."""
        for batch in self.batches.values():
            batch.close()
        return [batch for batch in self.batches.values() if batch.count]


def ordered(batches: Sequence[Batch]) -> deque[Batch]:
    """Give batches in the order to push, with ids that go up: a broker that deduplicates drops what goes back."""
    if len(batches) < 2:  # noqa: PLR2004  # nothing to order
        return deque(batches)
    ordered: deque[Batch] = deque()
    for index, carried in seal([batch.ids for batch in batches]):
        batches[index].carried = carried
        ordered.append(batches[index])
    return ordered


def seal(batches: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Decide in which order a group of batches is pushed, and which id each carries.

    Args:
        batches: the ids of each batch, going up; no id twice.

    Returns:
        For each batch in the order to push: its index, and the id that its entry carries.
    """
    order = sorted(range(len(batches)), key=lambda index: batches[index][0])
    carried = [(index, batches[index][0]) for index in order]
    carried[-1] = (order[-1], max(batch[-1] for batch in batches))
    return carried
