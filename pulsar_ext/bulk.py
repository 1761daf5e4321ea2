"""What `send_many` gives back, and how it is counted while batches complete."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulsar

from ._official import raise_result
from .callbacks import DUPLICATE_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .message_id import MessageId

__all__ = ["Bulk", "SentMany", "columns_of"]

_OK = pulsar.Result.Ok


@dataclass(frozen=True, slots=True)
class SentMany:
    """What became of the messages of one `send_many`.

    Args:
        messages: how many were taken.
        duplicates: how many of them the topic had already, by their sequence ids.
        last_message_id: the id of the last one that was persisted now; None if there is none, or if it is not known yet
            because `flush` was False.
    """

    messages: int
    duplicates: int
    last_message_id: MessageId | None


def columns_of(*columns: Iterable[Any] | None) -> dict[str, Iterable[Any]]:
    """Name the columns that `send_many` was given, in the order of its parameters."""
    names = ("partition_key", "ordering_key", "sequence_id", "properties", "event_timestamp")
    return {name: column for name, column in zip(names, columns, strict=True) if column is not None}


class Bulk:
    """Counts the outcomes of one `send_many`; `one` and `many` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Condition(threading.Lock())
        self.done = 0
        self.duplicates = 0
        self.failed = 0
        self.failure: Any = None
        self.last: MessageId | None = None

    def one(self, result: Any, message_id: MessageId) -> None:
        """Count one message: a send callback."""
        self.many(result, 1, message_id)

    def many(self, result: Any, count: int, last: MessageId | None) -> None:
        """Count the messages of a batch, `last` being the id of its last one."""
        with self._lock:
            self.done += count
            if result is DUPLICATE_MESSAGE:
                self.duplicates += count
            elif result == _OK:
                if last is not None and (self.last is None or self.last < last):
                    self.last = last
            else:
                self.failed += count
                self.failure = self.failure or result
            self._lock.notify_all()

    def wait(self, count: int) -> None:
        """Wait until so many messages have an outcome; a Ctrl-C ends the wait."""
        if self.done < count:
            with self._lock:
                self._lock.wait_for(lambda: self.done >= count)

    def raise_failure(self) -> None:
        """Raise the error of the first message that failed, if one did."""
        if self.failure is not None:
            raise_result(self.failure)
