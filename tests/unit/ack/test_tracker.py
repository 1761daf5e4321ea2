"""The grouping tracker against a plain model of a broker's cursor."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pulsar_ext.ack.leaving import NOTHING, Leaving, Singles
from pulsar_ext.ack.tracker import AckTracker

TOPIC = {(5, 0): 0, (5, 1): 3, (5, 2): 0, (5, 3): 2, (7, 0): 70, (7, 1): 0, (7, 2): 0, (9, 0): 4, (9, 1): 0}

"""Ledger and entry of every entry, and how many messages its batch has; 0 for no batch. Ledgers end anywhere."""
ENTRIES = list(TOPIC)
MESSAGES = [(entry, index) for entry, size in TOPIC.items() for index in (range(size) if size else (-1,))]


@dataclass
class Broker:
    """What a cursor does with acknowledgements, as plainly as can be."""

    keeps_indexes: bool
    acknowledged: set[tuple[tuple[int, int], int]] = field(default_factory=set)

    def take(self, leaving: Leaving) -> None:
        """Apply an acknowledgement as the broker does: whole entries, and parts of batches only where it keeps them."""
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


def leave(tracker):
    """Have everything leave that waits."""
    leaving = tracker.leave()
    tracker.left()
    return leaving


def acknowledge(tracker, entry, index=-1, size=0):
    """Acknowledge an entry, or one message of a batch; whether anything was new."""
    return tracker.add_bits(entry, size, 1 << index) if index >= 0 else tracker.add_whole(entry)


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
        acknowledge(self.tracker, entry, index, TOPIC[entry])
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

    @rule(everything=st.booleans())
    def settle(self, everything):
        """Time passes: what was acknowledged of a batch may leave, though the rest was not."""
        self.tracker.settle(everything=everything)

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
            covered = self.tracker._base is not None and entry <= self.tracker._base
            if not covered and index >= 0:
                self.tracker.take_back(entry, index, TOPIC[entry])
                self.application.discard(message)

    @rule()
    def look(self):
        """The cursor's position is read."""
        mark = self.broker.mark_delete
        after = next((entry for entry in ENTRIES if entry > mark), None)
        self.tracker.looked(mark, after, [e for e in ENTRIES if e > mark and self.broker.whole(e)])

    @rule()
    def flush(self):
        """Everything leaves; the cursor has exactly what was acknowledged, as far as it can hold it."""
        self.broker.take(leave(self.tracker))
        assert self.tracker.pending == 0
        for entry, size in TOPIC.items():
            mine = {message for message in self.application if message[0] == entry}
            if self.keeps or len(mine) == max(size, 1):
                assert mine <= self.broker.acknowledged
        assert leave(self.tracker) == NOTHING

    @invariant()
    def never_more(self):
        """The broker never has what the application did not acknowledge, and has seen everything called a duplicate."""
        assert self.broker.acknowledged <= self.application
        for entry, index in MESSAGES:
            if self.tracker.is_duplicate(entry, index):
                assert (entry, index) in self.application


TestTracked = Tracked.TestCase
TestTracked.settings = settings(max_examples=300, stateful_step_count=30)


def test_a_run_leaves_as_one_position_and_holes_stay_single():
    """Only when the cursor was looked at is the run from it on one position, across ledgers too."""
    tracker = AckTracker(runs=True)
    for entry in [(5, 0), (5, 2)]:
        acknowledge(tracker, entry)
    assert leave(tracker) == Leaving(None, ((5, 0), (5, 2)))
    tracker.looked((5, 0), (5, 1))
    acknowledge(tracker, (5, 1))
    acknowledge(tracker, (5, 4))
    assert leave(tracker) == Leaving((5, 2), ((5, 4),))
    tracker.looked((5, 4), (7, 0))
    acknowledge(tracker, (7, 0))
    assert leave(tracker) == Leaving((7, 0))


