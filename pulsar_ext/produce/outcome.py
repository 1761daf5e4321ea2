"""Outcomes of sends: results, callbacks, waits for one or for many of them, and the limit of messages without one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pulsar

from pulsar_ext._native.core import PendingBase
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessageId, deserialize_inner
from pulsar_ext._native.results import Result, raise_result
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.condition import Condition, Flag
from pulsar_ext._wire.message_id_data import decode, encode
from pulsar_ext.errors import DuplicateMessage
from pulsar_ext.ids.message_id import MessageId, from_inner

from .core import deliver

_OK = pulsar.Result.Ok


@dataclass(frozen=True, slots=True)
class SentMany:
    """Result of one `send_many`.

    Args:
        messages: the number of messages accepted.
        duplicates: the number of them that the topic already had, by their sequence ids.
        last_message_id: the id of the last message persisted by this call; None if no message was persisted, or if
            `flush=False` and it is not known yet.
    """

    messages: int
    duplicates: int
    last_message_id: MessageId | None


class BulkOutcome:
    """Counts the outcomes of one `send_many`; `one` and `many` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._awaited: tuple[int, Flag] | None = None
        self.done = 0
        self.duplicates = 0
        self.failed = 0
        self.failure: Result | None = None
        self.last: MessageId | None = None

    def one(self, result: Result, message_id: MessageId) -> None:
        """Count one message; usable as a send callback."""
        self.many(result, 1, message_id)

    def many(self, result: Result, count: int, last: MessageId | None) -> None:
        """Count the messages of a batch; `last` is the id of its last message."""
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
        awaited = self._awaited
        if awaited is not None and self.done >= awaited[0]:
            awaited[1].set()

    def wait(self, count: int) -> None:
        """Wait until `count` messages have an outcome; for one thread at a time. Ctrl-C ends the wait.

        Holds no lock while it waits: a signal handler may close the client, which waits for outcomes too.
        """
        if self.done >= count:
            return
        flag = Flag()
        self._awaited = count, flag
        if self.done < count:
            flag.wait()

    def sent(self, count: int, *, wait: bool) -> SentMany:
        """Return the result of `count` messages; with `wait`, wait for their outcomes and raise the first error."""
        if wait:
            self.wait(count)
            self.raise_failure()
        return SentMany(count, self.duplicates, self.last)

    def raise_failure(self) -> None:
        """Raise the error of the first message that failed, if any."""
        if self.failure is not None:
            raise_result(self.failure)


class _OwnResult(Result):
    """A result that the C++ client does not have; not equal to any official one."""

    name = "DuplicateMessage"

    def __str__(self) -> str:
        return f"Result.{self.name}"

    def __repr__(self) -> str:
        return f"<Result.{self.name}: {self.value}>"


DUPLICATE_MESSAGE = _OwnResult(100)
"""Result of a message that the topic already has, by producer name and sequence id; its message id is unknown."""
PersistedEntry = tuple[int, int, int] | MessageId
"""Ledger, entry and partition of a batch; or the id of an entry that is not a batch."""


def duplicate_message(sequence_id: int | None) -> DuplicateMessage:
    """Return the error for a message that the topic already has."""
    return DuplicateMessage(
        "The topic already has this message: a message of this producer name with this sequence id or a higher one is "
        "persisted. Nothing is lost; the message id is unknown.",
        sequence_id=sequence_id,
    )


Id = TypeVar("Id")


class OutcomeWaiter(Generic[Id]):
    """The callback of a send whose outcome one thread waits for."""

    __slots__ = ("known", "outcome")
    outcome: tuple[Result, Id]

    def __init__(self) -> None:
        self.known = Flag()
        """Set when the outcome is known."""

    def __call__(self, result: Result, message_id: Id) -> None:  # noqa: D102  # a send callback
        self.outcome = result, message_id
        self.known.set()

    def wait(self, sequence_id: int | None) -> Id:
        """Wait for the outcome; return the message id or raise the error."""
        self.known.wait()
        result, message_id = self.outcome
        if result is DUPLICATE_MESSAGE:
            raise duplicate_message(sequence_id)
        if result != _OK:
            raise_result(result)
        return message_id


