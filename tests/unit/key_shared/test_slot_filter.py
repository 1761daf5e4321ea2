"""Which messages pass a filter of slots, and that none gets lost on the way, without a broker."""

from __future__ import annotations

import base64
from collections import deque
from functools import partial
from itertools import count
from types import SimpleNamespace

import _pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext.admin import SubscriptionStats
from pulsar_ext.errors import AdminNotFound, AdminUnavailable, InvalidUse, MisroutedMessage
from pulsar_ext.key_shared.coverage import KeyCover, batch_keys, cover_of
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, SlotFilter
from pulsar_ext.key_shared.hashing import KeyForm, KeyForms, KeyFormWarning, auto_split_slot, batch_forms, key_slot
from pulsar_ext.receive.filter import FilteredSource
from pulsar_ext.receive.order import Transition
from pulsar_ext.receive.source import NativeSource


@pytest.fixture(scope="module")
def points(fault_module):
    """The module that has a signal arrive at one point of a call."""
    return fault_module("interrupt_points")


class Wanted:
    """Wants even numbers, and raises once for each number in `faults`."""

    def __init__(self, faults=()):
        self.faults = deque(faults)

    def __call__(self, number):
        if self.faults and self.faults[0][0] == number:
            raise self.faults.popleft()[1]
        return number % 2 == 0


def filtered(numbers, faults=()):
    """A filter over numbers in place of messages, which then times out for ever."""
    waiting = deque(numbers)

    def call(_):
        if not waiting:
            raise _pulsar.Timeout("Pulsar error: TimeOut")
        return waiting.popleft()

    return FilteredSource(NativeSource(None, lambda _: call), Wanted(faults))


def take(source, count=10**6):
    """What comes until nothing does."""
    found = []
    for _ in range(count):
        try:
            found.append(next(source))
        except _pulsar.Timeout:
            break
    return found


def test_only_the_wanted_pass_and_the_others_are_counted():
    """What is wanted comes in order, by either way to receive, and `passed_by` counts the rest."""
    source = filtered(range(10))
    assert [next(source), source.wait(50), next(source)] == [0, 2, 4]
    assert take(source) == [6, 8]
    assert source.passed_by == 5
    with pytest.raises(_pulsar.Timeout):
        source.wait(10)


def test_a_peek_keeps_the_message():
    """What is looked up before it is received is received next, once, and a seek forgets it."""
    source = filtered(range(6))
    assert source.peek()
    assert source.peek()
    assert source.holds
    assert take(source, 2) == [0, 2]
    assert source.peek()
    source.after(Transition.SEEK)
    assert not source.holds
    assert not source.peek()


@given(st.lists(st.integers(0, 9), max_size=12), st.booleans())
def test_an_error_or_a_ctrl_c_loses_no_message(at, timed):
    """Whatever interrupts the decision about a message, the next receive decides about that message again."""
    source = filtered(range(10), [(number, KeyboardInterrupt()) for number in sorted(at)])
    found, interrupted = [], 0
    while True:
        try:
            found.append(source.wait(1000) if timed else next(source))
        except _pulsar.Timeout:
            break
        except KeyboardInterrupt:
            interrupted += 1
    assert found == [0, 2, 4, 6, 8]
    assert interrupted == len(at)


def test_an_error_that_carries_its_message_does_not_keep_it():
    """A misrouted message is in the error, and the next receive goes on behind it, also among those put back."""
    source = filtered([0, 1, 2], [(1, MisroutedMessage("no"))])
    assert next(source) == 0
    with pytest.raises(MisroutedMessage):
        next(source)
    assert take(source) == [2]
    source, before = filtered([], [(5, MisroutedMessage("no"))] * 2), []
    source.kept[1].extend([4, 5, 6])
    assert source.next_kept(before) == 4
    for before, waits in (([4], True), ([], False)):
        with pytest.raises(MisroutedMessage):
            source.next_kept(before)
        assert (5 in source.kept[1]) is waits
    assert source.next_kept() == 6
    assert not any(source.kept)


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_decided_about_at_a_seek_does_not_come_behind_it(kept):
    """A decision that a seek meets, and that then fails, leaves nothing of before the seek to the next receive."""

    def decide(_):
        source.after(Transition.SEEK)
        raise RuntimeError

    source = FilteredSource(NativeSource(None, lambda _: lambda _: 1), decide)
    if kept:
        source.kept[1].extend([1, 2])
    with pytest.raises(RuntimeError):
        next(source)
    assert not any(source.kept)


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("how", ["next", "wait", "kept"])
def test_a_ctrl_c_at_any_point_of_a_receive_leaves_the_message_to_the_next(points, how):
    """A signal at each point at which one can arrive: what was not returned comes next, in its order."""

    def opened():
        endless = partial(next, count())  # no Python function, in which a signal would lose what it gives
        source = FilteredSource(NativeSource(None, lambda _: endless), Wanted())
        if how == "kept":
            source.kept[1].extend([2, 4, 6])
        return source

    def receive():
        if how == "wait":
            return source.wait(10)
        for came in source:  # `next()` is a call, behind which a signal would lose what it gave
            return came
        return None

    source = opened()
    places, _ = points.points_of(receive)
    assert places
    for place in places:
        source = opened()
        one = points.Interruption(place)
        one.make(receive)
        came = [] if one.came is None else [one.came]
        expected = [2, 4, 6, 0, 2, 4] if how == "kept" else [0, 2, 4]
        assert [*came, *take(source, len(expected) - len(came))] == expected, one.place


