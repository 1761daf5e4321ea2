"""Measure the growth of cost with size, and fit the exponent k of cost ~ size^k for each line.

    python -m benchmarks.growth [--only LINE] [--quick] [--rounds N] [--json] [--save]

Starts its own brokers, one after the other. Each run has a fresh process, alternating with the official client if that
supports the line. `--quick` runs small sizes once, to check that the program works: its exponents are meaningless.
`--save` writes RESULTS-growth.md and growth.png. Exits with 1 if a line is not straight or could not be measured, with
2 if nothing can be measured. Needs the extras `bench` and `testing`, and Java for the broker.
"""

from __future__ import annotations

import contextlib
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.brokers import broker_at
from benchmarks.growth.lines import LINES
from benchmarks.growth.report import page, plot, points_table, summary
from benchmarks.growth.runs import measure_line
from benchmarks.options import parse_options
from benchmarks.report import machine
from pulsar_ext.errors import BrokerStartError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from benchmarks.growth.fit import Growth
    from benchmarks.growth.line import Line

_DIRECTORY = Path(__file__).parents[1]
_FILE_WIDTH = 190


def main() -> int:
    """Measure, print, and save if asked to; return 1 if a line is not straight, 2 if nothing can be measured."""
    arguments = _arguments()
    # With --json, only the result goes to standard output.
    console = Console(stderr=arguments.as_json, highlight=False, width=None if sys.stdout.isatty() else _FILE_WIDTH)
    lines = [line for line in LINES if arguments.only in line.name]
    if not lines:
        console.print("no line has that name; lines: " + "; ".join(line.name for line in LINES))
        return 2
    try:
        growths = _measure_all(lines, arguments)
    except BrokerStartError as error:
        console.print(str(error), markup=False)
        return 2
    facts = machine() | {"runs": f"{arguments.rounds} of each size, fewer if one takes long"}
    if arguments.save:
        (_DIRECTORY / "RESULTS-growth.md").write_text(page(growths, facts), encoding="utf-8")
        plot(growths, _DIRECTORY / "growth.png")
    if arguments.as_json:
        print(json.dumps({"conditions": facts, "lines": [growth.as_dict() for growth in growths]}, indent=1))
    else:
        console.print(
            points_table(growths), summary(growths), *(f"{name}: {value}" for name, value in facts.items()), sep="\n"
        )
    if arguments.quick:
        console.print("sizes this small only show that the program works; ignore the exponents")
    for growth in growths:
        for failure in growth.failures:
            console.print(f"not measured: {growth.name}: {failure}", markup=False)
    if any(growth.failures for growth in growths):
        return 1
    return 0 if arguments.quick or all(growth.is_straight for growth in growths) else 1


def _arguments() -> argparse.Namespace:
    return parse_options(
        "growth",
        (__doc__ or "").splitlines()[0],
        only="lines",
        quick="small sizes",
        rounds="maximum number of runs of each size and client",
    )


def _measure_all(lines: Sequence[Line], arguments: argparse.Namespace) -> list[Growth]:
    columns = (TextColumn("{task.description:100}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    growths = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=sum(len(_sizes(line, arguments)) for line in lines))
        # One broker at a time, each started once.
        for profile, group in groupby(sorted(lines, key=_profile_name), key=lambda line: line.profile):
            with broker_at(None, profile) if profile is not None else contextlib.nullcontext(()) as urls:
                for line in group:

                    def report(size: int, line: Line = line) -> None:
                        progress.update(task, description=f"{line.name}, {size:,} {line.unit}", advance=1)

                    growths[line.name] = measure_line(line, urls, _sizes(line, arguments), arguments.rounds, report)
    return [growths[line.name] for line in lines]


def _profile_name(line: Line) -> str:
    return line.profile.name if line.profile is not None else ""


def _sizes(line: Line, arguments: argparse.Namespace) -> tuple[int, ...]:
    return line.quick if arguments.quick else line.sizes


if __name__ == "__main__":
    sys.exit(main())
