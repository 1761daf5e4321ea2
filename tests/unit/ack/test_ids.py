"""Reading the ids of many acknowledged messages at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.ack.ids import gather, gather_numbered, singles
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


class _Queue:
    """A receiver queue of batches, and threads that receive from it."""

    def __init__(self, sizes, threads, owner=0):
        self.received, self.numbers = [], {}
        at = 0
        for entry, size in enumerate(sizes):
            for index in range(max(size, 1)):
                one = (entry, index if size > 1 else -1, size if size > 1 else 0)
                self.received.append(one)
                # Only the owner thread's messages are numbered, in the order of their receipt.
                self.numbers[one] = 0
                if threads[at % len(threads)] == owner:
                    self.numbers[one] = 1 + max(self.numbers.values())
                at += 1


@given(
    st.lists(st.sampled_from([0, 2, 3, 7, 40]), max_size=8),
    st.lists(st.integers(0, 2), min_size=1, max_size=7),
    st.data(),
)
def test_numbered_ids_acknowledge_the_same_messages(sizes, threads, data):
    """Numbered ids yield exactly the acknowledged messages, for any receiving threads, order and groups."""
    queue = _Queue(sizes, threads)
    acknowledged = list(queue.received)
    how = data.draw(st.sampled_from(["all", "some", "shuffled"]))
    if how != "all" and acknowledged:
        acknowledged = data.draw(st.lists(st.sampled_from(acknowledged), unique=how == "shuffled"))
    cut = data.draw(st.integers(0, len(acknowledged)))
    doubtful = data.draw(st.sampled_from([0, 0, 5, 50]))
    found = set()
    reads = []
    for group in (acknowledged[:cut], acknowledged[cut:]):
        ids = [encode(MessageIdData(4, entry, batch_index=index, batch_size=size)) for entry, index, size in group]

        def read(start, stop, ids=ids):
            reads.extend(range(start, stop))
            return ids[start:stop]

        numbers = [queue.numbers[one] for one in group]
        for partition, (ledger, entry), size, bits, at in gather_numbered(numbers, read, range(doubtful + 1, 1000)):
            assert (partition, ledger) == (-1, 4)
            assert 0 <= at < len(group)
            found |= {(entry, index, size) for index in range(size) if bits >> index & 1} or {(entry, -1, 0)}
    assert found == set(acknowledged)
    if how == "all" and set(threads) == {0} and cut == 0 and doubtful == 0 and all(size > 2 for size in sizes):
        assert len(reads) == 2 * len(sizes)


def test_numbers_are_ignored_for_several_partitions():
    """A message of another partition between two of a batch is not taken for one of the batch."""
    ids = [
        MessageIdData(4, 7, partition=0, batch_index=0, batch_size=3),
        MessageIdData(5, 1, partition=1, batch_index=0, batch_size=3),
        MessageIdData(4, 7, partition=0, batch_index=2, batch_size=3),
    ]
    data = [encode(one) for one in ids]
    found = gather_numbered([1, 2, 3], lambda start, stop: data[start:stop], range(1, 9), mixed=True)
    assert [(one[0], one[1], one[3]) for one in found] == [(0, (4, 7), 0b1), (1, (5, 1), 0b1), (0, (4, 7), 0b100)]


def test_invalid_id_bytes_raise():
    """Bytes that the C++ client would not write raise instead of acknowledging another message."""
    with pytest.raises(InvalidMessageId):
        list(gather([b"\x08\x05"]))
