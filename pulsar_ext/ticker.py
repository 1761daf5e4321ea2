"""One thread of this process that closes batches when their delay is over, and runs what must not run on C++ threads.

A callback of a message that failed is run here: the C++ client tells failures while it holds the producer's lock, and
a callback that sent another message would wait for that lock for ever.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ticked", "Ticker", "ticker"]

_log = logging.getLogger("pulsar_ext")


class Ticked(Protocol):
    """What is watched."""

    def tick(self, now: float) -> float | None:
        """Do what is due at a monotonic time in seconds; give when something is due next, None for never."""


class Ticker:
    """Watches producers; its thread starts with the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._due: dict[Ticked, float] = {}
        self._jobs: deque[Callable[[], object]] = deque()
        self._wakes = 0.0
        self._thread: threading.Thread | None = None

    def watch(self, ticked: Ticked, due: float) -> None:
        """Have `ticked.tick()` called at that monotonic time, or sooner."""
        with self._changed:
            known = self._due.get(ticked)
            if known is not None and known <= due:
                return
            self._due[ticked] = due
            self._start()
            if due < self._wakes:
                self._wakes = due
                self._changed.notify()

    def run(self, job: Callable[[], object]) -> None:
        """Call `job` on the thread, soon."""
        with self._changed:
            self._jobs.append(job)
            self._start()
            self._wakes = 0.0
            self._changed.notify()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="pulsar_ext-batches", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                self._wakes = min(self._due.values(), default=now + 3600.0)
                while not self._jobs and self._wakes > now:
                    self._changed.wait(self._wakes - now)
                    now = time.monotonic()
                jobs, self._jobs = self._jobs, deque()
                ticked = [one for one, due in self._due.items() if due <= now]
                for one in ticked:
                    del self._due[one]
            for job in jobs:
                self._safely(job)
            for one in ticked:
                self._safely(partial(self._tick, one, now))

    def _tick(self, ticked: Ticked, now: float) -> None:
        due = ticked.tick(now)
        if due is not None:
            self.watch(ticked, due)

    @staticmethod
    def _safely(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException:  # noqa: BLE001  # the thread serves every producer
            _log.exception("A batch could not be closed in time")


_tickers: dict[int, Ticker] = {}


def ticker() -> Ticker:
    """Give this process's ticker: a forked child has none of its parent's threads."""
    pid = os.getpid()
    found = _tickers.get(pid)
    return found if found is not None else _tickers.setdefault(pid, Ticker())
