"""`archive`: what topics hold, as Parquet with the ids of the messages; each run adds what is new, exactly once.

The checkpoint says how far the topics are read, and the files' own log (`_spark_metadata`) which files count, so a run
that dies in the middle leaves nothing twice and nothing out: read the archive with Spark, which heeds that log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["ARCHIVED", "Archived", "archive"]

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
    """What one run added: rows, in so many batches."""

    rows: int
    batches: int


def archive(spark: SparkSession, options: Mapping[str, str], path: str, *, checkpoint: str | None = None) -> Archived:
    """Add to an archive what topics hold beyond it, and end.

    Args:
        spark: a session that knows the source.
        options: those of a streaming read; `startingOffsets` is `earliest` unless it is given.
        path: a directory for Parquet files.
        checkpoint: a directory for the progress; by default the path with `-checkpoint`. It belongs to the archive:
            with another one, everything would be read again.
    """
    frame = (
        spark.readStream.format("pulsar")
        .options(**{"startingOffsets": "earliest", "columns": ",".join(ARCHIVED), **options})
        .load()
    )
    query = (
        frame.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", checkpoint or f"{path.rstrip('/')}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    counts = [report.numInputRows for report in query.recentProgress if report.numInputRows]
    return Archived(sum(counts), len(counts))
