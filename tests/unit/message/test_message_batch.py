"""Batch payloads: valid ones are parsed, invalid ones raise, and none crashes."""

from __future__ import annotations

from random import Random

import pytest
from damage import damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext import InvalidUse, MessageBatch, MessageId


def _single(payload: bytes, key: bytes = b"") -> bytes:
    metadata = b"\x18" + _varint(len(payload))
    if key:
        metadata += b"\x12" + _varint(len(key)) + key
    return len(metadata).to_bytes(4, "big") + metadata + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _parse(data: bytes, size: int):
    return MessageBatch().with_message_id(MessageId(0, 1, 2)).parse_from(data, size)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_valid_batch_is_parsed(payloads):
    """Each message of a valid batch is returned, in order, with its batch index."""
    messages = _parse(b"".join(map(_single, payloads)), len(payloads))
    assert [message.data() for message in messages] == payloads
    assert [message.message_id().batch_index() for message in messages] == list(range(len(payloads)))


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(0, 2**32).map(Random))
def test_invalid_batches_raise_and_never_crash(payloads, random):
    """Each of 25,000 damaged batches raises InvalidUse or is parsed, and the process survives."""
    for garbage in damaged(b"".join(_single(payload, b"k") for payload in payloads), random, 500):
        try:
            _parse(garbage, len(payloads))
        except InvalidUse:
            continue


def test_too_high_message_count_raises():
    """Parsing 3 messages of a batch of 2 raises and names the missing one."""
    with pytest.raises(InvalidUse, match="message 2"):
        _parse(_single(b"a") + _single(b"b"), 3)
