"""Skip N messages exactly and never into the middle of one, and compute the id of the message N messages later.

The broker's own skip (`ManagedCursor.asyncSkipEntries`) counts entries, relative to the cursor's current position. Here
`plan.py` finds the entry to skip to, and the broker gets that *position*: no message after it is
skipped, whatever else moves the cursor. `docs/skip.md` describes the guarantees beside live consumers.

For `message_id_after`, messages count in the order in which a reader receives them: each message of a batch, and a
chunked message at its last chunk.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.admin import EntryMetadata
from pulsar_ext.chunks.resolver import entry_topic
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

from .boundaries import Backlog, Chunk, PartialBatch, Strategy, Unit, is_fresh, is_unbatched
from .plan import HeaderCounter, Situation, SkipPlan, cheapest_scan, check_count, plan_skip
from .queries import Queries


def find_after(
    queries: Queries,
    backlog: Backlog,
    batch_index: int,
    count: int,
    *,
    unbatched: bool,
    chunked: bool,
    entry_bytes: float,
) -> MessageIdData | None:
    """Return the id of the message `count` messages, 1 or more, after the one before a backlog; None past the end.

    That message's entry is the backlog's mark-delete position; -1:-1 is before the topic's first message. If
    `unbatched`, no entry after it is a batch; if `chunked`, the broker has detected chunks on the topic.
    """
    start = backlog.mark_delete
    if start.ledger_id >= 0:
        size = _check_start(start, batch_index, queries.entry(start))
        inside = max(batch_index, 0) + count
        if inside < size:
            return MessageIdData(*start, batch_index=inside, batch_size=size)
        count = inside - size + 1
    first = backlog.entry(1)
    if first is None:
        return None
    counted = None if chunked else HeaderCounter(queries, backlog, unbatched=unbatched).find(count, "message")
    if counted is not None:
        if counted.messages < count:
            return None
        return _in_entry(queries, counted.position, counted.size - 1 - (counted.messages - count), counted.size)
    return _scan(queries, backlog, first, count, cheapest_scan(backlog, count, entry_bytes))


def _check_start(start: Position, batch_index: int, headers: EntryMetadata | None) -> int:
    """Return the number of messages in the entry of `start`."""
    if headers is None or batch_index >= headers.message_count:
        shown = start if batch_index < 0 else f"{start}:{batch_index}"
        raise MessageIdNotFound(
            f"Message {shown} not found: it was trimmed, deleted, or never written.", position=start
        )
    if batch_index < 0 and headers.message_count > 1:
        raise InvalidMessageId(
            f"{start} is a batch of {headers.message_count} messages; pass the id of one of them, with its batch_index."
        )
    return headers.message_count


def _in_entry(queries: Queries, position: Position, index: int, size: int) -> MessageIdData:
    """Return the id of a message of an entry; a batch may have one message only, whose id still has batch index 0."""
    if size == 1:
        headers = queries.entry(position)
        if headers is None or headers.num_messages_in_batch is None:
            return MessageIdData(*position)
    return MessageIdData(*position, batch_index=index, batch_size=size)


def _scan(queries: Queries, backlog: Backlog, first: Position, count: int, strategy: Strategy) -> MessageIdData | None:
    with contextlib.closing(queries.scan(backlog, strategy, first)) as items:
        for item in items:
            if isinstance(item, Chunk):
                chunk_one = _first_chunk(queries, item)
                if chunk_one is not None:
                    count -= 1
                    if not count:
                        return MessageIdData(*item.position, first_chunk=MessageIdData(*chunk_one))
            elif not isinstance(item, PartialBatch):
                messages = (item.last - item.first + 1) * item.messages
                if count <= messages:
                    entry, index = divmod(count - 1, item.messages)
                    return _in_entry(queries, Position(item.ledger_id, item.first + entry), index, item.messages)
                count -= messages
    return None


def _first_chunk(queries: Queries, chunk: Chunk) -> Position | None:
    """Return the first chunk of the message that a chunk completes; None if it completes none."""
    if chunk.index + 1 < chunk.of:
        return None
    try:
        return queries.chunks(chunk.position).positions[0]
    except IncompleteChunkedMessage:
        return None


def message_id_after(context: ClientContext, topic: str, start: MessageId, count: int) -> MessageId | None:
    """Return the id of the message `count` messages after `start`; see `Client.message_id_after`."""
    check_count(count)
    if start == MessageId.latest:
        raise InvalidUse("start must be a message of the topic, got MessageId.latest, which is after every message.")
    name = entry_topic(topic, start)
    admin = context.admin_api()
    internal = admin.internal_stats(name)
    if count == 0:
        return start
    backlog = Backlog(Ledgers(internal.ledger_sizes()), Position(start.ledger_id(), start.entry_id()))
    stats = admin.stats(name)
    queries = Queries(context, name)
    backlog = queries.deliverable(backlog, stats)
    found = find_after(
        queries,
        backlog,
        start.batch_index(),
        count,
        unbatched=is_unbatched(internal, stats, backlog),
        chunked=bool(stats.raw.get("msgChunkPublished")),
        entry_bytes=internal.entry_bytes(),
    )
    if found is None:
        return None
    return MessageId.deserialize(encode(found.in_partition(TopicName.parse(name).partition_index)), name)


def message_id_by_index(context: ClientContext, topic: str, index: int) -> MessageId:
    """Return the id of the message with an index; see `Client.message_id_by_index`."""
    admin, partition = context.admin_api(), TopicName.parse(topic).partition_index
    at = admin.message_id_by_index(topic, index)
    entry = None if at.entry_id < 0 else admin.entry(topic, *at)  # -1:-1 if the message was trimmed
    if entry is None or entry.index is None or not entry.index - entry.message_count < index <= entry.index:
        raise MessageIdNotFound(
            f"No message with index {index} found on {topic}: it was trimmed, or never had an index. The broker's "
            f"nearest position is {at}.",
            position=at,
        )
    if entry.num_messages_in_batch is None:
        return context.resolver.resolve(topic, MessageId(partition, *at))
    count = entry.message_count
    data = MessageIdData(*at, partition, batch_index=count - 1 - (entry.index - index), batch_size=count)
    return MessageId.deserialize(encode(data), topic)


_Value = TypeVar("_Value")

_CONFIRM_SECONDS = 30.0
_WAIT_SECONDS = 1.0
_FIRST_POLL_SECONDS = 0.002
_POLL_SECONDS = 0.02
_RECEIVE_MILLIS = 5_000


@dataclass(frozen=True, slots=True)
class SkipResult:
    """Result of a skip, or of its `dry_run`.

    Args:
        requested: the requested count.
        unit: `message` or `entry`.
        skipped_messages: number of unacknowledged messages that are now before the cursor. Each message of a batch
            counts, a chunked message counts as one. Acknowledged messages and messages with lost chunks do not count.
        skipped_entries: number of unacknowledged entries that are now before the cursor. A batch that is skipped in
            part does not count.
        position_before: the mark-delete position before the skip.
        position_after: the mark-delete position after the skip.
        exact: the requested number was skipped. False if the backlog ended earlier, and if messages inside batches may
            have been acknowledged, which the broker does not show: then fewer were skipped, never more.
        strategy: the method of counting, the value of a `Strategy`.
        batch_index: the next message to be delivered of the batch after `position_after`; None for a whole entry.
        redelivered_entries: number of acknowledged entries after the cursor that are redelivered. This happens only if
            a skip into a batch has to reset the cursor beneath connected consumers.
        dry_run: nothing was moved.
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
    """Planner and executor of skips of one existing subscription, on a topic without partitions or one partition."""

    def __init__(self, context: ClientContext, topic: str, subscription: str, *, progress: bool = False) -> None:
        if not isinstance(subscription, str) or not subscription:
            raise InvalidUse(f"A subscription's name must be a non-empty str, got {subscription!r}")
        self._context, self._admin = context, context.admin_api()
        self._topic, self._subscription = str(TopicName.parse(topic)), subscription
        self._queries = Queries(context, self._topic, subscription, show_progress=progress)

    def skip(self, count: int, unit: Unit = "message", *, dry_run: bool = False) -> SkipResult:
        """Plan a skip, and execute it unless `dry_run`; raise the errors of `Client.skip_messages()`."""
        plan = self.plan(count, unit)
        if not dry_run:
            self.apply(plan)
        return self._result(plan, count, unit, dry_run=dry_run)

    def plan(self, count: int, unit: Unit = "message") -> SkipPlan:
        """Return the plan of a skip; move nothing."""
        check_count(count)
        if unit not in ("message", "entry"):
            raise InvalidUse(f"unit must be 'message' or 'entry', got {unit!r}")
        try:
            return self._plan(self._read_situation(), count, unit)
        except pulsar.ConsumerBusy:
            # A consumer has connected, so this client can no longer receive from the subscription.
            return self._plan(self._read_situation(idle=False), count, unit)

    def _plan(self, situation: Situation, count: int, unit: Unit) -> SkipPlan:
        with self._queries.progress(situation.backlog):
            return plan_skip(self._queries, situation, count, unit)

    def _read_situation(self, *, idle: bool = True) -> Situation:
        internal = self._admin.internal_stats(self._topic)
        of_subscription(internal.cursors, self._subscription, self._topic)
        backlog = Backlog.of(internal, self._subscription)
        # A cursor that was ever stored may have been stored, or reset, with parts of batches acknowledged.
        untouched = is_fresh(internal, backlog) and internal.cursors[self._subscription].state == "NoLedger"
        # Requests run concurrently, because each takes a round trip.
        with ThreadPoolExecutor(2) as pool:
            # After the internal statistics: a message in between disproves `unbatched`, never proves it.
            stats_request = pool.submit(self._admin.stats, self._topic)
            setting_request = None if untouched else pool.submit(self._queries.keeps_batch_indexes)
            first = backlog.entry(1)
            if first is not None:
                self._queries.prefetch_entry(first)
            stats = stats_request.result()
        backlog = self._queries.deliverable(backlog, stats)
        own = of_subscription(stats.subscriptions, self._subscription, self._topic)
        unbatched = is_unbatched(internal, stats, backlog)
        no_hidden_acks = unbatched or (untouched and not own.raw["lastAckedTimestamp"])
        keeps_indexes = None  # unknown
        if not no_hidden_acks:
            keeps_indexes = self._queries.keeps_batch_indexes() if setting_request is None else setting_request.result()
        return Situation(
            backlog=backlog,
            unbatched=unbatched,
            may_hide_acks=not no_hidden_acks and keeps_indexes is not False,
            idle=idle and not own.consumers,
            batch_index_acks=keeps_indexes,
            chunked=bool(stats.raw.get("msgChunkPublished")),
            entry_bytes=internal.entry_bytes(),
            now_ms=time.time_ns() // 1_000_000,
            last_ack_ms=own.raw["lastAckedTimestamp"],
            may_hide_new_acks=not unbatched and keeps_indexes is not False,
        )

    def apply(self, plan: SkipPlan) -> None:
        """Move the cursor to the plan's boundary."""
        if not plan.moves:
            return
        self._raise_if_moved(plan)
        backlog, boundary = plan.situation.backlog, plan.boundary
        if boundary.batch_index is None:
            self._expire(plan, boundary.position)
        else:
            batch = backlog.ledgers.next(boundary.position)
            assert batch is not None  # noqa: S101  # the boundary is inside this batch
            if not plan.situation.idle:
                self._reset(batch, boundary.batch_index)
                return
            if boundary.entries:
                self._expire(plan, boundary.position)
            self._acknowledge_inside(plan, batch, boundary.batch_index)

    def _raise_if_moved(self, plan: SkipPlan) -> None:
        expected = plan.situation.backlog
        with ThreadPoolExecutor(1) as pool:
            # The broker does not show acknowledgements inside batches, only the time of the last one.
            ack_request = pool.submit(self._admin.stats, self._topic) if plan.situation.may_hide_new_acks else None
            internal = self._admin.internal_stats(self._topic)
            found = Backlog.of(internal, self._subscription) if self._subscription in internal.cursors else None
            acked = 0
            if found is not None and ack_request is not None:
                acked = of_subscription(ack_request.result().subscriptions, self._subscription, self._topic).raw[
                    "lastAckedTimestamp"
                ]
        if found is None or found.state != expected.state or acked > plan.situation.last_ack_ms:
            raise CursorMoved(
                f"The cursor of {self._subscription!r} on {self._topic} moved during the planning: it was at "
                f"{_describe(expected)} and {'was deleted' if found is None else f'is now at {_describe(found)}'}. "
                "Nothing was skipped. Repeat the skip, or pause the consumers that acknowledge.",
                expected=expected.mark_delete,
                found=None if found is None else found.mark_delete,
            )

    def _expire(self, plan: SkipPlan, target: Position) -> None:
        """Acknowledge every entry up to `target`; unlike a skip by a count, this is safe if the cursor moves."""
        ledgers = plan.situation.backlog.ledgers
        last = ledgers[ledgers.up_to(target)]
        backlog, deadline, counting = plan.situation.backlog, time.monotonic() + _CONFIRM_SECONDS, False
        while True:
            try:
                self._move(last, backlog, counting=counting)
            except AdminConflict:
                # Another expiry is running, such as that of a time to live, so the broker rejected this one.
                if time.monotonic() > deadline:
                    raise
            except AdminUnavailable as error:
                raise self._unconfirmed(last, None, f"the broker did not answer: {error}") from error
            before, backlog = backlog, self._wait_until_moved(last, backlog)
            upcoming = backlog.entry(1)
            if upcoming is None or upcoming > last:
                return
            moved = upcoming != before.entry(1)
            # Never twice in a row: a skip by a count must not be repeated before it has taken effect.
            counting = moved and not counting
            if moved:
                # If the topic ends with acknowledged entries, the broker's search for the position gives up early
                # (ManagedCursorImpl.hasMoreEntries), perhaps after a single entry. A skip by a count does not, and is
                # as safe while no consumer can acknowledge.
                deadline = time.monotonic() + _CONFIRM_SECONDS
            elif time.monotonic() > deadline:
                raise self._unconfirmed(last, backlog.mark_delete, f"it did not move for {_CONFIRM_SECONDS:.0f} s")

    def _move(self, last: Position, backlog: Backlog, *, counting: bool) -> None:
        if (
            counting
            and not of_subscription(
                self._admin.stats(self._topic).subscriptions, self._subscription, self._topic
            ).consumers
        ):
            self._admin.skip_entries(self._topic, self._subscription, backlog.entries(last))
        else:
            self._admin.expire_messages(self._topic, self._subscription, last, look_first=False)

    def _wait_until_moved(self, last: Position, before: Backlog) -> Backlog:
        """Poll until the cursor moves, for a short time; the broker works in the background and reports no failure."""
        deadline, pause = time.monotonic() + _WAIT_SECONDS, _FIRST_POLL_SECONDS
        while True:
            threads.sleep(pause)
            pause = min(1.5 * pause, _POLL_SECONDS)
            try:
                backlog = Backlog.of(self._admin.internal_stats(self._topic), self._subscription)
            except (AdminUnavailable, KeyError) as error:
                raise self._unconfirmed(last, None, f"its position is unknown: {error}") from error
            if backlog.entry(1) != before.entry(1) or time.monotonic() > deadline:
                return backlog

    def _reset(self, batch: Position, index: int) -> None:
        try:
            self._admin.reset_cursor(self._topic, self._subscription, batch, batch_index=index)
        except AdminUnavailable as error:
            raise self._unconfirmed(batch, None, f"the broker did not answer: {error}") from error

    def _acknowledge_inside(self, plan: SkipPlan, batch: Position, index: int) -> None:
        """Acknowledge the first messages of a batch as a consumer: a reset would discard acknowledgements after it."""
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
            raise self._unconfirmed(batch, plan.boundary.position, "the broker does not deliver that batch")

    def _unconfirmed(self, expected: Position, found: Position | None, why: str) -> SkipUnconfirmed:
        return SkipUnconfirmed(
            f"The cursor of {self._subscription!r} on {self._topic} should move to {expected}, but {why}. It has moved "
            "to there, or in part, or not at all, and never further: check internal_stats() before you skip again.",
            expected=expected,
            found=found,
        )

    def _result(self, plan: SkipPlan, count: int, unit: Unit, *, dry_run: bool) -> SkipResult:
        backlog, boundary = plan.situation.backlog, plan.boundary
        redelivered = 0
        if boundary.batch_index is not None and not plan.situation.idle:
            after = backlog.ledgers.entries - backlog.ledgers.up_to(boundary.position)
            redelivered = after - backlog.total + boundary.entries
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


def of_subscription(found: Mapping[str, _Value], subscription: str, topic: str) -> _Value:
    """Return the value of a subscription, which may have been deleted in the meantime."""
    if subscription not in found:
        raise AdminNotFound(
            f"Subscription {subscription!r} not found on {topic}; existing subscriptions: "
            f"{', '.join(map(repr, sorted(found))) or 'none'}. Nothing was changed.",
            status=None,
            reason="Subscription not found",
            method=None,
            path=topic,
        )
    return found[subscription]


def _describe(backlog: Backlog) -> str:
    holes = ",".join(map(str, backlog.deleted))
    return f"{backlog.mark_delete} with [{holes}]" if holes else str(backlog.mark_delete)
