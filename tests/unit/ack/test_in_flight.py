"""Acknowledgements that left lately and may not have arrived."""

from __future__ import annotations

from pulsar_ext.ack.delivery import SentAcks
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


def test_what_left_in_a_time_is_given_back_alone():
    """What left before it, at its end or later is kept."""
    sent = SentAcks()
    for entry in range(4):
        sent.add(Leaving(whole=((5, entry),)), float(entry), {})
    assert sent.take(1.0, 3.0) == Leaving(whole=((5, 1), (5, 2)))
    assert (len(sent), sent.oldest) == (2, 0.0)
    assert sent.take() == Leaving(whole=((5, 0), (5, 3)))


def test_what_was_sent_again_is_so_only_with_all():
    """What has left twice is left out where only what left in a time is wanted: else it would leave again and again."""
    sent = SentAcks()
    sent.add(Leaving(whole=((5, 0),)), 1.0, {}, is_repeated=True)
    sent.add(Leaving(whole=((5, 1),)), 1.0, {})
    assert sent.take(0.5) == Leaving(whole=((5, 1),))
    assert sent.take() == Leaving(whole=((5, 0),))
