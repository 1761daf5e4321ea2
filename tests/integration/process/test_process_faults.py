"""The fault program of `process()`, with few workers: it runs, and no message is lost."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which starts a broker of its own")


def test_ended_workers_lose_nothing(fault_module):
    """After the kill of a worker, a termination and a broker's crash, each message is handled or a dead letter."""
    outcomes = fault_module("process").run_faults(3, messages=12)
    assert [outcome for outcome in outcomes if outcome.failed or outcome.notes] == []
    assert sum(outcome.delivered for outcome in outcomes) == sum(outcome.sent for outcome in outcomes) > 0
