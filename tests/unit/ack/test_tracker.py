"""The acknowledgement tracker, checked against a model of a broker's cursor."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pulsar_ext.ack.groups import NOTHING, AckGroup, Singles
from pulsar_ext.ack.tracker import AckTracker

TOPIC = {(5, 0): 0, (5, 1): 3, (5, 2): 0, (5, 3): 2, (7, 0): 70, (7, 1): 0, (7, 2): 0, (9, 0): 4, (9, 1): 0}
"""Batch size of every entry, by ledger and entry; 0 without a batch. Ledgers end anywhere."""
ENTRIES = list(TOPIC)
MESSAGES = [(entry, index) for entry, size in TOPIC.items() for index in (range(size) if size else (-1,))]


@dataclass
class Broker:
    """A simple model of a broker's cursor."""

    keeps_indexes: bool
    acknowledged: set[tuple[tuple[int, int], int]] = field(default_factory=set)

    def take(self, group: AckGroup) -> None:
        """Apply an acknowledgement as the broker does: parts of batches only if it keeps them."""
        for entry in ENTRIES:
            if (group.cumulative is not None and entry <= group.cumulative) or entry in group.whole:
                self.acknowledged |= {message for message in MESSAGES if message[0] == entry}
        for entry, size, bits in group.indexes:
            assert size == TOPIC[entry]
            if self.keeps_indexes:
                self.acknowledged |= {(entry, index) for index in range(size) if bits >> index & 1}

    @property
    def mark_delete(self) -> tuple[int, int]:
        """The last entry before the first that is not completely acknowledged."""
        mark = (5, -1)
        for entry in ENTRIES:
            if not self.whole(entry):
                break
            mark = entry
        return mark

    def whole(self, entry: tuple[int, int]) -> bool:
        """Return True if every message of an entry is acknowledged."""
        return all(message in self.acknowledged for message in MESSAGES if message[0] == entry)


def send(tracker):
    """Send everything pending, and return it."""
    group = tracker.next_group()
    tracker.group_sent()
    return group


def acknowledge(tracker, entry, index=-1, size=0):
    """Acknowledge an entry, or one message of a batch; return True if it was new."""
    return tracker.add_bits(entry, size, 1 << index) if index >= 0 else tracker.add_whole(entry)


