"""What was received and not acknowledged: until it leaves, in whatever form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.ack.leaving import Leaving
from pulsar_ext.ack.tracker import Unacked

TOPIC, OTHER = "persistent://a/b/c", "persistent://a/b/d"


@pytest.fixture
def unacked():
    """A message alone, a batch of two, and one of another topic, each received at another time."""
    unacked = Unacked()
    for number, (topic, entry, index) in enumerate(
        [(TOPIC, (1, 0), -1), (TOPIC, (1, 1), 0), (TOPIC, (1, 1), 1), (OTHER, (1, 0), -1)]
    ):
        unacked.receive(topic, entry, index, float(number), number)
    return unacked


@pytest.mark.parametrize(
    ("leaving", "soonest"),
    [
        (Leaving(), 0.0),
        (Leaving(whole=((1, 0),)), 1.0),
        (Leaving(whole=((1, 0), (1, 1))), 3.0),
        (Leaving(whole=((1, 0),), indexes=(((1, 1), 2, 0b01),)), 2.0),
        (Leaving(cumulative=(1, 0)), 1.0),
        (Leaving(cumulative=(1, 1)), 3.0),
        (Leaving(cumulative=(2, 0)), 3.0),
    ],
)
def test_what_leaves_is_waited_for_no_more(unacked, leaving, soonest):
    """Entries, parts of a batch and a position drop what they acknowledge on their topic, and nothing else."""
    unacked.acknowledge(TOPIC, leaving)
    assert unacked.soonest() == soonest


def test_what_comes_again_is_waited_for_anew(unacked):
    """A redelivered message is late as its last delivery says; nothing is waited for where everything comes again."""
    unacked.receive(TOPIC, (1, 0), -1, 9.0, 4)
    assert unacked.soonest() == 1.0
    unacked.clear()
    assert unacked.soonest() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 2)), unique=True), st.data())
def test_all_of_it_leaves_once(received, data):
    """Whatever order messages are acknowledged in, one by one, the first of the others is waited for."""
    unacked, times = Unacked(), {}
    for now, (entry, index) in enumerate(received):
        unacked.receive(TOPIC, (1, entry), index, float(now), now)
        times[entry, index] = float(now)
    for entry, index in data.draw(st.permutations(received)):
        alone = index < 0 and not any(one != index for of, one in times if of == entry)
        if alone:
            unacked.acknowledge(TOPIC, Leaving(whole=((1, entry),)))
        elif index >= 0:
            unacked.acknowledge(TOPIC, Leaving(indexes=(((1, entry), 3, 1 << index),)))
        else:
            continue
        del times[entry, index]
        assert unacked.soonest() == min(times.values(), default=None)


def test_what_is_late_is_taken_once_for_each_entry(unacked):
    """A batch is taken with its first late message and not again; what is not late stays, unless it is dropped."""
    assert unacked.take_late(1.0) == [(TOPIC, 0), (TOPIC, 1)]
    assert unacked.take_late(2.9) == []
    unacked.receive(TOPIC, (1, 1), 0, 3.0, 5)
    unacked.drop(TOPIC, (1, 1))
    assert unacked.take_late(9.0) == [(OTHER, 3)]
    assert unacked.soonest() is None
