"""What several commands print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

__all__ = ["print_plan", "print_result", "write_page"]


def print_result(text: str) -> None:
    """Print the result of a command to standard output, as it is."""
    print(text)  # noqa: T201  # the result


def write_page(path: Path, page: str) -> None:
    """Write a page, and say so; whoever has the old one open sees the old or the new one, whole.

    Raises:
        InvalidUse: it cannot be written there.
    """
    beside = path.with_name(f"{path.name}.part")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InvalidUse(f"The page cannot be written to {path}: {error}; give another --html.") from error
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"drawn: {path}", style="dim", markup=False)


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
