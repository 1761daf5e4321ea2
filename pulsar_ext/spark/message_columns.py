"""The columns of a block of messages, as Arrow arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.errors import InvalidUse

from .id_columns import id_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message_block import MessageBlock

__all__ = ["column_of"]

_MILLIS = 1000
_MOST_MILLIS = (2**63 - 1) // _MILLIS
_WORTH = 4
"""How many messages batches must have on average for fetching their sizes to be cheaper than fetching each id."""


def column_of(block: MessageBlock, name: str, kind: Any) -> Any:
    """Give one column of a block as an Arrow array of that type.

    Raises:
        InvalidUse: the column is read as text, and a message has bytes in it that are not UTF-8; or it is the event
            time, and that of a message is too large.
    """
    return _COLUMNS[name](block, kind)


def _value(block: MessageBlock, kind: Any) -> Any:
    return _textual(block, block.values, kind)


def _key(block: MessageBlock, kind: Any) -> Any:
    if block.key_decoder.exact:
        return _textual(block, list(map(block.key_decoder.decode, block.inners, block.key_texts)), kind)
    keys = block.key_column
    if block.has_keyless:
        keys = pa.array([text or None for text in block.key_texts], pa.string())
    return keys if kind == pa.string() else keys.cast(kind)


def _ordering_key(block: MessageBlock, kind: Any) -> Any:
    return pa.array([one or None for one in block.ordering_keys], kind)


def _topic(block: MessageBlock, kind: Any) -> Any:
    return pa.repeat(pa.scalar(block.topic, kind), len(block))


def _partition(block: MessageBlock, kind: Any) -> Any:
    return pa.repeat(pa.scalar(block.partition, kind), len(block))


def _message_id(block: MessageBlock, kind: Any) -> Any:
    sizes = None if block.first_chunks else _batch_sizes(block)
    if sizes is None:
        return pa.array(block.id_bytes, kind)
    ledger, entry, batch = block.positions
    offsets, data = id_bytes(ledger, entry, block.partition, batch, sizes)
    return pa.Array.from_buffers(kind, len(block), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _batch_sizes(block: MessageBlock) -> Any:
    """Give the sizes of the messages' batches as an array, fetched once a batch; None if that would not be cheaper."""
    if block.batches is not None:
        return block.batches.size
    if block.reprs is None:
        return None  # the ids have been fetched for the positions
    ledger, entry, batch = block.positions
    first = np.concatenate(([True], (np.diff(ledger) != 0) | (np.diff(entry) != 0)))
    begins = np.flatnonzero(first & (batch >= 0))
    if len(begins) * _WORTH > len(block):
        return None
    sizes = np.zeros(len(block), np.int64)
    sizes[begins] = [block.id_data(index).batch_size for index in begins.tolist()]
    # Each message has the size that the first one of its entry has; 0 if it is not in a batch.
    return sizes[np.flatnonzero(first)[np.cumsum(first) - 1]]


def _first_chunk_id(block: MessageBlock, kind: Any) -> Any:
    if not block.first_chunks:
        return pa.nulls(len(block), kind)
    found: list[bytes | None] = [None] * len(block)
    for index, first in block.first_chunks.items():
        found[index] = encode(MessageIdData(first.ledger_id, first.entry_id, block.partition))
    return pa.array(found, kind)


def _publish_time(block: MessageBlock, kind: Any) -> Any:
    reprs = block.reprs
    if reprs is None:
        millis = np.fromiter(map(InnerMessage.publish_timestamp, block.inners), np.int64, len(block))
    else:
        millis = reprs.publish_time
    return pa.array(millis * _MILLIS, pa.timestamp("us", tz="UTC")).cast(kind)


def _event_time(block: MessageBlock, kind: Any) -> Any:
    millis = np.fromiter(map(InnerMessage.event_timestamp, block.inners), np.uint64, len(block))
    far = np.flatnonzero(millis > _MOST_MILLIS)
    if len(far):
        raise InvalidUse(
            f"The message {block.inners[far[0]].message_id()} on {block.topic} has the event time {millis[far[0]]}, "
            "which is too many milliseconds for a timestamp: leave out the column __eventTime."
        )
    if not millis.any():
        return pa.nulls(len(block), kind)
    micros = millis.astype(np.int64) * _MILLIS
    return pa.array(micros, pa.timestamp("us", tz="UTC"), mask=millis == 0).cast(kind)


def _properties(block: MessageBlock, kind: Any) -> Any:
    names: list[str] = []
    items: list[str] = []
    counts = np.zeros(len(block) + 1, np.int32)
    having = range(len(block)) if block.reprs is None else np.flatnonzero(~block.reprs.bare).tolist()
    for index in having:
        one = block.inners[index].properties()
        names.extend(one)
        items.extend(one.values())
        counts[index + 1] = len(one)
    offsets = np.cumsum(counts, dtype=np.int32)
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, kind.key_type), pa.array(items, kind.item_type), type=kind
    )


def _sequence_id(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.sequence_ids, kind)


def _producer_name(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.producer_names, kind)


def _key_slot(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.slots, kind)


def _ledger_id(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.positions[0], kind)


def _entry_id(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.positions[1], kind)


def _begin_ledger_id(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.begin_columns[0], kind)


def _begin_entry_id(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.begin_columns[1], kind)


def _batch_index(block: MessageBlock, kind: Any) -> Any:
    return pa.array(block.positions[2], kind)


def _textual(block: MessageBlock, values: Sequence[bytes | None], kind: Any) -> Any:
    found = pa.array(values, pa.binary())
    if kind != pa.string():
        return found if found.type == kind else found.cast(kind)
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        for inner, value in zip(block.inners, values, strict=True):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise InvalidUse(
                    f"The message {inner.message_id()} on {block.topic} is not UTF-8 text ({error}): read it as binary."
                ) from None
        raise


_COLUMNS = {
    "value": _value,
    "__key": _key,
    "__orderingKey": _ordering_key,
    "__topic": _topic,
    "__partition": _partition,
    "__messageId": _message_id,
    "__firstChunkId": _first_chunk_id,
    "__publishTime": _publish_time,
    "__eventTime": _event_time,
    "__messageProperties": _properties,
    "__sequenceId": _sequence_id,
    "__producerName": _producer_name,
    "__keySlot": _key_slot,
    "__ledgerId": _ledger_id,
    "__entryId": _entry_id,
    "__beginLedgerId": _begin_ledger_id,
    "__beginEntryId": _begin_entry_id,
    "__batchIndex": _batch_index,
}
