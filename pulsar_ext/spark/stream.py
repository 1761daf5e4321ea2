"""The streaming read: offsets in the checkpoint, and one durable subscription that follows them.

The subscription is never read from and never sought. It says to the broker, and to whoever looks, how far the query is:
it is acknowledged up to where batches are committed, so its backlog is the query's, and what is not committed yet is
kept. Messages are read by readers, between the offsets of a batch.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pulsar_ext.errors import InvalidUse

from .connection import admin_of
from .offsets import BEGINNING, Offset, StreamOffset, after_all, lost_before
from .partition import PulsarPartition, read_split, wanted_ranges
from .planning import begin_of, report_loss_behind, state_of, topics_of
from .progress_cursor import QuerySubscription
from .splits import Segment, TopicState, limit_entries, plan_splits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from pulsar_ext.admin import InternalStats

    from .options import Settings

__all__ = ["PulsarStreamReader"]

_log = logging.getLogger("pulsar_ext.spark")


class PulsarStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Spark keeps one of these beside the driver for offsets, and pickles copies for the tasks."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema
        self._subscription: QuerySubscription | None = None
        self._target: Mapping[str, Offset] | None = None
        self._waiting_since: float | None = None

    # -- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark names it so, here and below
        """Give where a new query begins.

        With a subscription of the user's that exists, where that stands: it is how a first batch that crashed before
        it was logged begins at the same message again.
        """
        admin, settings = admin_of(self._settings), self._settings
        name = settings["predefinedSubscription"]
        offsets: dict[str, Offset] = {}
        for topic in topics_of(admin, settings):
            stats = admin.internal_stats(topic)
            cursor = stats.cursors.get(name) if name is not None else None
            if cursor is not None:
                at = cursor.mark_delete_position
                offsets[topic] = Offset(at.ledger_id, at.entry_id)
            else:
                offsets[topic] = begin_of(admin, settings, state_of(topic, stats, admin), stats, "latest")
        found = StreamOffset(name or f"{settings['subscriptionPrefix']}-{uuid.uuid4().hex[:12]}", offsets, offsets)
        if name is not None:
            self._follow(found, {topic: admin.internal_stats(topic) for topic in offsets})
        return found.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Give the limit that options set, as far as Spark has a name for it."""
        settings = self._settings
        if settings["maxEntriesPerTrigger"] is not None:
            return ReadMaxRows(settings["maxEntriesPerTrigger"])
        if settings["maxBytesPerTrigger"] is not None:
            return ReadMaxBytes(settings["maxBytesPerTrigger"])
        if settings["minEntriesPerTrigger"] is not None:
            return ReadMinRows(settings["minEntriesPerTrigger"])
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give where the next batch ends; what ended at `start` is committed by now, and is acknowledged.

        Raises:
            DataLoss: what was to be read next was trimmed, unless `failOnDataLoss` is false.
        """
        admin, settings = admin_of(self._settings), self._settings
        begun = StreamOffset.from_json(start)
        self._check_subscription(begun)
        topics = topics_of(admin, settings)
        stats = {topic: admin.internal_stats(topic) for topic in topics}
        follower = self._follow(begun, stats)
        follower.acknowledge(begun.topics)
        begin = {topic: begun.topics.get(topic, BEGINNING) for topic in topics}
        self._check_loss(begun, begin, stats)
        states = [state_of(topic, stats[topic], admin) for topic in topics]
        ends = self._ends(states, stats, begin)
        ends = self._limited(states, begin, ends, unlimited=isinstance(limit, ReadAllAvailable))
        if all(ends[topic] == begin[topic] for topic in topics):
            follower.flush()  # nobody calls again for the last batch, so its acknowledgement must be on its way
            return start
        gone = {topic: offset for topic, offset in begun.topics.items() if topic not in ends}
        is_first = begun.initial is not None and begun.topics == begun.initial
        return StreamOffset(begun.subscription, {**gone, **ends}, begun.initial if is_first else None).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Give the topics' ends, and how many entries the query's subscription is behind."""
        admin = admin_of(self._settings)
        ends: dict[str, Offset] = {}
        behind = 0
        name = None if self._subscription is None else self._subscription.name
        for topic in topics_of(admin, self._settings):
            stats = admin.internal_stats(topic)
            state = state_of(topic, stats, admin)
            ends[topic] = after_all(state.ledgers, [ledger.ledger_id for ledger in stats.ledgers])
            cursor = stats.cursors.get(name or "")
            if cursor is not None and state.ledgers.last is not None:
                behind += state.ledgers.between(cursor.mark_delete_position, state.ledgers.last)
        return {**StreamOffset(name or "", ends).to_json(), "entriesBehind": behind}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what there is now: a query that ends by itself reads no further."""
        admin = admin_of(self._settings)
        target = {}
        for topic in topics_of(admin, self._settings):
            stats = admin.internal_stats(topic)
            sizes = state_of(topic, stats, admin)
            target[topic] = after_all(sizes.ledgers, [ledger.ledger_id for ledger in stats.ledgers])
        self._target = target

    # -- batches -----------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a batch, the same for the same offsets as long as nothing was trimmed."""
        admin, settings = admin_of(self._settings), self._settings
        until = StreamOffset.from_json(end)
        begins = until.begins(StreamOffset.from_json(start))
        segments = []
        for topic, offset in until.topics.items():
            begin = begins.get(topic, BEGINNING)
            if begin == offset:
                continue
            stats = admin.internal_stats(topic)
            listed = [ledger.ledger_id for ledger in stats.ledgers]
            cursor = stats.cursors.get(until.subscription)
            if lost_before(begin, listed, None if cursor is None else cursor.mark_delete_position):
                report_loss_behind(settings, topic, begin, min(listed))
            segments.append(Segment.of(state_of(topic, stats, admin), begin, offset))
        splits = plan_splits(segments, settings["splitBy"], settings["minPartitions"], wanted_ranges(settings))
        return [PulsarPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's part."""
        if not isinstance(partition, PulsarPartition):
            return iter(())
        return read_split(partition.split, self._schema, self._settings)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge a batch that is committed."""
        offset = StreamOffset.from_json(end)
        if self._subscription is not None:
            self._subscription.acknowledge(offset.topics)

    def stop(self) -> None:
        """Close the consumers of the query's subscription, which sends what they acknowledged."""
        if self._subscription is not None:
            self._subscription.close()

    # -- parts -------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_subscription": None}

    def _follow(self, offset: StreamOffset, stats: Mapping[str, InternalStats]) -> QuerySubscription:
        """Give the query's subscription, made on every topic that has none yet."""
        if self._subscription is None:
            self._subscription = QuerySubscription(offset.subscription, self._settings)
        self._subscription.ensure({topic: offset.topics.get(topic, BEGINNING) for topic in stats}, stats)
        return self._subscription

    def _check_subscription(self, begun: StreamOffset) -> None:
        wanted = self._settings["predefinedSubscription"]
        if wanted is not None and wanted != begun.subscription:
            raise InvalidUse(
                f"The checkpoint belongs to the subscription {begun.subscription!r}, and option predefinedSubscription "
                f"says {wanted!r}. Give that name, or begin with a new checkpoint."
            )

    def _check_loss(self, begun: StreamOffset, begin: dict[str, Offset], stats: Mapping[str, InternalStats]) -> None:
        for topic, offset in begin.items():
            listed = [ledger.ledger_id for ledger in stats[topic].ledgers]
            cursor = stats[topic].cursors.get(begun.subscription)
            if lost_before(offset, listed, None if cursor is None else cursor.mark_delete_position):
                report_loss_behind(self._settings, topic, offset, min(listed))

    def _ends(
        self, states: Sequence[TopicState], stats: Mapping[str, InternalStats], begin: Mapping[str, Offset]
    ) -> dict[str, Offset]:
        ends = {}
        for state in states:
            end = after_all(state.ledgers, [ledger.ledger_id for ledger in stats[state.topic].ledgers])
            if self._target is not None:
                end = min(end, self._target.get(state.topic, BEGINNING), key=lambda one: one.key)
            start = begin[state.topic]
            # A ledger that is rolled over without a new entry is nothing to read.
            ends[state.topic] = end if Segment.of(state, start, end).entries and start < end else start
        return ends

    def _limited(
        self, states: Sequence[TopicState], begin: dict[str, Offset], ends: dict[str, Offset], *, unlimited: bool
    ) -> dict[str, Offset]:
        settings = self._settings
        if unlimited and not isinstance(self.getDefaultReadLimit(), ReadAllAvailable):
            return ends
        least = settings["minEntriesPerTrigger"]
        if least is not None and self._target is None:
            found = sum(Segment.of(state, begin[state.topic], ends[state.topic]).entries for state in states)
            now = time.monotonic()
            if not found:
                return begin
            self._waiting_since = self._waiting_since if self._waiting_since is not None else now
            if found < least and now - self._waiting_since < settings["maxTriggerDelay"] / 1000:
                return begin
            self._waiting_since = None
        return limit_entries(states, begin, ends, settings["maxEntriesPerTrigger"], settings["maxBytesPerTrigger"])
