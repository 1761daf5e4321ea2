"""A few cycles of the cluster's fault program; the long unattended run is `python tests/faults/cluster.py`."""

from __future__ import annotations

import os
import sys

import pytest

from pulsar_ext.testing import PulsarCluster
from pulsar_ext.testing.backend import process_problem

pytestmark = [
    pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}"),
    pytest.mark.xdist_group("cluster"),
]


def test_killed_broker_and_half_open_connections_lose_nothing(fault_module, monkeypatch):
    """Deduplicating producers and consumers of every type lose, duplicate and leave nothing."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "argv", ["cluster.py"])
    program = fault_module("cluster")
    with PulsarCluster(program.PROFILE) as cluster:
        results = list(program.run(cluster, {"kill-broker": 1, "half-open": 2}, ("pulsar_ext",)))
    outcomes = [outcome for produced, consumed in results for outcome in (*produced, *consumed)]
    assert len(outcomes) == 2 * (4 + 16)
    assert [outcome for outcome in outcomes if not outcome.clean] == []
    assert all(outcome.sent for produced, _ in results for outcome in produced)
