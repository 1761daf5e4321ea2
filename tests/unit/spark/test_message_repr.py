"""Parsing of `str()` of messages, as the C++ client writes it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from pulsar_ext._native.messages import sequence_id_of
from pulsar_ext.spark.message_block import read_reprs

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PROPERTIES = st.dictionaries(NAMES, NAMES, max_size=2)
ROWS = st.lists(
    st.tuples(NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.integers(-1, 2**31 - 1), PROPERTIES),
    min_size=1,
    max_size=8,
)


def text_of(row, partition, chunk=None):
    name, sequence, time, size, ledger, entry, batch, properties = row
    props = ", ".join(f"'{key}':'{value}'" for key, value in properties.items())
    later = "" if chunk is None else f";({ledger},{chunk},{partition},{batch})"
    return (
        f"Message(prod={name}, seq={sequence}, publish_time={time}, payload_size={size}, "
        f"msg_id=({ledger},{entry},{partition},{batch}){later}, props={{{props}}})"
    )


def rows_of(reprs):
    columns = (reprs.sequence_id, reprs.publish_time, reprs.payload_size, reprs.ledger, reprs.entry, reprs.batch)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(deadline=None)  # the first call imports many modules
@given(ROWS, st.integers(-1, 200))
def test_reprs_have_the_numbers_of_each_message(rows, partition):
    """The numbers are right for any names and properties."""
    reprs = read_reprs([text_of(row, partition) for row in rows], [row[0] for row in rows], partition)
    assert reprs is not None
    assert rows_of(reprs) == [row[1:7] for row in rows]
    assert reprs.bare.tolist() == [not row[7] for row in rows]
    assert not reprs.chunked.any()
    assert [sequence_id_of(text_of(row, partition), row[0]) for row in rows] == [row[1] for row in rows]


@settings(deadline=None)  # the first call imports many modules
@given(ROWS, st.integers(-1, 200))
def test_reprs_of_another_producer_are_rejected(rows, partition):
    """Texts of another producer are not parsed, whatever its name imitates."""
    texts = [text_of(row, partition) for row in rows]
    reprs = read_reprs(texts, rows[0][0], partition)
    if all(row[0] == rows[0][0] for row in rows):
        assert reprs is not None
        assert rows_of(reprs) == [row[1:7] for row in rows]
    elif reprs is not None:
        # A name may contain the text of a whole message; the text after it then resembles properties.
        assert not any(bare and row[0] != rows[0][0] for bare, row in zip(reprs.bare, rows, strict=True))


def test_producer_name_that_imitates_a_repr():
    """A producer name that imitates the beginning of a text is not parsed, or its message is not marked as bare."""
    plain = ("a", 1, 2, 3, 4, 5, -1, {})
    for name in ("a, seq=9", "a, seq=9, publish_time=8, payload_size=7, msg_id=(6,5,-1,4), props={}"):
        reprs = read_reprs([text_of(plain, -1), text_of((name, *plain[1:]), -1)], "a", -1)
        assert reprs is None or reprs.bare.tolist() == [True, False]


def test_chunked_messages_are_marked():
    """Chunked messages are marked, and have the numbers of the first chunk."""
    row = ("p", 1, 2, 3, 10, 20, -1, {})
    reprs = read_reprs([text_of(row, -1, chunk=24), text_of(row, -1)], "p", -1)
    assert reprs is not None
    assert reprs.chunked.tolist() == [True, False]
    assert reprs.entry.tolist() == [20, 20]
    assert reprs.take(np.array([0])).chunked.tolist() == [True]


def test_unsigned_sequence_ids_become_signed():
    """The C++ client shows a sequence id as unsigned; the column has Java's signed long."""
    reprs = read_reprs([text_of(("p", 2**64 - 1, 2, 3, 4, 5, 6, {}), -1)], "p", -1)
    assert reprs is not None
    assert reprs.sequence_id.tolist() == [-1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Message(prod=p, seq=",
        "Message(prod=p, seq=, publish_time=1, payload_size=1, msg_id=(1,2,-1,3), props={})",
        "Message(prod=p, seq=1, publish_time=1, payload_size=1, msg_id=(1,2,7,3), props={})",
        "Message(prod=p, seq=1, publish_time=1, payload_size=1, msg_id=(1,2,-1,3)",
        f"Message(prod=p, seq={'1' * 30}, publish_time=1, payload_size=1, msg_id=(1,2,-1,3), props={{}})",
    ],
)
def test_unexpected_reprs_return_none(text):
    """Texts of another partition, truncated texts and texts of another format are not parsed."""
    assert read_reprs([text], "p", -1) is None
