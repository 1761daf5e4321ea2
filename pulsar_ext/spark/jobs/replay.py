"""`replay`: an archive, or a topic, once more into a topic; effectively once, however often it is repeated.

From an archive, the lanes are the partitions that the messages were archived from, and a message's sequence id is its
place in its lane, in the order of where messages begin. An archive only grows behind what it has, so those numbers stay
the same: a replay that died, or that is run again over an archive that has grown, goes on where the topic stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["Replayed", "replay", "replay_topic"]

_LANE = "__lane"
_ORDER = ("__beginLedgerId", "__beginEntryId", "__batchIndex")
_WRITTEN = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime")


@dataclass(frozen=True)
class Replayed:
    """What one run went through: rows, of which the topic may have held some already."""

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
    """Write an archive to a topic, each message with its key, properties and event time, in the order it had.

    Args:
        spark: a session that knows the source.
        path: an archive that `archive` made.
        options: those of a write; `topic` is where to.
        name: of this replay, by which the topic knows what it holds of it already. Another archive, or another choice
            of rows, needs another name.
        where: which rows, as SQL; all by default.
        exactly_once: whether the topic deduplicates; without, a repeated run writes everything again.
    """
    rows = spark.read.parquet(path)
    missing = [column for column in (*_ORDER, "__topic", "value") if column not in rows.columns]
    if missing:
        raise InvalidUse(f"{path} is no archive: it has no columns {', '.join(missing)}. `archive` makes one.")
    if where is not None:
        rows = rows.where(where)
    count = rows.count()
    lanes = rows.withColumn(_LANE, functions.col("__topic"))
    ordered = lanes.repartition(_LANE).sortWithinPartitions(_LANE, *_ORDER).select(_LANE, *_WRITTEN)
    promise = {"guarantee": "exactly-once", "producerName": name} if exactly_once else {}
    ordered.write.format("pulsar").options(**{**promise, "laneBy": _LANE, **options}).mode("append").save()
    return Replayed(count)


def replay_topic(
    spark: SparkSession,
    source: Mapping[str, str],
    options: Mapping[str, str],
    *,
    checkpoint: str,
    exactly_once: bool = True,
) -> Replayed:
    """Copy what topics hold into a topic; each run copies what is new.

    Args:
        spark: a session that knows the source.
        source: the options of a streaming read; `startingOffsets` is `earliest` unless it is given.
        options: those of a write; `topic` is where to.
        checkpoint: a directory for the progress, which is the copy's memory: with another one all is copied again.
        exactly_once: whether the topic deduplicates; without, a batch that is repeated is written again.
    """
    columns = ",".join(_WRITTEN)
    frame = (
        spark.readStream.format("pulsar")
        .options(**{"startingOffsets": "earliest", "splitBy": "partition", "columns": columns, **source})
        .load()
    )
    query = (
        frame.writeStream.format("pulsar")
        .options(**{**({"guarantee": "exactly-once"} if exactly_once else {}), **options})
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Replayed(sum(report.numInputRows for report in query.recentProgress))
