"""Growth of cost with size: measured points, the exponent of cost ~ size^k, and its judgement (pure)."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["STRAIGHT", "Growth", "Point", "Sample", "exponent", "merged"]

STRAIGHT: Final = 1.15
"""Highest exponent of a straight line: at it, ten times the size costs fourteen times as much."""
_BOUNDED: Final = 0.1
"""Highest exponent of requests that do not grow with the size."""
_FEWEST: Final = 2
_LEAST_KIB: Final = 4096
"""Memory of a process below which the allocator's or the client's own share dominates."""


@dataclass(frozen=True)
class Sample:
    """Cost of one run.

    Args:
        seconds: by the clock.
        kib: peak memory of the process, above its memory before it opened anything.
        requests: number of requests to the admin API; None if they were not counted.
    """

    seconds: float
    kib: float
    requests: int | None = None


@dataclass(frozen=True)
class Point:
    """Cost of one size for one client.

    Args:
        client: `pulsar` or `pulsar_ext`.
        size: the number of items, or the size of one.
        seconds: of the fastest run: slower ones are disturbed by other load.
        kib: of the run with the least memory.
        requests: of the run with the fewest requests; None if they were not counted.
        runs: the number of runs.
    """

    client: str
    size: int
    seconds: float
    kib: float
    requests: int | None
    runs: int

    @property
    def each_us(self) -> float | None:
        """Microseconds per item; None without items."""
        return self.seconds / self.size * 1e6 if self.size else None


@dataclass(frozen=True)
class Growth:
    """Points of one line for one or both clients, and failed measurements.

    Args:
        name: of the line.
        unit: of the size.
        points: in any order.
        failures: failed measurements, with their causes.
        far: a size that is computed, not measured: with a bounded number of requests, its time is bounded too.
    """

    name: str
    unit: str
    points: tuple[Point, ...]
    failures: tuple[str, ...] = ()
    far: int | None = None

    @property
    def clients(self) -> list[str]:
        """Measured clients, in the order of the points."""
        return list(dict.fromkeys(point.client for point in self.points))

    def of(self, client: str) -> list[Point]:
        """Return a client's points by their size."""
        return sorted((point for point in self.points if point.client == client), key=lambda point: point.size)

    def time_exponent(self, client: str) -> float | None:
        """Return k of seconds ~ size^k."""
        return exponent([(point.size, point.seconds) for point in self.of(client)])

    def memory_exponent(self, client: str) -> float | None:
        """Return k of KiB ~ size^k, over the sizes whose memory is large enough to depend on the size."""
        return exponent([(point.size, point.kib) for point in self.of(client) if point.kib >= _LEAST_KIB])

    def each_kib(self, client: str) -> float | None:
        """Return the KiB per additional item, without the client's own memory; None with one size only."""
        points = self.of(client)
        more = points[-1].size - points[0].size
        return (points[-1].kib - points[0].kib) / more if more else None

    @property
    def is_straight(self) -> bool:
        """True if neither time nor memory of `pulsar_ext` grows faster than the size."""
        found = self.time_exponent("pulsar_ext"), self.memory_exponent("pulsar_ext")
        return all(one is None or one <= STRAIGHT for one in found)

    @property
    def far_seconds(self) -> float | None:
        """Computed seconds at the size `far`; None if the number of requests is not bounded."""
        counted = [(point.size, point.requests) for point in self.of("pulsar_ext") if point.requests]
        grows = exponent(counted)
        if self.far is None or grows is None or grows > _BOUNDED:
            return None
        each = max(point.seconds / point.requests for point in self.of("pulsar_ext") if point.requests)
        return each * max(requests for _, requests in counted)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the exponents, for JSON."""
        exponents = {
            client: {"time": self.time_exponent(client), "memory": self.memory_exponent(client)}
            for client in self.clients
        }
        judged = {"exponents": exponents, "is_straight": self.is_straight, "far_seconds": self.far_seconds}
        return asdict(self) | judged


def exponent(costs: Sequence[tuple[float, float]]) -> float | None:
    """Fit k of cost ~ size^k: by least squares on the logarithms, over the upper half of the sizes.

    The lower half is excluded, because constant costs would hide the growth there.

    Args:
        costs: sizes and their costs, in any order; sizes or costs of 0 have no logarithm and are excluded.

    Returns:
        k; None with fewer than two sizes.
    """
    positive = sorted((size, cost) for size, cost in costs if size > 0 and cost > 0)
    upper = positive[-max(_FEWEST, math.ceil(len(positive) / 2)) :]
    if len({size for size, _ in upper}) < _FEWEST:
        return None
    sizes, spent = zip(*upper, strict=True)
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in spent]).slope


def merged(client: str, size: int, samples: Iterable[Sample]) -> Point:
    """Return the point of the runs of one size."""
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
