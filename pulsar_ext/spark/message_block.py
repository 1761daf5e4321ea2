"""A block of messages that a reader received, with its columns as arrays of numpy and Arrow, each read once.

The C++ client returns a key that was sent as bytes in base64, and a text that is valid base64 unchanged.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.ids.position import Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, SlotFilter
from pulsar_ext.key_shared.hashing import KeyForm, KeyForms

from .connection import admin_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pulsar_ext._native.messages import InnerMessage
    from pulsar_ext._wire.message_id_data import MessageIdData

    from .blocks import Block, Octets
    from .delivery_account import Positions
    from .options import Settings


def binary_of(octets: Octets) -> pa.Array:
    """Return a column of bytes as an Arrow array, without copying it."""
    offsets, data = octets
    ends = np.frombuffer(offsets, np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def sizes_of(column: pa.Array) -> NDArray[np.int32]:
    """Return the size in bytes of each value of a column of `binary_of`."""
    ends: NDArray[np.int32] = np.frombuffer(column.buffers()[1], np.int32)
    return np.diff(ends)


def with_nulls(column: pa.Array, is_null: NDArray[np.bool_]) -> pa.Array:
    """Return a column of `binary_of` with nulls in it."""
    if not is_null.any():
        return column
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [valid, *column.buffers()[1:]])


class KeyDecoder:
    """Decoder of a key's bytes and slot, by option `keyForms`."""

    def __init__(self, settings: Settings) -> None:
        exact = settings["keyForms"] == "exact"
        self._forms = KeyForms(lambda: admin_of(settings), "exact") if exact else None
        self._slots = None if self._forms is None else SlotFilter(KeyHashRanges.full(), self._forms)

    @property
    def exact(self) -> bool:
        """True if the admin API is queried for each key that may have been sent as bytes."""
        return self._forms is not None

    def decode(self, inner: InnerMessage, text: str) -> bytes | None:
        """Return the key of one message: the bytes of its text, or the bytes it was sent as."""
        decoded = bytes_of_base64(text) if text else b""
        if self._forms is None or decoded is None:
            return text.encode() if text else None
        form = self._forms.form_of(inner, text)
        if form is KeyForm.BASE64:
            return decoded
        return None if form is KeyForm.NONE else text.encode()

    def slot(self, inner: InnerMessage) -> int:
        """Return the slot that the broker computes for one message; only if `exact`."""
        assert self._slots is not None  # noqa: S101  # only if `exact`
        return self._slots.slot(inner)


class MessageBlock:
    """Messages of one topic partition, in order."""

    def __init__(self, inners: Block, topic: str, partition: int, key_decoder: KeyDecoder) -> None:
        self.inners = inners
        self.topic = topic
        self.partition = partition
        self.key_decoder = key_decoder

    def __len__(self) -> int:
        return len(self.inners)

    def take(self, indexes: list[int]) -> MessageBlock:
        """Return a block of the messages at these indexes."""
        return MessageBlock(self.inners.take(indexes), self.topic, self.partition, self.key_decoder)

    def id_data(self, index: int) -> MessageIdData:
        """Return the id of one message."""
        return decode(self.inners[index].message_id().serialize())

    def batch_size(self, index: int) -> int:
        """Return the batch size of one message; 1 for a message in no batch."""
        return self.id_data(index).batch_size or 1

    def release(self) -> None:
        """Free the messages and their fields; Arrow arrays made from them stay valid."""
        vars(self).clear()

    def numbers(self, name: str) -> NDArray[np.int64]:
        """Return a number of each message as a numpy array; those of more than 63 bits are negative, as in Java."""
        return np.frombuffer(self.inners.numbers(name), np.int64)

    @cached_property
    def positions(self) -> Positions:
        """Ledgers, entries and batch indexes, as numpy arrays; of a chunked message, its last chunk's."""
        return self.numbers("ledger_id"), self.numbers("entry_id"), self.numbers("batch_index")

    @cached_property
    def first_chunks(self) -> dict[int, Position]:
        """Positions of the first chunks, by index; chunked messages only."""
        found = {}
        for index in np.flatnonzero(self.numbers("is_chunked")).tolist():
            first = self.id_data(index).first_chunk
            if first is not None:
                found[index] = Position(first.ledger_id, first.entry_id)
        return found

    @cached_property
    def begin_columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ledgers and entries at which messages begin (their own, or their first chunks'), as numpy arrays."""
        ledger, entry, _ = self.positions
        if self.first_chunks:
            ledger, entry = ledger.copy(), entry.copy()
            for index, first in self.first_chunks.items():
                ledger[index], entry[index] = first.ledger_id, first.entry_id
        return ledger, entry

    @cached_property
    def values(self) -> pa.Array:
        """Payloads, as an Arrow array; null for a null value."""
        payloads = binary_of(self.inners.octets("data"))
        if sizes_of(payloads).all():
            return payloads
        return with_nulls(payloads, self.numbers("has_null_value") != 0)

    @cached_property
    def keys(self) -> pa.Array:
        """Keys as the C++ client returns them, as an Arrow array of bytes; empty for a message without one."""
        return binary_of(self.inners.octets("partition_key"))

    @cached_property
    def key_texts(self) -> list[str]:
        """Keys as the C++ client returns them; empty for a message without one."""
        found: list[str] = self.keys.cast(pa.string()).to_pylist()
        return found

    @cached_property
    def ordering_keys(self) -> pa.Array:
        """Ordering keys, as an Arrow array of bytes; empty for a message without one."""
        return binary_of(self.inners.octets("ordering_key"))

    @property
    def slots(self) -> NDArray[np.int32]:
        """Key slots, as a numpy array."""
        if self.key_decoder.exact:
            return np.fromiter(map(self.key_decoder.slot, self.inners), np.int32, len(self))
        return self.numbers("key_slot").astype(np.int32)
