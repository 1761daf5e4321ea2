"""The search for a message's chunks, on random topics with interleaved producers, ledgers and deletions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.chunks.search import Chunks, resolve_chunks
from pulsar_ext.errors import AdminNotFound, IncompleteChunkedMessage, MessageIdNotFound, MessageIdUnresolved
from pulsar_ext.ids.position import Position


def _entry(message, chunk, count):
    return SimpleNamespace(
        uuid=f"p-{message}" if count > 1 else None,
        producer_name="p",
        sequence_id=message,
        chunk_id=chunk if count > 1 else None,
        num_chunks=count if count > 1 else None,
        is_chunk=count > 1,
        num_messages_in_batch=None,
    )


@st.composite
def topics(draw):
    """Draw a topic: the message and the chunk of each entry, and the ends of ledgers."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    next_chunk = dict.fromkeys(range(len(counts)), 0)
    order = []
    while next_chunk:
        message = draw(st.sampled_from(sorted(next_chunk)))
        order.append((message, next_chunk[message]))
        next_chunk[message] += 1
        if next_chunk[message] == counts[message]:
            del next_chunk[message]
    entries, ledger, entry = {}, draw(st.integers(0, 5)), 0
    for message, chunk in order:
        entries[Position(ledger, entry)] = (message, chunk)
        entry += 1
        if draw(st.booleans()):
            ledger, entry = ledger + draw(st.integers(1, 3)), 0
    return counts, entries


class _Admin:
    """Admin API of one topic, with the headers at each position and the size of each ledger."""

    def __init__(self, headers, ledgers):
        self.headers, self.ledgers, self.asked = headers, ledgers, []

    def entry(self, _, ledger, entry):
        self.asked.append(Position(ledger, entry))
        if (found := self.headers(self.asked[-1])) is None:
            raise AdminNotFound("no such entry")
        return found

    def internal_stats(self, _):
        return SimpleNamespace(ledger_sizes=lambda: self.ledgers)


def _run(entries, counts, position):
    ledgers = {}
    for at in entries:
        ledgers[at.ledger_id] = max(ledgers.get(at.ledger_id, 0), at.entry_id + 1)

    def headers(at):
        known = entries.get(at)
        return known and _entry(*known, counts[known[0]])

    return resolve_chunks(_Admin(headers, [*ledgers.items(), (max(ledgers) + 7, 0)]), "t", position)


@given(topics(), st.data())
def test_all_chunks_are_found_from_any_chunk(topic, data):
    """All chunks of the message are found, in order, with any entries in between and any ends of ledgers."""
    counts, entries = topic
    position = data.draw(st.sampled_from(sorted(entries)))
    message = entries[position][0]
    expected = tuple(sorted(at for at, (owner, _) in entries.items() if owner == message))
    found = _run(entries, counts, position)
    assert found == Chunks(expected)


@given(topics(), st.data())
def test_missing_first_or_last_chunk_raises(topic, data):
    """The search raises with the chunk's number if the first chunk was trimmed, or the last one not written."""
    counts, entries = topic
    position = data.draw(st.sampled_from(sorted(entries)))
    message = entries[position][0]
    own = sorted(at for at, (owner, _) in entries.items() if owner == message)
    missing = data.draw(st.sampled_from([own[0], own[-1]]))
    if missing == position:
        return
    with pytest.raises(IncompleteChunkedMessage) as caught:
        _run({at: what for at, what in entries.items() if at != missing}, counts, position)
    assert caught.value.chunk_id == entries[missing][1]
    assert caught.value.num_chunks == counts[message]


def test_missing_entry_raises():
    """A position without an entry raises MessageIdNotFound."""
    with pytest.raises(MessageIdNotFound):
        _run({Position(1, 0): (0, 0)}, [1], Position(1, 5))


def test_adjacent_chunks_take_two_requests():
    """Adjacent chunks are found with the id's own headers and one more request, for any number of chunks."""
    admin = _Admin(lambda at: _entry(0, at.entry_id, 100), [(1, 100)])
    assert len(resolve_chunks(admin, "t", Position(1, 99)).positions) == 100
    assert admin.asked == [Position(1, 99), Position(1, 0)]


def test_search_for_distant_chunk_raises():
    """A chunk more than 10,000 other entries away raises."""
    start = Position(1, 50_000)
    admin = _Admin(lambda at: _entry(0, 1, 2) if at == start else _entry(1, 0, 1), [(1, 50_001)])
    with pytest.raises(MessageIdUnresolved) as caught:
        resolve_chunks(admin, "t", start)
    assert caught.value.retriable
    assert len(admin.asked) == 10_003  # the chunk, the adjacent position, and one other entry too many


def test_chunks_across_ledgers_by_admin_api():
    """A chunked message across two ledgers is found by the admin API."""
    entries = {Position(1, 0): _entry(0, 0, 2), Position(2, 0): _entry(0, 1, 2)}
    admin = _Admin(entries.get, [(1, 1), (2, 1)])
    assert resolve_chunks(admin, "t", Position(1, 0)) == Chunks((Position(1, 0), Position(2, 0)))
