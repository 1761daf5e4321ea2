"""Compare the speed of every path through `pulsar_ext` with the official client's.

    python -m benchmarks [--rounds N] [--only NAME] [--json] [--save] [--url URL]

Starts its own broker, runs each case with both clients in turn, and prints the ratios. Needs the extra `bench`, and
Java for the broker.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.brokers import broker_at
from benchmarks.cases import CASES
from benchmarks.measure import Result, measure, open_sides
from benchmarks.report import conditions, save, table
from benchmarks.steps import fill
from pulsar_ext.errors import BrokerStartError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Case

_FILE_DIRECTORY = Path(__file__).parent
_FILE_WIDTH = 150


def main() -> int:
    """Measure, print, and save if asked to; return 1 if a goal is missed, 2 if nothing can be measured."""
    arguments = _arguments()
    # With --json, only the result goes to standard output.
    console = Console(stderr=arguments.as_json, highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    cases = [case for case in CASES if arguments.only in case.name]
    if not cases or arguments.rounds < 2:  # quartiles need two
        console.print("no case has that name" if not cases else "--rounds must be >= 2")
        return 2
    try:
        with broker_at(arguments.url) as (url, *_):
            results = _measure_all(url, cases, arguments.rounds, console)
    except BrokerStartError as error:
        console.print(str(error), markup=False)
        return 2
    facts = conditions(results)
    if arguments.save:
        save(results, facts, _FILE_DIRECTORY)
    if arguments.as_json:
        print(json.dumps({"conditions": facts, "results": [asdict(result) for result in results]}, indent=1))
    else:
        console.print(table(results), *(f"{name}: {value}" for name, value in facts.items()), sep="\n")
    return 0 if all(result.reached for result in results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="pairs of runs for each case (25)")
    parser.add_argument("--only", default="", metavar="NAME", help="only cases whose name contains this")
    parser.add_argument("--url", nargs=1, help="a running broker, instead of a new one")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--save", action="store_true", help="write RESULTS.md and results.png beside this program")
    return parser.parse_args()


def _measure_all(url: str, cases: Sequence[Case], rounds: int, console: Console) -> list[Result]:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    messages = 2 * max(case.calls for case in cases)
    columns = (TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results = []
    sides = partial(open_sides, url, topic)
    with Progress(*columns, console=console) as progress:
        with sides() as (official, _):
            fill(official.client, topic, messages)
        task = progress.add_task("", total=len(cases) * (rounds + 1))
        for case in cases:
            progress.update(task, description=case.name)
            results.append(measure(case, sides, rounds, lambda: progress.advance(task)))
    return results


if __name__ == "__main__":
    sys.exit(main())
