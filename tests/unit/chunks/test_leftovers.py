"""Which chunks no consumer can receive: a consumer of the C++ client is played through what producers left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.chunks.leftovers import leftovers_among, most_begun, unacknowledged
from pulsar_ext.ids.position import Position, PositionRange

OLD, SETTLED, NEW = 10, 20, 30


def _entries(written, published=OLD):
    """Give entries of `a0/3`: the message's name, the chunk, and how many there are; `.` is none of a chunk."""
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
def test_what_is_there_twice_or_has_no_beginning_is_useless_at_once(written, useless, hides):
    """However late its producer's clock is; a message that it hides can be received without it."""
    for published in (OLD, NEW):
        found = leftovers_among(_entries(written, published), SETTLED)
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
def test_what_has_no_end_is_left_alone_while_it_may_be_on_its_way(written, useless, endless):
    """A message that was published a moment ago is not touched; an old one has no end."""
    old, new = (leftovers_among(_entries(written, published), SETTLED) for published in (OLD, NEW))
    assert (_at(old.useless), _at(old.endless)) == (useless, endless)
    assert (_at(new.useless), _at(new.endless)) == (useless, [])


def _delivered(entries):
    """What a consumer of the C++ client delivers: the ends of messages."""
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
    """Draw what one producer name left, with one count of chunks: parts of its message, each from some chunk on."""
    count = draw(st.integers(2, 4))
    words, written = [], 0
    for _ in range(draw(st.integers(1, 5))):
        first = draw(st.integers(0, min(written, count - 1)))
        last = draw(st.integers(first, count - 1))
        words += [f"a{chunk}/{count}" for chunk in range(first, last + 1)]
        written = last + 1
    return " ".join(words), count


@given(attempts())
def test_what_was_delivered_still_is_and_a_hidden_message_comes(drawn):
    """Once the useless ones are acknowledged; and a message whose last chunks are on their way is delivered, too."""
    written, count = drawn
    entries = _entries(written, NEW)
    found = leftovers_among(entries, SETTLED)
    left = [one for one in entries if one.position not in found.useless]
    before, after = _delivered(entries), _delivered(left)
    assert set(before) <= set(after)
    assert len(after) > len(before) or not found.hides_message
    last = entries[-1].chunk_id
    rest = _entries(" ".join(["."] * len(entries) + [f"a{chunk}/{count}" for chunk in range(last + 1, count)]))
    rest = rest[len(entries) :]
    completed = leftovers_among([*left, *rest], SETTLED)
    whole = [one for one in [*left, *rest] if one.position not in completed.useless]
    assert _delivered(whole)[-1] == whole[-1].position


class _Read(SimpleNamespace):
    """An entry that counts how often its size is read."""

    reads = 0

    @property
    def num_chunks(self):
        _Read.reads += 1
        return self.size


def test_each_chunk_is_looked_at_a_few_times():
    """Many chunks of a message that has lost its beginning take time in proportion to them, not to their square."""
    count = 1000
    chunks = [_entry(at, f"a{at}/{count}", OLD) for at in range(1, count)]
    for one in chunks:
        one.size = one.__dict__.pop("num_chunks")
    _Read.reads = 0
    found = leftovers_among([_Read(**vars(one)) for one in chunks], SETTLED)
    assert len(found.useless) == count - 1
    assert _Read.reads <= 5 * count


class _Counted(PositionRange):
    """A range that counts how often it is asked for an entry."""

    asked = 0

    def __contains__(self, position):
        _Counted.asked += 1
        return super().__contains__(position)


def _stats(sizes, mark, ranges):
    cursor = SimpleNamespace(mark_delete_position=mark, individually_deleted=tuple(ranges))
    return SimpleNamespace(cursors={"s": cursor}, ledger_sizes=lambda: sizes)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_what_is_not_acknowledged_is_all_that_neither_cursor_nor_range_has(sizes, data):
    """Entries up to the mark-delete position and those of the ranges, which may go over ledgers, are left out."""
    every = [Position(ledger, entry) for ledger, entries in enumerate(sizes) for entry in range(entries)]
    acknowledged = data.draw(st.lists(st.booleans(), min_size=len(every), max_size=len(every)))
    begins = next((at for at, done in enumerate(acknowledged) if not done), len(every))
    mark = every[begins - 1] if begins else Position(0, -1)
    ranges = [PositionRange(every[at - 1], every[at]) for at in range(begins + 1, len(every)) if acknowledged[at]]
    found = list(unacknowledged(_stats(list(enumerate(sizes)), mark, ranges), "s"))
    assert found == [at for at, done in zip(every, acknowledged, strict=True) if not done]


def test_each_entry_is_looked_for_in_one_range():
    """A walk over many holes takes time in proportion to them, not to their square."""
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
def test_messages_begun_at_a_time_are_counted(written, most, whole):
    """It is known how many messages are begun and not ended at a time, and which are whole."""
    entries = _entries(written)
    assert most_begun(entries) == most
    assert [_at(chunks) for chunks in leftovers_among(entries, SETTLED).whole] == whole
