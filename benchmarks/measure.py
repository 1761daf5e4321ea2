"""Alternating measurements: both clients in one process, turn by turn, compared pair by pair.

The absolute rates depend on the machine and on what else it does. The ratio of two runs that follow each other at once
depends on that much less, and the median of many such ratios hardly at all, unless a machine's neighbours slow it down
in half of the runs: the fastest fifth of either client's are free of that.
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
"""Where the threads and buffers of a client lie in memory makes it some per cent faster or slower all its life: every
few pairs run with new clients, so that this does not decide."""
_GOAL_NEVER_BELOW: Final = 0.98
_UNDISTURBED: Final = 5
"""One run in so many, the fastest, count as undisturbed."""


@dataclass(frozen=True)
class Side:
    """One client and what its runs need.

    Args:
        lib: the module `pulsar` or `pulsar_ext`.
        client: a client of it.
        topic: has more small messages, in batches, than any case receives.
        scratch: where to send.
    """

    lib: ModuleType
    client: Any
    topic: str
    scratch: str


@dataclass(frozen=True)
class Case:
    """One path through the client.

    Args:
        name: what is called, as a user would write it.
        calls: how many calls one run makes.
        prepare: gives, for a side, the run; what comes before and after it is not measured.
        goal: the least ratio that it should reach.
        threads: whether the client's own threads do a part of the work, so that all of them count as processor time.
        alone: whether nothing but the client works in a run: then all that differs from run to run is what disturbs
            it, and the goal is for the undisturbed runs.
    """

    name: str
    calls: int
    prepare: Callable[[Side, int], contextlib.AbstractContextManager[Callable[[], object]]]
    goal: float = _GOAL_NEVER_BELOW
    threads: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Result:
    """What one case took.

    Args:
        name: the case.
        goal: the least ratio that it should reach.
        official_ns: nanoseconds of wall-clock time a call, median.
        ours_ns: the same for `pulsar_ext`.
        ratio: rate of `pulsar_ext` over that of `pulsar`, median over the pairs.
        low: lower quartile of the pairs' ratios.
        high: upper quartile.
        cpu_ratio: the same as `ratio`, by processor time instead of wall-clock time.
        undisturbed: the same of the slowest among the fastest fifth of either client's runs.
        alone: whether that is what the goal is for, see `Case`.
        rounds: how many pairs.
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
        """Whether the goal is reached."""
        return (self.undisturbed if self.alone else self.ratio) >= self.goal


@contextlib.contextmanager
def open_sides(url: str, topic: str, **ours: Any) -> Iterator[tuple[Side, Side]]:
    """Open a client of the official module and one of ours, which takes `ours` as well."""
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
        case: what to run.
        sides: opens clients, the official one, then ours.
        rounds: how many pairs, at least 2; one more, which is not counted, warms up.
        advance: is called after each pair.
    """
    walls: list[list[float]] = [[], []]
    cpus: list[list[float]] = [[], []]
    for start in range(0, rounds + 1, _PAIRS_A_CLIENT):
        with sides() as opened:
            for turn in range(start, min(start + _PAIRS_A_CLIENT, rounds + 1)):
                # Whoever goes second finds the broker's and the processor's caches warm: take turns.
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
    """Start without garbage, and leave what exists out of every later collection, as it is not the run's own."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
