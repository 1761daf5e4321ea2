"""Jobs on topics: each is a function here and a sub-command of `pulsar-ext spark`.

They take the data source's options and a Spark session that has it (`pulsar_ext.spark.spark_session`).

`archive` writes the messages of topics, with their ids, to Parquet; each run adds the new ones, exactly once. The
checkpoint has the position of the topics, and the log of the files (`_spark_metadata`) has the files that belong to the
archive, so that a run that crashes neither repeats nor omits a message. Read the archive with Spark, which follows that
log.

`replay` writes an archive, or another topic, to a topic; effectively once, also if it is repeated. In a replay of an
archive, each source partition is written by its own producer. The sequence id of a message is its index in that
partition, in the order in which messages begin. An archive grows only at the end, so these ids are stable: a replay
that crashed, or that is run again after the archive has grown, continues at the end of the topic.

`audit` finds defects of topics. Spark counts the messages; entries without a message are looked up by their headers.

`plan_ranges` divides the key hash slots of topics into ranges of similar weight, one per consumer.

`run_pipeline` is a demonstration: fill a topic, archive it, replay the archive, compare the counts.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pulsar

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.client.client import Client
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, InvalidUse, MessageIdUnresolved, MissingExtra
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.plan import draw_histogram, plan_key_hash_ranges, weights_of
from pulsar_ext.produce.batching import MixedKeyBatchWarning

with MissingExtra.named("spark", "pulsar_ext.spark.jobs"):
    from pyspark.sql import DataFrame, SparkSession, Window, functions
    from pyspark.sql.streaming import listener
    from pyspark.sql.streaming.query import StreamingQuery

    from .connection import admin_of
    from .options import READ, parse_options
    from .planning import stats_of
    from .schema import COLUMNS

__all__ = [
    "ARCHIVED",
    "Archived",
    "Finding",
    "ProgressLines",
    "RangePlan",
    "Replayed",
    "TopicAudit",
    "archive",
    "audit",
    "plan_ranges",
    "replay",
    "replay_topic",
]

_PARQUET = {
    # A task holds a whole row group in Java's memory.
    "parquet.block.size": 32 << 20,
    # The number of rows after which Parquet checks the size of a page. By default it estimates that number from earlier
    # rows: after 10,000 small messages it put 10,000 large ones into one page, and Java ran out of memory.
    "parquet.page.size.row.check.min": 10,
    "parquet.page.size.row.check.max": 10,
}

ARCHIVED = tuple(name for name in COLUMNS if name != "__keySlot")  # which follows from the keys
"""The columns of an archive."""


@dataclass(frozen=True)
class Archived:
    """Number of rows that one run added, and of the batches it added them in."""

    rows: int
    batches: int


def archive(spark: SparkSession, options: Mapping[str, str], path: str, *, checkpoint: str | None = None) -> Archived:
    """Add to an archive the messages of topics that it does not have yet.

    Args:
        spark: a session with the data source.
        options: of a streaming read; `startingOffsets` is `earliest` by default.
        path: a directory for Parquet files.
        checkpoint: a directory for the progress; by default the path with `-checkpoint`. It belongs to the archive: a
            run with another checkpoint adds all messages again.
    """
    source = {"startingOffsets": "earliest", "columns": ",".join(ARCHIVED), **options}
    place = {"path": path, "checkpointLocation": checkpoint or f"{path.rstrip('/')}-checkpoint"}
    query = _stream(spark, source, "parquet", {**_PARQUET, **place})
    counts = [report.numInputRows for report in query.recentProgress if report.numInputRows]
    return Archived(sum(counts), len(counts))


def _stream(
    spark: SparkSession, source: Mapping[str, str], kind: str, target: Mapping[str, str | int]
) -> StreamingQuery:
    """Write all available messages, and return the query, which has ended."""
    frame = spark.readStream.format("pulsar").options(**source).load()
    query = frame.writeStream.format(kind).options(**target).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


_GROUP = "__lane"
_ORDER = ("__beginLedgerId", "__beginEntryId", "__batchIndex")
_WRITTEN = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime")
_BY_KEY = {"pulsar.producer.batchingType": "KeyBased"}
"""Options for messages with keys: a Key_Shared subscription delivers a batch by the key of its first message."""


@dataclass(frozen=True)
class Replayed:
    """Number of rows that one run sent; the topic may have had some of them already."""

    rows: int


def replay(
    spark: SparkSession,
    path: str,
    options: Mapping[str, str],
    *,
    name: str,
    where: str | None = None,
    exactly_once: bool = True,
) -> Replayed:
    """Write an archive to a topic, each message with its key, properties and event time.

    Messages with keys are batched by key, which keeps their order within each key. To keep the order of a whole
    partition, set `pulsar.producer.batchingEnabled=false` (no batches), or `pulsar.producer.batchingType=Default`
    (batches that a Key_Shared subscription cannot divide).

    Args:
        spark: a session with the data source.
        path: an archive written by `archive`.
        options: of a write; `topic` is the topic to write to.
        name: of this replay. By this name the broker recognizes the messages that the topic has already. Use another
            name for another archive or another selection of rows.
        where: an SQL condition that selects rows; all by default.
        exactly_once: true to use deduplication; without it, a repeated run writes all messages again.

    Raises:
        InvalidUse: the path is not an archive; or the condition tests `value` and would select messages of a key but
            not the key's last message, which has no value and deletes the key. Nothing was written.
    """
    rows = spark.read.parquet(path)
    missing = [column for column in (*_ORDER, "__topic", "value") if column not in rows.columns]
    if missing:
        raise InvalidUse(
            f"{path} is not an archive: it lacks the columns {', '.join(missing)}. Create one with archive()."
        )
    if where is not None:
        if re.search(r"\bvalue\b", where, re.IGNORECASE):
            _check_restored_keys(rows, where)
        rows = rows.where(where)
    count = rows.count()
    grouped = rows.withColumn(_GROUP, functions.col("__topic"))
    ordered = grouped.repartition(_GROUP).sortWithinPartitions(_GROUP, *_ORDER).select(_GROUP, *_WRITTEN)
    given = {"guarantee": "exactly-once", "producerName": name} if exactly_once else {}
    if not rows.where("__key IS NOT NULL OR __orderingKey IS NOT NULL").isEmpty():
        given |= _BY_KEY
    ordered.write.format("pulsar").options(**{**given, "laneBy": _GROUP, **options}).mode("append").save()
    return Replayed(count)


def _check_restored_keys(rows: DataFrame, where: str) -> None:
    key, chosen = ("__topic", "__key"), functions.expr(f"coalesce({where}, false)")
    ends = functions.max_by(functions.col("value").isNull() & ~chosen, functions.struct(*_ORDER))
    keyed = rows.where("__key IS NOT NULL").groupBy(*key).agg(ends.alias("ends"), functions.max(chosen).alias("chosen"))
    if revived := keyed.where("ends AND chosen").count():
        raise InvalidUse(
            f"where={where!r} would restore {revived} deleted keys: it selects messages of them but excludes the last, "
            "which has no value. Nothing was written; add `OR value IS NULL` to the condition."
        )


def replay_topic(
    spark: SparkSession,
    source: Mapping[str, str],
    options: Mapping[str, str],
    *,
    checkpoint: str,
    exactly_once: bool = True,
) -> Replayed:
    """Copy the messages of topics to a topic, batched by key as in `replay()`; each run copies the new ones.

    Args:
        spark: a session with the data source.
        source: the options of a streaming read; `startingOffsets` is `earliest` by default.
        options: of a write; `topic` is the topic to write to.
        checkpoint: a directory for the progress of this copy; a run with another one copies all messages again.
        exactly_once: true to use deduplication; without it, a repeated batch is written again.
    """
    source = {"startingOffsets": "earliest", "splitBy": "partition", "columns": ",".join(_WRITTEN), **source}
    guarantee = {"guarantee": "exactly-once"} if exactly_once else {}
    query = _stream(spark, source, "pulsar", {**guarantee, **_BY_KEY, **options, "checkpointLocation": checkpoint})
    return Replayed(sum(report.numInputRows for report in query.recentProgress))


_AUDITED = (
    "__topic,__key,__orderingKey,__keySlot,__producerName,__sequenceId,__ledgerId,__entryId,__batchIndex,"
    "__beginLedgerId,__beginEntryId"
)
_MOST_EXAMPLES = 20
_MOST_LOOKUPS = 20_000


@dataclass(frozen=True)
class Finding:
    """Number of occurrences, and examples of them."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class TopicAudit:
    """Findings of one topic partition.

    Args:
        topic: its full name.
        messages: the number of its messages.
        incomplete_chunks: messages with missing chunks; no client delivers them.
        duplicate_sequence_ids: messages that share producer name and sequence id with another message.
        mixed_batches: batches with keys of several slots, which the broker delivers to one consumer.
        sequence_gaps: sequence ids that a producer skipped.
        gone_entries: entries that the topic's ledgers should have but that cannot be read.
    """

    topic: str
    messages: int
    incomplete_chunks: Finding
    duplicate_sequence_ids: Finding
    mixed_batches: Finding
    sequence_gaps: Finding
    gone_entries: Finding

    @property
    def is_clean(self) -> bool:
        """True if nothing is wrong. Gaps in sequence ids are valid: an application may choose its own."""
        wrong = self.incomplete_chunks, self.duplicate_sequence_ids, self.mixed_batches, self.gone_entries
        return not any(finding.count for finding in wrong)


