"""`audit`: what is wrong with topics, or may be: unfinished chunks, repeated numbers, mixed batches, gaps.

Everything is counted by Spark from the messages; what no message accounts for is looked up by its headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window, functions

from pulsar_ext.chunks.search import resolve_chunks
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdUnresolved
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.spark.connection import admin_of
from pulsar_ext.spark.option_table import READ
from pulsar_ext.spark.options import parse_options
from pulsar_ext.spark.planning import topics_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_ext.admin import PulsarAdmin

__all__ = ["Finding", "TopicAudit", "audit"]

_COLUMNS = (
    "__topic,__key,__orderingKey,__keySlot,__producerName,__sequenceId,__ledgerId,__entryId,__batchIndex,"
    "__beginLedgerId,__beginEntryId"
)
_SHOWN = 20
_LOOKED_AT = 20_000


@dataclass(frozen=True)
class Finding:
    """Something found, how often, and some of the places."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class TopicAudit:
    """What was found on one topic partition.

    Args:
        topic: its full name.
        messages: how many it holds.
        incomplete_chunks: messages of which chunks are missing; no client delivers them.
        duplicate_sequence_ids: messages whose producer and sequence id another message has as well.
        mixed_batches: batches whose keyed messages are of several slots, which the broker gives to one consumer.
        sequence_gaps: numbers that a producer left out.
        gone_entries: entries that were there when the audit began, and that nobody can read.
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
        """Whether nothing was found. Gaps of sequence ids alone are no fault: an application may choose its own."""
        return not (
            self.incomplete_chunks.count
            or self.duplicate_sequence_ids.count
            or self.mixed_batches.count
            or self.gone_entries.count
        )


def audit(spark: SparkSession, options: Mapping[str, str]) -> list[TopicAudit]:
    """Look at topics, all of what they hold.

    Args:
        spark: a session that knows the source.
        options: those of a batch read; an unfinished message at the end is waited for 5 s unless `pollTimeoutMs` says
            otherwise.

    Returns:
        One audit for each topic partition, in order of their names.
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
        for topic in topics_of(admin, settings):
            incomplete, gone = _unread(admin, topic, frame.where(functions.col("__topic") == topic))
            found.append(
                TopicAudit(
                    topic,
                    counts.get(topic, 0),
                    incomplete,
                    duplicates.get(topic, _NOTHING),
                    mixed.get(topic, _NOTHING),
                    gaps.get(topic, _NOTHING),
                    gone,
                )
            )
        return found
    finally:
        frame.unpersist()


_NOTHING = Finding(0, ())


def _found(rows: DataFrame) -> dict[str, Finding]:
    """Collect findings: rows of a topic, how often, and where."""
    grouped = rows.groupBy("__topic").agg(
        functions.sum("many").alias("many"), functions.slice(functions.collect_list("place"), 1, _SHOWN).alias("places")
    )
    return {row["__topic"]: Finding(int(row["many"]), tuple(row["places"])) for row in grouped.collect()}


def _duplicates(frame: DataFrame) -> DataFrame:
    same = frame.groupBy("__topic", "__producerName", "__sequenceId").count().where("count > 1")
    return same.selectExpr("__topic", "count - 1 AS many", "concat(__producerName, ' #', __sequenceId) AS place")


def _mixed(frame: DataFrame) -> DataFrame:
    keyed = frame.where("__batchIndex >= 0 AND (__key IS NOT NULL OR __orderingKey IS NOT NULL)")
    slots = keyed.groupBy("__topic", "__ledgerId", "__entryId").agg(
        functions.count_distinct("__keySlot").alias("slots")
    )
    return slots.where("slots > 1").selectExpr("__topic", "1 AS many", "concat(__ledgerId, ':', __entryId) AS place")


def _sequence_gaps(frame: DataFrame) -> DataFrame:
    spans = frame.groupBy("__topic", "__producerName").agg(
        functions.min("__sequenceId").alias("low"),
        functions.max("__sequenceId").alias("high"),
        functions.count_distinct("__sequenceId").alias("there"),
    )
    return spans.selectExpr(
        "__topic", "high - low + 1 - there AS many", "concat(__producerName, ' #', low, '..', high) AS place"
    ).where("many > 0")


def _unread(admin: PulsarAdmin, topic: str, rows: DataFrame) -> tuple[Finding, Finding]:
    """Find the entries that no message accounts for: incomplete chunked messages, and entries that are gone."""
    ledgers = Ledgers(admin.internal_stats(topic).ledger_sizes())
    incomplete: dict[str, str] = {}
    gone: list[str] = []
    looked = 0
    for first, last in _gaps(ledgers, rows):
        at: Position | None = first
        while at is not None and at <= last and looked < _LOOKED_AT:
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
        Finding(len(incomplete), tuple(incomplete.values())[:_SHOWN]),
        Finding(len(gone), tuple(gone[:_SHOWN])),
    )


def _is_incomplete(admin: PulsarAdmin, topic: str, at: Position) -> bool:
    try:
        resolve_chunks(admin, topic, at)
    except (IncompleteChunkedMessage, MessageIdUnresolved):
        return True
    return False


def _gaps(ledgers: Ledgers, rows: DataFrame) -> Iterator[tuple[Position, Position]]:
    """Give the runs of entries between those that messages begin or end at."""
    ends = rows.selectExpr("__ledgerId AS ledger", "__entryId AS entry")
    begins = rows.where("__beginEntryId <> __entryId OR __beginLedgerId <> __ledgerId").selectExpr(
        "__beginLedgerId AS ledger", "__beginEntryId AS entry"
    )
    order = Window.orderBy("ledger", "entry")
    known = ends.union(begins).distinct()
    steps = known.select(
        "ledger",
        "entry",
        functions.lag("ledger").over(order).alias("l"),
        functions.lag("entry").over(order).alias("e"),
    ).where("l IS NULL OR l <> ledger OR e <> entry - 1")
    last: Position | None = None
    for row in [*steps.orderBy("ledger", "entry").collect(), None]:
        before = Position(-1, -1) if row is None or row.l is None else Position(row.l, row.e)
        if row is None:
            newest = known.orderBy(functions.desc("ledger"), functions.desc("entry")).first()
            before = Position(-1, -1) if newest is None else Position(newest.ledger, newest.entry)
        first = ledgers.next(before)
        here = None if row is None else Position(row.ledger, row.entry)
        last = ledgers.last if here is None else ledgers.number(ledgers.up_to(here) - 1)
        if first is not None and last is not None and first <= last:
            yield first, last
