"""Queries of the searches in `plan.py` and `skipper.py`: answered by the admin API or by reading the topic.

The broker can count messages, and detect batches, in a part of a topic, for a subscription. It transfers no messages
for this and serves several requests at a time. One request stops after `subscriptionBacklogScanMaxEntries` entries
(default 10,000); the first answer shows the limit.

A scan reads a topic entry by entry: by headers, by a reader, or by a consumer of the subscription. Each source yields
the items of `boundaries.py` in order. A reader is fast but shows no headers. Entries that it does not deliver (chunks,
markers, acknowledged entries) are gaps, which are read by headers.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._native.results import Timeout, cooperative, polling
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.message_id_data import decode, has_first_chunk
from pulsar_ext.admin import BacklogAnalysis, EntryMetadata, TopicStats
from pulsar_ext.chunks.search import Chunks, entry_headers, resolve_chunks
from pulsar_ext.errors import AdminError, AdminNotFound, AdminUnauthorized
from pulsar_ext.ids.message_id import MessageId, Origin
from pulsar_ext.ids.position import Ledgers, Position

from .boundaries import (
    Backlog,
    Chunk,
    EntryRun,
    MessageKey,
    PartialBatch,
    ScanItem,
    Strategy,
    before_open_transactions,
    entry_after,
    item_of,
)

if TYPE_CHECKING:
    from rich.progress import Progress


_CONCURRENCY = 8

_ATTEMPTS = 3
"""Number of attempts to count to the end of the topic twice without a new message in between."""


class _NotCountedError(Exception):
    """The broker did not count, or its count includes entries that are not messages."""


def _bar() -> Progress | None:
    """Return a bar that is not shown yet; None without `rich`."""
    try:
        from rich.console import Console  # noqa: PLC0415  # an optional dependency
        from rich.progress import Progress  # noqa: PLC0415  # an optional dependency
    except ImportError:
        return None
    return Progress(console=Console(stderr=True), transient=True)


_READER_MAX_EMPTY_WAITS = 20
"""Number of empty waits of 100 ms after which the next entries are read by headers: they may never be delivered."""

_SUBSCRIPTION_MAX_EMPTY_WAITS = 50
"""Number of empty waits of 100 ms for a subscription, whose deliveries show what headers do not."""

_HEADERS_PER_STEP = 100
_MAX_RUN = 5_000
_MIN_QUEUE, _MAX_QUEUE = 5_000, 100_000
_QUEUE_BYTES = 256 * 1024 * 1024
"""Limit of the bytes in a reader's queue; a long queue keeps the reader busy."""

_MAX_PENDING_CHUNKED = 1_000


