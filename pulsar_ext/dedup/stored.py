"""What a topic holds of a producer: the entries that a reopened one has to know, and where its name resumes.

The broker tells a new producer the highest id that was *pushed* under its name. While writes are pending, or have
failed and are not taken back yet, that is more than what is persisted. What the broker would find after a crash is
certain: the number of its last snapshot, and the name's entries after that. Mirrors `MessageDeduplication`
(`getLastPublishedSequenceId`, `recoverSequenceIdsMap`).

`Patience` asks again while a broker may be starting, or loading the topic.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._runtime.retry import retry
from pulsar_ext._wire.batch_payload import batch_metadata
from pulsar_ext.errors import AdminError, AdminNotFound, AdminUnauthorized, InvalidUse, MessageIdUnresolved
from pulsar_ext.ids.position import Position

from .sequence_ids import StoredEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin


@dataclass(frozen=True, slots=True)
class OwnEntry:
    """One entry of a name: the id that it goes by, and whether it is a chunk of a message but not its last."""

    carried: int
    is_partial: bool = False

    @classmethod
    def of(cls, entry: EntryMetadata) -> Self:
        """Make it of an entry's headers."""
        carried = max(entry.sequence_id, entry.highest_sequence_id or 0)
        return cls(carried, is_partial=entry.is_chunk and entry.chunk_id != (entry.num_chunks or 0) - 1)


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a name goes on: behind `published`; the message `half_written` is to be sent under another name."""

    published: int
    half_written: int | None = None


def is_persisted(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> bool:
    """Whether the broker's number is that of the last entry persisted under the name.

    Args:
        published: the broker's number.
        entries: the name's behind the snapshot, the newest first; read only as far as needed.
        snapshot: the snapshot's number for the name, None if it has none.
    """
    for entry in entries:
        if entry.carried == published:
            return True
        if not entry.is_partial:
            return False
    return snapshot == published


def not_held(asked: Collection[int], carried: Iterable[int]) -> frozenset[int]:
    """Give those of a name's ids that the topic certainly does not hold, though the broker has a higher one.

    The ids of a name's entries go up. So one that is not among them is certainly missing if a lower one is; where the
    entries end before a lower one, because older ones were trimmed, nothing is certain.

    Args:
        asked: the ids that entries would carry.
        carried: the ids that the name's entries carry, the newest first; read only as far as needed.
    """
    lowest, found = min(asked, default=-1), set()
    for one in carried:
        found.add(one)
        if one < lowest:
            break
    seen = min(found, default=None)
    return frozenset() if seen is None else frozenset(one for one in asked if one not in found and one > seen)


def resume_chunked(published: int, entries: Iterable[OwnEntry], snapshot: int | None) -> Resumption | None:
    """Decide where a name goes on that sends messages in chunks; None if that is not certain now.

    The broker counts a message by its last chunk, and after it has loaded the topic again by any chunk.

    Args:
        published: the broker's number.
        entries: the name's and those of names derived from it, the newest first; read only as far as needed.
        snapshot: the snapshot's number for the name, None if it has none.
    """
    half: int | None = None
    for entry in entries:
        if entry.is_partial:
            if half is None and entry.carried >= published:
                half = entry.carried
        elif entry.carried > published:
            return Resumption(entry.carried, _above(half, entry.carried))  # sent whole under a derived name
        elif entry.carried == published:
            return Resumption(published, _above(half, published))
        else:
            # What the broker's number stands for is half written, or it is pending or lost.
            return Resumption(published - 1, published) if half == published else None
    if half == published:
        return Resumption(published - 1, published)
    return Resumption(published, half) if snapshot == published else None


def _above(half: int | None, published: int) -> int | None:
    return half if half is not None and half > published else None


PREVIOUS_ID = "pulsar_ext.previous_sequence_id"
"""The property of a batch's entry that says which id of its name had been pushed before it; no message has it."""
_SEQUENCE_ID = 8
_SNAPSHOT_CURSOR = "pulsar.dedup"
_MOST_ENTRIES = 10_000


