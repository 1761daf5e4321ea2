"""Sequence ids and safe batches, against a model of a broker that deduplicates as the real one does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pulsar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext._native.messages import batch_message
from pulsar_ext._wire.batch_payload import batch_metadata, batch_parts, key_fields, option_fields, whole_batch
from pulsar_ext.dedup.sequence_ids import MAX_SEQUENCE_ID, SequenceIds, Standing, StoredEntry, persisted_above
from pulsar_ext.errors import SequenceIdRejected
from pulsar_ext.produce.batch import Batch, BatchGroup, Bounds, seal


@dataclass
class Entry:
    """What one push carries: the id of the entry, and those of its messages."""

    carried: int
    ids: list[int]
    key: object

    @property
    def stored(self) -> StoredEntry:
        return StoredEntry(self.carried, tuple(self.ids))


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
        self.sequence = SequenceIds(broker.pushed, above)
        self.pending: list[tuple[Entry, object]] = []
        self.bounds = Bounds(group_messages, 1 << 30)
        self.group = BatchGroup(self.bounds, by_key=True)

    def send(self, sequence_id: int, key: object) -> Standing:
        sequence_id, standing = self.sequence.admit(sequence_id)
        if standing is Standing.NEW and self.group.join(key, (b"x", None, sequence_id, b"", b"")):
            self.cut()
        return standing

    def cut(self) -> None:
        keys, batches = list(self.group.batches), self.group.close()
        self.group = BatchGroup(self.bounds, by_key=True)
        if not batches:
            return
        flight = self.sequence.push([batch.ids for batch in batches])
        for index, carried in seal([batch.ids for batch in batches]):
            entry = Entry(carried, list(batches[index].ids), keys[index])
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


@settings(max_examples=300)
@given(EVENTS, st.integers(1, 7), st.booleans())
def test_every_message_is_persisted_exactly_once(events, group_messages, by_key):
    """Whatever crashes, whatever acknowledgement is lost: each id ends up on the topic once, by key in order."""
    run_schedule(events, group_messages, by_key)


def test_three_thousand_random_schedules():
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
    for _ in range(3_000):
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
    sequence = SequenceIds(-1)
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
    sequence = SequenceIds(3)
    with pytest.raises(SequenceIdRejected, match="not a sequence id"):
        sequence.admit(bad)
    assert sequence.admit(None) == (4, Standing.NEW)


def test_an_id_twice_in_the_open_batch_is_rejected():
    """It is not known yet whether the first one will be persisted, and the broker would drop the second."""
    sequence = SequenceIds(-1)
    sequence.admit(5)
    with pytest.raises(SequenceIdRejected, match="batch that is open"):
        sequence.admit(5)


def test_going_back_into_a_gap_is_rejected():
    """An id below what was pushed, that no message has, would be dropped by the broker without a word."""
    sequence = SequenceIds(-1)
    sequence.admit(5)
    sequence.push([[5]])
    sequence.pushed = 5
    with pytest.raises(SequenceIdRejected, match="has been sent"):
        sequence.admit(3)


@pytest.mark.parametrize("order", [(1, None), (None, 1)])
def test_explicit_and_automatic_ids_do_not_mix(order):
    """The broker would drop messages silently."""
    sequence = SequenceIds(-1)
    sequence.admit(order[0])
    with pytest.raises(SequenceIdRejected, match="none"):
        sequence.admit(order[1])


def test_a_refused_message_can_be_sent_again_only_while_nothing_followed():
    """An id whose message was too big is free again; behind later ones it goes back."""
    sequence = SequenceIds(-1)
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
    assert SequenceIds(3, {5, 9}).admit(None) == (10, Standing.NEW)
    assert SequenceIds(3, {5, 9}).highest == 9
    assert SequenceIds(-1, first=42).admit(None) == (42, Standing.NEW)
    assert SequenceIds(3).admit_many(3) == range(4, 7)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30), st.integers(1, 10), st.integers(1, 100))
def test_groups_end_where_the_client_would_end_a_batch(sizes, most, most_bytes):
    """No group is above either bound, but for a single message above the bytes; every message is in one, in order."""
    bounds = Bounds(most, most_bytes)
    group, taken = BatchGroup(bounds, by_key=False), []
    for number, size in enumerate(sizes):
        if not group.has_room(size):
            taken += group.close()
            group = BatchGroup(bounds, by_key=False)
        assert group.join("", (b"x" * size, None, number, b"", b""))
        if group.free <= 0 or group.left <= 0:
            taken += group.close()
            group = BatchGroup(bounds, by_key=False)
    taken += group.close()
    assert [number for batch in taken for number in batch.ids] == list(range(len(sizes)))
    for batch in taken:
        assert batch.count == len(batch.ids) <= most
        assert sum(map(len, batch.contents)) <= most_bytes or batch.count == 1


def test_a_batch_parts_in_two_with_everything_that_belongs_to_each_message():
    """Payloads, callbacks, ids, options and the entry's keys stay with their messages."""
    batch = Batch(items=[(b"%d" % n, n, n + 10, b"f%d" % n, b"k%d" % n) for n in range(5)])
    batch.close()
    halves = batch.halves()
    for half in halves:
        half.close()
    one, two = halves
    assert (one.contents, one.callbacks, one.ids, one.fields, one.keys, one.count) == (
        *((b"0", b"1"), (0, 1), (10, 11), (b"f0", b"f1")),
        *(b"k0", 2),
    )
    assert (two.contents, two.ids, two.keys, two.count) == ((b"2", b"3", b"4"), (12, 13, 14), b"k2", 3)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
