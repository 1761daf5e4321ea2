"""Writing to Pulsar from Spark: at least once, or exactly once by the broker's deduplication.

A task publishes before Spark's commit coordinator decides about it, so that exactly once cannot rest on commits. It
rests on names and numbers that are the same when a task runs again: the producer's name comes from the query and the
lane (the number of Spark's partition, or the value of a column), and the sequence id from the batch and the row's place
in its lane. The broker stores nothing twice under the same name and number.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pulsar_ext.errors import InvalidUse

from .columns import COLUMNS, WRITTEN
from .rows import BatchSplitter
from .shipping import Shipped
from .task_producers import TaskProducers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from .options import Settings

__all__ = ["PulsarStreamWriter", "PulsarWriter", "Written"]

_ROW_BITS = 32
"""The bits of a sequence id that number the rows of one lane in one batch; the bits above are the batch's number."""

_log = logging.getLogger("pulsar_ext.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote: how many messages, how many of them the topic had already, and lanes with their topics."""

    messages: int
    duplicates: int
    lanes: tuple[tuple[str, str], ...] = ()


class _Writer(metaclass=Shipped):
    """What a batch write and a streaming write share."""

    def __init__(self, settings: Settings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidUse('A topic cannot be overwritten: use .mode("append").')
        self._settings = settings
        self._check(schema)

    def _check(self, schema: StructType) -> None:
        """Check the rows' columns.

        Raises:
            InvalidUse: there is no value, or a column cannot be written or has the wrong type.
        """
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        lane = self._settings["laneBy"]
        if lane is not None and lane not in kinds:
            raise InvalidUse(f"Option laneBy names {lane}, which is not a column. The columns are: {', '.join(kinds)}.")
        for name, allowed in _KINDS.items():
            if name in kinds and kinds[name] not in allowed:
                raise InvalidUse(f"Column {name} is {' or '.join(allowed)}, not {kinds[name]}.")
        unknown = [name for name in kinds if name not in COLUMNS and name != lane]
        if "value" not in kinds or unknown:
            raise InvalidUse(
                f"A write takes the columns {', '.join(WRITTEN)}, of which value is needed, but the columns are "
                f"{', '.join(kinds)}. To make one value of several columns, use for instance "
                'df.selectExpr("to_json(struct(*)) AS value").'
            )
        if self._settings["topic"] is None and "__topic" not in kinds:
            raise InvalidUse("No topic to write to: set option topic, or add a column __topic.")

    def _publish(self, batches: Iterator[Any], query: str | None, batch_id: int) -> Written:
        """Write what one task writes."""
        context = TaskContext.get()
        task = "0" if context is None else str(context.partitionId())
        settings = self._settings
        exactly = settings["guarantee"] == "exactly-once"
        prefix = "-".join(part for part in (settings["producerName"], query) if part) if exactly else None
        splitter = BatchSplitter(settings)
        with TaskProducers(settings, prefix, batch_id << _ROW_BITS) as producers:
            for batch in batches:
                for lane, rows in splitter.by_lane(batch, task):
                    producers.send(lane, rows)
            sent, duplicates = producers.finish()
            return Written(sent, duplicates, producers.lanes if exactly else ())

    def _committed(self, messages: Sequence[WriterCommitMessage | None], prefix: str) -> None:
        """Log how much all tasks wrote.

        Raises:
            InvalidUse: two of them wrote in one lane, so that rows are missing.
        """
        found = [one for one in messages if isinstance(one, Written)]
        times = Counter(lane for one in found for lane in one.lanes)
        shared = sorted({lane for (lane, _), count in times.items() if count > 1})
        if shared:
            raise InvalidUse(
                f"{len(shared)} lanes were in several tasks each, for instance {', '.join(map(repr, shared[:5]))}. A "
                "task numbers the rows of a lane from the first, so that the broker has taken rows of one for "
                "repetitions of another's, and they are missing. Have each lane in one task, as after "
                f".repartition(n, {self._settings['laneBy']!r}), sorted by columns that determine the order, and write "
                "all of it again with another producerName, or with a new checkpoint."
            )
        count, known = sum(one.messages for one in found), sum(one.duplicates for one in found)
        _log.info("%s%d messages written; %d more were on the topic already", prefix, count - known, known)


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
        """Log how much was written.

        Raises:
            InvalidUse: two tasks wrote in one lane, so that rows are missing.
        """
        self._committed(messages, "")


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
            raise InvalidUse(
                "This version of Spark does not give a streaming write its query and batch, which it needs."
            )
        return self._publish(iterator, query, int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Log how much was written.

        Raises:
            InvalidUse: two tasks wrote in one lane, so that rows are missing.
        """
        self._committed(messages, f"batch {batchId}: ")
