"""Writing to Pulsar from Spark: at least once, or exactly once by the broker's deduplication.

A task publishes before Spark's commit coordinator is asked, so exactly once cannot rest on that. It rests on names and
numbers that are the same when a task runs again: a producer's name from the query and the lane (the number of Spark's
partition, or the value of a column), and a message's sequence id from the batch and the row's place in its lane. What
the broker holds already under that name and number, it does not store again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pulsar_ext.errors import InvalidUse

from .columns import COLUMNS, WRITTEN
from .rows import RowColumns
from .task_producers import Lanes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from .options import Settings

__all__ = ["PulsarStreamWriter", "PulsarWriter", "Written"]

_BATCH_BITS = 32
"""Rows of one lane in one batch: more than that would run into the ids of the next batch."""

_log = logging.getLogger("pulsar_ext.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote: messages in all, and how many of them the topic held already."""

    messages: int
    duplicates: int


class _Writer:
    """What a batch write and a streaming one share."""

    def __init__(self, settings: Settings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidUse('A topic cannot be overwritten: use .mode("append").')
        self._settings = settings
        self._check(schema)

    def _check(self, schema: StructType) -> None:
        """Check the rows' columns.

        Raises:
            InvalidUse: there is no value, a column is none of those that can be written, or has another type.
        """
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        lane = self._settings["laneBy"]
        if lane is not None and lane not in kinds:
            raise InvalidUse(f"Option laneBy names {lane}, which is no column: {', '.join(kinds)}.")
        for name, allowed in _KINDS.items():
            if name in kinds and kinds[name] not in allowed:
                raise InvalidUse(f"Column {name} is {' or '.join(allowed)}, not {kinds[name]}.")
        unknown = [name for name in kinds if name not in COLUMNS and name != lane]
        if "value" not in kinds or unknown:
            raise InvalidUse(
                f"A write takes the columns {', '.join(WRITTEN)}, of which value is needed; here are "
                f"{', '.join(kinds)}. Make one value of several columns, for instance "
                'df.selectExpr("to_json(struct(*)) AS value").'
            )
        if self._settings["topic"] is None and "__topic" not in kinds:
            raise InvalidUse("Say where to write: option topic, or a column __topic.")

    def _publish(self, batches: Iterator[Any], query: str | None, batch_id: int) -> Written:
        """Write what one task writes."""
        context = TaskContext.get()
        task = "0" if context is None else str(context.partitionId())
        settings = self._settings
        exactly = settings["guarantee"] == "exactly-once"
        prefix = "-".join(part for part in (settings["producerName"], query) if part) if exactly else None
        columns = RowColumns(settings)
        with Lanes(settings, prefix, batch_id << _BATCH_BITS) as lanes:
            for batch in batches:
                for lane, rows in columns.by_lane(batch, task):
                    lanes.send(lane, rows)
            return Written(*lanes.finish())


_KINDS = {
    "value": ("binary", "string"),
    "__key": ("binary", "string"),
    "__orderingKey": ("binary", "string"),
    "__messageProperties": ("map<string,string>",),
    "__eventTime": ("timestamp",),
    "__topic": ("string",),
}


class PulsarWriter(_Writer, DataSourceArrowWriter):
    """A batch write."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one task's rows, and return when all are persisted.

        Raises:
            NotWritten: a message could not be persisted; the task fails with it.
        """
        return self._publish(iterator, None, 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what was written."""
        _tell(messages, "")


class PulsarStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming write."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one task's rows of one batch, and return when all are persisted.

        Raises:
            NotWritten: a message could not be persisted; the task fails with it.
        """
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise InvalidUse("This Spark does not tell a streaming write its query and batch, which the names need.")
        return self._publish(iterator, query, int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # as Spark names it
        """Say what was written."""
        _tell(messages, f"batch {batchId}: ")


def _tell(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    found = [one for one in messages if isinstance(one, Written)]
    count, known = sum(one.messages for one in found), sum(one.duplicates for one in found)
    _log.info("%s%d messages written, %d of them held by the topic already", what, count - known, known)
