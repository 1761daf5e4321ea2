"""Opening an effectively-once producer: prove that the broker deduplicates, and find where the name resumes.

The broker tells a producer the highest id that was *pushed* under its name; what was pushed and not yet persisted may
still be lost with the broker, or with a bookie. So that number is believed only where the topic holds what it stands
for. And it is not all: of a group of batches by key a part may be persisted above it, a message in chunks may be half
written at it, and a name that was idle for long is forgotten, while its messages are still there.

**Gaps.** A broker that cannot store for a moment may reject messages of a name and then store a later one; see
`sender.py`. A process that ends before it has sent the rejected ones again leaves them missing below the broker's
number. The later one is the first of its name in a new ledger, because a failed write closes the ledger. So a gap in
the ids between a name's last entry in one ledger and its first in the next may be such messages, or ids that were never
used. A batch of this library says which id was pushed before it, which tells the two apart. The name then counts as
persisted up to the gap, and what is after it is read from the topic: what is sent again is a duplicate if it is there,
and is stored if it is not.

**Forgotten names.** Writers of a *family* have names that begin alike, and write one batch after the other: the ids of
a batch are higher than all those of the batches before, whichever of the names has them, and a batch begins when the
one before it is persisted. So a search backwards from a topic's end knows all that a name has of the current batch as
soon as it finds an entry of the name, or one that any name of the family has of an earlier batch.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native import threads
from pulsar_ext.errors import (
    AdminError,
    AdminNotFound,
    DeduplicationDisabled,
    InvalidUse,
    ProducerBroken,
    ProducerForgotten,
)
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from .sequence_ids import SequenceIds, StoredEntry, persisted_above
from .stored import (
    OwnEntry,
    Patience,
    PatientAdmin,
    Resumption,
    derives_from,
    is_persisted,
    is_resent_as,
    is_shown_exactly,
    is_trimmed,
    own_entries,
    positions_from_end,
    previous_id,
    resume_chunked,
    same_name,
    snapshot_of,
    stored_entry,
    tail,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin


_MOST_LEDGERS = 16
_MOST_ENTRIES = 5_000
"""How many entries may be behind a gap that is looked for."""
_MOST_FOREIGN = 100
"""How many entries of other producers may be between a ledger's begin, or end, and the name's entry."""
_PROCESSES = 4
"""How many processes of the name may have ended one after the other before the refused messages were sent again."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Where a name's ids leave some out: behind its last entry before a ledger, up to before its first there."""

    ledger_id: int
    before: int
    behind: int


def first_unfilled(gaps: Iterable[Gap], held: Collection[int]) -> Gap | None:
    """Give the first of the gaps, the oldest first, some of whose ids are not held (pure)."""
    ids = sorted(held)
    for gap in gaps:
        if sum(gap.before < one < gap.behind for one in ids) < gap.behind - gap.before - 1:
            return gap
    return None


def held_behind_gap(
    admin: PulsarAdmin, topic: str, stats: InternalStats, name: str, most_pending: int
) -> tuple[int, frozenset[int]] | None:
    """Find the oldest gap in a name's ids that may be messages which the broker refused.

    Args:
        admin: the admin API; a `PatientAdmin`, for what it does not find counts as trimmed.
        topic: the topic or partition.
        stats: of the topic.
        name: the producer's.
        most_pending: how many messages it may have had without an answer, 0 for any number.

    Returns:
        The id in front of the gap, up to which everything is persisted, and the ids above it that are persisted as
        well. None without such a gap, or where encrypted batches keep it from being found.

    Raises:
        AdminError: the admin API refused or did not answer.
    """
    try:
        gaps = sorted(_gaps(admin, topic, stats, name), key=lambda gap: gap.ledger_id)
        if not gaps:
            return None
        held: set[int] = set()
        own = 0
        for entry in tail(admin, topic, stats):
            if entry.position.ledger_id < gaps[0].ledger_id:
                break
            if not _is_own(entry.producer_name, name):
                continue
            if same_name(entry.producer_name, name):
                own += entry.num_messages_in_batch or 1
                if most_pending and own > _PROCESSES * most_pending:  # no older gap was left by a process that ended
                    gaps = [gap for gap in gaps if gap.ledger_id > entry.position.ledger_id]
                    break
            if not OwnEntry.of(entry).is_partial:
                held.update(_ids(admin, topic, entry))
    except InvalidUse:
        return None
    gap = first_unfilled(gaps, held)
    return None if gap is None else (gap.before, frozenset(one for one in held if one > gap.before))


