"""The grouping tracker against a plain model of a broker's cursor, and the reading of ids."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.ack.group_timer import Group
from pulsar_ext.ack.id_bytes import gather, gather_numbered, singles
from pulsar_ext.ack.in_flight import SentAcks
from pulsar_ext.ack.tracker import NOTHING, AckTracker, Leaving, Singles
from pulsar_ext.errors import InvalidMessageId

TOPIC = {(5, 0): 0, (5, 1): 3, (5, 2): 0, (5, 3): 2, (7, 0): 70, (7, 1): 0, (7, 2): 0, (9, 0): 4, (9, 1): 0}
"""Ledger and entry of every entry, and how many messages its batch has; 0 for no batch. Ledgers end anywhere."""
ENTRIES = list(TOPIC)
MESSAGES = [(entry, index) for entry, size in TOPIC.items() for index in (range(size) if size else (-1,))]


@dataclass
class Broker:
    """What a cursor does with what it is told, as plainly as can be."""

    keeps_indexes: bool
    acknowledged: set[tuple[tuple[int, int], int]] = field(default_factory=set)

    def told(self, leaving: Leaving) -> None:
        """Take it as the broker does: whole entries, and parts of batches only where it keeps them."""
        for entry in ENTRIES:
            if (leaving.cumulative is not None and entry <= leaving.cumulative) or entry in leaving.whole:
                self.acknowledged |= {message for message in MESSAGES if message[0] == entry}
        for entry, size, bits in leaving.indexes:
            assert size == TOPIC[entry]
            if self.keeps_indexes:
                self.acknowledged |= {(entry, index) for index in range(size) if bits >> index & 1}

    @property
    def mark_delete(self) -> tuple[int, int]:
        """The last entry before the first that is not wholly acknowledged."""
        mark = (5, -1)
        for entry in ENTRIES:
            if not self.whole(entry):
                break
            mark = entry
        return mark

    def whole(self, entry: tuple[int, int]) -> bool:
        """Whether every message of an entry is acknowledged."""
        return all(message in self.acknowledged for message in MESSAGES if message[0] == entry)


class Tracked(RuleBasedStateMachine):
    """Any sequence of acknowledgements and flushes leaves the cursor with what the application acknowledged."""

    @initialize(runs=st.booleans(), keeps=st.booleans())
    def begin(self, runs, keeps):
        """Either kind of subscription, either kind of broker."""
        self.tracker = AckTracker(runs=runs, keeps_indexes=keeps)
        self.broker, self.keeps = Broker(keeps), keeps
        self.application: set[tuple[tuple[int, int], int]] = set()
        self.cumulatives = 0

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge(self, message):
        """One message, perhaps again."""
        entry, index = message
        self.tracker.add(entry, index, TOPIC[entry])
        self.application.add(message)

    @rule(at=st.integers(0, len(MESSAGES) - 1), count=st.integers(1, 90))
    def acknowledge_many(self, at, count):
        """Neighbours, as applications do."""
        for message in MESSAGES[at : at + count]:
            self.acknowledge(message)

    @rule(at=st.integers(0, len(ENTRIES) - 1), count=st.integers(1, 6), jump=st.booleans())
    def acknowledge_singles(self, at, count, jump):
        """Entries of one message each, neighbours or in any order, as they are read at once."""
        ledger = ENTRIES[at][0]
        found = [entry for one, entry in ENTRIES[at : at + count] if one == ledger and TOPIC[one, entry] == 0]
        if found:
            is_row = found == list(range(found[0], found[0] + len(found))) and not jump
            numbers = range(found[0], found[-1] + 1) if is_row else found[::-1]
            self.tracker.add_singles(Singles(-1, ledger, numbers))
            self.application |= {((ledger, entry), -1) for entry in found}

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge_cumulative(self, message):
        """Everything up to a message."""
        entry, index = message
        self.tracker.add_cumulative(entry, index, TOPIC[entry])
        self.application |= {one for one in MESSAGES if one <= message}

    @rule(message=st.sampled_from(MESSAGES))
    def take_back(self, message):
        """A message of a batch that has not left yet is asked for again."""
        entry, index = message
        if message in self.application and entry not in {one for one, _ in self.broker.acknowledged}:
            covered = self.tracker.base is not None and entry <= self.tracker.base
            if not covered and index >= 0:
                self.tracker.take_back(entry, index, TOPIC[entry])
                self.application.discard(message)

    @rule()
    def look(self):
        """The cursor tells where it is."""
        mark = self.broker.mark_delete
        after = next((entry for entry in ENTRIES if entry > mark), None)
        self.tracker.looked(mark, after, [e for e in ENTRIES if e > mark and self.broker.whole(e)])

    @rule()
    def flush(self):
        """Everything leaves; the cursor has exactly what was acknowledged, as far as it can hold it."""
        self.broker.told(self.tracker.leave())
        assert self.tracker.pending == 0
        for entry, size in TOPIC.items():
            mine = {message for message in self.application if message[0] == entry}
            if self.keeps or len(mine) == max(size, 1):
                assert mine <= self.broker.acknowledged
        assert self.tracker.leave() == NOTHING

    @invariant()
    def never_more(self):
        """The broker never has what the application did not acknowledge, and duplicates are none it has not seen."""
        assert self.broker.acknowledged <= self.application
        for entry, index in MESSAGES:
            if self.tracker.is_duplicate(entry, index):
                assert (entry, index) in self.application


TestTracked = Tracked.TestCase
TestTracked.settings = settings(max_examples=300, stateful_step_count=30)


def test_a_run_leaves_as_one_position_and_holes_stay_single():
    """Without a look nothing is concluded; with one, the run from the cursor on is one position, across ledgers too."""
    tracker = AckTracker(runs=True)
    for entry in [(5, 0), (5, 2)]:
        tracker.add(entry)
    assert tracker.leave() == Leaving(None, ((5, 0), (5, 2)))
    tracker.looked((5, 0), (5, 1))
    tracker.add((5, 1))
    tracker.add((5, 4))
    assert tracker.leave() == Leaving((5, 2), ((5, 4),))
    tracker.looked((5, 4), (7, 0))
    tracker.add((7, 0))
    assert tracker.leave() == Leaving((7, 0))


def test_a_row_of_single_messages_waits_as_one_and_leaves_as_one_position():
    """Entries that are acknowledged as they came count each, are duplicates each, and leave as the last one."""
    tracker = AckTracker(runs=True)
    tracker.looked((5, 9), None)
    tracker.add_singles(Singles(-1, 5, range(10, 300)))
    tracker.add_singles(Singles(-1, 5, range(300, 310)))
    assert tracker.pending == 300
    assert tracker.leave() == Leaving((5, 309))
    tracker.add_singles(Singles(-1, 5, range(310, 320)))
    assert tracker.is_duplicate((5, 319))
    tracker.add_singles(Singles(-1, 5, range(330, 332)))
    assert tracker.pending == 12
    assert tracker.leave() == Leaving((5, 319), ((5, 330), (5, 331)))


_LEDGER_5 = 6
"""So many entries the ledger 5 has; 6 follows."""


@given(
    st.booleans(),
    st.integers(-1, _LEDGER_5 - 1),
    st.lists(
        st.tuples(st.sampled_from([5, 6]), st.integers(0, 20), st.integers(1, 9), st.booleans(), st.booleans()),
        max_size=8,
    ),
)
def test_rows_of_single_messages_leave_as_what_they_are(runs, mark, groups):
    """Neighbours or not, gaps, overlaps and repetitions: the cursor has what was acknowledged, after every flush."""
    topic = [(5, entry) for entry in range(_LEDGER_5)] + [(6, entry) for entry in range(30)]
    tracker = AckTracker(runs=runs)
    tracker.looked((5, mark), topic[mark + 1])
    acknowledged = {entry for entry in topic if entry <= (5, mark)}
    cursor = set(acknowledged)
    for ledger, first, count, in_order, flushed in [*groups, (5, 0, 1, True, True)]:
        row = range(first, min(first + count, _LEDGER_5) if ledger == 5 else first + count)
        entry_ids = row if in_order else list(row[::-2])
        if not entry_ids:
            continue
        tracker.add_singles(Singles(-1, ledger, entry_ids))
        acknowledged.update((ledger, entry) for entry in entry_ids)
        assert not any(tracker.is_duplicate(entry) for entry in topic if entry not in acknowledged)
        if flushed:
            leaving = tracker.leave()
            cursor.update(leaving.whole)
            cursor.update(entry for entry in topic if leaving.cumulative is not None and entry <= leaving.cumulative)
            assert cursor == acknowledged
            assert tracker.pending == 0


def test_positions_that_go_back_are_ignored_and_cover_single_ones():
    """A cumulative acknowledgement below an earlier one is none; single ones below it do not leave."""
    tracker = AckTracker()
    tracker.add((5, 1))
    assert tracker.add_cumulative((5, 4))
    assert not tracker.add_cumulative((5, 2))
    assert not tracker.add((5, 3))
    tracker.add((5, 6))
    assert tracker.leave() == Leaving((5, 4), ((5, 6),))


def test_what_was_acknowledged_again_is_told_again():
    """The broker delivered it again, so its cursor is behind: nothing is concluded from where it was."""
    tracker = AckTracker(runs=True)
    tracker.looked((5, 4), (5, 5))
    tracker.add((5, 3))
    tracker.add((5, 5))
    assert tracker.leave() == Leaving(None, ((5, 3), (5, 5)))
    assert tracker.base is None


def test_a_batch_counts_when_all_of_it_was_acknowledged():
    """In any order, with repetitions, and only then; some of it leaves only where the broker keeps it."""
    tracker = AckTracker()
    for index in (2, 0, 2):
        tracker.add((5, 1), index, 3)
    assert (tracker.pending, tracker.leave(), tracker.partly()) == (0, NOTHING, {(5, 1): (3, 0b101)})
    tracker.take_back((5, 1), 0)
    tracker.add((5, 1), 1, 3)
    assert tracker.leave() == NOTHING
    tracker.add((5, 1), 0, 3)
    assert tracker.leave() == Leaving(whole=((5, 1),))
    keeping = AckTracker(keeps_indexes=True)
    keeping.add((5, 1), 2, 3)
    assert keeping.leave() == Leaving(indexes=(((5, 1), 3, 0b100),))


def test_groups_are_due_by_time_and_by_size():
    """The first of a group decides when it leaves; 0 ms lets nothing wait; nothing pending is never due."""
    group = Group(time_ms=100, max_size=3)
    assert not group.is_due(0, 5.0)
    assert not group.is_due(1, 5.0)
    assert not group.is_due(2, 5.0625)
    assert group.is_due(2, 5.125)
    assert group.is_due(3, 5.0)
    group.left()
    assert not group.is_due(1, 6.0)
    assert group.wait(6.0625) == pytest.approx(0.0375)
    group.left()
    assert not group.is_due(1, 7.0, 6.9375), "it may have come right after the last look"
    assert group.wait(7.0) == pytest.approx(0.0375)
    assert group.is_due(1, 7.0375, 7.0)
    assert Group(time_ms=0).is_due(1, 0.0)


def test_what_left_lately_is_given_back_as_one():
    """What left long ago has arrived; the rest comes back without what a position covers."""
    sent = SentAcks(1.0)
    sent.add(Leaving(whole=((5, 0),)), 1.0, {(5, 0): "old"})
    sent.add(Leaving(whole=((5, 1), (5, 7)), indexes=(((5, 8), 3, 0b1),)), 2.0, {(5, 7): "an id"})
    sent.add(Leaving((5, 4), indexes=(((5, 8), 3, 0b10),)), 2.5, {})
    sent.expire(2.9)
    assert sent.ids == {(5, 7): "an id"}
    assert sent.take() == Leaving((5, 4), ((5, 7),), (((5, 8), 3, 0b11),))
    assert not sent
    assert sent.take() == NOTHING


def test_what_left_lately_is_bounded():
    """The oldest go first when too much left."""
    sent = SentAcks(1.0, limit=2)
    for entry in range(4):
        sent.add(Leaving(whole=((5, entry),)), 1.0, {})
    assert sent.take() == Leaving(whole=((5, 2), (5, 3)))


_ids = st.builds(
    lambda ledger, entry, partition, size, at, chunk: MessageIdData(
        ledger,
        entry,
        partition,
        batch_index=at % size if size and not chunk else -1,
        batch_size=size if not chunk else 0,
        first_chunk=MessageIdData(ledger, 0, partition) if chunk else None,
    ),
    st.sampled_from([0, 5, 300]),
    st.one_of(st.integers(0, 2), st.sampled_from([127, 128, 16383, 16384, (1 << 21) - 1, 1 << 21, 1 << 40])),
    st.sampled_from([-1, 0, 200]),
    st.sampled_from([0, 1, 2, 3, 200]),
    st.integers(0, 300),
    st.booleans(),
)


@given(st.lists(_ids, max_size=40), st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1, 2, 5, 130])), max_size=3))
def test_gathered_ids_are_all_ids_and_nothing_else(ids, batches):
    """However ids are mixed, whole batches among them, each of them is in the result once for each time."""
    for entry, size in batches:
        ids = [*ids, *(MessageIdData(4, entry, batch_index=index, batch_size=size) for index in range(size)), *ids[:3]]
    found: set[tuple[int, int, int, int, int]] = set()
    places = []
    for partition, (ledger, entry), size, bits, at in gather([encode(one) for one in ids]):
        places.append(at)
        if size > 0:
            found |= {(partition, ledger, entry, size, index) for index in range(size) if bits >> index & 1}
        else:
            assert (size == -2) == (ids[at].first_chunk is not None)
            found.add((partition, ledger, entry, size, -1))
    assert found == {
        (one.partition, one.ledger_id, one.entry_id, -2 if one.first_chunk else one.batch_size if one.batch_index >= 0
         else 0, one.batch_index) for one in ids
    }  # fmt: skip
    assert places == sorted(set(places))
    assert (places[-1:] or [len(ids) - 1]) == [len(ids) - 1]


@given(st.lists(_ids, max_size=8), st.integers(0, 1 << 22), st.integers(0, 300), st.sampled_from([-1, 0, 200]))
def test_single_messages_are_read_at_once_as_they_are_one_by_one(mixed, first, count, partition):
    """Neighbours of a ledger are recognised where their ids are of one length; others are the same, or not for it."""
    neighbours = [MessageIdData(5, entry, partition) for entry in range(first, first + count)]
    for ids in ([encode(one) for one in neighbours], [encode(one) for one in [*neighbours, *mixed]]):
        found = singles(ids)
        if found is None:
            assert len(set(map(len, ids))) != 1 or mixed
        else:
            expected = [(part, entry, size) for part, entry, size, _, _ in gather(ids)]
            assert [(found.partition, entry, 0) for entry in found.entries] == expected
            assert len(found) == len(ids)
        if ids and found is not None and len(ids) == count:
            assert found.entry_ids == range(first, first + count)


class _Queue:
    """A receiver queue of batches, and threads that take messages out of it."""

    def __init__(self, sizes, threads, owner=0):
        self.received, self.numbers = [], {}
        at = 0
        for entry, size in enumerate(sizes):
            for index in range(max(size, 1)):
                one = (entry, index if size > 1 else -1, size if size > 1 else 0)
                self.received.append(one)
                # Only the first thread's messages are numbered, in the order in which it took them.
                self.numbers[one] = 0
                if threads[at % len(threads)] == owner:
                    self.numbers[one] = 1 + max(self.numbers.values())
                at += 1


@given(
    st.lists(st.sampled_from([0, 2, 3, 7, 40]), max_size=8),
    st.lists(st.integers(0, 2), min_size=1, max_size=7),
    st.data(),
)
def test_numbered_ids_acknowledge_what_was_acknowledged(sizes, threads, data):
    """Whoever received them, and in whatever order and groups they are acknowledged: nothing more, and nothing less."""
    queue = _Queue(sizes, threads)
    acknowledged = list(queue.received)
    how = data.draw(st.sampled_from(["all", "some", "shuffled"]))
    if how != "all" and acknowledged:
        acknowledged = data.draw(st.lists(st.sampled_from(acknowledged), unique=how == "shuffled"))
    cut = data.draw(st.integers(0, len(acknowledged)))
    doubtful = data.draw(st.sampled_from([0, 0, 5, 50]))
    found = set()
    reads = []
    for group in (acknowledged[:cut], acknowledged[cut:]):
        ids = [encode(MessageIdData(4, entry, batch_index=index, batch_size=size)) for entry, index, size in group]

        def read(start, stop, ids=ids):
            reads.extend(range(start, stop))
            return ids[start:stop]

        numbers = [queue.numbers[one] for one in group]
        for partition, (ledger, entry), size, bits, at in gather_numbered(numbers, read, range(doubtful + 1, 1000)):
            assert (partition, ledger) == (-1, 4)
            assert 0 <= at < len(group)
            found |= {(entry, index, size) for index in range(size) if bits >> index & 1} or {(entry, -1, 0)}
    assert found == set(acknowledged)
    if how == "all" and set(threads) == {0} and cut == 0 and doubtful == 0 and all(size > 2 for size in sizes):
        assert len(reads) == 2 * len(sizes)


def test_numbers_say_nothing_where_partitions_share_a_queue():
    """A message of another partition that stands where an acknowledged one of a batch would is not passed over."""
    ids = [
        MessageIdData(4, 7, partition=0, batch_index=0, batch_size=3),
        MessageIdData(5, 1, partition=1, batch_index=0, batch_size=3),
        MessageIdData(4, 7, partition=0, batch_index=2, batch_size=3),
    ]
    data = [encode(one) for one in ids]
    found = gather_numbered([1, 2, 3], lambda start, stop: data[start:stop], range(1, 9), mixed=True)
    assert [(one[0], one[1], one[3]) for one in found] == [(0, (4, 7), 0b1), (1, (5, 1), 0b1), (0, (4, 7), 0b100)]


def test_what_is_no_id_is_refused():
    """Bytes that the C++ client would not write raise instead of acknowledging something else."""
    with pytest.raises(InvalidMessageId):
        list(gather([b"\x08\x05"]))
