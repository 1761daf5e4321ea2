"""Decoding of Java's primitive schemas."""

from __future__ import annotations

import pickle
import struct
from datetime import UTC, date, datetime, time

import pytest

from pulsar_ext.schema.auto_consume import PRIMITIVES, NanoDatetime, NanoTime


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        ("BOOLEAN", b"\x01", True),
        ("BOOLEAN", b"\x00", False),
        ("INT8", b"\xfb", -5),
        ("INT64", struct.pack(">q", -7), -7),
        ("DOUBLE", struct.pack(">d", 1e300), 1e300),
        ("DATE", struct.pack(">q", 1_700_000_000_123), datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        ("TIMESTAMP", struct.pack(">q", -1), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        ("TIME", struct.pack(">q", 3_600_000), time(1)),
        ("TIME", struct.pack(">q", -1), time(23, 59, 59, 999_000)),
        ("INSTANT", struct.pack(">qi", -1, 5000), datetime(1969, 12, 31, 23, 59, 59, 5, UTC)),
        ("LOCAL_DATE", struct.pack(">q", 21_916), date(2030, 1, 2)),
        ("LOCAL_DATE", struct.pack(">q", -25_566), date(1900, 1, 2)),
        ("LOCAL_TIME", struct.pack(">q", 3_723_000_004_000), time(1, 2, 3, 4)),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 21_916, 1_000), datetime(2030, 1, 2, 0, 0, 0, 1)),  # noqa: DTZ001
    ],
)
def test_java_primitives_are_decoded(kind, payload, value):
    """Each payload is decoded to the expected value and type."""
    found = PRIMITIVES[kind](payload)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("kind", "payload", "cls"),
    [
        ("INSTANT", struct.pack(">qi", 1, 123_456_789), NanoDatetime),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 0, 1_123_456_789), NanoDatetime),
        ("LOCAL_TIME", struct.pack(">q", 1_123_456_789), NanoTime),
    ],
)
def test_nanoseconds_survive_and_pickle(kind, payload, cls):
    """Nanoseconds are in `nanosecond`, even after pickling."""
    found = PRIMITIVES[kind](payload)
    for value in (found, pickle.loads(pickle.dumps(found))):
        assert (type(value), value.second, value.microsecond, value.nanosecond) == (cls, 1, 123_456, 789)
    assert found.tzinfo is (UTC if kind == "INSTANT" else None)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("BOOLEAN", b""),
        ("BOOLEAN", b"\x00\x00"),
        ("LOCAL_TIME", struct.pack(">q", -1)),
        ("LOCAL_DATE", struct.pack(">q", 2**40)),
        ("INSTANT", bytes(11)),
        ("TIMESTAMP", struct.pack(">q", 2**62)),
    ],
)
def test_invalid_primitive_payload_raises(kind, payload):
    """Payloads of another length, and times that Python does not have, raise."""
    with pytest.raises((struct.error, ValueError, OverflowError)):
        PRIMITIVES[kind](payload)
