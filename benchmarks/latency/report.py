"""Latencies as a table for the terminal, and as a page and a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

from benchmarks.latency.spread import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.latency.spread import Spread

__all__ = ["page", "plot", "table"]

_HEADINGS: Final = (
    "way",
    "messages/s",
    "client",
    *(f"p{one:g}, ms" for one in PERCENTILES),
    "p99 of the runs",
    "most, ms",
    "messages",
)
_COLOURS: Final = {"pulsar": "tab:blue", "pulsar_ext": "tab:orange"}
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


def _row(spread: Spread) -> tuple[str, ...]:
    times = (f"{one:,.2f}" for one in spread.milliseconds)
    least, most = spread.p99
    runs = f"{least:,.1f} to {most:,.1f}"
    return spread.way, f"{spread.rate:,}", spread.client, *times, runs, f"{spread.most:,.1f}", f"{spread.messages:,}"


def table(spreads: Sequence[Spread]) -> Table:
    """Return a table with a row for each way, rate and client."""
    made = Table()
    for heading in _HEADINGS:
        made.add_column(heading, justify="left" if heading in {"way", "client"} else "right")
    for spread in spreads:
        made.add_row(*_row(spread))
    return made


def page(spreads: Sequence[Spread], facts: Mapping[str, str]) -> str:
    """Return the page as Markdown."""
    rule = ["---" if heading in {"way", "client"} else "---:" for heading in _HEADINGS]
    rows = [_HEADINGS, rule, *map(_row, spreads)]
    return _PAGE.format(
        facts="\n".join(f"- {name}: {value}" for name, value in facts.items()),
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
