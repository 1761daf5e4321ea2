"""Writing to Pulsar from Spark: at least once, or exactly once by the broker's deduplication.

A task publishes before Spark's commit coordinator decides about it, so commits cannot make a write exactly-once.
Instead, a task that runs again uses the same producer names and sequence ids. The producer's name consists of the query
and the group of rows (the number of Spark's partition, or the value of the column `laneBy`). The sequence id consists
of the batch id and the row's index in its group. The broker stores each producer name and sequence id only once.

One send per row would be most of the cost of a write. So rows stay Arrow batches, with a column for each argument of a
send, and the fields of each row in a Pulsar batch are joined from these columns, which yields the bytes that a loop
over rows would write. A `BatchingSender` accepts a whole batch as well as a message. Queue space, order and sequence
ids are then determined once per batch. Rows that cannot be sent this way (the topic has some already, or a row is
larger than a batch) are sent one by one, in the same order. On a partitioned topic, the rows of each partition are
collected into whole batches.
"""

from __future__ import annotations

import contextlib
import logging
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import numpy as np
import pulsar
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pulsar_ext._wire.batch_payload import IS_BASE64, NULL_VALUE, ORDERING_KEY, PARTITION_KEY, Base64Key, option_fields
from pulsar_ext._wire.protobuf import bytes_field_header, number_field
from pulsar_ext.dedup.opening import Recall
from pulsar_ext.errors import AdminNotFound, InvalidUse, ProducerForgotten, PulsarExtError
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import BulkOutcome
from pulsar_ext.produce.partitioned import PartitionedSender
from pulsar_ext.producer import Producer
from pulsar_ext.schema.key_value import with_length

from .connection import admin_of, client_of, producer_keys, when_free
from .errors import NotWritten
from .options import SINK, Settings
from .schema import COLUMNS, WRITTEN
from .shipping import Shipped

BASE64_KEYS: Final = "keys_are_base64"
"""Column of a send that marks the keys as bytes in base64."""


def pair_columns(batch: pa.RecordBatch, encoding: str) -> dict[str, pa.Array | None]:
    """Return the columns of a send that are made of keys and values."""
    if "__key" not in batch.schema.names:
        raise InvalidUse("Option keyValueEncoding needs the column __key, which is missing. Nothing was sent.")
    keys, values = batch.column("__key").cast(pa.binary()), batch.column("value").cast(pa.binary())
    if encoding == "INLINE":
        pairs: Iterable[tuple[bytes | None, bytes | None]] = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        contents = [with_length(key) + with_length(value) for key, value in pairs]
        return {"content": pa.array(contents, pa.binary()), "partition_key": None}
    if keys.null_count:
        raise InvalidUse(
            f"Column __key is null in {keys.null_count} rows, but a separated key must not be null. Nothing was sent."
        )
    texts = _each(keys, lambda key: b64encode(key).decode(), pa.string())
    return {"partition_key": texts, BASE64_KEYS: pa.repeat(pa.scalar(value=True), len(keys))}


def _each(column: pa.Array, convert: Callable[..., object], kind: pa.DataType) -> pa.Array:
    """Return the converted values; each distinct one is converted once, and a null stays null."""
    coded = column.dictionary_encode()
    return pa.array(map(convert, coded.dictionary.to_pylist()), kind).take(coded.indices)


