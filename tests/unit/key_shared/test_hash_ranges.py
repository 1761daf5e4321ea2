"""Key slots, ranges and their filter without a broker; the integration tests compare with the broker's classes."""

from __future__ import annotations

import base64
import pickle
import random
from collections import deque
from functools import partial
from itertools import accumulate, count, pairwise
from types import SimpleNamespace

import _pulsar
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext.admin import SubscriptionStats
from pulsar_ext.errors import AdminNotFound, AdminUnavailable, InvalidKeyHashRange, InvalidUse, MisroutedMessage
from pulsar_ext.key_shared.coverage import KeyCover, batch_keys, cover_of
from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges, SlotFilter, as_ranges
from pulsar_ext.key_shared.hashing import (
    SLOTS,
    KeyForm,
    KeyForms,
    KeyFormWarning,
    auto_split_slot,
    batch_forms,
    key_slot,
    key_slots,
    sticky_key,
)
from pulsar_ext.key_shared.plan import plan_key_hash_ranges
from pulsar_ext.receive.filter import FilteredSource
from pulsar_ext.receive.order import Transition
from pulsar_ext.receive.source import NativeSource

# Computed by broker 4.2.4; the last but one is in the last slot, and the two before it hash to 0.
KNOWN = {
    "": 1,
    "key1": 293,
    "key2": 14772,
    "key3": 60248,
    "a": 27058,
    "中文": 29079,
    "é": 1927,
    "😀": 12026,
    "order-000001": 26506,
    "k179888": 1,
    "k27353": 1,
    "k35981": 65535,
    b"\xff\xfe\x00\x01\x02": 50950,
}

slot = st.integers(0, SLOTS - 1)
cuts = st.sets(st.integers(0, SLOTS), min_size=2, max_size=40).map(sorted)
keys = st.lists(st.one_of(st.text(max_size=12), st.text("abc", max_size=40)), max_size=60)


@st.composite
def sets_of_slots(draw):
    """Draw pieces between random cuts, which may touch; each set as `KeyHashRanges` and as a plain Python set."""
    at = draw(cuts)
    chosen = [(a, b - 1) for a, b in pairwise(at) if draw(st.booleans())] or [(at[0], at[1] - 1)]
    return KeyHashRanges(draw(st.permutations(chosen))), {s for a, b in chosen for s in range(a, b + 1)}


@pytest.mark.parametrize("key", KNOWN)
def test_slot_equals_broker(key):
    """Each kind of key (empty, text, unicode, bytes, one that hashes to 0) has the slot that the broker computed."""
    assert key_slot(key) == KNOWN[key]
    assert key_slot(key.encode() if isinstance(key, str) else key) == KNOWN[key]


@pytest.mark.parametrize("key", [None, 7, ["a"]])
def test_invalid_type_of_key_raises(key):
    """A key that is neither text nor bytes raises, alone and in a list."""
    with pytest.raises(TypeError):
        key_slot(key)
    with pytest.raises(InvalidUse):
        key_slots([key])


@pytest.mark.parametrize("slots_of", [key_slot, auto_split_slot, lambda key: key_slots([key])])
def test_lone_surrogate_in_key_raises(slots_of):
    """A lone surrogate, as in a file name in another encoding, raises and does not crash."""
    with pytest.raises(UnicodeEncodeError):
        slots_of("key \udcff")


def test_sticky_key_precedence():
    """The ordering key precedes the key, base64 is decoded, and producer and sequence id replace a missing key."""
    raw = b"\xff\xfe\x00"
    encoded = base64.b64encode(raw).decode()
    assert sticky_key("k", ordering_key=b"\xffo", is_base64=True) == b"\xffo"
    assert sticky_key(encoded, is_base64=True, producer_name="p", sequence_id=3) == raw
    assert sticky_key(encoded) == encoded.encode()
    assert sticky_key("", producer_name="p", sequence_id=3) == b""
    assert sticky_key(None, producer_name="pé", sequence_id=3) == "pé-3".encode()
    with pytest.raises(InvalidUse, match="base64"):
        sticky_key("no!", is_base64=True)


