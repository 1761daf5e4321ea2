"""Writing to Pulsar from Spark: at least once, or exactly once by the broker's deduplication.

A task publishes before Spark's commit coordinator decides about it, so commits cannot make a write exactly-once.
Instead, a task that runs again uses the same producer names and sequence ids. The producer's name consists of the query
and the group of rows (the number of Spark's partition, or the value of the column `laneBy`). The sequence id consists
of the batch id and the row's index in its group. The broker stores each producer name and sequence id only once.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pulsar
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pulsar_ext.dedup.opening import Recall
from pulsar_ext.errors import AdminNotFound, InvalidUse, ProducerForgotten, PulsarExtError
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.producer import Producer

from .connection import admin_of, client_of, producer_keys, when_free
from .errors import NotWritten
from .options import Settings
from .rows import MessageSender, PartitionedRowSender, Rows, RowSender, row_sender_of, rows_by_group
from .schema import COLUMNS, WRITTEN
from .shipping import Shipped

_DEFAULTS = {
    "batching_enabled": True,
    "batching_max_messages": 1000,
    "batching_max_allowed_size_in_bytes": 128 * 1024,
    "batching_max_publish_delay_ms": 10,
    "max_pending_messages": 10_000,
    "block_if_queue_full": True,
}


class TaskProducers:
    """Producers of a task; with a prefix of None, the broker names them, without deduplication."""

    def __init__(self, settings: Settings, prefix: str | None, first_id: int) -> None:
        self._settings = settings
        self._prefix = prefix
        self._first_id = first_id
        # The names of one query begin with the prefix, and its batches are in sequence.
        self._recall = Recall(f"{prefix or ''}-", first_id, is_new=settings["unknownProducers"] == "new")
        self._producers: list[Producer[bytes]] = []
        self._senders: dict[tuple[str, str], RowSender | PartitionedRowSender | MessageSender] = {}
        self._sent: dict[str, int] = {}

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Groups of rows that were written, each with its topic."""
        return tuple(self._senders)

    def send(self, group: str, rows: Rows) -> None:
        """Send rows of a group, after those sent before."""
        sent_before = self._sent.get(group, 0)
        self._sent[group] = sent_before + len(rows)
        ids = self._first_id + sent_before + np.arange(len(rows))
        if isinstance(rows.topics, str):
            self._send(group, rows.topics, rows.columns, ids)
            return
        by_topic: dict[str, list[int]] = {}
        for index, topic in enumerate(rows.topics):
            by_topic.setdefault(topic, []).append(index)
        for topic, indexes in by_topic.items():
            self._send(group, topic, rows.columns.take(pa.array(indexes)), ids[indexes])

    def finish(self) -> tuple[int, int]:
        """Wait until all messages are persisted; return their number, and the number that the topics had already."""
        for (_, topic), sender in self._senders.items():
            with _as_not_written(topic):
                sender.finish()
        return sum(self._sent.values()), sum(sender.duplicates for sender in self._senders.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self._producers:
            with contextlib.suppress(pulsar.PulsarException):
                producer.close()

    def _send(self, group: str, topic: str, columns: pa.RecordBatch, ids: NDArray[np.int64]) -> None:
        with _as_not_written(topic):
            sender = self._senders.get((group, topic))
            if sender is None:
                self._producers.append(producer := self._open(group, topic))
                sender = self._senders[group, topic] = row_sender_of(producer)
            sender.send(columns, None if self._prefix is None else ids)

    def _open(self, group: str, topic: str) -> Producer[bytes]:
        passed = self._settings.passed.get("pulsar.producer.", {})
        options: dict[str, Any] = {**_DEFAULTS, **passed, **producer_keys(self._settings)}
        if options.get("chunking_enabled"):
            options["batching_enabled"] = False
        if "compression_type" in options:
            name = options["compression_type"].replace("None", "NONE")
            options["compression_type"] = getattr(pulsar.CompressionType, name)
        if "batching_type" in options:
            options["batching_type"] = getattr(pulsar.BatchingType, options["batching_type"])
        if self._prefix is not None:
            options |= {"producer_name": f"{self._prefix}-{group}", "deduplication": self._recall}
        self._check_encoding(topic)
        create = partial(client_of(self._settings).create_producer, topic, **options)
        try:
            return when_free(pulsar.ProducerBusy, create)
        except ProducerForgotten as error:
            raise ProducerForgotten(
                f"{error} If this write has never sent a message to the topic in this group of rows, set option "
                "unknownProducers=new; if it may have, start with a new checkpoint, or in a batch write with another "
                "producerName.",
                producer_name=error.producer_name,
                topic=error.topic,
                sequence_id=error.sequence_id,
            ) from None

    def _check_encoding(self, topic: str) -> None:
        """Check that option `keyValueEncoding` matches the topic's schema, if it has one."""
        encoding = self._settings["keyValueEncoding"]
        if encoding is None:
            return
        try:
            stored = admin_of(self._settings).schema(str(TopicName.parse(topic).parent))
        except AdminNotFound:
            return
        found = stored.properties.get("kv.encoding.type", "INLINE") if stored.type == "KEY_VALUE" else "missing"
        if found != encoding:
            raise InvalidUse(
                f"The keys of {topic} are {found}, by its schema of type {stored.type}, but option keyValueEncoding is "
                f"{encoding}. Nothing was sent."
            )


@contextlib.contextmanager
def _as_not_written(topic: str) -> Iterator[None]:
    """Turn errors of the client into an error that names the topic, and that can be pickled for the driver."""
    try:
        yield
    except PulsarExtError:
        raise
    except pulsar.PulsarException as error:
        raise NotWritten(
            f"A message could not be written to {topic}: {error!r}. The task fails, and Spark repeats it or stops. The "
            "messages already written stay on the topic; with guarantee=exactly-once a repeated task does not write "
            "them again.",
            topic=topic,
        ) from None


_ROW_BITS = 32
"""Bits of a sequence id for the row's index in its group and batch; the bits above are the batch id."""

_log = logging.getLogger("pulsar_ext.spark")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """Result of one task: the numbers of messages sent and of duplicates among them, and groups with their topics."""

    messages: int
    duplicates: int
    groups: tuple[tuple[str, str], ...] = ()


class _Writer(metaclass=Shipped):
    def __init__(self, settings: Settings, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidUse('A topic cannot be overwritten: use .mode("append").')
        self._settings = settings
        self._check(schema)

    def _check(self, schema: StructType) -> None:
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        group = self._settings["laneBy"]
        if group is not None and group not in kinds:
            raise InvalidUse(
                f"Option laneBy names {group}, which is not a column. The columns are: {', '.join(kinds)}."
            )
        for name, allowed in WRITTEN.items():
            if name in kinds and kinds[name] not in allowed:
                raise InvalidUse(f"Column {name} is {' or '.join(allowed)}, not {kinds[name]}.")
        unknown = [name for name in kinds if name not in COLUMNS and name != group]
        if "value" not in kinds or unknown:
            raise InvalidUse(
                f"A write accepts the columns {', '.join(WRITTEN)}, and needs value, but the columns are "
                f"{', '.join(kinds)}. To make one value of several columns, use for instance "
                'df.selectExpr("to_json(struct(*)) AS value").'
            )
        if self._settings["topic"] is None and "__topic" not in kinds:
            raise InvalidUse("No topic to write to: set option topic, or add a column __topic.")

    def _publish(self, batches: Iterator[pa.RecordBatch], query: str | None, batch_id: int) -> Written:
        context = TaskContext.get()
        task = "0" if context is None else str(context.partitionId())
        settings = self._settings
        exactly = settings["guarantee"] == "exactly-once"
        prefix = "-".join(part for part in (settings["producerName"], query) if part) if exactly else None
        with TaskProducers(settings, prefix, batch_id << _ROW_BITS) as producers:
            for batch in batches:
                for group, rows in rows_by_group(batch, settings, task):
                    producers.send(group, rows)
            sent, duplicates = producers.finish()
            return Written(sent, duplicates, producers.groups if exactly else ())

    def _committed(self, messages: Sequence[WriterCommitMessage | None], prefix: str) -> None:
        """Log the number of messages written; raise if two tasks wrote rows of one group, so that rows are missing."""
        found = [one for one in messages if isinstance(one, Written)]
        times = Counter(group for one in found for group in one.groups)
        shared = sorted({group for (group, _), count in times.items() if count > 1})
        if shared:
            raise InvalidUse(
                f"{len(shared)} groups of rows were divided between tasks, for instance "
                f"{', '.join(map(repr, shared[:5]))}. Their sequence ids collide, so the broker dropped rows as "
                "duplicates. Put each group into one task with "
                f".repartition(n, {self._settings['laneBy']!r}), sort it, and write all rows again with another "
                "producerName or checkpoint."
            )
        count, known = sum(one.messages for one in found), sum(one.duplicates for one in found)
        _log.info("%s%d messages written; %d more were on the topic already", prefix, count - known, known)


class PulsarWriter(_Writer, DataSourceArrowWriter):
    """Batch write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows, and return when all are persisted."""
        return self._publish(iterator, None, 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the number of messages written."""
        self._committed(messages, "")


class PulsarStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Streaming write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows of one batch, and return when all are persisted."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise InvalidUse(
                "This version of Spark does not pass query id and batch id to a streaming write, which needs them."
            )
        return self._publish(iterator, query, int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Log the number of messages written."""
        self._committed(messages, f"batch {batchId}: ")