def arguments_of(columns: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return rows as Python values: a list for each argument of a send."""
    found = {name: columns.column(name).to_pylist() for name in columns.schema.names}
    if "properties" in found:
        found["properties"] = [dict(pairs) if pairs else None for pairs in found["properties"]]
    if found.pop(BASE64_KEYS, None):
        found["partition_key"] = list(map(Base64Key, found["partition_key"]))
    return found


def rows_by_group(batch: pa.RecordBatch, settings: Settings, task: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of an Arrow batch by group, in columns named like the arguments of a send, and `topic`.

    The group is the task, unless option `laneBy` names a column. The topic is a column unless it is an option.
    """
    column = settings["laneBy"]
    if not batch.num_rows:
        return
    if column is None:
        yield task, _rows(batch, settings)
        return
    groups = batch.column(column).cast(pa.string())
    if groups.null_count:
        raise InvalidUse(f"Column {column} (laneBy) is null in {groups.null_count} rows; each row needs a value.")
    yield from ((group, _rows(rows, settings)) for group, rows in _divided(batch, groups))


def _divided(rows: pa.RecordBatch, names: pa.Array) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Return each name, in the order in which they appear, with its rows."""
    return ((name, rows.filter(compute.equal(names, name))) for name in names.unique().to_pylist())


def _rows(batch: pa.RecordBatch, settings: Settings) -> pa.RecordBatch:
    given = {"content": batch.column("value").cast(pa.binary())}
    if settings["topic"] is None:
        given["topic"] = _topics(batch)
    if settings["keyValueEncoding"] is None:
        given["partition_key"] = _texts(batch, "__key")
    else:
        given |= pair_columns(batch, settings["keyValueEncoding"])
    given |= {
        "ordering_key": _texts(batch, "__orderingKey"),
        "properties": _properties(batch),
        "event_timestamp": _times(batch),
    }
    return pa.RecordBatch.from_pydict({name: column for name, column in given.items() if column is not None})


def _topics(batch: pa.RecordBatch) -> pa.Array:
    topics = batch.column("__topic")
    if topics.null_count:
        raise InvalidUse(f"Column __topic is null in {topics.null_count} rows, and option topic is not set.")
    # Full names, so that different spellings of a topic are one topic.
    return _each(topics, lambda name: str(TopicName.parse(name)), pa.string())


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column; None if the batch lacks it or it has only nulls."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return None if column.null_count == len(column) else column


def _texts(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    column = _column(batch, name)
    if column is None:
        return None
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidUse(
            f"Column {name} has bytes that are not UTF-8 text, which the client cannot send: {error}"
        ) from None


def _properties(batch: pa.RecordBatch) -> pa.Array | None:
    column = _column(batch, "__messageProperties")
    if column is None or not len(column.keys):
        return None
    if column.items.null_count:
        raise InvalidUse("A property's value is null: remove that property.")
    return column


def _times(batch: pa.RecordBatch) -> pa.Array | None:
    column = _column(batch, "__eventTime")
    if column is None:
        return None
    # Pulsar stores milliseconds.
    whole = compute.floor_temporal(column, unit="millisecond")
    millis = whole.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    early = compute.sum(compute.less(millis, 0)).as_py()
    if early:
        raise InvalidUse(
            f"Column __eventTime is before 1970 in {early} rows, which Pulsar does not support. Make it null there."
        )
    return millis


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows that are encoded for a batch: payloads, all other fields, and of these the keys alone; None without any."""

    contents: pa.Array
    fields: pa.Array | None
    keys: pa.Array | None

    @classmethod
    def of(cls, columns: pa.RecordBatch) -> Self:
        """Encode rows, in columns named like the arguments of a send."""
        contents, keys = columns.column("content"), _joined(_written(columns, _KEYS))
        fields = _written(columns, _OTHERS) if keys is None else [keys, *_written(columns, _OTHERS)]
        if contents.null_count:
            fields.insert(0, compute.if_else(contents.is_null(), NULL_VALUE, b""))
            contents = contents.fill_null(b"")
        return cls(contents, _joined(fields), keys)

    def sizes(self) -> NDArray[np.int64]:
        """Return the size in bytes of each row's payload and fields."""
        sizes = _lengths_of(self.contents)
        return sizes if self.fields is None else sizes + _lengths_of(self.fields)

    def batch_of(self, rows: slice, outcome: BulkOutcome) -> Callable[[Sequence[int]], Batch]:
        """Return a function that makes a batch of some of the rows with their sequence ids."""
        contents, *more = (
            () if column is None else column[rows].to_numpy(zero_copy_only=False).tolist()
            for column in (self.contents, self.fields, self.keys)
        )
        return lambda ids: Batch.of(contents, outcome, ids, *more)


def divide(sizes: NDArray[np.int64], most: int, most_bytes: int) -> list[slice]:
    """Divide rows of these sizes into batches; a row that exceeds `most_bytes` is a batch by itself."""
    ends = np.cumsum(sizes, dtype=np.int64)
    found, begin, before = [], 0, 0
    while begin < len(sizes):
        fitting = int(np.searchsorted(ends, before + most_bytes, side="right"))
        end = max(begin + 1, min(begin + most, fitting))
        found.append(slice(begin, end))
        begin, before = end, int(ends[end - 1])
    return found


def _lengths_of(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(compute.binary_length(column).fill_null(0))


def _join(*columns: pa.Array) -> pa.Array:
    return compute.binary_join_element_wise(*columns, b"")


def _joined(columns: list[pa.Array]) -> pa.Array | None:
    return _join(*columns) if len(columns) > 1 else next(iter(columns), None)


def _written(columns: pa.RecordBatch, writers: Mapping[str, Callable[[pa.Array], pa.Array]]) -> list[pa.Array]:
    return [write(columns.column(name)) for name, write in writers.items() if name in columns.schema.names]


def _batch_texts(number: int, column: pa.Array) -> pa.Array:
    octets = column.cast(pa.binary())
    heads = _each(compute.binary_length(octets), lambda length: bytes_field_header(number, length), pa.binary())
    return _join(heads, octets).fill_null(b"")


_KEYS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "partition_key": partial(_batch_texts, PARTITION_KEY),
    BASE64_KEYS: lambda flags: pa.repeat(pa.scalar(number_field(IS_BASE64, 1), pa.binary()), len(flags)),
    "ordering_key": partial(_batch_texts, ORDERING_KEY),
}
_OTHERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "properties": lambda properties: pa.array(
        [option_fields({"properties": dict(pairs or ())}) for pairs in properties.to_pylist()], pa.binary()
    ),
    "event_timestamp": lambda times: _each(
        times, lambda time: option_fields({"event_timestamp": time}), pa.binary()
    ).fill_null(b""),
}
"""Writers of the columns, in the order of `option_fields`."""


