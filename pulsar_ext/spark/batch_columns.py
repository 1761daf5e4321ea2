"""The positions of the messages of large batches, without asking each message (pure, on numpy).

Messages come in order. If the id of one and the id of another are of the same batch, and as far apart in it as the two
messages are, then the messages between are those of the batch between. So two ids of a batch tell all of its positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._wire.message_id_data import MessageIdData

__all__ = ["BatchColumns", "batch_columns"]

_WORTH = 16
"""How many messages a batch must have for two ids of it to cost less than a look at each message."""


class BatchColumns(NamedTuple):
    """Arrays with a number for each message.

    Args:
        ledger, entry: where its batch is (64 bits).
        batch: its index there (32 bits).
        size: how many messages the batch has (64 bits).
    """

    ledger: Any
    entry: Any
    batch: Any
    size: Any

    def take(self, at: Any) -> BatchColumns:
        """Give the numbers of some of the messages."""
        return BatchColumns(*(column[at] for column in self))


def batch_columns(count: int, id_of: Callable[[int], MessageIdData]) -> BatchColumns | None:
    """Find where messages are, all of which are in large batches.

    Args:
        count: how many messages there are; at least one.
        id_of: gives the id of a message by its index.

    Returns:
        None if a message is in no batch, or in a small one, or if a part of a batch is missing.
    """
    starts: list[tuple[int, int, int, int]] = []
    lengths: list[int] = []
    at = 0
    while at < count:
        first = id_of(at)
        if first.batch_size < _WORTH or not 0 <= first.batch_index < first.batch_size:
            return None
        length = min(first.batch_size - first.batch_index, count - at)
        last = id_of(at + length - 1)
        expected = first.ledger_id, first.entry_id, first.batch_index + length - 1
        if (last.ledger_id, last.entry_id, last.batch_index) != expected:
            return None
        starts.append((first.ledger_id, first.entry_id, first.batch_index, first.batch_size))
        lengths.append(length)
        at += length
    ledger, entry, begins, size = np.repeat(np.array(starts, np.int64).T, lengths, axis=1)
    batch = begins + np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return BatchColumns(ledger, entry, batch.astype(np.int32), size)
