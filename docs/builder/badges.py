"""Draw the badges of the README from the reports of a test run: `python -m docs.builder.badges REPORT.xml...`.

`make test` and `make test-all` write their reports, in JUnit's format, to build/reports. Draw with the Python that ran
the tests, because its version is on a badge: `.tox/suite/bin/python -m docs.builder.badges build/reports/*.xml`.
"""

from __future__ import annotations

import platform
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path

from pulsar_ext.testing.profiles import PULSAR_VERSION

from .pages import ROOT

__all__ = ["Badge", "Report", "badges"]

FOLDER = ROOT / "docs" / "badges"
_GOOD, _BAD, _PLAIN = "#2f9e5b", "#c0392b", "#3b6ea5"
_CHARACTER, _PADDING, _HEIGHT = 6.6, 8, 20
_BROKERS = {
    "standalone": lambda case: "[cluster" not in case and "mtls" not in case and "test_container" not in case,
    "cluster": lambda case: "[cluster" in case or "test_cluster" in case,
    "mTLS": lambda case: "[mtls" in case or "-mtls" in case,
    "containers": lambda case: "test_container" in case,
}
"""The brokers, each with a function that selects its tests of tests/integration."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run's reports: the number of tests by outcome, the passed ones, and the day."""

    counts: dict[str, int]
    passed: frozenset[str]
    day: str

    @classmethod
    def read(cls, files: list[Path]) -> Report:
        """Read reports in JUnit's format.

        Raises:
            ValueError: the reports have no tests.
        """
        ends, days = {}, []
        for file in files:
            root = ET.parse(file).getroot()  # noqa: S314  # the project's own report
            days += [suite.get("timestamp", "")[:10] for suite in root.iter("testsuite")]
            for case in root.iter("testcase"):
                kinds = {child.tag for child in case}
                kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
                ends[f"{case.get('classname')}::{case.get('name')}"] = kind  # the last run counts
        if not ends:
            raise ValueError(f"no test in {', '.join(map(str, files)) or 'no report at all'}; run `make test` first")
        counts = {kind: sum(end == kind for end in ends.values()) for kind in ("passed", "failed", "skipped")}
        return cls(counts, frozenset(name for name, end in ends.items() if end == "passed"), max(days))


@dataclass(frozen=True, slots=True)
class Badge:
    """A label and its text."""

    label: str
    text: str
    colour: str = _PLAIN

    def svg(self) -> str:
        """Return the badge as SVG."""
        left, right = (_CHARACTER * len(part) + 2 * _PADDING for part in (self.label, self.text))
        width = left + right
        middle = 'y="14" text-anchor="middle"'
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{_HEIGHT}" role="img" '
            'font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" fill="#ffffff">'
        )
        return "\n".join(
            [
                begin,
                f"<title>{escape(self.label)}: {escape(self.text)}</title>",
                f'<rect width="{width:.0f}" height="{_HEIGHT}" rx="3" fill="{self.colour}"/>',
                f'<path d="M3 0h{left - 3:.1f}v{_HEIGHT}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#4a5360"/>',
                f'<text x="{left / 2:.1f}" {middle}>{escape(self.label)}</text>',
                f'<text x="{left + right / 2:.1f}" {middle}>{escape(self.text)}</text>',
                "</svg>",
                "",
            ]
        )


def badges(report: Report) -> dict[str, Badge]:
    """Return the badges of a run, by file name."""
    texts = [f"{count:,} {kind}" for kind, count in report.counts.items() if count]
    integration = [case for case in report.passed if "integration" in case]
    brokers = [name for name, runs_on in _BROKERS.items() if any(map(runs_on, integration))]
    return {
        "tests": Badge("tests", ", ".join(texts), _BAD if report.counts["failed"] else _GOOD),
        "brokers": Badge("on", ", ".join(brokers) or "no broker"),
        "versions": Badge(
            "with",
            f"Pulsar {PULSAR_VERSION}, pulsar-client {version('pulsar-client')}, "
            f"Python {'.'.join(platform.python_version_tuple()[:2])}",
        ),
        "day": Badge("run on", report.day),
    }


def main(*reports: str) -> None:
    """Draw the badges of these reports."""
    try:
        drawn = badges(Report.read([Path(report) for report in reports]))
    except (OSError, ET.ParseError, ValueError) as error:
        sys.exit(f"no badge was drawn: {error}")
    FOLDER.mkdir(exist_ok=True)
    for name, badge in drawn.items():
        (FOLDER / f"{name}.svg").write_text(badge.svg(), encoding="utf-8")
        print(f"{badge.label}: {badge.text}")  # noqa: T201  # it is the result


if __name__ == "__main__":
    main(*sys.argv[1:])