def test_a_row_of_single_messages_waits_as_one_and_leaves_as_one_position():
    """Entries that are acknowledged as they came count each, are duplicates each, and leave as the last one."""
    tracker = AckTracker(runs=True)
    tracker.looked((5, 9), None)
    tracker.add_singles(Singles(-1, 5, range(10, 300)))
    tracker.add_singles(Singles(-1, 5, range(300, 310)))
    assert tracker.pending == 300
    assert leave(tracker) == Leaving((5, 309))
    tracker.add_singles(Singles(-1, 5, range(310, 320)))
    assert tracker.is_duplicate((5, 319))
    tracker.add_singles(Singles(-1, 5, range(330, 332)))
    assert tracker.pending == 12
    assert leave(tracker) == Leaving((5, 319), ((5, 330), (5, 331)))
    tracker.add_singles(Singles(-1, 7, range(3)))
    tracker.add_singles(Singles(-1, 8, range(3, 5)))
    assert leave(tracker) == Leaving(None, ((7, 0), (7, 1), (7, 2), (8, 3), (8, 4)))


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
            leaving = leave(tracker)
            cursor.update(leaving.whole)
            cursor.update(entry for entry in topic if leaving.cumulative is not None and entry <= leaving.cumulative)
            assert cursor == acknowledged
            assert tracker.pending == 0


def test_positions_that_go_back_are_ignored_and_cover_single_ones():
    """A cumulative acknowledgement below an earlier one has no effect; single ones below it do not leave."""
    tracker = AckTracker()
    acknowledge(tracker, (5, 1))
    assert tracker.add_cumulative((5, 4))
    assert not tracker.add_cumulative((5, 2))
    assert not acknowledge(tracker, (5, 3))
    acknowledge(tracker, (5, 6))
    assert leave(tracker) == Leaving((5, 4), ((5, 6),))


def test_what_was_acknowledged_again_is_told_again():
    """The broker delivered it again, so its cursor is behind: nothing is concluded from where it was."""
    tracker = AckTracker(runs=True)
    tracker.looked((5, 4), (5, 5))
    acknowledge(tracker, (5, 3))
    acknowledge(tracker, (5, 5))
    assert leave(tracker) == Leaving(None, ((5, 3), (5, 5)))
    assert tracker._base is None
    assert tracker.wants_base


def test_another_era_begins_whenever_it_is_forgotten_where_the_cursor_is():
    """A seek, and what was acknowledged again, end one; acknowledgements, what leaves and looks do not."""
    tracker = AckTracker(runs=True)
    era = tracker.era
    tracker.looked((5, 4), (5, 5))
    acknowledge(tracker, (5, 5))
    leave(tracker)
    assert tracker.era == era
    acknowledge(tracker, (5, 3))
    leave(tracker)
    assert tracker.era != era
    era = tracker.era
    tracker.clear()
    assert tracker.era != era


def test_a_batch_counts_when_all_of_it_was_acknowledged():
    """In any order, with repetitions, and only then; some of it leaves only where the broker keeps it."""
    tracker = AckTracker()
    for index in (2, 0, 2):
        acknowledge(tracker, (5, 1), index, 3)
    assert (tracker.pending, leave(tracker), tracker.partly()) == (0, NOTHING, {(5, 1): (3, 0b101)})
    tracker.take_back((5, 1), 0)
    acknowledge(tracker, (5, 1), 1, 3)
    assert leave(tracker) == NOTHING
    assert acknowledge(tracker, (5, 1), 0, 3)
    assert not acknowledge(tracker, (5, 1), 1, 3)
    assert leave(tracker) == Leaving(whole=((5, 1),))
    keeping = AckTracker(keeps_indexes=True)
    acknowledge(keeping, (5, 1), 2, 3)
    assert leave(keeping) == Leaving(indexes=(((5, 1), 3, 0b100),))


def test_what_rests_of_a_batch_leaves_and_is_put_together_by_the_broker():
    """Two of four were acknowledged by another consumer; the other two leave once nothing is added to them."""
    tracker = AckTracker()
    broker = Broker(keeps_indexes=True, acknowledged={((9, 0), 0), ((9, 0), 2)})
    tracker.add_bits((9, 0), 4, 0b0010)
    tracker.settle()
    tracker.add_bits((9, 0), 4, 0b1000)
    tracker.settle()
    assert tracker.is_settling
    assert leave(tracker) == NOTHING
    tracker.settle()
    assert tracker.pending == 1
    broker.take(leave(tracker))
    assert broker.whole((9, 0))
    assert not tracker.is_settling


