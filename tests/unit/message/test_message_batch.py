"""Batch payloads: parsed when whole, refused when not, never a crash."""

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
def test_a_whole_batch_is_parsed(payloads):
    """Each message of a well-formed batch comes out, in order, with its batch index."""
    messages = _parse(b"".join(map(_single, payloads)), len(payloads))
    assert [message.data() for message in messages] == payloads
    assert [message.message_id().batch_index() for message in messages] == list(range(len(payloads)))


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(0, 2**32).map(Random))
def test_garbage_is_refused_and_never_crashes(payloads, random):
    """25,000 damaged batches: InvalidUse or parsed messages; the process lives."""
    for garbage in damaged(b"".join(_single(payload, b"k") for payload in payloads), random, 500):
        try:
            _parse(garbage, len(payloads))
        except InvalidUse:
            continue


def test_more_messages_than_there_are_is_refused():
    """Asking for 3 messages of a batch of 2 raises and says which one is missing."""
    with pytest.raises(InvalidUse, match="message 2"):
        _parse(_single(b"a") + _single(b"b"), 3)
