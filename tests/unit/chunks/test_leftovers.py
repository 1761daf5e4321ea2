"""Chunks that no consumer can receive, against a model of a consumer of the C++ client."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.chunks.leftovers import leftovers_among, max_concurrent_incomplete, unacknowledged
from pulsar_ext.ids.position import Position, PositionRange

OLD, COMPLETE_BEFORE, NEW = 10, 20, 30


def _entries(written, published=OLD):
    """Return entries of words such as `a0/3`: message, chunk number, number of chunks; `.` is not a chunk."""
    return [_entry(at, text, published) for at, text in enumerate(written.split())]


def _entry(at, text, published):
    if text == ".":
        return SimpleNamespace(position=Position(1, at), is_chunk=False)
    name, (chunk, count) = text[0], map(int, text[1:].split("/"))
    return SimpleNamespace(
        position=Position(1, at),
        is_chunk=True,
        uuid=name,
        producer_name="p",
        sequence_id=1,
        chunk_id=chunk,
        num_chunks=count,
        total_chunk_size=count,
        publish_time=published,
    )


def _at(positions):
    return [position.entry_id for position in positions]


@pytest.mark.parametrize(
    ("written", "useless", "hides"),
    [
        ("a0/3 a1/3 a2/3 .", [], False),
        ("a0/3 a0/3 a1/3 a2/3", [0], True),
        ("a0/3 a1/3 a1/3 a2/3", [1], True),
        ("a0/4 a1/4 a2/4 a1/4 a2/4 a3/4", [1, 2], True),
        ("a0/3 a1/3 a2/3 a1/3 a2/3", [3, 4], False),
        ("a0/3 a1/3 a2/3 a0/3 a1/3 a2/3", [], False),
        ("a1/3 a2/3 b0/2 b1/2", [0, 1], False),
        ("a0/3 a1/3 b0/3 a0/2 b1/3 a1/2 b2/3", [0, 1], True),
        ("a0/3 a1/3 a2/3 a0/3 a0/3 a1/3 a2/3", [3], True),
        ("a0/2 a0/2 a0/2 a1/2 a1/2", [0, 1, 4], False),
        ("a0/2 a0/2 a1/2 a1/2", [0, 2], True),
        ("a0/3 a1/3 a0/2 a1/2", [0, 1], True),
    ],
)
def test_duplicate_and_headless_chunks_are_useless(written, useless, hides):
    """Duplicate chunks and those without a beginning are useless at any age; a message that they hide is found."""
    for published in (OLD, NEW):
        found = leftovers_among(_entries(written, published), COMPLETE_BEFORE)
        assert (_at(found.useless), _at(found.endless), found.hides_message) == (useless, [], hides)


@pytest.mark.parametrize(
    ("written", "useless", "endless"),
    [
        ("a0/3 a1/3", [], [0, 1]),
        ("a0/3 a1/3 a0/3 a1/3", [], [0, 1, 2, 3]),
        ("a0/3 a1/3 a2/3 a0/3", [], [3]),
        ("a1/3 a2/3 a0/3", [0, 1], [2]),
        ("a0/3 a0/3 a1/3 a2/3 a0/3", [0], [4]),
    ],
)
def test_old_incomplete_messages_are_endless(written, useless, endless):
    """Chunks of an old incomplete message are endless; those of a new one are not."""
    old, new = (leftovers_among(_entries(written, published), COMPLETE_BEFORE) for published in (OLD, NEW))
    assert (_at(old.useless), _at(old.endless)) == (useless, endless)
    assert (_at(new.useless), _at(new.endless)) == (useless, [])


def _delivered(entries):
    """Return the last chunks of the messages that a consumer of the C++ client delivers."""
    caches, ends = {}, []
    for one in entries:
        cache = caches.setdefault(one.uuid, [])
        if one.chunk_id != len(cache):
            cache.clear()
            continue
        cache.append(one)
        if len(cache) == one.num_chunks:
            ends.append(one.position)
            cache.clear()
    return ends


@st.composite
def attempts(draw):
    """Draw the chunks of one producer name and one number of chunks: parts of a message, each from some chunk on."""
    count = draw(st.integers(2, 4))
    words, written = [], 0
    for _ in range(draw(st.integers(1, 5))):
        first = draw(st.integers(0, min(written, count - 1)))
        last = draw(st.integers(first, count - 1))
        words += [f"a{chunk}/{count}" for chunk in range(first, last + 1)]
        written = last + 1
    return " ".join(words), count


@given(attempts())
def test_acking_useless_chunks_reveals_hidden_message(drawn):
    """Without the useless chunks, the same and hidden messages are delivered, and also a message that ends later."""
    written, count = drawn
    entries = _entries(written, NEW)
    found = leftovers_among(entries, COMPLETE_BEFORE)
    left = [one for one in entries if one.position not in found.useless]
    before, after = _delivered(entries), _delivered(left)
    assert set(before) <= set(after)
    assert len(after) > len(before) or not found.hides_message
    last = entries[-1].chunk_id
    rest = _entries(" ".join(["."] * len(entries) + [f"a{chunk}/{count}" for chunk in range(last + 1, count)]))
    rest = rest[len(entries) :]
    completed = leftovers_among([*left, *rest], COMPLETE_BEFORE)
    whole = [one for one in [*left, *rest] if one.position not in completed.useless]
    assert _delivered(whole)[-1] == whole[-1].position


class _Read(SimpleNamespace):
    """An entry that counts the reads of its size."""

    reads = 0

    @property
    def num_chunks(self):
        _Read.reads += 1
        return self.size


def test_leftovers_take_linear_time():
    """Many chunks of a message without a beginning take linear time, not quadratic."""
    count = 1000
    chunks = [_entry(at, f"a{at}/{count}", OLD) for at in range(1, count)]
    for one in chunks:
        one.size = one.__dict__.pop("num_chunks")
    _Read.reads = 0
    found = leftovers_among([_Read(**vars(one)) for one in chunks], COMPLETE_BEFORE)
    assert len(found.useless) == count - 1
    assert _Read.reads <= 5 * count


class _Counted(PositionRange):
    """A range that counts the checks of entries."""

    asked = 0

    def __contains__(self, position):
        _Counted.asked += 1
        return super().__contains__(position)


def _stats(sizes, mark, ranges):
    cursor = SimpleNamespace(mark_delete_position=mark, individually_deleted=tuple(ranges))
    return SimpleNamespace(cursors={"s": cursor}, ledger_sizes=lambda: sizes)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_unacknowledged_excludes_cursor_and_ranges(sizes, data):
    """Entries up to the mark-delete position and in the ranges, which may span ledgers, are excluded."""
    every = [Position(ledger, entry) for ledger, entries in enumerate(sizes) for entry in range(entries)]
    acknowledged = data.draw(st.lists(st.booleans(), min_size=len(every), max_size=len(every)))
    begins = next((at for at, done in enumerate(acknowledged) if not done), len(every))
    mark = every[begins - 1] if begins else Position(0, -1)
    ranges = [PositionRange(every[at - 1], every[at]) for at in range(begins + 1, len(every)) if acknowledged[at]]
    found = list(unacknowledged(_stats(list(enumerate(sizes)), mark, ranges), "s"))
    assert found == [at for at, done in zip(every, acknowledged, strict=True) if not done]


def test_unacknowledged_takes_linear_time():
    """A walk over many holes takes linear time, not quadratic."""
    count = 1000
    ranges = [_Counted(Position(1, 2 * at), Position(1, 2 * at + 1)) for at in range(count)]
    _Counted.asked = 0
    assert len(list(unacknowledged(_stats([(1, 2 * count)], Position(1, -1), ranges), "s"))) == count
    assert _Counted.asked <= 2 * count


@pytest.mark.parametrize(
    ("written", "most", "whole"),
    [
        ("", 0, []),
        (". a0/2 a1/2 b0/2 b1/2", 1, [[1, 2], [3, 4]]),
        ("a0/2 b0/2 a1/2 . b1/2", 2, [[0, 2], [1, 4]]),
        ("a0/2 b0/3 c0/2 b1/3 a1/2 c1/2", 3, [[0, 4], [2, 5]]),
        ("a1/2 b0/2 b1/2", 1, [[1, 2]]),
    ],
)
def test_concurrent_incomplete_messages_are_counted(written, most, whole):
    """The greatest number of messages that are incomplete at the same entry, and the complete ones, are found."""
    entries = _entries(written)
    assert max_concurrent_incomplete(entries) == most
    assert [_at(chunks) for chunks in leftovers_among(entries, COMPLETE_BEFORE).whole] == whole
