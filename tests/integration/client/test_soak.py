"""The soak test finds nothing in a short run; the long run is `python tests/faults/soak.py`."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.standalone_only("runs a program of tests/faults, which starts a broker of its own")


@pytest.fixture(scope="module")
def soak(fault_module):
    """Return the program as a module."""
    return fault_module("soak")


def test_soak_loses_and_leaks_nothing(soak, tmp_path):
    """A minute with a fault every few seconds ends with all messages delivered, no backlog and no leak."""
    outcome = soak.run(1, 7, tmp_path, kills=False)
    assert outcome.findings == []
    assert len(outcome.faults) >= 2
    assert {growth.name for growth in outcome.growths} == {"threads", "descriptors"}
    assert [row["flow"] for row in outcome.rows if not row["confirmed"]] == []
