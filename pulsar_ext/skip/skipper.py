"""Skip N messages: exactly, in messages, and never to the inside of one; and the id of the message N messages later.

The broker's own skip (`ManagedCursor.asyncSkipEntries`) counts entries, relative to where the cursor is at that moment.
Here a pure search (`plan.py`) finds the entry to skip to, and the broker is given that *position*: whatever happens in
between, nothing after it is skipped. `docs/skip.md` says what is guaranteed beside live consumers.

For `message_id_after`, messages count in the order in which a reader gets them: a batch one by one, a chunked message
at its last chunk.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.chunks.resolver import entry_topic
from pulsar_ext.chunks.search import AskEntry, find_chunks
from pulsar_ext.errors import (
    AdminConflict,
    AdminNotFound,
    AdminUnavailable,
    CursorMoved,
    IncompleteChunkedMessage,
    InvalidMessageId,
    InvalidUse,
    MessageIdNotFound,
    SkipUnconfirmed,
)
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .boundaries import Backlog, Chunk, PartialBatch, is_fresh, is_unbatched
from .plan import HeaderCounter, Situation, SkipPlan, cheapest_scan, check_count, plan_skip, scan_items
from .query_runner import QueryRunner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import EntryMetadata
    from pulsar_ext.chunks.search import Search

    from .boundaries import ScanItem, Unit
    from .queries import Strategy


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """Where a message is: its entry, its place in the entry's batch, and its first chunk if it is chunked."""

    position: Position
    batch_index: int = -1
    batch_size: int = 0
    first_chunk: Position | None = None


def find_after(
    ledgers: Ledgers,
    start: Position,
    batch_index: int,
    count: int,
    *,
    unbatched: bool,
    chunked: bool,
    entry_bytes: float,
) -> Search[FoundMessage | None]:
    """Find the message that is `count` messages behind the one at `start`.

    Args:
        ledgers: the topic's entries.
        start: the message's entry, of a chunked one the last; -1:-1 stands before the first message of the topic.
        batch_index: the message in its batch, -1 if it is in none.
        count: 1 or more.
        unbatched: whether it is known that no entry behind `start` is a batch.
        chunked: whether the broker has noticed chunks on the topic.
        entry_bytes: the average size of an entry.

    Returns:
        None past the end.

    Raises:
        MessageIdNotFound: there is no message at `start`.
        InvalidMessageId: the entry is a batch, and `batch_index` does not say which message of it is meant.
    """
    if start.ledger_id >= 0:
        headers: EntryMetadata | None = yield AskEntry(start)
        size = _check_start(start, batch_index, headers)
        inside = max(batch_index, 0) + count
        if inside < size:
            return FoundMessage(start, inside, size)
        count = inside - size + 1
    backlog = Backlog(ledgers, start)
    first = backlog.entry(1)
    if first is None:
        return None
    counted = None if chunked else (yield from HeaderCounter(backlog, unbatched=unbatched).find(count, "message"))
    if counted is not None:
        if counted.messages < count:
            return None
        return (yield from _in_entry(counted.position, counted.size - 1 - (counted.messages - count), counted.size))
    return (yield from _scan(backlog, first, count, cheapest_scan(backlog, count, entry_bytes)))


def _check_start(start: Position, batch_index: int, headers: EntryMetadata | None) -> int:
    """Give how many messages the entry of `start` holds."""
    if headers is None or batch_index >= headers.message_count:
        where = start if batch_index < 0 else f"{start}:{batch_index}"
        raise MessageIdNotFound(
            f"There is no message at {where}: it was trimmed, deleted, or never written.",
            position=start,
        )
    if batch_index < 0 and headers.message_count > 1:
        raise InvalidMessageId(
            f"{start} is a batch of {headers.message_count} messages: give the id of one of them, with its batch_index."
        )
    return headers.message_count


def _in_entry(position: Position, index: int, size: int) -> Search[FoundMessage | None]:
    """Give a message of an entry; a batch may have one message only, which an id still calls its first."""
    if size == 1:
        headers = yield AskEntry(position)
        if headers is None or headers.num_messages_in_batch is None:
            return FoundMessage(position)
    return FoundMessage(position, index, size)


