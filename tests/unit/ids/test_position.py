"""Positions: parsing, printing and order."""

import pickle
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidMessageId
from pulsar_ext.ids.position import Position, PositionRange, PositionRanges

_POSITIONS = st.builds(Position, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
_RANGES = st.builds(PositionRange, _POSITIONS, _POSITIONS)


@given(_POSITIONS)
def test_position_round_trip(position):
    """A position equals the parsed output of its str(), hash included."""
    again = Position.parse(str(position))
    assert again == position
    assert hash(again) == hash(position)
    assert pickle.loads(pickle.dumps(position)) == position


@given(_POSITIONS, _POSITIONS)
def test_order_is_ledger_then_entry(one, other):
    """Positions are ordered as the broker orders entries."""
    assert (one < other) == ((one.ledger_id, one.entry_id) < (other.ledger_id, other.entry_id))


@given(st.text())
def test_parse_position_raises_invalid_message_id(text):
    """Any text is a position or raises InvalidMessageId."""
    try:
        position = Position.parse(text)
    except InvalidMessageId:
        return
    assert isinstance(position, Position)


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "1:2:3", " 1:2", "1:2\n", "a:b", "1:٣", f"{2**63}:0", "1.0:2"])
def test_invalid_position_raises(text):
    """Similar texts raise, including non-ASCII digits and 65-bit numbers."""
    with pytest.raises(InvalidMessageId, match="position"):
        Position.parse(text)


@given(st.lists(_RANGES))
def test_ranges_round_trip(ranges):
    """A list in the format of individuallyDeletedMessages is parsed into its ranges, in the order of their ends."""
    text = f"[{','.join(map(str, ranges))}]"
    found = PositionRanges.parse(text)
    assert list(found) == sorted(ranges, key=attrgetter("last"))
    assert (len(found), found) == (len(ranges), PositionRanges.of(ranges))
    assert PositionRanges.parse(repr(found)) == found


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 8))))
def test_ranges_contain_entries_of_each_range(entries):
    """An entry is in non-overlapping ranges exactly if it is in one of them."""
    ranges = [PositionRange(Position(ledger, entry - 1), Position(ledger, entry)) for ledger, entry in entries]
    found = PositionRanges.of(ranges)
    positions = [Position(ledger, entry) for ledger in range(5) for entry in range(-1, 10)]
    covered = [any(position in one for one in ranges) for position in positions]
    assert [position in found for position in positions] == covered
    assert found.covering(positions) == covered


def test_ranges_of_broker_text():
    """A text of broker 4.2.4 is parsed, and its first range contains the right entries."""
    first, second = PositionRanges.parse("[(20:1..20:3],(20:6..21:0]]")
    assert [Position(20, entry) in first for entry in range(5)] == [False, False, True, True, False]
    assert second == PositionRange(Position(20, 6), Position(21, 0))
    assert "20:2" not in first
    assert list(PositionRanges.parse("[]")) == []


@pytest.mark.parametrize(
    "text",
    ["", "[", "]", "(1:1..1:2]", "[[1:1..1:2]]", "[(1:1..1:2)]", "[(1:1..1:2],]", "[x]", f"[({2**63}:0..1:2]]"],
)
def test_invalid_list_of_ranges_raises(text):
    """Other brackets have another meaning, so they raise."""
    with pytest.raises(InvalidMessageId):
        PositionRanges.parse(text)