class _Scan:
    """Pass over a topic, from an entry to the last entry at the time the backlog was read."""

    def __init__(
        self, context: ClientContext, topic: str, subscription: str, backlog: Backlog, first: Position
    ) -> None:
        self._opener, self._admin = context.opener, context.admin_api()
        self._topic, self._subscription = topic, subscription
        self._backlog, self._first = backlog, first
        self._unfinished: set[MessageKey] = set()
        self._last = backlog.ledgers.last or first

    def items(self, strategy: Strategy) -> Generator[ScanItem, None, None]:
        """Return the items; closing them closes the reader or the consumer."""
        if strategy is Strategy.HEADERS:
            ledgers = self._backlog.ledgers
            return self._by_headers(ledgers.up_to(self._first), ledgers.entries)
        return self._by_reader() if strategy is Strategy.READER else self._by_subscription()

    def _by_headers(self, number: int, last: int) -> Generator[ScanItem, None, None]:
        """Read the headers of entries, from one to another of these numbers."""
        ledgers = self._backlog.ledgers
        while number <= last:
            at = ledgers[number]
            end = self._backlog.acked_until(at)
            # Headers of acknowledged entries matter only if one of them may be a chunk that breaks a message.
            if end is not None and not self._unfinished:
                yield EntryRun(at.ledger_id, at.entry_id, end.entry_id, 1)
                number = ledgers.up_to(end)
            else:
                yield self._by_header(at)
            number += 1

    def _by_header(self, at: Position) -> ScanItem:
        headers = entry_headers(self._admin, self._topic, at)
        if headers is None:
            return EntryRun(at.ledger_id, at.entry_id, at.entry_id, 0)  # trimmed in the meantime
        item = item_of(headers)
        if isinstance(item, Chunk):
            (self._unfinished.discard if item.index + 1 == item.of else self._unfinished.add)(item.message)
        return item

    def _by_reader(self) -> Generator[ScanItem, None, None]:
        start = MessageId(-1, self._first.ledger_id, self._first.entry_id)
        start.origin = Origin.BYTES  # an entry, with any content
        reader = self._opener.create_reader(
            self._topic, start, receiver_queue_size=self._queue(), start_message_id_inclusive=True
        )
        try:
            yield from self._delivered(polling(cooperative(reader.inner.read_next)), every_index=True)
        finally:
            with contextlib.suppress(pulsar.PulsarException):
                reader.close()

    def _queue(self) -> int:
        """Return the longest receiver queue size whose messages stay within the byte limit."""
        internal = self._admin.internal_stats(self._topic)
        if internal.total_size <= _QUEUE_BYTES:
            return _MAX_QUEUE
        return int(min(max(_QUEUE_BYTES / max(internal.entry_bytes(), 1), _MIN_QUEUE), _MAX_QUEUE))

    def _by_subscription(self) -> Generator[ScanItem, None, None]:
        # Exclusive, so that no other consumer receives a part of the messages. This one acknowledges nothing.
        consumer = self._opener.subscribe(
            self._topic,
            self._subscription,
            consumer_type=pulsar.ConsumerType.Exclusive,
            receiver_queue_size=_MIN_QUEUE,
            max_pending_chunked_message=_MAX_PENDING_CHUNKED,
        )
        try:
            yield from self._delivered(polling(cooperative(consumer.inner.receive)), every_index=False)
        finally:
            with contextlib.suppress(pulsar.PulsarException):
                consumer.close()

    def _delivered(self, messages: Iterator[InnerMessage], *, every_index: bool) -> Generator[ScanItem, None, None]:
        """Make items of deliveries; with `every_index`, all messages of a batch are delivered, otherwise some."""
        max_empty_waits = _READER_MAX_EMPTY_WAITS if every_index else _SUBSCRIPTION_MAX_EMPTY_WAITS
        run = _GrowingRun(Position(self._first.ledger_id, self._first.entry_id - 1))
        held: InnerMessageId | None = None
        empty_waits = 0
        while run.at < self._last:
            try:
                inner = next(messages).message_id() if held is None else held
            except Timeout:
                empty_waits += 1
                if empty_waits >= max_empty_waits:
                    yield from run.take()
                    yield from self._undelivered(run)
                continue
            held, empty_waits = None, 0
            ledger_id, entry_id, index, size = inner.ledger_id(), inner.entry_id(), inner.batch_index(), 1
            part = None
            if index >= 0:
                size = decode(inner.serialize()).batch_size
                if every_index:
                    with contextlib.suppress(Timeout):  # without a step of Python for each
                        deque(islice(messages, size - index - 1), maxlen=0)
                else:
                    indexes, held = _indexes(messages, inner, size)
                    part = PartialBatch(Position(ledger_id, entry_id), indexes) if len(indexes) < size else None
            if self._unfinished or part is not None or not run.grows(ledger_id, entry_id, size):
                yield from run.take()
                if (ledger_id, entry_id) > run.at:  # otherwise it is a redelivery after a reconnect
                    yield from self._after_gap(run, Position(ledger_id, entry_id), inner, part, size)
        yield from run.take()

    def _undelivered(self, run: _GrowingRun) -> Generator[ScanItem, None, None]:
        """Read the next entries by headers."""
        ledgers = self._backlog.ledgers
        first = ledgers.up_to(Position(*run.at)) + 1
        last = min(first + _HEADERS_PER_STEP - 1, ledgers.entries)
        yield from self._by_headers(first, last)
        run.at = ledgers[last]

    def _after_gap(
        self, run: _GrowingRun, here: Position, inner: InnerMessageId, part: PartialBatch | None, size: int
    ) -> Generator[ScanItem, None, None]:
        """Read by headers the entries that were not delivered before an entry, then add the entry itself."""
        ledgers = self._backlog.ledgers
        first, last = ledgers.up_to(Position(*run.at)) + 1, ledgers.up_to(Position(here.ledger_id, here.entry_id - 1))
        yield from self._by_headers(first, last)
        run.at = here
        if here > self._last:
            return
        if part is not None:
            yield part
        elif self._unfinished and inner.batch_index() < 0 and has_first_chunk(inner.serialize()):
            yield self._by_header(here)
        else:
            run.begin(here, size)


