"""Run the official client's own test suite with `pulsar` and with `pulsar_ext`, and show where they differ.

    python tests/official/run.py CHECKOUT [--json] [--only NAME] [--files pulsar_test.py …]

CHECKOUT is a checkout of the official Python client's repository at the tag of the installed client. It is only read:
its tests run in a temporary copy, in which every import of `pulsar` becomes one of `pulsar_ext` for the second half.
Each half has a fresh broker, and each test a fresh process, so that a hang or a crash is a result like any other. A
test that passes with `pulsar` only is repeated with both before it counts. Needs Java and pytest, and for the schema
tests fastavro, protobuf and requests. The exit status is 1 if a test differs, 2 if the suite cannot be run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from suite import CLIENTS, FILES, STATUSES, Outcome, run_tests, test_names

from pulsar_ext.errors import BrokerStartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Comparison:
    """Outcomes of a test with both clients: the first run, and repeated runs if only the official client passed it."""

    test: str
    official: list[Outcome]
    ours: list[Outcome]

    @property
    def is_suspect(self) -> bool:
        """True if the first run passed with the official client only."""
        return _passed(self.official[:1]) > _passed(self.ours[:1])

    @property
    def differs(self) -> bool:
        """True if the repetitions confirm the difference: the official client passed more of them."""
        return self.is_suspect and _passed(self.official[1:]) > _passed(self.ours[1:])


def main() -> int:
    """Run everything, print the result, and return the exit status."""
    arguments = _arguments()
    # With --json, only the result goes to standard output.
    console = Console(stderr=arguments.as_json, highlight=False)
    tests = arguments.checkout / "tests"
    missing = [name for name in arguments.files if not (tests / name).is_file()]
    if missing:
        console.print(f"{tests} has no {', '.join(missing)}: pass a checkout of the official Python client")
        return 2
    names = [name for file in arguments.files for name in test_names(tests / file) if arguments.only in name]
    try:
        compared = _compare(tests, names, arguments.timeout, arguments.repeats, console)
    except BrokerStartError as error:
        console.print(str(error), markup=False)
        return 2
    if arguments.as_json:
        print(json.dumps(_report(compared), indent=1))
    else:
        _show(console, compared)
    return 1 if any(one.differs for one in compared) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="checkout of the official Python client's repository")
    parser.add_argument("--files", nargs="+", default=FILES, metavar="FILE", help="files of its tests; by default all")
    parser.add_argument("--only", default="", metavar="NAME", help="only tests whose name contains this")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each test (120)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions before a difference counts (3)")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def _compare(tests: Path, names: Sequence[str], timeout: float, repeats: int, console: Console) -> list[Comparison]:
    compared = {name: Comparison(name, [], []) for name in names}
    columns = (TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        def run_both(what: str, some: Sequence[str]) -> None:
            for client in CLIENTS:
                task = progress.add_task(client, total=len(some))

                def report(name: str, outcome: Outcome, client: str = client, task: TaskID = task) -> None:
                    progress.update(task, advance=1, description=f"{client}, {what}: {name.split('::')[2]}")
                    if outcome.status not in ("passed", "skipped"):
                        progress.console.print(f"{client}: {name} {outcome.status}, {outcome.seconds:.0f} s")

                for name, outcome in run_tests(tests, client, some, timeout, report).items():
                    (compared[name].official if client == CLIENTS[0] else compared[name].ours).append(outcome)

        run_both("all", names)
        suspects = [one.test for one in compared.values() if one.is_suspect]
        for turn in range(repeats if suspects else 0):
            run_both(f"again {turn + 1}", suspects)
    return list(compared.values())


def _passed(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.status == "passed" for outcome in outcomes)


def _counts(compared: Iterable[Comparison], client: str) -> Counter[str]:
    return Counter((one.official if client == CLIENTS[0] else one.ours)[0].status for one in compared)


def _report(compared: Sequence[Comparison]) -> dict[str, object]:
    return {
        "versions": {name: version(name.replace("_", "-")) for name in ("pulsar_client", "pulsar_ext")},
        "counts": {client: {status: _counts(compared, client)[status] for status in STATUSES} for client in CLIENTS},
        "differences": [asdict(one) for one in compared if one.differs],
        "flaky": [one.test for one in compared if one.is_suspect and not one.differs],
        "tests": {one.test: {"pulsar": one.official[0].status, "pulsar_ext": one.ours[0].status} for one in compared},
    }


def _show(console: Console, compared: Sequence[Comparison]) -> None:
    title = f"the official test suite, pulsar-client {version('pulsar-client')}, pulsar-ext {version('pulsar-ext')}"
    table = Table("file", "client", *STATUSES, title=title)
    files = dict.fromkeys(one.test.split("::")[0] for one in compared)
    for label, prefix in (*((file, file) for file in files), ("all", "")):
        for client in CLIENTS:
            counts = _counts((one for one in compared if one.test.startswith(prefix)), client)
            table.add_row(label, client, *(str(counts[status] or "") for status in STATUSES))
    console.print(table)
    for one in compared:
        statuses = "; ".join(
            f"{client} {', '.join(outcome.status for outcome in outcomes)}"
            for client, outcomes in zip(CLIENTS, (one.official, one.ours), strict=True)
        )
        if one.differs:
            console.print(f"DIFFERS  {one.test}: {statuses}\n{one.ours[-1].detail}", markup=False)
        elif one.is_suspect:
            console.print(f"flaky    {one.test}: {statuses}", markup=False)
        elif one.official[0].status == one.ours[0].status not in ("passed", "skipped"):
            console.print(f"both     {one.test}: {statuses}", markup=False)
    console.print(f"{sum(one.differs for one in compared)} tests pass with pulsar and not with pulsar_ext")


if __name__ == "__main__":
    sys.exit(main())