def _gaps(admin: PulsarAdmin, topic: str, stats: InternalStats, name: str) -> Iterator[Gap]:
    """Give the gaps between two ledgers, the newest first."""
    sizes = [(ledger_id, entries) for ledger_id, entries in stats.ledger_sizes() if entries]
    behind = 0
    for index in reversed(range(max(1, len(sizes) - _MOST_LEDGERS), len(sizes))):
        ledger_id, entries = sizes[index]
        behind += entries
        if behind > _MOST_ENTRIES:
            return
        in_ledger = (Position(ledger_id, entry_id) for entry_id in range(entries))
        first = next((one for one in _own(admin, topic, name, in_ledger) if same_name(one.producer_name, name)), None)
        before = _highest_before(admin, topic, name, sizes[:index])
        if first is None or before is None:
            continue
        previous = previous_id(first)
        if previous is None:  # it may have been any
            previous = min(_ids(admin, topic, first)) - 1
        if previous > before:
            yield Gap(ledger_id, before, previous + 1)


def _highest_before(admin: PulsarAdmin, topic: str, name: str, sizes: Sequence[tuple[int, int]]) -> int | None:
    """Give the highest id of a name's last entry in these ledgers, and of derived names' entries behind that."""
    highest = -1
    for entry in _own(admin, topic, name, positions_from_end(sizes)):
        own = OwnEntry.of(entry)
        if not own.is_partial:
            ids = _ids(admin, topic, entry) if previous_id(entry) is None else (own.carried,)
            highest = max(highest, *ids)
            if same_name(entry.producer_name, name):
                return highest
    return None


def _own(admin: PulsarAdmin, topic: str, name: str, positions: Iterable[Position]) -> Iterator[EntryMetadata]:
    """Give the entries of a name, and of names derived from it, until too many are of others, or one was trimmed."""
    foreign = 0
    for position in positions:
        try:
            entry = admin.entry(topic, position.ledger_id, position.entry_id)
        except AdminNotFound:
            return
        if _is_own(entry.producer_name, name):
            yield entry
        elif (foreign := foreign + 1) > _MOST_FOREIGN:
            return


def _is_own(shown: str, name: str) -> bool:
    return same_name(shown, name) or is_resent_as(shown, name) or derives_from(shown, name)


def _ids(admin: PulsarAdmin, topic: str, entry: EntryMetadata) -> tuple[int, ...]:
    """Give the sequence ids of an entry's messages."""
    if entry.num_messages_in_batch is not None:
        entry = admin.entry(topic, entry.position.ledger_id, entry.position.entry_id, payload=True)
    return stored_entry(entry).ids


MOST_ENTRIES = 10_000
"""How many entries are looked at, about 20 s of requests."""


@dataclass(frozen=True, slots=True)
class FamilyEntry:
    """An entry of any producer: its name as the broker shows it, and what `OwnEntry` has."""

    name: str
    own: OwnEntry


def recalled(name: str, family: str, first: int, entries: Iterable[FamilyEntry]) -> tuple[Resumption, bool]:
    """Decide where a forgotten name goes on (pure).

    Args:
        name: the producer's.
        family: what the names of the family begin with; empty if only the name itself is known.
        first: the lowest id of the batch that is about to be written, 0 or more.
        entries: of the topic, the newest first, read only as far as needed.

    Returns:
        Where it goes on, `published` being -1 where there is nothing of the name that matters; and whether that is
        certain, or there may be something behind these entries.
    """
    half: int | None = None
    for entry in entries:
        own = entry.own
        if same_name(entry.name, name) or derives_from(entry.name, name):
            if not own.is_partial:
                return Resumption(own.carried, half if half is not None and half > own.carried else None), True
            half = own.carried if half is None else half
        elif family and entry.name.startswith(family) and own.carried < first:
            return Resumption(-1, half), True
    return Resumption(-1, half), False


