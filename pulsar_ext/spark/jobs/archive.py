"""`archive`: the messages of topics as Parquet, with their ids; each run adds what is new, exactly once.

The checkpoint has how far the topics have been read, and the log of the files (`_spark_metadata`) which of them belong
to the archive, so that a run that dies in the middle neither repeats nor omits a message. Read the archive with Spark,
which follows that log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["ARCHIVED", "Archived", "archive"]

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
