"""The payload of a batch, written in Python (pure): what the C++ client writes when it makes a batch of messages.

Each message is a 4-byte big-endian length, a `SingleMessageMetadata` of that length and the message's payload. Its
fields: 1 properties, 2 partition_key, 3 payload_size, 5 event_time, 7 ordering_key, 8 sequence_id, 9 null_value.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["NULL_VALUE", "batch_parts", "key_fields", "option_fields", "whole_batch"]

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
