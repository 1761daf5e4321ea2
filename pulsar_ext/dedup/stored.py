"""What a topic holds of a producer: the entries that a reopened producer has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext._wire.batch_payload import batch_metadata
from pulsar_ext.errors import (
    AdminNotFound,
    InvalidUse,
    MessageIdUnresolved,
)

from .sequence_ids import StoredEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin

__all__ = ["is_whole", "same_name", "stored_entry", "tail"]


_SEQUENCE_ID = 8
_MOST_ENTRIES = 10_000


def same_name(shown: str, name: str) -> bool:
    """Whether an entry's producer name, as the admin API shows it, is this one: it shows `?` beyond Latin-1."""
    return shown == _shown(name)


def _is_of(entry: EntryMetadata, name: str) -> bool:
    return same_name(entry.producer_name, name) or entry.producer_name.startswith(f"{_shown(name)}~")


def _shown(name: str) -> str:
    return name.encode("latin-1", "replace").decode("latin-1")


def is_whole(admin: PulsarAdmin, topic: str, name: str, sequence_id: int, *, trimmed: bool) -> bool:
    """Find out whether the topic holds a message, whole: its last chunk, or the message itself if it has none.

    It is the last that this name, or one derived from it, has sent.

    Args:
        admin: the admin API.
        topic: the topic or partition.
        name: the producer's.
        sequence_id: the message's.
        trimmed: the answer if the topic holds nothing of this name, as after everything was consumed and trimmed.

    Raises:
        MessageIdUnresolved: it is not among the last 10,000 entries.
        AdminError: the admin API refused or did not answer.
    """
    for looked, entry in enumerate(tail(admin, topic, admin.internal_stats(topic))):
        if _is_of(entry, name):
            if entry.sequence_id != sequence_id:
                return False
            if not entry.is_chunk or entry.chunk_id == (entry.num_chunks or 0) - 1:
                return True
        if looked >= _MOST_ENTRIES:
            raise MessageIdUnresolved(
                f"{topic} has so many entries of other producers that it was not found out whether the message of "
                f"{name} with sequence id {sequence_id} is there whole.",
                position=None,
            )
    return trimmed


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
    """Give a topic's entries, the newest first."""
    for ledger in reversed(stats.ledgers):
        is_open = ledger is stats.ledgers[-1]
        for entry_id in reversed(range(stats.current_ledger_entries if is_open else ledger.entries)):
            try:
                yield admin.entry(topic, ledger.ledger_id, entry_id, payload=payload)
            except AdminNotFound:
                return  # trimmed, as all before it
