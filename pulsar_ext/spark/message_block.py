"""Blocks of messages that a reader received: their columns, and these as arrays of numpy and Arrow, each read once.

The native core reads the columns, or else the classes and functions here, field by field through the binding.

The C++ client returns a key that was sent as bytes in base64, and a text that is valid base64 unchanged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pulsar_ext._native import core
from pulsar_ext._native.messages import InnerMessage, InnerReader, sequence_id_of
from pulsar_ext._native.results import Timeout
from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext._wire.message_id_data import MessageIdData, decode, has_first_chunk
from pulsar_ext._wire.protobuf import signed
from pulsar_ext.ids.position import Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, SlotFilter
from pulsar_ext.key_shared.hashing import KeyForm, KeyForms, key_slot

from .delivery_account import Positions

if TYPE_CHECKING:
    Numbers = bytes | array[int]
    Octets = tuple[Numbers, bytes]
    """Column of bytes in Arrow's layout: 32-bit offsets of each value and of the end, and all values."""


_NEXT_MILLIS: Final = 10
_OF_IDS: Final = ("ledger_id", "entry_id", "batch_index")


class Block(list[InnerMessage]):
    """C++ messages, and their fields as columns."""

    def take(self, indexes: list[int], /) -> Block:
        """Return a block of the messages at these indexes, which ascend."""
        return Block([self[index] for index in indexes])

    def numbers(self, name: str, /) -> Numbers:
        """Return a number of each message, 64 bits each, as a buffer."""
        if name in _OF_IDS:
            return array("q", map(itemgetter(_OF_IDS.index(name)), self._positions))
        if name == "is_chunked":
            positions = zip(self._positions, self, strict=True)
            return array("q", [one[2] < 0 and has_first_chunk(_id_bytes(inner)) for one, inner in positions])
        if name == "sequence_id":
            return array("Q", map(sequence_id_of, self, map(bytes.decode, self._values("producer_name"))))
        if name == "key_slot":
            keys = zip(self._values("ordering_key"), self._values("partition_key"), self, strict=True)
            return array("q", [key_slot(ordering or key or _keyless(inner)) for ordering, key, inner in keys])
        return array("Q", map(getattr(InnerMessage, name), self))

    def octets(self, name: str, /) -> Octets:
        """Return a field of each message as bytes."""
        return _column(self._values(name))

    def ids(self) -> Octets:
        """Return the serialized ids."""
        return _column(map(_id_bytes, self))

    def properties(self) -> tuple[Numbers, Octets, Octets]:
        """Return the offsets of the properties of each message and of their end, their names and their values."""
        found = list(map(InnerMessage.properties, self))
        names = _column(name.encode() for one in found for name in one)
        return _offsets(map(len, found)), names, _column(value.encode() for one in found for value in one.values())

    def _values(self, name: str) -> list[bytes]:
        """Return a field of each message, fetched once."""
        if name not in vars(self):
            read = getattr(InnerMessage, name)
            try:
                vars(self)[name] = list(map(str.encode if name != "data" else bytes, map(read, self)))
            except UnicodeDecodeError:
                vars(self)[name] = [_octets_of(read, inner) for inner in self]
        found: list[bytes] = vars(self)[name]
        return found

    @cached_property
    def _positions(self) -> list[tuple[int, int, int]]:
        """Ledger, entry and batch index of each message; the ids at the ends of a whole batch determine the others."""
        found: list[tuple[int, int, int]] = []
        while (at := len(found)) < len(self):
            ledger, entry, index = _position(self[at])
            size = decode(_id_bytes(self[at])).batch_size if index >= 0 else 0
            count = max(min(size - index, len(self) - at), 1)
            if _position(self[at + count - 1]) != (ledger, entry, index + count - 1):
                return list(map(_position, self))
            found.extend(zip(repeat(ledger), repeat(entry), range(index, index + count)))
        return found


def read_block(reader: InnerReader, most: int, most_bytes: int, milliseconds: int, /) -> Block:
    """Return messages up to a number and a size; none if the first exceeds a timeout, while the next have 10 ms."""
    block = Block()
    with suppress(Timeout):
        while len(block) < most and most_bytes > 0:
            block.append(inner := reader.read_next(_NEXT_MILLIS if block else milliseconds))
            most_bytes -= inner.length()
    return block


def _octets_of(read: Callable[[InnerMessage], str], inner: InnerMessage) -> bytes:
    try:
        return read(inner).encode()
    except UnicodeDecodeError as error:
        return error.object


def _position(inner: InnerMessage) -> tuple[int, int, int]:
    message_id = inner.message_id()
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def _id_bytes(inner: InnerMessage) -> bytes:
    return inner.message_id().serialize()


def _keyless(inner: InnerMessage) -> str:
    """Return the text by which the broker computes the slot of a message without a key."""
    name = inner.producer_name()
    return f"{name}-{signed(sequence_id_of(inner, name), 64)}"


def _column(values: Iterable[bytes]) -> Octets:
    every = list(values)
    return _offsets(map(len, every)), b"".join(every)


def _offsets(counts: Iterable[int]) -> array[int]:
    return array("i", accumulate(counts, initial=0))


if not TYPE_CHECKING and core.IS_USED:
    read_block = core.read_block


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


class MessageBlock:
    """Messages of one topic partition, in order; `key_forms` is None unless option `keyForms` is "exact"."""

    def __init__(self, inners: Block, topic: str, partition: int, key_forms: KeyForms | None) -> None:
        self.inners = inners
        self.topic = topic
        self.partition = partition
        self.key_forms = key_forms

    def __len__(self) -> int:
        return len(self.inners)

    def take(self, indexes: list[int]) -> MessageBlock:
        """Return a block of the messages at these indexes."""
        return MessageBlock(self.inners.take(indexes), self.topic, self.partition, self.key_forms)

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

    def exact_keys(self, forms: KeyForms) -> Iterator[bytes | None]:
        """Yield the key of each message: the bytes of its text, or the bytes it was sent as; None without one."""
        for inner, text in zip(self.inners, self.keys.cast(pa.string()).to_pylist(), strict=True):
            decoded = bytes_of_base64(text) if text else b""
            form = KeyForm.TEXT if decoded is None else forms.form_of(inner, text)
            yield {KeyForm.TEXT: text.encode(), KeyForm.BASE64: decoded, KeyForm.NONE: None}[form]

    @cached_property
    def ordering_keys(self) -> pa.Array:
        """Ordering keys, as an Arrow array of bytes; empty for a message without one."""
        return binary_of(self.inners.octets("ordering_key"))

    @property
    def slots(self) -> NDArray[np.int32]:
        """Key slots, as a numpy array."""
        if self.key_forms is not None:
            slot = SlotFilter(KeyHashRanges.full(), self.key_forms).slot
            return np.fromiter(map(slot, self.inners), np.int32, len(self))
        return self.numbers("key_slot").astype(np.int32)
