"""Sends rows as whole batches, because one send for each row would be most of the cost of a write.

A `BatchingSender` takes a whole batch as readily as a message. Rows come in columns anyway, so a batch of them is
encoded from lists, and room, order and sequence ids are settled once for each batch. Rows that cannot be sent in this
way (the topic has some already, or a row is larger than a batch) are sent one by one, in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pulsar_ext.produce.batch import RowBatch
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import BulkOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.producer import Producer

__all__ = ["RowSender"]

_KEY_TAG = b"\x12"
_SHORT = [_KEY_TAG + bytes((length,)) for length in range(128)]
"""The tag and the length of a partition key, by its length."""


class RowSender:
    """Sends the rows of one lane to one topic.

    Args:
        sender: of a producer that nothing else uses.
    """

    def __init__(self, sender: BatchingSender) -> None:
        self._sender = sender
        self._outcome = BulkOutcome()
        self._sent = 0

    @classmethod
    def for_producer(cls, producer: Producer) -> Self | None:
        """Make one for a producer; None for a producer without batches, or with a batch for each key."""
        sender = producer.sender
        if isinstance(sender, BatchingSender) and sender.config.batched and not sender.config.by_key:
            return cls(sender)
        return None

    @property
    def duplicates(self) -> int:
        """How many of the rows with a known outcome the topic had already."""
        return self._outcome.duplicates

    def send(self, values: Sequence[bytes], columns: dict[str, Sequence[Any]], ids: Sequence[int] | None) -> None:
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
        self, values: Sequence[bytes], columns: dict[str, Sequence[Any]]
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