class Tracked(RuleBasedStateMachine):
    """After any acknowledgements and flushes the cursor shows what the application acknowledged."""

    @initialize(runs=st.booleans(), keeps=st.booleans())
    def begin(self, runs, keeps):
        """Choose the kind of subscription and of broker."""
        self.tracker = AckTracker(runs=runs, keeps_indexes=keeps)
        self.broker, self.keeps = Broker(keeps), keeps
        self.application: set[tuple[tuple[int, int], int]] = set()
        self.cumulatives = 0

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge(self, message):
        """Acknowledge one message, possibly a second time."""
        entry, index = message
        acknowledge(self.tracker, entry, index, TOPIC[entry])
        self.application.add(message)

    @rule(at=st.integers(0, len(MESSAGES) - 1), count=st.integers(1, 90))
    def acknowledge_many(self, at, count):
        """Acknowledge consecutive messages."""
        for message in MESSAGES[at : at + count]:
            self.acknowledge(message)

    @rule(at=st.integers(0, len(ENTRIES) - 1), count=st.integers(1, 6), jump=st.booleans())
    def acknowledge_singles(self, at, count, jump):
        """Acknowledge single messages of one ledger, consecutive or not, at once."""
        ledger = ENTRIES[at][0]
        found = [entry for one, entry in ENTRIES[at : at + count] if one == ledger and TOPIC[one, entry] == 0]
        if found:
            is_row = found == list(range(found[0], found[0] + len(found))) and not jump
            numbers = range(found[0], found[-1] + 1) if is_row else found[::-1]
            self.tracker.add_singles(Singles(-1, ledger, numbers))
            self.application |= {((ledger, entry), -1) for entry in found}

    @rule(everything=st.booleans())
    def release_partial(self, everything):
        """Release partial batches."""
        self.tracker.release_partial(everything=everything)

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge_cumulative(self, message):
        """Acknowledge everything up to a message."""
        entry, index = message
        self.tracker.add_cumulative(entry, index, TOPIC[entry])
        self.application |= {one for one in MESSAGES if one <= message}

    @rule(message=st.sampled_from(MESSAGES))
    def withdraw(self, message):
        """Withdraw the acknowledgement of a message of a batch that was not sent yet."""
        entry, index = message
        if message in self.application and entry not in {one for one, _ in self.broker.acknowledged}:
            covered = self.tracker._base is not None and entry <= self.tracker._base
            if not covered and index >= 0:
                self.tracker.withdraw(entry, index, TOPIC[entry])
                self.application.discard(message)

    @rule()
    def check_cursor(self):
        """Read the position of the cursor."""
        mark = self.broker.mark_delete
        after = next((entry for entry in ENTRIES if entry > mark), None)
        self.tracker.set_cursor(mark, after, [e for e in ENTRIES if e > mark and self.broker.whole(e)])

    @rule()
    def flush(self):
        """Send everything; the cursor then shows all that it can store of what was acknowledged."""
        self.broker.take(send(self.tracker))
        assert self.tracker.pending == 0
        for entry, size in TOPIC.items():
            mine = {message for message in self.application if message[0] == entry}
            if self.keeps or len(mine) == max(size, 1):
                assert mine <= self.broker.acknowledged
        assert send(self.tracker) == NOTHING

    @invariant()
    def never_more(self):
        """The broker and `is_duplicate()` know no message that the application did not acknowledge.

        No acknowledged entry is above the highest one.
        """
        assert all(entry <= self.tracker.highest for entry, _ in self.application)
        assert self.broker.acknowledged <= self.application
        for entry, index in MESSAGES:
            if self.tracker.is_duplicate(entry, index):
                assert (entry, index) in self.application


TestTracked = Tracked.TestCase
TestTracked.settings = settings(max_examples=300, stateful_step_count=30)


def test_run_is_sent_as_position_and_holes_stay_single():
    """Entries after a known cursor are sent as one position, also across ledgers."""
    tracker = AckTracker(runs=True)
    for entry in [(5, 0), (5, 2)]:
        acknowledge(tracker, entry)
    assert send(tracker) == AckGroup(None, ((5, 0), (5, 2)))
    tracker.set_cursor((5, 0), (5, 1))
    acknowledge(tracker, (5, 1))
    acknowledge(tracker, (5, 4))
    assert send(tracker) == AckGroup((5, 2), ((5, 4),))
    tracker.set_cursor((5, 4), (7, 0))
    acknowledge(tracker, (7, 0))
    assert send(tracker) == AckGroup((7, 0))


def test_row_of_singles_is_sent_as_one_position():
    """Singles acknowledged in order are counted and known one by one, and sent as the last entry."""
    tracker = AckTracker(runs=True)
    tracker.set_cursor((5, 9), None)
    tracker.add_singles(Singles(-1, 5, range(10, 300)))
    tracker.add_singles(Singles(-1, 5, range(300, 310)))
    assert tracker.pending == 300
    assert send(tracker) == AckGroup((5, 309))
    tracker.add_singles(Singles(-1, 5, range(310, 320)))
    assert tracker.is_duplicate((5, 319))
    tracker.add_singles(Singles(-1, 5, range(330, 332)))
    assert tracker.pending == 12
    assert send(tracker) == AckGroup((5, 319), ((5, 330), (5, 331)))
    tracker.add_singles(Singles(-1, 7, range(3)))
    tracker.add_singles(Singles(-1, 8, range(3, 5)))
    assert send(tracker) == AckGroup(None, ((7, 0), (7, 1), (7, 2), (8, 3), (8, 4)))


_LEDGER_5 = 6
"""Number of entries of ledger 5; ledger 6 follows."""