def test_a_flood_of_others_does_not_outlast_the_wait():
    """With endless unwanted messages, each way to receive comes to an end."""
    endless = FilteredSource(NativeSource(None, lambda _: lambda _: 1), Wanted())
    with pytest.raises(_pulsar.Timeout):
        next(endless)
    with pytest.raises(_pulsar.Timeout):
        endless.wait(20)
    assert not endless.peek()


@given(st.binary(max_size=40))
def test_bytes_of_base64(data):
    """The text that Java stores for bytes gives those bytes, and a text that it would not store gives none."""
    text = base64.b64encode(data).decode()
    assert bytes_of_base64(text) == (data or None)
    assert bytes_of_base64(text + "\n") is None


@pytest.mark.parametrize("text", ["", "key1=", "a", "ab", "é===", "AAB=", "order-01"])
def test_texts_that_are_no_bytes(text):
    """A text that is not base64, or not the base64 that Java writes, can only be a text."""
    assert bytes_of_base64(text) is None


def message(metadata, payload=b"x"):
    """One message of a batch, as it stands in an entry."""
    metadata = metadata + b"\x18" + bytes([len(payload)])
    return len(metadata).to_bytes(4, "big") + metadata + payload


BATCH = [
    (message(b"\x12\x01a\x40\x00"), KeyForm.TEXT, key_slot("a")),
    (message(b"\x40\x01"), KeyForm.NONE, key_slot("p-1")),
    (message(b"\x12\x00\x40\x02"), KeyForm.TEXT, 1),
    (message(b"\x12\x04AAAA\x30\x01\x40\x03"), KeyForm.BASE64, key_slot(bytes(3))),
    (message(b"\x12\x01b\x3a\x02\xff\xfe\x40\x04"), KeyForm.TEXT, key_slot(b"\xff\xfe")),
]


def test_the_keys_of_a_batch():
    """Text, missing, empty, base64 and ordering keys are read out of a batch as the broker would see each."""
    payload = b"".join(data for data, _, _ in BATCH)
    assert batch_forms(payload, len(BATCH)) == [form for _, form, _ in BATCH]
    assert [key_slot(one.key) for one in batch_keys(payload, len(BATCH), "p")] == [slot for _, _, slot in BATCH]


def test_an_ordering_key_decides_about_a_message():
    """Also beside a partition key, about which another message has decided already."""

    def message(ordering, key):
        return SimpleNamespace(ordering_key=lambda: ordering, partition_key=lambda: key)

    mine = key_slot("mine!")
    wanted = SlotFilter(KeyHashRanges([(mine, mine)]), SimpleNamespace(asks=False))
    for keys, expected in ((("", "mine!"), True), (("other!", "mine!"), False), (("mine!", "other!"), True)):
        assert wanted(message(*keys)) is expected
        assert (wanted.slot(message(*keys)) == mine) is expected


@given(st.binary(max_size=80), st.integers(0, 6))
def test_garbage_is_no_batch(data, size):
    """Anything but a batch of that size gives nothing instead of a guess, and never crashes."""
    whole = b"".join(data for data, _, _ in BATCH)
    assert batch_forms(whole[:-1], len(BATCH)) is None
    assert batch_forms(whole, len(BATCH) - 1) is None
    forms = batch_forms(data, size)
    assert forms is None or len(forms) == size
    keys = batch_keys(data, size, "p")
    assert keys is None or len(keys) == size


class Inner:
    """What `KeyForms` asks a C++ message; the tests that need a real one are integration tests."""

    def producer_name(self):
        return "p"

    def topic_name(self):
        return "t"

    def message_id(self):
        return _pulsar.MessageId(-1, 1, 2, -1)


class Asked:
    """An admin API that gives prepared answers and counts the questions."""

    def __init__(self, *answers):
        self.answers = deque(answers)
        self.count = 0

    def __call__(self):
        return self

    def entry(self, *_, **__):
        self.count += 1
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Entry:
    """An entry whose key is text, bytes or missing."""

    def __init__(self, key, *, encoded=False):
        self.partition_key = key
        self.partition_key_b64_encoded = encoded


