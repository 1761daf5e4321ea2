"""Writing to Pulsar from Spark: at least once, or exactly once by the broker's deduplication.

A task publishes before Spark's commit coordinator decides about it, so that exactly once cannot rest on commits. It
rests on names and numbers that are the same when a task runs again: the producer's name comes from the query and the
lane (the number of Spark's partition, or the value of a column), and the sequence id from the batch and the row's place
in its lane. The broker stores nothing twice under the same name and number.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pulsar
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pulsar_ext.dedup.opening import Recall
from pulsar_ext.errors import AdminNotFound, InvalidUse, ProducerForgotten, PulsarExtError
from pulsar_ext.ids.topic_name import TopicName

from .connection import admin_of, client_of, producer_keys
from .errors import NotWritten
from .rows import BatchSplitter, PartitionedRowSender, Rows, RowSender, arguments_of, row_sender_of
from .schema import COLUMNS, WRITTEN
from .shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from .options import Settings


_BUSY_SECONDS = 60.0
"""How long to wait for the producer of a former attempt of the task, which may have been killed, to be disconnected."""
_RETRY_SECONDS = 0.5
_DEFAULTS = {
    "batching_enabled": True,
    "batching_max_messages": 1000,
    "batching_max_allowed_size_in_bytes": 128 * 1024,
    "batching_max_publish_delay_ms": 10,
    "max_pending_messages": 10_000,
    "block_if_queue_full": True,
}
_COMPRESSION_TYPES = {
    "None": pulsar.CompressionType.NONE,
    "LZ4": pulsar.CompressionType.LZ4,
    "ZLib": pulsar.CompressionType.ZLib,
    "ZSTD": pulsar.CompressionType.ZSTD,
    "SNAPPY": pulsar.CompressionType.SNAPPY,
}
_SEND_MANY_ARGUMENTS = {
    "content": "contents",
    "partition_key": "partition_keys",
    "ordering_key": "ordering_keys",
    "properties": "properties",
    "event_timestamp": "event_timestamps",
}
_BATCHING_TYPES = {"Default": pulsar.BatchingType.Default, "KeyBased": pulsar.BatchingType.KeyBased}


class TaskProducers:
    """Sends rows, and makes sure in the end that all of them are persisted.

    Args:
        settings: the options.
        prefix: the producers' names begin with it; None lets the broker name them, without deduplication.
        first_id: the sequence id of the first row of each lane.
    """

    def __init__(self, settings: Settings, prefix: str | None, first_id: int) -> None:
        self._settings = settings
        self._prefix = prefix
        self._first_id = first_id
        # The names of one query begin with the prefix, and its batches follow each other.
        self._recall = Recall(f"{prefix or ''}-", first_id, is_new=settings["unknownProducers"] == "new")
        self._producers: dict[tuple[str, str], Any] = {}
        self._senders: dict[tuple[str, str], RowSender | PartitionedRowSender] = {}
        self._sent: dict[str, int] = {}
        self._duplicates = 0

    @property
    def lanes(self) -> tuple[tuple[str, str], ...]:
        """The lanes that were written, each with its topic."""
        return tuple(self._producers)

    def send(self, lane: str, rows: Rows) -> None:
        """Send rows of a lane, after those that were sent before.

        Raises:
            NotWritten: a message could not be persisted.
        """
        sent_before = self._sent.get(lane, 0)
        self._sent[lane] = sent_before + len(rows)
        ids = self._first_id + sent_before + np.arange(len(rows))
        if isinstance(rows.topics, str):
            self._send(lane, rows.topics, rows.columns, ids)
            return
        by_topic: dict[str, list[int]] = {}
        for index, topic in enumerate(rows.topics):
            by_topic.setdefault(topic, []).append(index)
        for topic, indexes in by_topic.items():
            self._send(lane, topic, rows.columns.take(pa.array(indexes)), ids[indexes])

    def finish(self) -> tuple[int, int]:
        """Wait until everything is persisted.

        Returns:
            How many messages were sent, and how many of them the topics had already.

        Raises:
            NotWritten: a message could not be persisted.
        """
        for (lane, topic), producer in self._producers.items():
            sender = self._senders.get((lane, topic))
            with _as_not_written(topic):
                if sender is None:
                    producer.flush()
                else:
                    sender.finish()
                    self._duplicates += sender.duplicates
        return sum(self._sent.values()), self._duplicates

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self._producers.values():
            with contextlib.suppress(pulsar.PulsarException):
                producer.close()

    def _send(self, lane: str, topic: str, columns: pa.RecordBatch, ids: Any) -> None:
        if self._prefix is None:
            ids = None
        with _as_not_written(topic):
            producer = self._producer(lane, topic)
            sender = self._senders.get((lane, topic))
            if sender is not None:
                sender.send(columns, ids)
                return
            given = {_SEND_MANY_ARGUMENTS[name]: column for name, column in arguments_of(columns).items()}
            sent = producer.send_many(**given, sequence_ids=None if ids is None else ids.tolist())
            self._duplicates += sent.duplicates

    def _producer(self, lane: str, topic: str) -> Any:
        producer = self._producers.get((lane, topic))
        if producer is None:
            producer = self._producers[lane, topic] = self._open(lane, topic)
            sender = row_sender_of(producer)
            if sender is not None:
                self._senders[lane, topic] = sender
        return producer

    def _open(self, lane: str, topic: str) -> Any:
        passed = self._settings.passed.get("pulsar.producer.", {})
        options: dict[str, Any] = {**_DEFAULTS, **passed, **producer_keys(self._settings)}
        if options.get("chunking_enabled"):
            options["batching_enabled"] = False
        if "compression_type" in options:
            options["compression_type"] = _COMPRESSION_TYPES[options["compression_type"]]
        if "batching_type" in options:
            options["batching_type"] = _BATCHING_TYPES[options["batching_type"]]
        if self._prefix is not None:
            options |= {"producer_name": f"{self._prefix}-{lane}", "deduplication": self._recall}
        self._check_encoding(topic)
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return client_of(self._settings).create_producer(topic, **options)
            except pulsar.ProducerBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
            except ProducerForgotten as error:
                raise ProducerForgotten(
                    f"{error} If this write has never sent anything to the topic in this lane, option "
                    "unknownProducers=new says so; if it may have, begin with a new checkpoint, or in a batch write "
                    "with another producerName, behind what is there.",
                    producer_name=error.producer_name,
                    topic=error.topic,
                    sequence_id=error.sequence_id,
                ) from None

    def _check_encoding(self, topic: str) -> None:
        """Check that keys are where the topic's schema says, if it says it.

        Raises:
            InvalidUse: they are not.
        """
        encoding = self._settings["keyValueEncoding"]
        if encoding is None:
            return
        try:
            stored = admin_of(self._settings).schema(str(TopicName.parse(topic).parent))
        except AdminNotFound:
            return
        found = stored.properties.get("kv.encoding.type", "INLINE") if stored.type == "KEY_VALUE" else "not there"
        if found != encoding:
            raise InvalidUse(
                f"The keys of {topic} are {found}, by its schema of type {stored.type}, but option keyValueEncoding is "
                f"{encoding}. Nothing was sent."
            )


@contextlib.contextmanager
def _as_not_written(topic: str) -> Iterator[None]:
    """Turn errors of the client into one that names the topic and that can be pickled on its way to the driver."""
    try:
        yield
    except PulsarExtError:
        raise
    except pulsar.PulsarException as error:
        raise NotWritten(
            f"A message could not be written to {topic}: {error!r}. The task fails, so that Spark repeats it or stops; "
            "what it has written stays on the topic, and with guarantee=exactly-once a repeated task does not write it "
            "again.",
            topic=topic,
        ) from None


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
