"""Batches of rows written column by column, compared with batches of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa

from pulsar_ext._wire.batch_payload import NULL_VALUE, key_fields, option_fields
from pulsar_ext.errors import InvalidUse
from pulsar_ext.produce.batch import Batch
from pulsar_ext.produce.outcome import BulkOutcome
from pulsar_ext.spark.sink import EncodedRows, arguments_of, divide, rows_by_group

TEXTS = st.none() | st.text(max_size=5) | st.sampled_from(["k" * 127, "k" * 128, "é" * 64, "k" * 300])
ROW = st.fixed_dictionaries(
    {
        "content": st.none() | st.binary(max_size=5) | st.sampled_from([bytes(127), bytes(128), bytes(20_000)]),
        "partition_key": TEXTS,
        "ordering_key": TEXTS,
        "properties": st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
        "event_timestamp": st.none() | st.integers(0, 2**45),
    }
)
KINDS = {
    "content": pa.binary(),
    "partition_key": pa.string(),
    "ordering_key": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "event_timestamp": pa.int64(),
}
NAMES = st.sets(st.sampled_from(list(KINDS)[1:])).map(lambda names: ["content", *sorted(names)])


def columns_of(rows, names):
    return pa.record_batch({name: pa.array([row[name] for row in rows], KINDS[name]) for name in names})


def fields_of(row):
    return (NULL_VALUE if row["content"] is None else b"") + option_fields(row)


def plain_batch(rows, ids):
    """Return a batch of messages that are written one by one."""
    return Batch.of(
        [row["content"] or b"" for row in rows], None, ids, [*map(fields_of, rows)], [*map(key_fields, rows)]
    )


@given(st.lists(ROW, min_size=1, max_size=20), NAMES, st.integers(0, 2**62), st.integers(1, 200), st.data())
def test_row_batch_equals_message_batch(rows, names, first, step, data):
    """A batch of rows has the bytes of a batch of the same messages, also as part of more rows, and halved."""
    columns = columns_of(rows, names)
    begin = data.draw(st.integers(0, len(rows) - 1))
    rows = [{name: row[name] for name in names} for row in rows[begin:]]
    ids = range(first, first + step * len(rows), step)
    encoded, part = EncodedRows.of(columns), slice(begin, None)
    assert encoded.sizes()[part].tolist() == [len(row["content"] or b"") + len(fields_of(row)) for row in rows]
    for numbers in (ids, list(ids)):
        batch = encoded.batch_of(part, BulkOutcome())(numbers)
        plain = plain_batch(rows, ids)
        assert (batch.payload(), batch.keys) == (plain.payload(), plain.keys)
        if len(rows) > 1:
            halves = [
                plain_batch(rows[part], ids[part])
                for part in (slice(None, len(rows) // 2), slice(len(rows) // 2, None))
            ]
            assert [(half.payload(), half.keys) for half in batch.halves()] == [
                (half.payload(), half.keys) for half in halves
            ]


@given(st.lists(ROW, min_size=1, max_size=5), NAMES)
def test_rows_convert_to_send_arguments(rows, names):
    """Columns convert to the arguments they were made of; empty properties become None."""
    found = arguments_of(columns_of(rows, names))
    assert found == {
        name: [row[name] or (None if name == "properties" else row[name]) for row in rows] for name in names
    }


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 10), st.integers(1, 100))
def test_batches_are_filled_to_their_limits(sizes, most, most_bytes):
    """Batches have all rows once and in order, are within the limits, and cannot hold the next row."""
    parts = divide(sizes, most, most_bytes)
    assert [index for part in parts for index in range(len(sizes))[part]] == list(range(len(sizes)))
    for part in parts:
        count, size = part.stop - part.start, sum(sizes[part])
        assert count == 1 or (count <= most and size <= most_bytes)
        if part.stop < len(sizes):
            assert count == most or size + sizes[part.stop] > most_bytes


def test_event_times_before_1970_raise():
    """An unsupported event time raises an error with the number of rows that have one."""
    times = pa.array([-1, None, 0, 5, -3000], pa.timestamp("ms", tz="UTC"))
    batch = pa.record_batch({"value": pa.array([b""] * 5), "__eventTime": times})
    with pytest.raises(InvalidUse, match="__eventTime is before 1970 in 2 rows"):
        list(rows_by_group(batch, {"topic": "t", "laneBy": None, "keyValueEncoding": None}, "0"))
