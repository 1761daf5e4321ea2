"""Distribution of latencies: percentiles of one or several runs (pure)."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PERCENTILES", "Spread", "after_warm_up", "percentile", "spread_of"]

_NINETY_NINE: Final = 99.0
PERCENTILES: Final = (50.0, _NINETY_NINE, 99.9)
_WARM_UP: Final = 10
"""Divisor of the first messages that are not counted, while the broker and both processes warm up."""


@dataclass(frozen=True)
class Spread:
    """Latencies of one client, one way to receive and one rate.

    Args:
        way: the way to receive.
        rate: messages per second.
        client: `pulsar` or `pulsar_ext`.
        messages: the number of counted messages, of all runs.
        milliseconds: at each of `PERCENTILES`, the median over the runs: otherwise one stall of the machine would be
            the 99th percentile of all runs.
        p99: the lowest and the highest one of a run, in milliseconds.
        most: the highest latency, in milliseconds.
    """

    way: str
    rate: int
    client: str
    messages: int
    milliseconds: tuple[float, ...]
    p99: tuple[float, float]
    most: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the lowest value that at least `percent` per cent of all do not exceed (the nearest rank).

    Args:
        ordered: ascending, at least one.
        percent: above 0, 100 at most.
    """
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def after_warm_up(run: Sequence[float]) -> Sequence[float]:
    """Return a run without its first messages."""
    return run[len(run) // _WARM_UP :]


def spread_of(way: str, rate: int, client: str, runs: Iterable[Sequence[float]]) -> Spread:
    """Combine the runs of a client.

    Args:
        way: the way to receive.
        rate: messages per second.
        client: `pulsar` or `pulsar_ext`.
        runs: latencies in milliseconds, in the order of arrival.
    """
    each = [sorted(after_warm_up(run)) for run in runs]
    by_percent = {percent: [percentile(ordered, percent) for ordered in each] for percent in PERCENTILES}
    found = tuple(statistics.median(values) for values in by_percent.values())
    p99 = by_percent[_NINETY_NINE]
    return Spread(
        way, rate, client, sum(map(len, each)), found, (min(p99), max(p99)), max(ordered[-1] for ordered in each)
    )