@given(keys)
def test_key_slots_equals_key_slot(some):
    """Lists and numpy and Arrow arrays of any text have the slots that `key_slot` returns one by one."""
    np, pa = pytest.importorskip("numpy"), pytest.importorskip("pyarrow")
    expected = [key_slot(key) for key in some]
    encoded = [key.encode() for key in some]
    # A fixed-width numpy array cannot hold trailing NULs, so the result is compared with its content.
    fixed, wide = np.array(encoded, "S"), np.array(some, "U")
    assert key_slots(fixed).tolist() == [key_slot(key) for key in fixed.tolist()]
    assert key_slots(wide).tolist() == [key_slot(key) for key in wide.tolist()]
    assert key_slots(np.array(some, object)).tolist() == expected
    assert key_slots(iter(some)).tolist() == key_slots(encoded).tolist() == expected
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert key_slots(pa.array(some, kind)).tolist() == expected
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(encoded, kind)
        assert key_slots(array).tolist() == expected
        assert key_slots(array[1:]).tolist() == expected[1:]
    assert key_slots(pa.array(some, pa.string()).dictionary_encode()).tolist() == expected
    assert key_slots(pa.chunked_array([some, some], pa.string())).tolist() == expected * 2


def test_key_slots_of_blocks_and_shapes():
    """Keys of very different lengths over several blocks, a two-dimensional array and an empty one are supported."""
    np = pytest.importorskip("numpy")
    rng = random.Random(7)
    some = ["k" * rng.choice([0, 1, 3, 4, 5, 8, 200]) + str(n) for n in range(20_000)]
    assert key_slots(np.array(some)).tolist() == [key_slot(key) for key in some]
    assert key_slots(np.array([[b"a", b"key1"]])).tolist() == [[27058, 293]]
    assert key_slots(np.empty(0, "S3")).tolist() == key_slots([]).tolist() == []


def test_key_slots_of_nulls_and_numbers_raises():
    """Nulls and numbers raise, with the reason in the message."""
    np, pa = pytest.importorskip("numpy"), pytest.importorskip("pyarrow")
    with pytest.raises(InvalidUse, match="1 of 2 keys are null"):
        key_slots(pa.array(["a", None]))
    for numbers in (np.array([1, 2]), pa.array([1, 2])):
        with pytest.raises(InvalidUse, match="int64"):
            key_slots(numbers)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (5, 3, "end must >= range start"),
        (-1, 3, r"must be \[0, 65535\]"),
        (0, 65536, r"must be \[0, 65535\]"),
        (True, 3, "int"),
        (0, 3.0, "int"),
        ("0", 3, "int"),
    ],
)
def test_invalid_range_raises(start, end, words):
    """Ranges that Java rejects, and the slot 65,536 that its reader accepts, raise with Java's text."""
    with pytest.raises(InvalidKeyHashRange, match=words):
        KeyHashRange(start, end)


@pytest.mark.parametrize("text", ["", "5", "0..7", "0-65536", "9-3", "a-b", None, "1-2-3"])
def test_invalid_text_of_range_raises(text):
    """An invalid text raises."""
    with pytest.raises(InvalidKeyHashRange):
        KeyHashRange.parse(text)


