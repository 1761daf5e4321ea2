"""Any two operations at once, on a model and on a real broker: nothing is lost, and nothing hangs.

    python tests/faults/pairs.py [--runs N] [--seed N] [--only OPERATION] [--model N] [--json] [--save]

On the broker, each run has a topic and a consumer of its own: two operations run within 200 ms while messages are
received and acknowledged in all ways. Afterwards every message was received, and again after a seek moved the cursor;
unacknowledged messages are delivered to another consumer, and after all acknowledgements the backlog is empty. A run is
repeated by its number: `--seed N --runs 1`.

`--model N` tries N random sequences of moves on a model instead, and each two and three moves in every order. `--save`
writes `RESULTS-pairs.md`. Starts a broker of its own, which needs Java. Exits with 1 after any finding.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pairs_cases import PAIRS, case_of
from pairs_machine import every_order, every_two_at_once, run_machine, try_at_once, try_order
from pairs_operations import OPERATIONS
from pairs_rig import CHUNK_BYTES
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Outcome", "run_all", "start_broker"]

_HERE = Path(__file__).parent
_RESULTS = _HERE / "RESULTS-pairs.md"
_BEGIN = "<!-- written by pairs.py -->\n"
_AT_ONCE: Final = 6
"""Number of concurrent runs."""


@dataclass
class Outcome:
    """Outcome of all runs."""

    done: list[int] = field(default_factory=list)
    findings: dict[int, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def found(self, seed: int, *problems: str) -> None:
        """Add the problems of a run."""
        self.findings.setdefault(seed, []).extend(problems)


def start_broker() -> PulsarProcess:
    """Return a broker whose messages have chunks of 20 KiB, not started yet."""
    return PulsarProcess("small-chunks", settings={"maxMessageSize": CHUNK_BYTES})


def run_all(broker: PulsarProcess, seeds: Iterable[int], *, say: Callable[[Outcome], None] = lambda _: None) -> Outcome:
    """Carry out runs by their numbers; those that kill the broker are last, in processes of their own.

    Args:
        broker: the broker.
        seeds: the numbers.
        say: is called after each run.
    """
    outcome = Outcome()
    seeds = list(seeds)
    while seeds:
        begun = _work(broker, seeds, outcome, say)
        seeds = [seed for seed in seeds if seed not in begun]
    return outcome


def _work(broker: PulsarProcess, seeds: list[int], outcome: Outcome, say: Callable[[Outcome], None]) -> set[int]:
    """Carry out runs in a process; return those that it started: it may end before the others."""
    command = [sys.executable, str(_HERE / "pairs_worker.py"), broker.service_url, broker.admin_url]
    command += [str(_AT_ONCE), json.dumps(seeds)]
    begun: set[int] = set()
    ended: set[int] = set()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=_HERE
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for line in worker.stdout:
            if not line.startswith("{"):
                continue
            report: dict[str, Any] = json.loads(line)
            if "began" in report:
                begun.add(report["began"])
            elif "kill" in report:
                broker.kill()
                broker.restart()
                with contextlib.suppress(BrokenPipeError):  # it has ended, which is detected below
                    worker.stdin.write("\n")
                    worker.stdin.flush()
            elif "done" in report:
                seed = report["done"]
                ended.add(seed)
                outcome.done.append(seed)
                outcome.seconds += report["seconds"]
                if report["problems"]:
                    outcome.found(seed, *report["problems"])
                say(outcome)
    cut_off = begun - ended
    if cut_off == set(seeds[:1]):
        outcome.done += cut_off
        outcome.found(seeds[0], f"the process ended with status {worker.returncode}")
        say(outcome)
    else:
        for seed in sorted(cut_off):  # alone, to determine the one at fault
            _work(broker, [seed], outcome, say)
    return begun or set(seeds)


def _markdown(outcome: Outcome) -> Iterator[str]:
    runs = Counter(frozenset(case_of(seed).operations) for seed in outcome.done)
    each = f"{min(runs.values())} to {max(runs.values())} runs of each of {len(runs)} pairs of operations"
    yield f"{len(outcome.done)} runs, {len(outcome.findings)} with findings; {each}, of {len(PAIRS)}:"
    kinds = Counter((case_of(seed).shape, case_of(seed).type) for seed in outcome.done)
    types = sorted({type_name for _, type_name in kinds})
    yield ""
    yield f"| | {' | '.join(types)} |"
    yield "|---|" + "--:|" * len(types)
    for shape in sorted({shape for shape, _ in kinds}):
        yield f"| {shape} | {' | '.join(str(kinds[shape, one]) for one in types)} |"
    if outcome.findings:
        yield ""
        yield "| run | two | kind | what |"
        yield "|--:|---|---|---|"
        for seed, problems in sorted(outcome.findings.items()):
            case = case_of(seed)
            yield f"| {seed} | {case.first}, {case.second} | {case.shape}, {case.type} | {'; '.join(problems)} |"


def _save(outcome: Outcome) -> None:
    text = _RESULTS.read_text() if _RESULTS.exists() else _BEGIN
    _RESULTS.write_text(text.split(_BEGIN)[0] + _BEGIN + "\n" + "\n".join(_markdown(outcome)) + "\n")


def _summary(console: Console, outcome: Outcome) -> None:
    if outcome.findings:
        table = Table("run", "two", "kind", "what")
        for seed, problems in sorted(outcome.findings.items()):
            case = case_of(seed)
            table.add_row(str(seed), f"{case.first}, {case.second}", f"{case.shape}, {case.type}", "\n".join(problems))
        console.print(table)
    mean = outcome.seconds / max(len(outcome.done), 1)
    console.print(f"{len(outcome.done)} runs of {mean:.1f} s, {len(outcome.findings)} with findings")


def _run_model(count: int, console: Console) -> int:
    began = time.monotonic()
    orders = sum(1 for world, moves in every_order() if try_order(world, moves))
    nested = sum(1 for world, moves in every_two_at_once() if try_at_once(world, moves) is None)
    console.print(f"{orders} orders and {nested} moves within moves; {time.monotonic() - began:.0f} s")
    run_machine(count, 30)
    console.print(f"{count} random sequences; {time.monotonic() - began:.0f} s")
    return 0


def main() -> int:
    """Run the requested pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="number of runs on the broker (2000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first run (0)")
    parser.add_argument("--only", choices=OPERATIONS, help="only runs with this operation")
    parser.add_argument("--model", type=int, help="number of random sequences, on the model instead")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a summary")
    parser.add_argument("--save", action="store_true", help="write RESULTS-pairs.md")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    if arguments.model is not None:
        return _run_model(arguments.model, console)
    seeds: list[int] = []
    seed = arguments.seed
    while len(seeds) < arguments.runs:
        if arguments.only is None or arguments.only in case_of(seed).operations:
            seeds.append(seed)
        seed += 1
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with start_broker() as broker, Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(seeds))
        known: set[int] = set()

        def say(now: Outcome) -> None:
            for one in now.findings.keys() - known:
                progress.console.print(case_of(one), now.findings[one])
            known.update(now.findings)
            progress.update(task, completed=len(now.done), description=f"{len(now.findings)} with findings")

        outcome = run_all(broker, seeds, say=say)
    if arguments.as_json:
        findings = [{**vars(case_of(one)), "problems": two} for one, two in sorted(outcome.findings.items())]
        print(json.dumps({"runs": len(outcome.done), "findings": findings}, indent=1))
    else:
        _summary(console, outcome)
    if arguments.save:
        _save(outcome)
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
