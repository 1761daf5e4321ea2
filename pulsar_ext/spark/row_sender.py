"""Sends rows as whole batches, because one send for each row would be most of the cost of a write.

A `BatchingSender` takes a whole batch as readily as a message. Rows come in columns anyway, so a batch of them is
encoded from lists, and room, order and sequence ids are settled once for each batch. Rows that cannot be sent in this
way (the topic has some already, or a row is larger than a batch) are sent one by one, in the same order. On a
partitioned topic, the rows of each partition are collected until they are a whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext.produce.batch import RowBatch
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import BulkOutcome
from pulsar_ext.produce.partitioned import PartitionedSender

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pulsar_ext.producer import Producer

__all__ = ["PartitionedRowSender", "RowSender", "row_sender_of"]

_KEY_TAG = b"\x12"
_SHORT = [_KEY_TAG + bytes((length,)) for length in range(128)]
"""The tag and the length of a partition key, by its length."""


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

    def send(self, values: Sequence[bytes], columns: Mapping[str, Sequence[Any]], ids: Sequence[int] | None) -> None:
        """Send rows; wait only for room in the producer's queue.

        Args:
            values: the payloads.
            columns: the official arguments of `send` that rows have, a column for each.
            ids: ascending sequence ids; None for the producer's own.

        Raises:
            pulsar.PulsarException: a row that was sent before has failed.
        """
        fields, keys = self._encode_columns(values, columns)
        for part in self._batches(values, fields):
            self._outcome.raise_failure()
            if len(values[part]) > 1 or self._fits(len(values[part.start]) + len(fields[part.start])):
                numbers = None if ids is None else ids[part]
                if self._push(values[part], numbers, fields[part], keys[part]):
                    continue
            for index in range(part.start, part.stop):
                options = {name: column[index] for name, column in columns.items()}
                if ids is not None:
                    options["sequence_id"] = ids[index]
                self._sent += 1
                self._sender.post(values[index], self._outcome.one, options, patient=True)

    def finish(self) -> None:
        """Wait until all rows are persisted.

        Raises:
            pulsar.PulsarException: the error of the first row that failed.
        """
        self._sender.complete(self._outcome, self._sent)

    def _encode_columns(
        self, values: Sequence[bytes], columns: Mapping[str, Sequence[Any]]
    ) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Encode what rows have besides their payloads: all of it, and their keys alone."""
        if not columns:
            empty = [b""] * len(values)
            return empty, empty
        names = list(columns)
        if names != ["partition_key"]:
            rows = zip(*columns.values(), strict=True)
            encoded = [self._encode(dict(zip(names, row, strict=True))) for row in rows]
            return [one[1] for one in encoded], [one[2] for one in encoded]
        texts: Sequence[str | None] = columns["partition_key"]
        first = next((text for text in texts if text is not None), None)
        if first is not None:
            self._encode({"partition_key": first})  # warns about batches that mix keys
        found: list[bytes] = []
        for text in texts:
            if text is None:
                found.append(b"")
                continue
            key = text.encode()
            short = len(key) < len(_SHORT)
            found.append(_SHORT[len(key)] + key if short else self._encode({"partition_key": text})[2])
        return found, found

    def _encode(self, options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Check a row's arguments and encode them: payload, all of them, and its keys alone."""
        return self._sender.encode(b"", options)

    def _batches(self, values: Sequence[bytes], fields: Sequence[bytes]) -> Iterator[slice]:
        """Divide rows into batches within the producer's limits."""
        most = self._sender.most_at_once
        begin = size = 0
        for index, weight in enumerate(map(int.__add__, map(len, values), map(len, fields))):
            if index > begin and (index - begin >= most or not self._fits(size + weight)):
                yield slice(begin, index)
                begin, size = index, 0
            size += weight
        if begin < len(values):
            yield slice(begin, len(values))

    def _fits(self, size: int) -> bool:
        return size <= self._sender.config.bounds.size

    def _push(
        self,
        values: Sequence[bytes],
        ids: Sequence[int] | None,
        fields: Sequence[bytes],
        keys: Sequence[bytes],
    ) -> bool:
        """Push rows as one batch; False, with nothing done, if that is not possible."""

        def batch(numbers: Sequence[int]) -> RowBatch:
            return RowBatch.of_rows(values, numbers, fields, keys, self._outcome)

        if not self._sender.push_at_once(len(values), ids, batch):
            return False
        self._sent += len(values)
        return True


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

    def send(self, values: Sequence[bytes], columns: Mapping[str, Sequence[Any]], ids: Sequence[int] | None) -> None:
        """Send rows, or keep them until they are a batch; the arguments are those of `RowSender.send`.

        Raises:
            pulsar.PulsarException: a row that was sent before has failed.
        """
        keys = columns.get("partition_key")
        if keys is None:
            keys = [None] * len(values)
        else:
            self._sender.look_at_keys({"partition_key": next((key for key in keys if key is not None), None)})
        chosen = self._sender.route(keys, list(map(len, values)), ids, len(self._parts))
        rows: list[list[int]] = [[] for _ in self._parts]
        for index, partition in enumerate(chosen):
            rows[partition].append(index)
        for part, indexes in zip(self._parts, rows, strict=True):
            if indexes:
                part.add(
                    [values[index] for index in indexes],
                    {name: [column[index] for index in indexes] for name, column in columns.items()},
                    None if ids is None else [ids[index] for index in indexes],
                )

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
        self._values: list[bytes] = []
        self._columns: dict[str, list[Any]] = {}
        self._ids: list[int] | None = None
        self._bytes = 0

    def add(self, values: list[bytes], columns: dict[str, list[Any]], ids: list[int] | None) -> None:
        """Keep rows, and send all that are kept if they are enough for a batch."""
        if self._values and columns.keys() != self._columns.keys():
            self.send()
        if not self._values:
            self._values, self._columns, self._ids, self._bytes = values, columns, ids, 0
        else:
            self._values += values
            for name, column in columns.items():
                self._columns[name] += column
            if self._ids is not None and ids is not None:
                self._ids += ids
        self._bytes += sum(map(len, values))
        if self._bytes >= self._size:
            self.send()
        elif len(self._values) >= self._most:
            self.send(keep=len(self._values) % self._most)

    def send(self, keep: int = 0) -> None:
        """Send the rows that are kept, but the last `keep`."""
        count = len(self._values) - keep
        if count:
            ids = self._ids
            columns = {name: column[:count] for name, column in self._columns.items()}
            self.rows.send(self._values[:count], columns, None if ids is None else ids[:count])
            self._values = self._values[count:]
            self._columns = {name: column[count:] for name, column in self._columns.items()}
            self._ids = None if ids is None else ids[count:]
            self._bytes = sum(map(len, self._values))
