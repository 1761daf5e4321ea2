"""The search for a boundary: runs, chunks that repeat, and messages without an end."""

import random

from hypothesis import given
from hypothesis import strategies as st
from skip_model import OLD, Entry, Topic

from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.skip.backlog import Backlog
from pulsar_ext.skip.boundaries import BoundaryFinder, Chunk, EntryRun


def test_repeated_chunks():
    """A chunk that is sent twice after a reconnect does not break its message; a missing one does."""
    key = ("u", "p", 1)
    for order, messages in (([0, 1, 1, 2], 1), ([0, 0, 1, 2], 1), ([0, 2], 0)):
        backlog = Backlog(Ledgers([(3, 9)]), Position(3, -1))
        finder = BoundaryFinder(backlog, 5, "message")
        for entry, index in enumerate(order):
            finder.feed(Chunk(Position(3, entry), key, index, 3, OLD))
        assert finder.boundary.messages == messages
        assert not finder.unfinished


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(0, 30), st.integers(1, 20))
def test_runs_are_their_entries(acked, first, length):
    """A long run counts as its entries one by one do, with holes of any kind."""
    topic = Topic([Entry(0)] * 60, {3: 60}, [number for number in set(acked) if number < 60])
    wanted = random.Random(first).randrange(70)
    one, each = (BoundaryFinder(topic.backlog, wanted, "message") for _ in range(2))
    one.feed(EntryRun(3, first, first + length - 1, 2))
    for entry in range(first, first + length):
        if not each.done:
            each.feed(EntryRun(3, entry, entry, 2))
    assert (one.boundary, one.following) == (each.boundary, each.following)
