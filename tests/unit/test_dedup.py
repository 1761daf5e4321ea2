"""Sequence ids and safe batches, against a model of a broker that deduplicates as the real one does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext.batches import Batch, Bounds, Group
from pulsar_ext.dedup import MAX_SEQUENCE_ID, Sequence, Standing, StoredEntry, persisted_above, seal
from pulsar_ext.errors import SequenceIdRejected


@dataclass
class Entry:
    """What one push carries: the entry's id, its messages' real ids, and what each message stores as its id."""

    carried: int
    ids: list[int]
    key: object

    @property
    def stored(self) -> StoredEntry:
        return StoredEntry(self.carried, (self.carried, *self.ids[1:]))


@dataclass
class Broker:
    """One id per entry; drops what is not above the highest pushed; a crash forgets what is not persisted."""

    topic: list[Entry] = field(default_factory=list)
    writing: list[Entry] = field(default_factory=list)
    pushed: int = -1
    persisted: int = -1

    def publish(self, entry: Entry) -> str:
        if entry.carried <= self.persisted:
            return "duplicate"
        if entry.carried <= self.pushed:
            return "unknown"  # the real broker answers with an error, and the client connects again
        self.pushed = entry.carried
        self.writing.append(entry)
        return "writing"

    def write(self, count: int) -> list[Entry]:
        done, self.writing = self.writing[:count], self.writing[count:]
        for entry in done:
            self.topic.append(entry)
            self.persisted = max(self.persisted, entry.carried)
        return done

    def crash(self) -> None:
        self.writing = []
        self.pushed = self.persisted


class Client:
    """The C++ producer behind the sequence: it keeps what has no answer, and sends it again after a broken link."""

    def __init__(self, broker: Broker, group_messages: int) -> None:
        self.broker = broker
        broker.write(len(broker.writing))  # what `Opening.settle` waits for
        above = persisted_above(broker.pushed, (one.stored for one in reversed(broker.topic)), group_messages)
        self.sequence = Sequence(broker.pushed, above)
        self.pending: list[tuple[Entry, object]] = []
        self.group = Group(Bounds(group_messages, 1 << 30))

    def send(self, sequence_id: int, key: object) -> Standing:
        sequence_id, standing = self.sequence.admit(sequence_id)
        if standing is Standing.NEW:
            self.group.batch(key).ids.append(sequence_id)
            if self.group.joined(1):
                self.cut()
        return standing

    def cut(self) -> None:
        batches = list(self.group.batches.items())
        self.group.take()
        if not batches:
            return
        flight = self.sequence.push([batch.ids for _, batch in batches])
        for index, carried in seal([batch.ids for _, batch in batches]):
            key, batch = batches[index]
            entry = Entry(carried, batch.ids, key)
            self.pending.append((entry, flight))
            self.broker.publish(entry)

    def answers(self, count: int) -> None:
        """Let the broker write, and hear of it."""
        written = {id(entry) for entry in self.broker.write(count)}
        while self.pending and id(self.pending[0][0]) in written:
            self._complete()

    def _complete(self) -> None:
        _, flight = self.pending.pop(0)
        self.sequence.complete(flight)

    def reconnect(self) -> None:
        """Send everything again that has no answer; what is persisted is answered as a duplicate."""
        for entry, _ in list(self.pending):
            if self.broker.publish(entry) == "duplicate":
                self._complete()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6), st.integers(0, 3)),
        st.tuples(st.just("cut")),
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("lose acks"), st.integers(1, 4)),
        st.tuples(st.just("reconnect")),
        st.tuples(st.just("crash broker")),
        st.tuples(st.just("crash producer"), st.integers(0, 8)),
        st.tuples(st.just("crash both"), st.integers(0, 8)),
    ),
    max_size=40,
)


class World:
    """An application with an outbox, its producer, and the broker."""

    def __init__(self, group_messages: int, *, by_key: bool) -> None:
        self.group_messages, self.by_key = group_messages, by_key
        self.broker = Broker()
        self.client = Client(self.broker, group_messages)
        self.outbox: list[tuple[int, object]] = []
        self.at = 0
        """How much of the outbox was sent to the current producer."""

    def send(self, gap: int, key: int) -> None:
        last = self.outbox[-1][0] if self.outbox else -1
        self.outbox.append((last + gap, key if self.by_key else None))
        self.send_all()

    def send_all(self) -> None:
        while self.at < len(self.outbox):
            self.client.send(*self.outbox[self.at])
            self.at += 1

    def cut(self) -> None:
        self.client.cut()

    def write(self, count: int) -> None:
        self.client.answers(count)

    def lose_acks(self, count: int) -> None:
        self.broker.write(count)
        self.client.reconnect()

    def reconnect(self) -> None:
        self.client.reconnect()

    def crash_broker(self) -> None:
        self.broker.crash()
        self.client.reconnect()

    def crash_producer(self, back: int) -> None:
        """Start again behind what is published, or even earlier."""
        self.client = Client(self.broker, self.group_messages)
        safe = self.client.sequence.published
        stored = {number for entry in self.broker.topic for number in entry.ids}
        assert {number for number, _ in self.outbox if number <= safe} <= stored
        self.at = max(0, sum(number <= safe for number, _ in self.outbox) - back)

    def crash_both(self, back: int) -> None:
        self.broker.crash()
        self.crash_producer(back)

    def check(self) -> None:
        """Send what is left; then each id is on the topic once, and each key's in order."""
        self.send_all()
        self.cut()
        for _ in range(2):
            self.reconnect()
            self.write(len(self.broker.writing))
        stored = [number for entry in self.broker.topic for number in entry.ids]
        assert sorted(stored) == [number for number, _ in self.outbox]
        for key in {key for _, key in self.outbox}:
            ordered = [number for entry in self.broker.topic if entry.key == key for number in entry.ids]
            assert ordered == sorted(ordered)
        assert self.client.sequence.published == max(stored, default=-1)


