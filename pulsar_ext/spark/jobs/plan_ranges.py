"""`plan_ranges`: divide the key hash slots of topics into ranges of similar weight, one per consumer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.plan import draw_histogram, plan_key_hash_ranges, weights_of


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


def line_of(report: StreamingQueryProgress) -> str:
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


class ProgressLines(StreamingQueryListener):
    """Listener that reports each batch with rows as a line: `spark.streams.addListener(ProgressLines(print))`."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name, here and below
        """Ignore the event: the first batch is reported."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report one batch."""
        if event.progress.numInputRows:
            self._report(line_of(event.progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Ignore the event: Spark notifies the query's caller."""
