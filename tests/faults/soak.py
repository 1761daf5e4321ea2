"""An hour of mixed work with a fault every few seconds: nothing is lost or doubled, and nothing grows.

    python tests/faults/soak.py [--minutes M] [--seed N] [--output DIRECTORY] [--save] [--json]

One process (`soak_worker.py`) has two long-lived clients, blocking and awaited: producers in batches, in chunks, with
deduplication, on partitions; subscriptions of each type, with each way to receive, to acknowledge, to acknowledge
negatively and to seek. All of them are closed and reopened every half minute, and more clients every second, while
topics are unloaded, connections cut or silent, a cursor is reset, and every few minutes the broker is killed.

Finally each confirmed message was delivered to each subscription, no message of a producer with deduplication is stored
twice, and no backlog remains. Memory, threads, file descriptors and pending counts are sampled: the median of the
last quarter may exceed that of the second one by `soak_levels.GROWTH` at most. And when everything is closed, the
process has as many threads and descriptors as before the first client.

Starts a broker of its own, which needs Java. Writes log, samples, tables and picture into `--output`; with `--save`
tables and picture beside this program, too. Exits with 1 after any finding.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from soak_faults import SETTINGS, Side, backlogs, prepare
from soak_levels import GROWTH, Growth, Sample, growths, plot
from soak_report import save, show
from soak_rig import POISON

from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import FaultProxy, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outcome", "run"]

_HERE: Final = Path(__file__).parent
_RESULTS: Final = _HERE / "RESULTS-soak.md"
_DRAIN_SECONDS: Final = 180.0  # incomplete chunked messages stay for a minute
_END_SECONDS: Final = 120.0
_SAMPLE_SECONDS: Final = 10.0
_LEVEL_MINUTES: Final = 10.0
"""Below this, only threads and descriptors are compared: memory levels off later."""
_LEFT: Final = {"threads": 2, "descriptors": 2}
"""Tolerated excess over the counts before the first client, when everything is closed."""
_STALLED_SECONDS: Final = 120.0


@dataclass
class Outcome:
    """Outcome of a run."""

    minutes: float
    seed: int
    samples: list[Sample] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    did: dict[str, int] = field(default_factory=dict)
    growths: list[Growth] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    closed: dict[str, Any] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Add the findings."""
        for row in self.rows:
            where = f"{row['flow']}, {row['subscription']}"
            if row["lost"]:
                self.findings.append(f"{where}: {row['lost']} lost, such as {row['lost_numbers']}")
            if row["once"] and row["written_twice"]:
                self.findings.append(f"{where}: {row['written_twice']} written twice")
            if row["without_outcome"] or row["outcomes_twice"]:
                counts = row["without_outcome"], row["outcomes_twice"]
                self.findings.append(f"{where}: {counts[0]} sends without an outcome, {counts[1]} surplus outcomes")
            if not row["deliveries"] and row["confirmed"] >= POISON:
                self.findings.append(f"{where}: nothing was delivered")
            if row["longest"] > _STALLED_SECONDS:
                self.findings.append(f"{where}: a message waited {row['longest']:.0f} s")
        names = GROWTH if self.minutes >= _LEVEL_MINUTES else tuple(_LEFT)
        self.growths = list(growths(self.samples, tuple(names)))
        self.findings += [
            f"{one.name} grows: {one.second:g} in the second quarter, {one.last:g} in the last"
            for one in self.growths
            if one.too_much
        ]
        self.findings += [
            f"{self.closed[name]} {name} remain when everything is closed, {self.before[name]} existed before"
            for name, more in _LEFT.items()
            if self.closed and self.closed[name] > self.before[name] + more
        ]


class _Worker:
    """The tested process, from outside."""

    def __init__(self, urls: tuple[str, str], seed: int, seconds: float, log: Path, outcome: Outcome) -> None:
        command = [sys.executable, str(_HERE / "soak_worker.py"), *urls, str(seed), str(seconds)]
        self._log = log.open("w", encoding="utf-8")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process: Any = subprocess.Popen(command, text=True, stderr=self._log, cwd=_HERE, **pipes)
        self._outcome = outcome
        self.last: Sample | None = None
        self.on_sample: Callable[[Sample], None] = lambda _: None
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def command(self, command: str) -> None:
        if self.lives:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """Let it close everything and report; a hanging process is killed, after its threads were logged."""
        self.command("end")
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._outcome.findings.append(f"the process hangs at its end; its threads are in {self._log.name}")
            subprocess.run(["kill", "-USR1", str(self._process.pid)], check=False)
            time.sleep(1)
            self._process.kill()
            self._process.wait()
        self._reading.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            pipe.close()
        if self._process.returncode:
            self._outcome.findings.append(f"the process ended with {self._process.returncode}")
        if not self._outcome.rows:
            self._outcome.findings.append("the process did not report the outcome of its messages")

    def _read(self) -> None:
        for line in self._process.stdout:
            report = json.loads(line)
            if "sample" in report:
                self.last = Sample(**report["sample"])
                self.on_sample(self.last)
            elif "closed" in report:
                self._outcome.before, self._outcome.closed = report["before"], report["closed"]
            elif "result" in report:
                self._outcome.rows = report["result"]
                self._outcome.errors, self._outcome.did = report["errors"], report["did"]
                self._outcome.findings += report["findings"]


