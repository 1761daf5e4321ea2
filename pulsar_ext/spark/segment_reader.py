"""Reading of a segment by a task: every message exactly once, or an error that names the missing ones.

A reader delivers whole messages and does not report the entries that it skips. A `DeliveryAccount` records them, and an
`_EntryLookup` determines the content of each: chunks of other messages and markers can be ignored, an incomplete
chunked message may still be completed, a message that the client lost on a reconnect is read again, and trimmed entries
are reported. For a compacted view, only the broker knows the remaining entries; it reports when all were delivered.

Compaction has processed the entries up to the position of its own cursor. An entry up to that position may have been
removed if it has no message; a later entry must be delivered, as in any other read.

The view outlives the ledgers from which it was made. The broker delivers entries older than the oldest ledger only to a
reader that begins at the earliest position, and not after a reconnect. So the delivered entries of the view are counted
and compared with its size.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from enum import Enum, auto

import numpy as np
import pulsar
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext.admin import EntryMetadata, InternalStats
from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.dedup.opening import is_shown_exactly
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, InvalidUse, MessageIdUnresolved, PulsarExtError
from pulsar_ext.ids.message_id import MessageId, Origin
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import KeyForms
from pulsar_ext.reader import Reader

from .connection import admin_of, client_of, reader_keys
from .delivery_account import DeliveryAccount
from .errors import Loss, NotDelivered, report_data_loss
from .message_block import Block, MessageBlock, read_block, sizes_of
from .offsets import BEGINNING, Segment, Split, plan_splits
from .options import Settings
from .schema import batch_maker
from .shipping import Shipped


class _CompactedView:
    def __init__(self, segment: Segment, settings: Settings) -> None:
        self._segment = segment
        self._settings = settings
        self._horizon = Position(-1, -1)
        self.outlives = segment.only_compacted > 0
        """True if entries of deleted ledgers may be delivered."""
        self._ledger = self._query().compacted if self.outlives else None
        self._seen: set[tuple[int, int]] = set()

    def horizon(self, position: Position) -> Position:
        """Return the position up to which compaction has run; query it again if `position` is after the known one."""
        if position > self._horizon:
            self._query()
        return self._horizon

    def count(self, block: MessageBlock) -> None:
        """Record delivered messages, if the view's completeness has to be checked by counting."""
        if self.outlives:
            ledger, entry, _ = block.positions
            self._seen.update(map(tuple, np.unique(np.stack((ledger, entry), 1), axis=0).tolist()))

    def check_whole(self) -> None:
        """Check that the whole view was delivered, if the gaps in it cannot be detected by ledgers."""
        before, stats = self._ledger, self._query() if self.outlives else None
        if stats is None or before is None or stats.compacted is None or stats.compacted.ledger_id != before.ledger_id:
            return
        horizon = self._horizon
        delivered = sum(Position(*one) <= horizon for one in self._seen)
        if self._segment.until.last_entry >= horizon and delivered < before.entries:
            raise NotDelivered(
                f"Of the {before.entries} entries of the compacted view of {self._segment.topic}, {delivered} were "
                "delivered: the connection was lost among entries of deleted ledgers, where the broker cannot resume, "
                "or chunked messages were compacted to one chunk. Run the job again; if it fails again, it is the "
                "latter.",
                topic=self._segment.topic,
                position=max((Position(*one) for one in self._seen), default=None),
            )

    def _query(self) -> InternalStats:
        stats = admin_of(self._settings).internal_stats(self._segment.topic)
        self._horizon = max(self._horizon, stats.compaction_horizon)
        return stats

    def without_removed(self, block: MessageBlock) -> MessageBlock | None:
        """Return the block without empty messages, which the C++ client delivers for compacted ones without a key."""
        ledger, entry, batch = block.positions
        columns = block.keys, block.values, block.ordering_keys
        empty = np.flatnonzero((batch >= 0) & (sum(map(sizes_of, columns)) == 0))
        if not len(empty):
            return block
        horizon = self.horizon(Position(int(ledger[empty[-1]]), int(entry[empty[-1]])))
        gone = {index for index in empty.tolist() if Position(int(ledger[index]), int(entry[index])) <= horizon}
        kept = [index for index in range(len(block)) if index not in gone]
        return block.take(kept) if kept else None


