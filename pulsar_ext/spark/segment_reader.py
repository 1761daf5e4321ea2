"""What a task does: read one segment, every message of it once, or say what is missing.

The reader delivers whole messages and says nothing of the entries it passes over. `Deliveries` keeps account of them,
and what did not come is looked up by its headers: chunks of other messages and markers are nothing to wait for, an
unfinished chunked message is waited for, what a client lost on a reconnect is read again, what was trimmed is reported.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdUnresolved
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.origin import Origin
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.key_encoding import KeyForms

from .block_taker import BlockTaker
from .connection import admin_of, client_of
from .delivery_account import Deliveries
from .errors import DataLoss, NotDelivered
from .message_block import Block, Ids, Keys, Sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_ext.admin import EntryMetadata, PulsarAdmin
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

    from .options import Settings
    from .splits import Segment

__all__ = ["SegmentReader", "read_segments"]

_SILENT_SECONDS = 0.5
_LOOK_AGAIN_SECONDS = 2.0
_OVERDUE_SECONDS = 5.0
_REOPENED_AT_MOST = 5
_LARGEST_QUEUE = 5000
_QUEUE_BYTES = 32 << 20
_FOLLOWED_ENTRIES = 1000

_log = logging.getLogger("pulsar_ext.spark")


def read_segments(segments: Iterable[Segment], ranges: KeyHashRanges | None, settings: Settings) -> Iterator[Block]:
    """Read segments one after the other.

    Args:
        segments: what to read.
        ranges: the slots to keep; None keeps all.
        settings: the options.

    Yields:
        Blocks of messages, none empty, each bounded by `maxBatchRows` and `maxBatchBytes`.

    Raises:
        DataLoss, NotDelivered, IncompleteChunkedMessage: as told.
    """
    keys = Keys(KeyForms(lambda: admin_of(settings), "exact") if settings["keyForms"] == "exact" else None)
    for segment in segments:
        for block in SegmentReader(segment, settings, keys).blocks():
            kept = block if ranges is None or ranges.is_full else _in_ranges(block, ranges)
            if kept is not block:
                block.release()
            if kept is not None:
                yield kept


def _in_ranges(block: Block, ranges: KeyHashRanges) -> Block | None:
    import numpy as np  # noqa: PLC0415  # as everywhere in this package, only where Spark is

    slots = block.slots
    wanted = np.zeros(len(block), bool)
    for one in ranges:
        wanted |= (slots >= one.start) & (slots <= one.end)
    if wanted.all():
        return block
    return block.take(np.flatnonzero(wanted).tolist()) if wanted.any() else None


class SegmentReader:
    """Reads one segment.

    Args:
        segment: what to read.
        settings: the options.
        keys: how keys are read.
    """

    def __init__(self, segment: Segment, settings: Settings, keys: Keys) -> None:
        self._segment = segment
        self._settings = settings
        self._keys = keys
        self._name = TopicName.parse(segment.topic)
        self._deliveries = Deliveries(segment)
        self._compacted = bool(settings["readCompacted"])
        self._waited_for: set[Position] = set()
        self._gone: set[int] = set()
        self._horizon = (-1, -1)
        self._again_from: Position | None = None
        self._reopened = 0
        self._reader: Any = None

    def blocks(self) -> Iterator[Block]:
        """Read; see `read_segments`. The order is the same each time: that of the (last) entries."""
        first = self._segment.ledgers.next(self._segment.after.position)
        if first is None or first > self._segment.until.last_entry:
            return
        self._reader = self._open(first)
        try:
            yield from self._read()
        finally:
            self._reader.close()

    def _read(self) -> Iterator[Block]:
        deliveries = self._deliveries
        take = BlockTaker(
            self._settings["maxBatchRows"], self._settings["maxBatchBytes"], self._segment.bytes_per_message
        )
        patience = self._settings["pollTimeoutMs"] / 1000
        progress, look_at = time.monotonic(), 0.0
        while not deliveries.reached or self._waited_for:
            inners = take(self._reader.inner.read_next)
            block = self._next_block(inners) if inners else None
            came = block is not None or (inners and not deliveries.reached)
            inners = []
            if block is not None:
                take.learn(block)
                yield block
                block = None  # a block is held while it is used, not while the next one is read
            if came:
                progress = time.monotonic()
            now = time.monotonic()
            if now >= look_at and (deliveries.reached or self._is_quiet(now - progress)):
                look_at = now + _LOOK_AGAIN_SECONDS
                if self._look_at_rest(now - progress):
                    return
            if now - progress > patience:
                self._give_up(patience)
                return

    def _next_block(self, inners: list[Any]) -> Block | None:
        """Give what is this segment's of the messages; none if one before them was passed over."""
        kept, waited_for = self._deliveries.keep(), set(self._waited_for)
        block = self._account(self._block(inners))
        if self._again_from is None:
            return block
        # Nothing of this block is out yet, so it is taken once more behind what is missing.
        self._deliveries.restore(kept)
        self._waited_for |= waited_for
        self._reopen()
        return None

    def _is_quiet(self, seconds: float) -> bool:
        """Whether nothing more may come of what is there: then headers have to tell."""
        if seconds < _SILENT_SECONDS:
            return False
        return seconds > _LOOK_AGAIN_SECONDS or not self._reader.inner.has_message_available()

    def _account(self, block: Block) -> Block | None:
        """Take note of deliveries and of what did not come before them; give those of this segment."""
        deliveries = self._deliveries
        kept = deliveries.feed(Ids(block), firsts=block.firsts, sizes=Sizes(block), columns=block.positions)
        self._waited_for.difference_update(block.firsts.values())
        if not self._compacted:
            for position in deliveries.missing():
                verdict, end = self._look(position)
                if verdict == "whole" and end <= deliveries.last:
                    self._again_from = min(position, self._again_from or position)
                elif verdict != "nothing":
                    self._waited_for.add(position)
        deliveries.settled()
        found = block if kept is None else block.take(kept) if kept else None
        return found if found is None or not self._compacted else self._without_compacted(found)

    def _look_at_rest(self, silent: float) -> bool:
        """Find out about what has not come yet; True if nothing of it ever will."""
        deliveries = self._deliveries
        if self._compacted:
            return True
        overdue = silent > _OVERDUE_SECONDS
        for position in sorted(self._waited_for):
            verdict, _ = self._look(position)
            if verdict == "nothing":
                self._waited_for.discard(position)
            elif verdict == "whole" and overdue:
                self._again_from = min(position, self._again_from or position)
        to_come = False
        for position in deliveries.rest():
            verdict, _ = self._look(position)
            if verdict == "nothing":
                deliveries.settle(position)
            elif verdict == "unfinished":
                self._waited_for.add(position)
                deliveries.settle(position)
            else:
                to_come = True
                break  # readers deliver in order: what is behind it comes later
        if self._again_from is not None:
            self._reopen()
        return not to_come and not self._waited_for

    def _reopen(self) -> None:
        """Read again from the first message that was passed over; what was delivered already is known."""
        following = self._segment.ledgers.next(self._deliveries.last)
        begin = min(one for one in (self._again_from, following, *self._waited_for) if one is not None)
        self._again_from = None
        self._reopened += 1
        if self._reopened > _REOPENED_AT_MOST:
            raise NotDelivered(
                f"The message at {begin} on {self._segment.topic} is whole, and no reader gets it. Run the job again; "
                "if it fails again, `pulsar-ext spark audit` shows what is there.",
                topic=self._segment.topic,
                position=begin,
            )
        _log.warning("%s is read again from %s: a message was passed over", self._segment.topic, begin)
        self._reader.close()
        self._reader = self._open(begin)

    def _block(self, inners: list[Any]) -> Block:
        return Block(inners, self._segment.topic, self._name.partition_index, self._keys)

    def _without_compacted(self, block: Block) -> Block | None:
        """Leave out the messages of a batch that were compacted away: the C++ client hands out empty ones for them.

        Compaction leaves no message without a key, and reaches as far as its own cursor.
        """
        batch = block.positions[2]
        empty = [
            index
            for index, text in enumerate(block.texts)
            if not text and not block.data[index] and batch[index] >= 0 and not block.ordering[index]
        ]
        if not empty:
            return block
        ids = Ids(block)
        if ids[empty[-1]][:2] > self._horizon:
            cursor = admin_of(self._settings).internal_stats(self._segment.topic).cursors.get("__compaction")
            if cursor is not None:
                at = cursor.mark_delete_position
                self._horizon = at.ledger_id, at.entry_id
        gone = {index for index in empty if ids[index][:2] <= self._horizon}
        kept = [index for index in range(len(block)) if index not in gone]
        return block.take(kept) if kept else None

    def _look(self, position: Position) -> tuple[str, Position]:
        """Say what an entry is that did not come: "nothing" to wait for, "whole", "unfinished"; and its end."""
        if position.ledger_id in self._gone:
            return "nothing", position
        admin = admin_of(self._settings)
        try:
            entry = admin.entry(self._segment.topic, position.ledger_id, position.entry_id)
        except AdminNotFound:
            listed = {ledger.ledger_id for ledger in admin.internal_stats(self._segment.topic).ledgers}
            self._gone.update({ledger for ledger, _ in self._segment.sizes} - listed)
            self._report_loss(position)
            return "nothing", position
        # A chunk goes with its first one; a marker goes nowhere.
        others = entry.is_chunk and (entry.chunk_id or not self._deliveries.owns(position))
        if others or entry.marker_type is not None or entry.txn_aborted:
            return "nothing", position
        if not entry.is_chunk:
            return "whole", position
        try:
            return "whole", resolve_chunks(admin, self._segment.topic, position).positions[-1]
        except (IncompleteChunkedMessage, MessageIdUnresolved):
            abandoned = _is_abandoned(admin, self._segment.topic, position, entry)
            return "nothing" if abandoned else "unfinished", position

    def _give_up(self, seconds: float) -> None:
        """Nothing came for too long."""
        if not self._waited_for:
            raise NotDelivered(
                f"No message came for {seconds:.0f} s from {self._segment.topic}, which has entries behind "
                f"{self._deliveries.last} up to {self._segment.until}. Is the broker reachable? Option pollTimeoutMs "
                "sets the patience.",
                topic=self._segment.topic,
                position=self._deliveries.last,
            )
        unfinished = sorted(self._waited_for)
        message = (
            f"{len(unfinished)} chunked message(s) on {self._segment.topic} begin at "
            f"{', '.join(map(str, unfinished[:5]))} and have not been finished for {seconds:.0f} s"
        )
        if self._settings["incompleteChunks"] == "fail":
            raise IncompleteChunkedMessage(
                f"{message}. If their producer is gone for good, option incompleteChunks=skip leaves them out; if it "
                "is slow, raise pollTimeoutMs.",
                position=unfinished[0],
            )
        _log.warning("%s; left out", message)

    def _report_loss(self, position: Position) -> None:
        message = (
            f"Entry {position} of {self._segment.topic} was to be read and is gone: trimmed by retention, by expiry or "
            "by hand"
        )
        if self._settings["failOnDataLoss"]:
            raise DataLoss(
                f"{message}. Option failOnDataLoss=false goes on without it.",
                topic=self._segment.topic,
                position=position,
            )
        _log.warning("%s; going on without it (failOnDataLoss=false)", message)

    def _open(self, first: Position) -> Any:
        start = MessageId(-1, first.ledger_id, first.entry_id)
        start.origin = Origin.BYTES  # an entry to begin at, whatever is in it
        passed = self._settings.passed.get("pulsar.reader.", {})
        queue = min(max(_QUEUE_BYTES // self._segment.bytes_per_message, 1), _LARGEST_QUEUE)
        options = {"receiver_queue_size": queue, **passed}
        return client_of(self._settings).create_reader(
            self._segment.topic,
            start,
            start_message_id_inclusive=True,
            is_read_compacted=self._compacted,
            **options,
        )


def _is_abandoned(admin: PulsarAdmin, topic: str, position: Position, first: EntryMetadata) -> bool:
    """Whether the producer of an unfinished message went on to another one: then it is never finished.

    A producer writes the chunks of a message one behind the other, with nothing of its own in between.
    """
    ledgers = Ledgers(admin.internal_stats(topic).ledger_sizes())
    at = ledgers.next(position)
    for _ in range(_FOLLOWED_ENTRIES):
        if at is None:
            return False
        try:
            entry = admin.entry(topic, at.ledger_id, at.entry_id)
        except AdminNotFound:
            return False
        if entry.producer_name == first.producer_name and entry.uuid != first.uuid:
            return True
        at = ledgers.next(at)
    return False
