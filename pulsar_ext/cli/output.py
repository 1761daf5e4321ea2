"""What several commands print, once or, with `--watch` and `--every`, repeatedly."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence  # noqa: TC003  # a dataclass is read at run time
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.bar import Bar
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pulsar_ext.errors import AdminError, AdminNotAllowed, AdminNotFound, AdminUnauthorized, InvalidUse, MissingExtra
from pulsar_ext.key_shared.hashing import SLOTS
from pulsar_ext.key_shared.plan import binned
from pulsar_ext.look.slots import plan_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges


DEFAULT_PICTURE = Path("ranges.png")
"""Where a picture of slots goes if no file is named; without matplotlib nothing is drawn then."""


_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
"""From no weight to the most."""
_WIDEST = 128
_SHARE = 24


def print_result(text: str) -> None:
    """Print the result of a command to standard output, as it is."""
    print(text)  # noqa: T201  # the result


def print_json(value: object) -> None:
    """Print the result of a command as a line of JSON, in escapes where the output's encoding lacks a character."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value)
    print_result(text)


def now_text() -> str:
    """Give the local time of now, as a page says when it was drawn."""
    return datetime.now().astimezone().isoformat(" ", "seconds")


def check_place(path: Path | None, option: str) -> None:
    """Check that a file can be written, before what it is to show is found out at length.

    Raises:
        InvalidUse: its directory is not there, or may not be written to; or it is itself a directory.
    """
    if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK)):
        raise InvalidUse(f"{path} cannot be written; give another {option}.")


def choose_picture(png: Path | None) -> Path | None:
    """Return the file to draw a picture into, None for no picture, before what it is to show is found out at length.

    Raises:
        InvalidUse: it cannot be written, or a file was named and what draws it is missing.
    """
    if png is DEFAULT_PICTURE and find_spec("matplotlib") is None:
        print("no picture is drawn: pip install 'pulsar-ext[bench]'", file=sys.stderr)  # noqa: T201  # a note
        return None
    check_place(png, "--png")
    if png is not None:
        with MissingExtra.named("bench", f"--png {png}"):
            import matplotlib as mpl  # noqa: F401, PLC0415  # an extra, which is loaded again to draw
    return png


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


@dataclass(frozen=True)
class Plan:
    """Key hash ranges, how much weight each has, and each slot."""

    topic: str
    by: str
    histogram: Mapping[int, float]
    ranges: Sequence[KeyHashRanges]
    weights: Sequence[float]


def print_plan(plan: Plan, *, html: Path | None, as_json: bool) -> None:
    """Print a plan, with the slots and the shares drawn.

    Args:
        plan: the plan.
        html: the page to draw it on as well, if any.
        as_json: print JSON instead of a picture.
    """
    if html is not None:
        write_page(html, plan_page(plan.histogram, plan.ranges, plan.weights, plan.topic, plan.by, now_text()))
    parts = [(str(part), weight) for part, weight in zip(plan.ranges, plan.weights, strict=True)]
    if as_json:
        print_json([{"ranges": part, plan.by: int(weight)} for part, weight in parts])
        return
    total, most = sum(plan.weights), max(plan.weights, default=0.0) or 1.0
    console = Console(highlight=False)
    columns = Column(plan.by, justify="right"), Column("share", justify="right")
    table = Table("ranges", *columns, Column(no_wrap=True, min_width=_SHARE))
    for part, weight in parts:
        bar = Bar(most, 0, weight, width=_SHARE, color="blue")
        table.add_row(part, f"{weight:,.0f}", f"{weight / total:.1%}" if total else "", bar)
    console.print(_slots(plan, console))
    console.print(table)


def _slots(plan: Plan, console: Console) -> Text:
    """Draw the weight of the slots as wide as there is room, and below it which range each belongs to, by turns."""
    width = min(console.width, _WIDEST)
    levels = _ASCII if console.options.ascii_only else _BLOCKS
    bins = binned(plan.histogram, width)
    highest = max(bins) or 1.0
    drawn = Text("".join(levels[math.ceil(one / highest * (len(levels) - 1))] for one in bins) + "\n", style="blue")
    owners = [next((at for at, part in enumerate(plan.ranges) if slot in part), None) for slot in _slots_of(width)]
    for at, column in enumerate(owners):
        label = "" if column is None else str(column % 10)
        is_first = at == 0 or owners[at - 1] != column
        drawn.append(label if is_first and label else " ", "" if column is None or column % 2 else "reverse")
    return drawn


def _slots_of(width: int) -> list[int]:
    return [(2 * at + 1) * SLOTS // (2 * width) for at in range(width)]


T = TypeVar("T")

_LONGEST_PAUSE = 30 * 86_400.0
_FINAL = (AdminNotFound, AdminUnauthorized, AdminNotAllowed)
"""What does not pass by itself."""


def check_pause(every: float) -> None:
    """Check the seconds between two looks.

    Raises:
        InvalidUse: nobody can wait so long.
    """
    if not 0 < every <= _LONGEST_PAUSE:
        raise InvalidUse(f"--every must be more than 0 seconds and at most {_LONGEST_PAUSE:.0f}, not {every!r}")


def look_again(look: Callable[[], T], *, watch: bool, every: float) -> T:
    """Look once and give what was seen; or go on looking, every so many seconds, until Ctrl-C.

    A broker that was seen before and does not answer now is told, and looked for again.
    """
    has_seen = False
    while True:
        try:
            seen = look()
            if not watch:
                return seen
            has_seen = True
        except _FINAL:
            raise
        except AdminError as error:
            if not has_seen:
                raise
            print(f"pulsar-ext: {error}", file=sys.stderr, flush=True)  # noqa: T201  # as every command's error
        time.sleep(every)