def test_batches_that_others_finish_are_not_kept_for_ever():
    """Of 30,000 batches with one acknowledged message each, ten thousand are remembered."""
    tracker = AckTracker()
    for entry in range(30_000):
        tracker.add_bits((5, entry), 3, 1)
        if entry % 100 == 0:
            tracker.settle(everything=True)
            leave(tracker)
    assert len(tracker.partly()) == 10_000
    assert (5, 29_999) in tracker.partly()


def test_what_a_seek_leaves_out_leaves_with_the_rest_of_its_batch():
    """It is not sent by itself, goes with what is acknowledged of its batch, and a whole entry leaves at once."""
    tracker = AckTracker(keeps_indexes=True)
    tracker.leave_out((1, 0), 3, 0b001)
    tracker.leave_out((1, 0), 3, 0b001)
    assert not tracker.leave()
    tracker.add_bits((1, 0), 3, 0b010)
    tracker.leave_out((1, 0), 3, 0b001)
    assert tracker.leave() == Leaving(indexes=(((1, 0), 3, 0b011),))
    tracker.left()
    tracker.add_bits((1, 0), 3, 0b100)
    tracker.leave_out((1, 1), 2, 0b11)
    tracker.leave_out((1, 2), 0, 0)
    assert tracker.leave() == Leaving(whole=((1, 0), (1, 1), (1, 2)))


def test_what_left_of_a_batch_leaves_again_only_if_a_broker_has_forgotten_it():
    """A part that is acknowledged again stays here, for it would have the broker count redeliveries anew."""
    tracker = AckTracker(keeps_indexes=True)
    part = Leaving(indexes=(((1, 0), 3, 0b001),))
    tracker.add_again((1, 0))
    assert leave(tracker) == NOTHING
    assert tracker.add_bits((1, 0), 3, 0b001)
    assert leave(tracker) == part
    assert not tracker.add_bits((1, 0), 3, 0b001)
    assert leave(tracker) == NOTHING
    tracker.add_again((1, 0))
    assert leave(tracker) == part


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_pending_counts_entries_and_parts_of_batches(messages):
    """Each whole entry counts once and each batch with new acknowledgements once; only what is new is called so."""
    tracker, done, whole = AckTracker(keeps_indexes=True), set(), []
    for number, place in messages:
        entry, size = (5, number), 3 * (number % 2)
        message = (entry, place if size else -1)
        assert acknowledge(tracker, *message, size) == (message not in done)
        done.add(message)
        if entry not in whole and sum(one == entry for one, _ in done) == max(size, 1):
            whole.append(entry)
        parts = {one for one, _ in done} - {*whole}
        assert tracker.pending == len(whole) + len(parts)
    bits = {entry: sum(1 << max(index, 0) for one, index in done if one == entry) for entry in {one for one, _ in done}}
    indexes = tuple((entry, 3, bits[entry]) for entry in sorted({*bits} - {*whole}))
    assert leave(tracker) == Leaving(None, tuple(whole), indexes)
    assert tracker.pending == 0


def test_what_leaves_is_pending_until_it_has_left():
    """A sender that is interrupted sends it with what was acknowledged since."""
    tracker = AckTracker(keeps_indexes=True)
    acknowledge(tracker, (5, 9))
    tracker.add_cumulative((5, 1))
    tracker.add_bits((6, 0), 3, 1)
    assert (tracker.pending, len(tracker.leave()), tracker.pending) == (3, 3, 3)
    acknowledge(tracker, (7, 0))
    assert tracker.pending == 4
    assert leave(tracker) == Leaving((5, 1), ((5, 9), (7, 0)), (((6, 0), 3, 1),))
    assert tracker.pending == 0


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_position_inside_a_batch_covers_what_is_before_it(index):
    """The entries before the batch as one position, and of the batch the messages up to that one."""
    tracker = AckTracker(keeps_indexes=True)
    tracker.add_singles(Singles(-1, 5, range(3)))
    tracker.add_bits((5, 1), 3, 1)
    assert tracker.add_cumulative((5, 4), index, 3)
    tracker.add_singles(Singles(-1, 5, range(2, 4)))
    if index == 2:
        assert (tracker.pending, leave(tracker)) == (1, Leaving((5, 4)))
    else:
        part = ((5, 4), 3, (2 << index) - 1)
        assert (tracker.pending, leave(tracker)) == (2, Leaving((5, 3), (), (part,)))
    assert tracker.partly() == ({} if index == 2 else {(5, 4): (3, (2 << index) - 1)})
    assert tracker.is_duplicate((5, 4), index)
    assert tracker.is_duplicate((5, 4), index + 1) is (index == 2)
    assert not tracker.add_cumulative((5, 4), index, 3)


