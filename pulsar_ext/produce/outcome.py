"""Outcomes of sends: results, callbacks, and waiting for one or for many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import deserialize_inner
from pulsar_ext._native.results import Result, raise_result
from pulsar_ext._runtime.callbacks import call_back
from pulsar_ext._runtime.condition import Flag
from pulsar_ext._wire.message_id_data import decode, encode
from pulsar_ext.errors import DuplicateMessage
from pulsar_ext.ids.message_id import MessageId, from_inner

from .core import deliver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_ext._native.messages import InnerMessageId
    from pulsar_ext._runtime.callbacks import SendCallback


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
