"""Open batches and groups of batches."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.batch_payload import batch_parts
from pulsar_ext.produce.batch import Batch, BatchGroup, Bounds, InFlight, ordered
from pulsar_ext.produce.outcome import BulkOutcome

_MESSAGES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12)


def _item(size, number, fields=b""):
    return (bytes(size), None, number, fields, b"key")


@given(_MESSAGES, st.integers(1, 8), st.integers(0, 20), st.booleans())
def test_group_keeps_each_message_under_its_key(messages, most, size, by_key):
    """Messages join the batch of their key and count against both limits; a closed group accepts none."""
    group, expected, used = BatchGroup(Bounds(most, size), by_key=by_key), {}, 0
    for number, (key, length) in enumerate(messages):
        assert group.has_room(length) == (number == 0 or used + length <= size)
        assert group.join(key, _item(length, number))
        expected.setdefault(key if by_key else "", []).append(number)
        used += length
    assert (group.count, group.free_messages, group.free_bytes) == (len(messages), most - len(messages), size - used)
    assert group.only_items is (group.batches[""].items if messages and not by_key else None)
    group.closed = True
    assert not group.join("new", _item(1, 99))
    assert group.count == len(messages)
    closed = group.close()
    assert [list(batch.ids) for batch in closed] == list(expected.values())
    assert [(batch.count, batch.keys, batch.fields) for batch in closed] == [
        (len(ids), b"key", ()) for ids in expected.values()
    ]


@given(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=9).map(sorted), st.booleans(), st.booleans())
def test_batch_carries_highest_id_and_splits_in_halves(ids, bulk, with_fields):
    """A batch carries its highest id or an explicit one; its halves have its messages, in order."""
    contents, fields = [bytes([one]) for one in ids], [b"f" if with_fields else b"" for _ in ids]
    outcome = BulkOutcome()
    written = fields if with_fields and not bulk else []
    if bulk:
        batch = Batch.of(contents, outcome, ids)
    else:
        batch = Batch.of(contents, None, ids, written, [b"k"] * len(ids), [None] * len(ids))
    keys = b"" if bulk else b"k"
    batch.entry_property = b"n"
    assert list(batch.fields) == written
    assert batch.payload() == b"".join(batch_parts(contents, ids, written or None))
    with mock.patch("pulsar_ext.produce.batch.entry_message", lambda *entry: entry):
        assert batch.entry() == (batch.payload(), len(ids), ids[-1], keys + b"n")
        batch.entry_sequence_id = ids[0]
        assert batch.entry() == (batch.payload(), len(ids), ids[0], keys + b"n")
    halves = batch.halves()
    assert [one.outcome for one in halves] == [outcome if bulk else None] * 2
    middle = len(ids) // 2
    assert [list(one.ids) for one in halves] == [ids[:middle], ids[middle:]]
    assert [list(one.contents) for one in halves] == [contents[:middle], contents[middle:]]


def test_empty_batch_has_defaults():
    """A new batch is empty, and closing it changes nothing."""
    batch = Batch()
    batch.close()
    assert not any(
        (
            batch.count,
            batch.extra_permits,
            batch.pushed_at,
            batch.too_big,
            batch.keys,
            batch.entry_property,
            batch.options,
            batch.fields,
        )
    )
    assert [batch.entry_sequence_id, batch.accepted, batch.unsent, batch.in_flight, batch.message] == [None] * 5


def test_batches_are_pushed_in_order_of_first_id():
    """Batches are pushed with ascending ids; the last one carries the highest id of all."""
    batches = [Batch.of([b""] * len(ids), BulkOutcome(), ids) for ids in ([4, 9], [1, 2, 3], [5, 6])]
    pushed = ordered(batches)
    assert [batch.ids for batch in pushed] == [[1, 2, 3], [4, 9], [5, 6]]
    assert [batch.entry_sequence_id for batch in pushed] == [1, 4, 9]
    alone = ordered(batches[:1])
    assert list(alone) == batches[:1]
    assert ordered(batches[:2])[-1].entry_sequence_id == 9


def test_in_flight_group_drops_ids():
    """A group in flight knows its ids, the highest id, and the number of batches without an outcome."""
    flight = InFlight([[1, 2], [3, 7]])
    assert (flight.unanswered, flight.highest, 7 in flight, 4 in flight) == (2, 7, True, False)
    flight.drop(7)
    assert (flight.unanswered, flight.highest, 7 in flight, 3 in flight) == (2, 3, False, True)
    for one in (1, 2, 3):
        flight.drop(one)
    assert flight.highest == -1
