"""The bytes of a message id: protobuf `MessageIdData`, read and written without protobuf.

The official client's parser accepts text, ignores what follows a truncation at a field boundary and crashes nothing
only by luck; this one is strict. It mirrors `MessageIdImpl.toByteArray` and `fromByteArray` of the Java client::

    1 ledgerId  2 entryId  3 partition  4 batch_index  5 ack_set  6 batch_size  7 first_chunk_message_id

Fields it does not know are kept and written back, so an id of a newer broker survives a round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import InvalidMessageId

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MessageIdData", "decode", "encode", "fields"]

_MAX_BYTES = 64 * 1024
"""More than any id needs: an acknowledgement set of a batch of 100,000 messages is 13 KB."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_TAG, _TAG_BYTES = (1 << 32) - 1, 5
_MASK64 = (1 << 64) - 1
_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _ACK_SET, _BATCH_SIZE, _FIRST_CHUNK = range(1, 8)


@dataclass(frozen=True, slots=True)
class MessageIdData:
    """The fields of one serialized id.

    `ledger_id` and `entry_id` are signed 64 bit, as both clients treat them (-1 and -1 is the earliest id);
    `batch_size` is 0 when the id is not of a batch.
    """

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    ack_set: tuple[int, ...] = ()
    batch_size: int = 0
    first_chunk: MessageIdData | None = None
    unknown: bytes = b""


def decode(data: bytes) -> MessageIdData:
    """Read a serialized id.

    Args:
        data: what `serialize()` of any client returned.

    Raises:
        InvalidMessageId: if `data` is not exactly one well-formed `MessageIdData` with a ledger and an entry.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        found = type(data).__name__
        raise InvalidMessageId(f"A serialized message id is bytes, not {found}; for its text use MessageId.parse().")
    octets = bytes(data)
    if len(octets) > _MAX_BYTES:
        raise InvalidMessageId(f"{len(octets)} bytes cannot be a message id: the largest one has {_MAX_BYTES}.")
    return _decode(octets, nested=False)


def fields(data: bytes, known: range = range(0)) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Walk the fields of any protobuf message.

    Args:
        data: the message.
        known: numbers of fields that are never of a fixed width.

    Yields:
        The field's number, its value (an int for a varint, else its bytes) and its encoding as it stands in `data`.

    Raises:
        InvalidMessageId: if `data` is not well-formed protobuf; groups count as such.
    """
    at = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        if not 8 <= tag <= _MAX_TAG or at - start > _TAG_BYTES:  # noqa: PLR2004  # field 1
            raise _broken(data, "a field's number is out of range")
        payload, at = _read_payload(data, at, tag & 7)
        if tag & 7 in (_FIXED64, _FIXED32) and tag >> 3 in known:
            raise _broken(data, f"field {tag >> 3} has the wrong type")
        yield tag >> 3, payload, data[start:at]


def _decode(data: bytes, *, nested: bool) -> MessageIdData:
    values: dict[int, int] = {}
    ack_set: list[int] = []
    first_chunk: MessageIdData | None = None
    unknown = bytearray()
    for field, payload, raw in fields(data, range(_LEDGER, _FIRST_CHUNK + 1)):
        if field > _FIRST_CHUNK:
            unknown += raw
        elif field == _ACK_SET:
            ack_set.extend([_signed(payload, 64)] if isinstance(payload, int) else _packed(payload))
        elif field == _FIRST_CHUNK:
            if nested or isinstance(payload, int):
                raise _broken(data, "its first chunk is not an id")
            first_chunk = _decode(payload, nested=True)
        elif isinstance(payload, int):
            values[field] = _signed(payload, 64 if field <= _ENTRY else 32)
        else:
            raise _broken(data, f"field {field} is not a number")
    if _LEDGER not in values or _ENTRY not in values:
        raise _broken(data, "it names no ledger or no entry")
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
    """Write an id as the official client does: defaults (-1, an empty batch) are left out."""
    out = bytearray()
    _put(out, _LEDGER, data.ledger_id)
    _put(out, _ENTRY, data.entry_id)
    if data.partition != -1:
        _put(out, _PARTITION, data.partition)
    if data.batch_index != -1:
        _put(out, _BATCH_INDEX, data.batch_index)
    for word in data.ack_set:
        _put(out, _ACK_SET, word)
    if data.batch_size:
        _put(out, _BATCH_SIZE, data.batch_size)
    if data.first_chunk is not None:
        nested = encode(data.first_chunk)
        _put_varint(out, _FIRST_CHUNK << 3 | _BYTES)
        _put_varint(out, len(nested))
        out += nested
    return bytes(out + data.unknown)


def _broken(data: bytes, why: str) -> InvalidMessageId:
    return InvalidMessageId(f"{len(data)} bytes ({data[:24].hex()}…) are not a message id: {why}.")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise _broken(data, "they end inside a number")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:  # noqa: PLR2004  # the continuation bit
            if value > _MASK64:
                raise _broken(data, "a number has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004  # ten octets hold 64 bits
            raise _broken(data, "a number has more than 64 bits")


def _read_payload(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return _read_varint(data, at)
    if kind == _BYTES:
        length, at = _read_varint(data, at)
    elif kind in (_FIXED64, _FIXED32):
        length = 8 if kind == _FIXED64 else 4
    else:
        raise _broken(data, f"wire type {kind} is unknown")
    if at + length > len(data):
        raise _broken(data, "they end inside a field")
    return data[at : at + length], at + length


def _packed(data: bytes) -> list[int]:
    words = []
    at = 0
    while at < len(data):
        word, at = _read_varint(data, at)
        words.append(_signed(word, 64))
    return words


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _put(out: bytearray, field: int, value: int) -> None:
    _put_varint(out, field << 3 | _VARINT)
    _put_varint(out, value & _MASK64)


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:  # noqa: PLR2004  # the continuation bit
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
