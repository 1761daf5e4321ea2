"""`plan_ranges`: key hash ranges of about equal weight for N consumers, by the messages of topics."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # a dataclass is read at run time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions

from pulsar_ext.key_shared.plan import draw_histogram, plan_key_hash_ranges, weights_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

__all__ = ["RangePlan", "plan_ranges"]


@dataclass(frozen=True)
class RangePlan:
    """The ranges, in order, and the weight of each, messages or bytes; and the weight of each slot."""

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
        parts: how many ranges.
        by: what to weigh a slot by: its messages, or the bytes of their payloads.
        png: where to draw the slots with the ranges; by default, nothing is drawn.

    Raises:
        InvalidUse: the number of ranges is not possible, or matplotlib is missing.
    """
    plan_key_hash_ranges({}, parts)  # refuses an impossible number before anything is read
    columns = "__keySlot" if by == "messages" else "__keySlot,value"
    frame = spark.read.format("pulsar").options(**{"columns": columns, **options}).load()
    weight = functions.count("*") if by == "messages" else functions.sum(functions.length("value"))
    rows = frame.groupBy("__keySlot").agg(weight.alias("weight"))
    histogram = {row["__keySlot"]: float(row.weight or 0) for row in rows.collect()}
    ranges = plan_key_hash_ranges(histogram, parts)
    if png is not None:
        draw_histogram(histogram, ranges, options.get("topic", "topics"), by, png)
    return RangePlan(tuple(ranges), tuple(weights_of(histogram, ranges)), histogram)
