"""Reading the ids of many acknowledged messages at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.ack.ids import gather, singles
from pulsar_ext.errors import InvalidMessageId

_ids = st.builds(
    lambda ledger, entry, partition, size, at, chunk: MessageIdData(
        ledger,
        entry,
        partition,
        batch_index=at % size if size and not chunk else -1,
        batch_size=size if not chunk else 0,
        first_chunk=MessageIdData(ledger, 0, partition) if chunk else None,
    ),
    st.sampled_from([0, 5, 300]),
    st.one_of(st.integers(0, 2), st.sampled_from([127, 128, 16383, 16384, (1 << 21) - 1, 1 << 21, 1 << 40])),
    st.sampled_from([-1, 0, 200]),
    st.sampled_from([0, 1, 2, 3, 200]),
    st.integers(0, 300),
    st.booleans(),
)


@given(st.lists(_ids, max_size=40), st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 5, 130])), max_size=3))
def test_gather_yields_each_id_exactly_once(ids, batches):
    """Each of any mixed ids, whole batches among them, is in the result exactly once."""
    for entry, size in batches:
        ids = [*ids, *(MessageIdData(4, entry, batch_index=index, batch_size=size) for index in range(size)), *ids[:3]]
    found: set[tuple[int, int, int, int, int]] = set()
    places = []
    for partition, (ledger, entry), size, bits, at in gather([encode(one) for one in ids]):
        places.append(at)
        if size > 0:
            found |= {(partition, ledger, entry, size, index) for index in range(size) if bits >> index & 1}
        else:
            assert (size == -2) == (ids[at].first_chunk is not None)
            found.add((partition, ledger, entry, size, -1))
    assert found == {
        (one.partition, one.ledger_id, one.entry_id, -2 if one.first_chunk else one.batch_size if one.batch_index >= 0
         else 0, one.batch_index) for one in ids
    }  # fmt: skip
    assert places == sorted(set(places))
    assert (places[-1:] or [len(ids) - 1]) == [len(ids) - 1]


@given(st.lists(_ids, max_size=8), st.integers(0, 1 << 22), st.integers(0, 300), st.sampled_from([-1, 0, 200]))
def test_singles_equals_reading_one_by_one(mixed, first, count, partition):
    """Consecutive entries with ids of equal length are recognised; all other results equal those of `gather()`."""
    neighbours = [MessageIdData(5, entry, partition) for entry in range(first, first + count)]
    for ids in ([encode(one) for one in neighbours], [encode(one) for one in [*neighbours, *mixed]]):
        found = singles(ids)
        if found is None:
            assert len(set(map(len, ids))) != 1 or mixed
        else:
            expected = [(part, entry, size) for part, entry, size, _, _ in gather(ids)]
            assert [(found.partition, entry, 0) for entry in found.entries] == expected
            assert len(found) == len(ids)
        if ids and found is not None and len(ids) == count:
            assert found.entry_ids == range(first, first + count)


def test_invalid_id_bytes_raise():
    """Bytes that the C++ client would not write raise instead of acknowledging another message."""
    with pytest.raises(InvalidMessageId):
        list(gather([b"\x08\x05"]))
