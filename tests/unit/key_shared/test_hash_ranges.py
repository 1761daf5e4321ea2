"""Key slots and ranges, without a broker; `integration/key_shared/test_hashing.py` asks the broker's own classes."""

from __future__ import annotations

import base64
import pickle
import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidKeyHashRange, InvalidUse
from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges, as_ranges
from pulsar_ext.key_shared.hashing import SLOTS, auto_split_slot, key_slot, key_slots, sticky_key
from pulsar_ext.key_shared.plan import plan_key_hash_ranges

# Computed by broker 4.2.4; the last but one and the two before hash to 0, or to the last slot.
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
    """Some of the pieces between random cuts, which may touch; each set with the same slots as a plain Python set."""
    at = draw(cuts)
    chosen = [(a, b - 1) for a, b in pairwise(at) if draw(st.booleans())] or [(at[0], at[1] - 1)]
    return KeyHashRanges(draw(st.permutations(chosen))), {s for a, b in chosen for s in range(a, b + 1)}


@pytest.mark.parametrize("key", KNOWN)
def test_slots_are_the_brokers(key):
    """Each kind of key (empty, text, unicode, bytes, one that hashes to 0) has the slot that the broker gave it."""
    assert key_slot(key) == KNOWN[key]
    assert key_slot(key.encode() if isinstance(key, str) else key) == KNOWN[key]


@pytest.mark.parametrize("key", [None, 7, ["a"]])
def test_what_is_no_key_has_no_slot(key):
    """A key that is neither text nor bytes is refused, by one and by many."""
    with pytest.raises(TypeError):
        key_slot(key)
    with pytest.raises(InvalidUse):
        key_slots([key])


@pytest.mark.parametrize("slots_of", [key_slot, auto_split_slot, lambda key: key_slots([key])])
def test_a_text_that_is_no_unicode_has_no_slot(slots_of):
    """Half a surrogate pair, as in a name that the system gives in another encoding, is an error and no crash."""
    with pytest.raises(UnicodeEncodeError):
        slots_of("key \udcff")


def test_the_key_that_counts():
    """The ordering key comes before the key, base64 is decoded, and producer and sequence id stand in for no key."""
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
def test_many_slots_are_as_one(some):
    """Lists and numpy and Arrow arrays of any text give what `key_slot` gives one by one."""
    np, pa = pytest.importorskip("numpy"), pytest.importorskip("pyarrow")
    expected = [key_slot(key) for key in some]
    encoded = [key.encode() for key in some]
    # A fixed-width numpy array cannot hold trailing NULs, so it is compared with what it holds.
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


def test_arrays_beyond_a_block_and_of_other_shapes():
    """Keys of very different lengths over several blocks, a two-dimensional array, and none at all."""
    np = pytest.importorskip("numpy")
    rng = random.Random(7)
    some = ["k" * rng.choice([0, 1, 3, 4, 5, 8, 200]) + str(n) for n in range(20_000)]
    assert key_slots(np.array(some)).tolist() == [key_slot(key) for key in some]
    assert key_slots(np.array([[b"a", b"key1"]])).tolist() == [[27058, 293]]
    assert key_slots(np.empty(0, "S3")).tolist() == key_slots([]).tolist() == []


def test_arrays_that_hold_no_keys_are_refused():
    """Nulls and numbers have no slot; the message says why."""
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
def test_ranges_that_cannot_be(start, end, words):
    """What Java refuses, and the 65,536 that its reader lets through, is refused in Java's words."""
    with pytest.raises(InvalidKeyHashRange, match=words):
        KeyHashRange(start, end)


@pytest.mark.parametrize("text", ["", "5", "0..7", "0-65536", "9-3", "a-b", None, "1-2-3"])
def test_texts_that_are_no_range(text):
    """An invalid text is refused."""
    with pytest.raises(InvalidKeyHashRange):
        KeyHashRange.parse(text)


@given(slot, slot)
def test_a_range_is_read_as_it_is_written(a, b):
    """`parse` reads what `str` and Java write, and a range survives pickling."""
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
def test_sets_that_cannot_be(ranges, words):
    """No range at all, overlapping ranges, duplicates and other types are refused."""
    with pytest.raises(InvalidKeyHashRange, match=words):
        KeyHashRanges(ranges)


@given(sets_of_slots(), sets_of_slots())
def test_set_operations_are_those_of_sets(one, two):
    """Union, intersection, difference, complement, overlap and size are those of the plain sets of slots."""
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
    """A slot is in the set exactly if it is in the plain set, and so is a key by its slot."""
    ranges, plain = one
    for number in slots:
        assert (number in ranges) == ranges.contains(number) == (number in plain)
        assert ranges.contains_key(f"k{number}") == (key_slot(f"k{number}") in plain)
    assert "a" not in ranges


