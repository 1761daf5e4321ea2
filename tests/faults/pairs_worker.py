"""A process of `pairs.py`: carries out runs side by side, and reports each as a line of JSON.

A line `{"kill": true}` asks for a killed and restarted broker; a line on the standard input says that it is there.
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
"""So long a killing waits for those of other runs: one serves all."""


def _say(**report: Any) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def _meet(together: threading.Barrier) -> None:
    """Wait for other runs: one that is still being opened does not stand a killed broker."""
    with contextlib.suppress(threading.BrokenBarrierError):
        together.wait(_MEET_SECONDS)


def batched(seeds: list[int], size: int) -> Iterator[list[int]]:
    """Give so many at a time."""
    for begin in range(0, len(seeds), size):
        yield seeds[begin : begin + size]


class _Killer:
    """Has the broker killed, once for all that want it at the same time."""

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
    """Carry out what was asked for."""
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
    os._exit(0)  # what hangs is reported already


if __name__ == "__main__":
    main()
