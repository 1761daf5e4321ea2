"""The fault program of retry letters with few kills: it runs and loses nothing."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which starts a broker of its own")


@pytest.mark.parametrize("kill", ["between", "random"])
def test_killed_processes_lose_no_letters(fault_module, kill):
    """Three processes are killed, after a letter or anywhere: each message becomes a dead letter, and none remains."""
    outcomes = fault_module("retry").run_kills(kill, 3, messages=8)
    assert [outcome for outcome in outcomes if outcome.failed or outcome.notes] == []
    assert sum(outcome.delivered for outcome in outcomes) == sum(outcome.sent for outcome in outcomes) > 0