def same_name(shown: str, name: str) -> bool:
    """Whether an entry's producer name, as the admin API shows it, is this one: it shows `?` beyond Latin-1."""
    return shown == _shown(name)


def derives_from(shown: str, name: str) -> bool:
    """Whether an entry's producer name is one that was derived from this one for messages in chunks."""
    return shown.startswith(f"{_shown(name)}~")


def is_resent_as(shown: str, name: str) -> bool:
    """Whether an entry's producer name is one under which messages of this one are sent that the broker refused."""
    begin, plus, number = shown.rpartition("+")
    return bool(plus) and begin == _shown(name) and number.isdecimal()


def is_shown_exactly(name: str) -> bool:
    """Whether no other name is shown as this one."""
    return "?" not in _shown(name)


def _shown(name: str) -> str:
    return name.encode("latin-1", "replace").decode("latin-1")


def is_whole(admin: PulsarAdmin, topic: str, name: str, sequence_id: int) -> bool:
    """Find out whether the topic holds a message, whole: its last chunk, or the message itself if it has none.

    It is the last that this name, or one derived from it, has sent.

    Args:
        admin: the admin API.
        topic: the topic or partition.
        name: the producer's.
        sequence_id: the message's.

    Raises:
        MessageIdUnresolved: it is not among the last 10,000 entries.
        AdminError: the admin API refused or did not answer.
    """
    for entry in own_entries(admin, topic, admin.internal_stats(topic), name, derived=True):
        if entry.carried != sequence_id or not entry.is_partial:
            return entry.carried == sequence_id
    return False


def snapshot_of(stats: InternalStats, name: str) -> tuple[int | None, Position | None]:
    """Give the number that the broker's last snapshot of sequence ids has for a name, and up to where it counts.

    Both are None where the snapshot does not have the name.
    """
    cursor = stats.cursors.get(_SNAPSHOT_CURSOR)
    number = None if cursor is None else cursor.raw.get("properties", {}).get(name)
    return (None, None) if cursor is None or number is None else (int(number), cursor.mark_delete_position)


def own_entries(
    admin: PulsarAdmin,
    topic: str,
    stats: InternalStats,
    name: str,
    *,
    behind: Position | None = None,
    derived: bool = False,
) -> Iterator[OwnEntry]:
    """Give a name's entries, the newest first.

    Args:
        admin: the admin API.
        topic: the topic or partition.
        stats: of the topic.
        name: the producer's.
        behind: those behind this position only, however many other entries there are.
        derived: those of the names derived from it as well.

    Raises:
        MessageIdUnresolved: without a position, when 10,000 entries are no answer.
        AdminError: the admin API refused or did not answer.
    """
    for looked, entry in enumerate(tail(admin, topic, stats)):
        if behind is not None and entry.position <= behind:
            return
        if same_name(entry.producer_name, name) or (derived and derives_from(entry.producer_name, name)):
            yield OwnEntry.of(entry)
        if behind is None and looked >= _MOST_ENTRIES:
            raise MessageIdUnresolved(
                f"{topic} has so many entries of other producers that the last one of {name} was not found among "
                f"{_MOST_ENTRIES:,}, so that it is not known whether its last message is there whole.",
                position=None,
            )


def previous_id(entry: EntryMetadata) -> int | None:
    """Give the highest id of its name that had been pushed before an entry; None if it does not say."""
    said = entry.properties.get(PREVIOUS_ID, "")
    return int(said) if said.removeprefix("-").isdecimal() else None


def stored_entry(entry: EntryMetadata) -> StoredEntry:
    """Read the sequence ids of one entry's messages.

    Raises:
        InvalidUse: it is a batch that cannot be read, as an encrypted one.
    """
    count = entry.num_messages_in_batch
    if count is None:
        return StoredEntry(entry.sequence_id, (entry.sequence_id,))
    messages = None if entry.encrypted else batch_metadata(entry.payload or b"", count)
    if messages is None:
        raise InvalidUse(
            f"The batch at {entry.position} cannot be read, so it is not known which messages of a group of batches by "
            "key are persisted. Use batching_type=BatchingType.Default with encryption."
        )
    ids = [message.get(_SEQUENCE_ID, 0) for message in messages]
    return StoredEntry(entry.sequence_id, tuple(one for one in ids if isinstance(one, int)))