@given(slot, slot)
def test_range_round_trips(a, b):
    """`parse` reads the output of `str` and of Java, and a range survives pickling."""
    one = KeyHashRange(min(a, b), max(a, b))
    assert KeyHashRange.parse(str(one)) == one == KeyHashRange.parse(f"[{one.start}, {one.end}]")
    assert pickle.loads(pickle.dumps(one)) == one == KeyHashRange.of(one.start, one.end)
    assert len(one) == one.end - one.start + 1


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([], "empty"),
        ([(0, 10), (10, 20)], r"overlap between \[0, 10\] and \[10, 20\]"),
        ([(7, 9), (7, 9)], "overlap"),
        (["9-3"], "end must"),
        ("0-10", "list"),
        ([5], "not a range"),
        ([(1, 2, 3)], "not a range"),
    ],
)
def test_invalid_set_of_ranges_raises(ranges, words):
    """Empty and overlapping ranges, duplicates and other types raise."""
    with pytest.raises(InvalidKeyHashRange, match=words):
        KeyHashRanges(ranges)


@given(sets_of_slots(), sets_of_slots())
def test_set_operations_equal_plain_sets(one, two):
    """Union, intersection, difference, complement, overlap and size equal those of plain sets."""
    (a, plain_a), (b, plain_b) = one, two

    def plain(ranges):
        return {s for r in ranges for s in range(r.start, r.end + 1)}

    assert plain(a) == plain_a
    assert plain(a & b) == plain_a & plain_b
    assert plain(a | b) == plain_a | plain_b
    assert plain(a - b) == plain_a - plain_b
    assert plain(a.complement()) == set(range(SLOTS)) - plain_a
    assert a.overlaps(b) == bool(plain_a & plain_b)
    assert (a.slots, a.is_full, a.is_empty) == (len(plain_a), len(plain_a) == SLOTS, False)
    assert (a == b) == (plain_a == plain_b)
    assert all(two.start - one.end > 1 for one, two in zip(a, list(a)[1:], strict=False))


@given(sets_of_slots(), st.lists(st.one_of(slot, st.just(-1), st.just(SLOTS)), max_size=50))
def test_membership(one, slots):
    """A slot, or a key by its slot, is in the set exactly if it is in the plain set."""
    ranges, plain = one
    for number in slots:
        assert (number in ranges) == ranges.contains(number) == (number in plain)
        assert ranges.contains_key(f"k{number}") == (key_slot(f"k{number}") in plain)
    assert "a" not in ranges


@given(sets_of_slots())
def test_set_of_ranges_round_trips(one):
    """`parse` reads the output of `str`, `repr` evaluates to the set, and it survives pickling and hashing."""
    ranges, _ = one
    assert KeyHashRanges.parse(str(ranges)) == ranges == eval(repr(ranges)) == pickle.loads(pickle.dumps(ranges))
    assert len({ranges, KeyHashRanges(list(ranges))}) == 1


def test_full_and_empty_set():
    """The full and the empty set are each other's complement, and `repr` of the empty one evaluates to it."""
    assert KeyHashRanges.full().complement() == KeyHashRanges.empty() == eval(repr(KeyHashRanges.empty()))
    assert KeyHashRanges.empty().complement().is_full
    assert 0 not in KeyHashRanges.empty()


@given(sets_of_slots(), st.integers(1, 20))
def test_split_is_even_and_complete(one, n):
    """The parts are disjoint, in order, together equal the set, and differ by at most one slot."""
    ranges, plain = one
    if n > len(plain):
        with pytest.raises(InvalidUse):
            ranges.split(n)
        return
    parts = ranges.split(n)
    slots = [s for part in parts for r in part for s in range(r.start, r.end + 1)]
    assert slots == sorted(plain)
    sizes = [part.slots for part in parts]
    assert len(parts) == n
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("n", [0, -1, SLOTS + 1, True, 1.0])
def test_invalid_number_of_parts_raises(n):
    """A number of parts below one, or above the number of slots, raises."""
    with pytest.raises(InvalidUse, match="into"):
        KeyHashRanges.full().split(n)
    with pytest.raises(InvalidUse, match="into"):
        plan_key_hash_ranges({1: 1}, n)


