"""Badges of a test run: their texts, and the error without a report."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:  # the builder is not in the package
    sys.path.insert(0, str(ROOT))

builder = importlib.import_module("docs.builder.badges")
CASES = """<testsuites><testsuite name="pytest" timestamp="2026-11-26T09:00:00+00:00">
<testcase classname="tests.integration.ack.test_ack" name="test_a[blocking]"/>
<testcase classname="tests.integration.ack.test_ack" name="test_b[cluster-blocking]"/>
<testcase classname="tests.integration.testing.test_container" name="test_c"/>
<testcase classname="tests.unit.test_d" name="test_d"/>{}
</testsuite></testsuites>"""


@pytest.fixture
def report(tmp_path):
    """A function that reads a report with additional cases."""

    def report(more=""):
        file = tmp_path / "report.xml"
        file.write_text(CASES.format(more))
        return builder.Report.read([file])

    return report


def test_badges_count_passed_tests_and_name_brokers(report):
    """Four tests passed, on a standalone broker, a cluster and containers; none went through mTLS."""
    drawn = builder.badges(report())
    assert drawn["tests"].text == "4 passed"
    assert drawn["brokers"].text == "standalone, cluster, containers"
    assert drawn["day"].text == "2026-11-26"
    assert "<title>tests: 4 passed</title>" in drawn["tests"].svg()


def test_badges_count_failed_and_skipped_tests(report):
    """Failed and skipped tests are counted apart, and a failure is red."""
    good = builder.badges(report())["tests"].colour
    drawn = builder.badges(
        report(
            '<testcase classname="tests.integration.a" name="e[mtls]"><failure/></testcase>'
            '<testcase classname="tests.integration.a" name="f"><skipped/></testcase>'
        )
    )
    assert drawn["tests"].text == "4 passed, 1 failed, 1 skipped"
    assert drawn["tests"].colour != good
    assert "mTLS" not in drawn["brokers"].text


def test_a_repeated_test_counts_once(report):
    """Only the last run of a repeated test counts."""
    again = '<testcase classname="tests.unit.test_d" name="test_d"/>'
    assert builder.badges(report(again))["tests"].text == "4 passed"


@pytest.mark.parametrize("reports", [[], ["no-such-file.xml"]])
def test_no_badge_is_drawn_without_a_report(reports):
    """The program fails, and its error names the missing report."""
    command = [sys.executable, "-m", "docs.builder.badges", *reports]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no badge was drawn: ")
