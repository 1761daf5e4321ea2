"""A few runs of the program in which any two operations meet; the long run is `python tests/faults/pairs.py`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which starts a broker of its own")


@pytest.fixture(scope="module")
def pairs(fault_module):
    """Return the program as a module."""
    return fault_module("pairs")


def test_two_operations_at_once_lose_nothing(pairs):
    """In twenty-four pairs on all kinds of messages and subscriptions every message arrives, and no call hangs."""
    seeds = [seed for seed in range(20, 60) if "kill" not in pairs.case_of(seed).operations][:24]
    with pairs.start_broker() as broker:
        outcome = pairs.run_all(broker, seeds)
    assert sorted(outcome.done) == seeds
    assert outcome.findings == {}
