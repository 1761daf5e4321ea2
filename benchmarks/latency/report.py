"""Latencies as a table for the terminal, and as a page and a plot."""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

from rich.table import Table

from benchmarks.latency.spread import PERCENTILES
from benchmarks.report import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.latency.spread import Spread

__all__ = ["page", "plot", "table"]

_COSTS: Final = (*(f"p{one:g}, ms" for one in PERCENTILES), "p99 of the runs", "most, ms")
_COLOURS: Final = {"pulsar": "tab:blue", "pulsar_ext": "tab:orange"}
_HEADINGS: Final = ("way", "messages/s", *(f"{cost}, {client}" for cost in _COSTS for client in _COLOURS), "messages")
_STYLES: Final = ("-", "--", ":")
_PAGE: Final = """\
# Latency of messages

Latency is the time from the moment when a message was due to be sent, at a constant rate, to the return of `receive()`
or of the iteration. One process sends and one receives, both with the same client; the clients take turns. Messages
have 100 bytes and are not batched. Two runs of each client at the highest rate warm the broker up, and the first tenth
of each run is not counted. The broker uses a concurrent garbage collector (ZGC), as in Pulsar's own scripts: otherwise
full collections that stop it for 0.2 s, about twice a minute at 10,000 messages per second, determine p99 for either
client.

Each percentile is the median over the runs, because one stall of the machine would be the 99th percentile of all of
them together; the range over single runs is in its own column. At 10,000 messages per second the sender, the broker and
the receiver share two cores that are busy throughout.

The official client cannot iterate, and receives one by one; it always acknowledges in groups of 100 ms. An
acknowledgement that is sent immediately takes some milliseconds, so it is measured at the lowest rate only.

{facts}

Repeat: `pip install -e '.[bench,testing]'`, then `python -m benchmarks.latency --save`. Java 17 or newer runs it.

{table}

![latency by rate](latency.png)
"""


def _rows(spreads: Sequence[Spread]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each way and rate, with each cost of both clients."""
    for (way, rate), ones in groupby(spreads, key=lambda spread: (spread.way, spread.rate)):
        clients = {spread.client: spread for spread in ones}
        costs = zip(*(_costs(clients.get(client)) for client in _COLOURS), strict=True)
        messages = max(spread.messages for spread in clients.values())
        yield way, f"{rate:,}", *chain.from_iterable(costs), f"{messages:,}"


def _costs(spread: Spread | None) -> tuple[str, ...]:
    if spread is None:
        return ("",) * len(_COSTS)
    least, most = spread.p99
    times = (f"{one:,.2f}" for one in spread.milliseconds)
    return *times, f"{least:,.1f} to {most:,.1f}", f"{spread.most:,.1f}"


def table(spreads: Sequence[Spread]) -> Table:
    """Return a table with a row for each way and rate."""
    made = Table()
    for heading in _HEADINGS:
        made.add_column(heading, justify="left" if heading == "way" else "right")
    for row in _rows(spreads):
        made.add_row(*row)
    return made


def page(spreads: Sequence[Spread], facts: Mapping[str, str]) -> str:
    """Return the page as Markdown."""
    rule = ["---" if heading == "way" else "---:" for heading in _HEADINGS]
    rows = [_HEADINGS, rule, *_rows(spreads)]
    return _PAGE.format(
        facts=sentence(facts),
        table="\n".join(f"| {' | '.join(row)} |" for row in rows),
    )


def plot(spreads: Sequence[Spread], path: Path) -> None:
    """Draw a panel for each way, both axes logarithmic: a line for each client and percentile."""
    import matplotlib as mpl  # noqa: PLC0415  # slow to load, and only needed here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # slow to load

    ways = list(dict.fromkeys(spread.way for spread in spreads))
    figure, grid = plt.subplots(
        1, len(ways), figsize=(5 * len(ways), 4), layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    for way, axes in zip(ways, grid.flat, strict=True):
        for client, colour in _COLOURS.items():
            points = [spread for spread in spreads if (spread.way, spread.client) == (way, client)]
            for at, (percent, style) in enumerate(zip(PERCENTILES, _STYLES, strict=True)):
                rates, times = [one.rate for one in points], [one.milliseconds[at] for one in points]
                axes.plot(rates, times, marker="o", linestyle=style, color=colour, label=f"{client}, p{percent:g}")
        axes.set(xscale="log", yscale="log", xlabel="messages a second", title=way.replace(", ", ",\n"))
        axes.title.set_fontsize(9)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("milliseconds from send to receive")
    grid[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)
