"""Two ids of a batch tell where all of its messages are, unless one is missing or comes twice."""

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.message_id_data import MessageIdData
from pulsar_ext.spark.message_block import batch_columns

SIZES = st.lists(st.integers(16, 60), min_size=1, max_size=6)


def batches(sizes):
    """The ids of the messages of batches, one in each entry."""
    return [
        MessageIdData(7 + entry // 3, entry % 3, batch_index=index, batch_size=size)
        for entry, size in enumerate(sizes)
        for index in range(size)
    ]


def found(ids):
    """What is found of messages with these ids, as rows; and how many ids were asked for."""
    asked = []
    columns = batch_columns(len(ids), lambda index: asked.append(index) or ids[index])
    rows = None if columns is None else list(zip(*(column.tolist() for column in columns), strict=True))
    return rows, len(asked)


def rows_of(ids):
    """What is to be found of messages with these ids."""
    return [(one.ledger_id, one.entry_id, one.batch_index, one.batch_size) for one in ids]


@given(SIZES, st.data())
def test_positions_are_those_of_each_id(sizes, data):
    """The numbers are right wherever in a batch the messages begin and end, and at most two ids of a batch are read."""
    ids = batches(sizes)
    begin = data.draw(st.integers(0, len(ids) - 1))
    end = data.draw(st.integers(begin + 1, len(ids)))
    rows, asked = found(ids[begin:end])
    assert rows == rows_of(ids[begin:end])
    assert asked <= 2 * len(sizes)


@given(SIZES, st.data())
def test_a_missing_or_repeated_message_is_noticed(sizes, data):
    """Where one message is missing, or comes twice, positions are not guessed."""
    ids = batches(sizes)
    at = data.draw(st.integers(0, len(ids) - 1))
    changed = data.draw(st.sampled_from([ids[:at] + ids[at + 1 :], ids[:at] + ids[at : at + 1] + ids[at:]]))
    if changed:
        assert found(changed)[0] in (None, rows_of(changed))


@given(SIZES, st.sampled_from([MessageIdData(1, 1), MessageIdData(1, 1, batch_index=0, batch_size=15)]), st.data())
def test_messages_in_no_large_batch(sizes, small, data):
    """Messages in no batch, and in small ones, have to be looked at, wherever they are."""
    ids = batches(sizes)
    starts = [index for index, one in enumerate(ids) if one.batch_index == 0] + [len(ids)]
    ids.insert(data.draw(st.sampled_from(starts)), small)
    assert found(ids)[0] is None
