"""`archive`: write the messages of topics, with their ids, to Parquet; each run adds the new ones, exactly once.

The checkpoint has the position of the topics, and the log of the files (`_spark_metadata`) has the files that belong to
the archive, so that a run that crashes neither repeats nor omits a message. Read the archive with Spark, which follows
that log.

`replay`: write an archive, or another topic, to a topic; effectively once, also if it is repeated.

In a replay of an archive, each source partition is written by its own producer. The sequence id of a message is its
index in that partition, in the order in which messages begin. An archive grows only at the end, so these ids are
stable: a replay that crashed, or that is run again after the archive has grown, continues at the end of the topic.

`run_pipeline` is a demonstration: fill a topic, archive it, replay the archive, compare the counts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulsar
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.client.client import Client
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.produce.batching import MixedKeyBatchWarning
from pulsar_ext.spark.schema import COLUMNS

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
