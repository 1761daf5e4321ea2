"""What a reader of a group remembers of what it has handed out: exactly, and in little memory."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.key_shared.reader_group import HandedOut

ENTRIES = st.tuples(st.integers(-1, 1), st.integers(1, 2), st.sampled_from([0, 1, 7, 8, 32_767, 32_768, 40_000]))


def size_of(entry):
    """How many messages the batch of an entry has; 0 for none."""
    return (0, 0, 1, 3)[entry[2] % 4]


@given(st.lists(st.tuples(ENTRIES, st.integers(0, 2)), max_size=60))
def test_it_has_exactly_what_was_noted(noted):
    """In whatever order entries and messages of batches come, and come again, it has them, and nothing else."""
    handed_out, expected = HandedOut(), set()
    for entry, at in noted:
        size = size_of(entry)
        index = at % size if size else -1
        assert handed_out.has(entry, index) is ((entry, index) in expected)
        handed_out.note(entry, index, size)
        expected.add((entry, index))
    for entry in {entry for entry, _ in noted}:
        for index in range(size_of(entry)) if size_of(entry) else (-1,):
            assert handed_out.has(entry, index) is ((entry, index) in expected)


def test_a_million_entries_take_less_than_a_quarter_of_a_megabyte():
    """A quarter of the entries of a ledger, in no order, take a bit for each of all its entries."""
    handed_out = HandedOut()
    entries = random.Random(1).sample(range(1_000_000), 250_000)
    for entry in entries:
        handed_out.note((-1, 5, entry), -1, 0)
    assert handed_out.size[0] < 250_000
    assert all(handed_out.has((-1, 5, entry), -1) for entry in entries)


def test_batches_that_are_handed_out_whole_are_as_small():
    """No batch is remembered by its messages once all were handed out."""
    handed_out = HandedOut()
    for entry in range(1_000):
        for index in range(10):
            handed_out.note((0, 5, entry), index, 10)
    assert handed_out.size[0] < 1_000
    assert handed_out.size[1] == 0


def test_the_memory_is_bounded_and_forgets_what_is_oldest():
    """Many small ledgers and many batches that never end keep within the bound, and the latest of each are known."""
    handed_out = HandedOut(most_bytes=10_000, most_begun=50)
    for ledger in range(1_000):
        handed_out.note((-1, ledger, 3), -1, 0)
        handed_out.note((-1, ledger, 4), 0, 10)
        assert handed_out.size[0] <= 10_000
        assert handed_out.size[1] <= 50
    assert not handed_out.has((-1, 0, 3), -1)
    assert all(handed_out.has((-1, ledger, 3), -1) for ledger in range(970, 1_000))
    assert all(handed_out.has((-1, ledger, 4), 0) for ledger in range(950, 1_000))
