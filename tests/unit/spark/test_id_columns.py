"""Reading and writing of many ids at once, compared with single ids."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext import ChunkMessageId, MessageId
from pulsar_ext._wire.message_id_data import MessageIdData, decode, encode
from pulsar_ext.spark.message_block import id_bytes, id_columns

LONGS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
INTS = st.integers(-1, 2**31 - 1) | st.integers(-1, 200)
IDS = st.builds(MessageId, INTS, LONGS, LONGS, INTS) | st.builds(
    lambda partition, ledger, first, more: ChunkMessageId(
        MessageId(partition, ledger, first), MessageId(partition, ledger, first + more)
    ),
    INTS,
    LONGS,
    st.integers(0, 2**40),
    st.integers(1, 100),
)


@given(st.lists(IDS, min_size=1, max_size=20))
def test_id_columns_equal_decoded_ids(ids):
    """The numbers are right for any fields of an id, and any neighbouring ids."""
    data = [one.serialize() for one in ids]
    found = list(zip(*(column.tolist() for column in id_columns(data)), strict=True))
    assert found == [(one.ledger_id, one.entry_id, one.batch_index) for one in map(decode, data)]


def test_foreign_id_bytes_raise():
    """Bytes that the C++ client would not write raise."""
    for data in (b"\x10\x01\x08\x01", b"\x08\x01"):
        with pytest.raises(ValueError, match="message id"):
            id_columns([data])


@given(
    st.lists(st.tuples(LONGS, LONGS, INTS, st.integers(0, 200) | st.integers(0, 2**31 - 1)), min_size=1, max_size=20),
    INTS,
)
def test_id_bytes_equal_encoded_ids(numbers, partition):
    """The bytes are right for any fields of an id; only ids in a batch have its size."""
    rows = [(ledger, entry, batch, size if batch >= 0 else 0) for ledger, entry, batch, size in numbers]
    ledger, entry, batch, sizes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    offsets, data = id_bytes(ledger, entry, partition, batch, sizes)
    found = [data.tobytes()[begin:end] for begin, end in pairwise(offsets)]
    wanted = [encode(MessageIdData(row[0], row[1], partition, row[2], batch_size=row[3])) for row in rows]
    assert found == wanted
