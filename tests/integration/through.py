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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS-through.md"
HARNESS = {"testing"}
"""Families that test brokers themselves, and choose them."""
_ONLY = "standalone only: "
_COUNTED = ("passed", "failed", "standalone only", "skipped")
_HEADS = [*_COUNTED, "s", "day"]
_MARK = "<!-- written by through.py -->\n"
WAYS = ("mtls", "cluster")


@dataclass
class Row:
    """Result of a family: the number of tests, the failures, and reasons why some need a standalone broker."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    day: str = ""

    def cells(self) -> list[str]:
        """Return the row's part of the table."""
        return [*(str(self.counts[kind]) for kind in _COUNTED), f"{self.seconds:.0f}", self.day]


def families() -> list[str]:
    """Return the names of all families."""
    return sorted({path.parent.name for path in HERE.glob("*/test_*.py")} - HARNESS)


def run_family(family: str, way: str, options: list[str]) -> Row:
    """Run a family, and count its results."""
    row, start = Row(day=f"{datetime.now(UTC):%Y-%m-%d}"), time.monotonic()
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


def table(runs: Mapping[str, Mapping[str, Row]]) -> str:
    """Return the counts, the failures, and the reasons of tests for a standalone broker only, each way in columns.

    Args:
        runs: the ways, and the families of each by name.
    """
    families = sorted({family for rows in runs.values() for family in rows})
    heads = [f"{way}: {_HEADS[0]}" if head == _HEADS[0] else head for way in runs for head in _HEADS]
    lines = [_line(["family", *heads]), _line(["---"] * (1 + len(heads)))]
    none = [""] * len(_HEADS)
    for family in families:
        cells = (rows[family].cells() if family in rows else none for rows in runs.values())
        lines.append(_line([family, *chain.from_iterable(cells)]))
    lines.append(_line(["all", *chain.from_iterable(_total(rows).cells() for rows in runs.values())]))
    if failed := [(way, name) for way, rows in runs.items() for row in rows.values() for name in row.failed]:
        lines += ["", "Failed:", "", *(f"- {way}: `{name}`" for way, name in failed)]
    if reasons := sorted({why for rows in runs.values() for row in rows.values() for why in row.reasons}):
        lines += ["", _line(["standalone only, because it", *runs]), _line(["---"] * (1 + len(runs)))]
        for why in reasons:
            counts = (
                [f"{name} {row.reasons[why]}" for name, row in rows.items() if why in row.reasons]
                for rows in runs.values()
            )
            lines.append(_line([why, *map(", ".join, counts)]))
    return "\n".join(lines) + "\n"


def _total(rows: Mapping[str, Row]) -> Row:
    return Row(sum((row.counts for row in rows.values()), Counter()), seconds=sum(row.seconds for row in rows.values()))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def read(text: str) -> dict[str, dict[str, Row]]:
    """Return the rows of each way that `table` wrote."""
    runs: dict[str, dict[str, Row]] = {way: {} for way in WAYS}
    for line in text.splitlines():
        family, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(_HEADS) * len(WAYS) and family != "all":
            for number, rows in enumerate(runs.values()):
                *counts, seconds, day = cells[number * len(_HEADS) : (number + 1) * len(_HEADS)]
                if seconds.isdecimal():
                    rows[family] = Row(Counter(dict(zip(_COUNTED, map(int, counts), strict=True))), day=day)
                    rows[family].seconds = float(seconds)
        elif len(cells) == len(WAYS):  # a reason, and its families with their counts
            for rows, counts in zip(runs.values(), cells, strict=True):
                for name, count in re.findall(r"(\w+) (\d+)", counts):
                    rows[name].reasons[family] = int(count)
        elif failed := re.match(r"- (\w+): `((?:tests\.integration\.)?(\w+).*)`$", line):
            runs[failed[1]][failed[3]].failed.append(failed[2])
    return runs


def update(way: str, family: str, row: Row) -> None:
    """Replace a family's row of one way in the results."""
    head, mark, old = RESULTS.read_text(encoding="utf-8").partition(_MARK)
    runs = read(old)
    runs[way][family] = row
    RESULTS.write_text(f"{head}{mark}\n{table(runs)}", encoding="utf-8")


def main() -> int:
    """Run the chosen families; return 1 if a test failed."""
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("family", nargs="*", help=f"of {', '.join(families())}; all by default")
    parser.add_argument("--update", action="store_true", help=f"write the counts into {RESULTS.name}")
    chosen = parser.parse_args(arguments[:cut])
    if unknown := set(chosen.family) - set(families()):
        parser.error(f"unknown family {', '.join(sorted(unknown))}")
    rows: dict[str, Row] = {}
    for family in chosen.family or families():
        rows[family] = run_family(family, chosen.way, arguments[cut + 1 :])
        if chosen.update:
            update(chosen.way, family, rows[family])
    print(table({chosen.way: rows}))
    return 1 if any(row.failed for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
