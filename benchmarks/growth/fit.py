"""How cost grows with size: what was measured, the exponent of cost ~ size^k, and what is said of it (pure)."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["STRAIGHT", "Growth", "Point", "Sample", "exponent", "merged"]

STRAIGHT: Final = 1.15
"""A line whose exponent is above this is not straight: ten times the size costs more than fourteen times as much."""
_BOUNDED: Final = 0.1
"""Requests whose exponent is not above this do not grow with the size."""
_FEWEST: Final = 2
_LEAST_KIB: Final = 4096
"""What a process holds below this is that of its allocator, or of a client alone."""


@dataclass(frozen=True)
class Sample:
    """What one run took.

    Args:
        seconds: by the clock.
        kib: the most that the process held, beyond what it held before it opened anything.
        requests: how many requests to the admin API; None if they were not counted.
    """

    seconds: float
    kib: float
    requests: int | None = None


@dataclass(frozen=True)
class Point:
    """What one size cost one client.

    Args:
        client: `pulsar` or `pulsar_ext`.
        size: how many, or how large.
        seconds: of the fastest run: what makes another slower comes from outside.
        kib: of the run that held the least.
        requests: of the run that sent the fewest; None if they were not counted.
        runs: how many there were.
    """

    client: str
    size: int
    seconds: float
    kib: float
    requests: int | None
    runs: int

    @property
    def each_us(self) -> float | None:
        """Microseconds for each of them; None where there are none."""
        return self.seconds / self.size * 1e6 if self.size else None


@dataclass(frozen=True)
class Growth:
    """One line: the points of one or both clients, and what could not be measured.

    Args:
        name: of the line.
        unit: what the size counts.
        points: in any order.
        failures: what could not be measured, and why.
        far: a size that is computed and not measured: what takes a bounded number of requests takes no longer there.
    """

    name: str
    unit: str
    points: tuple[Point, ...]
    failures: tuple[str, ...] = ()
    far: int | None = None

    @property
    def clients(self) -> list[str]:
        """Who was measured, in the order of the points."""
        return list(dict.fromkeys(point.client for point in self.points))

    def of(self, client: str) -> list[Point]:
        """Give a client's points by their size."""
        return sorted((point for point in self.points if point.client == client), key=lambda point: point.size)

    def time_exponent(self, client: str) -> float | None:
        """Give k of seconds ~ size^k."""
        return exponent([(point.size, point.seconds) for point in self.of(client)])

    def memory_exponent(self, client: str) -> float | None:
        """Give k of KiB ~ size^k, of the sizes that hold enough for it to be theirs."""
        return exponent([(point.size, point.kib) for point in self.of(client) if point.kib >= _LEAST_KIB])

    def each_kib(self, client: str) -> float | None:
        """Give the KiB that one more of them takes: what a client alone holds is not theirs. None of one size only."""
        points = self.of(client)
        more = points[-1].size - points[0].size
        return (points[-1].kib - points[0].kib) / more if more else None

    @property
    def is_straight(self) -> bool:
        """Whether neither time nor memory of `pulsar_ext` grows faster than the size."""
        found = self.time_exponent("pulsar_ext"), self.memory_exponent("pulsar_ext")
        return all(one is None or one <= STRAIGHT for one in found)

    @property
    def far_seconds(self) -> float | None:
        """Give the seconds at the size `far`, by arithmetic; None if the number of requests is not bounded."""
        counted = [(point.size, point.requests) for point in self.of("pulsar_ext") if point.requests]
        grows = exponent(counted)
        if self.far is None or grows is None or grows > _BOUNDED:
            return None
        each = max(point.seconds / point.requests for point in self.of("pulsar_ext") if point.requests)
        return each * max(requests for _, requests in counted)

    def as_dict(self) -> dict[str, Any]:
        """Give everything, the exponents too, for JSON."""
        exponents = {
            client: {"time": self.time_exponent(client), "memory": self.memory_exponent(client)}
            for client in self.clients
        }
        judged = {"exponents": exponents, "is_straight": self.is_straight, "far_seconds": self.far_seconds}
        return asdict(self) | judged


def exponent(costs: Sequence[tuple[float, float]]) -> float | None:
    """Fit k of cost ~ size^k: by least squares on the logarithms, over the upper half of the sizes.

    The lower half is left out because what is the same for every size would hide there how the rest grows.

    Args:
        costs: sizes and what they cost, in any order; those of nothing, or without a cost, have no logarithm and are
            left out.

    Returns:
        k; None where fewer than two sizes are left.
    """
    positive = sorted((size, cost) for size, cost in costs if size > 0 and cost > 0)
    upper = positive[-max(_FEWEST, math.ceil(len(positive) / 2)) :]
    if len({size for size, _ in upper}) < _FEWEST:
        return None
    sizes, spent = zip(*upper, strict=True)
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in spent]).slope


def merged(client: str, size: int, samples: Iterable[Sample]) -> Point:
    """Make one point of the runs of one size."""
    runs = list(samples)
    requests = [run.requests for run in runs if run.requests is not None]
    return Point(
        client=client,
        size=size,
        seconds=min(run.seconds for run in runs),
        kib=min(run.kib for run in runs),
        requests=min(requests, default=None),
        runs=len(runs),
    )