@given(sets_of_slots())
def test_a_set_is_read_as_it_is_written(one):
    """`parse` reads what `str` writes, `repr` evaluates to the set, and it survives pickling and hashing."""
    ranges, _ = one
    assert KeyHashRanges.parse(str(ranges)) == ranges == eval(repr(ranges)) == pickle.loads(pickle.dumps(ranges))
    assert len({ranges, KeyHashRanges(list(ranges))}) == 1


def test_the_two_ends():
    """The full set and the empty one are each other's complement, and the empty one prints as what it is."""
    assert KeyHashRanges.full().complement() == KeyHashRanges.empty() == eval(repr(KeyHashRanges.empty()))
    assert KeyHashRanges.empty().complement().is_full
    assert 0 not in KeyHashRanges.empty()


@given(sets_of_slots(), st.integers(1, 20))
def test_a_split_is_even_and_loses_nothing(one, n):
    """The parts are disjoint, together the set, in order, and differ by one slot at most."""
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
def test_parts_that_cannot_be(n):
    """A number of parts below one, or above the number of slots, is refused."""
    with pytest.raises(InvalidUse, match="into"):
        KeyHashRanges.full().split(n)
    with pytest.raises(InvalidUse, match="into"):
        plan_key_hash_ranges({1: 1}, n)


def test_a_split_looks_at_each_range_a_few_times(monkeypatch):
    """Splitting many ranges into many parts takes time in proportion to both, not to their product."""
    count, asked = 1000, []
    overlaps = KeyHashRange.overlaps
    monkeypatch.setattr(KeyHashRange, "overlaps", lambda one, two: asked.append(1) or overlaps(one, two))
    ranges = KeyHashRanges((4 * at, 4 * at + 1) for at in range(count))
    asked.clear()
    assert len(ranges.split(count)) == count
    assert len(asked) <= 3 * count


def test_one_slot_each():
    """The full set splits into as many parts as there are slots."""
    assert [part.slots for part in KeyHashRanges.full().split(SLOTS)] == [1] * SLOTS


@example(dict(enumerate([1, 4, 3, 2, 3, 5, 0, 3, 0, 2, 5, 4])), 5)
@example(dict(enumerate([3, 3, 4, 1, 2, 1, 5, 1, 3, 2, 0, 3])), 2)
@example(dict(enumerate([1, 4, 0, 2, 0, 3, 3, 3, 5, 3, 1, 0])), 5)
@given(st.dictionaries(slot, st.integers(0, 10**6), max_size=60), st.integers(1, 40))
def test_a_plan_is_balanced_within_its_bound(histogram, n):
    """Every slot is in one part, each has a slot, none weighs more than its share and the heaviest slot together.

    Nor can any other cut into neighbouring slots have a lighter heaviest part.
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
    """The least possible weight of the heaviest of `n` runs of neighbours, by trying every cut."""
    best = [0, *([float("inf")] * len(weights))]
    for _ in range(n):
        sums = [0, *accumulate(weights)]
        best = [min(max(best[cut], sums[end] - sums[cut]) for cut in range(end + 1)) for end in range(len(best))]
    return best[-1]


def test_a_heavy_key_takes_no_more_than_its_part():
    """A slot of half the weight gets a part of its own, and the others share the rest."""
    weights = {1000: 500, **dict.fromkeys(range(2000, 60_000, 116), 1)}
    parts = plan_key_hash_ranges(weights, 6)
    found = [sum(c for number, c in weights.items() if number in part) for part in parts]
    assert sum(found) == 1000
    assert sorted(found) == [100] * 5 + [500]


def test_a_plan_of_a_sequence_and_of_nothing():
    """A sequence of all weights is as good as a mapping; without weight, slots are split evenly."""
    weights = [0] * SLOTS
    weights[100], weights[200] = 5, 5
    assert plan_key_hash_ranges(weights, 2) == plan_key_hash_ranges({100: 5, 200: 5}, 2)
    assert plan_key_hash_ranges({}, 4) == KeyHashRanges.full().split(4)


@pytest.mark.parametrize("histogram", [{SLOTS: 1}, {-1: 1}, {5: -1}, {5: float("nan")}, [1, 2], {"a": 1}])
def test_histograms_that_cannot_be(histogram):
    """A slot that does not exist, an invalid weight and a sequence of the wrong length are refused."""
    with pytest.raises(InvalidUse):
        plan_key_hash_ranges(histogram, 2)


def test_ten_thousand_random_sets_tile_the_slots():
    """For 10,000 random ways to cut the slots into 2 to 9 sets of ranges, each key belongs to exactly one set."""
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


def test_arguments_are_ranges_or_a_set_of_them():
    """A set is taken as it is, several ranges as a set; none, and what is not several, are refused."""
    ranges = KeyHashRanges.parse("0-9,20-29")
    assert as_ranges(ranges) is ranges
    assert as_ranges([(20, 29), "0-9"]) == ranges
    for wrong in (KeyHashRanges.empty(), [], 7, "0-9", KeyHashRange(0, 9), [(1,)]):
        with pytest.raises(InvalidKeyHashRange):
            as_ranges(wrong)
