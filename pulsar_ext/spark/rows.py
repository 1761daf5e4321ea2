"""Rows to be written: Arrow batches, grouped, with a column for each argument of a send; sent as whole batches.

One send per row would be most of the cost of a write. So the fields of each row in a Pulsar batch are joined from
Arrow's columns, which yields the bytes that a loop over rows would write.

A `BatchingSender` accepts a whole batch as well as a message. Queue space, order and sequence ids are then determined
once per batch. Rows that cannot be sent this way (the topic has some already, or a row is larger than a batch) are sent
one by one, in the same order. On a partitioned topic, the rows of each partition are collected into whole batches.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from pulsar_ext._wire.batch_payload import IS_BASE64, NULL_VALUE, ORDERING_KEY, PARTITION_KEY, Base64Key, option_fields
from pulsar_ext._wire.protobuf import bytes_field_header, number_field
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import BulkOutcome
from pulsar_ext.produce.partitioned import PartitionedSender
from pulsar_ext.producer import Producer
from pulsar_ext.schema.key_value import with_length

from .options import Settings

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
    coded = keys.dictionary_encode()
    texts = pa.array([b64encode(one).decode() for one in coded.dictionary.to_pylist()], pa.string())
    return {"partition_key": texts.take(coded.indices), BASE64_KEYS: pa.repeat(pa.scalar(value=True), len(keys))}


@dataclass(frozen=True)
class Rows:
    """Rows of one group, in order, in columns named like the arguments of a send; `content` is always present."""

    topics: list[str] | str
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.columns.num_rows)


def arguments_of(columns: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return rows as Python values: a list for each argument of a send."""
    found = {name: columns.column(name).to_pylist() for name in columns.schema.names}
    if "properties" in found:
        found["properties"] = [dict(pairs) if pairs else None for pairs in found["properties"]]
    if found.pop(BASE64_KEYS, None):
        found["partition_key"] = list(map(Base64Key, found["partition_key"]))
    return found


