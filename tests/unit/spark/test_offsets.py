"""Offsets and splits: order, JSON, and coverage of the entries to read."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidMessageId, InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.spark.offsets import (
    BEGINNING,
    Offset,
    Segment,
    StreamOffset,
    TopicState,
    limit_entries,
    lost_before,
    plan_splits,
)

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=6).map(
    lambda n: tuple((3 + 2 * i, c) for i, c in enumerate(n))
)


@st.composite
def segments(draw):
    """Return a segment between two ordered offsets of a topic with some ledgers."""
    sizes = draw(SIZES)
    entries = [(ledger, entry) for ledger, count in sizes for entry in range(count)]
    places = [BEGINNING, *(Offset(*one) for one in entries), *(Offset(ledger, -1) for ledger, _ in sizes)]
    one, two = sorted((draw(st.sampled_from(places)), draw(st.sampled_from(places))), key=lambda o: o.key)
    return Segment.of(TopicState("t", sizes, 100), one, two), entries


def in_segment(segment, entries):
    return [one for one in entries if segment.after < Offset(*one) and Offset(*one) <= segment.until]


@given(segments(), st.integers(1, 9))
def test_cuts_tile_a_segment(drawn, parts):
    """Every entry of a segment is in exactly one of its pieces, and the pieces have similar sizes."""
    segment, entries = drawn
    wanted = in_segment(segment, entries)
    pieces = segment.cut(parts)
    found = [one for piece in pieces for one in in_segment(piece, entries)]
    assert found == wanted
    assert len(pieces) == min(parts, len(wanted))
    assert segment.entries == len(wanted)
    sizes = [piece.entries for piece in pieces]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(
        Ledgers(piece.sizes).between(piece.after.position, piece.until.position) == piece.entries for piece in pieces
    )


@given(st.lists(segments(), min_size=1, max_size=4), st.integers(1, 9))
def test_splits_cover_every_entry_once(drawn, parts):
    """By partition or by entries, each entry has one task; by key hash, each slot has one."""
    every = [segment for segment, _ in drawn]
    total = sum(segment.entries for segment in every)
    for split_by, least in (("partition", None), (None, None), ("entries", parts), (None, parts)):
        splits = plan_splits(every, split_by, least, None)
        assert sum(piece.entries for split in splits for piece in split.segments) == total
        assert len(splits) >= min(least or 1, total)
    splits = plan_splits(every, "keyHash", parts, None)
    assert len(splits) == (parts if total else 0)
    if splits:
        assert sum(split.ranges.slots for split in splits) == 65536
        assert all(sum(piece.entries for piece in split.segments) == total for split in splits)


def test_more_tasks_than_slots_raise():
    """More tasks than slots raise, because a slot cannot be divided."""
    segment = Segment.of(TopicState("t", ((1, 5),), 1), BEGINNING, Offset(1, 4))
    with pytest.raises(InvalidUse, match="slots"):
        plan_splits([segment], "keyHash", 3, KeyHashRanges([(1, 2)]))


@given(st.lists(segments(), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 4000))
def test_limited_batch_makes_progress(drawn, entries, size):
    """A limited batch has at most as many entries as the limit, at least one, and never goes backwards."""
    states, start, end = [], {}, {}
    for index, (segment, _) in enumerate(drawn):
        state = TopicState(f"t{index}", segment.sizes, 100)
        states.append(state)
        start[state.topic], end[state.topic] = segment.after, segment.until
    total = sum(Segment.of(s, start[s.topic], end[s.topic]).entries for s in states)
    for most in ((entries, None), (None, size), (entries, size)):
        limited = limit_entries(states, start, end, *most)
        taken = sum(Segment.of(s, start[s.topic], limited[s.topic]).entries for s in states)
        assert taken <= total
        assert taken >= min(1, total)
        assert most[0] is None or taken <= max(most[0], 0)
        assert all(start[name] <= limited[name] <= end[name] for name in start)


@pytest.mark.parametrize(
    ("entries", "size", "taken"),
    [
        (3, None, 3),
        (None, 500, 5),
        (7, 300, 3),
        (2, 900, 2),
        (None, 1, 1),
        (10, 1000, 10),
        (None, None, 10),
        (99, 9999, 10),
    ],
)
def test_batch_is_limited_by_entries_and_bytes(entries, size, taken):
    """A batch has as many of ten entries of 100 bytes as both limits allow, at least one."""
    state = TopicState("t", ((3, 12),), 1_200)
    limited = limit_entries([state], {"t": Offset(3, 0)}, {"t": Offset(3, 10)}, entries, size)
    assert limited == {"t": Offset(3, taken)}


def test_partitions_share_a_limit_in_proportion():
    """Partitions share a limit in proportion to their entries, fullest first; one without entries keeps its offset."""
    states = [
        TopicState("none", ((1, 9),), 900),
        TopicState("few", ((2, 10),), 1000),
        TopicState("many", ((4, 30),), 3000),
    ]
    start = {"none": Offset(1, 8), "few": BEGINNING, "many": BEGINNING}
    end = {"none": Offset(1, 8), "few": Offset(2, 9), "many": Offset(4, 29)}
    for limits in ((20, None), (None, 2_000), (20, 9_999)):
        assert limit_entries(states, start, end, *limits) == {**start, "few": Offset(2, 4), "many": Offset(4, 14)}
    assert limit_entries(states, start, end, 1, None) == {**start, "many": Offset(4, 0)}
    later = {"none": Offset(3, -1)}
    assert limit_entries(states[:1], {"none": Offset(1, 8)}, later, 5, 5) == later


def test_offsets_are_ordered_whole_entries_last():
    """A whole entry is ordered after each of its messages."""
    assert Offset(1, 2, 0) < Offset(1, 2, 5) < Offset(1, 2) < Offset(1, 3, 0)
    assert BEGINNING < Offset(0, -1) < Offset(0, 0)
    assert Offset(1, 2, 3).just_before() == Offset(1, 2, 2)
    assert Offset(1, 2, 0).just_before() == Offset(1, 1)
    assert Offset(1, 0).just_before() == Offset(1, -1)
    assert Offset(1, 2, 3).position == Position(1, 1)
    assert Offset(1, 2).position == Position(1, 2)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.builds(Offset, *[st.integers(-1, 9)] * 3), max_size=4))
def test_stream_offset_json_is_deterministic(topics):
    """Equal stream offsets have equal JSON in any order of topics, because Spark compares them as text."""
    shuffled = dict(reversed(list(topics.items())))
    one, two = (json.dumps(StreamOffset("s", found, found).to_json()) for found in (topics, shuffled))
    assert one == two
    assert StreamOffset.from_json(json.loads(one)) == StreamOffset("s", topics, topics)


def test_first_batch_keeps_its_initial_offsets():
    """The end of the first batch keeps the original initial offsets, even if Spark requests them again."""
    first, later = {"t": Offset(1, 1)}, {"t": Offset(1, 9)}
    end = StreamOffset("s", {"t": Offset(1, 5)}, first)
    assert end.begins(StreamOffset("other", later, later)) == first
    assert StreamOffset("s", {"t": Offset(2, 5)}).begins(StreamOffset("s", later)) == later


@pytest.mark.parametrize("bad", [{}, {"topics": {}}, {"subscription": "s", "topics": {"t": {"ledger": 1}}}])
def test_foreign_checkpoint_raises(bad):
    """Offsets of another source raise."""
    with pytest.raises(InvalidUse, match="checkpoint"):
        StreamOffset.from_json(bad)


def test_offset_is_parsed_from_every_id_form():
    """An offset is parsed from text, hexadecimal bytes, JSON and an id; a chunked message's is its first chunk's."""
    plain, inside = MessageId(-1, 5, 7), MessageId(-1, 5, 7, 0)
    chunked = ChunkMessageId(MessageId(-1, 5, 3), MessageId(-1, 5, 7))
    for form in (plain, plain.to_text(), plain.serialize().hex(), "5:7", {"ledger": 5, "entry": 7}):
        assert Offset.of_message(form) == Offset(5, 7)
    assert Offset.of_message(inside) == Offset.of_message({"ledger": 5, "entry": 7, "batch": 0}) == Offset(5, 7, 0)
    assert Offset.of_message(chunked) == Offset.of_message(chunked.to_text()) == Offset(5, 3)
    with pytest.raises(InvalidMessageId, match="write earliest"):
        Offset.of_message("x")
    assert [str(one) for one in (Offset(5, 7), Offset(5, 7, 0), BEGINNING)] == ["5:7", "5:7:0", "-1:-1"]


@pytest.mark.parametrize("bad", ["x", 5, {"ledger": True, "entry": 1}, {"ledger": 1, "entry": -2}, {"a": 1}])
def test_invalid_offset_ids_raise(bad):
    """A value that is not a message id raises."""
    with pytest.raises(InvalidMessageId):
        Offset.of_message(bad)


def test_deleted_ledgers_already_read_are_not_a_loss():
    """A deleted ledger is a loss only if the cursor is further than the broker moves it by itself."""
    assert not lost_before(BEGINNING, 7, None)
    assert not lost_before(Offset(7, 3), 7, None)
    assert not lost_before(Offset(5, 3), 7, Position(7, -1))
    assert not lost_before(Offset(5, 3), 7, Position(5, 3))
    assert lost_before(Offset(5, 3), 7, Position(7, 0))
    assert lost_before(Offset(5, 3), 7, Position(9, -1))
    assert lost_before(Offset(5, 3), 7, None)


def test_end_of_a_topic():
    """The end is the last entry; on a topic of empty ledgers, the position before the newest ledger's first entry."""
    assert TopicState("t", (), 0).end == BEGINNING
    assert TopicState("t", ((7, 0), (9, 0)), 0).end == Offset(9, -1)
    assert TopicState("t", ((7, 3), (9, 0)), 0).end == Offset(7, 2)
    assert TopicState("t", ((7, 0), (9, 1)), 0).first_ledger == 7


