"""Columns of messages: those of the native core equal those of the binding, and Arrow shows what was sent."""

import gc
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from pulsar_ext import key_slot
from pulsar_ext._native import core
from pulsar_ext._native.messages import InnerMessageBuilder, InnerMessageId, batch_messages
from pulsar_ext._wire.batch_payload import option_fields
from pulsar_ext._wire.protobuf import bytes_field, number_field
from pulsar_ext.spark.message_block import Block, binary_of, sizes_of, with_nulls

_used = pytest.mark.skipif(not core.IS_USED, reason="the core is not used")
LONGS = st.integers(0, 2**63 - 1) | st.integers(0, 300)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PROPERTIES = st.dictionaries(TEXTS, TEXTS, max_size=3)
IDS = st.builds(InnerMessageId, st.integers(-1, 2**31 - 1), LONGS, LONGS, st.just(-1))


@st.composite
def built(draw):
    """Return a message that a builder makes."""
    builder = InnerMessageBuilder()
    builder.content(draw(st.binary(max_size=50)))
    builder.properties(draw(PROPERTIES))
    builder.partition_key(draw(TEXTS))
    builder.ordering_key(draw(TEXTS))
    builder.event_timestamp(draw(LONGS))
    builder.sequence_id(draw(LONGS))
    if draw(st.booleans()):
        builder.set_null_value()
    return [builder.build()]


@st.composite
def batches(draw):
    """Return the messages of a batch, whose keys may be bytes that are not UTF-8."""
    payload = b""
    count = draw(st.integers(1, 5))
    for _ in range(count):
        content = draw(st.binary(max_size=20))
        fields = option_fields({"properties": draw(PROPERTIES)})
        fields += bytes_field(2, draw(TEXTS.map(str.encode) | st.binary(max_size=9)))
        fields += number_field(3, len(content)) + number_field(5, draw(LONGS))
        fields += bytes_field(7, draw(st.binary(max_size=9))) + number_field(8, draw(st.integers(0, 2**64 - 1)))
        fields += number_field(9, draw(st.integers(0, 1)))
        payload += len(fields).to_bytes(4, "big") + fields + content
    return batch_messages(payload, count, draw(IDS))


MESSAGES = st.lists(built() | batches(), max_size=4).map(lambda several: [one for some in several for one in some])


def columns_of(block):
    """Return all columns of a block."""
    numbers = {name: memoryview(block.numbers(name)).cast("B").cast("q").tolist() for name in core._NUMBERS}
    octets = {name: block.octets(name) for name in ("data", "partition_key", "ordering_key", "producer_name")}
    counts, names, values = block.properties()
    octets |= {"ids": block.ids(), "names": names, "values": values}
    shown = {name: (memoryview(ends).cast("B").cast("i").tolist(), data) for name, (ends, data) in octets.items()}
    return numbers, shown, memoryview(counts).cast("B").cast("i").tolist()


@_used
@settings(deadline=None)
@given(MESSAGES, st.data())
def test_native_columns_equal_the_binding(inners, data):
    """Each native column of any messages equals the one that the binding's methods fill, also after `take()`."""
    native, plain = core._core.block(inners), Block(inners)
    assert columns_of(native) == columns_of(plain)
    assert len(native) == len(plain) == len(inners)
    assert [one.message_id() for one in native] == [one.message_id() for one in plain]
    indexes = sorted(data.draw(st.sets(st.integers(0, len(inners) - 1), max_size=6))) if inners else []
    assert columns_of(native.take(indexes)) == columns_of(plain.take(indexes))


@given(MESSAGES)
def test_arrow_columns_are_the_fields(inners):
    """An Arrow column has the bytes of each message, or null."""
    column = binary_of(Block(inners).octets("data"))
    assert column.to_pylist() == [inner.data() for inner in inners]
    assert sizes_of(column).tolist() == [len(inner.data()) for inner in inners]
    empty = with_nulls(column, sizes_of(column) == 0)
    empty.validate(full=True)
    assert empty.to_pylist() == [inner.data() or None for inner in inners]


def test_columns_of_a_batch_are_its_fields():
    """Sequence ids, which are Java's signed longs, slots and ids are those of a batch of known content."""
    fields = [bytes_field(2, b"key"), b"", bytes_field(2, b"key") + bytes_field(7, b"\xff")]
    fields = [one + number_field(3, 0) + number_field(8, n) for one, n in zip(fields, (70, 2**64 - 2, 71), strict=True)]
    payload = b"".join(len(one).to_bytes(4, "big") + one for one in fields)
    several = batch_messages(payload, 3, InnerMessageId(-1, 5, 7, -1))
    for block in (Block(several), core._core.block(several) if core.IS_USED else Block(several)):
        numbers, octets, _ = columns_of(block)
        assert numbers["sequence_id"] == [70, -2, 71]
        assert numbers["key_slot"] == [key_slot("key"), key_slot("--2"), key_slot(b"\xff")]
        assert (numbers["entry_id"], numbers["batch_index"]) == ([7] * 3, [0, 1, 2])
        ends, data = octets["ids"]
        assert [data[begin:end] for begin, end in pairwise(ends)] == [one.message_id().serialize() for one in several]


@_used
def test_invalid_arguments_of_a_native_block_raise():
    """Other fields, indexes and objects raise, and an empty block is possible."""
    block = core._core.block(batch_messages(b"\0\0\0\2\x18\0" * 2, 2, InnerMessageId(1, 2, 3, -1)))
    for call in (
        lambda: block.numbers("data"),
        lambda: block.numbers(1),
        lambda: block.octets("other"),
        lambda: block.take([2]),
        lambda: block.take([-1]),
        lambda: block.take(["0"]),
        lambda: block.take((0,)),
        lambda: block[2],
        lambda: core._core.block([None]),
        type(block),
    ):
        with pytest.raises((ValueError, IndexError, TypeError, SystemError)):
            call()
    assert len(block.take([])) == 0
    assert [one.message_id().batch_index() for one in block] == [0, 1]
    assert block[-1].message_id().batch_index() == 1


@_used
def test_native_blocks_leak_no_memory():
    """Blocks and their columns leave no references, and a message outlives its block."""
    inners = batch_messages(b"\0\0\0\2\x18\0" * 100, 100, InnerMessageId(1, 2, 3, -1))

    def run():
        for _ in range(100):
            block = core._core.block(inners)
            columns_of(block.take(list(range(50))))
        return block[1]

    run()
    gc.collect()
    before = sys.getallocatedblocks()
    last = run()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000
    assert last.message_id().batch_index() == 1
