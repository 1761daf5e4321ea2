"""Streaming read: offsets in the checkpoint, and one durable subscription that follows them.

Messages are read by readers, between the offsets of a batch. The subscription never receives and never seeks. Its
cursor shows the query's progress to the broker and the operator: it is acknowledged up to the committed batches, so
that its backlog is that of the query, and the broker keeps the messages that are not committed yet.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial

import pulsar
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import datasource as limits
from pyspark.sql.types import StructType

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.admin import InternalStats
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import AdminConflict, AdminError, InvalidUse
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .connection import admin_of, client_of, when_free
from .errors import report_data_loss
from .offsets import BEGINNING, Offset, Segment, StreamOffset, TopicState, limit_entries
from .options import Settings
from .planning import begin_of, check_topics_of_offsets, find_loss, planned_segment, state_of, stats_of, topics_of
from .segment_reader import SplitReader

_FLUSH_SECONDS = 3.0
_POLL_SECONDS = 0.03

_log = logging.getLogger("pulsar_ext.spark")


class QuerySubscription:
    """Subscription of a query; its Exclusive consumers never receive, but exclude other queries and its deletion."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings
        self._consumers: dict[str, Consumer[bytes]] = {}
        self._acknowledged: dict[str, Position] = {}

    def ensure(self, begin: Mapping[str, Offset], stats: Mapping[str, InternalStats]) -> None:
        """Create the subscription on topics that lack it, and connect."""
        for topic, offset in begin.items():
            cursor, sent = stats[topic].cursors.get(self.name), self._acknowledged.get(topic)
            if cursor is None:
                self._create(topic, offset, stats[topic])
                self._acknowledged.pop(topic, None)
            elif sent is not None and topic in self._consumers and cursor.mark_delete_position < sent:
                self._send(topic, sent)  # it was lost, for instance because the broker was down
            if topic not in self._consumers:
                self._consumers[topic] = self._connect(topic)

    def acknowledge(self, offsets: Mapping[str, Offset]) -> None:
        """Acknowledge everything up to these offsets; an offset that is acknowledged already has no effect."""
        for topic, offset in offsets.items():
            position = offset.position
            if topic not in self._consumers or position.entry_id < 0 or position.ledger_id < 0:
                continue
            known = self._acknowledged.get(topic)
            if known is None or known < position:
                self._send(topic, position)

    def flush(self) -> None:
        """Wait until the broker's cursors reach the acknowledged positions, for at most 3 seconds."""
        admin = admin_of(self._settings)
        deadline = time.monotonic() + _FLUSH_SECONDS
        for topic, position in self._acknowledged.items():
            while time.monotonic() < deadline:
                try:
                    cursor = admin.internal_stats(topic).cursors.get(self.name)
                except AdminError:
                    return
                if cursor is None or cursor.mark_delete_position >= position:
                    break
                time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Send pending acknowledgements and disconnect."""
        for consumer in self._consumers.values():
            with contextlib.suppress(pulsar.PulsarException):
                consumer.close()
        self._consumers.clear()

    def _send(self, topic: str, position: Position) -> None:
        inner = InnerMessageId(TopicName.parse(topic).partition_index, position.ledger_id, position.entry_id, -1)
        try:
            self._consumers[topic].inner.acknowledge_cumulative(inner)
        except pulsar.PulsarException as error:
            # The next batch's acknowledgement includes this one; the checkpoint alone determines the query's progress.
            _log.warning("The subscription %s could not acknowledge %s on %s: %s", self.name, position, topic, error)
            with contextlib.suppress(pulsar.PulsarException):
                self._consumers.pop(topic).close()
            return
        self._acknowledged[topic] = position

    def _create(self, topic: str, offset: Offset, stats: InternalStats) -> None:
        if topic in self._consumers:
            _log.warning("The subscription %s on %s was deleted; creating it again", self.name, topic)
            with contextlib.suppress(pulsar.PulsarException):
                self._consumers.pop(topic).close()
        at = offset.position
        following = Ledgers(stats.ledger_sizes()).next(at) or Position(at.ledger_id, at.entry_id + 1)
        admin = admin_of(self._settings)
        with contextlib.suppress(AdminConflict):
            admin.create_subscription(topic, self.name, "earliest" if offset == BEGINNING else following)

    def _connect(self, topic: str) -> Consumer[bytes]:
        # Without a queue, the broker sends no messages.
        options = {"receiver_queue_size": 0, "initial_position": pulsar.InitialPosition.Earliest}
        subscribe = partial(client_of(self._settings).subscribe, topic, self.name, **options)
        try:
            return when_free(pulsar.ConsumerBusy, subscribe)
        except pulsar.ConsumerBusy:
            raise InvalidUse(
                f"The subscription {self.name!r} on {topic} is in use, by another query or by a run of this query that "
                "has not ended. Each query needs its own subscription: set option predefinedSubscription."
            ) from None


class PulsarStreamReader(SplitReader, DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """Streaming read. Spark keeps one in the driver's Python for the offsets, and pickles copies for the tasks."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._subscription: QuerySubscription | None = None
        self._target: Mapping[str, Offset] | None = None
        self._waiting_since: float | None = None

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name, here and below
        """Return the offsets at which a new query begins, or those of the cursors of its `predefinedSubscription`."""
        settings = self._settings
        name = settings["predefinedSubscription"]
        offsets: dict[str, Offset] = {}
        topics = topics_of(settings)
        check_topics_of_offsets(settings, topics)
        stats = stats_of(settings, topics)
        for topic, known in stats.items():
            cursor = known.cursors.get(name) if name is not None else None
            if cursor is not None:  # so a first batch that crashed before Spark logged it begins there again
                offsets[topic] = Offset.at(cursor.mark_delete_position)
            else:
                offsets[topic] = begin_of(settings, state_of(settings, topic, known), "latest")
        found = StreamOffset(name or f"{settings['subscriptionPrefix']}-{uuid.uuid4().hex[:12]}", offsets, offsets)
        if name is not None:
            self._follow(found, stats)
        return found.to_json()

    def getDefaultReadLimit(self) -> limits.ReadLimit:  # noqa: N802
        """Return the limit that the options set, if Spark has a class for it."""
        kinds = {
            "maxEntriesPerTrigger": limits.ReadMaxRows,
            "maxBytesPerTrigger": limits.ReadMaxBytes,
            "minEntriesPerTrigger": limits.ReadMinRows,
        }
        given = (limit(self._settings[name]) for name, limit in kinds.items() if self._settings[name] is not None)
        return next(given, limits.ReadAllAvailable())

    def latestOffset(self, start: dict[str, object], limit: limits.ReadLimit) -> dict[str, object]:  # noqa: N802
        """Return the offsets at which the next batch ends, and acknowledge up to `start`, which is committed by now."""
        settings, started = self._settings, StreamOffset.from_json(start)
        wanted = settings["predefinedSubscription"]
        if wanted is not None and wanted != started.subscription:
            raise InvalidUse(
                f"The checkpoint belongs to the subscription {started.subscription!r}, but option "
                f"predefinedSubscription is {wanted!r}. Set it to the checkpoint's, or start with a new checkpoint."
            )
        stats = stats_of(settings)
        begin = {topic: started.topics.get(topic, BEGINNING) for topic in stats}
        states = [state_of(settings, topic, found) for topic, found in stats.items()]
        cursors = {topic: found.cursors.get(started.subscription) for topic, found in stats.items()}
        # Before the subscription is created again or moved: after that, its cursor would hide the loss.
        report_data_loss(settings, *(find_loss(state, begin[state.topic], cursors[state.topic]) for state in states))
        subscription = self._follow(started, stats)
        subscription.acknowledge(started.topics)
        ends = self._limited(
            states, begin, self._ends(states, begin), unlimited=isinstance(limit, limits.ReadAllAvailable)
        )
        if ends == begin:
            subscription.flush()  # after the last batch, Spark makes no other call that would acknowledge it
            return start
        gone = {topic: offset for topic, offset in started.topics.items() if topic not in ends}
        is_first = started.initial is not None and started.topics == started.initial
        return StreamOffset(started.subscription, {**gone, **ends}, started.initial if is_first else None).to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """Return the ends of the topics, and the number of entries in the backlog of the query's subscription."""
        ends: dict[str, Offset] = {}
        backlog = 0
        name = None if self._subscription is None else self._subscription.name
        for topic, stats in stats_of(self._settings).items():
            state = state_of(self._settings, topic, stats)
            ends[topic] = state.end
            cursor = stats.cursors.get(name or "")
            if cursor is not None and state.ledgers.last is not None:
                backlog += state.ledgers.between(cursor.mark_delete_position, state.ledgers.last)
        return {**StreamOffset(name or "", ends).to_json(), "entriesBehind": backlog}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current ends of the topics, at which a query with this trigger ends."""
        stats = stats_of(self._settings)
        self._target = {topic: state_of(self._settings, topic, one).end for topic, one in stats.items()}

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """Plan the tasks of a batch; equal offsets yield equal tasks while no entry is trimmed."""
        until = StreamOffset.from_json(end)
        begins = until.begins(StreamOffset.from_json(start))
        planned = (
            planned_segment(self._settings, topic, begins.get(topic, BEGINNING), offset, until.subscription)
            for topic, offset in until.topics.items()
        )
        return self._plan([one for one in planned if one is not None])

    def commit(self, end: dict[str, object]) -> None:
        """Acknowledge a batch that is committed."""
        if self._subscription is not None:
            self._subscription.acknowledge(StreamOffset.from_json(end).topics)

    def stop(self) -> None:
        """Close the consumers of the query's subscription, which sends their pending acknowledgements."""
        if self._subscription is not None:
            self._subscription.close()

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_subscription": None}

    def _follow(self, offset: StreamOffset, stats: Mapping[str, InternalStats]) -> QuerySubscription:
        """Return the query's subscription, after creating it on the topics that lack it."""
        if self._subscription is None:
            self._subscription = QuerySubscription(offset.subscription, self._settings)
        self._subscription.ensure({topic: offset.topics.get(topic, BEGINNING) for topic in stats}, stats)
        return self._subscription

    def _ends(self, states: Sequence[TopicState], begin: Mapping[str, Offset]) -> dict[str, Offset]:
        ends = {}
        for state in states:
            end = state.end
            if self._target is not None:
                end = min(end, self._target.get(state.topic, BEGINNING))
            start = begin[state.topic]
            # A new ledger without entries has nothing to read.
            ends[state.topic] = end if Segment.of(state, start, end).entries and start < end else start
        return ends

    def _limited(
        self, states: Sequence[TopicState], begin: dict[str, Offset], ends: dict[str, Offset], *, unlimited: bool
    ) -> dict[str, Offset]:
        """Apply the options' limits: the batch ends earlier, or stays empty while there are too few entries."""
        settings = self._settings
        if unlimited and not isinstance(self.getDefaultReadLimit(), limits.ReadAllAvailable):
            return ends
        least = settings["minEntriesPerTrigger"]
        if least is not None and self._target is None:
            available = sum(Segment.of(state, begin[state.topic], ends[state.topic]).entries for state in states)
            now = time.monotonic()
            if not available:
                return begin
            self._waiting_since = self._waiting_since if self._waiting_since is not None else now
            if available < least and now - self._waiting_since < settings["maxTriggerDelay"] / 1000:
                return begin
            self._waiting_since = None
        return limit_entries(states, begin, ends, settings["maxEntriesPerTrigger"], settings["maxBytesPerTrigger"])
