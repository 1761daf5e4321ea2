"""Results as a table for the terminal, and as a page and a plot."""

from __future__ import annotations

import datetime as dt
import os
import platform
import textwrap
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from rich.table import Table

import pulsar_ext
from pulsar_ext.testing import PULSAR_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.measure import Result

__all__ = ["conditions", "machine", "save", "sentence", "table"]

_HEADINGS: Final = ("path", "pulsar ns", "pulsar_ext ns", "ratio", "quartiles", "CPU ratio", "goal", "")

_PLOT_END: Final = 2.25

_PAGE: Final = """\
# Speed: pulsar_ext compared with the official client

Ratio is the rate of `pulsar_ext` over that of `pulsar`: above 1, `pulsar_ext` is faster. Both clients run in one
process, in turn; a ratio is the median over {rounds} pairs of runs, with its quartiles. ns is nanoseconds per call of
the median run. CPU ratio is the ratio by processor time: of the calling thread, or of the whole process if the client's
own threads do part of the work. Prefetched messages are in the client's queue before the run; the others come from the
broker during it, on the same cores, and both clients wait for them. Operations on an id alone are part of a path and
have no goal: an official id is a bare C++ object, that of `pulsar_ext` knows its chunks, hashes and pickles. Opening
has no goal either: to let Ctrl-C or a close end the wait without leaving anything open, `pulsar_ext` uses the C++
client's asynchronous call, which has its own row; no opening can be faster than that call.

{facts}

Repeat: `pip install -e '.[bench,testing]'`, then `python -m benchmarks --save`. Java 17 or newer runs the broker.

{table}

![ratios](results.png)
"""


def conditions(results: Sequence[Result]) -> dict[str, str]:
    """Return date, machine and versions of a measurement, in general words, and the number of pairs."""
    return machine() | {"pairs": str(results[0].rounds)}


def machine() -> dict[str, str]:
    """Return date, machine and versions of a measurement, in general words."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, shared with the broker",
        "Python": platform.python_version(),
        "pulsar-client": version("pulsar-client"),
        "pulsar-ext": pulsar_ext.__version__,
        "broker": f"{PULSAR_VERSION}, one process",
    }


def sentence(facts: Mapping[str, str]) -> str:
    """Return facts as a sentence in lines of at most 120 characters."""
    return textwrap.fill(
        f"{'; '.join(f'{name} {value}' for name, value in facts.items())}.", 120, break_on_hyphens=False
    )


def _rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    return [
        (
            result.name,
            f"{result.official_ns:,.0f}",
            f"{result.ours_ns:,.0f}",
            f"{result.ratio:.2f}",
            f"{result.low:.2f} to {result.high:.2f}",
            f"{result.cpu_ratio:.2f}",
            f"{result.goal:.2f}" if result.goal else "",
            "" if result.reached else "missed",
        )
        for result in results
    ]


def table(results: Sequence[Result]) -> Table:
    """Return the results as a table."""
    made = Table(*_HEADINGS[:1])
    for heading in _HEADINGS[1:]:
        made.add_column(heading, justify="right")
    for row in _rows(results):
        made.add_row(*row)
    return made


def save(results: Sequence[Result], facts: dict[str, str], directory: Path) -> None:
    """Write `RESULTS.md` and `results.png`."""
    lines = [" | ".join(row) for row in (_HEADINGS, ("---", *("---:" for _ in _HEADINGS[1:])), *_rows(results))]
    page = _PAGE.format(
        rounds=results[0].rounds,
        facts=sentence(facts),
        table="\n".join(f"| {line} |" for line in lines),
    )
    (directory / "RESULTS.md").write_text(page, encoding="utf-8")
    _plot(results, directory / "results.png")


def _plot(results: Sequence[Result], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415  # slow to load, and only needed here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # slow to load

    figure, axes = plt.subplots(figsize=(9, 0.36 * len(results) + 1.4), layout="constrained")
    places = range(len(results))
    ratios = [result.ratio for result in results]
    spread = [[one.ratio - one.low for one in results], [one.high - one.ratio for one in results]]
    colours = ["tab:green" if one.ratio >= one.goal else "tab:red" for one in results]
    axes.barh(places, ratios, color=colours, xerr=spread, error_kw={"ecolor": "0.3", "capsize": 2})
    axes.scatter(
        [one.goal or float("nan") for one in results], places, marker="|", s=160, color="black", zorder=3, label="goal"
    )
    for place, result in enumerate(results):
        axes.annotate(f"{result.ratio:.2f}", (_PLOT_END, place), (8, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, [result.name for result in results])
    axes.invert_yaxis()
    axes.axvline(1, color="0.5", linewidth=0.8)
    # A much faster path would squeeze all others; its number is printed instead.
    axes.set_xlim(0, _PLOT_END)
    axes.set_xlabel("rate of pulsar_ext / rate of the official client (median and quartiles)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 1.06), frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