def test_split_takes_linear_time(monkeypatch):
    """Splitting many ranges into many parts takes time in proportion to their sum, not to their product."""
    count, asked = 1000, []
    overlaps = KeyHashRange.overlaps
    monkeypatch.setattr(KeyHashRange, "overlaps", lambda one, two: asked.append(1) or overlaps(one, two))
    ranges = KeyHashRanges((4 * at, 4 * at + 1) for at in range(count))
    asked.clear()
    assert len(ranges.split(count)) == count
    assert len(asked) <= 3 * count


def test_split_into_single_slots():
    """The full set splits into as many parts as there are slots."""
    assert [part.slots for part in KeyHashRanges.full().split(SLOTS)] == [1] * SLOTS


@example(dict(enumerate([1, 4, 3, 2, 3, 5, 0, 3, 0, 2, 5, 4])), 5)
@example(dict(enumerate([3, 3, 4, 1, 2, 1, 5, 1, 3, 2, 0, 3])), 2)
@example(dict(enumerate([1, 4, 0, 2, 0, 3, 3, 3, 5, 3, 1, 0])), 5)
@given(st.dictionaries(slot, st.integers(0, 10**6), max_size=60), st.integers(1, 40))
def test_plan_is_balanced(histogram, n):
    """Parts cover every slot once, and none is heavier than its share plus the heaviest slot.

    No other cut into neighbouring slots has a lighter heaviest part.
    """
    parts = plan_key_hash_ranges(histogram, n)
    assert len(parts) == n
    ends = [(next(iter(part)).start, next(iter(part)).end) for part in parts]
    assert all(len(part) == 1 for part in parts)
    assert (ends[0][0], ends[-1][1]) == (0, SLOTS - 1)
    assert all(a[1] + 1 == b[0] for a, b in pairwise(ends))
    total, heaviest = sum(histogram.values()), max(histogram.values(), default=0)
    found = [sum(c for number, c in histogram.items() if start <= number <= end) for start, end in ends]
    assert max(found) <= total / n + heaviest
    assert max(found) == lightest_maximum([histogram[number] for number in sorted(histogram)], n)


def lightest_maximum(weights, n):
    """Return the least weight of the heaviest of `n` runs of neighbours, by trying every cut."""
    best = [0, *([float("inf")] * len(weights))]
    for _ in range(n):
        sums = [0, *accumulate(weights)]
        best = [min(max(best[cut], sums[end] - sums[cut]) for cut in range(end + 1)) for end in range(len(best))]
    return best[-1]


def test_heavy_slot_gets_its_own_part():
    """A slot with half of the weight gets its own part, and the other parts share the rest."""
    weights = {1000: 500, **dict.fromkeys(range(2000, 60_000, 116), 1)}
    parts = plan_key_hash_ranges(weights, 6)
    found = [sum(c for number, c in weights.items() if number in part) for part in parts]
    assert sum(found) == 1000
    assert sorted(found) == [100] * 5 + [500]


def test_plan_of_sequence_and_of_no_weights():
    """A sequence of all weights equals a mapping; without weights, slots are split evenly."""
    weights = [0] * SLOTS
    weights[100], weights[200] = 5, 5
    assert plan_key_hash_ranges(weights, 2) == plan_key_hash_ranges({100: 5, 200: 5}, 2)
    assert plan_key_hash_ranges({}, 4) == KeyHashRanges.full().split(4)


@pytest.mark.parametrize("histogram", [{SLOTS: 1}, {-1: 1}, {5: -1}, {5: float("nan")}, [1, 2], {"a": 1}])
def test_invalid_histogram_raises(histogram):
    """A slot that does not exist, an invalid weight and a sequence of the wrong length raise."""
    with pytest.raises(InvalidUse):
        plan_key_hash_ranges(histogram, 2)


