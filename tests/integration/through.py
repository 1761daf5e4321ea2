"""Runs of each family of integration tests on other brokers: with mutual TLS, as a cluster, or of another version.

    python tests/integration/through.py mtls                      # all families, one after another
    python tests/integration/through.py cluster ack receive       # some of them
    python tests/integration/through.py 4.0.7 --update            # and record the counts, from which pages are written

A family is a folder next to this file. Each is a separate run of pytest, so that its brokers end before those of the
next one start. Arguments after -- are passed to pytest. The counts are in through.json, and in one page for the kinds
of brokers and one for their versions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_ext.testing.profiles import OTHER_VERSIONS, VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HERE = Path(__file__).parent
RESULTS = HERE / "through.json"
HARNESS = {"testing"}
"""Families that test brokers themselves, and choose them."""
WAYS = ("mtls", "cluster")
PAGES = {HERE / "RESULTS-through.md": WAYS, HERE.parents[1] / "docs" / "versions.md": OTHER_VERSIONS}
"""Pages and what their columns are; everything after the mark is written here."""
OF_VERSIONS = (
    *("ids", "chunks", "skip", "key_shared", "ack", "dedup", "redelivery", "receive", "produce", "topics_reader"),
    *("schema", "reproduce"),
)
"""Families that depend on the broker's version."""
_REASON = "not here: "
"""Beginning of the reason for which the conftest skips a test on a kind of broker."""
_MARK = "<!-- written by through.py -->\n"


@dataclass
class Row:
    """Result of a family: the number of tests, the failures, and reasons why some are not for such a broker."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0
    day: str = ""
    tier: str = "all"

    def __post_init__(self) -> None:
        self.counts, self.reasons = Counter(self.counts), Counter(self.reasons)

    def cell(self) -> str:
        """Return the row's part of the table."""
        counted = [f"{self.counts[kind]} {kind}" for kind in ("passed", "failed", "excluded", "skipped")]
        tier = "" if self.tier == "all" else f" of tier {self.tier}"
        counts = ", ".join(text for text in counted if not text.startswith("0 "))
        return f"{counts}{tier}; {self.seconds:.0f} s {self.day}"


def families() -> list[str]:
    """Return the names of all families."""
    return sorted({path.parent.name for path in HERE.glob("*/test_*.py")} - HARNESS)


def run_family(family: str, way: str, options: list[str]) -> Row:
    """Run a family, and count its results."""
    tier = options[options.index("--tier") + 1] if "--tier" in options else "all"
    row, start = Row(day=f"{datetime.now(UTC):%Y-%m-%d}", tier=tier), time.monotonic()
    chosen = {"PULSAR_EXT_THROUGH": way} if way in WAYS else {VARIABLE: way}
    environment = {**os.environ, "SUITE_BROKERS": "", **chosen}
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", str(HERE / family), "-q", "-n", "2", "--dist", "loadgroup"]
        status = subprocess.run([*command, f"--junitxml={report}", *options], env=environment, check=False).returncode
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
        elif (why := skipped.get("message", "")).startswith(_REASON):
            row.counts["excluded"] += 1
            row.reasons[why.removeprefix(_REASON)] += 1
        else:
            row.counts["skipped"] += 1


def table(runs: Mapping[str, Mapping[str, Row]]) -> str:
    """Return the counts, the failures, and the reasons of excluded tests, with a column for each run.

    Args:
        runs: the rows of each run, by the names of the families.
    """
    lines = [_line(["family", *runs]), _line(["---"] * (1 + len(runs)))]
    lines += [
        _line([family, *(rows[family].cell() if family in rows else "" for rows in runs.values())])
        for family in sorted({family for rows in runs.values() for family in rows})
    ]
    lines.append(_line(["all", *(_total(rows.values()).cell() for rows in runs.values())]))
    if failed := [(way, name) for way, rows in runs.items() for row in rows.values() for name in row.failed]:
        lines += ["", "Failed:", "", *(f"- {way}: `{name}`" for way, name in failed)]
    if reasons := sorted({why for rows in runs.values() for row in rows.values() for why in row.reasons}):
        lines += ["", _line(["excluded, because the test", *runs]), _line(["---"] * (1 + len(runs)))]
        for why in reasons:
            counts = (
                [f"{name} {row.reasons[why]}" for name, row in rows.items() if why in row.reasons]
                for rows in runs.values()
            )
            lines.append(_line([why, *map(", ".join, counts)]))
    return "\n".join(lines) + "\n"


def _total(rows: Iterable[Row]) -> Row:
    total = Row()
    for row in rows:
        total.counts += row.counts
        total.seconds += row.seconds
    return total


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def read() -> dict[str, dict[str, Row]]:
    """Return the recorded rows of each run, by the names of the families."""
    runs = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return {way: {family: Row(**row) for family, row in rows.items()} for way, rows in runs.items()}


def update(way: str, family: str, row: Row) -> None:
    """Record a family's row of a run, and write the page that has the run."""
    runs = read()
    runs.setdefault(way, {})[family] = row
    plain = {way: {family: vars(row) for family, row in rows.items()} for way, rows in runs.items()}
    RESULTS.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for page, columns in PAGES.items():
        if way in columns:
            head, mark, _ = page.read_text(encoding="utf-8").partition(_MARK)
            text = table({one: runs[one] for one in columns if one in runs})
            page.write_text(f"{head}{mark}\n{text}", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run the chosen families; return 1 if a test failed."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", help=f"{', '.join(WAYS)}, or a version of Pulsar")
    parser.add_argument("family", nargs="*", help=f"of {', '.join(families())}; all that depend on it by default")
    parser.add_argument("--update", action="store_true", help=f"record the counts in {RESULTS.name}, and in its page")
    chosen = parser.parse_args(arguments[:cut])
    if unknown := set(chosen.family) - set(families()):
        parser.error(f"unknown family {', '.join(sorted(unknown))}")
    rows: dict[str, Row] = {}
    for family in chosen.family or (families() if chosen.way in WAYS else OF_VERSIONS):
        rows[family] = run_family(family, chosen.way, list(arguments[cut + 1 :]))
        if chosen.update:
            update(chosen.way, family, rows[family])
    print(table({chosen.way: rows}))
    return 1 if any(row.failed for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
