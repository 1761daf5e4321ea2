"""Acknowledgements that left lately and may not have arrived."""

from __future__ import annotations

from pulsar_ext.ack.in_flight import SentAcks
from pulsar_ext.ack.leaving import NOTHING, Leaving


def test_what_left_lately_is_given_back_as_one():
    """What has arrived is dropped; the rest comes back without what a position covers."""
    sent = SentAcks()
    sent.add(Leaving(whole=((5, 0),)), 1.0, {(5, 0): "old"})
    sent.add(Leaving(whole=((5, 1), (5, 7)), indexes=(((5, 8), 3, 0b1),)), 2.0, {(5, 7): "an id"})
    sent.add(Leaving((5, 4), indexes=(((5, 8), 3, 0b10),)), 2.5, {})
    sent.expire(1.9)
    assert sent.ids == {(5, 7): "an id"}
    assert sent.take() == Leaving((5, 4), ((5, 7),), (((5, 8), 3, 0b11),))
    assert not sent
    assert sent.take() == NOTHING


def test_what_left_lately_is_bounded():
    """The oldest go first when too much left."""
    sent = SentAcks(limit=2)
    for entry in range(4):
        sent.add(Leaving(whole=((5, entry),)), 1.0, {})
    assert sent.take() == Leaving(whole=((5, 2), (5, 3)))


def test_what_left_before_a_time_is_given_back_alone():
    """What left at that time or later is kept."""
    sent = SentAcks()
    for entry in range(4):
        sent.add(Leaving(whole=((5, entry),)), float(entry), {})
    assert sent.take(2.0) == Leaving(whole=((5, 0), (5, 1)))
    assert len(sent) == 2
    assert sent.take() == Leaving(whole=((5, 2), (5, 3)))
