"""Reads and writes many serialized message ids at once: ledgers, entries and batch indexes (pure, on numpy).

A call into the C++ client for each number of each id would be a third of the cost of reading a message. The bytes are
at hand anyway, with the fields in order: 1 ledger, 2 entry, 3 partition, 4 batch index, 6 batch size, 7 first chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["id_bytes", "id_columns"]

_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _BATCH_SIZE = 0x08, 0x10, 0x18, 0x20, 0x30
_LIMITS = np.array([1 << (7 * width) for width in range(1, 9)], np.int64)
"""The numbers from which a varint needs one more byte."""
_LONGEST = 10
_MORE = 0x80


def id_columns(serialized: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """Read the numbers of ids that the C++ client wrote.

    Args:
        serialized: the ids.

    Returns:
        Arrays of ledgers (64 bits), entries (64 bits) and batch indexes (32 bits; -1 for a message in no batch).

    Raises:
        ValueError: an id does not begin with a ledger and an entry.
    """
    count = len(serialized)
    sizes = np.fromiter(map(len, serialized), np.int64, count)
    # Zeros after the last id, so that reading what follows it never leaves the buffer.
    data = np.frombuffer(b"".join((*serialized, b"\0" * (_LONGEST + 1))), np.uint8)
    ends = np.cumsum(sizes)
    at = ends - sizes
    every = np.ones(count, bool)
    if (data[at] != _LEDGER).any():
        raise ValueError("a message id does not begin with its ledger")
    ledger, at = _varints(data, at + 1, every)
    if (data[at] != _ENTRY).any():
        raise ValueError("a message id has no entry after its ledger")
    entry, at = _varints(data, at + 1, every)
    has_partition = (data[at] == _PARTITION) & (at < ends)
    _, at = _varints(data, at + has_partition, has_partition)
    has_batch = (data[at] == _BATCH_INDEX) & (at < ends)
    batch, _ = _varints(data, at + has_batch, has_batch)
    return ledger.view(np.int64), entry.view(np.int64), np.where(has_batch, batch.view(np.int64), -1).astype(np.int32)


def _varints(data: Any, at: Any, where: Any) -> tuple[Any, Any]:
    """Read a varint at each place where there is one; give the numbers and the places after them."""
    numbers = np.zeros(len(at), np.uint64)
    at = at.copy()
    going = where
    for shift in range(0, 7 * _LONGEST, 7):
        octets = data[at]
        numbers |= np.where(going, (octets & 0x7F).astype(np.uint64) << np.uint64(shift), np.uint64(0))
        at += going
        going = going & ((octets & _MORE) != 0)
        if not going.any():
            break
    return numbers, at


def id_bytes(ledger: Any, entry: Any, partition: int, batch: Any, sizes: Any) -> tuple[Any, Any]:
    """Write ids as the C++ client serializes them, except those of chunked messages.

    Args:
        ledger: their ledgers.
        entry: their entries.
        partition: the index of the partition; -1 on a topic without partitions.
        batch: their batch indexes; -1 for a message in no batch.
        sizes: how many messages their batches have; 0 for a message in no batch.

    Returns:
        The offsets where each begins and where the last one ends (32 bits), and the bytes of all.
    """
    fields = [(_LEDGER, ledger, None), (_ENTRY, entry, None)]
    if partition != -1:
        fields.append((_PARTITION, np.full(len(ledger), partition), None))
    fields += [(_BATCH_INDEX, batch, batch >= 0), (_BATCH_SIZE, sizes, sizes > 0)]
    written = []
    total = np.zeros(len(ledger), np.int64)
    for tag, numbers, where in fields:
        if where is not None and not where.any():
            continue
        widths = 1 + np.searchsorted(_LIMITS, numbers, side="right")
        size = 1 + widths if where is None or where.all() else np.where(where, 1 + widths, 0)
        written.append((tag, numbers.astype(np.int64), widths, size))
        total += size
    ends = np.cumsum(total)
    offsets = np.zeros(len(ledger) + 1, np.int32)
    offsets[1:] = ends
    data = np.empty(int(ends[-1]), np.uint8)
    at = ends - total
    for tag, numbers, widths, size in written:
        _write(data, at, tag, numbers, widths, size)
        at = at + size
    return offsets, data


def _write(data: Any, at: Any, tag: int, numbers: Any, widths: Any, size: Any) -> None:
    """Write one field of each id that has it."""
    if not size.all():
        has = np.flatnonzero(size)
        at, numbers, widths = at[has], numbers[has], widths[has]
    data[at] = tag
    for index in range(int(widths.max())):
        octets = (numbers >> (7 * index)) & 0x7F
        data_at = at + 1 + index
        more = widths > index + 1
        octets |= more * _MORE
        if index and not (widths > index).all():
            there = widths > index
            data[data_at[there]] = octets[there]
        else:
            data[data_at] = octets
