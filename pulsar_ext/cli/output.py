"""What several commands print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

__all__ = ["print_plan", "print_result"]


def print_result(text: str) -> None:
    """Print the result of a command to standard output, as it is."""
    print(text)  # noqa: T201  # the result


def print_plan(ranges: Iterable[KeyHashRanges], weights: Iterable[float], by: str, *, as_json: bool) -> None:
    """Print key hash ranges and how much weight each has.

    Args:
        ranges: the ranges.
        weights: the weight of each.
        by: what was weighed, such as "messages".
        as_json: print JSON instead of a table.
    """
    parts = [(str(part), weight) for part, weight in zip(ranges, weights, strict=True)]
    if as_json:
        print_result(json.dumps([{"ranges": part, by: int(weight)} for part, weight in parts]))
        return
    total = sum(weight for _, weight in parts)
    table = Table("ranges", Column(by, justify="right"), Column("share", justify="right"))
    for part, weight in parts:
        table.add_row(part, f"{weight:,.0f}", f"{weight / total:.1%}" if total else "")
    Console().print(table)
