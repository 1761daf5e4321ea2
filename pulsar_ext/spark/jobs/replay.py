"""`replay`: writes an archive, or another topic, to a topic; effectively once, however often it is repeated.

From an archive, the lanes are the partitions that the messages came from, and a message's sequence id is its place in
its lane, in the order in which messages begin. An archive grows at the end only, so that these numbers stay the same: a
replay that died, or that is run again after the archive has grown, continues where the topic ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Replayed", "replay", "replay_topic"]

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
