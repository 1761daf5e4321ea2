"""Rows handed to a producer as whole batches: a send for each row is most of what a write costs.

A producer that makes its batches itself takes a batch as readily as a message. Rows come in columns anyway, so a batch
of them is written without a step of Python for each producer's rule: room, order and sequence ids are settled once a
batch. Rows that cannot go so (what is there already, what is larger than a batch) go one by one, in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext.produce.batch import RowBatch
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import BulkOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["RowSender"]

_KEY_TAG = b"\x12"
_SHORT = [_KEY_TAG + bytes((length,)) for length in range(128)]
"""What stands before a key of so many bytes."""


class RowSender:
    """Sends the rows of one lane to one topic.

    Args:
        producer: opened for them alone.
    """

    def __init__(self, producer: Any) -> None:
        self._sender: BatchingSender = producer.sender
        self._bulk = BulkOutcome()
        self._taken = 0

    @staticmethod
    def takes(producer: Any) -> bool:
        """Whether a producer makes its batches itself, and not one for each key."""
        sender = producer.sender
        return isinstance(sender, BatchingSender) and sender.config.batched and not sender.config.by_key

    @property
    def duplicates(self) -> int:
        """How many of the rows the topic held already, as far as that is known."""
        return self._bulk.duplicates

    def send(self, values: Sequence[bytes], columns: dict[str, Sequence[Any]], ids: Sequence[int] | None) -> None:
        """Send rows, and wait for room only.

        Args:
            values: the payloads.
            columns: the official arguments of a send that rows have, a column each.
            ids: sequence ids that go up; None for the producer's own.

        Raises:
            pulsar.PulsarException: a row that was sent before has failed.
        """
        fields, keys = self._written(values, columns)
        for part in self._parts(values, fields):
            if self._bulk.failed:
                self._bulk.raise_failure()
            if len(values[part]) > 1 or self._fits(len(values[part.start]) + len(fields[part.start])):
                numbers = None if ids is None else ids[part]
                if self._push(values[part], numbers, fields[part], keys[part]):
                    continue
            for index in range(part.start, part.stop):
                options = {name: column[index] for name, column in columns.items()}
                if ids is not None:
                    options["sequence_id"] = ids[index]
                self._taken += 1
                self._sender.post(values[index], self._bulk.one, options, patient=True)

    def finish(self) -> None:
        """Wait until all rows are persisted.

        Raises:
            pulsar.PulsarException: the error of the first one that failed.
        """
        self._sender.dispatch.push()
        self._sender.dispatch.pending.wait_for(lambda: self._bulk.done >= self._taken)
        self._bulk.raise_failure()

    def _written(
        self, values: Sequence[bytes], columns: dict[str, Sequence[Any]]
    ) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Write what rows have besides their payloads, and their keys."""
        if not columns:
            nothing = [b""] * len(values)
            return nothing, nothing
        names = list(columns)
        if names != ["partition_key"]:
            rows = zip(*columns.values(), strict=True)
            written = [self._encode(dict(zip(names, row, strict=True))) for row in rows]
            return [one[1] for one in written], [one[2] for one in written]
        texts: Sequence[str | None] = columns["partition_key"]
        first = next((text for text in texts if text is not None), None)
        if first is not None:
            self._encode({"partition_key": first})  # warns about batches that mix keys
        found = []
        for text in texts:
            if text is None:
                found.append(b"")
                continue
            key = text.encode()
            short = len(key) < len(_SHORT)
            found.append(_SHORT[len(key)] + key if short else self._encode({"partition_key": text})[2])
        return found, found

    def _encode(self, options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Write a row's part of a batch, checked."""
        return self._sender.encode(b"", options)

    def _parts(self, values: Sequence[bytes], fields: Sequence[bytes]) -> Iterator[slice]:
        """Cut rows into batches, by the producer's bounds."""
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
        """Push rows as one batch; False if that is not possible, and nothing was done."""

        def batch(numbers: Sequence[int]) -> RowBatch:
            return RowBatch.of_rows(values, numbers, fields, keys, self._bulk)

        if not self._sender.push_at_once(len(values), ids, batch):
            return False
        self._taken += len(values)
        return True
