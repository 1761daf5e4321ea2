"""Runs of each family of integration tests through a broker with mutual TLS, or through a cluster of two brokers.

    python tests/integration/through.py mtls                      # all families, one after another
    python tests/integration/through.py cluster ack receive       # some of them
    python tests/integration/through.py mtls --update             # and write the counts into RESULTS-through.md

A family is a folder next to this file. Each is a separate run of pytest, so that its brokers end before those of the
next one start. Arguments after -- are passed to pytest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS-through.md"
HARNESS = {"testing"}
"""Families that test brokers themselves, and choose them."""
_ONLY = "standalone only: "
_COUNTED = ("passed", "failed", "standalone only", "skipped")
_HEADS = ["family", *_COUNTED, "s", "day"]


@dataclass
class Row:
    """Result of a family: the number of tests, the failures, and reasons why some need a standalone broker."""

    family: str
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    day: str = ""

    def cells(self) -> list[str]:
        """Return the row of the table."""
        return [self.family, *(str(self.counts[kind]) for kind in _COUNTED), f"{self.seconds:.0f}", self.day]


def families() -> list[str]:
    """Return the names of all families."""
    return sorted({path.parent.name for path in HERE.glob("*/test_*.py")} - HARNESS)


def run_family(family: str, way: str, options: list[str]) -> Row:
    """Run a family, and count its results."""
    row, start = Row(family, day=f"{datetime.now(UTC):%Y-%m-%d}"), time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", str(HERE / family), f"--pulsar-through={way}", "-q", "-n", "2"]
        command += ["--dist", "loadgroup", f"--junitxml={report}", *options]
        status = subprocess.run(command, check=False).returncode
        row.seconds = time.monotonic() - start
        if report.exists():
            _count(row, ET.parse(report).getroot())
        if status not in {0, 1}:
            row.failed.append(f"{family}: pytest ended with status {status}, so not all tests ran")
    return row


def _count(row: Row, report: ET.Element) -> None:
    # The last outcome of a repeated test counts.
    cases = {(case.get("classname"), case.get("name")): case for case in report.iter("testcase")}
    for (where, name), case in cases.items():
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            row.counts["failed"] += 1
            row.failed.append(f"{where}::{name}")
        elif skipped is None:
            row.counts["passed"] += 1
        elif (why := skipped.get("message", "")).startswith(_ONLY):
            row.counts["standalone only"] += 1
            row.reasons[why.removeprefix(_ONLY)] += 1
        else:
            row.counts["skipped"] += 1


def table(rows: list[Row]) -> str:
    """Return the counts, the failures, and the reasons of tests for a standalone broker only."""
    total = Row("all", sum((row.counts for row in rows), Counter()), seconds=sum(row.seconds for row in rows))
    lines = [_line(_HEADS), _line(["---"] * len(_HEADS)), *(_line(row.cells()) for row in (*rows, total))]
    if failed := [name for row in rows for name in row.failed]:
        lines += ["", "Failed:", "", *(f"- `{name}`" for name in failed)]
    if reasons := [(row.family, why, count) for row in rows for why, count in row.reasons.items()]:
        lines += ["", _line(["family", "standalone only, because it", "tests"]), _line(["---"] * 3)]
        lines += [_line([family, why, str(count)]) for family, why, count in reasons]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def read(text: str) -> dict[str, Row]:
    """Return the rows that `table` wrote."""
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        family, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(_HEADS) - 1 and cells[0].isdecimal() and family != "all":
            *counts, seconds, day = cells
            rows[family] = Row(family, Counter(dict(zip(_COUNTED, map(int, counts), strict=True))), day=day)
            rows[family].seconds = float(seconds)
        elif len(cells) == 2 and cells[1].isdecimal():  # a reason and its count
            rows[family].reasons[cells[0]] = int(cells[1])
        elif failed := re.match(r"- `((?:tests\.integration\.)?(\w+).*)`$", line):
            rows[failed[2]].failed.append(failed[1])
    return rows


def update(way: str, row: Row) -> None:
    """Replace a family's row in the part of the results about one way."""
    begin, end = f"<!-- {way}: begin -->\n", f"<!-- {way}: end -->\n"
    old = RESULTS.read_text(encoding="utf-8")
    part = old[old.index(begin) + len(begin) : old.index(end)]
    merged = read(part) | {row.family: row}
    new = f"## Through {way}\n\n{table([merged[family] for family in sorted(merged)])}"
    RESULTS.write_text(old.replace(begin + part + end, begin + new + end), encoding="utf-8")


def main() -> int:
    """Run the chosen families; return 1 if a test failed."""
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("mtls", "cluster"))
    parser.add_argument("family", nargs="*", help=f"of {', '.join(families())}; all by default")
    parser.add_argument("--update", action="store_true", help=f"write the counts into {RESULTS.name}")
    chosen = parser.parse_args(arguments[:cut])
    if unknown := set(chosen.family) - set(families()):
        parser.error(f"unknown family {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    for family in chosen.family or families():
        rows.append(run_family(family, chosen.way, arguments[cut + 1 :]))
        if chosen.update:
            update(chosen.way, rows[-1])
    print(f"Through {chosen.way}:\n\n{table(rows)}")
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