def _ids_of(columns: pa.RecordBatch) -> NDArray[np.int64] | None:
    return np.asarray(columns.column("sequence_id")) if "sequence_id" in columns.schema.names else None


class MessageSender:
    """Sender of rows by a producer without batches, or by key; it counts the rows that the topic had already."""

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer
        self.duplicates = 0

    def send(self, columns: pa.RecordBatch) -> None:
        """Send rows."""
        given = arguments_of(columns)
        sent = self._producer.send_many(
            given["content"],
            partition_keys=given.get("partition_key"),
            ordering_keys=given.get("ordering_key"),
            properties=given.get("properties"),
            event_timestamps=given.get("event_timestamp"),
            sequence_ids=given.get("sequence_id"),
        )
        self.duplicates += sent.duplicates

    def finish(self) -> None:
        """Wait until all rows are persisted."""
        self._producer.flush()


class RowSender:
    """Sender of the rows of one group to one topic or partition, by a producer that only this object uses."""

    def __init__(self, sender: BatchingSender) -> None:
        self._sender = sender
        self._outcome = BulkOutcome()
        self._sent = 0
        self._most_bytes = sender.config.bounds.size
        self._kept: list[pa.RecordBatch] = []
        self._kept_bytes = 0

    @property
    def duplicates(self) -> int:
        """Number of rows with a known outcome that the topic had already."""
        return self._outcome.duplicates

    def send(self, columns: pa.RecordBatch, *, whole: bool = False) -> int:
        """Send rows, with ascending ids or none; with `whole`, only those in whole batches. Return the number sent."""
        sender, outcome = self._sender, self._outcome
        for name in ("partition_key", "ordering_key"):
            if name in columns.schema.names:
                sender.check_mixed_keys({name: compute.first(columns.column(name)).as_py()})
        rows, ids = EncodedRows.of(columns), _ids_of(columns)
        sizes = rows.sizes()
        for part in divide(sizes, sender.max_whole_batch, self._most_bytes):
            count = part.stop - part.start
            if whole and part.stop == len(columns) and count < sender.max_whole_batch:
                return int(part.start)
            outcome.raise_failure()
            self._sent += count
            numbers = None if ids is None else ids[part].tolist()
            make = rows.batch_of(part, outcome)
            if sizes[part.start] > self._most_bytes or not sender.push_whole_batch(count, numbers, make):
                arguments = arguments_of(columns[part])
                for row in zip(*arguments.values(), strict=True):
                    options = dict(zip(arguments, row, strict=True))
                    sender.post(options.pop("content"), outcome.one, options)
        return len(columns)

    def collect(self, columns: pa.RecordBatch) -> None:
        """Keep rows, and send all whole batches of the kept rows."""
        if self._kept and columns.schema != self._kept[0].schema:
            self.send_kept()
        self._keep(columns)
        if sum(map(len, self._kept)) >= self._sender.max_whole_batch or self._kept_bytes >= self._most_bytes:
            self.send_kept(whole=True)

    def send_kept(self, *, whole: bool = False) -> None:
        """Send the kept rows; with `whole`, keep the rows after the last whole batch."""
        if not self._kept:
            return
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        (rows,) = pa.Table.from_batches(kept).combine_chunks().to_batches()
        sent = self.send(rows, whole=whole)
        if sent < len(rows):
            self._keep(rows[sent:])

    def _keep(self, columns: pa.RecordBatch) -> None:
        self._kept.append(columns)
        self._kept_bytes += int(_lengths_of(columns.column("content")).sum())

    def finish(self) -> None:
        """Wait until all rows are persisted."""
        self._sender.push()
        self._outcome.sent(self._sent, wait=True)


