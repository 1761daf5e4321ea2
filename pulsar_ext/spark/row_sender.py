"""Sends rows as whole batches, because one send for each row would be most of the cost of a write.

A `BatchingSender` takes a whole batch as readily as a message. Rows come in columns anyway, so a batch of them is
written from columns, and room, order and sequence ids are settled once for each batch. Rows that cannot be sent in this
way (the topic has some already, or a row is larger than a batch) are sent one by one, in the same order. On a
partitioned topic, the rows of each partition are collected until they are a whole batch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import BulkOutcome
from pulsar_ext.produce.partitioned import PartitionedSender

from .row_batch import EncodedRows, RowBatch, divide, lengths_of
from .rows import arguments_of, arrow_compute

if TYPE_CHECKING:
    from pulsar_ext.producer import Producer

__all__ = ["PartitionedRowSender", "RowSender", "row_sender_of"]

_KEY, _ORDERING_KEY = "partition_key", "ordering_key"


def row_sender_of(producer: Producer) -> RowSender | PartitionedRowSender | None:
    """Make what sends rows with a producer; None for one without batches, or with a batch for each key."""
    sender = producer.sender
    parts = sender.parts if isinstance(sender, PartitionedSender) else [sender]
    if not all(isinstance(one, BatchingSender) and one.config.batched and not one.config.by_key for one in parts):
        return None
    if isinstance(sender, PartitionedSender):
        return PartitionedRowSender(sender)
    return RowSender(sender) if isinstance(sender, BatchingSender) else None


class RowSender:
    """Sends the rows of one lane to one topic.

    Args:
        sender: of a producer that nothing else uses.
    """

    def __init__(self, sender: BatchingSender) -> None:
        self._sender = sender
        self._outcome = BulkOutcome()
        self._sent = 0

    @property
    def duplicates(self) -> int:
        """How many of the rows with a known outcome the topic had already."""
        return self._outcome.duplicates

    def send(self, columns: pa.RecordBatch, ids: Any, *, whole: bool = False) -> int:
        """Send rows; wait only for room in the producer's queue.

        Args:
            columns: the rows, in columns that have the names of a send's arguments.
            ids: an array of ascending sequence ids; None for the producer's own.
            whole: whether to leave out the last rows if they are not a whole batch.

        Returns:
            How many rows were sent.

        Raises:
            pulsar.PulsarException: a row that was sent before has failed.
        """
        sender, outcome = self._sender, self._outcome
        for name in (_KEY, _ORDERING_KEY):
            if name in columns.schema.names:
                sender.look_at_keys({name: _first(columns.column(name))})
        rows = EncodedRows.of(columns)
        sizes, most_bytes = rows.sizes(), sender.config.bounds.size
        for part in divide(sizes, sender.most_at_once, most_bytes):
            count = part.stop - part.start
            if whole and part.stop == len(rows) and count < sender.most_at_once:
                return int(part.start)
            outcome.raise_failure()
            numbers = None if ids is None else ids[part].tolist()
            if sizes[part.start] <= most_bytes and sender.push_at_once(
                count, numbers, partial(RowBatch, rows.part(part), outcome)
            ):
                self._sent += count
                continue
            arguments = arguments_of(columns[part])
            if numbers is not None:
                arguments["sequence_id"] = numbers
            for row in zip(*arguments.values(), strict=True):
                options = dict(zip(arguments, row, strict=True))
                self._sent += 1
                sender.post(options.pop("content"), outcome.one, options, patient=True)
        return len(rows)

    def finish(self) -> None:
        """Wait until all rows are persisted.

        Raises:
            pulsar.PulsarException: the error of the first row that failed.
        """
        self._sender.complete(self._outcome, self._sent)


class PartitionedRowSender:
    """Sends the rows of one lane to a partitioned topic, to the partitions that a send of each row would choose.

    Args:
        sender: of a producer that nothing else uses; partitions that are added later are left to the next task.
    """

    def __init__(self, sender: PartitionedSender) -> None:
        self._sender = sender
        self._parts = [_Part(one) for one in sender.parts]

    @property
    def duplicates(self) -> int:
        """How many of the rows with a known outcome the topic had already."""
        return sum(part.rows.duplicates for part in self._parts)

    def send(self, columns: pa.RecordBatch, ids: Any) -> None:
        """Send rows, or keep them until they are a batch; the arguments are those of `RowSender.send`.

        Raises:
            pulsar.PulsarException: a row that was sent before has failed.
        """
        chosen = self._choose(columns, ids)
        for number, part in enumerate(self._parts):
            indexes = np.flatnonzero(chosen == number)
            if len(indexes):
                part.add(columns.take(pa.array(indexes)), None if ids is None else ids[indexes])

    def _choose(self, columns: pa.RecordBatch, ids: Any) -> Any:
        """Choose the partition of each row; that of each distinct key once."""
        count, partitions = columns.num_rows, len(self._parts)
        chosen = np.zeros(count, np.int64)
        keyless = np.arange(count)
        if _KEY in columns.schema.names:
            keys = columns.column(_KEY)
            self._sender.look_at_keys({_KEY: _first(keys)})
            keyless = np.flatnonzero(np.asarray(keys.is_null()))
            coded = keys.dictionary_encode()
            names = coded.dictionary.to_pylist()
            by_key = np.array(self._sender.route(names, [0] * len(names), None, partitions), np.int64)
            chosen = np.append(by_key, -1)[np.asarray(coded.indices.fill_null(len(names)))]
        if len(keyless):
            sizes = lengths_of(columns.column("content"))[keyless].tolist()
            numbers = None if ids is None else ids[keyless].tolist()
            chosen[keyless] = self._sender.route([None] * len(keyless), sizes, numbers, partitions)
        return chosen

    def finish(self) -> None:
        """Send what was kept, and wait until all rows are persisted.

        Raises:
            pulsar.PulsarException: the error of the first row that failed.
        """
        for part in self._parts:
            part.send()
        for part in self._parts:
            part.rows.finish()


class _Part:
    """The rows of one partition: those that are kept, and what sends them."""

    def __init__(self, sender: BatchingSender) -> None:
        self.rows = RowSender(sender)
        self._most, self._size = sender.most_at_once, sender.config.bounds.size
        self._kept: list[tuple[pa.RecordBatch, Any]] = []
        self._count = self._bytes = 0

    def add(self, columns: pa.RecordBatch, ids: Any) -> None:
        """Keep rows, and send all whole batches of what is kept; rows have ids always or never."""
        if self._kept and columns.schema != self._kept[0][0].schema:
            self.send()
        self._keep(columns, ids)
        if self._count >= self._most or self._bytes >= self._size:
            self.send(whole=True)

    def send(self, *, whole: bool = False) -> None:
        """Send the rows that are kept; those behind the last whole batch may stay."""
        if not self._kept:
            return
        kept, self._kept, self._count, self._bytes = self._kept, [], 0, 0
        (rows,) = pa.Table.from_batches([columns for columns, _ in kept]).combine_chunks().to_batches()
        ids = None if kept[0][1] is None else np.concatenate([numbers for _, numbers in kept])
        sent = self.rows.send(rows, ids, whole=whole)
        if sent < rows.num_rows:
            self._keep(rows[sent:], ids if ids is None else ids[sent:])

    def _keep(self, columns: pa.RecordBatch, ids: Any) -> None:
        self._kept.append((columns, ids))
        self._count += columns.num_rows
        self._bytes += int(lengths_of(columns.column("content")).sum())


def _first(column: pa.Array) -> Any:
    """Give the first value that is not null."""
    return arrow_compute.first(column).as_py()
