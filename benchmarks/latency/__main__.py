"""Measure the latency of messages from send to receive, compared with the official client in turn.

    python -m benchmarks.latency [--only LINE] [--quick] [--rounds N] [--json] [--save]

Starts its own broker, and warms it up by two runs of each client. Measures p50, p99 and p99.9 at 100, 1,000 and 10,000
messages per second, with acknowledgements sent one by one, in groups, and with prefetching. `--quick` takes two seconds
per run, once, to check that the program works. `--save` writes RESULTS-latency.md and latency.png. Exits with 1 if a
measurement failed, with 2 if nothing can be measured. Needs the extras `bench` and `testing`, and Java for the broker.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.brokers import broker_at
from benchmarks.fresh_process import CallError
from benchmarks.latency.report import page, plot, table
from benchmarks.latency.runs import WAYS, measure_run
from benchmarks.latency.spread import Spread, spread_of
from benchmarks.options import parse_options
from benchmarks.report import machine
from pulsar_ext.errors import BrokerStartError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_DIRECTORY: Final = Path(__file__).parents[1]
_FILE_WIDTH: Final = 150
_CLIENTS: Final = ("pulsar", "pulsar_ext")
_SECONDS, _QUICK_SECONDS = 20.0, 2.0
_WARM_UP_RUNS: Final = 2
_CONCURRENT_GC: Final = ("-XX:-UseSerialGC", "-XX:+UseZGC")
"""A full collection of the harness's default collector stops the broker for 0.2 s; Pulsar's own scripts use ZGC."""


def main() -> int:
    """Measure, print, and save if asked to; return 1 if a measurement failed, 2 if nothing can be measured."""
    arguments = _arguments()
    # With --json, only the result goes to standard output.
    console = Console(stderr=arguments.as_json, highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    ways = [way for way in WAYS if arguments.only in way]
    if not ways:
        console.print("no line has that name; lines: " + "; ".join(WAYS), markup=False)
        return 2
    try:
        with broker_at(None, java_options=_CONCURRENT_GC) as urls:
            spreads, failures = _measure_all(urls, ways, arguments)
    except BrokerStartError as error:
        console.print(str(error), markup=False)
        return 2
    facts = machine() | {"runs": f"{arguments.rounds}, of {arguments.seconds:.0f} s each"}
    if arguments.save:
        (_DIRECTORY / "RESULTS-latency.md").write_text(page(spreads, facts), encoding="utf-8")
        plot(spreads, _DIRECTORY / "latency.png")
    if arguments.as_json:
        print(json.dumps({"conditions": facts, "results": [asdict(spread) for spread in spreads]}, indent=1))
    else:
        console.print(table(spreads), *(f"{name}: {value}" for name, value in facts.items()), sep="\n")
    for failure in failures:
        console.print(f"not measured: {failure}", markup=False)
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    options = parse_options(
        "latency",
        (__doc__ or "").splitlines()[0],
        only="ways to receive",
        quick="two seconds a run",
        rounds="pairs of runs",
    )
    options.seconds = _QUICK_SECONDS if options.quick else _SECONDS
    return options


def _measure_all(
    urls: Sequence[str], ways: Sequence[str], arguments: argparse.Namespace
) -> tuple[list[Spread], list[str]]:
    columns = (TextColumn("{task.description:90}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    spreads, failures = [], []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        kinds = [(way, rate) for way in ways for rate in WAYS[way].rates]
        task = progress.add_task("the broker warms up", total=len(kinds) * arguments.rounds)
        busiest, most = max(kinds, key=itemgetter(1))
        for client in _CLIENTS * _WARM_UP_RUNS:
            with contextlib.suppress(CallError):  # a lasting error is raised again in the counted runs
                measure_run(urls, client, busiest, most, arguments.seconds)
        for way, rate in kinds:
            runs: dict[str, list[Sequence[float]]] = {client: [] for client in _CLIENTS}
            for turn in range(arguments.rounds):
                progress.update(task, description=f"{way}, {rate:,}/s")
                for client in _CLIENTS if turn % 2 else reversed(_CLIENTS):
                    try:
                        runs[client].append(measure_run(urls, client, way, rate, arguments.seconds))
                    except CallError as error:
                        failures.append(f"{client}, {way}, {rate:,}/s: {error}")
                progress.advance(task)
            spreads += [spread_of(way, rate, client, found) for client, found in runs.items() if found]
    return spreads, failures


if __name__ == "__main__":
    sys.exit(main())