class PartitionedRowSender:
    """Sender of the rows of one group to a partitioned topic; it chooses partitions as single sends do."""

    def __init__(self, sender: PartitionedSender) -> None:
        self._sender = sender
        self._parts = [RowSender(one) for one in sender.parts]

    @property
    def duplicates(self) -> int:
        """Number of rows with a known outcome that the topic had already."""
        return sum(part.duplicates for part in self._parts)

    def send(self, columns: pa.RecordBatch) -> None:
        """Send rows, or keep them until they fill a batch."""
        chosen = self._choose(columns)
        for number, part in enumerate(self._parts):
            indexes = np.flatnonzero(chosen == number)
            if len(indexes):
                part.collect(columns.take(pa.array(indexes)))

    def _choose(self, columns: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the partition of each row, routing each distinct key once."""
        count, partitions, ids = columns.num_rows, len(self._parts), _ids_of(columns)
        chosen = np.zeros(count, np.int64)
        keyless = np.arange(count)
        if "partition_key" in columns.schema.names:
            keys = columns.column("partition_key")
            self._sender.parts[0].check_mixed_keys({"partition_key": compute.first(keys).as_py()})
            keyless = np.flatnonzero(np.asarray(keys.is_null()))
            coded = keys.dictionary_encode()
            names = coded.dictionary.to_pylist()
            by_key = np.array(self._sender.route(names, [0] * len(names), None, partitions), np.int64)
            chosen = np.append(by_key, -1)[np.asarray(coded.indices.fill_null(len(names)))]
        if len(keyless):
            sizes = _lengths_of(columns.column("content"))[keyless].tolist()
            numbers = None if ids is None else ids[keyless].tolist()
            chosen[keyless] = self._sender.route([None] * len(keyless), sizes, numbers, partitions)
        return chosen

    def finish(self) -> None:
        """Send the pending rows, and wait until all rows are persisted."""
        for part in self._parts:
            part.send_kept()
        for part in self._parts:
            part.finish()


_Sender = RowSender | PartitionedRowSender | MessageSender


def _sender_of(producer: Producer[bytes]) -> _Sender:
    match producer.sender:
        case PartitionedSender() as sender if all(map(_has_whole_batches, sender.parts)):
            return PartitionedRowSender(sender)
        case BatchingSender() as sender if _has_whole_batches(sender):
            return RowSender(sender)
    return MessageSender(producer)


def _has_whole_batches(sender: BatchingSender) -> bool:
    return sender.config.batched and not sender.config.by_key


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
        self._senders: dict[tuple[str, str], _Sender] = {}
        self._sent: dict[str, int] = {}

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Groups of rows that were written, each with its topic."""
        return tuple(self._senders)

    def send(self, group: str, rows: pa.RecordBatch) -> None:
        """Send rows of a group, after those sent before."""
        sent_before = self._sent.get(group, 0)
        self._sent[group] = sent_before + len(rows)
        if self._prefix is not None:
            ids = self._first_id + sent_before + np.arange(len(rows))
            rows = rows.append_column("sequence_id", pa.array(ids))
        if (topic := self._settings["topic"]) is not None:
            self._send(group, topic, rows)
            return
        for topic, of_topic in _divided(rows.drop_columns(["topic"]), rows.column("topic")):
            self._send(group, topic, of_topic)

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

    def _send(self, group: str, topic: str, rows: pa.RecordBatch) -> None:
        with _as_not_written(topic):
            sender = self._senders.get((group, topic))
            if sender is None:
                self._producers.append(producer := self._open(group, topic))
                sender = self._senders[group, topic] = _sender_of(producer)
            sender.send(rows)

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

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows, in a streaming write those of one batch, and return when all are persisted."""
        context, settings = TaskContext.get(), self._settings
        task = "0" if context is None else str(context.partitionId())
        query, batch_id = None, 0
        if settings.where == SINK:
            query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
            batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
            if query is None or batch is None:
                raise InvalidUse(
                    "This version of Spark does not pass query id and batch id to a streaming write, which needs them."
                )
            batch_id = int(batch)
        exactly = settings["guarantee"] == "exactly-once"
        prefix = "-".join(part for part in (settings["producerName"], query) if part) if exactly else None
        with TaskProducers(settings, prefix, batch_id << _ROW_BITS) as producers:
            for rows_of_spark in iterator:
                for group, rows in rows_by_group(rows_of_spark, settings, task):
                    producers.send(group, rows)
            sent, duplicates = producers.finish()
            return Written(sent, duplicates, producers.groups if exactly else ())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803  # Spark's name
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
        prefix = "" if batchId is None else f"batch {batchId}: "
        _log.info("%s%d messages written; %d more were on the topic already", prefix, count - known, known)


class PulsarWriter(_Writer, DataSourceArrowWriter):
    """Batch write."""


class PulsarStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Streaming write."""
