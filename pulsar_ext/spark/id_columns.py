"""Ledgers, entries and batch indexes of many serialized message ids at once (pure, on numpy).

A call into the C++ client for each number of each id is a third of what reading a message costs. The bytes are known
anyway, and their fields stand in order: 1 ledger, 2 entry, 3 partition, 4 batch index, 6 batch size, 7 first chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["id_columns"]

_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX = 0x08, 0x10, 0x18, 0x20
_LONGEST = 10
_MORE = 0x80


def id_columns(serialized: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """Read the numbers of ids that the C++ client wrote.

    Args:
        serialized: the ids.

    Returns:
        Arrays of ledgers (64 bits), entries (64 bits) and batch indexes (32 bits, -1 for a message in no batch).

    Raises:
        ValueError: an id does not begin with a ledger and an entry.
    """
    count = len(serialized)
    sizes = np.fromiter(map(len, serialized), np.int64, count)
    # Bytes behind the last id, so that looking at what follows it stays inside.
    data = np.frombuffer(b"".join((*serialized, b"\0" * (_LONGEST + 1))), np.uint8)
    ends = np.cumsum(sizes)
    at = ends - sizes
    every = np.ones(count, bool)
    if (data[at] != _LEDGER).any():
        raise ValueError("a message id does not begin with its ledger")
    ledger, at = _varints(data, at + 1, every)
    if (data[at] != _ENTRY).any():
        raise ValueError("a message id has no entry behind its ledger")
    entry, at = _varints(data, at + 1, every)
    has_partition = (data[at] == _PARTITION) & (at < ends)
    _, at = _varints(data, at + has_partition, has_partition)
    has_batch = (data[at] == _BATCH_INDEX) & (at < ends)
    batch, _ = _varints(data, at + has_batch, has_batch)
    return ledger.view(np.int64), entry.view(np.int64), np.where(has_batch, batch.view(np.int64), -1).astype(np.int32)


def _varints(data: Any, at: Any, where: Any) -> tuple[Any, Any]:
    """Read a variable-length number at each place where there is one; give the numbers and the places behind them."""
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