def run_schedule(events, group_messages, by_key):
    """Play the events, and check the topic."""
    world = World(group_messages, by_key=by_key)
    for name, *arguments in events:
        getattr(world, name.replace(" ", "_"))(*arguments)
    world.check()


@settings(max_examples=300, deadline=None)
@given(EVENTS, st.integers(1, 7), st.booleans())
def test_every_message_is_persisted_exactly_once(events, group_messages, by_key):
    """Whatever crashes, whatever acknowledgement is lost: each id ends up on the topic once, by key in order."""
    run_schedule(events, group_messages, by_key)


def test_ten_thousand_random_schedules():
    """The same over many more schedules, without the search for the smallest."""
    dice = random.Random(20_261_121)
    kinds = {
        "send": lambda: (dice.randint(1, 6), dice.randrange(4)),
        "cut": tuple,
        "write": lambda: (dice.randint(1, 4),),
        "lose acks": lambda: (dice.randint(1, 4),),
        "reconnect": tuple,
        "crash broker": tuple,
        "crash producer": lambda: (dice.randrange(9),),
        "crash both": lambda: (dice.randrange(9),),
    }
    names, weights = list(kinds), [40, 8, 12, 6, 4, 5, 5, 3]
    for _ in range(10_000):
        chosen = dice.choices(names, weights, k=dice.randint(5, 40))
        run_schedule([(name, *kinds[name]()) for name in chosen], dice.randint(1, 7), dice.random() < 0.6)


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True).map(sorted), min_size=1, max_size=8))
def test_what_batches_carry_goes_up_and_leaves_nothing_missing_below(batches):
    """After each batch of a group, every id of the group up to the carried one is persisted."""
    seen: set[int] = set()
    batches = [left for batch in batches if (left := [one for one in batch if one not in seen and not seen.add(one)])]
    everything = {one for batch in batches for one in batch}
    persisted: set[int] = set()
    carried_before = -1
    for index, carried in seal(batches):
        persisted |= set(batches[index])
        assert carried > carried_before
        assert {one for one in everything if one <= carried} <= persisted
        carried_before = carried
    assert carried_before == max(everything)


def test_ids_may_begin_at_zero_and_leave_gaps():
    """0 is an id, gaps are fine, and a persisted id is a duplicate."""
    sequence = Sequence(-1)
    assert sequence.admit(0) == (0, Standing.NEW)
    assert sequence.admit(7) == (7, Standing.NEW)
    flight = sequence.push([[0, 7]])
    assert sequence.admit(7) == (7, Standing.POSSIBLE)
    assert sequence.complete(flight)
    assert sequence.admit(7) == (7, Standing.DUPLICATE)
    assert (sequence.published, sequence.last) == (7, 7)


