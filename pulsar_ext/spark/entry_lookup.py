"""What entries hold that no message came from, by their headers.

A reader delivers whole messages. Chunks of other messages, markers and trimmed entries it passes over silently, and on
a reconnect sometimes a message as well.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.dedup.stored import is_shown_exactly
from pulsar_ext.errors import (
    AdminNotFound,
    IncompleteChunkedMessage,
    InvalidUse,
    MessageIdUnresolved,
    PulsarExtError,
)
from pulsar_ext.ids.position import Ledgers, Position

from .connection import admin_of
from .data_loss import Loss, report_data_loss

if TYPE_CHECKING:
    from pulsar_ext.admin import EntryMetadata

    from .delivery_account import DeliveryAccount
    from .options import Settings
    from .splits import Segment

__all__ = ["EntryContent", "EntryLookup"]

_FOLLOWED_ENTRIES = 1000
"""How many entries after an unfinished chunked message are searched for another one of its producer."""

_log = logging.getLogger("pulsar_ext.spark")


class EntryContent(Enum):
    """What an entry that no message came from holds."""

    NO_MESSAGE = auto()
    """Nothing from which a message of the segment will ever come."""
    WHOLE_MESSAGE = auto()
    """The beginning of a message, all of which is on the topic."""
    UNFINISHED_MESSAGE = auto()
    """The first chunk of a message of which more chunks may still be published."""
    LAST_CHUNK = auto()
    """The last chunk of a message of the segment whose first chunk was looked up before."""


class EntryLookup:
    """Looks up entries of one segment.

    Args:
        segment: what is to be read.
        settings: the options.
        account: of the segment's messages.
    """

    def __init__(self, segment: Segment, settings: Settings, account: DeliveryAccount) -> None:
        self._segment = segment
        self._settings = settings
        self._account = account
        self._deleted_ledgers: set[int] = set()
        self._abandoned: set[Position] = set()
        self._begun: dict[tuple[Any, ...], Position] = {}

    def find(self, position: Position) -> tuple[EntryContent, Position]:
        """Look up an entry.

        Returns:
            What it holds; and the last entry of the message that begins there, if one does, or the first one of the
            message whose last chunk it is, else the entry itself.

        Raises:
            DataLoss: the entry is gone, unless a person has accepted it, or `failOnDataLoss` is false.
            InvalidUse: the entry is encrypted, and there is no option with a key.
        """
        if position.ledger_id in self._deleted_ledgers:
            return EntryContent.NO_MESSAGE, position
        admin = admin_of(self._settings)
        topic = self._segment.topic
        try:
            entry = admin.entry(topic, position.ledger_id, position.entry_id)
        except AdminNotFound:
            listed = {ledger.ledger_id for ledger in admin.internal_stats(topic).ledgers}
            self._deleted_ledgers.update({ledger for ledger, _ in self._segment.sizes} - listed)
            what = (
                f"Entry {position} of {topic} was to be read and is gone: trimmed by retention, by expiry (TTL) or by "
                "hand"
            )
            # It is named by its ledger, which goes as a whole.
            whole_ledger = Position(position.ledger_id, -1)
            report_data_loss(self._settings, [Loss(topic, whole_ledger, None, what)])
            return EntryContent.NO_MESSAGE, position
        if entry.encrypted and self._settings["cryptoPrivateKeyFile"] is None:
            raise InvalidUse(
                f"The entry {position} of {topic} is encrypted: option cryptoPrivateKeyFile names a file, on each "
                "executor, with the private key that decrypts it."
            )
        if not entry.is_chunk:
            other = entry.marker_type is not None or entry.txn_aborted
            return EntryContent.NO_MESSAGE if other else EntryContent.WHOLE_MESSAGE, position
        return self._find_chunked(position, entry)

    def why_not(self, position: Position | None) -> str:
        """Say what may keep a message from being delivered, if the entry at which it begins shows that."""
        if position is None:
            return ""
        try:
            entry = admin_of(self._settings).entry(self._segment.topic, position.ledger_id, position.entry_id)
        except PulsarExtError:
            return ""
        if entry.encrypted:
            return f"It is encrypted: is the key in {self._settings['cryptoPrivateKeyFile']} the one that decrypts it? "
        if entry.is_chunk:
            return "It is chunked: a reader drops it if ten others begin among its chunks. "
        return ""

    def _find_chunked(self, position: Position, entry: EntryMetadata) -> tuple[EntryContent, Position]:
        # Later chunks belong to the message of the first one, and that may be another segment's.
        if entry.chunk_id:
            is_last = entry.chunk_id + 1 == entry.num_chunks
            first = self._begun.get(_message_of(entry)) if is_last else None
            return (EntryContent.NO_MESSAGE, position) if first is None else (EntryContent.LAST_CHUNK, first)
        if entry.txn_aborted or not self._account.owns(position):
            return EntryContent.NO_MESSAGE, position
        if is_shown_exactly(entry.producer_name):  # or its chunks may be another's
            self._begun[_message_of(entry)] = position
        try:
            chunks = resolve_chunks(admin_of(self._settings), self._segment.topic, position)
        except (IncompleteChunkedMessage, MessageIdUnresolved):
            abandoned = self._is_abandoned(position, entry)
            return EntryContent.NO_MESSAGE if abandoned else EntryContent.UNFINISHED_MESSAGE, position
        return EntryContent.WHOLE_MESSAGE, chunks.positions[-1]

    def _is_abandoned(self, position: Position, first_chunk: EntryMetadata) -> bool:
        """Whether the producer of an unfinished message went on without it, so that it will never be finished.

        Threads that share a producer interleave their chunks, so that another message of it proves that only if it was
        published long after the last chunk; by the producer's own clock, and "long" is what a chunk is waited for.
        """
        name = first_chunk.producer_name
        if not is_shown_exactly(name):
            return False  # it may be another producer's
        admin = admin_of(self._settings)
        ledgers = Ledgers(admin.internal_stats(self._segment.topic).ledger_sizes())
        latest = first_chunk.publish_time
        at = ledgers.next(position)
        for _ in range(_FOLLOWED_ENTRIES):
            if at is None:
                return False
            try:
                entry = admin.entry(self._segment.topic, at.ledger_id, at.entry_id)
            except AdminNotFound:
                return False
            if entry.producer_name == name and entry.uuid == first_chunk.uuid:
                latest = max(latest, entry.publish_time)
            elif entry.producer_name == name and entry.publish_time - latest > self._settings["pollTimeoutMs"]:
                self._note_abandoned(position, first_chunk, at)
                return True
            at = ledgers.next(at)
        return False

    def _note_abandoned(self, position: Position, first_chunk: EntryMetadata, following: Position) -> None:
        if position not in self._abandoned:
            self._abandoned.add(position)
            _log.warning(
                "The message at %s on %s was never finished: its producer %s went on at %s. Of its %s chunks a part "
                "is there, and is left out",
                position,
                self._segment.topic,
                first_chunk.producer_name,
                following,
                first_chunk.num_chunks,
            )


def _message_of(chunk: EntryMetadata) -> tuple[Any, ...]:
    """Give what all chunks of a message have in common."""
    return chunk.uuid, chunk.producer_name, chunk.sequence_id
