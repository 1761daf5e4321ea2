"""Serialized message ids: protobuf `MessageIdData`, read and written without protobuf.

The official client's parser accepts text and ids truncated at a field boundary; this one is strict. Mirrors
`MessageIdImpl.toByteArray` and `fromByteArray` of the Java client::

    1 ledgerId  2 entryId  3 partition  4 batch_index  5 ack_set  6 batch_size  7 first_chunk_message_id

Unknown fields are kept and written back, so that ids of newer brokers survive a round trip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from pulsar_ext.errors import InvalidMessageId

from .protobuf import bytes_field, fields, invalid_id_error, number_field, packed, signed, varint_value

_MAX_BYTES = 64 * 1024
"""Above any real size: the acknowledgement set of a batch of 100,000 messages has 13 KB."""
_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _ACK_SET, _BATCH_SIZE, _FIRST_CHUNK = range(1, 8)
FIRST_CHUNK_TAG = ord(":")
"""Only ids with this octet may have a first chunk; the search for it is fast."""
_LONG = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
_INT = rb"([\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x07])"
_PLAIN = re.compile(rb"\x08%b\x10%b(?:\x18%b)?(?:\x20%b)?(?:\x30%b)?" % (_LONG, _LONG, _INT, _INT, _INT), re.DOTALL)
"""A plain id or a batch id without negative numbers, as nearly all ids are."""


@dataclass(frozen=True, slots=True)
class MessageIdData:
    """The fields of a serialized id; `batch_size` is 0 for an id without a batch."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    ack_set: tuple[int, ...] = ()
    batch_size: int = 0
    first_chunk: MessageIdData | None = None
    unknown: bytes = b""

    def in_partition(self, partition: int) -> Self:
        """Return the id with another partition."""
        first = None if self.first_chunk is None else self.first_chunk.in_partition(partition)
        return replace(self, partition=partition, first_chunk=first)


def decode(data: bytes) -> MessageIdData:
    """Read an id that any client serialized; raise `InvalidMessageId` unless it is one, with a ledger and an entry."""
    if not isinstance(data, bytes | bytearray | memoryview):
        found = type(data).__name__
        raise InvalidMessageId(
            f"A serialized message id must be bytes, got {found}; for its text use MessageId.parse()."
        )
    octets = bytes(data)
    if len(octets) > _MAX_BYTES:
        raise InvalidMessageId(f"{len(octets)} bytes are too many for a message id, which has at most {_MAX_BYTES}")
    if (plain := _PLAIN.fullmatch(octets)) is not None:
        ledger, entry, partition, index, size = plain.groups(b"")
        return MessageIdData(
            varint_value(ledger),
            varint_value(entry),
            varint_value(partition) if partition else -1,
            varint_value(index) if index else -1,
            batch_size=varint_value(size),
        )
    return _decode(octets, nested=False)


def _decode(data: bytes, *, nested: bool) -> MessageIdData:
    values: dict[int, int] = {}
    ack_set: list[int] = []
    first_chunk: MessageIdData | None = None
    unknown = bytearray()
    for field, payload, raw in fields(data, range(_LEDGER, _FIRST_CHUNK + 1)):
        if field > _FIRST_CHUNK:
            unknown += raw
        elif field == _ACK_SET:
            ack_set.extend([signed(payload, 64)] if isinstance(payload, int) else packed(payload))
        elif field == _FIRST_CHUNK:
            if nested or isinstance(payload, int):
                raise invalid_id_error(data, "its first chunk is not an id")
            first_chunk = _decode(payload, nested=True)
        elif isinstance(payload, int):
            values[field] = signed(payload, 64 if field <= _ENTRY else 32)
        else:
            raise invalid_id_error(data, f"field {field} has the wrong type")
    if _LEDGER not in values or _ENTRY not in values:
        raise invalid_id_error(data, "the ledger or the entry is missing")
    return MessageIdData(
        ledger_id=values[_LEDGER],
        entry_id=values[_ENTRY],
        partition=values.get(_PARTITION, -1),
        batch_index=values.get(_BATCH_INDEX, -1),
        ack_set=tuple(ack_set),
        batch_size=values.get(_BATCH_SIZE, 0),
        first_chunk=first_chunk,
        unknown=bytes(unknown),
    )


def encode(data: MessageIdData) -> bytes:
    """Return the bytes of an id as the official client writes them, without fields of default values."""
    out = number_field(_LEDGER, data.ledger_id) + number_field(_ENTRY, data.entry_id)
    if data.partition != -1:
        out += number_field(_PARTITION, data.partition)
    if data.batch_index != -1:
        out += number_field(_BATCH_INDEX, data.batch_index)
    for word in data.ack_set:
        out += number_field(_ACK_SET, word)
    if data.batch_size:
        out += number_field(_BATCH_SIZE, data.batch_size)
    if data.first_chunk is not None:
        out += bytes_field(_FIRST_CHUNK, encode(data.first_chunk))
    return out + data.unknown


def has_first_chunk(data: bytes) -> bool:
    """Return whether bytes from the C++ client end with a first chunk: its tag, and exactly its length."""
    at = data.find(b":", 2) if FIRST_CHUNK_TAG in data else -1
    while at >= 0:
        if at + 1 < len(data) and data[at + 1] == len(data) - at - 2:
            return decode(data).first_chunk is not None
        at = data.find(b":", at + 1)
    return False


def is_plain(data: bytes) -> bool:
    """Return whether bytes are a plain id or a batch id exactly as the C++ client writes it."""
    return _PLAIN.fullmatch(data) is not None
