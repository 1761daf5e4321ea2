"""Output that several commands share, printed once or, with `--watch` and `--every`, repeatedly."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from rich.bar import Bar
from rich.console import Console, ConsoleRenderable
from rich.table import Column, Table
from rich.text import Text

from pulsar_ext.errors import AdminError, AdminNotAllowed, AdminNotFound, AdminUnauthorized, InvalidUse, MissingExtra
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import SLOTS
from pulsar_ext.key_shared.plan import binned, weights_of
from pulsar_ext.look.page import plan_page

from .arguments import DEFAULT_PICTURE

SEVERITY_COLOURS = {"warning": "yellow", "error": "red"}
_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
"""Characters in ascending weight."""
_WIDEST = 128
_SHARE = 24


def print_result(result: object) -> None:
    """Print the result of a command: a drawing, text as it is, or a line of JSON, escaped for a limited encoding."""
    if isinstance(result, ConsoleRenderable):
        Console(highlight=False).print(result)
        return
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    if text is not result:
        try:
            text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            text = json.dumps(result)
    print(text, flush=True)  # noqa: T201  # the result


def note(line: str) -> None:
    """Print a note about the work to standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(line, style="dim", markup=False)


def now_text() -> str:
    """Return the current local time, as pages show it."""
    return datetime.now().astimezone().isoformat(" ", "seconds")


def check_writable(path: Path | None, option: str) -> None:
    """Check that a file can be written, before a long computation of its content."""
    if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK)):
        raise InvalidUse(f"{path} cannot be written; pass another {option}")


def choose_picture(png: Path | None) -> Path | None:
    """Return the file of a picture, or None for no picture, before a long computation of its content."""
    if png is DEFAULT_PICTURE and find_spec("matplotlib") is None:
        print("no picture without matplotlib: pip install 'pulsar-ext[bench]'", file=sys.stderr)  # noqa: T201  # a note
        return None
    check_writable(png, "--png")
    if png is not None:
        with MissingExtra.named("bench", f"--png {png}"):
            import matplotlib as mpl  # noqa: F401, PLC0415  # an extra, checked early
    return png


def write_page(path: Path, page: str) -> None:
    """Replace a page atomically, and print its path."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InvalidUse(f"{path} cannot be written ({error}); pass another --html") from error
    note(f"written: {path}")


def print_plan(
    topic: str,
    by: str,
    histogram: Mapping[int, float],
    ranges: Sequence[KeyHashRanges],
    *,
    html: Path | None,
    as_json: bool,
) -> None:
    """Print a plan with a picture of the slots and the shares, or as JSON; write a page with the picture if wanted."""
    if html is not None:
        write_page(html, plan_page(histogram, ranges, topic, by, now_text()))
    weights = weights_of(histogram, ranges)
    parts = [(str(part), weight) for part, weight in zip(ranges, weights, strict=True)]
    if as_json:
        print_result([{"ranges": part, by: int(weight)} for part, weight in parts])
        return
    total, most = sum(weights), max(weights, default=0.0) or 1.0
    console = Console(highlight=False)
    columns = Column(by, justify="right"), Column("share", justify="right")
    table = Table("ranges", *columns, Column(no_wrap=True, min_width=_SHARE))
    for part, weight in parts:
        bar = Bar(most, 0, weight, width=_SHARE, color="blue")
        table.add_row(part, f"{weight:,.0f}", f"{weight / total:.1%}" if total else "", bar)
    console.print(_slots(histogram, ranges, console))
    console.print(table)


def _slots(histogram: Mapping[int, float], ranges: Sequence[KeyHashRanges], console: Console) -> Text:
    """Draw the weight of the slots, and below it the number of the range of each column."""
    width = min(console.width, _WIDEST)
    levels = _ASCII if console.options.ascii_only else _BLOCKS
    bins = binned(histogram, width)
    highest = max(bins) or 1.0
    drawn = Text("".join(levels[math.ceil(one / highest * (len(levels) - 1))] for one in bins) + "\n", style="blue")
    slots = [(2 * at + 1) * SLOTS // (2 * width) for at in range(width)]
    owners = [next((at for at, part in enumerate(ranges) if slot in part), None) for slot in slots]
    for at, column in enumerate(owners):
        label = "" if column is None else str(column % 10)
        is_first = at == 0 or owners[at - 1] != column
        drawn.append(label if is_first and label else " ", "" if column is None or column % 2 else "reverse")
    return drawn


T = TypeVar("T")

_LONGEST_PAUSE = 30 * 86_400.0
_FINAL = (AdminNotFound, AdminUnauthorized, AdminNotAllowed)
"""Errors that no later attempt resolves."""


def run_repeatedly(action: Callable[[], T], *, watch: bool, every: float) -> T:
    """Return an action's result; with `watch`, repeat it until Ctrl-C, also while the broker no longer answers."""
    if not 0 < every <= _LONGEST_PAUSE:
        raise InvalidUse(f"--every must be > 0 and <= {_LONGEST_PAUSE:.0f} seconds, got {every!r}")
    has_succeeded = False
    while True:
        try:
            result = action()
            if not watch:
                return result
            has_succeeded = True
        except _FINAL:
            raise
        except AdminError as error:
            if not has_succeeded:
                raise
            print(f"pulsar-ext: {error}", file=sys.stderr, flush=True)  # noqa: T201  # printed as any error
        time.sleep(every)
