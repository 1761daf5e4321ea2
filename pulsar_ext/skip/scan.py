"""Going through a topic entry by entry: by headers, by a Reader, or by what a subscription would deliver.

Each source gives the items of `boundaries.py` in order. A reader is fast and sees no headers: what it does not deliver
lies in a gap (chunks, markers, what is acknowledged), and gaps are filled in from headers.
"""

from __future__ import annotations

import contextlib
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.results import Timeout, cooperative, polling
from pulsar_ext._wire.message_id_data import decode, has_first_chunk
from pulsar_ext.errors import AdminNotFound
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.origin import Origin
from pulsar_ext.ids.position import Position

from .boundaries import Chunk, EntryRun, PartialBatch, entry_after, item_of
from .queries import Strategy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pulsar_ext._runtime.context import ClientContext

    from .backlog import Backlog
    from .boundaries import MessageKey, ScanItem

__all__ = ["Scan"]

_READER_PATIENCE = 20
"""After so many empty waits of 100 ms, the next entries are taken from their headers: they may never be delivered."""

_SUBSCRIPTION_PATIENCE = 50
"""The same for a subscription, whose deliveries show what headers do not."""

_HEADERS_AT_ONCE = 100
_LONGEST_RUN = 5_000
_LEAST_QUEUE, _MOST_QUEUE = 5_000, 100_000
_QUEUE_BYTES = 256 * 1024 * 1024
"""A long queue keeps a reader busy; so much of the topic may wait in it."""

_MAX_PENDING_CHUNKED = 1_000


class Scan:
    """One pass over a topic, from an entry to the last one there was when the backlog was read.

    Args:
        context: of the client that reads.
        topic: the full name of a topic without partitions.
        subscription: the one whose deliveries count, for `Strategy.SUBSCRIPTION`.
        backlog: what there is, and what of it is acknowledged.
        strategy: where the items come from.
        first: the entry to begin at.

    Raises:
        pulsar.ConsumerBusy: while it runs: the subscription got a consumer.
    """

    def __init__(
        self,
        context: ClientContext,
        topic: str,
        subscription: str,
        backlog: Backlog,
        strategy: Strategy,
        first: Position,
    ) -> None:
        self._opener, self._admin = context.opener, context.admin_api()
        self._topic, self._subscription = topic, subscription
        self._backlog, self._first = backlog, first
        self._unfinished: set[MessageKey] = set()
        self._last = backlog.ledgers.last or first
        self._items = {
            Strategy.HEADERS: lambda: self._by_headers(first, self._last),
            Strategy.READER: self._by_reader,
            Strategy.SUBSCRIPTION: self._by_subscription,
        }[strategy]()
        self.at = first

    def next(self) -> ScanItem | None:
        """Give the next item; None at the end."""
        item = next(self._items, None)
        if item is not None:
            self.at = entry_after(item, self._backlog.ledgers)
        return item

    def close(self) -> None:
        """Close what it has opened."""
        self._items.close()

    def _by_headers(self, first: Position, last: Position) -> Generator[ScanItem, None, None]:
        ledgers = self._backlog.ledgers
        at: Position | None = first
        while at is not None and at <= last:
            end = self._backlog.acked_until(at)
            # The headers of what is acknowledged matter only where a chunk among it breaks a message.
            if end is not None and not self._unfinished:
                yield EntryRun(at.ledger_id, at.entry_id, end.entry_id, 1)
                at = ledgers.next(end)
            else:
                yield self._by_header(at)
                at = ledgers.next(at)

    def _by_header(self, at: Position) -> ScanItem:
        try:
            item = item_of(self._admin.entry(self._topic, at.ledger_id, at.entry_id))
        except AdminNotFound:
            return EntryRun(at.ledger_id, at.entry_id, at.entry_id, 0)  # trimmed since
        if isinstance(item, Chunk):
            (self._unfinished.discard if item.index + 1 == item.of else self._unfinished.add)(item.message)
        return item

    def _by_reader(self) -> Generator[ScanItem, None, None]:
        start = MessageId(-1, self._first.ledger_id, self._first.entry_id)
        start.origin = Origin.BYTES  # an entry to begin at, whatever is in it
        reader = self._opener.create_reader(
            self._topic, start, receiver_queue_size=self._queue(), start_message_id_inclusive=True
        )
        try:
            yield from self._delivered(polling(cooperative(reader.inner.read_next)), every_index=True)
        finally:
            with contextlib.suppress(pulsar.PulsarException):
                reader.close()

    def _queue(self) -> int:
        """Give the longest queue whose messages stay within bounds, however many of them an entry holds."""
        internal = self._admin.internal_stats(self._topic)
        if internal.total_size <= _QUEUE_BYTES:
            return _MOST_QUEUE
        return int(min(max(_QUEUE_BYTES / max(internal.entry_bytes(), 1), _LEAST_QUEUE), _MOST_QUEUE))

    def _by_subscription(self) -> Generator[ScanItem, None, None]:
        # Exclusive, so that nobody else gets what this one is to see. It acknowledges nothing.
        consumer = self._opener.subscribe(
            self._topic,
            self._subscription,
            consumer_type=pulsar.ConsumerType.Exclusive,
            receiver_queue_size=_LEAST_QUEUE,
            max_pending_chunked_message=_MAX_PENDING_CHUNKED,
        )
        try:
            yield from self._delivered(polling(cooperative(consumer.inner.receive)), every_index=False)
        finally:
            with contextlib.suppress(pulsar.PulsarException):
                consumer.close()

    def _delivered(self, messages: Iterator[Any], *, every_index: bool) -> Generator[ScanItem, None, None]:
        """Make items of deliveries; `every_index` says that all messages of a batch come, not only some."""
        patience = _READER_PATIENCE if every_index else _SUBSCRIPTION_PATIENCE
        run = _GrowingRun(Position(self._first.ledger_id, self._first.entry_id - 1))
        end = (self._last.ledger_id, self._last.entry_id)
        held: Any = None
        silence = 0
        while run.at < end:
            try:
                inner = next(messages).message_id() if held is None else held
            except Timeout:
                silence += 1
                if silence >= patience:
                    yield from run.take()
                    yield from self._undelivered(run)
                continue
            held, silence = None, 0
            ledger_id, entry_id, index, size = inner.ledger_id(), inner.entry_id(), inner.batch_index(), 1
            part = None
            if index >= 0:
                size = decode(inner.serialize()).batch_size
                if every_index:
                    _discard(messages, size - index - 1)
                else:
                    indexes, held = _indexes(messages, inner, size)
                    part = PartialBatch(Position(ledger_id, entry_id), indexes) if len(indexes) < size else None
            if self._unfinished or part is not None or not run.grows(ledger_id, entry_id, size):
                yield from run.take()
                if (ledger_id, entry_id) > run.at:  # else it is delivered again, after a reconnect
                    yield from self._after_gap(run, Position(ledger_id, entry_id), inner, part, size)
        yield from run.take()

    def _undelivered(self, run: _GrowingRun) -> Generator[ScanItem, None, None]:
        """Take the next entries from their headers."""
        ledgers = self._backlog.ledgers
        at = ledgers.next(Position(*run.at))
        assert at is not None  # noqa: S101  # the end is not reached yet
        until = min(ledgers.number(ledgers.up_to(at) + _HEADERS_AT_ONCE - 1) or self._last, self._last)
        yield from self._by_headers(at, until)
        run.at = (until.ledger_id, until.entry_id)

    def _after_gap(
        self, run: _GrowingRun, here: Position, inner: Any, part: PartialBatch | None, size: int
    ) -> Generator[ScanItem, None, None]:
        """Take what was not delivered up to an entry, then the entry itself."""
        ledgers = self._backlog.ledgers
        at, before = ledgers.next(Position(*run.at)), ledgers.number(ledgers.up_to(here) - 1)
        if at is not None and before is not None and at <= before:
            yield from self._by_headers(at, min(before, self._last))
        run.at = (here.ledger_id, here.entry_id)
        if here > self._last:
            return
        if part is not None:
            yield part
        elif self._unfinished and inner.batch_index() < 0 and has_first_chunk(inner.serialize()):
            yield from self._by_headers(here, here)
        else:
            run.begin(here, size)


