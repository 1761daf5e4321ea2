"""`audit`: find defects of topics: incomplete chunked messages, duplicate sequence ids, mixed batches, gaps.

Spark counts the messages. Entries without a message are looked up by their headers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window, functions

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdUnresolved
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.spark.connection import admin_of
from pulsar_ext.spark.options import READ, parse_options
from pulsar_ext.spark.planning import stats_of, topics_of

_COLUMNS = (
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
    frame = spark.read.format("pulsar").options(**{"columns": _COLUMNS, **given}).load().cache()
    try:
        counts = {row["__topic"]: row["count"] for row in frame.groupBy("__topic").count().collect()}
        duplicates = _found(_duplicates(frame))
        mixed = _found(_mixed(frame))
        gaps = _found(_sequence_gaps(frame))
        admin = admin_of(settings)
        found = []
        for topic, stats in stats_of(admin, topics_of(admin, settings)).items():
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