def deliver_each(callbacks: Sequence[SendCallback | None], result: Result, entry: PersistedEntry | None) -> None:
    """Call the callbacks of a batch. An exception from one is logged, and the next is called."""
    if isinstance(entry, tuple):
        deliver(callbacks, result, *entry)
        return
    message_id = entry if isinstance(entry, MessageId) else MessageId()
    for callback in callbacks:
        if callback is not None:
            call_back(callback, result, message_id)


def persisted_entry(inner: InnerMessageId, partition: int, *, batched: bool) -> PersistedEntry:
    """Return the position of a persisted entry."""
    if batched:
        return inner.ledger_id(), inner.entry_id(), inner.partition() if partition < 0 else partition
    if partition < 0:
        return from_inner(inner)
    # A producer of a single partition does not set it.
    return from_inner(deserialize_inner(encode(decode(inner.serialize()).in_partition(partition))))


class PendingMessages(PendingBase):
    """Counts the messages of a sender.

    `accepted` and `extra_permits` are guarded by the sender's lock, the other counts by `changed`. Outcomes hold
    `changed` only briefly; it is re-entrant, because a signal handler may send.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit or sys.maxsize  # 0 means unlimited
        self.accepted = 0
        self.released = 0
        """The number of messages whose permits were released; their callbacks may still be running."""
        self.extra_permits = 0
        """The number of permits that chunked messages acquired beyond one each."""
        self.extra_released = 0
        """The number of those permits that were released."""
        self.completed = 0
        """The number of messages whose outcome is known and whose callbacks have returned."""
        self.failure: Result | None = None
        """The first error not reported by a flush; an error reported earlier if all were reported."""
        self.failures = 0
        """The number of errors."""
        self.failed_until = 0
        """The value of `accepted` when the last failed message was sent, or a higher one."""
        self.reported = 0
        """The number of errors that flushes have reported; each flush reports all errors since it began."""
        self.paused = False
        """Whether sends must wait regardless of the limit."""
        self.barred = False
        """Whether no message is accepted any more: closed, inherited across a fork, or the program ends."""
        self.changed = Condition()
        self._waiting = 0

    def has_room(self, count: int = 1) -> bool:
        """Return whether `count` permits are available; a request above the limit needs all permits."""
        in_use = self.accepted - self.released + self.extra_permits - self.extra_released
        return not (self.barred or self.paused) and in_use + min(count, self.limit) <= self.limit

    def enter(self, check_may_wait: Callable[[], object]) -> None:
        """Acquire a permit, waiting if necessary; Ctrl-C ends the wait. Once barred, always return at once."""
        with self.changed:
            if not (self.barred or self.has_room()):
                check_may_wait()
                self.wait_for(lambda: self.barred or self.has_room())
            self.accepted += 1

    def bar(self) -> None:
        """Accept no more messages, and end the waits for permits."""
        with self.changed:
            self.barred = True
            self.changed.notify_all()

    def release(self, count: int, extra_permits: int = 0) -> None:
        """Release the permits of `count` messages, and `extra_permits` more."""
        with self.changed:
            self.released += count
            self.extra_released += extra_permits
            if self._waiting:
                self.changed.notify_all()

    def complete(self, count: int) -> bool:
        """Count outcomes; return whether everything accepted has its outcome."""
        with self.changed:
            self.completed += count
            if self._waiting:
                self.changed.notify_all()
            return self.completed >= self.accepted

    def fail(self, result: Result, accepted: int | None = None) -> None:
        """Record an error for the flushes in progress, and for the next flush unless one of them covers it."""
        if result == pulsar.Result.Ok or result is DUPLICATE_MESSAGE:
            return
        with self.changed:
            if self.failures == self.reported:
                self.failure, self.failed_until = result, 0
            self.failures += 1
            self.failed_until = max(self.failed_until, self.accepted + 1 if accepted is None else accepted)

    def begin_flush(self) -> tuple[int, int]:
        """Return the number of errors already reported, and the number of all errors."""
        return self.reported, self.failures

    def failure_since(self, begun: tuple[int, int], sent: int) -> Result | None:
        """Return the first error that no flush had reported when this one began, or None."""
        reported, known = begun
        with self.changed:
            if self.failures == reported:
                return None
            covered = self.failures if self.failed_until <= sent else known
            self.reported = max(self.reported, covered)
            return self.failure

    def wait_for(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition about outcomes holds; Ctrl-C ends the wait."""
        with self.changed:
            self._waiting += 1
            try:
                return self.changed.wait_for(condition, seconds)
            finally:
                self._waiting -= 1