def tail(admin: PulsarAdmin, topic: str, stats: InternalStats, *, payload: bool = False) -> Iterator[EntryMetadata]:
    """Give a topic's entries, the newest first.

    Raises:
        AdminNotFound: one is not found though it was not trimmed, as where the topic is moving.
        AdminError: the admin API refused or did not answer.
    """
    for position in positions_from_end(stats.ledger_sizes()):
        try:
            yield admin.entry(topic, position.ledger_id, position.entry_id, payload=payload)
        except AdminNotFound:
            if not is_trimmed(admin.internal_stats(topic), position):
                raise
            return  # as all before it


def is_trimmed(stats: InternalStats, position: Position) -> bool:
    """Whether a topic has an entry no more, by its statistics: where a bookie starts, others are not found either."""
    return dict(stats.ledger_sizes()).get(position.ledger_id, 0) <= position.entry_id


def positions_from_end(sizes: Sequence[tuple[int, int]]) -> Iterator[Position]:
    """Give the positions of a topic's entries, the newest first, by its ledgers and how many entries each has."""
    for ledger_id, entries in reversed(sizes):
        for entry_id in reversed(range(entries)):
            yield Position(ledger_id, entry_id)


_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 2.0
_LASTING = (pulsar.ProducerBusy, pulsar.ProducerFenced, pulsar.TopicTerminated, pulsar.AuthorizationError)
"""What a broker says for a moment where a connection has just ended, or the topic moves, and else for good."""
_LASTING_SECONDS = 20.0
T = TypeVar("T")


class Patience:
    """Asks again while a broker may be starting, or loading the topic.

    Args:
        seconds: for how long.
        is_over: whether nobody waits any more.
    """

    def __init__(self, seconds: float, is_over: Callable[[], bool]) -> None:
        began = time.monotonic()
        self._deadline, self._lasting, self._is_over = began + seconds, began + _LASTING_SECONDS, is_over

    @property
    def is_over(self) -> bool:
        """Whether it is of no use to ask again."""
        return self._is_over() or time.monotonic() > self._deadline

    def __call__(self, ask: Callable[[], T], *, answers: tuple[type[Exception], ...] = ()) -> T:
        """Ask until there is an answer; `answers` are errors that are one, and so is that it is not permitted."""

        def may(error: Exception) -> bool:
            if isinstance(error, (AdminUnauthorized, *answers)) or self.is_over:
                return False
            if isinstance(error, _LASTING) and time.monotonic() > self._lasting:
                return False
            return isinstance(error, (AdminError, pulsar.PulsarException))

        return retry(ask, may, seconds=_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)


class PatientAdmin:
    """The two requests of a look-up, each asked with patience: a walk over many entries need not begin again.

    An entry that is not found was trimmed only if its ledger is not listed any more; a topic that moves to another
    broker, or whose bookie starts, has entries that are not found for a while.
    """

    def __init__(self, admin: PulsarAdmin, ask: Patience) -> None:
        self._admin, self._ask = admin, ask

    def internal_stats(self, topic: str) -> InternalStats:
        """Give the statistics of a topic."""
        return self._ask(lambda: self._admin.internal_stats(topic))

    def entry(self, topic: str, ledger_id: int, entry_id: int, **options: Any) -> EntryMetadata:
        """Give the headers of an entry.

        Raises:
            AdminNotFound: it was trimmed.
        """
        while True:
            try:
                return self._ask(
                    lambda: self._admin.entry(topic, ledger_id, entry_id, **options), answers=(AdminNotFound,)
                )
            except AdminNotFound:
                if self._ask.is_over or is_trimmed(self.internal_stats(topic), Position(ledger_id, entry_id)):
                    raise
                threads.sleep(_PAUSE_SECONDS)