class Recall:
    """What an effectively-once producer needs so that the broker may forget its name.

    It keeps the headers that it has asked for, so that the producers of many names on one topic share them.

    Args:
        family: what the names of the family begin with; empty if there is no family.
        first: the lowest id of the batch that is about to be written.
        is_new: whether the application vouches for names of which nothing is found among the last 10,000 entries.
    """

    def __init__(self, family: str, first: int, *, is_new: bool = False) -> None:
        self._family = family if is_shown_exactly(family) else ""
        self._first = first
        self.is_new = is_new
        self._known: dict[str, dict[Position, FamilyEntry]] = {}

    def find(self, admin: PulsarAdmin, topic: str, name: str) -> Resumption | None:
        """Find out where a name goes on, on a topic that has no write pending.

        Returns:
            As `recalled`, where that is certain or all that the topic has was looked at. None if it is not known after
            10,000 entries, or if other names look like this one, because they have characters beyond Latin-1.

        Raises:
            AdminError: the admin API refused or did not answer.
        """
        if not is_shown_exactly(name):
            return None
        stats = admin.internal_stats(topic)
        found, certain = recalled(name, self._family, self._first, self._entries(admin, topic, stats))
        return found if certain or self.is_new or stats.number_of_entries <= MOST_ENTRIES else None

    def _entries(self, admin: PulsarAdmin, topic: str, stats: InternalStats) -> Iterator[FamilyEntry]:
        """Give the last entries of a topic, the newest first; what was asked for before is not asked for again."""
        known = self._known.setdefault(topic, {})
        for position in islice(positions_from_end(stats.ledger_sizes()), MOST_ENTRIES):
            if position not in known:
                try:
                    entry = admin.entry(topic, position.ledger_id, position.entry_id)
                except AdminNotFound:
                    if not is_trimmed(admin.internal_stats(topic), position):
                        raise
                    return  # as all before it
                known[position] = FamilyEntry(entry.producer_name, OwnEntry.of(entry))
            yield known[position]


_LOOKED_AT = 256
_PATIENCE_SECONDS = 20.0
_PAUSE_SECONDS = 0.05
_WALK_SECONDS = 120.0
"""How long a walk over entries goes on though the admin API is away: to begin it again would take longer still."""


def check_deduplication_arguments(named: dict[str, Any]) -> None:
    """Refuse what cannot be effectively once.

    Raises:
        InvalidUse: there is no producer name, the topic is not persistent, or messages in chunks are compressed.
    """
    name = named["producer_name"]
    if not isinstance(name, str) or not name:
        raise InvalidUse(
            "deduplication=True needs a producer_name, the same one after each restart: the broker remembers sequence "
            "ids by it. Nothing was opened."
        )
    if named["batching_enabled"] and named["chunking_enabled"]:
        raise InvalidUse("Batching and chunking of messages can't be enabled together.")
    if named["chunking_enabled"] and named["compression_type"] != pulsar.CompressionType.NONE:
        raise InvalidUse(
            "deduplication=True with chunking_enabled takes no compression_type: the broker cannot show chunks of a "
            "compressed message, so that the producer could not find out what is persisted when it is opened again."
        )
    if isinstance(named["topic"], str) and TopicName.parse(named["topic"]).domain != "persistent":
        raise InvalidUse(f"{named['topic']} is not persistent, so nothing on it can be deduplicated.")
    first = named["initial_sequence_id"]
    if first is not None and (isinstance(first, bool) or not isinstance(first, int) or first < -1):
        raise InvalidUse(f"initial_sequence_id is {first!r}; it must be -1 or more.")


class TrimmedGroupWarning(UserWarning):
    """It cannot be proved that a producer of batches by key was not killed in the midst of a group."""


