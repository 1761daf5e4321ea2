"""Batches before they are pushed (pure): where one ends, by count and by bytes, as the C++ client counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .bulk import Bulk
    from .dedup import InFlight

__all__ = ["Batch", "Bounds", "Group"]


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


class Batch:
    """One entry to be: its messages, each with its callback or None, and their sequence ids where they count."""

    __slots__ = (
        "began",
        "bulk",
        "callbacks",
        "carried",
        "count",
        "flight",
        "ids",
        "messages",
        "options",
        "single",
        "size",
    )

    def __init__(self, *, single: bool = False) -> None:
        self.messages: list[Any] = []
        self.callbacks: list[Any] = []
        self.ids: Any = []
        self.options: dict[int, dict[str, Any]] = {}
        """What a message was built with besides its content, by its index."""
        self.size = 0
        self.count = 0
        """How many messages it had when it was pushed."""
        self.single = single
        """Whether the client sends it as a plain message, not as a batch."""
        self.carried: int | None = None
        """The sequence id that its entry carries, None for the client's own choice."""
        self.flight: InFlight | None = None
        self.bulk: Bulk | None = None
        self.began = 0.0

    def halves(self) -> Iterator[Batch]:
        """Give the first and the second half of it, which has two messages or more."""
        middle = len(self.messages) // 2
        for part in (slice(None, middle), slice(middle, None)):
            half = Batch()
            half.messages, half.callbacks, half.ids = self.messages[part], self.callbacks[part], self.ids[part]
            start = part.start or 0
            half.options = {
                index - start: options
                for index, options in self.options.items()
                if start <= index < start + len(half.messages)
            }
            half.size = sum(message.length() for message in half.messages)
            half.bulk = self.bulk
            yield half


class Group:
    """The open batches of a producer: one, or one for each key.

    Args:
        bounds: of all of them together, as the C++ client's `BatchMessageKeyBasedContainer`.
    """

    __slots__ = ("_bounds", "batches", "count", "size")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.batches: dict[str | None, Batch] = {}
        self.count = 0
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether a message of that many bytes may join."""
        return not self.count or self.size + size <= self._bounds.size

    def batch(self, key: str | None) -> Batch:
        """Give the open batch of a key."""
        batch = self.batches.get(key)
        if batch is None:
            batch = self.batches[key] = Batch()
        return batch

    def joined(self, size: int) -> bool:
        """Count a message that joined; give whether the batches are full."""
        self.count += 1
        self.size += size
        return self.count >= self._bounds.messages or self.size >= self._bounds.size

    def take(self) -> list[Batch]:
        """Close the batches and give them, in the order of their first messages."""
        batches = list(self.batches.values())
        self.batches = {}
        self.count = self.size = 0
        return batches