def audit(spark: SparkSession, options: Mapping[str, str]) -> list[TopicAudit]:
    """Audit all messages of topics.

    Args:
        spark: a session with the data source.
        options: of a batch read; `pollTimeoutMs`, the timeout for an incomplete message at the end, is 5 s by default.

    Returns:
        One audit for each topic partition, in the order of their names.
    """
    given = {"pollTimeoutMs": "5000", "incompleteChunks": "skip", "failOnDataLoss": "false", **options}
    settings = parse_options(given, READ)
    frame = spark.read.format("pulsar").options(**{"columns": _AUDITED, **given}).load().cache()
    try:
        counts = {row["__topic"]: row["count"] for row in frame.groupBy("__topic").count().collect()}
        duplicates = _found(_duplicates(frame))
        mixed = _found(_mixed(frame))
        gaps = _found(_sequence_gaps(frame))
        admin = admin_of(settings)
        found = []
        for topic, stats in stats_of(settings).items():
            ledgers = Ledgers(stats.ledger_sizes())
            incomplete, gone = _unread(admin, topic, ledgers, frame.where(functions.col("__topic") == topic))
            by_rows = duplicates[topic], mixed[topic], gaps[topic]
            found.append(TopicAudit(topic, counts.get(topic, 0), incomplete, *by_rows, gone))
        return found
    finally:
        frame.unpersist()


