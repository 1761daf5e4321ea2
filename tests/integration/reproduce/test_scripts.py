"""The programs for the official project run with the official client only, and agree with the table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_ext.reproduce import SCENARIOS, to_script

pytestmark = pytest.mark.standalone_only("runs programs for the official project, which take only two URLs")

_TABLE = (Path(__file__).parents[3] / "docs" / "reproduce.md").read_text()
_BY_CHANCE = {"chunk-seek-in-flight", "chunk-restart", "chunk-cut", "exit-acknowledged", "exit-sending"}
"""Scenarios whose defect does not show in every run."""
_ALWAYS = {
    "chunk-seek",
    "skip-batched",
    "seek-one-partition",
    "interrupted-receive",
    "ack-batch-index",
    "dedup-batch-loss",
}
"""Scenarios that always run, about one per group; the others run on demand."""


@pytest.mark.parametrize(
    "name", [name if name in _ALWAYS else pytest.param(name, marks=pytest.mark.on_demand) for name in SCENARIOS]
)
def test_program_shows_the_defect(name, pulsar_broker_factory, tmp_path):
    """The program exits with 1 if the official client has the defect, and its last line has the counts."""
    broker = pulsar_broker_factory(SCENARIOS[name].profile)
    program = tmp_path / f"{name}.py"
    program.write_text(to_script(SCENARIOS[name]))
    done = subprocess.run(
        [sys.executable, "-I", program, broker.service_url, broker.admin_url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    here = re.search(rf"^\| \[{name}\]\S+ \| .*\| fixed here \|$", _TABLE, re.MULTILINE) is not None
    assert done.returncode in ({0, 1} if name in _BY_CHANCE else {int(here)}), done.stderr[-3000:]
    assert re.search(r"\d+ of \d+|hung|crashed|fine", done.stdout.splitlines()[-1])
