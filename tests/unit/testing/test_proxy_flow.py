"""Flow in one direction of a proxied connection: bytes are sent unchanged, complete, and not too early."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.proxy import Conditions, DirectionSettings, Flow, Frames, FrameTrap

FRAMES = st.lists(st.binary(max_size=40), max_size=12)
CUTS = st.lists(st.integers(0, 600), max_size=12)


def framed(contents):
    return b"".join(len(one).to_bytes(4, "big") + one for one in contents)


def pieces(data, cuts):
    """Split the data at these offsets, as a network does."""
    offsets = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(offsets)]


def drain(flow, now):
    """Return all bytes that may be sent now."""
    out = b""
    while data := flow.take(now):
        out += bytes(data)
    return out


def run(flow, arrivals):
    """Feed pieces at their times, and return what is sent with its time, until nothing is held."""
    departures, now = [], 0.0
    for at, data in arrivals:
        while (wait := flow.wait(now)) is not None and now + wait < at:
            now += wait
            departures.append((now, drain(flow, now)))
        now = at
        flow.accept(data, now)
    while (wait := flow.wait(now)) is not None:
        now += wait
        departures.append((now, drain(flow, now)))
    return departures


@given(FRAMES, CUTS)
def test_frames_are_found_in_any_pieces(contents, cuts):
    """Start and length of each frame are found once, in any split of the stream."""
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
def test_delayed_and_limited_bytes_are_sent_in_order(steps, latency, jitter, rate, seed):
    """With any latency, jitter and bandwidth every byte is sent, in order, not too early and not too fast."""
    flow = Flow(DirectionSettings(Conditions(latency, jitter, rate)), random.Random(seed))
    arrivals, at = [], 0.0
    for pause, data in steps:
        at += pause
        arrivals.append((at, data))
    departures = run(flow, arrivals)
    sent = b"".join(data for _, data in arrivals)
    assert b"".join(data for _, data in departures) == sent
    total = 0
    arrived = [(total := total + len(data), at) for at, data in arrivals]
    forwarded = 0
    for now, data in departures:
        forwarded += len(data)
        entered = next(at for end, at in arrived if end >= forwarded)
        assert now >= entered + latency - 1e-6
    if rate is not None and departures:
        first, last = departures[0], departures[-1]
        # The first slice is sent at once, and each later one when the bandwidth allows it.
        assert len(sent) - len(first[1]) <= rate * (last[0] - first[0]) + rate * 0.02 + 1 + 1e-3


def test_silent_direction_holds_everything():
    """A silent direction reads and sends nothing; afterwards it sends what it held."""
    settings = DirectionSettings()
    flow = Flow(settings)
    flow.accept(b"held", 0.0)
    settings.conditions = Conditions(silent=True)
    assert not flow.wants_more
    assert flow.wait(5.0) is None
    assert drain(flow, 5.0) == b""
    settings.conditions = Conditions()
    assert flow.wants_more
    assert drain(flow, 5.0) == b"held"


def test_bytes_in_flight_are_bounded():
    """A flow that sends nothing stops reading at a megabyte, and continues when bytes were sent."""
    flow = Flow(DirectionSettings(Conditions(latency=10)))
    count = 0
    while flow.wants_more:
        flow.accept(bytes(65536), 0.0)
        count += 1
    assert count == 16
    assert len(drain(flow, 10.0)) == 16 * 65536
    assert flow.wants_more


@given(FRAMES, CUTS, st.integers(0, 50), st.integers(1, 3))
def test_trap_breaks_the_first_long_frame(contents, cuts, after, times):
    """Only `after` bytes of the first longer frame are sent; without such a frame everything is sent."""
    data = framed(contents)
    trap = FrameTrap(after, times)
    flow = Flow(DirectionSettings(trap=trap))
    for piece in pieces(data, cuts):
        flow.accept(piece, 0.0)
    out = drain(flow, 0.0)
    at = 0
    for one in contents:
        if 4 + len(one) > after:
            assert flow.is_broken
            assert out == data[: at + after]
            assert trap.left == times - 1  # a connection breaks only once
            return
        at += 4 + len(one)
    assert not flow.is_broken
    assert out == data
    assert trap.left == times


def test_trap_is_used_up():
    """After the trap's number of broken frames, connections are not broken."""
    settings = DirectionSettings(trap=FrameTrap(2, times=2))
    flows = [Flow(settings) for _ in range(3)]
    for flow in flows:
        flow.accept(framed([b"content"]), 0.0)
        drain(flow, 0.0)
    assert [flow.is_broken for flow in flows] == [True, True, False]


def test_end_follows_the_last_bytes():
    """The source's end is passed on after its last bytes, and nothing is read after it."""
    flow = Flow(DirectionSettings(Conditions(latency=1)))
    flow.accept(b"last words", 0.0)
    flow.accept(b"", 0.0)
    assert not flow.wants_more
    assert not flow.is_done
    assert drain(flow, 1.0) == b"last words"
    assert flow.is_done


@pytest.mark.parametrize(
    "wrong", [{"latency": -1}, {"jitter": -0.1}, {"bytes_per_second": 0}, {"bytes_per_second": -1}]
)
def test_impossible_conditions_raise(wrong):
    """Negative seconds and a bandwidth of zero raise."""
    with pytest.raises(InvalidUse):
        Conditions(**wrong)


@pytest.mark.parametrize("wrong", [(-1, 1), (0, 0)])
def test_impossible_traps_raise(wrong):
    """A trap before a frame's start, or one that never closes, raises."""
    with pytest.raises(InvalidUse):
        FrameTrap(*wrong)