@given(
    st.booleans(),
    st.integers(-1, _LEDGER_5 - 1),
    st.lists(
        st.tuples(st.sampled_from([5, 6]), st.integers(0, 20), st.integers(1, 9), st.booleans(), st.booleans()),
        max_size=8,
    ),
)
def test_any_rows_of_singles_reach_the_cursor(runs, mark, groups):
    """With gaps, overlaps and repetitions the cursor shows what was acknowledged after every flush."""
    topic = [(5, entry) for entry in range(_LEDGER_5)] + [(6, entry) for entry in range(30)]
    tracker = AckTracker(runs=runs)
    tracker.set_cursor((5, mark), topic[mark + 1])
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
            group = send(tracker)
            cursor.update(group.whole)
            cursor.update(entry for entry in topic if group.cumulative is not None and entry <= group.cumulative)
            assert cursor == acknowledged
            assert tracker.pending == 0


def test_lower_position_is_ignored():
    """A position below an earlier one has no effect; single entries below a position are not sent."""
    tracker = AckTracker()
    acknowledge(tracker, (5, 1))
    assert tracker.add_cumulative((5, 4))
    assert not tracker.add_cumulative((5, 2))
    assert not acknowledge(tracker, (5, 3))
    acknowledge(tracker, (5, 6))
    assert send(tracker) == AckGroup((5, 4), ((5, 6),))


def test_repeated_ack_is_sent_and_loses_the_base():
    """An entry acknowledged again was redelivered, so the cursor was moved back and its position is unknown."""
    tracker = AckTracker(runs=True)
    tracker.set_cursor((5, 4), (5, 5))
    acknowledge(tracker, (5, 3))
    acknowledge(tracker, (5, 5))
    assert send(tracker) == AckGroup(None, ((5, 3), (5, 5)))
    assert tracker._base is None
    assert tracker.needs_base


def test_era_changes_when_cursor_is_invalidated():
    """A seek and a repeated acknowledgement change the era; acknowledgements, sends and checks do not."""
    tracker = AckTracker(runs=True)
    era = tracker.era
    tracker.set_cursor((5, 4), (5, 5))
    acknowledge(tracker, (5, 5))
    send(tracker)
    assert tracker.era == era
    acknowledge(tracker, (5, 3))
    send(tracker)
    assert tracker.era != era
    era = tracker.era
    tracker.clear()
    assert tracker.era != era


def test_batch_is_sent_when_completely_acknowledged():
    """A batch is sent when all its messages were acknowledged, in any order; parts only if the broker keeps them."""
    tracker = AckTracker()
    for index in (2, 0, 2):
        acknowledge(tracker, (5, 1), index, 3)
    assert (tracker.pending, send(tracker), tracker.partial_batches()) == (0, NOTHING, {(5, 1): (3, 0b101)})
    tracker.withdraw((5, 1), 0)
    acknowledge(tracker, (5, 1), 1, 3)
    assert send(tracker) == NOTHING
    assert acknowledge(tracker, (5, 1), 0, 3)
    assert not acknowledge(tracker, (5, 1), 1, 3)
    assert send(tracker) == AckGroup(whole=((5, 1),))
    keeping = AckTracker(keeps_indexes=True)
    acknowledge(keeping, (5, 1), 2, 3)
    assert send(keeping) == AckGroup(indexes=(((5, 1), 3, 0b100),))


def test_idle_partial_batch_is_sent():
    """A part is sent when nothing is added to it, and the broker combines it with another consumer's part."""
    tracker = AckTracker()
    broker = Broker(keeps_indexes=True, acknowledged={((9, 0), 0), ((9, 0), 2)})
    tracker.add_bits((9, 0), 4, 0b0010)
    tracker.release_partial()
    tracker.add_bits((9, 0), 4, 0b1000)
    tracker.release_partial()
    assert tracker.has_partial_batches
    assert send(tracker) == NOTHING
    tracker.release_partial()
    assert tracker.pending == 1
    broker.take(send(tracker))
    assert broker.whole((9, 0))
    assert not tracker.has_partial_batches


def test_partial_batches_are_bounded():
    """The last 10,000 partly acknowledged batches are kept."""
    tracker = AckTracker()
    for entry in range(30_000):
        tracker.add_bits((5, entry), 3, 1)
        if entry % 100 == 0:
            tracker.release_partial(everything=True)
            send(tracker)
    assert len(tracker.partial_batches()) == 10_000
    assert (5, 29_999) in tracker.partial_batches()