def test_ten_thousand_random_sets_tile_the_slots():
    """Each key belongs to exactly one set, for 10,000 random cuts of the slots into 2 to 9 sets of ranges."""
    rng = random.Random(5)
    slots = [key_slot(f"key-{n}") for n in range(50)]
    for _ in range(10_000):
        at = [0, *sorted(rng.sample(range(1, SLOTS), rng.randint(2, 30))), SLOTS]
        owners = [[] for _ in range(rng.randint(2, 9))]
        for start, after in pairwise(at):
            rng.choice(owners).append((start, after - 1))
        sets = [KeyHashRanges(owned) for owned in owners if owned]
        for number in slots:
            assert sum(number in ranges for ranges in sets) == 1


def test_as_ranges_accepts_sets_and_lists():
    """A set is returned unchanged, several ranges as a set; empty ranges and other types raise."""
    ranges = KeyHashRanges.parse("0-9,20-29")
    assert as_ranges(ranges) is ranges
    assert as_ranges([(20, 29), "0-9"]) == ranges
    for wrong in (KeyHashRanges.empty(), [], 7, "0-9", KeyHashRange(0, 9), [(1,)]):
        with pytest.raises(InvalidKeyHashRange):
            as_ranges(wrong)


@pytest.fixture(scope="module")
def points(fault_module):
    """Module that sends a signal at a given point of a call."""
    return fault_module("interrupt_points")


class Wanted:
    """Filter for even numbers that raises once for each number in `faults`."""

    def __init__(self, faults=()):
        self.faults = deque(faults)

    def __call__(self, number):
        if self.faults and self.faults[0][0] == number:
            raise self.faults.popleft()[1]
        return number % 2 == 0


def filtered(numbers, faults=()):
    """Return a filter over numbers in place of messages, which then times out forever."""
    waiting = deque(numbers)

    def call(_):
        if not waiting:
            raise _pulsar.Timeout("Pulsar error: TimeOut")
        return waiting.popleft()

    return FilteredSource(NativeSource(None, lambda _: call), Wanted(faults))


def take(source, count=10**6):
    """Return the next values until a timeout."""
    found = []
    for _ in range(count):
        try:
            found.append(next(source))
        except _pulsar.Timeout:
            break
    return found


def test_filter_counts_rejected_messages():
    """Accepted messages arrive in order, by either way to receive, and `skipped_count` counts the others."""
    source = filtered(range(10))
    assert [next(source), source.wait(50), next(source)] == [0, 2, 4]
    assert take(source) == [6, 8]
    assert source.skipped_count == 5
    with pytest.raises(_pulsar.Timeout):
        source.wait(10)


def test_peek_keeps_the_message():
    """A peeked message is received next, once, and a seek discards it."""
    source = filtered(range(6))
    assert source.peek()
    assert source.peek()
    assert source.holds
    assert take(source, 2) == [0, 2]
    assert source.peek()
    source.on_after(Transition.SEEK)
    assert not source.holds
    assert not source.peek()


@given(st.lists(st.integers(0, 9), max_size=12), st.booleans())
def test_interrupted_filter_loses_no_message(at, timed):
    """After an interrupted decision about a message, the next receive decides about that message again."""
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


def test_misrouted_message_is_not_received_again():
    """A misrouted message is in the error, and the next receive continues after it, also among requeued messages."""
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
def test_seek_discards_the_message_being_filtered(kept):
    """A decision that fails during a seek leaves no message from before the seek to the next receive."""

    def decide(_):
        source.on_after(Transition.SEEK)
        raise RuntimeError

    source = FilteredSource(NativeSource(None, lambda _: lambda _: 1), decide)
    if kept:
        source.kept[1].extend([1, 2])
    with pytest.raises(RuntimeError):
        next(source)
    assert not any(source.kept)


