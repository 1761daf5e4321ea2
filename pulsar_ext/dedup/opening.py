"""Opening an effectively-once producer: check that the broker deduplicates, and find where the name resumes.

The broker reports to a producer the highest sequence id *pushed* under its name; messages pushed but not yet persisted
may still be lost with the broker or a bookie. So this id is trusted only if the topic has its message. And it is not
enough: part of a group of key-based batches may be persisted above it, a chunked message may be incomplete at it, and
the broker forgets a name that is idle for long while its messages are still stored.

**Certain ids.** While writes are pending, or failed writes are not yet rolled back, the broker's id is above the last
persisted one. Two things are certain, because the broker would recover from them: the id in its last snapshot, and the
name's entries after the snapshot. Mirrors `MessageDeduplication` (`getLastPublishedSequenceId`,
`recoverSequenceIdsMap`).

**Gaps.** A broker with a temporary write failure may reject messages of a name and then store a later one; see
`sender.py`. If the process ends before it has resent the rejected ones, they are missing below the broker's id. The
later message is the first of its name in a new ledger, because a failed write closes the ledger. So a gap in the ids
between a name's last entry in one ledger and its first in the next may be rejected messages, or ids that were never
used. Each batch of this library records the id pushed before it, which distinguishes the two. The name then resumes at
the gap, and the ids above it are read from the topic: a resent message is a duplicate if it is there, and is stored
otherwise.

**Forgotten names.** The writers of a *family* have names with a common prefix, and write one batch after the other: a
batch begins when the one before it is persisted, and its ids are higher than all ids of earlier batches, under any name
of the family. So a search backwards from the end of the topic is complete for a name as soon as it finds an entry of
the name, or an entry of the family that belongs to an earlier batch.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, Self, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.retry import retry
from pulsar_ext._wire.batch_payload import SEQUENCE_ID, batch_metadata
from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin
from pulsar_ext.errors import (
    AdminError,
    AdminNotFound,
    AdminUnauthorized,
    DeduplicationDisabled,
    InvalidUse,
    MessageIdUnresolved,
    ProducerBroken,
    ProducerForgotten,
)
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.produce.sender import close_quietly

from .sequence_ids import SequenceIds, persisted_above


class OwnEntry(NamedTuple):
    """An entry: its sequence id, whether it is a chunk but not the last, and its producer as the broker shows it."""

    sequence_id: int
    is_partial: bool = False
    name: str = ""

    @classmethod
    def of(cls, entry: EntryMetadata) -> Self:
        """Return the `OwnEntry` of an entry's headers."""
        is_partial = entry.is_chunk and entry.chunk_id != (entry.num_chunks or 0) - 1
        return cls(max(entry.sequence_id, entry.highest_sequence_id or 0), is_partial, entry.producer_name)


class Resumption(NamedTuple):
    """The point where a name resumes: after `published`; `incomplete_id` must be sent under another name."""

    published: int
    incomplete_id: int | None = None