def test_skipped_part_is_sent_with_its_batch():
    """A skipped part is not sent alone, but with later acknowledgements of its batch; a whole entry is sent at once."""
    tracker = AckTracker(keeps_indexes=True)
    tracker.acknowledge_skipped((1, 0), 3, 0b001)
    tracker.acknowledge_skipped((1, 0), 3, 0b001)
    assert not tracker.next_group()
    tracker.add_bits((1, 0), 3, 0b010)
    tracker.acknowledge_skipped((1, 0), 3, 0b001)
    assert tracker.next_group() == AckGroup(indexes=(((1, 0), 3, 0b011),))
    tracker.group_sent()
    tracker.add_bits((1, 0), 3, 0b100)
    tracker.acknowledge_skipped((1, 1), 2, 0b11)
    tracker.acknowledge_skipped((1, 2), 0, 0)
    assert tracker.next_group() == AckGroup(whole=((1, 0), (1, 1), (1, 2)))


def test_sent_part_is_resent_only_on_demand():
    """A part acknowledged again is not resent, because that would reset the broker's redelivery count."""
    tracker = AckTracker(keeps_indexes=True)
    part = AckGroup(indexes=(((1, 0), 3, 0b001),))
    tracker.resend_partial((1, 0))
    assert send(tracker) == NOTHING
    assert tracker.add_bits((1, 0), 3, 0b001)
    assert send(tracker) == part
    assert not tracker.add_bits((1, 0), 3, 0b001)
    assert send(tracker) == NOTHING
    tracker.resend_partial((1, 0))
    assert send(tracker) == part


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12))
def test_pending_counts_entries_and_partial_batches(messages):
    """Each whole entry and each batch with new acknowledgements counts once; only new messages return True."""
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
    assert send(tracker) == AckGroup(None, tuple(whole), indexes)
    assert tracker.pending == 0


def test_group_is_pending_until_it_was_sent():
    """A group whose send was interrupted is sent with later acknowledgements."""
    tracker = AckTracker(keeps_indexes=True)
    acknowledge(tracker, (5, 9))
    tracker.add_cumulative((5, 1))
    tracker.add_bits((6, 0), 3, 1)
    assert (tracker.pending, len(tracker.next_group()), tracker.pending) == (3, 3, 3)
    acknowledge(tracker, (7, 0))
    assert tracker.pending == 4
    assert send(tracker) == AckGroup((5, 1), ((5, 9), (7, 0)), (((6, 0), 3, 1),))
    assert tracker.pending == 0


@pytest.mark.parametrize("index", [0, 1, 2])
def test_position_inside_batch_covers_earlier_messages(index):
    """A position inside a batch is sent as the entries before the batch and a part of the batch."""
    tracker = AckTracker(keeps_indexes=True)
    tracker.add_singles(Singles(-1, 5, range(3)))
    tracker.add_bits((5, 1), 3, 1)
    assert tracker.add_cumulative((5, 4), index, 3)
    tracker.add_singles(Singles(-1, 5, range(2, 4)))
    if index == 2:
        assert (tracker.pending, send(tracker)) == (1, AckGroup((5, 4)))
    else:
        part = ((5, 4), 3, (2 << index) - 1)
        assert (tracker.pending, send(tracker)) == (2, AckGroup((5, 3), (), (part,)))
    assert tracker.partial_batches() == ({} if index == 2 else {(5, 4): (3, (2 << index) - 1)})
    assert tracker.is_duplicate((5, 4), index)
    assert tracker.is_duplicate((5, 4), index + 1) is (index == 2)
    assert not tracker.add_cumulative((5, 4), index, 3)


def test_position_covers_row_of_singles():
    """Entries acknowledged before a position, or below it afterwards, are not sent by themselves."""
    for runs in (False, True):
        tracker = AckTracker(runs=runs)
        tracker.add_singles(Singles(-1, 5, range(3)))
        tracker.add_cumulative((5, 4))
        assert tracker.pending == 1
        tracker.add_singles(Singles(-1, 5, [3, 7]))
        assert (tracker.pending, send(tracker)) == (2, AckGroup((5, 4), ((5, 7),)))