def test_a_position_covers_a_row_of_single_messages():
    """What is acknowledged before a position, or below it afterwards, does not leave by itself."""
    for runs in (False, True):
        tracker = AckTracker(runs=runs)
        tracker.add_singles(Singles(-1, 5, range(3)))
        tracker.add_cumulative((5, 4))
        assert tracker.pending == 1
        tracker.add_singles(Singles(-1, 5, [3, 7]))
        assert (tracker.pending, leave(tracker)) == (2, Leaving((5, 4), ((5, 7),)))


def test_the_base_is_wanted_where_runs_could_begin():
    """Only for runs, while entries are acknowledged whose predecessors may not be; a look without runs is ignored."""
    tracker = AckTracker(runs=True)
    assert not tracker.wants_base
    acknowledge(tracker, (5, 3))
    leave(tracker)
    assert tracker.wants_base
    tracker.looked((5, 2), (5, 3))
    leave(tracker)
    assert not tracker.wants_base
    acknowledge(tracker, (5, 6))
    leave(tracker)
    assert tracker.wants_base
    tracker.add_cumulative((5, 6))
    assert not tracker.wants_base
    single = AckTracker()
    single.looked((5, 2), (5, 3))
    acknowledge(single, (5, 3))
    assert (leave(single), single.wants_base, single.is_duplicate((5, 2))) == (Leaving(None, ((5, 3),)), False, False)


def test_a_look_at_an_older_cursor_moves_nothing_back():
    """What is known to be behind it stays acknowledged; a gap that a look shows to be filled is."""
    tracker = AckTracker(runs=True)
    tracker.looked((5, 4), (5, 5))
    tracker.looked((5, 1), (5, 2))
    assert tracker.is_duplicate((5, 4))
    acknowledge(tracker, (5, 5))
    assert leave(tracker) == Leaving((5, 5))
    tracker.looked((5, 5), (5, 6), [(5, 2), (5, 7), (5, 8)])
    acknowledge(tracker, (5, 6))
    assert leave(tracker) == Leaving((5, 8))


def test_what_is_taken_back_does_not_leave():
    """A whole entry, a message of a batch that was acknowledged whole, and a batch as a whole."""
    tracker = AckTracker(keeps_indexes=True)
    for entry in ((5, 0), (5, 1)):
        acknowledge(tracker, entry)
    tracker.add_bits((5, 2), 3, 0b111)
    tracker.add_bits((5, 3), 3, 0b011)
    tracker.take_back((5, 0))
    tracker.take_back((5, 2), 1, 3)
    tracker.take_back((5, 3))
    assert tracker.pending == 2
    assert tracker.partly() == {(5, 2): (3, 0b101)}
    assert leave(tracker) == Leaving(None, ((5, 1),), (((5, 2), 3, 0b101),))
    tracker.take_back((9, 9), 0, 3)
    assert leave(tracker) == NOTHING


def test_a_cleared_tracker_is_a_new_one():
    """Nothing of before a seek leaves, is pending, is a duplicate, or counts towards a batch."""
    tracker = AckTracker(runs=True)
    tracker.looked((5, 0), (5, 1))
    tracker.add_cumulative((5, 3))
    tracker.add_bits((5, 6), 3, 0b001)
    tracker.settle()
    tracker.add_bits((5, 7), 3, 0b001)
    acknowledge(tracker, (5, 9))
    tracker.leave()
    assert tracker.wants_base
    tracker.add_singles(Singles(-1, 6, range(3)))
    tracker.clear()
    assert (tracker.pending, tracker.partly(), tracker.is_settling, tracker.wants_base) == (0, {}, False, False)
    assert not any(tracker.is_duplicate((ledger, entry), 0) for ledger in (5, 6) for entry in range(10))
    assert leave(tracker) == NOTHING
