"""Reading and writing protobuf fields (pure), as far as message ids and batches need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.errors import InvalidMessageId

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["broken", "bytes_field", "fields", "number_field", "packed", "signed", "varint"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_TAG, _TAG__BYTES = (1 << 32) - 1, 5
_MASK64 = (1 << 64) - 1
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


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
        if not 8 <= tag <= _MAX_TAG or at - start > _TAG__BYTES:  # noqa: PLR2004  # field 1
            raise broken(data, "a field's number is out of range")
        payload, at = _read_payload(data, at, tag & 7)
        if tag & 7 in (_FIXED64, _FIXED32) and tag >> 3 in known:
            raise broken(data, f"field {tag >> 3} has the wrong type")
        yield tag >> 3, payload, data[start:at]


def broken(data: bytes, why: str) -> InvalidMessageId:
    """Make the error about bytes that cannot be read."""
    return InvalidMessageId(f"{len(data)} bytes ({data[:24].hex()}…) are not a message id: {why}.")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise broken(data, "they end inside a number")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:  # noqa: PLR2004  # the continuation bit
            if value > _MASK64:
                raise broken(data, "a number has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004  # ten octets hold 64 bits
            raise broken(data, "a number has more than 64 bits")


def _read_payload(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return _read_varint(data, at)
    if kind == _BYTES:
        length, at = _read_varint(data, at)
    elif kind in (_FIXED64, _FIXED32):
        length = 8 if kind == _FIXED64 else 4
    else:
        raise broken(data, f"wire type {kind} is unknown")
    if at + length > len(data):
        raise broken(data, "they end inside a field")
    return data[at : at + length], at + length


def packed(data: bytes) -> list[int]:
    """Read a packed field of 64-bit numbers."""
    words = []
    at = 0
    while at < len(data):
        word, at = _read_varint(data, at)
        words.append(signed(word, 64))
    return words


def signed(value: int, bits: int) -> int:
    """Read a number as the two's complement of so many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def varint(value: int) -> bytes:
    """Write a number; a negative one as the 64 bits of its two's complement, as protobuf does."""
    if 0 <= value < 0x80:  # noqa: PLR2004  # seven bits a byte
        return _ONE_BYTE[value]
    value &= _MASK64
    octets = bytearray()
    while value >= 0x80:  # noqa: PLR2004  # likewise
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def number_field(number: int, value: int) -> bytes:
    """Write a field, number 1 to 15, that is a number."""
    return _ONE_BYTE[number << 3 | _VARINT] + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Write a field, number 1 to 15, of bytes, text or a nested message."""
    return bytes_head(number, len(value)) + value


def bytes_head(number: int, length: int) -> bytes:
    """Write what stands in front of the value of a field, number 1 to 15, of so many bytes."""
    return _ONE_BYTE[number << 3 | _BYTES] + varint(length)
