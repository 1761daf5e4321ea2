"""Run steps of the suite one after another, also after failures, and show the duration of each.

python tests/suite.py                     # types, unit, docs, core, pure
python tests/suite.py rest --part 3/10    # the rest; arguments after the steps are passed to the last one
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

_BACKEND = os.environ.get("PULSAR_EXT_BACKEND", "process")
"""A process with an archive of classes takes half the processor time of a container to start."""
_FETCH = [["pulsar-ext", "broker", "fetch"]] if _BACKEND == "process" else []
_ON_BROKERS = ["--pulsar-backend", _BACKEND, "-n", "4", "--dist", "loadgroup", "--durations", "25"]
_HOT = ("receive", "ids", "ack", "produce")
"""Packages that use the native core."""
_PAGES = "tests/docs/test_browser.py"


@dataclass(frozen=True)
class Step:
    """Commands of a step, and its usual minutes on two cores."""

    about: str
    minutes: float
    commands: list[list[str]]
    environment: dict[str, str] = field(default_factory=dict)


STEPS = {
    "types": Step(
        "mypy, strict, and pyright's view of the API", 0.5, [["mypy"], ["pyright", "--pythonpath", sys.executable]]
    ),
    "unit": Step("tests without a broker", 2, [["pytest", "tests/unit", "-n", "2"]]),
    "docs": Step("the site, its links and its reference", 0.5, [["pytest", "tests/docs", "--ignore", _PAGES]]),
    "pages": Step("every page of the site in a browser", 1.5, [["pytest", _PAGES]]),
    "core": Step(
        "each public feature once, on real brokers",
        6,
        [*_FETCH, ["pytest", "tests/integration", "--tier", "core", *_ON_BROKERS, "--no-loadscope-reorder"]],
    ),
    "pure": Step(
        "receiving, sending, ids and acknowledgements without the native core",
        1.5,
        [
            ["pytest", "-n", "2", *(f"tests/unit/{room}" for room in ("native", "message", *_HOT))],
            *_FETCH,
            ["pytest", *(f"tests/integration/{room}" for room in _HOT), "--tier", "core", *_ON_BROKERS],
        ],
        {"PULSAR_EXT_NATIVE": "0"},
    ),
    "rest": Step(
        "the tests outside the core, on real brokers",
        60,
        [*_FETCH, ["pytest", "tests/integration", "--tier", "rest", *_ON_BROKERS]],
    ),
}
REPORTS = "build/reports"
"""Directory of pytest's reports in JUnit's format."""
DEFAULT = ["types", "unit", "docs", "core", "pure"]


def main(arguments: list[str]) -> int:
    """Run the steps that the first arguments name; return the number of failed ones."""
    # A background job has SIGINT ignored, and tests of Ctrl-C would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    named = [*itertools.takewhile(STEPS.__contains__, arguments)]
    options = arguments[len(named) :]
    steps = named or DEFAULT
    console, rows, start = Console(), [], time.monotonic()
    for number, name in enumerate(steps, 1):
        step = STEPS[name]
        elapsed = f"{(time.monotonic() - start) / 60:.1f} min elapsed"
        console.rule(f"{number} of {len(steps)}: {name}, {step.about} (usually {step.minutes:g} min, {elapsed})")
        begun = time.monotonic()
        failed = False
        for command in step.commands:
            extra = ["--junitxml", f"{REPORTS}/{name}.xml", *(options if number == len(steps) else ())]
            extra = extra if command[0] == "pytest" else []
            environment = {**os.environ, **step.environment}
            failed |= subprocess.run([*command, *extra], env=environment, check=False).returncode != 0
        rows.append((name, "failed" if failed else "passed", f"{time.monotonic() - begun:.0f} s"))
    table = Table("step", "", "took")
    for row in rows:
        table.add_row(*row, style="red" if row[1] == "failed" else "")
    console.print(table)
    return sum(row[1] == "failed" for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
