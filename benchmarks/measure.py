"""Alternating measurements: both clients in one process, turn by turn, compared pair by pair.

Absolute rates depend on the machine and its other load. The ratio of two consecutive runs depends on them much less,
and the median of many such ratios hardly at all, unless other load slows the machine down in half of the runs: the
fastest fifth of either client's runs are free of that.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pulsar

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

__all__ = ["Case", "Result", "Side", "measure", "open_sides"]

_OFFICIAL, _OURS = 0, 1
_PAIRS_A_CLIENT: Final = 5
"""Number of pairs per client instance. The memory layout of a client's threads and buffers makes it some per cent
faster or slower for its lifetime, so every few pairs run with new clients."""
_GOAL_NEVER_BELOW: Final = 0.98
_UNDISTURBED: Final = 5
"""Divisor: this fraction of the runs, the fastest, count as undisturbed."""


@dataclass(frozen=True)
class Side:
    """Client, and the topics of its runs.

    Args:
        lib: the module `pulsar` or `pulsar_ext`.
        client: a client of it.
        topic: has more small messages, in batches, than any case receives.
        scratch: a topic to send to.
    """

    lib: ModuleType
    client: Any
    topic: str
    scratch: str


@dataclass(frozen=True)
class Case:
    """Path through the client.

    Args:
        name: the call, as a user would write it.
        calls: the number of calls of one run.
        prepare: yields the run of a side; code before and after it is not measured.
        goal: the lowest ratio that it should reach.
        threads: true if the client's own threads do part of the work, so that all threads' processor time counts.
        alone: true if only the client works in a run: then runs differ only by disturbances, and the goal is for the
            undisturbed runs.
    """

    name: str
    calls: int
    prepare: Callable[[Side, int], contextlib.AbstractContextManager[Callable[[], object]]]
    goal: float = _GOAL_NEVER_BELOW
    threads: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Result:
    """Result of one case.

    Args:
        name: the case.
        goal: the lowest ratio that it should reach.
        official_ns: nanoseconds of wall-clock time per call of `pulsar`, median.
        ours_ns: nanoseconds of wall-clock time per call of `pulsar_ext`, median.
        ratio: rate of `pulsar_ext` over that of `pulsar`, median over the pairs.
        low: lower quartile of the pairs' ratios.
        high: upper quartile.
        cpu_ratio: like `ratio`, by processor time instead of wall-clock time.
        undisturbed: ratio of the slowest runs among the fastest fifth of either client.
        alone: true if the goal is for `undisturbed`, see `Case`.
        rounds: the number of pairs.
    """

    name: str
    goal: float
    official_ns: float
    ours_ns: float
    ratio: float
    low: float
    high: float
    cpu_ratio: float
    undisturbed: float
    alone: bool
    rounds: int

    @property
    def reached(self) -> bool:
        """True if the goal is reached."""
        return (self.undisturbed if self.alone else self.ratio) >= self.goal


@contextlib.contextmanager
def open_sides(url: str, topic: str, **ours: Any) -> Iterator[tuple[Side, Side]]:
    """Open a client of the official module and one of ours, which also gets the options `ours`."""
    with contextlib.ExitStack() as clients:
        opened = []
        for lib, options in ((pulsar, {}), (pulsar_ext, ours)):
            client = lib.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)
            clients.callback(client.close)
            opened.append(Side(lib, client, topic, f"{topic}-{lib.__name__}"))
        yield opened[0], opened[1]


def measure(
    case: Case,
    sides: Callable[[], contextlib.AbstractContextManager[tuple[Side, Side]]],
    rounds: int,
    advance: Callable[[], None] = lambda: None,
) -> Result:
    """Run a case with the official client and with ours, alternately.

    Args:
        case: the case to run.
        sides: opens clients, the official one, then ours.
        rounds: the number of pairs, at least 2; one more, which is not counted, warms up.
        advance: called after each pair.
    """
    walls: list[list[float]] = [[], []]
    cpus: list[list[float]] = [[], []]
    for start in range(0, rounds + 1, _PAIRS_A_CLIENT):
        with sides() as opened:
            for turn in range(start, min(start + _PAIRS_A_CLIENT, rounds + 1)):
                # The second client finds the broker's and the processor's caches warm, so the order alternates.
                for side in (_OFFICIAL, _OURS) if turn % 2 else (_OURS, _OFFICIAL):
                    wall, cpu = _time(case, opened[side])
                    walls[side].append(wall)
                    cpus[side].append(cpu)
                advance()
    ratios = [official / ours for official, ours in zip(walls[_OFFICIAL][1:], walls[_OURS][1:], strict=True)]
    cpu_ratios = [official / ours for official, ours in zip(cpus[_OFFICIAL][1:], cpus[_OURS][1:], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Result(
        name=case.name,
        goal=case.goal,
        official_ns=statistics.median(walls[_OFFICIAL][1:]) / case.calls * 1e9,
        ours_ns=statistics.median(walls[_OURS][1:]) / case.calls * 1e9,
        ratio=middle,
        low=low,
        high=high,
        cpu_ratio=statistics.median(cpu_ratios),
        undisturbed=_fast(walls[_OFFICIAL][1:]) / _fast(walls[_OURS][1:]),
        alone=case.alone,
        rounds=rounds,
    )


def _fast(runs: list[float]) -> float:
    return sorted(runs)[(len(runs) - 1) // _UNDISTURBED]


def _time(case: Case, side: Side) -> tuple[float, float]:
    processor = time.process_time if case.threads else time.thread_time
    with case.prepare(side, case.calls) as run, _garbage_collected():
        cpu = processor()
        wall = time.perf_counter()
        run()
        return time.perf_counter() - wall, processor() - cpu


@contextlib.contextmanager
def _garbage_collected() -> Iterator[None]:
    """Start without garbage, and exclude existing objects from later collections during the run."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
