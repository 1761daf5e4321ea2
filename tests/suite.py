"""Run steps of the suite one after another, also after failures, and show the duration of each.

python tests/suite.py                     # types, docs, unit, core, pure
python tests/suite.py rest --part 3/10    # the rest; arguments after the steps are passed to the last one
python tests/suite.py versions 4.0.7      # the client on this version of Pulsar; without one, on each other version
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from pulsar_ext.testing.profiles import OTHER_VERSIONS, VARIABLE
from pulsar_ext.testing.rpc import PoolServer
from pulsar_ext.testing.shared import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

_BACKEND = os.environ.get("PULSAR_EXT_BACKEND", "process")
"""A process with an archive of classes takes half the processor time of a container to start."""
_FETCH = [["pulsar-ext", "broker", "fetch"]] if _BACKEND == "process" else []
_ON_BROKERS = ["--pulsar-backend", _BACKEND, "-n", "4", "--dist", "loadgroup", "--durations", "25"]
_HOT = ("receive", "ids", "ack", "produce")
"""Packages that use the native core."""
_PAGES = "tests/docs/test_browser.py"
_SAME = (
    *(f"tests/unit/native/test_{name}.py" for name in ("locks", "replicated", "thread_state", "threads")),
    *(f"tests/unit/ids/test_{name}.py" for name in ("position", "topic_name")),
    "tests/unit/ack/test_tracker.py",
    "tests/unit/ack/test_unacked.py",
    "tests/unit/receive/test_compacted.py",
    "tests/unit/receive/test_screened.py",
    # Its model chooses itself if a queue makes messages as the core does.
    "tests/unit/receive/test_two_moves.py",
)
"""Unit tests of these packages whose code never imports the native core."""


@dataclass(frozen=True)
class Step:
    """Commands of a step, and its usual minutes on two cores."""

    about: str
    minutes: float
    commands: list[list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    is_beside: bool = False
    """True if it uses one core, and so runs beside the next step."""


STEPS = {
    "types": Step(
        "mypy, strict, and pyright's view of the API",
        0.5,
        [["mypy"], ["pyright", "--pythonpath", sys.executable]],
        is_beside=True,
    ),
    "unit": Step("tests without a broker", 1, [["pytest", "tests/unit", "-n", "2"]]),
    "docs": Step("the site, its links and its reference", 0.5, [["pytest", "tests/docs", "--ignore", _PAGES]]),
    "pages": Step("every page of the site in a browser", 1.5, [["pytest", _PAGES]]),
    "core": Step(
        "each public feature once, on real brokers",
        3,
        [*_FETCH, ["pytest", "tests/integration", "--tier", "core", *_ON_BROKERS, "--no-loadscope-reorder"]],
    ),
    "pure": Step(
        "receiving, sending, ids and acknowledgements without the native core",
        1,
        [
            [
                *("pytest", "-n", "2", *(f"tests/unit/{room}" for room in ("native", "message", *_HOT))),
                *(f"--ignore={path}" for path in _SAME),
            ],
            *_FETCH,
            ["pytest", "--tier", "core", *_ON_BROKERS, *(f"tests/integration/{room}" for room in _HOT)],
        ],
        {"PULSAR_EXT_NATIVE": "0"},
    ),
    "rest": Step(
        "the tests outside the core, on real brokers",
        60,
        [*_FETCH, ["pytest", "tests/integration", "--tier", "rest", *_ON_BROKERS]],
    ),
}
STEPS |= {
    version: Step(
        f"the client on Pulsar {version}",
        60,
        [*_FETCH, ["python", "tests/integration/through.py", version, "--update"]],
        {VARIABLE: version, "PULSAR_EXT_BACKEND": _BACKEND},
    )
    for version in OTHER_VERSIONS
}
REPORTS = "build/reports"
"""Directory of pytest's reports in JUnit's format."""
DEFAULT = ["types", "docs", "unit", "core", "pure"]
_VERSIONS = "versions"
"""Name of the steps for the other versions together."""


def main(arguments: list[str]) -> int:
    """Run the steps that the first arguments name; return the number of failed ones."""
    # A background job has SIGINT ignored, and tests of Ctrl-C would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    named = [*itertools.takewhile({*STEPS, _VERSIONS}.__contains__, arguments)]
    options = arguments[len(named) :]
    if named == [_VERSIONS]:
        named += OTHER_VERSIONS
    steps = [name for name in named if name != _VERSIONS] or DEFAULT
    console, rows, beside, start = Console(), [], {}, time.monotonic()
    with _brokers(console) as shared:
        for number, name in enumerate(steps, 1):
            step = STEPS[name]
            elapsed = f"{(time.monotonic() - start) / 60:.1f} min elapsed"
            console.rule(f"{number} of {len(steps)}: {name}, {step.about} (usually {step.minutes:g} min, {elapsed})")
            begun = time.monotonic()
            if step.is_beside and number < len(steps):
                beside[name] = [_begin(command) for command in step.commands]
                continue
            failed = False
            for command in step.commands:
                extra = ["--junitxml", f"{REPORTS}/{name}.xml"] if command[0] == "pytest" else []
                if number == len(steps) and command not in _FETCH:
                    extra += options
                environment = {**os.environ, **shared, **step.environment}
                failed |= subprocess.run([*command, *extra], env=environment, check=False).returncode != 0
            rows.append((name, "failed" if failed else "passed", f"{time.monotonic() - begun:.0f} s"))
            for other in [*beside]:
                failed = sum(_end(console, process) for process in beside.pop(other)) > 0
                rows.append((other, "failed" if failed else "passed", f"beside {name}"))
    table = Table("step", "", "took")
    for row in rows:
        table.add_row(*row, style="red" if row[1] == "failed" else "")
    console.print(table)
    return sum(row[1] == "failed" for row in rows)


@contextlib.contextmanager
def _brokers(console: Console) -> Iterator[dict[str, str]]:
    """Yield the variable by which the workers of all steps share brokers; see the conftest of the integration tests."""
    lines: list[str] = []
    pool = Pool(_BACKEND, lines.append)
    server = PoolServer(lambda: pool)
    try:
        yield {"SUITE_BROKERS": json.dumps(server.ticket)}
    finally:
        server.close()
        pool.close()
        for line in dict.fromkeys(lines):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _begin(command: list[str]) -> subprocess.Popen[str]:
    """Start a command whose output is kept."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _end(console: Console, process: subprocess.Popen[str]) -> bool:
    """Show the output of a command at its end; return True if it failed."""
    console.print(process.communicate()[0].strip(), highlight=False, markup=False, soft_wrap=True)
    return process.returncode != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