class Opening:
    """Finds out where a name stands on one topic without partitions, or on one partition.

    Args:
        admin: the admin API.
        topic: the topic or partition.
        name: the producer's name.
        initial: as `initial_sequence_id`.
        group: how many messages a group of batches by key may have, 0 where batches are not by key.
        most_pending: how many messages may be without an answer at a time, 0 for any number.
        chunked: whether messages are sent in chunks.
        recall: finds a forgotten name's last message on the topic; None to refuse such a name.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        topic: str,
        name: str,
        initial: int | None,
        group: int,
        *,
        most_pending: int,
        chunked: bool,
        recall: Recall | None = None,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._name = name
        self._initial = -1 if initial is None else initial
        self._group = group
        self._most_pending = most_pending
        self._chunked = chunked
        self._recall = recall
        self.half_written: int | None = None
        """The id of a message in chunks that is half written, so that the broker takes it for persisted."""

    def prove(self) -> None:
        """Find out that the broker deduplicates the topic.

        Raises:
            DeduplicationDisabled: it does not.
            AdminError: the admin API refused or did not answer.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            status = self._admin.stats(self._topic).deduplication_status
            if status == "Enabled":
                return
            if status not in _COMING or time.monotonic() > deadline:
                break
            threads.sleep(_PAUSE_SECONDS)
        raise DeduplicationDisabled(
            f"The broker does not deduplicate {self._topic}: its status there is {status}. Enable it for the namespace "
            "(pulsar-ext admin set-deduplication NAMESPACE true), for the topic, or for the broker with "
            "brokerDeduplicationEnabled=true. Nothing was sent.",
            topic=self._topic,
            status=status,
        )

    def settle(self) -> None:
        """Wait until the topic has no write pending.

        Raises:
            ProducerBroken: writes stay pending.
            AdminError: the admin API refused or did not answer.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while pending := self._admin.internal_stats(self._topic).raw.get("pendingAddEntriesCount", 0):
            if time.monotonic() > deadline:
                raise ProducerBroken(
                    f"{self._topic} has had writes pending for {_PATIENCE_SECONDS:g} s ({pending} now), so that it is "
                    f"not known what of the producer {self._name} is persisted. Nothing was sent; try again later.",
                    last_published=None,
                )
            threads.sleep(_PAUSE_SECONDS)

    def sequence(self, published: int) -> SequenceIds | None:
        """Give the name's sequence, whose number the broker says is `published`.

        Returns:
            None if the topic does not hold what that number stands for: it was pushed, and is pending or lost.

        Raises:
            ProducerForgotten: the broker has forgotten the name.
            MessageIdUnresolved: the name's last entry is not among the last 10,000, and the broker's snapshot of
                sequence ids does not have it.
            AdminError: the admin API refused or did not answer.
        """
        above: frozenset[int] = frozenset()
        stats = self._admin.internal_stats(self._topic)
        if published < 0:
            if self._recall is not None:
                published = self._recalled(self._recall)
            else:
                self._check_fresh(stats)
        else:
            borne_out = self._borne_out(published, stats)
            if borne_out is None:
                return None
            published = borne_out
        if self._group and published >= 0:
            above = persisted_above(published, self._own(published), self._group)
        elif published >= 0:
            behind = held_behind_gap(self._patient_admin(), self._topic, stats, self._name, self._most_pending)
            published, above = behind or (published, above)
        return SequenceIds(published, above, first=self._initial + 1)

    def _borne_out(self, published: int, stats: InternalStats) -> int | None:
        """Give where the name goes on by the broker's number; None if the topic does not bear that out."""
        snapshot, counted = snapshot_of(stats, self._name)
        if self._chunked:
            own = own_entries(self._patient_admin(), self._topic, stats, self._name, derived=True)
            resumption = resume_chunked(published, own, snapshot)
            if resumption is None:
                return None
            self.half_written = resumption.half_written
            return resumption.published
        if snapshot != published:
            own = own_entries(self._patient_admin(), self._topic, stats, self._name, behind=counted)
            if not is_persisted(published, own, snapshot):
                return None
        return published

    def unsure(self, published: int) -> ProducerBroken:
        """Give the error of a number that the topic does not bear out."""
        return ProducerBroken(
            f"For {_PATIENCE_SECONDS:g} s the broker has said that the last sequence id of the producer {self._name} "
            f"is {published}, and {self._topic} does not hold that message. It is pending, or lost, so that it is not "
            "known where to go on. Nothing was sent; try again later.",
            last_published=None,
        )

    def chunk_bytes(self) -> int:
        """Give from how many bytes on a message may be sent in chunks; 0 if the broker does not say."""
        try:
            return int(self._admin.broker_configuration().get("maxMessageSize", 0))
        except (AdminError, ValueError):
            return 0

    def _patient_admin(self) -> Any:
        return PatientAdmin(self._admin, Patience(_WALK_SECONDS, lambda: False))

    def _own(self, published: int) -> Iterator[StoredEntry]:
        stats = self._admin.internal_stats(self._topic)
        known = False
        for entry in tail(self._patient_admin(), self._topic, stats, payload=True):
            if same_name(entry.producer_name, self._name):
                known = True
                yield stored_entry(entry)
        if not known:
            warnings.warn(
                f"{self._topic} holds nothing of the producer {self._name} any more, whose last sequence id is "
                f"{published}. If it was killed in the midst of a group of batches by key, and what was persisted of "
                "the group has been trimmed since, those messages are stored again when they are sent again.",
                TrimmedGroupWarning,
                stacklevel=2,
            )

    def _recalled(self, recall: Recall) -> int:
        """Find out what the topic holds of a name that the broker does not know: the highest id, -1 if nothing."""
        found = recall.find(self._admin, self._topic, self._name)
        if found is None:
            raise self._forgotten(
                f"the last {MOST_ENTRIES:,} entries of {self._topic} do not show whether it has sent messages, or its "
                "name has characters beyond Latin-1, which are not shown",
                -1,
            )
        if self._group and found.published >= 0:
            raise self._forgotten(
                f"{self._topic} holds a message of it with sequence id {found.published}, and a group of batches by "
                "key may be there in part",
                found.published,
            )
        self.half_written = found.half_written if self._chunked else None
        return found.published

    def _check_fresh(self, stats: InternalStats) -> None:
        """Find out that the topic holds nothing of a name that the broker does not know."""
        looked = 0
        for entry in tail(self._admin, self._topic, stats):
            is_own = same_name(entry.producer_name, self._name)
            if is_own and self._chunked and entry.is_chunk and entry.chunk_id != (entry.num_chunks or 0) - 1:
                self.half_written = entry.sequence_id
            elif is_own:
                raise self._forgotten(
                    f"{self._topic} holds a message of it with sequence id {entry.sequence_id} at {entry.position}",
                    entry.sequence_id,
                )
            looked += 1
            if looked >= _LOOKED_AT:
                break
        if looked < stats.number_of_entries and self._initial >= 0:
            raise self._forgotten(
                f"initial_sequence_id={self._initial} says that it has sent messages, and none of them is in the last "
                f"{looked} of {stats.number_of_entries} entries of {self._topic}",
                self._initial,
            )

    def _forgotten(self, why: str, sequence_id: int) -> ProducerForgotten:
        return ProducerForgotten(
            f"The broker knows no sequence id of the producer {self._name}, yet {why}. A name that is idle for longer "
            "than brokerDeduplicationProducerInactivityTimeoutMinutes (6 hours by default) is forgotten, and the "
            "broker would store its messages twice. Find the last one on the topic, and go on behind it with another "
            "name; a higher value of that setting of the broker keeps this from happening.",
            producer_name=self._name,
            topic=self._topic,
            sequence_id=sequence_id,
        )


_COMING = ("Initialized", "Recovering", "Enabling")


def open_surely(
    open_producer: Callable[[], Any], close: Callable[[Any], None], opening: Opening
) -> tuple[Any, SequenceIds]:
    """Open a producer so that its name's number is sure; close it again if it cannot be effectively once.

    From then on no other producer pushes under the name.

    Args:
        open_producer: opens an official producer of the name.
        close: closes one.
        opening: what there is to find out.

    Raises:
        DeduplicationDisabled, ProducerForgotten, MessageIdUnresolved, AdminError: see `Opening`.
        ProducerBroken: the broker's number is more than the topic holds, and stays so.
            In each case it is closed, and nothing was sent.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        producer = open_producer()
        try:
            opening.prove()
            opening.settle()
            published = producer.last_sequence_id()
            sequence = opening.sequence(published)
        except BaseException:
            close(producer)
            raise
        if sequence is not None:
            return producer, sequence
        # Another one is told the number anew: what has failed is taken back.
        close(producer)
        if time.monotonic() > deadline:
            raise opening.unsure(published)
        threads.sleep(_PAUSE_SECONDS)
