"""Samples of a process, their growth, and their picture."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["GROWTH", "Growth", "Sample", "growths", "plot"]


@dataclass
class Sample:
    """Counts of the tested process at one time, and the broker's counts for it."""

    seconds: float
    rss_mib: float
    threads: int
    descriptors: int
    uncollected: int
    """File descriptors before a garbage collection; all other counts are sampled after it."""
    python_threads: int
    objects: int
    tasks: int
    pending_acks: int
    missing: int
    oldest: float
    sent: int
    backlog: int = -1
    """Entries of all subscriptions; -1 if the broker did not answer."""
    stored_mib: float = 0.0


GROWTH: Final = {
    "rss_mib": 16.0,
    "threads": 6.0,
    "descriptors": 25.0,
    "uncollected": 100.0,
    "python_threads": 2.0,
    "objects": 15_000.0,
    "tasks": 10.0,
    "pending_acks": 100.0,
    "missing": 1_000.0,
    "backlog": 1_000.0,
    "stored_mib": 150.0,
}
"""Allowed excess of the last quarter's median over that of the second quarter."""
_LABELS: Final = {
    "rss_mib": "resident memory, MiB",
    "threads": "threads",
    "descriptors": "file descriptors",
    "uncollected": "file descriptors, before a collection",
    "objects": "Python objects",
    "pending_acks": "pending acknowledgements",
    "missing": "messages not yet delivered",
    "backlog": "backlog, entries",
    "stored_mib": "stored by the broker, MiB",
}


@dataclass
class Growth:
    """A count: its median in the second and in the last quarter, its maximum, and its allowed growth."""

    name: str
    second: float
    last: float
    highest: float
    limit: float

    @property
    def too_much(self) -> bool:
        """True if it grows."""
        return self.last - self.second > self.limit


def growths(samples: Sequence[Sample], names: Sequence[str] = tuple(GROWTH)) -> Iterator[Growth]:
    """Compare the second quarter of the samples with the last one."""
    quarter = len(samples) // 4
    if not quarter:
        return
    for name in names:
        values = [value for one in samples if (value := getattr(one, name)) >= 0]
        second, last = ([*values[quarter : 2 * quarter], 0][:quarter], values[-quarter:])
        yield Growth(name, statistics.median(second), statistics.median(last), max(values), GROWTH[name])


def plot(samples: Sequence[Sample], faults: Sequence[tuple[float, str]], path: Path) -> None:
    """Draw every count over time, with the broker's restarts."""
    import matplotlib as mpl  # noqa: PLC0415  # only drawing needs it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(3, 3, figsize=(15, 9), sharex=True, layout="constrained")
    rows = [asdict(one) for one in samples]
    for axis, (name, label) in zip(axes.flat, _LABELS.items(), strict=True):
        points = [(row["seconds"] / 60, row[name]) for row in rows if row[name] >= 0]
        for second, fault in faults:
            if fault == "kill":
                axis.axvline(second / 60, color="0.85", linewidth=0.8)
        axis.plot(*zip(*points, strict=True), linewidth=1.2)
        axis.set_title(label, fontsize=11, loc="left")
        axis.set_ylim(0, max(1.0, 1.1 * max(value for _, value in points)))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("minutes; grey: the broker was killed")
    figure.savefig(path, dpi=80)
    plt.close(figure)