def test_base_is_needed_where_runs_could_begin():
    """The cursor is needed only for runs, while acknowledged entries may follow unacknowledged ones."""
    tracker = AckTracker(runs=True)
    assert not tracker.needs_base
    acknowledge(tracker, (5, 3))
    send(tracker)
    assert tracker.needs_base
    tracker.set_cursor((5, 2), (5, 3))
    send(tracker)
    assert not tracker.needs_base
    acknowledge(tracker, (5, 6))
    send(tracker)
    assert tracker.needs_base
    tracker.add_cumulative((5, 6))
    assert not tracker.needs_base
    single = AckTracker()
    single.set_cursor((5, 2), (5, 3))
    acknowledge(single, (5, 3))
    assert (send(single), single.needs_base, single.is_duplicate((5, 2))) == (AckGroup(None, ((5, 3),)), False, False)


def test_older_cursor_moves_nothing_back():
    """Entries before the known cursor stay acknowledged; a hole that the cursor shows as filled is closed."""
    tracker = AckTracker(runs=True)
    tracker.set_cursor((5, 4), (5, 5))
    tracker.set_cursor((5, 1), (5, 2))
    assert tracker.is_duplicate((5, 4))
    acknowledge(tracker, (5, 5))
    assert send(tracker) == AckGroup((5, 5))
    tracker.set_cursor((5, 5), (5, 6), [(5, 2), (5, 7), (5, 8)])
    acknowledge(tracker, (5, 6))
    assert send(tracker) == AckGroup((5, 8))


def test_withdrawn_messages_are_not_sent():
    """A whole entry, a message of a completely acknowledged batch, and a whole batch can be withdrawn."""
    tracker = AckTracker(keeps_indexes=True)
    for entry in ((5, 0), (5, 1)):
        acknowledge(tracker, entry)
    tracker.add_bits((5, 2), 3, 0b111)
    tracker.add_bits((5, 3), 3, 0b011)
    tracker.withdraw((5, 0))
    tracker.withdraw((5, 2), 1, 3)
    tracker.withdraw((5, 3))
    assert tracker.pending == 2
    assert tracker.partial_batches() == {(5, 2): (3, 0b101)}
    assert send(tracker) == AckGroup(None, ((5, 1),), (((5, 2), 3, 0b101),))
    tracker.withdraw((9, 9), 0, 3)
    assert send(tracker) == NOTHING


def test_cleared_tracker_equals_a_new_one():
    """Nothing acknowledged before `clear()` is sent, pending, a duplicate, or part of a batch."""
    tracker = AckTracker(runs=True)
    tracker.set_cursor((5, 0), (5, 1))
    tracker.add_cumulative((5, 3))
    tracker.add_bits((5, 6), 3, 0b001)
    tracker.release_partial()
    tracker.add_bits((5, 7), 3, 0b001)
    acknowledge(tracker, (5, 9))
    tracker.next_group()
    assert tracker.needs_base
    tracker.add_singles(Singles(-1, 6, range(3)))
    tracker.clear()
    assert (tracker.pending, tracker.partial_batches(), tracker.has_partial_batches, tracker.needs_base) == (
        0,
        {},
        False,
        False,
    )
    assert not any(tracker.is_duplicate((ledger, entry), 0) for ledger in (5, 6) for entry in range(10))
    assert send(tracker) == NOTHING


def test_highest_entry_includes_those_of_the_cursor():
    """A withdrawal invalidates a run's begin, so the highest entry is at least the cursor's, until it is moved."""
    tracker = AckTracker(runs=True)
    tracker.set_cursor((5, 4), (5, 5))
    assert tracker.highest == (5, 4)
    tracker.set_cursor((5, 4), (5, 5), [(5, 6), (5, 8)])
    assert tracker.highest == (5, 8)
    tracker.clear()
    assert tracker.highest < (0, 0)
