"""The tables of a soak, for the terminal and for `RESULTS-soak.md`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

__all__ = ["save", "show"]

_BEGIN: Final = "<!-- written by soak.py -->\n"
_COLUMNS: Final = (
    "flow",
    "subscription",
    "confirmed",
    "failed",
    "lost",
    "deliveries",
    "again",
    "written_twice",
    "longest",
)
_GROWTH: Final = ("count", "second quarter", "last quarter", "highest", "may grow by")


def show(outcome: Any, console: Console) -> None:
    """Print the outcome of a run."""
    rows = Table(*(name.replace("_", " ") for name in _COLUMNS))
    for row in outcome.rows:
        rows.add_row(*(f"{row[name]:,}" if isinstance(row[name], int | float) else row[name] for name in _COLUMNS))
    levels = Table(*_GROWTH)
    for one in outcome.growths:
        levels.add_row(one.name, f"{one.second:g}", f"{one.last:g}", f"{one.highest:g}", f"{one.limit:g}")
    console.print(rows, levels)
    console.print(*_summary(outcome), sep="\n", markup=False)
    console.print(*(outcome.findings or ["nothing found"]), sep="\n", markup=False)


def save(outcome: Any, path: Path, committed: Path) -> None:
    """Write the tables after the handwritten part of the committed file."""
    head = committed.read_text(encoding="utf-8").split(_BEGIN)[0]
    path.write_text(head + _BEGIN + "\n" + "\n".join(_markdown(outcome)) + "\n", encoding="utf-8")


def _summary(outcome: Any) -> Iterator[str]:
    faults = Counter(name for _, name in outcome.faults)
    yield f"{outcome.minutes:g} minutes, seed {outcome.seed}"
    yield "faults: " + _counts(faults)
    yield "done: " + _counts(outcome.did)
    yield "errors reported to the application: " + _counts(outcome.errors)
    if outcome.closed:
        left = (f"{outcome.closed[name]} {name} ({outcome.before[name]})" for name in ("threads", "descriptors"))
        yield "open after everything is closed (before the first client): " + ", ".join(left)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"


def _markdown(outcome: Any) -> Iterator[str]:
    yield from (f"- {line}" for line in _summary(outcome))
    yield "- findings: " + ("; ".join(outcome.findings) or "none")
    yield ""
    yield "| " + " | ".join(_GROWTH) + " |"
    yield "|---|--:|--:|--:|--:|"
    for one in outcome.growths:
        yield f"| {one.name} | {one.second:,g} | {one.last:,g} | {one.highest:,g} | {one.limit:,g} |"
    yield ""
    yield "| flow | subscription | confirmed | failed | lost | deliveries | again | written twice | longest wait, s |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for row in outcome.rows:
        yield (
            f"| {row['flow']} | {row['subscription']} | {row['confirmed']:,} | {row['failed']:,} | {row['lost']:,} | "
            f"{row['deliveries']:,} | {row['again']:,} | {row['written_twice']:,} | {row['longest']:,} |"
        )
