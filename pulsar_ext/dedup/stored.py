"""A producer's entries on a topic, and where its name resumes.

The broker reports to a new producer the highest id *pushed* under its name. While writes are pending, or failed writes
are not yet rolled back, that is above the last persisted id. Two things are certain, because the broker would recover
from them: the id in its last snapshot, and the name's entries after the snapshot. Mirrors `MessageDeduplication`
(`getLastPublishedSequenceId`, `recoverSequenceIdsMap`).

`RetryUntil` retries while a broker may be starting, or loading the topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._runtime.retry import retry
from pulsar_ext._wire.batch_payload import SEQUENCE_ID, batch_metadata
from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin
from pulsar_ext.errors import AdminError, AdminNotFound, AdminUnauthorized, InvalidUse, MessageIdUnresolved
from pulsar_ext.ids.position import Position


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """An entry: its sequence id, whether it is a chunk but not the last, and its producer as the broker shows it."""

    sequence_id: int
    is_partial: bool = False
    name: str = ""

    @classmethod
    def of(cls, entry: EntryMetadata) -> Self:
        """Return the `OwnEntry` of an entry's headers."""
        is_partial = entry.is_chunk and entry.chunk_id != (entry.num_chunks or 0) - 1
        return cls(max(entry.sequence_id, entry.highest_sequence_id or 0), is_partial, entry.producer_name)


@dataclass(frozen=True, slots=True)
class Resumption:
    """The point where a name resumes: after `published`; `incomplete_id` must be sent under another name."""

    published: int
    incomplete_id: int | None = None