class _GrowingRun:
    """A run that grows while deliveries continue it; `at` is the last entry that was read."""

    __slots__ = ("_first", "_messages", "at")

    def __init__(self, before: Position) -> None:
        self.at: tuple[int, int] = before
        self._first: int | None = None
        self._messages = 0

    def begin(self, here: Position, messages: int) -> None:
        self.at, self._first, self._messages = here, here.entry_id, messages

    def grows(self, ledger_id: int, entry_id: int, messages: int) -> bool:
        """Add an entry if it continues the run."""
        first = self._first
        if (
            first is None
            or messages != self._messages
            or self.at != (ledger_id, entry_id - 1)
            or entry_id - first >= _MAX_RUN
        ):
            return False
        self.at = (ledger_id, entry_id)
        return True

    def take(self) -> tuple[EntryRun, ...]:
        """End the run and return it, if there is one."""
        if self._first is None:
            return ()
        run = EntryRun(self.at[0], self._first, self.at[1], self._messages)
        self._first = None
        return (run,)


def _indexes(
    messages: Iterator[InnerMessage], first: InnerMessageId, size: int
) -> tuple[tuple[int, ...], InnerMessageId | None]:
    """Receive the messages of one entry; return their indexes, and the next entry's first id if it was received."""
    entry, found = (first.ledger_id(), first.entry_id()), {first.batch_index()}
    with contextlib.suppress(Timeout):  # an entry arrives as a whole, so after a pause nothing of it follows
        while len(found) < size:
            inner = next(messages).message_id()
            if (inner.ledger_id(), inner.entry_id()) != entry:
                return tuple(sorted(found)), inner
            found.add(inner.batch_index())
    return tuple(sorted(found)), None


_BATCH_INDEX_SETTING = "acknowledgmentAtBatchIndexLevelEnabled"


