"""A signal at each point of each public method at which Python may run a signal handler.

    python tests/faults/interrupt.py [--only NAME] [--kind KIND] [--every N] [--most N] [--point N] [--json] [--save]

The handler raises, as a Ctrl-C does (in an event loop it cancels, as `asyncio.run()` does); or it sends with the same
producer, or one of the same client; or it closes the handle or the client. Afterwards, with the same handles: messages
that were not returned are received next, in order; acknowledgements are sent, and no others; each sent message has one
outcome, unless its call raised, and is persisted at most once; no lock is held; the schedulers work; calls from another
thread return. A call that hangs ends its process, and the next one continues.

`--every N` tries each N-th point, `--most N` at most N points of a method and a kind of handler (0: all). `--save`
writes `RESULTS-interrupt.md`. Starts a broker of its own, which needs Java. Exits with 1 after any finding.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from interrupt_health import HANG_EXIT
from interrupt_methods import CASES
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["KINDS", "Tried", "run_all"]

KINDS: Final = ("raise", "send", "close", "close client")
_HERE = Path(__file__).parent
_RESULTS = _HERE / "RESULTS-interrupt.md"
_BEGIN = "<!-- written by interrupt.py -->\n"


@dataclass
class Tried:
    """Outcome of one method with one kind of handler."""

    name: str
    kind: str
    points: int = 0
    tried: int = 0
    arrived: int = 0
    next: int = 0
    step: int = 1
    hangs: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)

    def found(self, point: Any, place: str, problem: str) -> None:
        """Add a finding."""
        self.findings.append({"point": point, "place": place, "problem": problem})


def _worker(urls: tuple[str, str], jobs: list[Any]) -> subprocess.Popen[str]:
    command = [sys.executable, str(_HERE / "interrupt_worker.py"), *urls, json.dumps(jobs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=_HERE)


class _Reports:
    """The reports of workers about some runs."""

    def __init__(self, runs: list[Tried], say: Callable[[Tried], None]) -> None:
        self._runs = {(one.name, one.kind): one for one in runs}
        self._say = say
        self.now: Tried | None = None
        self.over = False

    def take(self, report: dict[str, Any]) -> None:
        """Process one report."""
        if "began" in report:
            self.now = self._runs[tuple(report["began"])]
        one = self.now
        self.over = "over" in report
        if one is None or self.over:
            return
        if "points" in report:
            one.points, one.step = max(one.points, report["points"]), report["step"]
        if "tried" in report:
            one.tried, one.arrived = one.tried + 1, one.arrived + report["arrived"]
            one.next = report["tried"] + one.step
            self._say(one)
        if "finding" in report:
            one.found(**report["finding"])
        if "failed" in report:
            one.found("", "", f"the case failed: {report['failed']}")
            one.next = sys.maxsize
        if "hang" in report:
            doing, one.hangs = report["hang"], one.hangs + 1
            one.found(
                doing.get("point", ""), doing.get("place", ""), f"hangs ({doing['step']}): {report['stack'][-4:]}"
            )


def run_all(
    urls: tuple[str, str],
    jobs: Iterable[tuple[str, str]],
    *,
    most: int,
    every: int = 1,
    begin: int = 0,
    say: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """Try the points of methods.

    Args:
        urls: the service URL and the admin URL of a broker that deduplicates.
        jobs: pairs of the name of a case and a kind of handler.
        most: maximum number of points of each job; 0 for all.
        every: distance between two points.
        begin: the first point.
        say: is called with each changed outcome.
    """
    runs = [Tried(name, kind, next=begin) for name, kind in jobs]
    left = list(runs)
    while left:
        reports = _Reports(left, say)
        with _worker(urls, [[one.name, one.kind, one.next, most, every] for one in left]) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                reports.take(json.loads(line))
        now = reports.now
        if reports.over or now is None:
            break
        if worker.returncode != HANG_EXIT:
            now.found(now.next, "", f"the process ended with status {worker.returncode}")
        now.next += now.step
        left = left[left.index(now) :]
        if now.hangs >= _HOPELESS or not now.points:
            left = left[1:]
    return runs


_HOPELESS: Final = 3
"""Number of hangs after which a method and kind are abandoned."""


def _markdown(runs: list[Tried]) -> Iterator[str]:
    """Yield a table with a row for each call: its cases, and in their order the points of each kind of handler."""
    calls: dict[str, dict[str, dict[str, Tried]]] = {}
    for one in runs:
        call, _, case = one.name.removeprefix("asyncio.").partition(": ")
        case = re.sub(rf"/?{call.rpartition('.')[2]}\b ?", " ", case).strip()
        if one.name.startswith("asyncio."):
            case = f"asyncio {case}".strip()
        calls.setdefault(call, {}).setdefault(case or "-", {})[one.kind] = one
    yield f"| call | cases | {' | '.join(KINDS)} | findings |"
    yield "|---|---|" + "---|" * len(KINDS) + "--:|"
    for call, cases in calls.items():
        tried = (
            ", ".join(f"{kinds[kind].arrived} of {kinds[kind].points}" for kinds in cases.values() if kind in kinds)
            for kind in KINDS
        )
        findings = sum(len(one.findings) for kinds in cases.values() for one in kinds.values())
        yield f"| {call} | {', '.join(cases)} | {' | '.join(tried)} | {findings} |"
    sums = [str(sum(one.arrived for one in runs if one.kind == kind)) for kind in KINDS]
    yield f"| all | | {' | '.join(sums)} | {sum(len(one.findings) for one in runs)} |"


def _save(runs: list[Tried]) -> None:
    text = _RESULTS.read_text() if _RESULTS.exists() else _BEGIN
    head = text.split(_BEGIN)[0]
    _RESULTS.write_text(head + _BEGIN + "\n" + "\n".join(_markdown(runs)) + "\n")


def _summary(console: Console, runs: list[Tried]) -> None:
    table = Table("call", "handler", "point", "where", "what")
    seen: Counter[tuple[str, str]] = Counter()
    for one in runs:
        for finding in one.findings:
            seen[one.name, one.kind] += 1
            if seen[one.name, one.kind] <= 4:
                table.add_row(one.name, one.kind, str(finding["point"]), finding["place"], finding["problem"])
    if table.row_count:
        console.print(table)
    findings = sum(len(one.findings) for one in runs)
    console.print(f"{sum(one.arrived for one in runs)} points tried, {findings} findings")


def main() -> int:
    """Run the requested cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="the beginning of the names of calls, several with commas between")
    parser.add_argument("--kind", choices=KINDS, help="one kind of handler")
    parser.add_argument("--every", type=int, default=1, help="distance between two points (1)")
    parser.add_argument("--most", type=int, default=100, help="maximum number of points of each; 0 for all (100)")
    parser.add_argument("--point", type=int, help="only this point")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a summary")
    parser.add_argument("--save", action="store_true", help="write RESULTS-interrupt.md")
    arguments = parser.parse_args()
    names = [name for name in CASES if name.startswith(tuple(arguments.only.split(",")))]
    kinds = [arguments.kind] if arguments.kind else list(KINDS)
    every, most = (sys.maxsize, 0) if arguments.point is not None else (arguments.every, arguments.most)
    console, began = Console(stderr=True), time.monotonic()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with PulsarProcess("dedup") as broker, Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(names) * len(kinds))
        seen: set[int] = set()

        def say(one: Tried) -> None:
            seen.add(id(one))
            progress.update(task, completed=len(seen), description=f"{one.name}, {one.kind}: {one.tried}")

        urls = broker.service_url, broker.admin_url
        jobs = itertools.product(names, kinds)
        runs = run_all(urls, jobs, most=most, every=every, begin=arguments.point or 0, say=say)
    if arguments.as_json:
        print(json.dumps([asdict(one) for one in runs], indent=1))
    else:
        _summary(console, runs)
        console.print(f"{time.monotonic() - began:.0f} s")
    if arguments.save:
        _save(runs)
    return 1 if any(one.findings for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
