"""The payload of a batch, written in Python (pure): what the C++ client writes when it makes a batch of messages.

Each message is a 4-byte big-endian length, a `SingleMessageMetadata` of that length and the message's payload. Its
fields: 1 properties, 2 partition_key, 3 payload_size, 5 event_time, 7 ordering_key, 8 sequence_id, 9 null_value.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import InvalidMessageId, InvalidUse

from .protobuf import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


__all__ = [
    "IS_BASE64",
    "NULL_VALUE",
    "PARTITION_KEY",
    "batch_metadata",
    "batch_parts",
    "check_batch_payload",
    "key_fields",
    "option_fields",
    "whole_batch",
]

NULL_VALUE = b"\x48\x01"
"""The field of a message without a value."""

_BYTES = [bytes((number,)) for number in range(256)]
_LENGTHS = [number.to_bytes(4, "big") for number in range(256)]
_EMPTY = b"\x00\x00\x00\x02\x18\x00"
"""A message of no bytes, as it stands in a batch."""


def _varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:  # noqa: PLR2004  # seven bits a byte
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


@lru_cache(4096)
def _size_field(size: int) -> bytes:
    """Give the field of the payload's size, and the tag of the sequence id behind it."""
    return b"\x18" + _varint(size) + b"\x40"


def _bytes_field(tag: bytes, value: bytes) -> bytes:
    return tag + _varint(len(value)) + value


def key_fields(options: Mapping[str, Any]) -> bytes:
    """Write a message's keys."""
    written = b""
    key, ordering = options.get("partition_key"), options.get("ordering_key")
    if key is not None:
        written = _bytes_field(b"\x12", key.encode())
    if ordering is not None:
        written += _bytes_field(b"\x3a", ordering.encode())
    return written


def option_fields(options: Mapping[str, Any]) -> bytes:
    """Write what a message has besides its payload and its sequence id.

    Args:
        options: the official arguments of a send, by name and of the official types; as officially, no properties and
            an event timestamp of 0 are none.
    """
    written = key_fields(options)
    properties = options.get("properties")
    if properties:
        written += b"".join(
            _bytes_field(b"\x0a", _bytes_field(b"\x0a", name.encode()) + _bytes_field(b"\x12", value.encode()))
            for name, value in properties.items()
        )
    if event_timestamp := options.get("event_timestamp"):
        written += b"\x28" + _varint(event_timestamp)
    return written


def batch_parts(contents: Iterable[bytes], ids: Iterable[int], fields: Iterable[bytes] | None = None) -> list[bytes]:
    """Write the messages of a batch.

    Args:
        contents: their payloads.
        ids: their sequence ids.
        fields: what `option_fields` wrote for each.

    Returns:
        The parts of the payload, to be joined.
    """
    parts: list[bytes] = []
    add = parts.append
    upper, tail = -1, b""
    for content, number, more in zip(contents, ids, repeat(b"") if fields is None else fields, strict=False):
        if number >> 7 != upper:  # rarely: ids go up
            upper = number >> 7
            tail = _varint(upper)
        written = more + _size_field(len(content)) + (_BYTES[number & 0x7F | 0x80] + tail if upper else _BYTES[number])
        length = len(written)
        add((_LENGTHS[length] if length < 256 else length.to_bytes(4, "big")) + written)  # noqa: PLR2004  # the table
        add(content)
    return parts


def whole_batch(parts: Sequence[bytes], messages: int, sequence_id: int, keys: bytes) -> bytes:
    """Write the payload that `batch_message` makes one message of.

    Args:
        parts: of the batch.
        messages: how many it has.
        sequence_id: what its entry carries.
        keys: what `key_fields` wrote for its first message: an entry goes by them.
    """
    batch = b"".join(parts)
    metadata = keys + _size_field(len(batch)) + _varint(sequence_id)
    return b"".join((len(metadata).to_bytes(4, "big"), metadata, batch, _EMPTY * (messages - 1)))


PARTITION_KEY, _PAYLOAD_SIZE, IS_BASE64 = 2, 3, 6


def batch_metadata(payload: bytes, size: int) -> list[dict[int, int | bytes]] | None:
    """Read the fields of each message's metadata in a batch; None if this is no batch of that size.

    Each message is a 4-byte big-endian length, a `SingleMessageMetadata` of that length (field 2: key, 3: payload size,
    6: whether the key is base64, 7: ordering key, 8: sequence id) and the payload.
    """
    found = []
    at = 0
    try:
        for _ in range(size):
            length = int.from_bytes(payload[at : at + 4], "big")
            metadata = payload[at + 4 : at + 4 + length]
            if len(metadata) != length:
                return None
            found.append({field: value for field, value, _ in fields(metadata)})
            body = found[-1].get(_PAYLOAD_SIZE, 0)
            at += 4 + length + (body if isinstance(body, int) else 0)
    except InvalidMessageId:
        return None
    return found if at == len(payload) else None


_PROPERTY, _PAYLOAD_SIZE = 1, 3
_MAX_PAYLOAD = (1 << 31) - 1


def check_batch_payload(data: bytes, size: int) -> None:
    """Walk a batch payload as the official parser would, which reads past its end when the lengths lie.

    Each message is a 4-byte big-endian length, a `SingleMessageMetadata` of that length (field 3: payload size),
    and the payload.
    """
    at = 0
    for index in range(size):
        length = int.from_bytes(data[at : at + 4], "big")
        metadata = data[at + 4 : at + 4 + length]
        payload = _payload_size(metadata) if len(metadata) == length and at + 4 <= len(data) else None
        if payload is None or at + 4 + length + payload > len(data):
            raise InvalidUse(f"{len(data)} bytes are not a batch of {size} messages: message {index} does not fit.")
        at += 4 + length + payload


def _payload_size(metadata: bytes) -> int | None:
    size = 0
    try:
        for field, value, _ in fields(metadata, range(_PROPERTY, _PAYLOAD_SIZE + 1)):
            if field == _PROPERTY and isinstance(value, bytes):
                for _ in fields(value):
                    pass
            elif field == _PAYLOAD_SIZE and isinstance(value, int):
                size = value
    except InvalidMessageId:
        return None
    return size if size <= _MAX_PAYLOAD else None
