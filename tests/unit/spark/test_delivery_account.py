"""Account of a segment: messages to keep, missing entries, and the end of the segment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.ids.position import Position
from pulsar_ext.spark.delivery_account import DeliveryAccount
from pulsar_ext.spark.offsets import Offset, Segment, TopicState


def columns_of(ids):
    ledger, entry, batch = zip(*ids, strict=True)
    return np.array(ledger, np.int64), np.array(entry, np.int64), np.array(batch, np.int32)


@st.composite
def topics(draw):
    """Return a topic of plain, batched and interleaved chunked messages and markers, as entries and deliveries."""
    kinds = draw(st.lists(st.sampled_from(["plain", "batch", "chunk", "marker"]), min_size=1, max_size=30))
    ledger_size = draw(st.integers(1, 8))
    entries, deliveries, open_chunks = [], [], []

    def place():
        nth = len(entries)
        return 3 + 2 * (nth // ledger_size), nth % ledger_size

    for kind in kinds:
        at = place()
        entries.append(at)
        if kind == "plain":
            deliveries.append(((*at, -1), None, 1))
        elif kind == "batch":
            size = draw(st.integers(1, 3))
            deliveries += [((*at, index), None, size) for index in range(size)]
        elif kind == "chunk":
            open_chunks.append(at)
        if open_chunks and draw(st.booleans()):
            end = place()
            entries.append(end)
            deliveries.append(((*end, -1), Position(*open_chunks.pop(0)), 1))
    sizes = {}
    for ledger, _ in entries:
        sizes[ledger] = sizes.get(ledger, 0) + 1
    return tuple(sizes.items()), entries, deliveries


@given(topics(), st.data())
def test_each_message_is_kept_once(topic, data):
    """Each message is kept once, for any cut of the topic, any blocks of deliveries, and redeliveries."""
    sizes, entries, deliveries = topic
    state = TopicState("t", sizes, 1)
    whole = Segment.of(state, Offset(-1, -1), Offset(*entries[-1]))
    kept = []
    for segment in whole.cut(data.draw(st.integers(1, 4))):
        account = DeliveryAccount(segment)
        begin = segment.after.position
        stream = [one for one in deliveries if (one[1] or Position(*one[0][:2])) > begin]
        repeat = data.draw(st.integers(0, len(stream)))
        stream = stream[:repeat] + stream[max(repeat - 2, 0) :]  # a reconnect redelivers some
        while stream:
            count = data.draw(st.integers(1, 5))
            block, stream = stream[:count], stream[count:]
            ids = [one[0] for one in block]
            first_chunks = {index: one[1] for index, one in enumerate(block) if one[1] is not None}
            sizes = [one[2] for one in block]
            indexes = account.feed(columns_of(ids), first_chunks=first_chunks, batch_size=sizes.__getitem__)
            kept += [ids[index] for index in (range(len(ids)) if indexes is None else indexes)]
        expected = {Position(*one) for one in entries if segment.after < Offset(*one) and Offset(*one) <= segment.until}
        seen = {Position(*one[0][:2]) for one in deliveries} | {one[1] for one in deliveries if one[1]}
        missing = {*account.missing(), *account.rest()}
        foreign = {Position(*one[0][:2]) for one in deliveries if one[1] is not None and one[1] <= begin}
        assert missing - foreign == expected - seen - foreign
    assert sorted(kept) == sorted(one[0] for one in deliveries)


def feed(account, *ids, sizes=None):
    return account.feed(columns_of(ids), first_chunks={}, batch_size=(sizes or [1] * len(ids)).__getitem__)


def test_late_chunked_message_is_kept_once():
    """A late chunked message is kept once after messages outside the segment, and not after a kept one."""
    for until, wanted in ((1, [0]), (8, [])):
        account = DeliveryAccount(Segment.of(TopicState("t", ((1, 9),), 1), Offset(1, -1), Offset(1, until)))
        feed(account, (1, 1, -1))
        feed(account, (1, 8, -1))
        late = columns_of([(1, 6, -1), (1, 8, -1)])
        chunked = {0: Position(1, 0)}
        assert account.feed(late, first_chunks=chunked, batch_size=[1, 1].__getitem__) == wanted
        assert account.feed(late, first_chunks=chunked, batch_size=[1, 1].__getitem__) == []


def test_end_is_reached_by_a_later_message():
    """A message after the segment's end reaches the end: the last entry may have no message."""
    account = DeliveryAccount(Segment.of(TopicState("t", ((1, 9),), 1), Offset(1, -1), Offset(1, 4)))
    assert feed(account, (1, 0, -1), (1, 3, -1)) is None
    assert not account.reached
    assert list(account.missing()) == [Position(1, 1), Position(1, 2)]
    assert list(account.rest()) == [Position(1, 4)]
    assert feed(account, (1, 6, -1)) == []
    assert account.reached
    assert list(account.missing()) == [Position(1, 1), Position(1, 2), Position(1, 4)]


def test_end_inside_a_batch():
    """An end inside a batch is reached by that message; an end after the batch, by its last message."""
    for until, last in ((Offset(1, 0), 2), (Offset(1, 0, 1), 1)):
        account = DeliveryAccount(Segment.of(TopicState("t", ((1, 9),), 1), Offset(1, -1), until))
        for index in range(3):
            kept = feed(account, (1, 0, index), sizes=[3])
            assert (kept is None) == (index <= last)
            assert account.reached == (index >= last)


def test_start_inside_a_batch():
    """Messages of the first batch that were read before are not kept."""
    account = DeliveryAccount(Segment.of(TopicState("t", ((1, 9),), 1), Offset(1, 2, 1), Offset(1, 3)))
    assert feed(account, (1, 2, 0), (1, 2, 1), (1, 2, 2), (1, 3, -1), sizes=[3, 3, 3, 1]) == [2, 3]
    assert account.reached
    assert list(account.missing()) == []
