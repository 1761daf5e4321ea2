"""`archive`: the messages of topics as Parquet, with their ids; each run adds what is new, exactly once.

The checkpoint has how far the topics have been read, and the log of the files (`_spark_metadata`) which of them belong
to the archive, so that a run that dies in the middle neither repeats nor omits a message. Read the archive with Spark,
which follows that log.

`replay`: writes an archive, or another topic, to a topic; effectively once, however often it is repeated.

From an archive, the lanes are the partitions that the messages came from, and a message's sequence id is its place in
its lane, in the order in which messages begin. An archive grows at the end only, so that these numbers stay the same: a
replay that died, or that is run again after the archive has grown, continues where the topic ends.

`run_pipeline` is a demonstration from end to end: fill a topic, archive it, replay the archive, compare the counts.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulsar
from pyspark.sql import DataFrame, SparkSession, functions

from pulsar_ext.admin import PulsarAdmin, Retention
from pulsar_ext.client.client import Client
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.produce.batching import MixedKeyBatchWarning

if TYPE_CHECKING:
    from collections.abc import Mapping


_PARQUET = {
    # A task holds a row group in Java's memory.
    "parquet.block.size": 32 << 20,
    # Parquet looks at sizes after so many rows. It would guess how many by the rows before: after 10,000 small messages
    # it took 10,000 large ones into one page, and Java ran out of memory.
    "parquet.page.size.row.check.min": 10,
    "parquet.page.size.row.check.max": 10,
}

ARCHIVED = (
    "value",
    "__key",
    "__orderingKey",
    "__topic",
    "__partition",
    "__messageId",
    "__firstChunkId",
    "__ledgerId",
    "__entryId",
    "__batchIndex",
    "__beginLedgerId",
    "__beginEntryId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__sequenceId",
    "__producerName",
)
"""The columns of an archive."""


@dataclass(frozen=True)
class Archived:
    """What one run added: how many rows, in how many batches."""

    rows: int
    batches: int


def archive(spark: SparkSession, options: Mapping[str, str], path: str, *, checkpoint: str | None = None) -> Archived:
    """Add to an archive the messages of topics that it does not have yet.

    Args:
        spark: a session with the data source.
        options: of a streaming read; `startingOffsets` is `earliest` by default.
        path: a directory for Parquet files.
        checkpoint: a directory for the progress; by default the path with `-checkpoint`. It belongs to the archive:
            with another one, everything would be added again.
    """
    frame = (
        spark.readStream.format("pulsar")
        .options(**{"startingOffsets": "earliest", "columns": ",".join(ARCHIVED), **options})
        .load()
    )
    query = (
        frame.writeStream.format("parquet")
        .option("path", path)
        .options(**_PARQUET)
        .option("checkpointLocation", checkpoint or f"{path.rstrip('/')}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    counts = [report.numInputRows for report in query.recentProgress if report.numInputRows]
    return Archived(sum(counts), len(counts))


_LANE = "__lane"
_ORDER = ("__beginLedgerId", "__beginEntryId", "__batchIndex")
_WRITTEN = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime")
_BY_KEY = {"pulsar.producer.batchingType": "KeyBased"}
"""For messages with keys: a Key_Shared subscription delivers a batch by the key of its first message."""


@dataclass(frozen=True)
class Replayed:
    """What one run sent: how many rows, some of which the topic may have had already."""

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

    Messages with keys are batched by key, so the original order is kept within each key. The order of a whole lane is
    kept without batches, by `pulsar.producer.batchingEnabled=false`, and by `pulsar.producer.batchingType=Default` in
    batches that Key_Shared subscriptions cannot divide.

    Args:
        spark: a session with the data source.
        path: an archive that `archive` made.
        options: of a write; `topic` is the topic to write to.
        name: of this replay, by which the broker recognizes what the topic has of it already. Another archive, or
            another selection of rows, needs another name.
        where: selects rows, as an SQL condition; all by default.
        exactly_once: whether to rely on deduplication; without it, a repeated run writes everything again.

    Raises:
        InvalidUse: the path is not an archive, or the condition would revive keys that end in it: it selects by
            `value` and keeps messages of a key without the last one, which has no value. Nothing was written.
    """
    rows = spark.read.parquet(path)
    missing = [column for column in (*_ORDER, "__topic", "value") if column not in rows.columns]
    if missing:
        raise InvalidUse(f"{path} is not an archive: it lacks the columns {', '.join(missing)}. `archive` makes one.")
    if where is not None:
        if re.search(r"\bvalue\b", where, re.IGNORECASE):
            _refuse_revived_keys(rows, where)
        rows = rows.where(where)
    count = rows.count()
    lanes = rows.withColumn(_LANE, functions.col("__topic"))
    ordered = lanes.repartition(_LANE).sortWithinPartitions(_LANE, *_ORDER).select(_LANE, *_WRITTEN)
    given = {"guarantee": "exactly-once", "producerName": name} if exactly_once else {}
    if not rows.where("__key IS NOT NULL OR __orderingKey IS NOT NULL").isEmpty():
        given |= _BY_KEY
    ordered.write.format("pulsar").options(**{**given, "laneBy": _LANE, **options}).mode("append").save()
    return Replayed(count)


def _refuse_revived_keys(rows: DataFrame, where: str) -> None:
    key, chosen = ("__topic", "__key"), functions.expr(f"coalesce({where}, false)")
    ends = functions.max_by(functions.col("value").isNull() & ~chosen, functions.struct(*_ORDER))
    keyed = rows.where("__key IS NOT NULL").groupBy(*key).agg(ends.alias("ends"), functions.max(chosen).alias("chosen"))
    if revived := keyed.where("ends AND chosen").count():
        raise InvalidUse(
            f"where={where!r} would revive {revived} keys: it selects messages of them, and leaves out the last one, "
            "which has no value and ends the key. Nothing was written; add `OR value IS NULL` to the condition."
        )


def replay_topic(
    spark: SparkSession,
    source: Mapping[str, str],
    options: Mapping[str, str],
    *,
    checkpoint: str,
    exactly_once: bool = True,
) -> Replayed:
    """Copy the messages of topics to a topic, batched by key as in `replay()`; each run copies what is new.

    Args:
        spark: a session with the data source.
        source: the options of a streaming read; `startingOffsets` is `earliest` by default.
        options: of a write; `topic` is the topic to write to.
        checkpoint: a directory for the progress of this copy; with another one, everything is copied again.
        exactly_once: whether to rely on deduplication; without it, a repeated batch is written again.
    """
    columns = ",".join(_WRITTEN)
    frame = (
        spark.readStream.format("pulsar")
        .options(**{"startingOffsets": "earliest", "splitBy": "partition", "columns": columns, **source})
        .load()
    )
    query = (
        frame.writeStream.format("pulsar")
        .options(**{**({"guarantee": "exactly-once"} if exactly_once else {}), **_BY_KEY, **options})
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
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
    """How many messages were sent, and after each step how many there were, and how many different ones."""

    sent: int
    steps: dict[str, tuple[int, int]]

    @property
    def match(self) -> bool:
        """Whether every step has each message once."""
        return all(step == (self.sent, self.sent) for step in self.steps.values())


def run_pipeline(
    spark: SparkSession, service_url: str, admin_url: str, directory: str, messages: int
) -> PipelineCounts:
    """Run the demonstration on a broker of its own."""
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
    """Send `count` messages of each kind, whose values begin with their numbers; give the next number."""
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


def _count(rows: Any) -> tuple[int, int]:
    values = rows.selectExpr("trim(string(value)) AS number")
    return values.count(), values.distinct().count()
