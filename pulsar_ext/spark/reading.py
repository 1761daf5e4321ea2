"""What a task does: read one segment, every message of it once, or say what is missing.

The reader delivers whole messages and says nothing of the entries it passes over. `Deliveries` keeps account of them,
and what did not come is looked up by its headers: chunks of other messages and markers are nothing to wait for, an
unfinished chunked message is waited for, what a client lost on a reconnect is read again, what was trimmed is reported.
"""

from __future__ import annotations

import logging
import time
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from pulsar_ext._official import Timeout
from pulsar_ext.chunks import resolve_chunks
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdUnresolved
from pulsar_ext.key_forms import KeyForms
from pulsar_ext.message_id import MessageId, Origin
from pulsar_ext.positions import Ledgers, Position, ledger_sizes
from pulsar_ext.spark.blocks import Block, Ids, Keys, Sizes
from pulsar_ext.spark.connection import admin_of, client_of
from pulsar_ext.spark.delivered import Deliveries
from pulsar_ext.spark.errors import DataLoss, NotDelivered
from pulsar_ext.topics import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_ext.admin import EntryMetadata, PulsarAdmin
    from pulsar_ext.keys import KeyHashRanges
    from pulsar_ext.spark.options import Settings
    from pulsar_ext.spark.splits import Segment

__all__ = ["SegmentReader", "read_segments"]

_FIRST_MILLIS = 200
_NEXT_MILLIS = 10
"""How long the first message of a block may take, and each further one: what came before is not held back."""
_SILENT_SECONDS = 0.5
_LOOK_AGAIN_SECONDS = 2.0
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

    def blocks(self) -> Iterator[Block]:
        """Read; see `read_segments`."""
        first = self._segment.ledgers.next(self._segment.after.position)
        if first is None or first > self._segment.until.last_entry:
            return
        reader = self._open(first)
        try:
            yield from self._read(reader)
        finally:
            reader.close()

    def _read(self, reader: Any) -> Iterator[Block]:
        deliveries = self._deliveries
        take = _Taking(reader, self._settings["maxBatchRows"], self._settings["maxBatchBytes"])
        progress = time.monotonic()
        look_at = 0.0
        while True:
            inners = take()
            waited_for = len(self._waited_for)
            if inners:
                block = self._account(Block(inners, self._segment.topic, self._name.partition_index, self._keys))
                if block is not None or not deliveries.reached:
                    progress = time.monotonic()
                if block is not None:
                    take.learn(block)
                    yield block
            now = time.monotonic()
            if len(self._waited_for) < waited_for:
                look_at = now
            if now >= look_at and (deliveries.reached or self._is_quiet(reader, now - progress)):
                look_at = now + _LOOK_AGAIN_SECONDS
                again = self._unaccounted(now - progress)
                if again is not None:
                    for position in again:
                        yield from self._read_again(position)
                    return
            if now - progress > self._settings["pollTimeoutMs"] / 1000:
                yield from self._give_up()
                return

    def _is_quiet(self, reader: Any, seconds: float) -> bool:
        """Whether nothing more may come of what is there: then headers have to tell."""
        if seconds < _SILENT_SECONDS:
            return False
        return seconds > _LOOK_AGAIN_SECONDS or not reader.inner.has_message_available()

    def _account(self, block: Block) -> Block | None:
        kept = self._deliveries.feed(Ids(block), firsts=block.firsts, sizes=Sizes(block), columns=block.positions)
        self._waited_for.difference_update(block.firsts.values())
        if kept is None:
            return block
        return block.take(kept) if kept else None

    def _unaccounted(self, silent: float) -> list[Position] | None:
        """Find out about the entries that did not come.

        Returns:
            Where messages begin that have to be read again, in order; None while something is still to come.
        """
        if self._compacted:
            return []
        deliveries = self._deliveries
        again: list[Position] = []
        complete = True
        for position, behind in [*((p, False) for p in deliveries.missing()), *((p, True) for p in deliveries.rest())]:
            verdict = self._look(position)
            # What is behind the last delivery may still be on its way.
            if verdict == "unfinished" or (verdict == "whole" and behind and silent < 2 * _LOOK_AGAIN_SECONDS):
                complete = False
                if verdict == "unfinished":
                    self._waited_for.add(position)
            elif verdict == "whole":
                again.append(position)
            else:
                deliveries.settle(position)
        return again if complete else None

    def _look(self, position: Position) -> str:
        """Say what an entry is that did not come: "nothing" to wait for, "whole", or "unfinished"."""
        if position.ledger_id in self._gone:
            return "nothing"
        admin = admin_of(self._settings)
        try:
            entry = admin.entry(self._segment.topic, position.ledger_id, position.entry_id)
        except AdminNotFound:
            listed = {ledger.ledger_id for ledger in admin.internal_stats(self._segment.topic).ledgers}
            self._gone.update({ledger for ledger, _ in self._segment.sizes} - listed)
            self._report_loss(position)
            return "nothing"
        # A chunk goes with its first one; a marker goes nowhere.
        others = entry.is_chunk and (entry.chunk_id or not self._deliveries.owns(position))
        if others or entry.marker_type is not None or entry.txn_aborted:
            return "nothing"
        if not entry.is_chunk:
            return "whole"
        try:
            resolve_chunks(admin, self._segment.topic, position)
        except (IncompleteChunkedMessage, MessageIdUnresolved):
            return "nothing" if _is_abandoned(admin, self._segment.topic, position, entry) else "unfinished"
        return "whole"

    def _read_again(self, position: Position) -> Iterator[Block]:
        """Read the one message, or batch, that begins at an entry, with a reader of its own."""
        _log.warning("%s %s was not delivered at first, and is read again", self._segment.topic, position)
        reader = self._open(position)
        deadline = time.monotonic() + self._settings["pollTimeoutMs"] / 1000
        found: list[Any] = []
        try:
            while time.monotonic() < deadline:
                try:
                    inner = reader.inner.read_next(_FIRST_MILLIS)
                except Timeout:
                    if found:
                        break
                    continue
                block = Block([inner], self._segment.topic, self._name.partition_index, self._keys)
                ledger, entry, batch = Ids(block)[0]
                owner = block.firsts.get(0, Position(ledger, entry))
                if owner == position:
                    found.append(inner)
                    if batch < 0 or batch + 1 >= Sizes(block)[0]:
                        break
                elif Position(ledger, entry) > position and found:
                    break
        finally:
            reader.close()
        if not found:
            raise NotDelivered(
                f"The message at {position} on {self._segment.topic} is whole, and no reader gets it. Run the job "
                "again; if it fails again, `pulsar-ext spark audit` shows what is there.",
                topic=self._segment.topic,
                position=position,
            )
        block = Block(found, self._segment.topic, self._name.partition_index, self._keys)
        kept = [i for i in range(len(found)) if self._deliveries.is_kept(Ids(block)[i], block.firsts.get(i))]
        if kept:
            yield block.take(kept)

    def _give_up(self) -> Iterator[Block]:
        """Nothing came for too long."""
        seconds = self._settings["pollTimeoutMs"] / 1000
        if self._waited_for:
            unfinished = sorted(self._waited_for)
            said = ", ".join(map(str, unfinished[:5]))
            message = (
                f"{len(unfinished)} chunked message(s) on {self._segment.topic} begin at {said} and have not been "
                f"finished for {seconds:.0f} s"
            )
            if self._settings["incompleteChunks"] == "fail":
                raise IncompleteChunkedMessage(
                    f"{message}. If their producer is gone for good, option incompleteChunks=skip leaves them out; if "
                    "it is slow, raise pollTimeoutMs.",
                    position=unfinished[0],
                )
            _log.warning("%s; left out", message)
            for position in unfinished:
                self._deliveries.settle(position)
            again = self._unaccounted(seconds)
            for position in again or ():
                yield from self._read_again(position)
            return
        raise NotDelivered(
            f"No message came for {seconds:.0f} s from {self._segment.topic}, which has entries behind "
            f"{self._deliveries.last} up to {self._segment.until}. Is the broker reachable? Option pollTimeoutMs sets "
            "the patience.",
            topic=self._segment.topic,
            position=self._deliveries.last,
        )

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