def _found(rows: DataFrame) -> defaultdict[str, Finding]:
    """Return the findings by topic, from rows with a topic, a count (`many`) and a `place`."""
    grouped = rows.groupBy("__topic").agg(
        functions.sum("many").alias("many"),
        functions.slice(functions.collect_list("place"), 1, _MOST_EXAMPLES).alias("places"),
    )
    found = {row["__topic"]: Finding(int(row["many"]), tuple(row["places"])) for row in grouped.collect()}
    return defaultdict(lambda: Finding(0, ()), found)


def _duplicates(frame: DataFrame) -> DataFrame:
    same = frame.groupBy("__topic", "__producerName", "__sequenceId").count().where("count > 1")
    return same.selectExpr("__topic", "count - 1 AS many", "concat(__producerName, ' #', __sequenceId) AS place")


def _mixed(frame: DataFrame) -> DataFrame:
    # The broker dispatches a batch by its first message, with a key or without. Others without a key fit any consumer.
    keyed = functions.expr("__key IS NOT NULL OR __orderingKey IS NOT NULL")
    decides = functions.when(keyed | functions.expr("__batchIndex = 0"), functions.col("__keySlot"))
    slots = (
        frame.where("__batchIndex >= 0")
        .groupBy("__topic", "__ledgerId", "__entryId")
        .agg(functions.count_distinct(decides).alias("slots"), functions.max(keyed).alias("keyed"))
    )
    return slots.where("keyed AND slots > 1").selectExpr(
        "__topic", "1 AS many", "concat(__ledgerId, ':', __entryId) AS place"
    )


def _sequence_gaps(frame: DataFrame) -> DataFrame:
    spans = frame.groupBy("__topic", "__producerName").agg(
        functions.min("__sequenceId").alias("low"),
        functions.max("__sequenceId").alias("high"),
        functions.count_distinct("__sequenceId").alias("there"),
    )
    return spans.selectExpr(
        "__topic", "high - low + 1 - there AS many", "concat(__producerName, ' #', low, '..', high) AS place"
    ).where("many > 0")


