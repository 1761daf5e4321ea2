"""Sequence ids and batch groups, against a model of a deduplicating broker."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pulsar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext._native.messages import batch_message
from pulsar_ext._wire.batch_payload import batch_metadata, batch_parts, key_fields, option_fields, whole_batch
from pulsar_ext.dedup.sequence_ids import MAX_SEQUENCE_ID, IdStatus, SequenceIds, persisted_above
from pulsar_ext.errors import SequenceIdRejected
from pulsar_ext.produce.batch import Batch, BatchGroup, Bounds, seal


@dataclass
class Entry:
    """A pushed entry: its sequence id, and those of its messages."""

    entry_sequence_id: int
    ids: list[int]
    key: object


@dataclass
class Broker:
    """Keeps the highest id pushed and persisted; drops lower entries, and loses unpersisted ones in a crash."""

    topic: list[Entry] = field(default_factory=list)
    writing: list[Entry] = field(default_factory=list)
    pushed: int = -1
    persisted: int = -1

    def publish(self, entry: Entry) -> str:
        if entry.entry_sequence_id <= self.persisted:
            return "duplicate"
        if entry.entry_sequence_id <= self.pushed:
            return "unknown"  # the real broker answers with an error, and the client reconnects
        self.pushed = entry.entry_sequence_id
        self.writing.append(entry)
        return "writing"

    def write(self, count: int) -> list[Entry]:
        done, self.writing = self.writing[:count], self.writing[count:]
        for entry in done:
            self.topic.append(entry)
            self.persisted = max(self.persisted, entry.entry_sequence_id)
        return done

    def crash(self) -> None:
        self.writing = []
        self.pushed = self.persisted


class Client:
    """The C++ producer: keeps entries in flight, and resends them after a reconnection."""

    def __init__(self, broker: Broker, group_messages: int) -> None:
        self.broker = broker
        broker.write(len(broker.writing))  # what `Opening.await_writes` waits for
        above = persisted_above(broker.pushed, (entry.ids for entry in reversed(broker.topic)), group_messages)
        self.sequence = SequenceIds(broker.pushed, above)
        self.pending: list[tuple[Entry, object]] = []
        self.bounds = Bounds(group_messages, 1 << 30)
        self.group = BatchGroup(self.bounds, by_key=True)

    def send(self, sequence_id: int, key: object) -> IdStatus:
        sequence_id, status = self.sequence.admit(sequence_id)
        if status is IdStatus.NEW and self.group.join(key, (b"x", None, sequence_id, b"", b"")):
            self.cut()
        return status

    def cut(self) -> None:
        keys, batches = list(self.group.batches), self.group.close()
        self.group = BatchGroup(self.bounds, by_key=True)
        if not batches:
            return
        flight = self.sequence.push([batch.ids for batch in batches])
        for index, entry_id in seal([batch.ids for batch in batches]):
            entry = Entry(entry_id, list(batches[index].ids), keys[index])
            self.pending.append((entry, flight))
            self.broker.publish(entry)

    def answers(self, count: int) -> None:
        """Let the broker write entries, and complete them."""
        written = {id(entry) for entry in self.broker.write(count)}
        while self.pending and id(self.pending[0][0]) in written:
            self._complete()

    def _complete(self) -> None:
        _, flight = self.pending.pop(0)
        self.sequence.complete(flight)

    def reconnect(self) -> None:
        """Resend the entries in flight; persisted ones are reported as duplicates."""
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
        """The number of outbox messages sent to the current producer."""

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
        """Restart the producer after the published id, or earlier."""
        self.client = Client(self.broker, self.group_messages)
        safe = self.client.sequence.published
        stored = {number for entry in self.broker.topic for number in entry.ids}
        assert {number for number, _ in self.outbox if number <= safe} <= stored
        self.at = max(0, sum(number <= safe for number, _ in self.outbox) - back)

    def crash_both(self, back: int) -> None:
        self.broker.crash()
        self.crash_producer(back)

    def check(self) -> None:
        """Send the rest, and check that each id is on the topic once, and each key in order."""
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
    """Run the events, and check the topic."""
    world = World(group_messages, by_key=by_key)
    for name, *arguments in events:
        getattr(world, name.replace(" ", "_"))(*arguments)
    world.check()


@settings(max_examples=300)
@given(EVENTS, st.integers(1, 7), st.booleans())
def test_messages_are_persisted_exactly_once_despite_failures(events, group_messages, by_key):
    """Each id is on the topic once and in order by key, whatever crashes or acknowledgements are lost."""
    run_schedule(events, group_messages, by_key)


def test_random_schedules_persist_exactly_once():
    """Random schedules, many more than hypothesis runs, persist each message exactly once."""
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
def test_entry_ids_ascend_and_nothing_is_missing_below(batches):
    """After each batch of a group, every id of the group up to the entry's id is persisted."""
    seen: set[int] = set()
    batches = [
        unseen for batch in batches if (unseen := [one for one in batch if one not in seen and not seen.add(one)])
    ]
    everything = {one for batch in batches for one in batch}
    persisted: set[int] = set()
    previous_id = -1
    for index, entry_id in seal(batches):
        persisted |= set(batches[index])
        assert entry_id > previous_id
        assert {one for one in everything if one <= entry_id} <= persisted
        previous_id = entry_id
    assert previous_id == max(everything)


