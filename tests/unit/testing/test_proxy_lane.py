"""One direction of a proxied connection: nothing is lost or changed, and nothing leaves before its time."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.proxy import Conditions, Frames, FrameTrap, Lane, Way

FRAMES = st.lists(st.binary(max_size=40), max_size=12)
CUTS = st.lists(st.integers(0, 600), max_size=12)


def framed(contents):
    return b"".join(len(one).to_bytes(4, "big") + one for one in contents)


def pieces(data, cuts):
    """Part the data at these places, as a network does."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(places)]


def drain(lane, now):
    """Take all that may leave at that moment."""
    out = b""
    while data := lane.take(now):
        out += bytes(data)
        lane.left(len(data), now)
    return out


def run(lane, arrivals):
    """Feed pieces at their times, and give each departure with its time, until nothing is held."""
    departures, now = [], 0.0
    for at, data in arrivals:
        while (wait := lane.wait(now)) is not None and now + wait < at:
            now += wait
            departures.append((now, drain(lane, now)))
        now = at
        lane.accept(data, now)
    while (wait := lane.wait(now)) is not None:
        now += wait
        departures.append((now, drain(lane, now)))
    return departures


@given(FRAMES, CUTS)
def test_frames_are_found_however_they_come(contents, cuts):
    """Each frame's beginning and length are found once, wherever the network parts the stream."""
    data = framed(contents)
    cursor = Frames()
    found = [frame for piece in pieces(data, cuts) for frame in cursor.feed(piece)]
    expected, at = [], 0
    for one in contents:
        expected.append((at, 4 + len(one)))
        at += 4 + len(one)
    assert found == expected


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.binary(min_size=1, max_size=200)), max_size=10),
    st.floats(0, 2),
    st.floats(0, 1),
    st.one_of(st.none(), st.floats(50, 100_000)),
    st.integers(0, 1_000),
)
def test_delayed_and_limited_bytes_all_leave_in_order(steps, latency, jitter, rate, seed):
    """With any latency, jitter and bandwidth every byte leaves, in order, not too early and not too fast."""
    lane = Lane(Way(Conditions(latency, jitter, rate)), random.Random(seed))
    arrivals, at = [], 0.0
    for pause, data in steps:
        at += pause
        arrivals.append((at, data))
    departures = run(lane, arrivals)
    sent = b"".join(data for _, data in arrivals)
    assert b"".join(data for _, data in departures) == sent
    came = 0
    arrived = [(came := came + len(data), at) for at, data in arrivals]
    left = 0
    for now, data in departures:
        left += len(data)
        entered = next(at for total, at in arrived if total >= left)
        assert now >= entered + latency - 1e-6
    if rate is not None and departures:
        first, last = departures[0], departures[-1]
        # The first slice leaves at once, and each later one when the one before it is paid for.
        assert len(sent) - len(first[1]) <= rate * (last[0] - first[0]) + rate * 0.02 + 1 + 1e-3


def test_silence_holds_everything_back():
    """A silent direction reads nothing more and lets nothing leave; afterwards what it held comes."""
    way = Way()
    lane = Lane(way)
    lane.accept(b"held", 0.0)
    way.conditions = Conditions(silent=True)
    assert not lane.wants_more
    assert lane.wait(5.0) is None
    assert drain(lane, 5.0) == b""
    way.conditions = Conditions()
    assert lane.wants_more
    assert drain(lane, 5.0) == b"held"


def test_what_is_on_the_way_is_bounded():
    """A lane that delivers nothing stops to read at a megabyte, and goes on when some of it has left."""
    lane = Lane(Way(Conditions(latency=10)))
    count = 0
    while lane.wants_more:
        lane.accept(bytes(65536), 0.0)
        count += 1
    assert count == 16
    assert len(drain(lane, 10.0)) == 16 * 65536
    assert lane.wants_more


@given(FRAMES, CUTS, st.integers(0, 50), st.integers(1, 3))
def test_a_trap_breaks_the_first_long_frame(contents, cuts, after, times):
    """So many bytes of the first frame that is longer leave, and no more; without such a frame all leave."""
    data = framed(contents)
    trap = FrameTrap(after, times)
    lane = Lane(Way(trap=trap))
    for piece in pieces(data, cuts):
        lane.accept(piece, 0.0)
    out = drain(lane, 0.0)
    at = 0
    for one in contents:
        if 4 + len(one) > after:
            assert lane.is_broken
            assert out == data[: at + after]
            assert trap.left == times - 1  # one connection breaks but once
            return
        at += 4 + len(one)
    assert not lane.is_broken
    assert out == data
    assert trap.left == times


def test_a_trap_is_used_up():
    """After so many broken frames further connections are left alone."""
    way = Way(trap=FrameTrap(2, times=2))
    lanes = [Lane(way) for _ in range(3)]
    for lane in lanes:
        lane.accept(framed([b"content"]), 0.0)
        drain(lane, 0.0)
    assert [lane.is_broken for lane in lanes] == [True, True, False]


def test_the_end_comes_behind_the_rest():
    """An end of the source is passed on when what came before it has left, and nothing is read behind it."""
    lane = Lane(Way(Conditions(latency=1)))
    lane.accept(b"last words", 0.0)
    lane.accept(b"", 0.0)
    assert not lane.wants_more
    assert not lane.is_done
    assert drain(lane, 1.0) == b"last words"
    assert lane.is_done


@pytest.mark.parametrize(
    "wrong", [{"latency": -1}, {"jitter": -0.1}, {"bytes_per_second": 0}, {"bytes_per_second": -1}]
)
def test_impossible_networks_are_refused(wrong):
    """Negative seconds, and a bandwidth that lets nothing pass, are refused."""
    with pytest.raises(InvalidUse):
        Conditions(**wrong)


@pytest.mark.parametrize("wrong", [(-1, 1), (0, 0)])
def test_impossible_traps_are_refused(wrong):
    """A trap before a frame's beginning, or one that never closes, is refused."""
    with pytest.raises(InvalidUse):
        FrameTrap(*wrong)