@pytest.mark.parametrize("bad", [-1, MAX_SEQUENCE_ID + 1, True, "1", 1.0])
def test_what_is_no_id_is_rejected(bad):
    """A sequence id is a number of 63 bits; nothing changes otherwise."""
    sequence = Sequence(3)
    with pytest.raises(SequenceIdRejected, match="not a sequence id"):
        sequence.admit(bad)
    assert sequence.admit(None) == (4, Standing.NEW)


def test_an_id_twice_in_the_open_batch_is_rejected():
    """Nobody knows yet whether the first one will be persisted, and the broker would drop the second."""
    sequence = Sequence(-1)
    sequence.admit(5)
    with pytest.raises(SequenceIdRejected, match="batch that is open"):
        sequence.admit(5)


def test_going_back_into_a_gap_is_rejected():
    """An id below what was pushed, that no message has, would be dropped by the broker without a word."""
    sequence = Sequence(-1)
    sequence.admit(5)
    sequence.push([[5]])
    sequence.pushed = 5
    with pytest.raises(SequenceIdRejected, match="has been sent"):
        sequence.admit(3)


@pytest.mark.parametrize("order", [(1, None), (None, 1)])
def test_explicit_and_automatic_ids_do_not_mix(order):
    """The broker would drop messages silently."""
    sequence = Sequence(-1)
    sequence.admit(order[0])
    with pytest.raises(SequenceIdRejected, match="none"):
        sequence.admit(order[1])


def test_a_refused_message_can_be_sent_again_only_while_nothing_followed():
    """An id whose message was too big is free again; behind later ones it goes back."""
    sequence = Sequence(-1)
    sequence.admit(1)
    flight = sequence.push([[1]])
    sequence.refuse(flight, 1)
    sequence.complete(flight)
    assert sequence.published == -1
    assert sequence.admit(1) == (1, Standing.NEW)
    sequence.refuse(sequence.push([[1]]), 1)
    sequence.admit(2)
    with pytest.raises(SequenceIdRejected, match="refused"):
        sequence.admit(1)


def test_automatic_ids_begin_behind_everything_that_is_persisted():
    """Also behind what a part of a group left above the broker's number, and behind the application's first."""
    assert Sequence(3, {5, 9}).admit(None) == (10, Standing.NEW)
    assert Sequence(-1, first=42).admit(None) == (42, Standing.NEW)
    assert Sequence(3).admit_many(3) == range(4, 7)


def test_many_ids_at_once_are_taken_only_if_all_are_new_and_go_up():
    """Anything else is left to be decided one by one."""
    sequence = Sequence(3)
    for ids in ([3, 4], [4, 4], [5, 4], [4, "5"], []):
        assert not sequence.admit_ascending(ids)
    assert sequence.admit_ascending([4, 6])
    assert sequence.last == 6


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30), st.integers(1, 10), st.integers(1, 100))
def test_groups_end_where_the_client_would_end_a_batch(sizes, most, most_bytes):
    """No group is above either bound, but for a single message above the bytes; every message is in one, in order."""
    group, taken = Group(Bounds(most, most_bytes)), []
    for number, size in enumerate(sizes):
        if not group.has_room(size):
            taken += group.take()
        batch = group.batch(None)
        batch.ids.append(number)
        batch.size += size
        if group.joined(size):
            taken += group.take()
    taken += group.take()
    assert [number for batch in taken for number in batch.ids] == list(range(len(sizes)))
    for batch in taken:
        assert len(batch.ids) <= most
        assert batch.size <= most_bytes or len(batch.ids) == 1


def test_a_batch_parts_in_two_with_everything_that_belongs_to_each_message():
    """Callbacks, ids and options stay with their messages."""

    class Message:
        def length(self) -> int:
            return 10

    batch = Batch()
    batch.messages = [Message() for _ in range(5)]
    batch.callbacks = list("abcde")
    batch.ids = [1, 2, 3, 4, 5]
    batch.options = {1: {"x": 1}, 3: {"y": 2}}
    one, two = batch.halves()
    assert (one.callbacks, one.ids, one.options, one.size) == (["a", "b"], [1, 2], {1: {"x": 1}}, 20)
    assert (two.callbacks, two.ids, two.options, two.size) == (["c", "d", "e"], [3, 4, 5], {1: {"y": 2}}, 30)