def is_persisted(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> bool:
    """Return whether the broker's last id is that of the last entry persisted under the name.

    `entries` are those after the snapshot, newest first, read only as far as needed; `snapshot` is the name's id there.
    """
    for entry in entries:
        if entry.sequence_id == published:
            return True
        if not entry.is_partial:
            return False
    return snapshot == published


def certainly_missing(asked: Collection[int], stored_ids: Iterable[int]) -> frozenset[int]:
    """Return those ids of a name that the topic certainly does not have, although the broker has a higher id.

    The ids of a name's entries ascend, and are read newest first, only as far as needed. So an id that is not among
    them is certainly missing if a lower id is stored. If the stored entries begin above it, because older ones were
    trimmed, nothing is certain.
    """
    lowest, found = min(asked, default=-1), set()
    for one in stored_ids:
        found.add(one)
        if one < lowest:
            break
    seen = min(found, default=None)
    return frozenset() if seen is None else frozenset(one for one in asked if one not in found and one > seen)


def resume_chunked(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> Resumption | None:
    """Decide where a name with chunked messages resumes; return None if it is uncertain now.

    The broker counts a message by its last chunk, but after reloading the topic by any chunk. `entries` are those of
    the name and its derived names, newest first, read only as far as needed.
    """
    incomplete: int | None = None
    for entry in entries:
        if entry.is_partial:
            if incomplete is None and entry.sequence_id >= published:
                incomplete = entry.sequence_id
        elif entry.sequence_id >= published:  # above it, it was sent under a derived name
            return resumption_after(entry.sequence_id, incomplete)
        else:
            # The message of the broker's id is incomplete, pending or lost.
            return Resumption(published - 1, published) if incomplete == published else None
    if incomplete == published:
        return Resumption(published - 1, published)
    return Resumption(published, incomplete) if snapshot == published else None


def resumption_after(published: int, incomplete: int | None) -> Resumption:
    """Return where a name resumes after a whole message, and maybe part of a later one."""
    return Resumption(published, incomplete if incomplete is not None and incomplete > published else None)


PREVIOUS_ID = "pulsar_ext.previous_sequence_id"
"""Property of a batch entry: the id of its name pushed before it. Messages do not have it."""
_SNAPSHOT_CURSOR = "pulsar.dedup"
_MAX_ENTRIES = 10_000


def same_name(shown: str, name: str) -> bool:
    """Return whether an entry's producer name in the admin API, which shows `?` beyond Latin-1, matches this name."""
    return shown == _shown(name)


def derives_from(shown: str, name: str) -> bool:
    """Return whether an entry's producer name was derived from this name for chunked messages."""
    return shown.startswith(f"{_shown(name)}~")


def is_resent_as(shown: str, name: str) -> bool:
    """Return whether an entry's producer name was derived from this name for rejected messages."""
    begin, plus, number = shown.rpartition("+")
    return bool(plus) and begin == _shown(name) and number.isdecimal()


def is_shown_exactly(name: str) -> bool:
    """Return whether no other name is shown like this one."""
    return "?" not in _shown(name)


def _shown(name: str) -> str:
    return name.encode("latin-1", "replace").decode("latin-1")


def snapshot_of(stats: InternalStats, name: str) -> tuple[int, Position] | tuple[None, None]:
    """Return a name's id in the broker's last snapshot of sequence ids, and the snapshot's position, or None twice."""
    cursor = stats.cursors.get(_SNAPSHOT_CURSOR)
    snapshot_id = None if cursor is None else cursor.raw.get("properties", {}).get(name)
    return (None, None) if cursor is None or snapshot_id is None else (int(snapshot_id), cursor.mark_delete_position)


def previous_id(entry: EntryMetadata) -> int | None:
    """Return the highest id of its name pushed before an entry; None if the entry does not record it."""
    said = entry.properties.get(PREVIOUS_ID, "")
    return int(said) if said.removeprefix("-").isdecimal() else None


def ids_of(entry: EntryMetadata) -> tuple[int, ...]:
    """Return the sequence ids of the messages of an entry with payload; raise InvalidUse if it is encrypted."""
    count = entry.num_messages_in_batch
    if count is None:
        return (entry.sequence_id,)
    messages = None if entry.encrypted else batch_metadata(entry.payload or b"", count)
    if messages is None:
        raise InvalidUse(
            f"The batch at {entry.position} cannot be read, so it is unknown which messages of a group of key-based "
            "batches are persisted. Use batching_type=BatchingType.Default with encryption."
        )
    ids = [message.get(SEQUENCE_ID, 0) for message in messages]
    return tuple(one for one in ids if isinstance(one, int))


def is_trimmed(stats: InternalStats, position: Position) -> bool:
    """Return whether an entry was trimmed, by the statistics: while a bookie starts, stored entries are not found."""
    return dict(stats.ledger_sizes()).get(position.ledger_id, 0) <= position.entry_id


def positions_from_end(sizes: Sequence[tuple[int, int]]) -> Iterator[Position]:
    """Yield the positions of a topic's entries, newest first, from its ledger ids and their entry counts."""
    for ledger_id, entries in reversed(sizes):
        for entry_id in reversed(range(entries)):
            yield Position(ledger_id, entry_id)


_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_PERMANENT_ERRORS = (pulsar.ProducerBusy, pulsar.ProducerFenced, pulsar.TopicTerminated, pulsar.AuthorizationError)
"""Errors that are temporary just after a connection loss or while a topic moves, and otherwise permanent."""
_PERMANENT_AFTER_SECONDS = 20.0
T = TypeVar("T")


class RetryUntil:
    """Retries calls while a broker may be starting, or loading the topic, until the caller has stopped waiting."""

    def __init__(self, seconds: float, is_over: Callable[[], bool]) -> None:
        began = time.monotonic()
        self._deadline, self._permanent_after = began + seconds, began + _PERMANENT_AFTER_SECONDS
        self._is_over = is_over

    @property
    def is_over(self) -> bool:
        """True once retries have ended."""
        return self._is_over() or time.monotonic() > self._deadline

    def __call__(self, ask: Callable[[], T], *, answers: tuple[type[Exception], ...] = ()) -> T:
        """Retry a call until it succeeds, raises one of `answers`, or is unauthorized."""

        def may_retry(error: Exception) -> bool:
            if isinstance(error, (AdminUnauthorized, *answers)) or self.is_over:
                return False
            if isinstance(error, _PERMANENT_ERRORS) and time.monotonic() > self._permanent_after:
                return False
            return isinstance(error, (AdminError, pulsar.PulsarException))

        return retry(ask, may_retry, seconds=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)


class NameLookup:
    """The entries of a producer name on a topic, read over the admin API.

    With `ask`, requests are retried, so that a search over many entries need not start again. An entry that is not
    found was trimmed only if its ledger is no longer listed: entries are not found for a while when a topic moves to
    another broker or a bookie starts.
    """

    def __init__(self, admin: PulsarAdmin, topic: str, name: str, ask: RetryUntil | None = None) -> None:
        self._admin, self.topic, self.name = admin, topic, name
        self._ask = ask or RetryUntil(0, lambda: True)

    def stats(self) -> InternalStats:
        """Return the statistics of the topic."""
        return self._ask(lambda: self._admin.internal_stats(self.topic))

    def entry(self, position: Position, *, payload: bool = False) -> EntryMetadata:
        """Return an entry; raise AdminNotFound if it was trimmed."""
        read = partial(self._admin.entry, self.topic, position.ledger_id, position.entry_id, payload=payload)
        while True:
            try:
                return self._ask(read, answers=(AdminNotFound,))
            except AdminNotFound:
                if self._ask.is_over or is_trimmed(self.stats(), position):
                    raise
                threads.sleep(_PAUSE_SECONDS)

    def walk(self, positions: Iterable[Position], read: Callable[[Position], T]) -> Iterator[T]:
        """Yield what `read` returns for each entry, newest first, until the first trimmed one."""
        for position in positions:
            try:
                yield read(position)
            except AdminNotFound:
                if not is_trimmed(self.stats(), position):
                    raise
                return  # older entries are trimmed too

    def tail(self, stats: InternalStats, *, payload: bool = False) -> Iterator[EntryMetadata]:
        """Yield the topic's entries, newest first."""
        return self.walk(positions_from_end(stats.ledger_sizes()), partial(self.entry, payload=payload))

    def ids(self, entry: EntryMetadata) -> tuple[int, ...]:
        """Return the sequence ids of an entry's messages."""
        return ids_of(entry if entry.num_messages_in_batch is None else self.entry(entry.position, payload=True))

    def own_entries(
        self, stats: InternalStats, *, after: Position | None = None, derived: bool = False
    ) -> Iterator[OwnEntry]:
        """Yield the name's entries after a position, newest first; without one, at most 10,000 entries are searched."""
        for searched, entry in enumerate(self.tail(stats)):
            if after is not None and entry.position <= after:
                return
            if same_name(entry.producer_name, self.name) or (derived and derives_from(entry.producer_name, self.name)):
                yield OwnEntry.of(entry)
            if after is None and searched >= _MAX_ENTRIES:
                raise MessageIdUnresolved(
                    f"The last entry of producer {self.name} is not among the last {_MAX_ENTRIES:,} entries of "
                    f"{self.topic}, so it is unknown whether its last message is complete.",
                    position=None,
                )

    def is_stored(self, sequence_id: int) -> bool:
        """Return whether the topic has all of the name's last message: its last chunk, or itself if not chunked."""
        for entry in self.own_entries(self.stats(), derived=True):
            if entry.sequence_id != sequence_id or not entry.is_partial:
                return entry.sequence_id == sequence_id
        return False
