"""Command line options of the programs that measure several lines and write a page and a plot."""

from __future__ import annotations

import argparse

__all__ = ["parse_options"]


def parse_options(program: str, description: str, *, only: str, quick: str, rounds: str) -> argparse.Namespace:
    """Parse the command line: `only`, `quick`, `rounds`, `as_json` and `save`.

    Args:
        program: the name NAME of `python -m benchmarks.NAME`.
        description: of the program, in a line.
        only: the items that `--only` selects from.
        quick: the runs of `--quick`.
        rounds: the unit of `--rounds`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}", description=description)
    parser.add_argument("--only", default="", metavar="LINE", help=f"only {only} whose name contains this")
    parser.add_argument("--quick", action="store_true", help=f"{quick}, once: does it work?")
    parser.add_argument("--rounds", type=int, default=3, help=f"{rounds} (3)")
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", action="store_true", help=f"write RESULTS-{program}.md and {program}.png")
    options = parser.parse_args()
    if options.save and (options.only or options.quick):
        parser.error("--save writes the whole page: omit --only and --quick")
    if options.rounds < 1:
        parser.error(f"--rounds must be >= 1, got {options.rounds}")
    if options.quick:
        options.rounds = 1
    return options
