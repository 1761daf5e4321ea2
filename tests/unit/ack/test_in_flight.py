"""Sent acknowledgements that may not have arrived."""

from __future__ import annotations

from pulsar_ext.ack.delivery import SentAcks
from pulsar_ext.ack.groups import NOTHING, AckGroup


def test_take_returns_unexpired_groups_as_one():
    """Arrived groups are dropped; the others are returned as one, without what a position covers."""
    sent = SentAcks()
    sent.add(AckGroup(whole=((5, 0),)), 1.0, {(5, 0): "old"})
    sent.add(AckGroup(whole=((5, 1), (5, 7)), indexes=(((5, 8), 3, 0b1),)), 2.0, {(5, 7): "an id"})
    sent.add(AckGroup((5, 4), indexes=(((5, 8), 3, 0b10),)), 2.5, {})
    sent.expire(1.9)
    assert sent.ids == {(5, 7): "an id"}
    assert sent.take() == AckGroup((5, 4), ((5, 7),), (((5, 8), 3, 0b11),))
    assert not sent
    assert sent.take() == NOTHING


def test_sent_acks_are_bounded():
    """The oldest groups are dropped above the limit."""
    sent = SentAcks(limit=2)
    for entry in range(4):
        sent.add(AckGroup(whole=((5, entry),)), 1.0, {})
    assert sent.take() == AckGroup(whole=((5, 2), (5, 3)))


def test_take_returns_only_the_time_window():
    """Groups sent before the window, at its end or later stay."""
    sent = SentAcks()
    for entry in range(4):
        sent.add(AckGroup(whole=((5, entry),)), float(entry), {})
    assert sent.take(1.0, 3.0) == AckGroup(whole=((5, 1), (5, 2)))
    assert (len(sent), sent.oldest) == (2, 0.0)
    assert sent.take() == AckGroup(whole=((5, 0), (5, 3)))


def test_windowed_take_skips_repeated_groups():
    """A group that was resent already is not returned for a window, so that it is not resent endlessly."""
    sent = SentAcks()
    sent.add(AckGroup(whole=((5, 0),)), 1.0, {}, is_repeated=True)
    sent.add(AckGroup(whole=((5, 1),)), 1.0, {})
    assert sent.take(0.5) == AckGroup(whole=((5, 1),))
    assert sent.take() == AckGroup(whole=((5, 0),))