def _scan(backlog: Backlog, first: Position, count: int, strategy: Strategy) -> Search[FoundMessage | None]:
    items = scan_items(backlog, strategy, first)
    last = backlog.ledgers.last
    ask = next(items)
    while last is not None and ask.first <= last:
        item: ScanItem | None = yield ask
        if item is None:
            break
        if isinstance(item, Chunk):
            chunk_one = yield from _completed(item)
            if chunk_one is not None:
                count -= 1
                if not count:
                    return FoundMessage(item.position, first_chunk=chunk_one)
        elif not isinstance(item, PartialBatch):
            messages = (item.last - item.first + 1) * item.messages
            if count <= messages:
                entry, index = divmod(count - 1, item.messages)
                return (yield from _in_entry(Position(item.ledger_id, item.first + entry), index, item.messages))
            count -= messages
        ask = items.send(item)
    return None


def _completed(chunk: Chunk) -> Search[Position | None]:
    """Give the first chunk of the message that a chunk completes; None if it completes none."""
    if chunk.index + 1 < chunk.of:
        return None
    try:
        chunks = yield from find_chunks(chunk.position)
    except IncompleteChunkedMessage:
        return None
    return chunks.positions[0]


def message_id_after(context: ClientContext, topic: str, start: MessageId, count: int) -> MessageId | None:
    """Run `find_after`; see `Client.message_id_after`."""
    check_count(count)
    if start == MessageId.latest:
        raise InvalidUse("MessageId.latest stands behind every message, those to come included.")
    name = entry_topic(topic, start)
    admin = context.admin_api()
    internal = admin.internal_stats(name)
    if count == 0:
        return start
    backlog = Backlog(Ledgers(internal.ledger_sizes()), Position(start.ledger_id(), start.entry_id()))
    stats = admin.stats(name)
    runner = QueryRunner(context, name)
    backlog = runner.deliverable(backlog, stats)
    search = find_after(
        backlog.ledgers,
        backlog.mark_delete,
        start.batch_index(),
        count,
        unbatched=is_unbatched(internal, stats, backlog),
        chunked=bool(stats.raw.get("msgChunkPublished")),
        entry_bytes=internal.entry_bytes(),
    )
    found: FoundMessage | None = runner.run(search, backlog)
    return None if found is None else _as_id(found, TopicName.parse(name))


def _as_id(found: FoundMessage, topic: TopicName) -> MessageId:
    at, first = found.position, found.first_chunk
    partition = topic.partition_index
    data = MessageIdData(
        at.ledger_id,
        at.entry_id,
        partition,
        batch_index=found.batch_index,
        batch_size=found.batch_size,
        first_chunk=None if first is None else MessageIdData(first.ledger_id, first.entry_id, partition),
    )
    return MessageId.deserialize(encode(data), str(topic))


_Own = TypeVar("_Own")

_CONFIRM_SECONDS = 30.0
_WAIT_SECONDS = 1.0
_FIRST_POLL_SECONDS = 0.002
_POLL_SECONDS = 0.02
_RECEIVE_MILLIS = 5_000


@dataclass(frozen=True, slots=True)
class SkipResult:
    """What a skip did, or with `dry_run` would do.

    Args:
        requested: the count that was asked for.
        unit: of what: `message` or `entry`.
        skipped_messages: how many messages that were not acknowledged are now before the cursor. A batch counts each
            of its messages, a chunked message one, what was acknowledged or can never be delivered whole none.
        skipped_entries: the same in entries; a batch that is skipped in part counts none.
        position_before: the mark-delete position before; everything up to it was acknowledged.
        position_after: the same after it.
        exact: whether just as much as requested was skipped. False where the backlog ended before, and where messages
            inside batches may have been acknowledged that the broker does not show: then fewer, never more.
        strategy: how it was counted, the value of a `Strategy`.
        batch_index: the message of the batch behind `position_after` that is delivered next; None for a whole entry.
        redelivered_entries: entries behind the cursor that were acknowledged and are delivered again, which happens
            only where a skip into a batch has to reset the cursor beneath connected consumers.
        dry_run: whether nothing was moved.
    """

    requested: int
    unit: Unit
    skipped_messages: int
    skipped_entries: int
    position_before: Position
    position_after: Position
    exact: bool
    strategy: str
    batch_index: int | None = None
    redelivered_entries: int = 0
    dry_run: bool = False


