"""Record of the messages that a reader of a group has delivered: exact, and in little memory."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.key_shared.reader_group import DeliveryRecord

ENTRIES = st.tuples(st.integers(-1, 1), st.integers(1, 2), st.sampled_from([0, 1, 7, 8, 32_767, 32_768, 40_000]))


def size_of(entry):
    """Return the number of messages in the batch of an entry; 0 for an unbatched message."""
    return (0, 0, 1, 3)[entry[2] % 4]


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 2)), max_size=60))
def test_record_is_exact(noted):
    """The record is exact for any order of entries and messages of batches, with repetitions."""
    delivered, expected = DeliveryRecord(), set()
    for entry, at in noted:
        size = size_of(entry)
        index = at % size if size else -1
        assert delivered.has(entry, index) is ((entry, index) in expected)
        delivered.note(entry, index, size)
        expected.add((entry, index))
    for entry in {entry for entry, _ in noted}:
        for index in range(size_of(entry)) if size_of(entry) else (-1,):
            assert delivered.has(entry, index) is ((entry, index) in expected)


def test_million_entries_fit_into_250_kb():
    """A quarter of the entries of a ledger, in random order, take one bit for each entry of the ledger."""
    delivered = DeliveryRecord()
    entries = random.Random(1).sample(range(1_000_000), 250_000)
    for entry in entries:
        delivered.note((-1, 5, entry), -1, 0)
    assert delivered._bytes < 250_000
    assert all(delivered.has((-1, 5, entry), -1) for entry in entries)


def test_whole_batches_are_recorded_as_entries():
    """Completely delivered batches are recorded as entries, not by their messages."""
    delivered = DeliveryRecord()
    for entry in range(1_000):
        for index in range(10):
            delivered.note((0, 5, entry), index, 10)
    assert delivered._bytes < 1_000
    assert not delivered._partial


def test_record_drops_the_oldest_at_its_limits():
    """With many small ledgers and many partial batches, the record keeps the latest and stays within its limits."""
    delivered = DeliveryRecord(max_bytes=10_000, max_partial=50)
    for ledger in range(1_000):
        delivered.note((-1, ledger, 3), -1, 0)
        delivered.note((-1, ledger, 4), 0, 10)
        assert delivered._bytes <= 10_000
        assert len(delivered._partial) <= 50
    assert not delivered.has((-1, 0, 3), -1)
    assert all(delivered.has((-1, ledger, 3), -1) for ledger in range(970, 1_000))
    assert all(delivered.has((-1, ledger, 4), 0) for ledger in range(950, 1_000))