_FOLLOWED_ENTRIES = 1000
"""Number of entries after an incomplete chunked message that are searched for another one of its producer."""

_log = logging.getLogger("pulsar_ext.spark")


class EntryContent(Enum):
    """Content of an entry without a delivered message."""

    NO_MESSAGE = auto()
    """Contains no message of the segment, and never will."""
    WHOLE_MESSAGE = auto()
    """Beginning of a message that is complete on the topic."""
    UNFINISHED_MESSAGE = auto()
    """First chunk of a message of which more chunks may still be published."""
    LAST_CHUNK = auto()
    """Last chunk of a message of the segment whose first chunk was looked up before."""


class _EntryLookup:
    def __init__(self, segment: Segment, settings: Settings, account: DeliveryAccount) -> None:
        self._segment = segment
        self._settings = settings
        self._account = account
        self._deleted_ledgers: set[int] = set()
        self._abandoned: set[Position] = set()
        self._begun: dict[tuple[str | None, str, int], Position] = {}

    def find(self, position: Position) -> tuple[EntryContent, Position]:
        """Return an entry's content, and the other end of the message that begins or ends there, or else the entry."""
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
                f"Entry {position} of {topic} was to be read but no longer exists: it was trimmed by retention, by "
                "expiry (TTL) or by an operator"
            )
            # The loss is named by the ledger, because a ledger is deleted as a whole.
            whole_ledger = Position(position.ledger_id, -1)
            report_data_loss(self._settings, Loss(topic, whole_ledger, None, what))
            return EntryContent.NO_MESSAGE, position
        if entry.encrypted and self._settings["cryptoPrivateKeyFile"] is None:
            raise InvalidUse(
                f"The entry {position} of {topic} is encrypted: set option cryptoPrivateKeyFile to a file, on each "
                "executor, with the private key that decrypts it."
            )
        if not entry.is_chunk:
            other = entry.marker_type is not None or entry.txn_aborted
            return EntryContent.NO_MESSAGE if other else EntryContent.WHOLE_MESSAGE, position
        return self._find_chunked(position, entry)

    def delivery_hint(self, position: Position | None) -> str:
        """Return a possible reason why a message is not delivered, from its first entry; empty if unknown."""
        if position is None:
            return ""
        try:
            entry = admin_of(self._settings).entry(self._segment.topic, position.ledger_id, position.entry_id)
        except PulsarExtError:
            return ""
        if entry.encrypted:
            return f"It is encrypted: does the key in {self._settings['cryptoPrivateKeyFile']} decrypt it? "
        if entry.is_chunk:
            return "It is chunked: a reader drops it if ten others begin between its chunks. "
        return ""

    def _find_chunked(self, position: Position, entry: EntryMetadata) -> tuple[EntryContent, Position]:
        message = entry.uuid, entry.producer_name, entry.sequence_id  # all chunks of a message share these
        # Later chunks belong to the message of the first one, which may be in another segment.
        if entry.chunk_id:
            is_last = entry.chunk_id + 1 == entry.num_chunks
            first = self._begun.get(message) if is_last else None
            return (EntryContent.NO_MESSAGE, position) if first is None else (EntryContent.LAST_CHUNK, first)
        if entry.txn_aborted or not self._account.owns(position):
            return EntryContent.NO_MESSAGE, position
        if is_shown_exactly(entry.producer_name):  # otherwise its chunks may be another producer's
            self._begun[message] = position
        try:
            chunks = resolve_chunks(admin_of(self._settings), self._segment.topic, position)
        except (IncompleteChunkedMessage, MessageIdUnresolved):
            abandoned = self._is_abandoned(position, entry)
            return EntryContent.NO_MESSAGE if abandoned else EntryContent.UNFINISHED_MESSAGE, position
        return EntryContent.WHOLE_MESSAGE, chunks.positions[-1]

    def _is_abandoned(self, position: Position, first_chunk: EntryMetadata) -> bool:
        """Return true if the producer of an incomplete message has abandoned it, so that it will never be completed.

        Threads that share a producer interleave their chunks. So another message of the producer proves that only if
        it was published more than `pollTimeoutMs` after the last chunk, by the producer's own clock.
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
                if position not in self._abandoned:
                    self._abandoned.add(position)
                    _log.warning(
                        "The message at %s on %s was never completed: its producer %s continued at %s. Some of its %s "
                        "chunks are missing; it is skipped",
                        *(position, self._segment.topic, name, at, first_chunk.num_chunks),
                    )
                return True
            at = ledgers.next(at)
        return False


_FIRST_MILLIS = 200
"""Timeout for the first message of a block."""
_QUIET_SECONDS = 0.5
"""Time without a message after which the broker is asked for available messages."""
_LOOKUP_SECONDS = 2.0
"""Interval between two lookups of the missing entries."""
_OVERDUE_SECONDS = 5.0
"""Time without a message after which a complete message is read again."""
_MOST_REOPENS = 5
_LARGEST_QUEUE = 5000
_QUEUE_BYTES = 32 << 20


def read_segments(
    segments: Iterable[Segment], ranges: KeyHashRanges | None, settings: Settings
) -> Iterator[MessageBlock]:
    """Read segments one after the other, as blocks that are not empty; `ranges` are the slots to keep, None for all."""
    key_forms = KeyForms(lambda: admin_of(settings), "exact") if settings["keyForms"] == "exact" else None
    selected = None if ranges is None or ranges.is_full else ranges
    for segment in segments:
        for block in _SegmentReader(segment, settings, key_forms).blocks():
            kept = block if selected is None else _in_ranges(block, selected)
            if kept is not block:
                block.release()
            if kept is not None:
                yield kept


def _in_ranges(block: MessageBlock, ranges: KeyHashRanges) -> MessageBlock | None:
    slots = block.slots
    wanted = np.zeros(len(block), bool)
    for one in ranges:
        wanted |= (slots >= one.start) & (slots <= one.end)
    if wanted.all():
        return block
    return block.take(np.flatnonzero(wanted).tolist()) if wanted.any() else None


class _SegmentReader:
    def __init__(self, segment: Segment, settings: Settings, key_forms: KeyForms | None) -> None:
        self._segment = segment
        self._settings = settings
        self._key_forms = key_forms
        self._partition = TopicName.parse(segment.topic).partition_index
        self._account = DeliveryAccount(segment)
        self._lookup = _EntryLookup(segment, settings, self._account)
        self._view = _CompactedView(segment, settings) if settings["readCompacted"] else None
        self._unfinished: set[Position] = set()
        self._reread_from: Position | None = None
        self._reopens = 0
        self._reader: Reader[bytes]

    def blocks(self) -> Iterator[MessageBlock]:
        """Yield the blocks; see `read_segments`. They are always in the order of the messages' last entries."""
        first = self._segment.ledgers.next(self._segment.after.position)
        if self._view is not None and self._view.outlives:
            first = BEGINNING.last_entry
        if first is None or first > self._segment.until.last_entry:
            return
        self._reader = self._open(first)
        try:
            yield from self._read()
            if self._view is not None:
                self._view.check_whole()
        finally:
            self._close()

    def _read(self) -> Iterator[MessageBlock]:
        most, most_bytes = self._settings["maxBatchRows"], self._settings["maxBatchBytes"]
        patience = self._settings["pollTimeoutMs"] / 1000
        progress, lookup_at = time.monotonic(), 0.0
        while not self._account.reached or self._unfinished:
            inners: Block | None = read_block(self._reader.inner, most, most_bytes, _FIRST_MILLIS)
            block = self._next_block(inners) if inners else None
            arrived = block is not None or (inners and not self._account.reached)
            inners = None
            if block is not None:
                yield block
                block = None  # frees its messages before the next block is read
            if arrived:
                progress = time.monotonic()
            now = time.monotonic()
            quiet = now - progress
            # The broker may have no more messages to deliver: the entries without one have to be looked up.
            if now >= lookup_at and (
                self._account.reached or quiet > _LOOKUP_SECONDS or (quiet >= _QUIET_SECONDS and not self._has_more())
            ):
                lookup_at = now + _LOOKUP_SECONDS
                if self._look_up_rest(quiet):
                    return
            if quiet > patience:
                self._give_up(patience)
                return

    def _next_block(self, inners: Block) -> MessageBlock | None:
        """Return the messages of this segment; None without any, or if a message before them was skipped."""
        before, unfinished = copy(self._account), set(self._unfinished)  # no entry is missing now
        block = self._accounted(MessageBlock(inners, self._segment.topic, self._partition, self._key_forms))
        if self._reread_from is None:
            return block
        # No message of this block has been yielded, so the whole block is read again, from the skipped message on.
        self._account = before
        self._unfinished |= unfinished
        self._reopen(self._reread_from)
        return None

    def _has_more(self) -> bool:
        try:
            return bool(self._reader._has_native_message_())
        except UNREACHABLE:
            return True

    def _accounted(self, block: MessageBlock) -> MessageBlock | None:
        """Record messages and the entries they skipped; return those that belong to this segment."""
        account = self._account
        if self._view is not None:
            self._view.count(block)
        kept = account.feed(block.positions, first_chunks=block.first_chunks, batch_size=block.batch_size)
        self._note_arrived(block, kept)
        for position in account.missing(self._removed_up_to(account.last_missing)):
            content, other = self._lookup.find(position)
            if content is EntryContent.LAST_CHUNK:
                if other in self._unfinished:
                    self._reread_from = min(other, self._reread_from or other)
            elif content is EntryContent.WHOLE_MESSAGE and other <= account.last:
                self._reread_from = min(position, self._reread_from or position)
            elif content is not EntryContent.NO_MESSAGE:
                self._unfinished.add(position)
        account.account_for_missing()
        found = block if kept is None else block.take(kept) if kept else None
        return found if found is None or self._view is None else self._view.without_removed(found)

    def _note_arrived(self, block: MessageBlock, kept: list[int] | None) -> None:
        firsts = block.first_chunks
        self._unfinished.difference_update(firsts.values() if kept is None else map(firsts.get, kept))
        if misplaced := self._unfinished.intersection(firsts.values()):
            raise NotDelivered(
                f"The message at {min(misplaced)} on {self._segment.topic} arrived after messages that follow it: the "
                "connection was lost between its chunks. Run the job again.",
                topic=self._segment.topic,
                position=min(misplaced),
            )

    def _removed_up_to(self, position: Position | None) -> Position | None:
        """Return the position up to which entries may have been compacted away, if it matters up to `position`."""
        return None if self._view is None or position is None else self._view.horizon(position)

    def _look_up_rest(self, quiet_seconds: float) -> bool:
        """Look up the entries without a message; return true if no more messages will arrive."""
        overdue = quiet_seconds > _OVERDUE_SECONDS
        for position in sorted(self._unfinished):
            content, _ = self._lookup.find(position)
            if content is EntryContent.NO_MESSAGE:
                self._unfinished.discard(position)
            elif content is EntryContent.WHOLE_MESSAGE and overdue:
                self._reread_from = min(position, self._reread_from or position)
        to_come = self._is_rest_to_come()
        if self._reread_from is not None:
            self._reopen(self._reread_from)
        return not to_come and not self._unfinished

    def _is_rest_to_come(self) -> bool:
        """Look up the entries after the last received message; return true if messages are still expected from them."""
        account = self._account
        removed = None if account.reached else self._removed_up_to(self._segment.until.last_entry)
        for position in account.rest(removed):
            content, _ = self._lookup.find(position)
            if content is EntryContent.WHOLE_MESSAGE:
                return True  # readers deliver in order, so later entries arrive later
            if content is EntryContent.UNFINISHED_MESSAGE:
                self._unfinished.add(position)
            account.accounted.add(position)
        # Only the broker knows which of the remaining entries compaction kept.
        return removed is not None and account.last < removed and self._has_more()

    def _reopen(self, skipped: Position) -> None:
        """Reopen the reader before a skipped message; messages that arrived already are recognized."""
        following = self._segment.ledgers.next(self._account.last)
        begin = min(one for one in (skipped, following, *self._unfinished) if one is not None)
        self._reread_from = None
        self._reopens += 1
        if self._reopens > _MOST_REOPENS:
            raise NotDelivered(
                f"The message at {skipped} on {self._segment.topic} is complete, but no reader receives it. "
                f"{self._lookup.delivery_hint(skipped)}Run the job again; if it fails again, `pulsar-ext spark audit` "
                "lists the topic's defects.",
                topic=self._segment.topic,
                position=skipped,
            )
        _log.warning("Reading %s again from %s, because a message was skipped", self._segment.topic, begin)
        self._close()
        self._reader = self._open(begin)

    def _give_up(self, seconds: float) -> None:
        """Raise because of the timeout; only warn if all missing messages are incomplete and may be skipped."""
        topic, to_come = self._segment.topic, self._is_rest_to_come()
        contents = {position: self._lookup.find(position)[0] for position in sorted(self._unfinished)}
        whole = next((one for one, content in contents.items() if content is EntryContent.WHOLE_MESSAGE), None)
        if to_come or whole is not None:
            what = f"entries after {self._account.last} up to {self._segment.until}"
            hint = self._lookup.delivery_hint(whole or self._segment.ledgers.next(self._account.last))
            raise NotDelivered(
                f"No message arrived from {topic} for {seconds:.0f} s, although it has "
                f"{what if to_come else f'the one at {whole}'}. {hint}Is the broker reachable? "
                "Option pollTimeoutMs sets the timeout.",
                topic=topic,
                position=self._account.last,
            )
        unfinished = [one for one, content in contents.items() if content is EntryContent.UNFINISHED_MESSAGE]
        if not unfinished:
            return
        message = (
            f"{len(unfinished)} chunked message(s) on {topic}, beginning at {', '.join(map(str, unfinished[:5]))}, "
            f"are still incomplete after {seconds:.0f} s"
        )
        if self._settings["incompleteChunks"] == "fail":
            raise IncompleteChunkedMessage(
                f"{message}. If their producer has ended, set option incompleteChunks=skip; if it is slow, increase "
                "pollTimeoutMs.",
                position=unfinished[0],
            )
        _log.warning("%s; skipping them", message)

    def _close(self) -> None:
        """Close the reader; suppress an unreachable broker, which would hide the cause of the end."""
        with contextlib.suppress(pulsar.PulsarException):
            self._reader.close()

    def _open(self, first: Position) -> Reader[bytes]:
        start = MessageId(-1, first.ledger_id, first.entry_id)
        start.origin = Origin.BYTES  # an entry to begin at, whatever its content
        queue = min(max(_QUEUE_BYTES // self._segment.bytes_per_message, 1), _LARGEST_QUEUE)
        passed = {"receiver_queue_size": queue, **self._settings.passed.get("pulsar.reader.", {})}
        options = {**passed, **reader_keys(self._settings), "is_read_compacted": self._view is not None}
        client = client_of(self._settings)
        return client.create_reader(self._segment.topic, start, start_message_id_inclusive=True, **options)


class PulsarPartition(InputPartition, metaclass=Shipped):
    """Input of one task."""

    def __init__(self, split: Split) -> None:
        super().__init__(None)
        self.split = split

    def __repr__(self) -> str:
        segments = ", ".join(f"{one.topic} ({one.after}..{one.until}]" for one in self.split.segments)
        return f"PulsarPartition({segments})"


class SplitReader(metaclass=Shipped):
    """Common part of a batch read and a streaming read."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._ranges: KeyHashRanges | None = settings["keyHashRanges"] or settings["keys"]
        """Slots to read; None means all."""
        self._tasks: int | None = settings["minPartitions"]

    def _plan(self, segments: Sequence[Segment]) -> list[InputPartition]:
        return [*map(PulsarPartition, plan_splits(segments, self._settings["splitBy"], self._tasks, self._ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        if not isinstance(partition, PulsarPartition):  # Spark's own, if there is nothing to read
            return iter(())
        make = batch_maker(self._schema, self._settings)

        def to_batch(block: MessageBlock) -> pa.RecordBatch:
            batch = make(block)
            block.release()  # before the next block is read
            return batch

        return map(to_batch, read_segments(partition.split.segments, partition.split.ranges, self._settings))