class Skipper:
    """Plans and carries out skips of one subscription: the blocking shell around `plan_skip`.

    Args:
        context: of the client that skips.
        topic: a topic without partitions, or one partition.
        subscription: must exist.
        progress: whether to show a progress bar on standard error while the topic is read, if `rich` is installed.

    Raises:
        InvalidUse: a name is not valid.
    """

    def __init__(self, context: ClientContext, topic: str, subscription: str, *, progress: bool = False) -> None:
        if not isinstance(subscription, str) or not subscription:
            raise InvalidUse(f"A subscription's name must be a non-empty str, not {subscription!r}")
        self._context, self._admin = context, context.admin_api()
        self._topic, self._subscription = str(TopicName.parse(topic)), subscription
        self._runner = QueryRunner(context, self._topic, subscription, progress=progress)

    def skip(self, count: int, unit: Unit = "message", *, dry_run: bool = False) -> SkipResult:
        """Plan, and unless `dry_run` carry out.

        Raises:
            InvalidUse: the count or the unit is not valid.
            SkipInsideMessage: the skip would end inside a message; it says which counts are possible.
            CursorMoved: somebody moved the cursor in between.
            SkipUnconfirmed: the broker was asked to skip, and the cursor does not show it.
            AdminNotFound: no such topic or subscription.
            AdminNotAllowed: the topic is a partitioned parent, or not persistent.
            AdminError: the admin API refused or did not answer.
        """
        plan = self.plan(count, unit)
        if not dry_run:
            self.apply(plan)
        return self._result(plan, count, unit, dry_run=dry_run)

    # -- plan --------------------------------------------------------------------------------------------------------

    def plan(self, count: int, unit: Unit = "message") -> SkipPlan:
        """Find where the cursor has to go; moves nothing. Raises as `skip`."""
        check_count(count)
        if unit not in ("message", "entry"):
            raise InvalidUse(f"unit must be 'message' or 'entry', not {unit!r}")
        situation = self._look()
        try:
            plan: SkipPlan = self._runner.run(plan_skip(situation, count, unit), situation.backlog)
        except pulsar.ConsumerBusy:
            # A consumer came meanwhile, so what the subscription would deliver cannot be seen any more.
            situation = self._look(idle=False)
            plan = self._runner.run(plan_skip(situation, count, unit), situation.backlog)
        return plan

    def _look(self, *, idle: bool = True) -> Situation:
        internal = self._admin.internal_stats(self._topic)
        self._own(internal.cursors)
        backlog = Backlog.of(internal, self._subscription)
        # A cursor that was ever stored may have been stored, or reset, with parts of batches acknowledged.
        untouched = is_fresh(internal, backlog) and internal.cursors[self._subscription].state == "NoLedger"
        # What will be needed is asked for at once: each round to the broker takes as long as one request.
        with ThreadPoolExecutor(2) as pool:
            # After the internal statistics: a message in between disproves `unbatched`, never proves it.
            asking = pool.submit(self._admin.stats, self._topic)
            keeping = None if untouched else pool.submit(self._runner.keeps_batch_indexes)
            first = backlog.entry(1)
            if first is not None:
                self._runner.prefetch_entry(first)
            stats = asking.result()
        backlog = self._runner.deliverable(backlog, stats)
        own = self._own(stats.subscriptions)
        unbatched = is_unbatched(internal, stats, backlog)
        clear = unbatched or (untouched and not own.raw["lastAckedTimestamp"])
        keeps_indexes = None  # is not known
        if not clear:
            keeps_indexes = self._runner.keeps_batch_indexes() if keeping is None else keeping.result()
        return Situation(
            backlog=backlog,
            unbatched=unbatched,
            may_hide_acks=not clear and keeps_indexes is not False,
            idle=idle and not own.consumers,
            batch_index_acks=keeps_indexes,
            chunked=bool(stats.raw.get("msgChunkPublished")),
            entry_bytes=internal.entry_bytes(),
            now_ms=time.time_ns() // 1_000_000,
            last_ack_ms=own.raw["lastAckedTimestamp"],
            may_hide_new_acks=not unbatched and keeps_indexes is not False,
        )

    # -- apply -------------------------------------------------------------------------------------------------------

    def apply(self, plan: SkipPlan) -> None:
        """Move the cursor to where the plan says. Raises as `skip`."""
        if not plan.moves:
            return
        self._refuse_if_moved(plan)
        backlog, boundary = plan.situation.backlog, plan.boundary
        if boundary.batch_index is None:
            self._expire(plan, boundary.position)
        else:
            batch = backlog.ledgers.next(boundary.position)
            assert batch is not None  # noqa: S101  # the boundary is inside it
            if not plan.situation.idle:
                self._reset(batch, boundary.batch_index)
                return
            if boundary.entries:
                self._expire(plan, boundary.position)
            self._acknowledge_inside(plan, batch, boundary.batch_index)

    def _refuse_if_moved(self, plan: SkipPlan) -> None:
        expected = plan.situation.backlog
        with ThreadPoolExecutor(1) as pool:
            # The broker does not show acknowledgements inside batches, but when the last one came.
            acking = pool.submit(self._last_ack_ms) if plan.situation.may_hide_new_acks else None
            internal = self._admin.internal_stats(self._topic)
            found = Backlog.of(internal, self._subscription) if self._subscription in internal.cursors else None
            acked = 0 if found is None or acking is None else acking.result()
        if found is None or found.state != expected.state or acked > plan.situation.last_ack_ms:
            raise CursorMoved(
                f"The cursor of {self._subscription!r} on {self._topic} moved while the skip was planned: it was at "
                f"{_describe(expected)} and {'is gone' if found is None else f'is at {_describe(found)}'}. "
                "Nothing was skipped. Repeat the skip, or pause what acknowledges.",
                expected=expected.mark_delete,
                found=None if found is None else found.mark_delete,
            )

    def _last_ack_ms(self) -> int:
        last: int = self._own(self._admin.stats(self._topic).subscriptions).raw["lastAckedTimestamp"]
        return last

    def _own(self, found: Mapping[str, _Own]) -> _Own:
        """Give what was found of the subscription, which may have been deleted meanwhile."""
        if self._subscription not in found:
            raise AdminNotFound(
                f"There is no subscription {self._subscription!r} on {self._topic}; it has "
                f"{', '.join(map(repr, sorted(found))) or 'none'}. Nothing was moved.",
                status=None,
                reason="Subscription not found",
                method=None,
                path=self._topic,
            )
        return found[self._subscription]

    def _expire(self, plan: SkipPlan, target: Position) -> None:
        """Have everything up to an entry acknowledged, whatever the cursor has done since: unlike a skip by a count."""
        ledgers = plan.situation.backlog.ledgers
        last = ledgers.number(ledgers.up_to(target))
        assert last is not None  # noqa: S101  # there is something to skip
        backlog, deadline, counting = plan.situation.backlog, time.monotonic() + _CONFIRM_SECONDS, False
        while True:
            try:
                self._move(last, backlog, counting=counting)
            except AdminConflict:
                # Another expiry, such as that of a time to live, is running; this one was not begun.
                if time.monotonic() > deadline:
                    raise
            except AdminUnavailable as error:
                raise self._unconfirmed(last, None, f"the broker did not answer: {error}") from error
            before, backlog = backlog, self._watch(last, backlog)
            upcoming = backlog.entry(1)
            if upcoming is None or upcoming > last:
                return
            moved = upcoming != before.entry(1)
            # Never twice in a row: a skip by a count that has no effect yet must not be repeated.
            counting = moved and not counting
            if moved:
                # Where the topic ends with acknowledged entries, the broker's search for the position gives up early
                # (ManagedCursorImpl.hasMoreEntries), perhaps after a single entry. A skip by a count does not, and is
                # as safe while nobody can acknowledge.
                deadline = time.monotonic() + _CONFIRM_SECONDS
            elif time.monotonic() > deadline:
                raise self._unconfirmed(last, backlog.mark_delete, f"for {_CONFIRM_SECONDS:.0f} s it has not moved")

    def _move(self, last: Position, backlog: Backlog, *, counting: bool) -> None:
        if counting and not self._own(self._admin.stats(self._topic).subscriptions).consumers:
            self._admin.skip_entries(self._topic, self._subscription, backlog.entries(last))
        else:
            self._admin.expire_messages(self._topic, self._subscription, last, look_first=False)

    def _watch(self, last: Position, before: Backlog) -> Backlog:
        """Wait a while until the cursor moves; the broker works in the background, and does not say if that fails."""
        deadline, pause = time.monotonic() + _WAIT_SECONDS, _FIRST_POLL_SECONDS
        while True:
            threads.sleep(pause)
            pause = min(1.5 * pause, _POLL_SECONDS)
            try:
                backlog = Backlog.of(self._admin.internal_stats(self._topic), self._subscription)
            except (AdminUnavailable, KeyError) as error:
                raise self._unconfirmed(last, None, f"the cursor cannot be seen: {error}") from error
            if backlog.entry(1) != before.entry(1) or time.monotonic() > deadline:
                return backlog

    def _reset(self, batch: Position, index: int) -> None:
        try:
            self._admin.reset_cursor(self._topic, self._subscription, batch, batch_index=index)
        except AdminUnavailable as error:
            raise self._unconfirmed(batch, None, f"the broker did not answer: {error}") from error

    def _acknowledge_inside(self, plan: SkipPlan, batch: Position, index: int) -> None:
        """Acknowledge the first messages of a batch as a consumer does: a reset would forget what is behind it."""
        try:
            consumer = self._context.opener.subscribe(
                self._topic,
                self._subscription,
                consumer_type=pulsar.ConsumerType.Exclusive,
                batch_index_ack_enabled=True,
            )
        except pulsar.ConsumerBusy:
            self._reset(batch, index)
            return
        try:
            while True:
                message = consumer.receive(_RECEIVE_MILLIS)
                at = message.message_id()
                if (at.ledger_id(), at.entry_id(), at.batch_index()) >= (batch.ledger_id, batch.entry_id, index):
                    break
                consumer.acknowledge(message)
        except pulsar.Timeout:
            at = None
        finally:
            consumer.close()
        if at is None or (at.ledger_id(), at.entry_id()) != (batch.ledger_id, batch.entry_id):
            raise self._unconfirmed(batch, plan.boundary.position, "its batch is not delivered")

    def _unconfirmed(self, expected: Position, found: Position | None, why: str) -> SkipUnconfirmed:
        return SkipUnconfirmed(
            f"The cursor of {self._subscription!r} on {self._topic} was to go behind {expected}, and {why}. It is "
            "where it was, or there, never behind that: look at internal_stats() before skipping again.",
            expected=expected,
            found=found,
        )

    def _result(self, plan: SkipPlan, count: int, unit: Unit, *, dry_run: bool) -> SkipResult:
        backlog, boundary = plan.situation.backlog, plan.boundary
        last = backlog.ledgers.last
        redelivered = 0
        if boundary.batch_index is not None and not plan.situation.idle and last is not None:
            redelivered = backlog.ledgers.between(boundary.position, last) - backlog.entries(last) + boundary.entries
        return SkipResult(
            requested=count,
            unit=unit,
            skipped_messages=boundary.messages,
            skipped_entries=boundary.entries,
            position_before=backlog.mark_delete,
            position_after=boundary.position,
            exact=plan.exact,
            strategy=plan.strategy.value,
            batch_index=boundary.batch_index,
            redelivered_entries=redelivered,
            dry_run=dry_run,
        )


def _describe(backlog: Backlog) -> str:
    holes = ",".join(map(str, backlog.deleted))
    return f"{backlog.mark_delete} with [{holes}]" if holes else str(backlog.mark_delete)