class Queries:
    """Queries about one topic, for its `subscription`; a bar shows what runs `with queries.progress(backlog)`."""

    def __init__(
        self, context: ClientContext, topic: str, subscription: str = "", *, show_progress: bool = False
    ) -> None:
        self._context, self._admin = context, context.admin_api()
        self._topic, self._subscription = topic, subscription
        self._shows_progress = show_progress
        self._report: Callable[[Position], None] = lambda _: None
        self._prefetched: tuple[Position, EntryMetadata | None] | None = None

    @contextlib.contextmanager
    def progress(self, backlog: Backlog) -> Iterator[None]:
        """Show the progress of a search through a backlog, starting with its first report."""
        bar = _bar() if self._shows_progress else None
        begin, last = backlog.mark_delete, backlog.ledgers.last
        if bar is None or last is None:
            yield
            return
        task = bar.add_task("counting entries", total=backlog.ledgers.between(begin, last))

        def report(position: Position) -> None:
            bar.start()  # has no effect if already started
            bar.update(task, completed=backlog.ledgers.between(begin, position))

        self._report = report
        try:
            yield
        finally:
            if bar.live.is_started:
                bar.stop()

    def entry(self, at: Position) -> EntryMetadata | None:
        """Return the headers of an entry; None if it does not exist."""
        if self._prefetched is not None and self._prefetched[0] == at:
            return self._prefetched[1]
        return entry_headers(self._admin, self._topic, at)

    def prefetch_entry(self, at: Position) -> None:
        """Fetch an entry's headers before the search that needs them begins."""
        self._prefetched = None
        self._prefetched = (at, self.entry(at))

    def entries(self, positions: Sequence[Position]) -> list[EntryMetadata | None]:
        """Return the headers of several entries, requested at once."""
        with ThreadPoolExecutor(len(positions) or 1) as pool:
            return list(pool.map(self.entry, positions))

    def entry_of_index(self, index: int) -> Position | None:
        """Return the entry that holds the message with an index; None past the end."""
        try:
            return self._admin.message_id_by_index(self._topic, index)
        except AdminNotFound:
            return None

    def chunks(self, position: Position) -> Chunks:
        """Return the chunks of the message that has a chunk at a position; see `resolve_chunks()`."""
        return resolve_chunks(self._admin, self._topic, position)

    def messages_between(self, ledgers: Ledgers, first: Position, end: Position) -> int | None:
        """Return the number of unacknowledged messages from the entry `first` to before the entry `end`.

        Both entries must be unacknowledged. The broker counts only to the end of the topic, so it counts from both
        entries, and the difference is returned: None if it does not count, if it counts markers, or if new messages
        arrive during each attempt.
        """
        for _ in range(_ATTEMPTS):
            with ThreadPoolExecutor(2) as pool:
                try:
                    whole, rest = pool.map(self._count_to_end, (ledgers, ledgers), (first, end))
                except _NotCountedError:
                    return None
            if whole[1] == rest[1]:
                return whole[0] - rest[0]
        return None

    def all_unbatched(self, ledgers: Ledgers, first: Position, last: Position) -> bool:
        """Return whether the broker counts one message in each unacknowledged entry from the first to `last`."""
        pool = ThreadPoolExecutor(_CONCURRENCY)
        try:
            reached = self._count_unbatched(ledgers, first, first)
            stride = ledgers.between(first, reached) + 1
            starts = range(ledgers.up_to(reached) + 1, ledgers.up_to(last) + 1, stride)
            spans = [(ledgers.number(at), ledgers.number(at + stride - 1) or last) for at in starts]
            count = partial(self._count_unbatched, ledgers)
            for counted in pool.map(lambda span: count(span[0], min(span[1], last)), spans):
                self._report(counted)
        except _NotCountedError:
            return False
        finally:
            pool.shutdown(cancel_futures=True)
        return True

    def _count_to_end(self, ledgers: Ledgers, first: Position) -> tuple[int, Position]:
        """Return the number of messages from `first` on, and the last entry that was counted."""
        messages, reached = 0, None
        for found, last in self._counts(ledgers, first):
            if reached is None and found.first != first:
                raise _NotCountedError
            messages, reached = messages + found.messages, last
            if not found.aborted:
                break
        if reached is None:
            raise _NotCountedError
        return messages, reached

    def _count_unbatched(self, ledgers: Ledgers, first: Position | None, end: Position) -> Position:
        """Count from `first` at least to `end`, raise at a batch, and return the last entry that was counted."""
        for found, last in self._counts(ledgers, first):
            if found.messages != found.entries:
                break
            if last >= end:
                return last
        raise _NotCountedError

    def _counts(self, ledgers: Ledgers, first: Position | None) -> Iterator[tuple[BacklogAnalysis, Position]]:
        """Ask the broker to count repeatedly from `first` to the end; yield each count and its last entry."""
        if not self._subscription:
            raise _NotCountedError
        at = first
        while at is not None:
            try:
                found = self._admin.analyze_backlog(self._topic, self._subscription, at)
            except AdminError as error:
                raise _NotCountedError from error
            if found.marker_messages or found.first is None or found.first < at or found.last is None:
                raise _NotCountedError
            yield found, found.last
            at = ledgers.next(found.last)

    def keeps_batch_indexes(self) -> bool | None:
        """Return whether the broker persists acknowledgements inside batches; None without permission to ask."""
        try:
            return self._admin.broker_configuration().get(_BATCH_INDEX_SETTING) == "true"
        except AdminUnauthorized:
            return None

    def scan(self, backlog: Backlog, strategy: Strategy, first: Position) -> Generator[ScanItem, None, None]:
        """Yield the items from an entry on, until `close()`; another new consumer raises `ConsumerBusy`."""
        scan = _Scan(self._context, self._topic, self._subscription, backlog, first)
        with contextlib.closing(scan.items(strategy)) as items:
            for item in items:
                self._report(entry_after(item, backlog.ledgers))
                yield item

    def deliverable(self, backlog: Backlog, stats: TopicStats) -> Backlog:
        """Return the part of a backlog that consumers can get before an open transaction ends."""
        if not stats.raw.get("ongoingTxnCount"):
            return backlog
        return replace(backlog, ledgers=before_open_transactions(backlog.ledgers, self.entry))
