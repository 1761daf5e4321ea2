"""Batches of rows, written column by column (pure): the bytes that a loop over rows would write, in less time.

Rows come in Arrow's columns. What each row has in its batch is joined of such columns too, and the joined column's
bytes are the batch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from pulsar_ext._wire.batch_payload import (
    IS_BASE64,
    NULL_VALUE,
    ORDERING_KEY,
    PARTITION_KEY,
    option_fields,
    size_field,
    whole_batch,
)
from pulsar_ext._wire.protobuf import bytes_head, number_field, varint
from pulsar_ext.produce.batch import Batch

from .pair_columns import BASE64_KEYS
from .rows import arrow_compute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pulsar_ext.produce.outcome import BulkOutcome

__all__ = ["EncodedRows", "RowBatch", "divide", "lengths_of"]

_MORE = 0x80
"""Set in each byte of a varint but the last."""
_LOW_BYTES = pa.array([bytes((number,)) for number in range(256)], pa.binary())


class EncodedRows:
    """Rows that are ready for a batch.

    Args:
        contents: the payloads; empty bytes of a message without a value, whose fields say that it has none.
        fields: what each message has besides, as `option_fields` writes it.
        keys: each message's keys, as `key_fields` writes them.
    """

    __slots__ = ("contents", "fields", "keys")

    def __init__(self, contents: pa.Array, fields: pa.Array, keys: pa.Array) -> None:
        self.contents, self.fields, self.keys = contents, fields, keys

    @classmethod
    def of(cls, columns: pa.RecordBatch) -> Self:
        """Encode rows, given in columns that have the names of a send's arguments."""
        contents = columns.column("content")
        keys = _joined(_written(columns, _KEYS), len(contents))
        fields = [keys, *_written(columns, _OTHERS)]
        if contents.null_count:
            fields.insert(0, arrow_compute.if_else(contents.is_null(), NULL_VALUE, b""))
            contents = contents.fill_null(b"")
        return cls(contents, _joined(fields, len(contents)), keys)

    def __len__(self) -> int:
        return len(self.contents)

    def part(self, rows: slice) -> EncodedRows:
        """Give some of the rows, without copying them."""
        return EncodedRows(self.contents[rows], self.fields[rows], self.keys[rows])

    def sizes(self) -> Any:
        """Give the bytes of each row's payload and fields."""
        return lengths_of(self.contents) + lengths_of(self.fields)

    def written(self, ids: Sequence[int]) -> memoryview:
        """Write the rows as `batch_parts` does, with their sequence ids."""
        numbers = _as_array(ids)
        upper = numbers >> 7
        low = _LOW_BYTES.take(pa.array(numbers & 0x7F | np.where(upper > 0, _MORE, 0)))
        high = _each(pa.array(upper), lambda number: varint(number) if number else b"")
        sizes = _each(arrow_compute.binary_length(self.contents), size_field)
        lengths = lengths_of(self.fields) + lengths_of(sizes) + 1 + lengths_of(high)  # `low` has one byte
        heads = _each(pa.array(lengths), lambda length: length.to_bytes(4, "big"))
        return _bytes_of(_join(heads, self.fields, sizes, low, high, self.contents))


class RowBatch(Batch):
    """A batch of rows, which stay encoded for when it has to be parted.

    Args:
        rows: at least one.
        outcome: counts what became of them.
        ids: their sequence ids, going up.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: EncodedRows, outcome: BulkOutcome, ids: Sequence[int]) -> None:
        super().__init__()
        self._rows = rows
        self.ids, self.outcome, self.count, self.keys = ids, outcome, len(rows), rows.keys[0].as_py()

    def payload(self) -> bytes:
        """Write what becomes one C++ message; see `whole_batch`."""
        carried = self.ids[-1] if self.carried is None else self.carried
        return whole_batch((self._rows.written(self.ids),), self.count, carried, self.keys + self.note)

    def halves(self) -> list[Batch]:
        """Give the first and the second half of it, which has two messages or more."""
        assert self.outcome is not None  # noqa: S101  # as it was made
        middle = self.count // 2
        return [
            RowBatch(self._rows.part(part), self.outcome, self.ids[part])
            for part in (slice(None, middle), slice(middle, None))
        ]


def divide(sizes: Any, most: int, most_bytes: int) -> list[slice]:
    """Divide rows into batches.

    Args:
        sizes: the bytes of each row.
        most: how many rows a batch may have.
        most_bytes: how many bytes; a row above it is a batch of its own.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    found, begin, before = [], 0, 0
    while begin < len(sizes):
        fitting = int(np.searchsorted(ends, before + most_bytes, side="right"))
        end = max(begin + 1, min(begin + most, fitting))
        found.append(slice(begin, end))
        begin, before = end, int(ends[end - 1])
    return found


def lengths_of(column: pa.Array) -> Any:
    """Return the number of bytes of each value; a null has none."""
    return np.asarray(arrow_compute.binary_length(column).fill_null(0))


def _as_array(ids: Sequence[int]) -> Any:
    """Give sequence ids as NumPy's."""
    return np.arange(ids.start, ids.stop, ids.step) if isinstance(ids, range) else np.asarray(ids, np.int64)


def _each(numbers: pa.Array, write: Callable[[int], bytes]) -> pa.Array:
    """Write each number; each distinct one once."""
    coded = numbers.dictionary_encode()
    return pa.array([write(number) for number in coded.dictionary.to_pylist()], pa.binary()).take(coded.indices)


def _join(*columns: pa.Array) -> pa.Array:
    return arrow_compute.binary_join_element_wise(*columns, b"")


def _joined(columns: list[pa.Array], rows: int) -> pa.Array:
    """Join columns row by row; empty bytes where there are none."""
    if not columns:
        return pa.repeat(pa.scalar(b"", pa.binary()), rows)
    return columns[0] if len(columns) == 1 else _join(*columns)


def _written(columns: pa.RecordBatch, writers: Mapping[str, Callable[[pa.Array], pa.Array]]) -> list[pa.Array]:
    """Write those of some columns that there are."""
    return [write(columns.column(name)) for name, write in writers.items() if name in columns.schema.names]


def _texts(number: int, column: pa.Array) -> pa.Array:
    octets = column.cast(pa.binary())
    heads = _each(arrow_compute.binary_length(octets), lambda length: bytes_head(number, length))
    return _join(heads, octets).fill_null(b"")


def _properties(column: pa.Array) -> pa.Array:
    return pa.array([option_fields({"properties": dict(pairs or ())}) for pairs in column.to_pylist()], pa.binary())


def _times(column: pa.Array) -> pa.Array:
    return _each(column, lambda time: option_fields({"event_timestamp": time})).fill_null(b"")


def _base64_flags(column: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(number_field(IS_BASE64, 1), pa.binary()), len(column))


_KEYS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "partition_key": partial(_texts, PARTITION_KEY),
    BASE64_KEYS: _base64_flags,
    "ordering_key": partial(_texts, ORDERING_KEY),
}
_OTHERS = {"properties": _properties, "event_timestamp": _times}
"""What writes a column, in the order of `option_fields`."""


def _bytes_of(column: pa.Array) -> memoryview:
    """Give all bytes of a column of bytes, one value behind the other."""
    _, offsets, data = column.buffers()
    begin, end = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]]
    return memoryview(data)[begin:end]