def test_ids_may_begin_at_zero_and_have_gaps():
    """0 is an id, gaps are allowed, and a persisted id is a duplicate."""
    sequence = SequenceIds(-1)
    assert sequence.admit(0) == (0, IdStatus.NEW)
    assert sequence.admit(7) == (7, IdStatus.NEW)
    flight = sequence.push([[0, 7]])
    assert sequence.admit(7) == (7, IdStatus.POSSIBLE)
    assert sequence.complete(flight)
    assert sequence.admit(7) == (7, IdStatus.DUPLICATE)
    assert (sequence.published, sequence.last) == (7, 7)


@pytest.mark.parametrize("bad", [-1, MAX_SEQUENCE_ID + 1, True, "1", 1.0])
def test_invalid_sequence_id_is_rejected(bad):
    """A sequence id is a 63-bit integer; an invalid one changes nothing."""
    sequence = SequenceIds(3)
    with pytest.raises(SequenceIdRejected, match="sequence_id must be an int"):
        sequence.admit(bad)
    assert sequence.admit(None) == (4, IdStatus.NEW)


def test_repeated_id_in_open_batch_is_rejected():
    """The broker would drop the second message, while it is unknown whether the first is persisted."""
    sequence = SequenceIds(-1)
    sequence.admit(5)
    with pytest.raises(SequenceIdRejected, match="open batch"):
        sequence.admit(5)


def test_lower_id_in_a_gap_is_rejected():
    """A lower id than the pushed one, although unused, would be dropped by the broker silently."""
    sequence = SequenceIds(-1)
    sequence.admit(5)
    sequence.push([[5]])
    sequence.pushed = 5
    with pytest.raises(SequenceIdRejected, match="has been sent"):
        sequence.admit(3)


@pytest.mark.parametrize("order", [(1, None), (None, 1)])
def test_mixing_explicit_and_automatic_ids_raises(order):
    """The broker would drop messages silently."""
    sequence = SequenceIds(-1)
    sequence.admit(order[0])
    with pytest.raises(SequenceIdRejected, match="none"):
        sequence.admit(order[1])


def test_rejected_id_is_usable_until_a_later_one_is_sent():
    """The id of a message that was too big is usable again until a later message is sent."""
    sequence = SequenceIds(-1)
    sequence.admit(1)
    flight = sequence.push([[1]])
    sequence.reject(flight, 1)
    sequence.complete(flight)
    assert sequence.published == -1
    assert sequence.admit(1) == (1, IdStatus.NEW)
    sequence.reject(sequence.push([[1]]), 1)
    sequence.admit(2)
    with pytest.raises(SequenceIdRejected, match="rejected"):
        sequence.admit(1)