class _Taking:
    """Takes messages from a reader, as many at once as bounds allow."""

    def __init__(self, reader: Any, rows: int, size: int) -> None:
        self._read_next = reader.inner.read_next
        self._rows, self._bytes = rows, size
        self._at_once = min(rows, 64)

    def __call__(self) -> list[Any]:
        """Give up to a block of messages; none if nothing came within 200 ms."""
        inners: list[Any] = []
        try:
            inners.append(self._read_next(_FIRST_MILLIS))
            # Straight into the list: a wait that ends in a timeout loses nothing of what came before.
            inners.extend(islice(map(self._read_next, repeat(_NEXT_MILLIS)), self._at_once - 1))
        except Timeout:
            pass
        return inners

    def learn(self, block: Block) -> None:
        """Let the next block be as large as the bounds allow by what this one weighed."""
        weight = sum(map(len, block.data)) // len(block) or 1
        fits = max(self._bytes // weight, 1)
        # It at most doubles: one light block says little about the next.
        self._at_once = min(self._rows, fits, self._at_once * 4)


def _is_abandoned(admin: PulsarAdmin, topic: str, position: Position, first: EntryMetadata) -> bool:
    """Whether the producer of an unfinished message went on to another one: then it is never finished.

    A producer writes the chunks of a message one behind the other, with nothing of its own in between.
    """
    ledgers = Ledgers(ledger_sizes(admin.internal_stats(topic)))
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
