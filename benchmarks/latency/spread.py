"""How latencies spread: percentiles of what one or several runs gave (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PERCENTILES", "Spread", "after_warm_up", "percentile", "spread_of"]

PERCENTILES: Final = (50.0, 99.0, 99.9)
_WARM_UP: Final = 10
"""One in so many messages, the first ones, is not counted: the broker and both processes find their pace."""


@dataclass(frozen=True)
class Spread:
    """The latencies of one client, one way to receive and one rate.

    Args:
        way: how it received.
        rate: messages a second.
        client: `pulsar` or `pulsar_ext`.
        messages: how many were counted, of all runs.
        milliseconds: at each of `PERCENTILES`.
        most: the longest, in milliseconds.
    """

    way: str
    rate: int
    client: str
    messages: int
    milliseconds: tuple[float, ...]
    most: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Give the least value that so many per cent of all do not exceed (the nearest rank).

    Args:
        ordered: ascending, at least one.
        percent: above 0, 100 at most.
    """
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def after_warm_up(run: Sequence[float]) -> Sequence[float]:
    """Leave out the first messages of a run."""
    return run[len(run) // _WARM_UP :]


def spread_of(way: str, rate: int, client: str, runs: Iterable[Sequence[float]]) -> Spread:
    """Put the runs of a client together.

    Args:
        way: how it received.
        rate: messages a second.
        client: which one.
        runs: latencies in milliseconds, in the order in which the messages came.
    """
    ordered = sorted(latency for run in runs for latency in after_warm_up(run))
    found = tuple(percentile(ordered, percent) for percent in PERCENTILES)
    return Spread(way, rate, client, len(ordered), found, ordered[-1])