def run(
    minutes: float,
    seed: int,
    output: Path,
    say: Callable[[Outcome, str], None] = lambda _, __: None,
    *,
    kills: bool = True,
) -> Outcome:
    """Soak for `minutes`.

    Args:
        minutes: duration of the work with faults, without draining.
        seed: of the faults and of all randomness in the worker.
        output: a directory for the worker's log.
        say: is called each second with the progress.
        kills: True if the broker is killed at times.
    """
    outcome = Outcome(minutes, seed)
    with (
        PulsarProcess("small-chunks", settings=SETTINGS, heap="512m") as broker,
        FaultProxy.to(broker.service_url) as proxy,
        PulsarAdmin(broker.admin_url) as admin,
    ):
        prepare(admin)
        sample_seconds = min(_SAMPLE_SECONDS, minutes * 60 / 20)
        urls = proxy.service_url, broker.admin_url
        worker = _Worker(urls, seed, sample_seconds, output / "soak-worker.log", outcome)
        side = Side(broker, proxy, admin, worker.command, random.Random(seed), kills=kills)

        def keep(sample: Sample) -> None:
            if not side.draining:
                sample.backlog, sample.stored_mib = side.stored()
                outcome.samples.append(sample)

        worker.on_sample = keep
        began = time.monotonic()
        while time.monotonic() - began < minutes * 60 and worker.lives:
            fault = side.next_fault()
            if fault:
                outcome.faults.append((time.monotonic() - began, fault))
            say(outcome, fault)
        side.draining = True
        proxy.resume()
        worker.command("drain")
        left = _drain(admin, worker, lambda: say(outcome, "drain"))
        outcome.findings += [f"{name}: a backlog of {count} remains" for name, count in left.items()]
        worker.end()
    outcome.judge()
    return outcome


def _drain(admin: PulsarAdmin, worker: _Worker, say: Callable[[], None]) -> dict[str, int]:
    """Wait until everything is delivered and acknowledged; return the remaining backlogs."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    left: dict[str, int] = {"": -1}
    while time.monotonic() < deadline and worker.lives:
        time.sleep(1)
        say()
        left = {name: count for name, count in backlogs(admin).items() if count}
        if not left and worker.last is not None and not worker.last.missing:
            break
    return left


def _write(outcome: Outcome, directory: Path) -> None:
    save(outcome, directory / _RESULTS.name, _RESULTS)
    plot(outcome.samples, outcome.faults, directory / "soak.png")


def main() -> int:
    """Run, and show the outcome."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="of work with faults (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of all randomness")
    parser.add_argument("--output", type=Path, default=Path(), help="a directory for the log, samples and tables (.)")
    parser.add_argument("--save", action="store_true", help="write RESULTS-soak.md and soak.png")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of tables")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress:
        task, began = progress.add_task("", total=arguments.minutes * 60), time.monotonic()

        def say(outcome: Outcome, fault: str) -> None:
            last = f"{outcome.samples[-1].rss_mib:.0f} MiB, {outcome.samples[-1].sent} sent" if outcome.samples else ""
            counts = Counter(name for _, name in outcome.faults)
            faults = ", ".join(f"{count} {name}" for name, count in counts.items())
            description = "draining" if fault == "drain" else f"{last}; {faults}"
            progress.update(task, completed=time.monotonic() - began, description=description)

        outcome = run(arguments.minutes, arguments.seed, arguments.output, say)
    samples = arguments.output / f"soak-{arguments.seed}.json"
    samples.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    _write(outcome, arguments.output)
    if arguments.as_json:
        print(samples.read_text(encoding="utf-8"))
    else:
        show(outcome, Console())
    if arguments.save:
        _write(outcome, _HERE)
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
