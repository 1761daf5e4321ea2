"""Values of the admin API are parsed from the broker's responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin import CursorInfo
from pulsar_ext.errors import InvalidMessageId
from pulsar_ext.ids.position import Position


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 20))), st.randoms())
def test_cursor_reports_acknowledged_entries(entries, random):
    """A cursor reports as acknowledged all entries up to its position and those deleted individually, in any order."""
    ranges = [f"({ledger}:{entry - 1}..{ledger}:{entry}]" for ledger, entry in entries]
    random.shuffle(ranges)
    data = {"markDeletePosition": "1:4", "readPosition": "4:0", "individuallyDeletedMessages": f"[{','.join(ranges)}]"}
    cursor = CursorInfo.from_json(data)
    every = [Position(ledger, entry) for ledger in range(5) for entry in range(-1, 22)]
    acknowledged = [one <= Position(1, 4) or one in entries for one in every]
    assert [cursor.acknowledges(one) for one in every] == acknowledged
    assert cursor.acknowledges_each(every) == acknowledged


@pytest.mark.parametrize("suffix", ["", " (ackSet is null)", " (ackSet with long[] size of 0)"])
def test_position_with_suffix_is_parsed(suffix):
    """A cursor position with the suffix of a wholly acknowledged entry is parsed; one within a batch raises."""
    data = {"markDeletePosition": f"106:0{suffix}", "readPosition": "106:1"}
    assert CursorInfo.from_json(data).mark_delete_position == Position(106, 0)
    with pytest.raises(InvalidMessageId):
        CursorInfo.from_json({**data, "markDeletePosition": "106:0 (ackSet with long[] size of 1)"})