def test_segment_estimates_bytes_per_message():
    """Bytes per message follow the average entry and the sample; entries only in the compacted view are counted."""
    state = TopicState("t", ((3, 4), (5, 0)), 4_001, messages_per_entry=5)
    assert state.bytes_per_entry == 1000
    assert Segment.of(state, BEGINNING, state.end).bytes_per_message == 200
    assert Segment.of(replace(state, message_bytes=900), BEGINNING, state.end).bytes_per_message == 900
    for light in (TopicState("t", ((3, 4),), 3), TopicState("t", ((3, 0),), 9)):
        assert (light.bytes_per_entry, Segment.of(light, BEGINNING, light.end).bytes_per_message) == (1, 1)
    weightless = replace(state, message_bytes=0, total_bytes=0)
    assert Segment.of(weightless, BEGINNING, state.end).bytes_per_message == 1
    compacted = replace(state, compacted_entries=7)
    found = [
        Segment.of(compacted, after, state.end) for after in (BEGINNING, Offset(2, 9), Offset(3, -1), Offset(3, 0))
    ]
    assert [(one.only_compacted, one.entries) for one in found] == [(7, 11), (7, 11), (0, 4), (0, 3)]
    assert Segment.of(replace(compacted, sizes=()), BEGINNING, BEGINNING).only_compacted == 7
    assert Segment.of(replace(compacted, sizes=()), Offset(0, 1), Offset(0, 1)).only_compacted == 0
    assert Segment.of(state, BEGINNING, state.end).only_compacted == 0
