"""position_after: the broker's walk over its ledgers, against a list of every entry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import InternalStats
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.position import Ledgers, Position, position_after

_SIZES = st.dictionaries(st.integers(0, 40), st.integers(0, 6), max_size=8)
_POSITIONS = st.builds(Position, st.integers(-1, 41), st.integers(-1, 8))


def _entries(sizes):
    return [Position(ledger, entry) for ledger in sorted(sizes) for entry in range(sizes[ledger])]


def _model(sizes, start, count):
    """Return the count-th of the entries after the start, or the last entry."""
    later = [entry for entry in _entries(sizes) if entry > start]
    return start if count == 0 or not later else later[min(count, len(later)) - 1]


@given(_SIZES, _POSITIONS, st.integers(0, 60))
def test_model(sizes, start, count):
    """The result equals a count one by one, for any ledgers, with empty ones and trimmed starts."""
    assert position_after(sizes.items(), start, count) == _model(sizes, start, count)


@given(_SIZES, _POSITIONS, st.integers(0, 20), st.integers(0, 20))
def test_two_walks_equal_one(sizes, start, one, two):
    """Two walks, the second from the end of the first, equal one walk over the sum."""
    middle = position_after(sizes.items(), start, one)
    assert position_after(sizes.items(), middle, two) == position_after(sizes.items(), start, one + two)


@given(_SIZES, _POSITIONS, _POSITIONS)
def test_ledgers_agree_with_list_of_entries(sizes, one, other):
    """Counting, numbering and stepping over entries agree with the list of entries."""
    ledgers, entries = Ledgers(sizes.items()), _entries(sizes)
    low, high = min(one, other), max(one, other)
    assert ledgers.between(low, high) == sum(low < entry <= high for entry in entries)
    assert ledgers.next(one) == next((entry for entry in entries if entry > one), None)
    assert [ledgers.number(nth) for nth in range(len(entries) + 2)] == [None, *entries, None]
    assert ledgers.last == (entries[-1] if entries else None)
    assert _entries(dict(ledgers)) == entries
    for count in range(len(entries) + 2):
        assert _entries(dict(ledgers.first(count))) == entries[:count]


def _stats(ledgers, current):
    return InternalStats.from_json(
        {
            "ledgers": [{"ledgerId": ledger, "entries": entries, "size": 0} for ledger, entries in ledgers],
            "lastConfirmedEntry": "0:0",
            "currentLedgerEntries": current,
            "currentLedgerSize": 0,
            "numberOfEntries": 0,
            "totalSize": 0,
            "cursors": {},
        }
    )


def test_open_ledger():
    """The open ledger is listed with 0 entries; its count comes from another field of the internal statistics."""
    stats = _stats([(3, 2), (5, 0), (8, 0)], 4)
    assert position_after(stats, Position(3, -1), 3) == Position(8, 0)
    assert position_after(stats, Position(3, -1), 99) == Position(8, 3)


def test_full_ledger_before_the_next_opens():
    """A ledger that was just closed is listed with its entries, while the current count is already 0."""
    assert _stats([(3, 10)], 0).ledger_sizes() == [(3, 10)]
    assert position_after(_stats([(3, 10)], 0), Position(3, 4), 2) == Position(3, 6)


@pytest.mark.parametrize("count", [-1, True, 1.0, None, "1"])
def test_invalid_count_of_position_after(count):
    """A count that is not an int raises, bool included."""
    with pytest.raises(InvalidUse, match="count"):
        position_after([(1, 5)], Position(1, 0), count)