def is_persisted(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> bool:
    """Return whether the broker's last id is persisted: in entries after the snapshot, newest first, or in that."""
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
MAX_SEARCHED_ENTRIES = 10_000
"""Maximum number of entries that are searched; they take about 20 s of requests."""


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


_RETRY_SECONDS = 0.2
_LONGEST_RETRY_SECONDS = 2.0
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

        return retry(ask, may_retry, seconds=_RETRY_SECONDS, longest=_LONGEST_RETRY_SECONDS)


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
                threads.sleep(_RETRY_SECONDS)

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
            if after is None and searched >= MAX_SEARCHED_ENTRIES:
                raise MessageIdUnresolved(
                    f"The last entry of producer {self.name} is not among the last {MAX_SEARCHED_ENTRIES:,} entries of "
                    f"{self.topic}, so it is unknown whether its last message is complete.",
                    position=None,
                )

    def is_stored(self, sequence_id: int) -> bool:
        """Return whether the topic has all of the name's last message: its last chunk, or itself if not chunked."""
        for entry in self.own_entries(self.stats(), derived=True):
            if entry.sequence_id != sequence_id or not entry.is_partial:
                return entry.sequence_id == sequence_id
        return False


_MAX_LEDGERS = 16
_MAX_ENTRIES_AFTER_GAP = 5_000
"""Maximum number of entries after a gap that is searched for."""
_MAX_FOREIGN = 100
"""Maximum number of other producers' entries between the begin or end of a ledger and the name's entry."""
_MAX_KILLED_PROCESSES = 4
"""Maximum number of processes of the name that may have ended before the rejected messages were resent."""


class Gap(NamedTuple):
    """Unused sequence ids of a name: above `before`, its last in older ledgers, and below `until`, its first here."""

    ledger_id: int
    before: int
    until: int


def first_unfilled_gap(gaps: Iterable[Gap], stored_ids: Collection[int]) -> Gap | None:
    """Return the oldest gap with ids that are not stored, or None (pure); the gaps are in order."""
    ids = sorted(stored_ids)
    for gap in gaps:
        if sum(gap.before < stored < gap.until for stored in ids) < gap.until - gap.before - 1:
            return gap
    return None


def persisted_after_gap(
    lookup: NameLookup, stats: InternalStats, max_pending: int
) -> tuple[int, frozenset[int]] | None:
    """Return the id before the oldest gap that may be rejected messages, and the persisted ids above it, or None."""
    try:
        gaps = sorted(_gaps(lookup, stats), key=lambda gap: gap.ledger_id)
        if not gaps:
            return None
        stored_ids: set[int] = set()
        own = 0
        for entry in lookup.tail(stats):
            if entry.position.ledger_id < gaps[0].ledger_id:
                break
            if not _is_own(entry.producer_name, lookup.name):
                continue
            if same_name(entry.producer_name, lookup.name):
                own += entry.num_messages_in_batch or 1
                if max_pending and own > _MAX_KILLED_PROCESSES * max_pending:
                    # An older gap cannot be from rejected messages.
                    gaps = [gap for gap in gaps if gap.ledger_id > entry.position.ledger_id]
                    break
            if not OwnEntry.of(entry).is_partial:
                stored_ids.update(lookup.ids(entry))
    except InvalidUse:
        return None
    gap = first_unfilled_gap(gaps, stored_ids)
    return None if gap is None else (gap.before, frozenset(stored for stored in stored_ids if stored > gap.before))


def _gaps(lookup: NameLookup, stats: InternalStats) -> Iterator[Gap]:
    """Yield the gaps between two ledgers, newest first."""
    sizes = [(ledger_id, entries) for ledger_id, entries in stats.ledger_sizes() if entries]
    newer_entries = 0
    for index in reversed(range(max(1, len(sizes) - _MAX_LEDGERS), len(sizes))):
        ledger_id, entries = sizes[index]
        newer_entries += entries
        if newer_entries > _MAX_ENTRIES_AFTER_GAP:
            return
        in_ledger = (Position(ledger_id, entry_id) for entry_id in range(entries))
        first = next((one for one in _own(lookup, in_ledger) if same_name(one.producer_name, lookup.name)), None)
        before = _highest_before(lookup, sizes[:index])
        if first is None or before is None:
            continue
        previous = previous_id(first)
        if previous is None:  # unknown, so assume the lowest id of the entry minus one
            previous = min(lookup.ids(first)) - 1
        if previous > before:
            yield Gap(ledger_id, before, previous + 1)


def _highest_before(lookup: NameLookup, sizes: Sequence[tuple[int, int]]) -> int | None:
    """Return the highest id of a name's last entry in these ledgers, and of derived names' entries after it."""
    highest = -1
    for entry in _own(lookup, positions_from_end(sizes)):
        own = OwnEntry.of(entry)
        if not own.is_partial:
            ids = lookup.ids(entry) if previous_id(entry) is None else (own.sequence_id,)
            highest = max(highest, *ids)
            if same_name(entry.producer_name, lookup.name):
                return highest
    return None


def _own(lookup: NameLookup, positions: Iterable[Position]) -> Iterator[EntryMetadata]:
    """Yield the entries of a name and its derived names, until too many others in between, or a trimmed one."""
    foreign = 0
    for entry in lookup.walk(positions, lookup.entry):
        if _is_own(entry.producer_name, lookup.name):
            yield entry
        elif (foreign := foreign + 1) > _MAX_FOREIGN:
            return


def _is_own(shown: str, name: str) -> bool:
    return same_name(shown, name) or is_resent_as(shown, name) or derives_from(shown, name)


def resume_forgotten(name: str, family: str, first: int, entries: Iterable[OwnEntry]) -> tuple[Resumption, bool]:
    """Decide where a forgotten name resumes by entries, newest first, and whether older ones may change it (pure)."""
    incomplete: int | None = None
    for entry in entries:
        if same_name(entry.name, name) or derives_from(entry.name, name):
            if not entry.is_partial:
                return resumption_after(entry.sequence_id, incomplete), True
            incomplete = entry.sequence_id if incomplete is None else incomplete
        elif family and entry.name.startswith(family) and entry.sequence_id < first:
            return Resumption(-1, incomplete), True
    return Resumption(-1, incomplete), False


class Recall:
    """Lets an effectively-once producer resume although the broker has forgotten its name.

    The names of its `family` have a common prefix; it is empty if there is no family. `first` is the lowest id of the
    batch to write next. With `is_new` the application asserts that a name not found among the last 10,000 entries is
    new. Entry headers are cached, so that the producers of many names on one topic share the requests.
    """

    def __init__(self, family: str, first: int, *, is_new: bool = False) -> None:
        self._family = family if is_shown_exactly(family) else ""
        self._first = first
        self.is_new = is_new
        self._known: dict[str, dict[Position, OwnEntry]] = {}

    def find(self, admin: PulsarAdmin, topic: str, name: str) -> Resumption | None:
        """Find where a name resumes, on a topic without pending writes; None if that is uncertain."""
        if not is_shown_exactly(name):
            return None
        lookup, known = NameLookup(admin, topic, name), self._known.setdefault(topic, {})

        def read(position: Position) -> OwnEntry:
            if position not in known:
                known[position] = OwnEntry.of(lookup.entry(position))
            return known[position]

        stats = lookup.stats()
        entries = lookup.walk(islice(positions_from_end(stats.ledger_sizes()), MAX_SEARCHED_ENTRIES), read)
        found, certain = resume_forgotten(name, self._family, self._first, entries)
        return found if certain or self.is_new or stats.number_of_entries <= MAX_SEARCHED_ENTRIES else None


_FRESH_CHECK_ENTRIES = 256
_OPENING_SECONDS = 20.0
_POLL_SECONDS = 0.05
_WALK_SECONDS = 120.0
"""Retry time during a search over entries; long, because a new search would take longer still."""


def check_deduplication_arguments(named: Arguments) -> None:
    """Check the arguments of an effectively-once producer."""
    name = named["producer_name"]
    if not isinstance(name, str) or not name:
        raise InvalidUse(
            "deduplication=True needs a producer_name that stays the same after each restart: the broker keeps "
            "sequence ids by name. Nothing was opened."
        )
    if named["batching_enabled"] and named["chunking_enabled"]:
        raise InvalidUse("Batching and chunking of messages can't be enabled together.")
    if named["chunking_enabled"] and named["compression_type"] != pulsar.CompressionType.NONE:
        raise InvalidUse(
            "deduplication=True with chunking_enabled supports no compression_type: the broker cannot show chunks "
            "of a compressed message, so a reopened producer could not determine which messages are persisted. "
            "Nothing was opened."
        )
    if isinstance(named["topic"], str) and TopicName.parse(named["topic"]).domain != "persistent":
        raise InvalidUse(f"{named['topic']} is not persistent, so it cannot be deduplicated. Nothing was opened.")
    first = named["initial_sequence_id"]
    if first is not None and (isinstance(first, bool) or not isinstance(first, int) or first < -1):
        raise InvalidUse(f"initial_sequence_id must be an int >= -1, got {first!r}")


class TrimmedGroupWarning(UserWarning):
    """A producer with key-based batches may have been killed within a group, and this cannot be checked any more."""


_STARTING = ("Initialized", "Recovering", "Enabling")


def _poll(ask: Callable[[], T], may_change: Callable[[T], bool]) -> T:
    """Return the first answer that cannot change soon, or the last one of `_OPENING_SECONDS`."""
    deadline = time.monotonic() + _OPENING_SECONDS
    while may_change(answer := ask()) and time.monotonic() <= deadline:
        threads.sleep(_POLL_SECONDS)
    return answer


@dataclass(eq=False)
class Opening:
    """Determines where a name resumes on one non-partitioned topic or partition."""

    admin: PulsarAdmin
    topic: str
    name: str
    open_as: Callable[[str], pulsar.Producer]
    """Opens an official producer of any name on the topic."""
    initial: int
    group: int
    """Maximum number of messages in a group of key-based batches, 0 if batches are not by key."""
    max_pending: int
    """Maximum number of messages in flight, 0 for unlimited."""
    chunked: bool
    recall: Recall | None
    """If there is none, a forgotten name is rejected."""
    chunk_bytes: int = 0
    """The size in bytes from which a message may be chunked; 0 if the broker does not report it."""
    incomplete_id: int | None = None
    """The id of an incomplete chunked message, which the broker counts as persisted."""

    def open(self) -> tuple[pulsar.Producer, SequenceIds]:
        """Open an official producer with a confirmed last id; from then on no other producer pushes under the name."""
        deadline = time.monotonic() + _OPENING_SECONDS
        while True:
            producer = self.open_as(self.name)
            try:
                self._check_enabled()
                self.await_writes()
                published = producer.last_sequence_id()
                sequence = self._sequence(published)
            except BaseException:
                close_quietly(producer)
                raise
            if sequence is not None:
                self.chunk_bytes = self._max_message_size() if self.chunked else 0
                return producer, sequence
            # A new producer gets the id again: the broker may have corrected it after failed writes.
            close_quietly(producer)
            if time.monotonic() > deadline:
                raise ProducerBroken(
                    f"For {_OPENING_SECONDS:g} s the broker has reported {published} as the last sequence id of "
                    f"producer {self.name}, but {self.topic} does not have that message. It is pending or lost, so "
                    "it is unknown where to resume. Nothing was sent; try again later.",
                    last_published=None,
                )
            threads.sleep(_POLL_SECONDS)

    def _check_enabled(self) -> None:
        status = _poll(lambda: self.admin.stats(self.topic).deduplication_status, _STARTING.__contains__)
        if status != "Enabled":
            raise DeduplicationDisabled(
                f"The broker does not deduplicate {self.topic}: its status there is {status}. Enable it for the "
                "namespace (pulsar-ext admin set-deduplication NAMESPACE true), for the topic, or for the broker with "
                "brokerDeduplicationEnabled=true. Nothing was sent.",
                topic=self.topic,
                status=status,
            )

    def await_writes(self) -> None:
        """Wait until the topic has no pending writes."""
        pending = _poll(lambda: self.admin.internal_stats(self.topic).raw.get("pendingAddEntriesCount", 0), bool)
        if pending:
            raise ProducerBroken(
                f"{self.topic} has had writes pending for {_OPENING_SECONDS:g} s ({pending} now), so it is unknown "
                f"which messages of the producer {self.name} are persisted. Nothing was sent; try again later.",
                last_published=None,
            )

    def _sequence(self, published: int) -> SequenceIds | None:
        """Return the name's sequence ids; None if the message of the broker's last id is pending or lost."""
        above: frozenset[int] = frozenset()
        stats = self.admin.internal_stats(self.topic)
        if published >= 0:
            confirmed = self._confirmed(published, stats)
            if confirmed is None:
                return None
            published = confirmed
        elif self.recall is not None:
            published = self._resume_forgotten(self.recall)
        else:
            self._check_fresh(stats)
        if self.group and published >= 0:
            above = persisted_above(published, self._own_ids(published), self.group)
        elif published >= 0:
            after_gap = persisted_after_gap(self._patient_lookup(), stats, self.max_pending)
            published, above = after_gap or (published, above)
        return SequenceIds(published, above, first=self.initial + 1)

    def _confirmed(self, published: int, stats: InternalStats) -> int | None:
        """Return where the name resumes by the broker's id; None if the topic does not confirm it."""
        snapshot, counted = snapshot_of(stats, self.name)
        if self.chunked:
            resumption = resume_chunked(published, self._patient_lookup().own_entries(stats, derived=True), snapshot)
            if resumption is None:
                return None
            self.incomplete_id = resumption.incomplete_id
            return resumption.published
        if snapshot != published:
            own = self._patient_lookup().own_entries(stats, after=counted)
            if not is_persisted(published, own, snapshot):
                return None
        return published

    def _max_message_size(self) -> int:
        try:
            return int(self.admin.broker_configuration().get("maxMessageSize", 0))
        except (AdminError, ValueError):
            return 0

    def lookup(self, ask: RetryUntil | None = None) -> NameLookup:
        """Return the look-up of the name's entries."""
        return NameLookup(self.admin, self.topic, self.name, ask)

    def _patient_lookup(self) -> NameLookup:
        return self.lookup(RetryUntil(_WALK_SECONDS, lambda: False))

    def _own_ids(self, published: int) -> Iterator[tuple[int, ...]]:
        """Yield the ids of each of the name's entries, newest first."""
        known = False
        for entry in self._patient_lookup().tail(self.admin.internal_stats(self.topic), payload=True):
            if same_name(entry.producer_name, self.name):
                known = True
                yield ids_of(entry)
        if not known:
            warnings.warn(
                f"{self.topic} has no entries of producer {self.name} any more, whose last sequence id is "
                f"{published}. If it was killed within a group of key-based batches whose persisted part was trimmed, "
                "that part is stored again when it is resent.",
                TrimmedGroupWarning,
                stacklevel=2,
            )

    def _resume_forgotten(self, recall: Recall) -> int:
        """Return the highest id that the topic has of a name forgotten by the broker, -1 if none."""
        found = recall.find(self.admin, self.topic, self.name)
        if found is None:
            raise self._forgotten_error(
                f"the last {MAX_SEARCHED_ENTRIES:,} entries of {self.topic} do not show whether it has sent "
                "messages, or its name has characters beyond Latin-1, which are not shown",
                -1,
            )
        if self.group and found.published >= 0:
            raise self._forgotten_error(
                f"{self.topic} has a message of it with sequence id {found.published}, and possibly part of a group "
                "of key-based batches",
                found.published,
            )
        self.incomplete_id = found.incomplete_id if self.chunked else None
        return found.published

    def _check_fresh(self, stats: InternalStats) -> None:
        """Check that the topic has no messages of a name that the broker does not know."""
        searched = 0
        for entry in islice(self.lookup().tail(stats), _FRESH_CHECK_ENTRIES):
            searched += 1
            if not same_name(entry.producer_name, self.name):
                continue
            if not (self.chunked and OwnEntry.of(entry).is_partial):
                raise self._forgotten_error(
                    f"{self.topic} has a message of it with sequence id {entry.sequence_id} at {entry.position}",
                    entry.sequence_id,
                )
            self.incomplete_id = entry.sequence_id
        if searched < stats.number_of_entries and self.initial >= 0:
            raise self._forgotten_error(
                f"initial_sequence_id={self.initial} implies that it has sent messages, and none of them is among "
                f"the last {searched} of {stats.number_of_entries} entries of {self.topic}",
                self.initial,
            )

    def _forgotten_error(self, why: str, sequence_id: int) -> ProducerForgotten:
        return ProducerForgotten(
            f"The broker has no sequence id of producer {self.name}, but {why}. It forgets idle names "
            "(brokerDeduplicationProducerInactivityTimeoutMinutes, default 6 hours) and would store duplicates. "
            "Resume after the last stored message with a new name.",
            producer_name=self.name,
            topic=self.topic,
            sequence_id=sequence_id,
        )