@pytest.mark.usefixtures("_ctrl_c_raises")
@pytest.mark.parametrize("how", ["next", "wait", "kept"])
def test_interrupted_receive_keeps_the_message(points, how):
    """After a signal at any point of a receive, the messages that were not returned are received next, in order."""

    def opened():
        endless = partial(next, count())  # not a Python function, in which a signal would lose the value
        source = FilteredSource(NativeSource(None, lambda _: endless), Wanted())
        if how == "kept":
            source.kept[1].extend([2, 4, 6])
        return source

    def receive():
        if how == "wait":
            return source.wait(10)
        for came in source:  # `next()` is a call, after which a signal would lose the value
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


def test_rejected_messages_do_not_extend_the_timeout():
    """With endless rejected messages, each way to receive times out."""
    endless = FilteredSource(NativeSource(None, lambda _: lambda _: 1), Wanted())
    with pytest.raises(_pulsar.Timeout):
        next(endless)
    with pytest.raises(_pulsar.Timeout):
        endless.wait(20)
    assert not endless.peek()


@given(st.binary(max_size=40))
def test_bytes_of_base64(data):
    """Java's base64 text for bytes decodes to those bytes, and a text that Java would not store to None."""
    text = base64.b64encode(data).decode()
    assert bytes_of_base64(text) == (data or None)
    assert bytes_of_base64(text + "\n") is None


@pytest.mark.parametrize("text", ["", "key1=", "a", "ab", "é===", "AAB=", "order-01"])
def test_text_that_is_not_base64(text):
    """A text that is not base64, or not as Java encodes it, can only be a text."""
    assert bytes_of_base64(text) is None


def message(metadata, payload=b"x"):
    """Return one message of a batch in the format of an entry."""
    metadata = metadata + b"\x18" + bytes([len(payload)])
    return len(metadata).to_bytes(4, "big") + metadata + payload


BATCH = [
    (message(b"\x12\x01a\x40\x00"), KeyForm.TEXT, key_slot("a")),
    (message(b"\x40\x01"), KeyForm.NONE, key_slot("p-1")),
    (message(b"\x12\x00\x40\x02"), KeyForm.TEXT, 1),
    (message(b"\x12\x04AAAA\x30\x01\x40\x03"), KeyForm.BASE64, key_slot(bytes(3))),
    (message(b"\x12\x01b\x3a\x02\xff\xfe\x40\x04"), KeyForm.TEXT, key_slot(b"\xff\xfe")),
]


def test_keys_of_a_batch():
    """Text, missing, empty, base64 and ordering keys of a batch are read as the broker reads them."""
    payload = b"".join(data for data, _, _ in BATCH)
    assert batch_forms(payload, len(BATCH)) == [form for _, form, _ in BATCH]
    assert [key_slot(one.key) for one in batch_keys(payload, len(BATCH), "p")] == [slot for _, _, slot in BATCH]


def test_ordering_key_decides():
    """The ordering key decides, also beside a partition key whose result is cached."""

    def message(ordering, key):
        return SimpleNamespace(ordering_key=lambda: ordering, partition_key=lambda: key)

    mine = key_slot("mine!")
    wanted = SlotFilter(KeyHashRanges([(mine, mine)]), SimpleNamespace(asks=False))
    for keys, expected in ((("", "mine!"), True), (("other!", "mine!"), False), (("mine!", "other!"), True)):
        assert wanted(message(*keys)) is expected
        assert (wanted.slot(message(*keys)) == mine) is expected


@given(st.binary(max_size=80), st.integers(0, 6))
def test_invalid_batch_has_no_keys(data, size):
    """A payload that is not a batch of that size returns None instead of a guess, and never crashes."""
    whole = b"".join(data for data, _, _ in BATCH)
    assert batch_forms(whole[:-1], len(BATCH)) is None
    assert batch_forms(whole, len(BATCH) - 1) is None
    forms = batch_forms(data, size)
    assert forms is None or len(forms) == size
    keys = batch_keys(data, size, "p")
    assert keys is None or len(keys) == size


class Inner:
    """Fake of a native message for `KeyForms`; the tests that need a real one are integration tests."""

    def producer_name(self):
        return "p"

    def topic_name(self):
        return "t"

    def message_id(self):
        return _pulsar.MessageId(-1, 1, 2, -1)


