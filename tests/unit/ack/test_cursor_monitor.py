"""What the broker's list of a subscription's consumers says about their connections."""

from __future__ import annotations

import pytest

from pulsar_ext.ack.cursor import is_closed_on_its_connection

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
    ids=["the same", "another one", "of another connection", "one more", "one of two", "and one gone", "none"],
)
def test_a_consumer_that_the_broker_closed_is_told_from_a_lost_connection(before, after, closed):
    """Only where all connections are still there and a consumer began later, the broker itself has closed it."""
    assert is_closed_on_its_connection(frozenset(before), frozenset(after)) is closed
