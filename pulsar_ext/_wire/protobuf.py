"""Protobuf fields, read and written (pure), as far as message ids and batches need them."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_ext.errors import InvalidMessageId

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_TAG, _TAG__BYTES = (1 << 32) - 1, 5
_MASK64 = (1 << 64) - 1
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def fields(data: bytes, known: range = range(0)) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield each field's number, its value (an int for a varint, else bytes) and its encoding.

    Fields of the numbers `known` never have a fixed width.
    """
    at = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        if not 8 <= tag <= _MAX_TAG or at - start > _TAG__BYTES:  # noqa: PLR2004  # field 1
            raise invalid_id_error(data, "a field's number is out of range")
        payload, at = _read_payload(data, at, tag & 7)
        if tag & 7 in (_FIXED64, _FIXED32) and tag >> 3 in known:
            raise invalid_id_error(data, f"field {tag >> 3} has the wrong type")
        yield tag >> 3, payload, data[start:at]


def invalid_id_error(data: bytes, why: str) -> InvalidMessageId:
    """Return the error for malformed bytes."""
    return InvalidMessageId(f"{len(data)} bytes ({data[:24].hex()}…) are not a message id: {why}.")


def varint_value(octets: bytes) -> int:
    """Return the number that valid octets of a varint encode; 0 for none."""
    value = 0
    for octet in reversed(octets):
        value = value << 7 | octet & 0x7F
    return value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise invalid_id_error(data, "it ends inside a varint")
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:  # noqa: PLR2004  # the continuation bit
            if value > _MASK64:
                raise invalid_id_error(data, "a varint has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004  # ten octets hold 64 bits
            raise invalid_id_error(data, "a varint has more than 64 bits")


def _read_payload(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return _read_varint(data, at)
    if kind == _BYTES:
        length, at = _read_varint(data, at)
    elif kind in (_FIXED64, _FIXED32):
        length = 8 if kind == _FIXED64 else 4
    else:
        raise invalid_id_error(data, f"wire type {kind} is unknown")
    if at + length > len(data):
        raise invalid_id_error(data, "it ends inside a field")
    return data[at : at + length], at + length


def packed(data: bytes) -> list[int]:
    """Return the values of a packed field of signed 64-bit integers."""
    words = []
    at = 0
    while at < len(data):
        word, at = _read_varint(data, at)
        words.append(signed(word, 64))
    return words


def signed(value: int, bits: int) -> int:
    """Return an integer read as two's complement with `bits` bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def varint(value: int) -> bytes:
    """Return an encoded varint; a negative value is encoded as 64-bit two's complement."""
    if 0 <= value < 0x80:  # noqa: PLR2004  # seven bits a byte
        return _ONE_BYTE[value]
    value &= _MASK64
    octets = bytearray()
    while value >= 0x80:  # noqa: PLR2004  # seven bits a byte
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def number_field(number: int, value: int) -> bytes:
    """Return an encoded varint field, number 1 to 15."""
    return _ONE_BYTE[number << 3 | _VARINT] + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return an encoded field of bytes, text or a nested message, number 1 to 15."""
    return bytes_field_header(number, len(value)) + value


def bytes_field_header(number: int, length: int) -> bytes:
    """Return the tag and length of a field of `length` bytes, number 1 to 15."""
    return _ONE_BYTE[number << 3 | _BYTES] + varint(length)
