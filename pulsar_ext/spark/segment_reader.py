"""What a task does: read a segment, every message of it exactly once, or raise what is missing.

The reader delivers whole messages and does not mention the entries that it passes over. A `DeliveryAccount` keeps
track of them, and an `EntryLookup` finds out what each holds: chunks of other messages and markers can be ignored,
an unfinished chunked message is waited for, a message that the client lost on a reconnect is read again, and trimmed
entries are reported. Of a compacted view, only the broker knows which entries are left: it says when all have come.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pulsar

from pulsar_ext._native.results import UNREACHABLE
from pulsar_ext.errors import IncompleteChunkedMessage
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.origin import Origin
from pulsar_ext.ids.topic_name import TopicName

from .block_taker import BlockTaker
from .compacted_view import CompactedView
from .connection import client_of
from .delivery_account import DeliveryAccount
from .encryption import reader_keys
from .entry_lookup import EntryContent, EntryLookup
from .errors import NotDelivered
from .key_decoder import KeyDecoder
from .message_block import MessageBlock
from .offsets import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsar_ext.ids.position import Position
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

    from .options import Settings
    from .splits import Segment

__all__ = ["SegmentReader", "read_segments"]

_QUIET_SECONDS = 0.5
"""After how long without a message the broker is asked whether it has more."""
_LOOKUP_SECONDS = 2.0
"""How long between two look-ups of what has not come."""
_OVERDUE_SECONDS = 5.0
"""After how long without a message one that is whole is read again."""
_MOST_REOPENS = 5
_LARGEST_QUEUE = 5000
_QUEUE_BYTES = 32 << 20

_log = logging.getLogger("pulsar_ext.spark")


def read_segments(
    segments: Iterable[Segment], ranges: KeyHashRanges | None, settings: Settings, *, wants_sequence_ids: bool = True
) -> Iterator[MessageBlock]:
    """Read segments one after the other.

    Args:
        segments: what to read.
        ranges: the slots to keep; None keeps all.
        settings: the options.
        wants_sequence_ids: whether sequence ids, or slots, will be asked of the blocks.

    Yields:
        Blocks of messages, none empty, each bounded by `maxBatchRows` and `maxBatchBytes`.

    Raises:
        DataLoss: entries of a segment are gone, and nobody has accepted that.
        NotDelivered: entries are there, and no reader gets them in time.
        IncompleteChunkedMessage: a chunked message is unfinished, and `incompleteChunks` is "fail".
        InvalidUse: a message is encrypted, and no option has a key, or its file has none that can be used.
    """
    key_decoder = KeyDecoder(settings)
    selected = None if ranges is None or ranges.is_full else ranges
    wants_sequence_ids = wants_sequence_ids or selected is not None
    for segment in segments:
        reader = SegmentReader(segment, settings, key_decoder, wants_sequence_ids=wants_sequence_ids)
        for block in reader.blocks():
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


class SegmentReader:
    """Reads one segment.

    Args:
        segment: what to read.
        settings: the options.
        key_decoder: reads the keys.
        wants_sequence_ids: whether sequence ids, or slots, will be asked of the blocks.
    """

    def __init__(
        self, segment: Segment, settings: Settings, key_decoder: KeyDecoder, *, wants_sequence_ids: bool
    ) -> None:
        self._segment = segment
        self._settings = settings
        self._key_decoder = key_decoder
        self._wants_sequence_ids = wants_sequence_ids
        self._partition = TopicName.parse(segment.topic).partition_index
        self._account = DeliveryAccount(segment)
        self._lookup = EntryLookup(segment, settings, self._account)
        self._view = CompactedView(segment, settings) if settings["readCompacted"] else None
        self._unfinished: set[Position] = set()
        self._reread_from: Position | None = None
        self._reopens = 0
        self._reader: Any = None

    def blocks(self) -> Iterator[MessageBlock]:
        """Read; see `read_segments`. The order is always that of the messages' (last) entries."""
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
        account = self._account
        taker = BlockTaker(
            self._settings["maxBatchRows"], self._settings["maxBatchBytes"], self._segment.bytes_per_message
        )
        patience = self._settings["pollTimeoutMs"] / 1000
        progress, lookup_at = time.monotonic(), 0.0
        while not account.reached or self._unfinished:
            inners = taker.take(self._reader.inner.read_next)
            block = self._next_block(inners) if inners else None
            came = block is not None or (inners and not account.reached)
            inners = []
            if block is not None:
                taker.adapt(block)
                yield block
                block = None  # so that its messages are freed while the next block is read
            if came:
                progress = time.monotonic()
            now = time.monotonic()
            if now >= lookup_at and (account.reached or self._is_quiet(now - progress)):
                lookup_at = now + _LOOKUP_SECONDS
                if self._look_up_rest(now - progress):
                    return
            if now - progress > patience:
                self._give_up(patience)
                return

    def _next_block(self, inners: list[Any]) -> MessageBlock | None:
        """Give the messages that belong to this segment; None without any, or if one before them was passed over."""
        snapshot, unfinished = self._account.snapshot(), set(self._unfinished)
        block = self._accounted(
            MessageBlock(
                inners,
                self._segment.topic,
                self._partition,
                self._key_decoder,
                wants_sequence_ids=self._wants_sequence_ids,
            )
        )
        if self._reread_from is None:
            return block
        # Nothing of this block has been yielded, so it is read again after the message that was passed over.
        self._account.restore(snapshot)
        self._unfinished |= unfinished
        self._reopen(self._reread_from)
        return None

    def _is_quiet(self, seconds: float) -> bool:
        """Whether the broker may have no more messages to deliver, so that entries have to be looked up."""
        if seconds < _QUIET_SECONDS:
            return False
        return seconds > _LOOKUP_SECONDS or not self._has_more()

    def _has_more(self) -> bool:
        """Whether the broker has messages that did not come yet; True as well while it does not answer."""
        try:
            return bool(self._reader._has_native_message_())
        except UNREACHABLE:
            return True

    def _accounted(self, block: MessageBlock) -> MessageBlock | None:
        """Take note of messages and of the entries they passed over; give those that belong to this segment."""
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
        account.settle_missing()
        found = block if kept is None else block.take(kept) if kept else None
        return found if found is None or self._view is None else self._view.without_removed(found)

    def _note_arrived(self, block: MessageBlock, kept: list[int] | None) -> None:
        """Note which unfinished messages came.

        Raises:
            NotDelivered: one came for the first time, and behind messages that come after it.
        """
        firsts = block.first_chunks
        self._unfinished.difference_update(firsts.values() if kept is None else map(firsts.get, kept))
        if misplaced := self._unfinished.intersection(firsts.values()):
            raise NotDelivered(
                f"The message at {min(misplaced)} on {self._segment.topic} came behind others that come after it: the "
                "connection was lost amid its chunks. Run the job again.",
                topic=self._segment.topic,
                position=min(misplaced),
            )

    def _removed_up_to(self, position: Position | None) -> Position | None:
        """Give up to where entries may have been compacted away, if that matters for entries up to `position`."""
        return None if self._view is None or position is None else self._view.horizon(position)

    def _look_up_rest(self, quiet_seconds: float) -> bool:
        """Look up the entries that nothing came from yet; True if no more messages will come."""
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
        """Look up the entries behind the last message that came; whether messages have still to come from there."""
        account = self._account
        removed = None if account.reached else self._removed_up_to(self._segment.until.last_entry)
        for position in account.rest(removed):
            content, _ = self._lookup.find(position)
            if content is EntryContent.WHOLE_MESSAGE:
                return True  # readers deliver in order, so what follows comes later
            if content is EntryContent.UNFINISHED_MESSAGE:
                self._unfinished.add(position)
            account.settle(position)
        # What compaction has left of the rest only the broker knows.
        return removed is not None and account.last < removed and self._has_more()

    def _reopen(self, passed_over: Position) -> None:
        """Read again from before a message that was passed over; messages that came already are recognized."""
        following = self._segment.ledgers.next(self._account.last)
        begin = min(one for one in (passed_over, following, *self._unfinished) if one is not None)
        self._reread_from = None
        self._reopens += 1
        if self._reopens > _MOST_REOPENS:
            raise NotDelivered(
                f"The message at {passed_over} on {self._segment.topic} is complete, but no reader gets it. "
                f"{self._lookup.why_not(passed_over)}Run the job again; if it fails again, `pulsar-ext spark audit` "
                "shows what is there.",
                topic=self._segment.topic,
                position=passed_over,
            )
        _log.warning("Reading %s again from %s, because a message was passed over", self._segment.topic, begin)
        self._close()
        self._reader = self._open(begin)

    def _give_up(self, seconds: float) -> None:
        """Raise that no message came for too long; or warn, if only unfinished messages are left, and may be left out.

        Raises:
            NotDelivered: a message that is on the topic as a whole did not come.
            IncompleteChunkedMessage: only chunked messages that are not finished are left, and may not be left out.
        """
        topic, to_come = self._segment.topic, self._is_rest_to_come()
        contents = {position: self._lookup.find(position)[0] for position in sorted(self._unfinished)}
        whole = next((one for one, content in contents.items() if content is EntryContent.WHOLE_MESSAGE), None)
        if to_come or whole is not None:
            what = f"entries after {self._account.last} up to {self._segment.until}"
            hint = self._lookup.why_not(whole or self._segment.ledgers.next(self._account.last))
            raise NotDelivered(
                f"No message came from {topic} for {seconds:.0f} s, although it has "
                f"{what if to_come else f'the one at {whole}'}. {hint}Is the broker reachable? "
                "Option pollTimeoutMs sets how long to wait.",
                topic=topic,
                position=self._account.last,
            )
        unfinished = [one for one, content in contents.items() if content is EntryContent.UNFINISHED_MESSAGE]
        if not unfinished:
            return
        message = (
            f"{len(unfinished)} chunked message(s) on {topic}, beginning at {', '.join(map(str, unfinished[:5]))}, "
            f"have not been finished for {seconds:.0f} s"
        )
        if self._settings["incompleteChunks"] == "fail":
            raise IncompleteChunkedMessage(
                f"{message}. If their producer is gone for good, option incompleteChunks=skip leaves them out; if it "
                "is slow, raise pollTimeoutMs.",
                position=unfinished[0],
            )
        _log.warning("%s; leaving them out", message)

    def _close(self) -> None:
        """Close the reader; that the broker does not answer would hide why the reading ends."""
        with contextlib.suppress(pulsar.PulsarException):
            self._reader.close()

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
            is_read_compacted=self._view is not None,
            **options,
            **reader_keys(self._settings),
        )
