"""Conclusions from the broker's list of a subscription's consumers about their connections."""

from __future__ import annotations

import pytest

from pulsar_ext.ack.cursor import is_reopened_on_same_connection

_A, _A_LATER, _B, _C = ("h:1", "10:00"), ("h:1", "10:05"), ("h:2", "10:00"), ("h:3", "10:05")


@pytest.mark.parametrize(
    ("before", "after", "closed"),
    [
        ({_A}, {_A}, False),
        ({_A}, {_A_LATER}, True),
        ({_A}, {_C}, False),
        ({_A}, {_A, _C}, False),
        ({_A, _B}, {_A_LATER, _B}, True),
        ({_A, _B}, {_A_LATER, _C}, False),
        ({_A}, set(), False),
    ],
    ids=["unchanged", "another", "other connection", "one more", "one of two", "and one closed", "none"],
)
def test_closed_consumer_differs_from_lost_connection(before, after, closed):
    """The broker has closed a consumer only if all connections are still open and one consumer began later."""
    assert is_reopened_on_same_connection(frozenset(before), frozenset(after)) is closed