MESSAGES = st.tuples(
    st.binary(max_size=300),
    st.integers(0, MAX_SEQUENCE_ID),
    st.fixed_dictionaries(
        {},
        optional={
            "partition_key": TEXT,
            "ordering_key": TEXT,
            "properties": st.dictionaries(TEXT, TEXT, max_size=3),
            "event_timestamp": st.integers(1, (1 << 63) - 1),
        },
    ),
)


@given(st.lists(MESSAGES, min_size=1, max_size=6))
def test_a_batch_is_written_as_the_client_reads_it(messages):
    """The C++ client reads every message of a batch back, with all that it has; so does our own reader."""
    contents, ids, options = zip(*messages, strict=True)
    parts = batch_parts(contents, ids, [option_fields(one) for one in options])
    batch = pulsar.MessageBatch().parse_from(b"".join(parts), len(messages))
    for read, content, option in zip(batch, contents, options, strict=True):
        assert read.data() == content
        assert read.properties() == option.get("properties", {})
        assert read.partition_key() == option.get("partition_key", "")
        assert read.ordering_key() == option.get("ordering_key", "")
        assert read.event_timestamp() == option.get("event_timestamp", 0)
    found = batch_metadata(b"".join(parts), len(messages))
    assert [one[8] for one in found] == list(ids)
    whole = whole_batch(parts, len(messages), ids[-1], key_fields(options[0]))
    message = batch_message(whole, len(messages))
    assert message.data() == b"".join(parts)
    assert message.partition_key() == options[0].get("partition_key", "")


def test_a_refused_id_that_was_sent_after_all_counts_like_any_other():
    """By itself or with others at once: it is published, and a duplicate then."""
    for ids in (None, [10, 11]):
        sequence = SequenceIds(-1)
        sequence.admit(10)
        flight = sequence.push([[10]])
        sequence.refuse(flight, 10)
        sequence.complete(flight)
        assert sequence.admit(10)[1] is Standing.NEW if ids is None else sequence.admit_ascending(ids)
        flight = sequence.push([ids or [10]])
        if ids:
            sequence.refuse(flight, 11)
        sequence.complete(flight)
        assert sequence.published == 10
        assert sequence.admit(10) == (10, Standing.DUPLICATE)


def test_ids_are_taken_at_once_only_if_all_are_new():
    """Ids that are known, go back, repeat, or are no sequence ids are left to be taken one by one; nothing changes."""
    ids = SequenceIds(5)
    for wrong in ([5, 6], [3, 9], [6, 6], [8, 7], [], [6, True], [True, 9], [6, 2**63], [6.0, 7], [6, "7"]):
        assert not ids.admit_ascending(wrong)
        assert (ids.last, ids.upcoming) == (5, 6)
    assert ids.admit_ascending([6, 2**63 - 1])
    assert ids.last == 2**63 - 1
    assert not SequenceIds(5, {7}).admit_ascending([8])
    assert SequenceIds(5).admit_ascending([6])
    assert SequenceIds(5).admit(MAX_SEQUENCE_ID) == (MAX_SEQUENCE_ID, Standing.NEW)


def test_many_automatic_ids_follow_each_other():
    """They go on after the last one, and end explicit ids."""
    ids = SequenceIds(5)
    assert ids.admit_many(3) == range(6, 9)
    assert (ids.last, ids.highest) == (8, 8)
    assert ids.admit(None) == (9, Standing.NEW)
    assert not ids.admit_ascending([20])
    with pytest.raises(SequenceIdRejected):
        ids.admit(20)


def test_ids_are_steady_while_nothing_has_failed():
    """A sender takes automatic ids by itself until the first failure, whose reason stays."""
    ids = SequenceIds(-1)
    assert not ids.steady
    ids.admit(None)
    assert ids.steady
    ids.fail("lost")
    ids.fail("later")
    assert (ids.broken, ids.steady) == ("lost", False)
    ids.admit(None)
    assert not ids.steady


def test_what_is_persisted_above_is_looked_for_in_one_group():
    """The ids above the broker's number, of as many messages as a group has, and of no entry before."""
    entries = [StoredEntry(9, (7, 9)), StoredEntry(8, (5, 8)), StoredEntry(6, (6,))]
    assert persisted_above(5, entries, 5) == {6, 7, 8, 9}
    assert persisted_above(5, entries, 4) == {7, 8, 9}
    assert persisted_above(5, entries, 3) == {7, 8, 9}
    assert persisted_above(5, entries, 2) == {7, 9}
