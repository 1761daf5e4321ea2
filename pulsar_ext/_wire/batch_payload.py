"""Batch payloads, written and read in Python (pure), in the format of the C++ client.

Each message is a 4-byte big-endian length, a `SingleMessageMetadata` of that length, and the message's payload.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Self

from pulsar_ext.errors import InvalidMessageId, InvalidUse

from .protobuf import bytes_field, fields, number_field, varint

Options = Mapping[str, Any]
"""Official arguments of a send, by name."""

_PROPERTIES, PARTITION_KEY, _PAYLOAD_SIZE, _EVENT_TIME, IS_BASE64, ORDERING_KEY, SEQUENCE_ID = 1, 2, 3, 5, 6, 7, 8
"""Field numbers of `SingleMessageMetadata`."""

NULL_VALUE = b"\x48\x01"
"""The encoded field 9 of a message without a value."""

_MAX_PAYLOAD = (1 << 31) - 1

_BYTES = [bytes((number,)) for number in range(256)]
_LENGTHS = [number.to_bytes(4, "big") for number in range(256)]
_EMPTY = b"\x00\x00\x00\x02\x18\x00"
"""An empty message in a batch."""
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)


class Base64Key(str):
    """A key of bytes, encoded as base64 and sent with the base64 flag."""

    __slots__ = ()

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the key of the given bytes."""
        return cls(base64.b64encode(data).decode())


def bytes_of_base64(text: str) -> bytes | None:
    """Return the bytes that Java's client would encode as this text, or None if there are no such bytes."""
    if not text or len(text) % 4 or not _BASE64.fullmatch(text):
        return None
    decoded = base64.b64decode(text)
    return decoded if base64.b64encode(decoded).decode() == text else None


@lru_cache(4096)
def size_field(size: int) -> bytes:
    """Return the field of the payload size, followed by the tag of the sequence id."""
    return b"\x18" + varint(size) + b"\x40"


def key_fields(options: Options) -> bytes:
    """Return a message's encoded keys."""
    written = b""
    key, ordering = options.get("partition_key"), options.get("ordering_key")
    if key is not None:
        written = bytes_field(PARTITION_KEY, key.encode())
        if type(key) is Base64Key:
            written += number_field(IS_BASE64, 1)
    if ordering is not None:
        written += bytes_field(ORDERING_KEY, ordering.encode())
    return written


def option_fields(options: Options) -> bytes:
    """Return the encoded official options of a send; empty properties and an event timestamp of 0 are omitted."""
    written = key_fields(options)
    properties = options.get("properties")
    if properties:
        written += b"".join(property_field(name, value) for name, value in properties.items())
    if event_timestamp := options.get("event_timestamp"):
        written += number_field(_EVENT_TIME, event_timestamp)
    return written


def property_field(name: str, value: str) -> bytes:
    """Return an encoded property."""
    return bytes_field(_PROPERTIES, bytes_field(1, name.encode()) + bytes_field(2, value.encode()))


def batch_parts(contents: Iterable[bytes], ids: Iterable[int], fields: Iterable[bytes] | None = None) -> list[bytes]:
    """Return the parts of a batch's payload; `fields` are the results of `option_fields`, `ids` the sequence ids."""
    parts: list[bytes] = []
    add = parts.append
    upper, tail = -1, b""
    for content, number, more in zip(contents, ids, repeat(b"") if fields is None else fields, strict=False):
        if number >> 7 != upper:  # rare, because ids ascend
            upper = number >> 7
            tail = varint(upper)
        written = more + size_field(len(content)) + (_BYTES[number & 0x7F | 0x80] + tail if upper else _BYTES[number])
        length = len(written)
        add((_LENGTHS[length] if length < 256 else length.to_bytes(4, "big")) + written)  # noqa: PLR2004  # the table
        add(content)
    return parts


def whole_batch(parts: Sequence[bytes | memoryview], messages: int, sequence_id: int, keys: bytes) -> bytes:
    """Return the payload from which `batch_message` makes one C++ message.

    `keys` are the result of `key_fields` for the first message, which routes the entry, and the entry's own properties.
    """
    batch = b"".join(parts)
    metadata = keys + size_field(len(batch)) + varint(sequence_id)
    return b"".join((len(metadata).to_bytes(4, "big"), metadata, batch, _EMPTY * (messages - 1)))


def read_batch(payload: bytes, size: int) -> tuple[list[dict[int, int | bytes]], int]:
    """Return the fields of each message's `SingleMessageMetadata` by number, and the number of bytes read.

    Unlike the official parser, it never reads past the end; a message that does not fit raises `InvalidUse`.
    """
    found = []
    at = 0
    for index in range(size):
        start = at + 4
        body = start + int.from_bytes(payload[at:start], "big")
        metadata = _metadata(payload[start:body]) if body <= len(payload) else None
        if metadata is not None:
            found.append(metadata)
            at = body + metadata.get(_PAYLOAD_SIZE, 0)  # type: ignore[operator]  # `_metadata` rejects bytes
        if metadata is None or at > len(payload):
            raise InvalidUse(f"{len(payload)} bytes are not a batch of {size} messages: message {index} does not fit")
    return found, at


def batch_metadata(payload: bytes, size: int) -> list[dict[int, int | bytes]] | None:
    """Return the result of `read_batch` for each message; None if this is not a batch of exactly that size."""
    try:
        found, end = read_batch(payload, size)
    except InvalidUse:
        return None
    return found if end == len(payload) else None


def _metadata(octets: bytes) -> dict[int, int | bytes] | None:
    found: dict[int, int | bytes] = {}
    try:
        for field, value, _ in fields(octets, range(_PROPERTIES, _PAYLOAD_SIZE + 1)):
            if field == _PROPERTIES and isinstance(value, bytes):
                for _ in fields(value):
                    pass
            found[field] = value
    except InvalidMessageId:
        return None
    size = found.get(_PAYLOAD_SIZE, 0)
    return found if isinstance(size, int) and size <= _MAX_PAYLOAD else None
