"""Growth of every line as tables for the terminal, and as a page and a plot."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from benchmarks.growth.fit import STRAIGHT
from benchmarks.report import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.growth.fit import Growth, Point

__all__ = ["page", "plot", "points_table", "summary"]

_COLOURS: Final = {"pulsar": "tab:blue", "pulsar_ext": "tab:orange"}
_FITTED: Final = ("k, time", "k, memory", "us each", "KiB each")
_SUMMARY: Final = ("line", "largest", *(f"{one}, {client}" for one in _FITTED for client in _COLOURS), "")
_COSTS: Final = ("seconds", "us each", "KiB", "runs")
_POINTS: Final = ("line", "size", *(f"{cost}, {client}" for cost in _COSTS for client in _COLOURS), "requests")
_PAGE: Final = """\
# Growth of cost with size

Each line is measured at several sizes, and k of cost ~ size^k is fitted by least squares on the logarithms, over the
upper half of the sizes. k = 1 is a straight line: twice the size costs twice as much. A line of `pulsar_ext` whose time
or memory has a k above {straight} is marked as not straight.

Each run has a fresh process, alternating with the official client if that supports the line. A run of a middle size
warms the broker up before each line, and is not counted. Seconds are those of the fastest run. KiB is the peak memory
of the process, above its memory before it opened a client. KiB each is the memory per additional item, between the
smallest size and the largest. An acknowledgement is complete when the broker's cursor shows it: by
`flush_acks(confirm=True)`, or for the official client by polling the cursor.

{facts}

Repeat: `pip install -e '.[bench,testing]'`, then `python -m benchmarks.growth --save`. Java 17 or newer runs it.

{summary}

![cost by size](growth.png)

{points}
"""


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _summary_rows(growths: Sequence[Growth]) -> Iterator[tuple[str, ...]]:
    for growth in growths:
        fitted = zip(*(_fitted(growth, client) for client in _COLOURS), strict=True)
        largest = f"{max((point.size for point in growth.points), default=0):,} {growth.unit}"
        yield growth.name, largest, *chain.from_iterable(fitted), "" if growth.is_straight else "not straight"


def _fitted(growth: Growth, client: str) -> tuple[str, ...]:
    if client not in growth.clients:
        return ("",) * len(_FITTED)
    exponents = growth.time_exponent(client), growth.memory_exponent(client)
    return tuple(map(_number, (*exponents, growth.of(client)[-1].each_us, growth.each_kib(client))))


def _point_rows(growth: Growth) -> Iterator[tuple[str, ...]]:
    """Yield a row for each size, with each cost of both clients; only the first one names the line."""
    name = growth.name
    for size in sorted({point.size for point in growth.points}):
        points = {point.client: point for point in growth.points if point.size == size}
        costs = zip(*(_costs(points.get(client)) for client in _COLOURS), strict=True)
        requests = next((f"{point.requests:,}" for point in points.values() if point.requests is not None), "")
        yield name, f"{size:,} {growth.unit}", *chain.from_iterable(costs), requests
        name = ""
    if growth.far is not None and growth.far_seconds is not None:
        each = growth.far_seconds / growth.far * 1e6
        costs = ("", _number(growth.far_seconds, 4), "", _number(each, 4))
        yield "", f"{growth.far:,} {growth.unit}, by arithmetic", *costs, *[""] * (len(_POINTS) - 6)


def _costs(point: Point | None) -> tuple[str, ...]:
    if point is None:
        return ("",) * len(_COSTS)
    return _number(point.seconds, 4), _number(point.each_us), _number(point.kib, 0), str(point.runs)


def summary(growths: Sequence[Growth]) -> Table:
    """Return a table with a row for each line: its exponents, and the largest size."""
    return _table(_SUMMARY, _summary_rows(growths), texts=2)


def points_table(growths: Sequence[Growth]) -> Table:
    """Return a table with a row for each line and size."""
    return _table(_POINTS, chain.from_iterable(map(_point_rows, growths)), texts=2)


def _table(headings: Sequence[str], rows: Iterable[tuple[str, ...]], texts: int) -> Table:
    made = Table()
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="left" if number < texts else "right")
    for row in rows:
        made.add_row(*row)
    return made


def page(growths: Sequence[Growth], facts: Mapping[str, str]) -> str:
    """Return the page as Markdown."""
    failures = [f"Not measured: {growth.name}, {failure}" for growth in growths for failure in growth.failures]
    points = _markdown(_POINTS, list(chain.from_iterable(map(_point_rows, growths))), texts=2)
    return _PAGE.format(
        straight=STRAIGHT,
        facts=sentence(facts),
        summary=_markdown(_SUMMARY, list(_summary_rows(growths)), texts=2),
        points="\n\n".join((points, *failures)),
    )


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    rule = ["---" if number < texts else "---:" for number in range(len(headings))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))


def plot(growths: Sequence[Growth], path: Path) -> None:
    """Draw a panel for each line, both axes logarithmic: seconds with dots, KiB dashed on a second axis."""
    import matplotlib as mpl  # noqa: PLC0415  # slow to load, and only needed here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # slow to load

    columns = 3
    count = -(-len(growths) // columns)
    figure, grid = plt.subplots(count, columns, figsize=(15, 3.6 * count), layout="constrained", squeeze=False)
    panels = list(grid.flat)
    for growth, axes in zip(growths, panels, strict=False):
        _panel(growth, axes)
    for axes in panels[len(growths) :]:
        axes.axis("off")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _panel(growth: Growth, axes: Any) -> None:
    for client in growth.clients:
        points = [point for point in growth.of(client) if point.size]
        sizes, seconds = [point.size for point in points], [point.seconds for point in points]
        axes.plot(sizes, seconds, "o-", color=_COLOURS[client], label=_label(growth, client))
    axes.set(xscale="log", yscale="log", xlabel=growth.unit, ylabel="seconds", title=growth.name.replace(": ", ":\n"))
    axes.title.set_fontsize(9)
    axes.spines["top"].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    held = [point for point in growth.points if point.size and point.kib]
    if held:
        _memory(held, axes.twinx())


def _memory(held: Sequence[Point], axes: Any) -> None:
    for client in dict.fromkeys(point.client for point in held):
        points = sorted((point.size, point.kib) for point in held if point.client == client)
        axes.plot(*zip(*points, strict=True), "--", color=_COLOURS[client], alpha=0.5)
    axes.set(yscale="log", ylabel="KiB, dashed")
    axes.spines["top"].set_visible(False)


def _label(growth: Growth, client: str) -> str:
    k = growth.time_exponent(client)
    return client if k is None else f"{client}, k = {k:.2f}"