def test_automatic_ids_begin_after_persisted_ids():
    """Automatic ids begin after a group's persisted part above the broker's id, and at `first` at the lowest."""
    assert SequenceIds(3, {5, 9}).admit(None) == (10, IdStatus.NEW)
    assert SequenceIds(3, {5, 9}).highest == 9
    assert SequenceIds(-1, first=42).admit(None) == (42, IdStatus.NEW)
    assert SequenceIds(3).admit_many(3) == range(4, 7)


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30), st.integers(1, 10), st.integers(1, 100))
def test_batch_groups_respect_both_limits(sizes, most, most_bytes):
    """A group exceeds neither limit, except with one large message; every message is in one group, in order."""
    bounds = Bounds(most, most_bytes)
    group, taken = BatchGroup(bounds, by_key=False), []
    for number, size in enumerate(sizes):
        if not group.has_room(size):
            taken += group.close()
            group = BatchGroup(bounds, by_key=False)
        assert group.join("", (b"x" * size, None, number, b"", b""))
        if group.free_messages <= 0 or group.free_bytes <= 0:
            taken += group.close()
            group = BatchGroup(bounds, by_key=False)
    taken += group.close()
    assert [number for batch in taken for number in batch.ids] == list(range(len(sizes)))
    for batch in taken:
        assert batch.count == len(batch.ids) <= most
        assert sum(map(len, batch.contents)) <= most_bytes or batch.count == 1


def test_split_batch_keeps_each_messages_data():
    """Payloads, callbacks, ids, options and entry keys stay with their messages."""
    batch = Batch()
    for n in range(5):
        batch.items.append((b"%d" % n, n, n + 10, b"f%d" % n, b"k%d" % n))
    batch.close()
    one, two = batch.halves()
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
def test_batch_payload_is_readable_by_cpp_client(messages):
    """The C++ client and our own reader read back every message of a batch, with its options."""
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


def test_rejected_id_sent_later_is_published():
    """Sent by itself or with others, the id is published, and then a duplicate."""
    for ids in (None, [10, 11]):
        sequence = SequenceIds(-1)
        sequence.admit(10)
        flight = sequence.push([[10]])
        sequence.reject(flight, 10)
        sequence.complete(flight)
        assert sequence.admit(10)[1] is IdStatus.NEW if ids is None else sequence.admit_ascending(ids)
        flight = sequence.push([ids or [10]])
        if ids:
            sequence.reject(flight, 11)
        sequence.complete(flight)
        assert sequence.published == 10
        assert sequence.admit(10) == (10, IdStatus.DUPLICATE)


def test_admit_ascending_requires_new_ascending_ids():
    """Known, lower, repeated or invalid ids are not admitted at once, and nothing changes."""
    ids = SequenceIds(5)
    for wrong in ([5, 6], [3, 9], [6, 6], [8, 7], [], [6, True], [True, 9], [6, 2**63], [6.0, 7], [6, "7"]):
        assert not ids.admit_ascending(wrong)
        assert (ids.last, ids.upcoming) == (5, 6)
    assert ids.admit_ascending([6, 2**63 - 1])
    assert ids.last == 2**63 - 1
    assert not SequenceIds(5, {7}).admit_ascending([8])
    assert SequenceIds(5).admit_ascending([6])
    assert SequenceIds(5).admit(MAX_SEQUENCE_ID) == (MAX_SEQUENCE_ID, IdStatus.NEW)


def test_admit_many_returns_consecutive_ids():
    """Ids continue after the last one, and explicit ids are not admitted any more."""
    ids = SequenceIds(5)
    assert ids.admit_many(3) == range(6, 9)
    assert (ids.last, ids.highest) == (8, 8)
    assert ids.admit(None) == (9, IdStatus.NEW)
    assert not ids.admit_ascending([20])
    with pytest.raises(SequenceIdRejected):
        ids.admit(20)


def test_ids_are_steady_until_a_failure():
    """A sender assigns automatic ids itself until the first failure, whose reason is kept."""
    ids = SequenceIds(-1)
    assert not ids.steady
    ids.admit(None)
    assert ids.steady
    ids.fail("lost")
    ids.fail("later")
    assert (ids.broken, ids.steady) == ("lost", False)
    ids.admit(None)
    assert not ids.steady


def test_persisted_above_reads_one_group():
    """The ids above the broker's id are read from as many messages as a group has, and not from older entries."""
    entries = [(7, 9), (5, 8), (6,)]
    assert persisted_above(5, entries, 5) == {6, 7, 8, 9}
    assert persisted_above(5, entries, 4) == {7, 8, 9}
    assert persisted_above(5, entries, 3) == {7, 8, 9}
    assert persisted_above(5, entries, 2) == {7, 9}