class Asked:
    """Fake of the admin API with prepared answers that counts the requests."""

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
    """Fake of an entry whose key is text, bytes or missing."""

    def __init__(self, key, *, encoded=False):
        self.partition_key = key
        self.partition_key_b64_encoded = encoded


def test_auto_stops_asking_after_500_equal_answers():
    """After 500 equal answers "auto" stops asking; "exact" continues and "text" never asks."""
    for mode, expected in (("auto", 500), ("exact", 600), ("text", 0)):
        admin = Asked(Entry(None))
        forms = KeyForms(admin, mode)
        assert {forms.form_of(Inner(), "") for _ in range(600)} == {KeyForm.NONE}
        assert admin.count == expected


def test_auto_keeps_asking_about_mixed_producer():
    """After one different answer, every message is asked about."""
    admin = Asked(Entry(None), Entry(""), Entry(None))
    forms = KeyForms(admin)
    found = [forms.form_of(Inner(), "") for _ in range(600)]
    assert found[:3] == [KeyForm.NONE, KeyForm.TEXT, KeyForm.NONE]
    assert admin.count == 600


def test_auto_asks_once_about_a_key():
    """In "auto" mode the same key of the same producer keeps its form."""
    admin = Asked(Entry("AAAA", encoded=True))
    forms = KeyForms(admin)
    assert {forms.form_of(Inner(), "AAAA") for _ in range(5)} == {KeyForm.BASE64}
    assert admin.count == 1


def test_key_forms_without_admin_api():
    """Without any answer "auto" warns and stops asking, and "exact" raises; a trimmed entry counts as text."""
    forms = KeyForms(Asked(AdminUnavailable("down")))
    with pytest.warns(KeyFormWarning):
        assert forms.form_of(Inner(), "AAAA") is KeyForm.TEXT
    assert forms.form_of(Inner(), "") is KeyForm.NONE
    assert not forms.asks
    with pytest.raises(AdminUnavailable):
        KeyForms(Asked(AdminUnavailable("down")), "exact").form_of(Inner(), "AAAA")
    assert KeyForms(Asked(AdminNotFound("not found")), "exact").form_of(Inner(), "AAAA") is KeyForm.TEXT
    with pytest.raises(InvalidUse, match="auto, exact, text"):
        KeyForms(Asked(Entry("")), "guess")


def test_key_forms_retry_during_restart():
    """While the broker restarts, requests are retried."""
    admin = Asked(
        Entry("AAAA"), AdminUnavailable("restarting"), AdminUnavailable("restarting"), Entry("AAAA", encoded=True)
    )
    forms = KeyForms(admin)
    assert forms.form_of(Inner(), "AAAA") is KeyForm.TEXT
    assert forms.form_of(Inner(), "BBBB") is KeyForm.BASE64
    assert admin.count == 4


slots = st.sets(st.integers(0, 200), min_size=1)


@given(st.lists(slots, max_size=5))
def test_cover_equals_plain_sets(consumers):
    """Covered, uncovered and overlapping slots equal those of plain sets; slot 0 is never uncovered."""
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
def test_cover_knows_the_slot_numbering(mode, ranges, slot_of):
    """The numbering of slots depends on the mode and the first slot; an end beyond the last slot is cut."""
    consumers = [] if ranges is None else [{"consumerName": "a", "keyHashRangeArrays": ranges}]
    cover = cover_of("t", "s", SubscriptionStats.from_json({"consumers": consumers, "keySharedMode": mode}))
    for key in ("key1", b"\xff", "k35981"):
        assert cover.slot_of(key) == slot_of(key)
        assert cover.consumers_of(key) == (() if ranges is None else ("a",))
    assert cover.is_exact is (ranges is not None)
    assert key_slot("key1") != auto_split_slot("key1")