class _GrowingRun:
    """A run that grows while deliveries continue it; `at` is the last entry that is accounted for."""

    __slots__ = ("_first", "_messages", "at")

    def __init__(self, before: Position) -> None:
        self.at = (before.ledger_id, before.entry_id)
        self._first: int | None = None
        self._messages = 0

    def begin(self, here: Position, messages: int) -> None:
        """Begin with an entry."""
        self.at, self._first, self._messages = (here.ledger_id, here.entry_id), here.entry_id, messages

    def grows(self, ledger_id: int, entry_id: int, messages: int) -> bool:
        """Add an entry if it continues the run."""
        first = self._first
        if (
            first is None
            or messages != self._messages
            or self.at != (ledger_id, entry_id - 1)
            or entry_id - first >= _LONGEST_RUN
        ):
            return False
        self.at = (ledger_id, entry_id)
        return True

    def take(self) -> tuple[EntryRun, ...]:
        """Give the run, if there is one, and end it."""
        if self._first is None:
            return ()
        run = EntryRun(self.at[0], self._first, self.at[1], self._messages)
        self._first = None
        return (run,)


def _discard(messages: Iterator[Any], count: int) -> None:
    """Receive messages that tell nothing new, without a step of Python for each."""
    with contextlib.suppress(Timeout):
        deque(islice(messages, count), maxlen=0)


def _indexes(messages: Iterator[Any], first: Any, size: int) -> tuple[tuple[int, ...], Any]:
    """Receive the messages of one entry; give their indexes, and the first id of the next entry if it was received.

    An entry arrives as a whole, so a pause means that there are no more of it.
    """
    entry, found = (first.ledger_id(), first.entry_id()), {first.batch_index()}
    with contextlib.suppress(Timeout):
        while len(found) < size:
            inner = next(messages).message_id()
            if (inner.ledger_id(), inner.entry_id()) != entry:
                return tuple(sorted(found)), inner
            found.add(inner.batch_index())
    return tuple(sorted(found)), None
