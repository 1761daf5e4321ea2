"""One thread of this process that closes batches when their delay is over, and runs what must not run on C++ threads.

A callback of a message that failed is run here: the C++ client tells failures while it holds the producer's lock, and
a callback that sent another message would wait for that lock for ever.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AckKeeper", "Ticked", "Ticker", "ticker"]

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


_log = logging.getLogger("pulsar_ext.acks")
_RETRY_SECONDS = 1.0


class AckKeeper:
    """Calls `tick(now)` of whatever it watches, as often as that asks for."""

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, one: Any) -> None:
        """Call `one.tick(now)` from now on, until it answers None."""
        with self._condition:
            self._watched.add(one)
            self._all.add(one)
            if self._stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pulsar-ext-acks", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self) -> None:
        """Let everything that waits leave, and watch nothing any more."""
        with self._condition:
            self._stopped = True
            every = list(self._all)
            self._condition.notify()
        for one in every:
            one.close()

    def _run(self) -> None:
        while True:
            waits = [self._tick(one) for one in list(self._watched)]
            with self._condition:
                if self._stopped or not self._watched:
                    self._thread = None
                    return
                self._condition.wait(min((wait for wait in waits if wait is not None), default=0))

    def _tick(self, one: Any) -> float | None:
        with self._condition:
            self._watched.discard(one)
        try:
            wait: float | None = one.tick(time.monotonic())
        except pulsar.AlreadyClosed:  # by unsubscribe(), or with its client
            wait = None
        except Exception:  # noqa: BLE001  # the thread has to go on, for others too
            _log.exception("Acknowledgements could not be sent; they are kept")
            wait = _RETRY_SECONDS
        if wait is not None:
            with self._condition:
                self._watched.add(one)
        return wait
