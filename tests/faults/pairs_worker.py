"""A process of `pairs.py`: carries out concurrent runs, and reports each as a line of JSON.

A line `{"kill": true}` requests a restart of the broker; a line on the standard input confirms it.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from pairs_cases import case_of
from pairs_operations import KILL
from pairs_run import run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MEET_SECONDS = 60
_KILL_SECONDS = 0.5
"""Time in which the kills of several runs are combined into one."""


def _say(**report: Any) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def _meet(together: threading.Barrier) -> None:
    """Wait for other runs: an opening run fails if the broker is killed."""
    with contextlib.suppress(threading.BrokenBarrierError):
        together.wait(_MEET_SECONDS)


def batched(seeds: list[int], size: int) -> Iterator[list[int]]:
    """Yield the seeds in groups of a size."""
    for begin in range(0, len(seeds), size):
        yield seeds[begin : begin + size]


class _Killer:
    """Requests a kill of the broker, once for all runs that need it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = 0.0

    def kill(self) -> None:
        asked = time.monotonic()
        with self._lock:
            if self._began >= asked:
                return
            time.sleep(_KILL_SECONDS)
            self._began = time.monotonic()
            _say(kill=True)
            sys.stdin.readline()


def main() -> None:
    """Carry out the requested runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("service_url")
    parser.add_argument("admin_url")
    parser.add_argument("threads", type=int)
    parser.add_argument("seeds", help="as JSON")
    arguments = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    urls = arguments.service_url, arguments.admin_url
    dead: list[str] = []
    threading.excepthook = lambda failed: dead.append(f"{failed.thread} ended: {failed.exc_type}: {failed.exc_value}")
    killer = _Killer()

    def run(seed: int, ready: Callable[[], None] = lambda: None) -> None:
        _say(began=seed)
        began = time.monotonic()
        problems = run_case(case_of(seed), urls, killer.kill, ready)
        while dead:
            problems.append(dead.pop())
        _say(done=seed, problems=problems, seconds=round(time.monotonic() - began, 1))

    seeds = json.loads(arguments.seeds)
    kills = [seed for seed in seeds if KILL in case_of(seed).operations]
    with ThreadPoolExecutor(arguments.threads) as pool:
        list(pool.map(run, [seed for seed in seeds if seed not in kills]))
        for group in batched(kills, arguments.threads):
            together = threading.Barrier(len(group))
            list(pool.map(run, group, repeat(partial(_meet, together))))
    _say(over=True)
    os._exit(0)  # hanging threads are reported already


if __name__ == "__main__":
    main()