def _unread(admin: PulsarAdmin, topic: str, ledgers: Ledgers, rows: DataFrame) -> tuple[Finding, Finding]:
    """Look up the entries without a message; return the incomplete chunked messages and the missing entries."""
    incomplete: dict[str, str] = {}
    gone: list[str] = []
    looked = 0
    for first, last in _gaps(ledgers, rows):
        at: Position | None = first
        while at is not None and at <= last and looked < _MOST_LOOKUPS:
            looked += 1
            try:
                entry = admin.entry(topic, at.ledger_id, at.entry_id)
            except AdminNotFound:
                gone.append(str(at))
            else:
                if entry.is_chunk and entry.uuid not in incomplete and _is_incomplete(admin, topic, at):
                    incomplete[entry.uuid or str(at)] = str(at)
            at = ledgers.next(at)
    return (
        Finding(len(incomplete), tuple(incomplete.values())[:_MOST_EXAMPLES]),
        Finding(len(gone), tuple(gone[:_MOST_EXAMPLES])),
    )


def _is_incomplete(admin: PulsarAdmin, topic: str, at: Position) -> bool:
    try:
        resolve_chunks(admin, topic, at)
    except (IncompleteChunkedMessage, MessageIdUnresolved):
        return True
    return False


def _gaps(ledgers: Ledgers, rows: DataFrame) -> Iterator[tuple[Position, Position]]:
    """Yield the first and last entries of the gaps between entries at which messages begin or end."""
    ends = rows.selectExpr("__ledgerId AS ledger", "__entryId AS entry")
    begins = rows.where("__beginEntryId <> __entryId OR __beginLedgerId <> __ledgerId").selectExpr(
        "__beginLedgerId AS ledger", "__beginEntryId AS entry"
    )
    start = rows.sparkSession.range(1).selectExpr("-1L AS ledger", "-1L AS entry")  # before the first entry
    order = Window.orderBy("ledger", "entry")
    steps = (
        start.union(ends)
        .union(begins)
        .distinct()
        .select("*", functions.lead("ledger").over(order).alias("l"), functions.lead("entry").over(order).alias("e"))
        .where("l IS NULL OR l <> ledger OR e <> entry + 1")
    )
    for row in steps.orderBy("ledger", "entry").collect():
        first = ledgers.next(Position(row.ledger, row.entry))
        last = ledgers.last if row.l is None else ledgers.number(ledgers.up_to(Position(row.l, row.e)) - 1)
        if first is not None and last is not None and first <= last:
            yield first, last


@dataclass(frozen=True)
class RangePlan:
    """Ranges in order, with the weight of each range and of each slot, in messages or bytes."""

    ranges: tuple[KeyHashRanges, ...]
    weights: tuple[float, ...]
    histogram: Mapping[int, float] = field(repr=False)


def plan_ranges(
    spark: SparkSession,
    options: Mapping[str, str],
    parts: int,
    *,
    by: Literal["messages", "bytes"] = "messages",
    png: Path | None = None,
) -> RangePlan:
    """Weigh the slots in parallel, and divide them into ranges.

    Args:
        spark: a session with the data source.
        options: of a batch read.
        parts: the number of ranges.
        by: the weight of a slot: its number of messages, or the bytes of their payloads.
        png: a file for a chart of slots and ranges; by default, no chart is drawn.

    Raises:
        InvalidUse: the number of ranges is invalid, or matplotlib is missing.
    """
    plan_key_hash_ranges({}, parts)  # raises on an invalid number before anything is read
    columns = "__keySlot" if by == "messages" else "__keySlot,value"
    frame = spark.read.format("pulsar").options(**{"columns": columns, **options}).load()
    weight = functions.count("*") if by == "messages" else functions.sum(functions.length("value"))
    rows = frame.groupBy("__keySlot").agg(weight.alias("weight"))
    histogram = {row["__keySlot"]: float(row.weight or 0) for row in rows.collect()}
    ranges = plan_key_hash_ranges(histogram, parts)
    if png is not None:
        draw_histogram(histogram, ranges, options.get("topic", "topics"), by, png)
    return RangePlan(tuple(ranges), tuple(weights_of(histogram, ranges)), histogram)


