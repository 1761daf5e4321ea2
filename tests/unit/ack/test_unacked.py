"""Messages with an acknowledgement timeout, until their acknowledgements are sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.ack.groups import AckGroup
from pulsar_ext.ack.tracker import Unacked

TOPIC, OTHER = "persistent://a/b/c", "persistent://a/b/d"


@pytest.fixture
def unacked():
    """A single message, a batch of two, and a message of another topic, each received at another time."""
    unacked = Unacked()
    for number, (topic, entry, index) in enumerate(
        [(TOPIC, (1, 0), -1), (TOPIC, (1, 1), 0), (TOPIC, (1, 1), 1), (OTHER, (1, 0), -1)]
    ):
        unacked.receive(topic, entry, index, float(number), number)
    return unacked


@pytest.mark.parametrize(
    ("group", "next_due"),
    [
        (AckGroup(), 0.0),
        (AckGroup(whole=((1, 0),)), 1.0),
        (AckGroup(whole=((1, 0), (1, 1))), 3.0),
        (AckGroup(whole=((1, 0),), indexes=(((1, 1), 2, 0b01),)), 2.0),
        (AckGroup(cumulative=(1, 0)), 1.0),
        (AckGroup(cumulative=(1, 1)), 3.0),
        (AckGroup(cumulative=(2, 0)), 3.0),
    ],
)
def test_sent_acks_stop_the_timeout(unacked, group, next_due):
    """Entries, parts of a batch and a position remove exactly what they acknowledge on their topic."""
    unacked.acknowledge(TOPIC, group)
    assert unacked.next_due() == next_due


def test_redelivery_restarts_the_timeout(unacked):
    """The timeout of a redelivered message begins with its last delivery; `clear()` removes all timeouts."""
    unacked.receive(TOPIC, (1, 0), -1, 9.0, 4)
    assert unacked.next_due() == 1.0
    unacked.clear()
    assert unacked.next_due() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 2)), unique=True), st.data())
def test_next_due_is_the_first_unacknowledged(received, data):
    """With any order of acknowledgements the first unacknowledged message is due next."""
    unacked, times = Unacked(), {}
    for now, (entry, index) in enumerate(received):
        unacked.receive(TOPIC, (1, entry), index, float(now), now)
        times[entry, index] = float(now)
    for entry, index in data.draw(st.permutations(received)):
        alone = index < 0 and not any(one != index for of, one in times if of == entry)
        if alone:
            unacked.acknowledge(TOPIC, AckGroup(whole=((1, entry),)))
        elif index >= 0:
            unacked.acknowledge(TOPIC, AckGroup(indexes=(((1, entry), 3, 1 << index),)))
        else:
            continue
        del times[entry, index]
        assert unacked.next_due() == min(times.values(), default=None)


def test_pop_overdue_returns_one_message_per_entry(unacked):
    """A batch is returned with its first overdue message only; other messages stay unless dropped."""
    assert unacked.pop_overdue(1.0) == [(TOPIC, 0), (TOPIC, 1)]
    assert unacked.pop_overdue(2.9) == []
    unacked.receive(TOPIC, (1, 1), 0, 3.0, 5)
    unacked.drop(TOPIC, (1, 1))
    assert unacked.pop_overdue(9.0) == [(OTHER, 3)]
    assert unacked.next_due() is None
