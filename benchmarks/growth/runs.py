"""Runs of a line: each size with both clients in turn, each run in a fresh process."""

from __future__ import annotations

import contextlib
import resource
import time
from typing import TYPE_CHECKING, Final

import psutil

from benchmarks.fresh_process import Call, CallError
from benchmarks.growth.fit import Growth, Point, Sample, merged
from benchmarks.growth.line import Bench, Watch, new_topic
from benchmarks.growth.lines import LINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.growth.line import Line

__all__ = ["measure_line"]

_PATIENCE_SECONDS: Final = 900.0
_ENOUGH_SECONDS: Final = 60.0
"""Time after which a size is not run again."""


def measure_line(
    line: Line,
    urls: Sequence[str],
    sizes: Sequence[int],
    rounds: int,
    report: Callable[[int], None] = lambda _: None,
) -> Growth:
    """Measure a line; after a failure, larger sizes are skipped.

    If sizes are run more than once, a run of a middle one warms the broker up, and is not counted.

    Args:
        line: the line to measure.
        urls: the broker's and that of its admin API; empty for a line that needs no broker.
        sizes: the sizes to run.
        rounds: the maximum number of runs of each.
        report: called with each size before it is measured.
    """
    points: list[Point] = []
    failures: list[str] = []
    url, admin_url = urls or ("", "")
    if rounds > 1 and urls:
        # A broker compiles frequent code: without the warm-up, small sizes would be slower, and k would be too low.
        with contextlib.suppress(CallError):
            _measure_size(line, Bench(url, admin_url, new_topic(), sizes[len(sizes) // 2]), 1)
    for size in sizes:
        report(size)
        bench = Bench(url, admin_url, new_topic(), size)
        try:
            points += _measure_size(line, bench, rounds)
        except CallError as error:
            failures.append(f"{size:,} {line.unit}: {error}")
            break
    return Growth(line.name, line.unit, tuple(points), tuple(failures), line.far)


def _measure_size(line: Line, bench: Bench, rounds: int) -> list[Point]:
    samples: dict[str, list[Sample]] = {client: [] for client in line.clients}
    if line.prepare is not None:
        Call(_prepare, line.name, bench).result(_PATIENCE_SECONDS)
    began = time.monotonic()
    for turn in range(rounds):
        # The second client finds the broker's caches warm, so the order alternates.
        for client in line.clients if turn % 2 else reversed(line.clients):
            samples[client].append(Call(_run, line.name, bench.for_client(client)).result(_PATIENCE_SECONDS))
        if time.monotonic() - began > _ENOUGH_SECONDS:
            break
    return [merged(client, bench.size, found) for client, found in samples.items()]


# A process looks its line up by name, because a line's functions cannot be pickled.


def _line(name: str) -> Line:
    return next(line for line in LINES if line.name == name)


def _prepare(name: str, bench: Bench) -> None:
    prepare = _line(name).prepare
    if prepare is not None:
        prepare(bench)


def _run(name: str, bench: Bench) -> Sample:
    run, watch = _line(name).run, Watch()
    before = psutil.Process().memory_info().rss // 1024
    run(bench, watch)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Sample(watch.seconds, max(most - before, 0), watch.requests)
