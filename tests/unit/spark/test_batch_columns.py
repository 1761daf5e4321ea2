"""Positions of a batch's messages computed from two ids, unless a message is missing or repeated."""

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.message_id_data import MessageIdData
from pulsar_ext.spark.message_block import batch_columns

SIZES = st.lists(st.integers(16, 60), min_size=1, max_size=6)


def batches(sizes):
    """Return the ids of the messages of batches, one batch per entry."""
    return [
        MessageIdData(7 + entry // 3, entry % 3, batch_index=index, batch_size=size)
        for entry, size in enumerate(sizes)
        for index in range(size)
    ]


def found(ids):
    """Return the computed rows of messages with these ids, and the number of ids that were requested."""
    asked = []
    columns = batch_columns(len(ids), lambda index: asked.append(index) or ids[index])
    rows = None if columns is None else list(zip(*(column.tolist() for column in columns), strict=True))
    return rows, len(asked)


def rows_of(ids):
    """Return the expected rows of messages with these ids."""
    return [(one.ledger_id, one.entry_id, one.batch_index, one.batch_size) for one in ids]


@given(SIZES, st.data())
def test_batch_positions_equal_each_id(sizes, data):
    """Positions are right at any beginning and end in a batch, and at most two ids of a batch are read."""
    ids = batches(sizes)
    begin = data.draw(st.integers(0, len(ids) - 1))
    end = data.draw(st.integers(begin + 1, len(ids)))
    rows, asked = found(ids[begin:end])
    assert rows == rows_of(ids[begin:end])
    assert asked <= 2 * len(sizes)


@given(SIZES, st.data())
def test_missing_or_repeated_message_is_detected(sizes, data):
    """Positions are not guessed if a message is missing or repeated."""
    ids = batches(sizes)
    at = data.draw(st.integers(0, len(ids) - 1))
    changed = data.draw(st.sampled_from([ids[:at] + ids[at + 1 :], ids[:at] + ids[at : at + 1] + ids[at:]]))
    if changed:
        assert found(changed)[0] in (None, rows_of(changed))


@given(SIZES, st.sampled_from([MessageIdData(1, 1), MessageIdData(1, 1, batch_index=0, batch_size=15)]), st.data())
def test_small_batches_return_none(sizes, small, data):
    """Messages in no batch or in a small one are not computed, at any place."""
    ids = batches(sizes)
    starts = [index for index, one in enumerate(ids) if one.batch_index == 0] + [len(ids)]
    ids.insert(data.draw(st.sampled_from(starts)), small)
    assert found(ids)[0] is None
