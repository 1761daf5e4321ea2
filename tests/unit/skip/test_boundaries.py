"""The search for a boundary: runs, repeated chunks, and incomplete messages."""

import random

from hypothesis import given
from hypothesis import strategies as st
from skip_model import OLD, Entry, Topic

from pulsar_ext.ids.position import Ledgers, Position, PositionRange, PositionRanges
from pulsar_ext.skip.boundaries import Backlog, Boundary, BoundaryFinder, Chunk, EntryRun, PartialBatch


def test_repeated_chunks():
    """A chunk that is sent twice after a reconnect does not break its message; a missing chunk does."""
    key = ("u", "p", 1)
    for order, messages in (([0, 1, 1, 2], 1), ([0, 0, 1, 2], 1), ([0, 2], 0)):
        backlog = Backlog(Ledgers([(3, 9)]), Position(3, -1))
        finder = BoundaryFinder(backlog, 5, "message")
        for entry, index in enumerate(order):
            finder.feed(Chunk(Position(3, entry), key, index, 3, OLD))
        assert finder.boundary.messages == messages
        assert not finder.unfinished


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(0, 30), st.integers(1, 20))
def test_run_counts_as_its_entries(acked, first, length):
    """A run counts the same as its entries one by one, with any holes."""
    topic = Topic([Entry(0)] * 60, {3: 60}, [number for number in set(acked) if number < 60])
    wanted = random.Random(first).randrange(70)
    one, each = (BoundaryFinder(topic.backlog, wanted, "message") for _ in range(2))
    one.feed(EntryRun(3, first, first + length - 1, 2))
    for entry in range(first, first + length):
        if not each.done:
            each.feed(EntryRun(3, entry, entry, 2))
    assert (one.boundary, one.following) == (each.boundary, each.following)


def _fed(wanted, *items, deleted=(), **options):
    """Return a finder over an unacknowledged topic after it got the items."""
    finder = BoundaryFinder(
        Backlog(Ledgers([(3, 9)]), Position(3, -1), PositionRanges.of(deleted)), wanted, "message", **options
    )
    for item in items:
        finder.feed(item)
    return finder


def test_markers_count_as_entries_only():
    """Markers count as entries only, and the search continues after them."""
    finder = _fed(1, EntryRun(3, 0, 1, 0))
    assert (finder.boundary, finder.done) == (Boundary(Position(3, 1), 0, 2), False)
    finder.feed(EntryRun(3, 2, 4, 1))
    assert (finder.boundary, finder.done) == (Boundary(Position(3, 2), 1, 3), True)


def test_boundary_inside_a_batch():
    """With batch index acknowledgements, the boundary is inside the batch; without them, both neighbours are known."""
    finder = _fed(7, EntryRun(3, 0, 4, 3), inside_batches=True)
    assert (finder.boundary, finder.exact) == (Boundary(Position(3, 1), 7, 2, 1), True)
    finder = _fed(7, EntryRun(3, 0, 4, 3))
    assert (finder.boundary, finder.following) == (Boundary(Position(3, 1), 6, 2), Boundary(Position(3, 2), 9, 3))
    assert (finder.exact, finder.done) == (False, True)


def test_finder_notices_batches():
    """The finder notices a batch in a run, and a partly acknowledged batch."""
    assert not _fed(9, EntryRun(3, 0, 3, 1)).saw_batches
    assert _fed(9, EntryRun(3, 0, 0, 1), EntryRun(3, 1, 1, 2)).saw_batches
    assert _fed(9, PartialBatch(Position(3, 0), (1,)), EntryRun(3, 1, 1, 1)).saw_batches


def test_acked_or_missing_chunk_breaks_the_message():
    """A message with an acknowledged or missing chunk never crosses a boundary, nor does an abandoned one."""
    key = ("u", "p", 1)
    chunks = [Chunk(Position(3, entry), key, entry, 3, OLD + entry) for entry in range(3)]
    opened = _fed(5, *chunks[:2])
    [one] = opened.unfinished.values()
    assert (one.first, one.newest, opened.broken) == (Position(3, 0), OLD + 1, set())
    assert opened.boundary == Boundary(Position(3, -1), 0, 0)
    acknowledged = _fed(5, *chunks[:2], deleted=(PositionRange(Position(3, 0), Position(3, 1)),))
    assert (acknowledged.unfinished, acknowledged.broken) == ({}, {key})
    assert acknowledged.boundary == Boundary(Position(3, 1), 0, 1)
    missing = _fed(5, chunks[0], chunks[2])
    assert (missing.unfinished, missing.broken, missing.boundary) == ({}, {key}, Boundary(Position(3, 2), 0, 2))
    abandoned = _fed(5, *chunks[:2], abandoned=frozenset({key}))
    assert (abandoned.unfinished, abandoned.broken) == ({}, set())
    assert abandoned.boundary == Boundary(Position(3, 1), 0, 2)
    assert _fed(5, *chunks).boundary == Boundary(Position(3, 2), 1, 3)