def line_of(report: listener.StreamingQueryProgress) -> str:
    """Return the progress report of one batch as a line."""
    source = report.sources[0] if report.sources else None
    backlog = None
    if source is not None and source.latestOffset:
        try:
            backlog = json.loads(source.latestOffset).get("entriesBehind")
        except (ValueError, AttributeError):
            backlog = None  # of another source
    seconds = report.batchDuration / 1000
    rate = f", {report.numInputRows / seconds:,.0f} rows/s" if seconds else ""
    lag = "" if backlog is None else f", had a backlog of {counted(backlog, 'entry')}"
    return f"batch {report.batchId}: {counted(report.numInputRows, 'row')} in {seconds:.1f} s{rate}{lag}"


class ProgressLines(listener.StreamingQueryListener):
    """Listener that reports each batch with rows as a line: `spark.streams.addListener(ProgressLines(print))`."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:  # noqa: N802  # Spark's name, here and below
        """Ignore the event: the first batch is reported."""

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:  # noqa: N802
        """Report one batch."""
        if event.progress.numInputRows:
            self._report(line_of(event.progress))

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:  # noqa: N802
        """Ignore the event: Spark notifies the query's caller."""


_NAMESPACE = "public/pipeline"
_TOPIC, _COPY = f"persistent://{_NAMESPACE}/orders", f"persistent://{_NAMESPACE}-copy/orders"
_PARTITIONS = 2
_CHUNKED_BYTES = 230_000
_CHUNKED_EVERY = 50
_BATCHING = {"batching_enabled": True, "batching_max_messages": 100}
_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batched": _BATCHING,
    "key-batched": {**_BATCHING, "batching_type": pulsar.BatchingType.KeyBased},
    "chunked": {"chunking_enabled": True},
}


@dataclass(frozen=True)
class PipelineCounts:
    """Number of messages sent, and after each step the number of messages and of distinct messages."""

    sent: int
    steps: dict[str, tuple[int, int]]

    @property
    def match(self) -> bool:
        """True if every step has each message once."""
        return all(step == (self.sent, self.sent) for step in self.steps.values())


def run_pipeline(
    spark: SparkSession, service_url: str, admin_url: str, directory: str, messages: int
) -> PipelineCounts:
    """Run the demonstration on a dedicated broker."""
    urls = {"service.url": service_url, "admin.url": admin_url}
    source, copy = {**urls, "topic": _TOPIC}, {**urls, "topic": _COPY}
    path = f"{directory}/archive"
    with PulsarAdmin(admin_url) as admin:
        for topic in (_TOPIC, _COPY):
            namespace = TopicName.parse(topic).namespace_name
            admin.create_namespace(namespace)
            admin.set_retention(namespace, Retention(-1, -1))
            admin.set_deduplication(namespace, topic == _COPY)
            admin.create_partitioned_topic(topic, _PARTITIONS)
        half = _fill(service_url, admin, 0, messages // 2)
        archive(spark, source, path)
        replay(spark, path, {**copy, "pulsar.producer.chunkingEnabled": "true"}, name="pipeline")
        sent = _fill(service_url, admin, half, messages - messages // 2)
        archive(spark, source, path)
    steps = {"archived in two runs": _count(spark.read.parquet(path))}
    for turn in ("replayed", "replayed again"):
        replay(spark, path, {**copy, "pulsar.producer.chunkingEnabled": "true"}, name="pipeline")
        steps[turn] = _count(spark.read.format("pulsar").options(**copy, columns="value").load())
    return PipelineCounts(sent, steps)


def _fill(service_url: str, admin: PulsarAdmin, start: int, count: int) -> int:
    """Send `count` messages of each kind, whose values begin with consecutive numbers; return the next number."""
    number = start
    client = Client(service_url, admin=admin, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with client, warnings.catch_warnings():
        warnings.simplefilter("ignore", MixedKeyBatchWarning)  # the demonstration includes such batches
        for kind, options in _KINDS.items():
            with client.create_producer(_TOPIC, block_if_queue_full=True, **options) as producer:
                for index in range(count):
                    large = kind == "chunked" and not index % _CHUNKED_EVERY
                    content = str(number).encode().ljust(_CHUNKED_BYTES if large else 0)
                    producer.send_async(content, None, partition_key=f"key-{index % 97}" if index % 7 else None)
                    number += 1
                producer.flush()
    return number


def _count(rows: DataFrame) -> tuple[int, int]:
    values = rows.selectExpr("trim(string(value)) AS number")
    return values.count(), values.distinct().count()