def test_auto_stops_asking_when_a_producer_is_known():
    """After 500 equal answers no more are asked for; "exact" asks on and "text" never does."""
    for mode, expected in (("auto", 500), ("exact", 600), ("text", 0)):
        admin = Asked(Entry(None))
        forms = KeyForms(admin, mode)
        assert {forms.form_of(Inner(), "") for _ in range(600)} == {KeyForm.NONE}
        assert admin.count == expected


def test_auto_asks_for_ever_where_a_producer_does_both():
    """One other answer, and every message is asked about."""
    admin = Asked(Entry(None), Entry(""), Entry(None))
    forms = KeyForms(admin)
    found = [forms.form_of(Inner(), "") for _ in range(600)]
    assert found[:3] == [KeyForm.NONE, KeyForm.TEXT, KeyForm.NONE]
    assert admin.count == 600


def test_a_key_is_asked_about_once():
    """In "auto" mode the same key of the same producer keeps its form."""
    admin = Asked(Entry("AAAA", encoded=True))
    forms = KeyForms(admin)
    assert {forms.form_of(Inner(), "AAAA") for _ in range(5)} == {KeyForm.BASE64}
    assert admin.count == 1


def test_without_an_admin_api():
    """One that never answered is given up after a warning; "exact" lets the error through; a trimmed entry is text."""
    forms = KeyForms(Asked(AdminUnavailable("down")))
    with pytest.warns(KeyFormWarning):
        assert forms.form_of(Inner(), "AAAA") is KeyForm.TEXT
    assert forms.form_of(Inner(), "") is KeyForm.NONE
    assert not forms.asks
    with pytest.raises(AdminUnavailable):
        KeyForms(Asked(AdminUnavailable("down")), "exact").form_of(Inner(), "AAAA")
    assert KeyForms(Asked(AdminNotFound("gone")), "exact").form_of(Inner(), "AAAA") is KeyForm.TEXT
    with pytest.raises(InvalidUse, match="auto, exact, text"):
        KeyForms(Asked(Entry("")), "guess")


def test_an_admin_api_that_answered_before_is_waited_for():
    """While the broker restarts, nothing is taken for granted."""
    admin = Asked(
        Entry("AAAA"), AdminUnavailable("restarting"), AdminUnavailable("restarting"), Entry("AAAA", encoded=True)
    )
    forms = KeyForms(admin)
    assert forms.form_of(Inner(), "AAAA") is KeyForm.TEXT
    assert forms.form_of(Inner(), "BBBB") is KeyForm.BASE64
    assert admin.count == 4


slots = st.sets(st.integers(0, 200), min_size=1)


@given(st.lists(slots, max_size=5))
def test_cover(consumers):
    """Covered, uncovered and overlapping slots are those of the plain sets; slot 0 is never missed."""
    named = [(str(n), KeyHashRanges((s, s) for s in one)) for n, one in enumerate(consumers)]
    cover = KeyCover.of("t", "s", named)
    covered = set().union(*consumers)
    twice = {s for s in covered if sum(s in one for one in consumers) > 1}
    for slot in range(201):
        assert (slot in cover.covered) == (slot in covered)
        assert (slot in cover.uncovered) == (slot not in covered and slot != 0)
        assert (slot in cover.overlapping) == (slot in twice)
    assert not cover.is_exact
    assert KeyCover.of("t", "s", [("a", KeyHashRanges(["1-65535"]))]).is_exact
    assert "uncovered" in str(cover)


@pytest.mark.parametrize(
    ("mode", "ranges", "slot_of"),
    [
        ("STICKY", [[1, 65535]], key_slot),
        ("AUTO_SPLIT", [[1, 65535]], auto_split_slot),
        ("AUTO_SPLIT", [[0, 65536]], key_slot),
        ("", None, key_slot),
    ],
)
def test_a_cover_knows_how_its_slots_are_numbered(mode, ranges, slot_of):
    """Slots are numbered as the mode says, and where ranges begin; an end beyond the last slot is the last slot."""
    consumers = [] if ranges is None else [{"consumerName": "a", "keyHashRangeArrays": ranges}]
    cover = cover_of("t", "s", SubscriptionStats.from_json({"consumers": consumers, "keySharedMode": mode}))
    for key in ("key1", b"\xff", "k35981"):
        assert cover.slot_of(key) == slot_of(key)
        assert cover.consumers_of(key) == (() if ranges is None else ("a",))
    assert cover.is_exact is (ranges is not None)
    assert key_slot("key1") != auto_split_slot("key1")
