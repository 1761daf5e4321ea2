"""A few cycles of the fault program; for the long run see `python tests/faults/producer.py`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which starts a broker of its own")

FAULTS = Path(__file__).parents[2] / "faults"


def test_deduplicating_producers_survive_faults(monkeypatch, capfd):
    """Five kinds of producers, two cycles of each fault: no message is lost, duplicated or out of order."""
    monkeypatch.syspath_prepend(str(FAULTS))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "argv", ["producer.py"])
    from producer import run  # noqa: PLC0415  # a program beside the tests

    outcomes = list(run(2, ("kill-producer", "cut", "unload"), ("pulsar_ext",)))
    assert len(outcomes) == 15
    assert [outcome for outcome in outcomes if not outcome.clean] == []
    assert sum(outcome.sent for outcome in outcomes) > 100