def rows_by_group(batch: pa.RecordBatch, settings: Settings, task: str) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of an Arrow batch by group; it is the task, unless option `laneBy` names a column."""
    column = settings["laneBy"]
    if not batch.num_rows:
        return
    if column is None:
        yield task, _rows(batch, settings)
        return
    groups = batch.column(column).cast(pa.string())
    if groups.null_count:
        raise InvalidUse(f"Column {column} (laneBy) is null in {groups.null_count} rows; each row needs a value.")
    for group in groups.unique().to_pylist():
        yield group, _rows(batch.filter(compute.equal(groups, group)), settings)


def _rows(batch: pa.RecordBatch, settings: Settings) -> Rows:
    given = {"content": batch.column("value").cast(pa.binary())}
    if settings["keyValueEncoding"] is None:
        given["partition_key"] = _texts(batch, "__key")
    else:
        given |= pair_columns(batch, settings["keyValueEncoding"])
    given |= {
        "ordering_key": _texts(batch, "__orderingKey"),
        "properties": _properties(batch),
        "event_timestamp": _times(batch),
    }
    columns = {name: column for name, column in given.items() if column is not None}
    return Rows(settings["topic"] or _topics(batch), pa.RecordBatch.from_pydict(columns))


def _topics(batch: pa.RecordBatch) -> list[str] | str:
    topics = batch.column("__topic")
    if topics.null_count:
        raise InvalidUse(f"Column __topic is null in {topics.null_count} rows, and option topic is not set.")
    # Full names, so that different spellings of a topic are one topic.
    names = {name: str(TopicName.parse(name)) for name in topics.unique().to_pylist()}
    if len(unique := set(names.values())) == 1:
        return unique.pop()
    return [names[name] for name in topics.to_pylist()]


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
    """Return the number of bytes of each value; a null has 0."""
    return np.asarray(compute.binary_length(column).fill_null(0))


def _each(numbers: pa.Array, write: Callable[[int], bytes]) -> pa.Array:
    """Encode each number, each distinct one once."""
    coded = numbers.dictionary_encode()
    return pa.array([write(number) for number in coded.dictionary.to_pylist()], pa.binary()).take(coded.indices)


def _join(*columns: pa.Array) -> pa.Array:
    return compute.binary_join_element_wise(*columns, b"")


def _joined(columns: list[pa.Array]) -> pa.Array | None:
    return _join(*columns) if len(columns) > 1 else next(iter(columns), None)


def _written(columns: pa.RecordBatch, writers: Mapping[str, Callable[[pa.Array], pa.Array]]) -> list[pa.Array]:
    return [write(columns.column(name)) for name, write in writers.items() if name in columns.schema.names]


def _batch_texts(number: int, column: pa.Array) -> pa.Array:
    octets = column.cast(pa.binary())
    heads = _each(compute.binary_length(octets), lambda length: bytes_field_header(number, length))
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
    "event_timestamp": lambda times: _each(times, lambda time: option_fields({"event_timestamp": time})).fill_null(b""),
}
"""Writers of the columns, in the order of `option_fields`."""


def row_sender_of(producer: Producer[bytes]) -> RowSender | PartitionedRowSender | MessageSender:
    """Return a sender of rows for a producer that nothing else uses."""
    sender = producer.sender
    parts = sender.parts if isinstance(sender, PartitionedSender) else [sender]
    if not all(isinstance(one, BatchingSender) and one.config.batched and not one.config.by_key for one in parts):
        return MessageSender(producer)
    if isinstance(sender, PartitionedSender):
        return PartitionedRowSender(sender)
    return RowSender(sender) if isinstance(sender, BatchingSender) else MessageSender(producer)


class MessageSender:
    """Sender of rows by a producer without batches, or by key; it counts the rows that the topic had already."""

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer
        self.duplicates = 0

    def send(self, columns: pa.RecordBatch, ids: NDArray[np.int64] | None) -> None:
        """Send rows."""
        given = arguments_of(columns)
        sent = self._producer.send_many(
            given["content"],
            partition_keys=given.get("partition_key"),
            ordering_keys=given.get("ordering_key"),
            properties=given.get("properties"),
            event_timestamps=given.get("event_timestamp"),
            sequence_ids=None if ids is None else ids.tolist(),
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
        self._kept: list[tuple[pa.RecordBatch, NDArray[np.int64] | None]] = []
        self._kept_bytes = 0

    @property
    def duplicates(self) -> int:
        """Number of rows with a known outcome that the topic had already."""
        return self._outcome.duplicates

    def send(self, columns: pa.RecordBatch, ids: NDArray[np.int64] | None, *, whole: bool = False) -> int:
        """Send rows with ascending ids or None; with `whole`, only those in whole batches. Return the number sent."""
        sender, outcome = self._sender, self._outcome
        for name in ("partition_key", "ordering_key"):
            if name in columns.schema.names:
                sender.check_mixed_keys({name: compute.first(columns.column(name)).as_py()})
        rows = EncodedRows.of(columns)
        sizes, most_bytes = rows.sizes(), sender.config.bounds.size
        for part in divide(sizes, sender.max_whole_batch, most_bytes):
            count = part.stop - part.start
            if whole and part.stop == len(columns) and count < sender.max_whole_batch:
                return int(part.start)
            outcome.raise_failure()
            numbers = None if ids is None else ids[part].tolist()
            if sizes[part.start] <= most_bytes and sender.push_whole_batch(
                count, numbers, rows.batch_of(part, outcome)
            ):
                self._sent += count
                continue
            arguments = arguments_of(columns[part])
            if numbers is not None:
                arguments["sequence_id"] = numbers
            for row in zip(*arguments.values(), strict=True):
                options = dict(zip(arguments, row, strict=True))
                self._sent += 1
                sender.post(options.pop("content"), outcome.one, options)
        return len(columns)

    def collect(self, columns: pa.RecordBatch, ids: NDArray[np.int64] | None) -> None:
        """Keep rows, and send all whole batches of the kept rows; rows always have ids, or never."""
        if self._kept and columns.schema != self._kept[0][0].schema:
            self.send_kept()
        self._keep(columns, ids)
        bounds, count = self._sender.config.bounds, sum(len(kept) for kept, _ in self._kept)
        if count >= self._sender.max_whole_batch or self._kept_bytes >= bounds.size:
            self.send_kept(whole=True)

    def send_kept(self, *, whole: bool = False) -> None:
        """Send the kept rows; with `whole`, keep the rows after the last whole batch."""
        if not self._kept:
            return
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        (rows,) = pa.Table.from_batches([columns for columns, _ in kept]).combine_chunks().to_batches()
        ids = None if kept[0][1] is None else np.concatenate([numbers for _, numbers in kept])
        sent = self.send(rows, ids, whole=whole)
        if sent < len(rows):
            self._keep(rows[sent:], ids if ids is None else ids[sent:])

    def _keep(self, columns: pa.RecordBatch, ids: NDArray[np.int64] | None) -> None:
        self._kept.append((columns, ids))
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

    def send(self, columns: pa.RecordBatch, ids: NDArray[np.int64] | None) -> None:
        """Send rows, or keep them until they fill a batch; the arguments are those of `RowSender.send`."""
        chosen = self._choose(columns, ids)
        for number, part in enumerate(self._parts):
            indexes = np.flatnonzero(chosen == number)
            if len(indexes):
                part.collect(columns.take(pa.array(indexes)), None if ids is None else ids[indexes])

    def _choose(self, columns: pa.RecordBatch, ids: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Return the partition of each row, routing each distinct key once."""
        count, partitions = columns.num_rows, len(self._parts)
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
