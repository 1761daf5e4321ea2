"""The fault program of acknowledgements with few cycles: it runs and finds nothing."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which starts a broker of its own")


@pytest.fixture(scope="module")
def faults(fault_module):
    """The program as a module."""
    return fault_module("acks")


def test_killed_apps_get_nothing_confirmed_again(faults):
    """Four processes are killed after a confirmed flush; another process consumes the rest."""
    outcomes = faults.run_crashes(4, say=lambda _: None)
    assert [outcome for outcome in outcomes if outcome.failed] == []
    assert sum(outcome.delivered for outcome in outcomes) == sum(outcome.sent for outcome in outcomes) > 0


def test_cut_connections_leave_no_hole_in_acks(faults):
    """Consumers of every type and kind lose their connection twice, and every message is acknowledged."""
    outcomes = faults.run_faults("cut", 2, say=lambda _: None)
    assert len(outcomes) == 16
    assert [outcome for outcome in outcomes if outcome.failed] == []
