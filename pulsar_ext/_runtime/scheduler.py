"""Threads that call scheduled objects: open batches, groups of acknowledgements, redeliveries.

`batch_scheduler` is shared by the process. It cuts batches when their delay is over, and runs no code of the
application. Each client has three `ClientScheduler`: one for acknowledgements; one for slow requests to the broker, so
that they do not delay acknowledgements or batches; and an `OutcomeScheduler` for callbacks. A client that may fail over
to another cluster has a fourth one for that.

`ConnectionPolls` polls the connections of many consumers at once, while nothing else is due for them. The C++ client
does not report a lost connection and a new one, so each has to be polled several times a second. A separate tick per
consumer would keep a processor busy with a thousand of them.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

import pulsar

from pulsar_ext._native import threads

from .condition import Condition

_RETRY_SECONDS = 1.0
_SPARE = 100
"""Number of entries that the queue may have beyond twice the number of scheduled objects."""
_IDLE_SECONDS = 10.0
"""Seconds that an idle client's thread waits for new work before it ends."""


class Scheduled(Protocol):
    """An object that a scheduler calls: `tick` does what is due at a monotonic time in seconds.

    It returns the seconds until the next call, or None.
    """

    def tick(self, now: float) -> float | None: ...


class Closable(Scheduled, Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=Scheduled)


class Scheduler(Generic[S]):
    """Calls `tick` of scheduled objects, kept weakly, when they are due; its thread starts with the first one.

    Every method may be called from a signal handler that interrupts another one. Exceptions of ticks and jobs are
    logged with the message `trouble`. A `lasting` one keeps its idle thread: a program that ends cannot start new ones.
    """

    def __init__(self, thread_name: str, log: logging.Logger, trouble: str, *, lasting: bool) -> None:
        self._thread_name, self._lasting = thread_name, lasting
        self._log, self._trouble = log, trouble
        self._closed = False
        self._begin()
        _schedulers.add(self)

    def _begin(self) -> None:
        self._changed = Condition()
        self._due: dict[weakref.ref[S], float] = {}
        """Due times of scheduled objects; collected objects stay until they are due."""
        self._queue: list[tuple[float, int, weakref.ref[S]]] = []
        """A heap of due times, with a number that orders equal ones; outdated entries are ignored."""
        self._numbers = count()
        self._jobs: deque[Callable[[], object]] = deque()
        self._wakes = 0.0
        self._has_thread = False

    def watch(self, one: S, after: float = 0.0) -> None:
        """Call `one.tick()` in `after` seconds, or sooner, unless this is closed."""
        due = time.monotonic() + after
        with self._changed:
            if self._closed:
                return
            self._begin_thread()
            weak = weakref.ref(one)
            known = self._due.get(weak)
            if known is None or due < known:
                # First: a Ctrl-C in between leaves an outdated queue entry, not an object that is never called.
                heapq.heappush(self._queue, (due, next(self._numbers), weak))
                self._due[weak] = due
                self._wake(due)

    def run(self, job: Callable[[], object]) -> None:
        """Call `job` soon on the scheduler's thread."""
        with self._changed:
            self._begin_thread()
            self._jobs.append(job)
            self._wake(0.0)

    def _after_fork_(self) -> None:
        """Restart in a child process, which lacks its parent's threads, and where a lock may stay held."""
        self._begin()

    def _begin_thread(self) -> None:
        """Start the thread if necessary; first, so that nothing has changed if it fails."""
        if not self._has_thread:
            threads.start(self._work, name=self._thread_name)
            self._has_thread = True

    def _wake(self, due: float) -> None:
        if due < self._wakes:
            self._changed.notify()
            self._wakes = due  # afterwards: after a Ctrl-C in between, the next call wakes the thread

    def _work(self) -> None:
        while self._await_work():
            self._do_work()  # a separate function: no local variable keeps an object alive while the thread waits

    def _await_work(self) -> bool:
        """Wait until something is due; return False if the thread was idle for long, and ends."""
        with self._changed:
            now = time.monotonic()
            self._wakes = self._soonest(now + _IDLE_SECONDS)
            while not self._jobs and self._wakes > now:
                self._changed.wait(self._wakes - now)
                now = time.monotonic()
            if not (self._lasting or self._jobs or self._due):
                self._has_thread = False
                return False
            return True

    def _do_work(self) -> None:
        with self._changed:
            now = time.monotonic()
            jobs, self._jobs = self._jobs, deque()
            ticked = []
            while self._soonest(math.inf) <= now:
                _, _, weak = heapq.heappop(self._queue)
                del self._due[weak]
                if (one := weak()) is not None:
                    ticked.append(one)
        for job in jobs:
            self._safely(job)
        for one in ticked:
            self._tick(one, now)

    def _soonest(self, otherwise: float) -> float:
        """Return the first due time, which is then at the front of the queue; `otherwise` if nothing is scheduled."""
        queue, due = self._queue, self._due
        if len(queue) > 2 * len(due) + _SPARE:
            queue[:] = [one for one in queue if due.get(one[2]) == one[0]]
            heapq.heapify(queue)
        while queue and due.get(queue[0][2]) != queue[0][0]:
            heapq.heappop(queue)
        return queue[0][0] if queue else otherwise

    def _tick(self, one: S, now: float) -> None:
        wait: float | None = _RETRY_SECONDS

        def tick() -> None:
            nonlocal wait
            try:
                wait = one.tick(now)
            except pulsar.AlreadyClosed:  # by unsubscribe(), or with its client
                wait = None

        self._safely(tick)
        if wait is not None:
            self.watch(one, wait)

    def _safely(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException:  # noqa: BLE001  # the thread must continue, for other objects too
            self._log.exception(self._trouble)


class ClientScheduler(Scheduler[Closable]):
    """A scheduler of one client, which is closed with it."""

    def __init__(self, thread_name: str, log: logging.Logger, trouble: str) -> None:
        super().__init__(thread_name, log, trouble, lasting=False)
        self._kept: weakref.WeakSet[Closable] = weakref.WeakSet()

    def keep(self, one: Closable) -> None:
        """Close `one` with the client, whether it is scheduled or not."""
        with self._changed:
            self._kept.add(one)

    def close(self) -> None:
        """Close all kept and scheduled objects, and schedule nothing any more."""
        with self._changed:
            self._closed = True
            every = dict.fromkeys((*self._kept, *(weak() for weak in self._due)))
            self._due.clear()
            self._wakes = 0.0
            self._changed.notify()
        for one in every:
            if one is not None:
                one.close()


_schedulers: weakref.WeakSet[Scheduler[Any]] = weakref.WeakSet()

batch_scheduler: Scheduler[Scheduled] = Scheduler(
    "pulsar_ext-batches", logging.getLogger("pulsar_ext"), "A batch could not be cut in time", lasting=True
)


class OutcomeScheduler(ClientScheduler):
    """Runs the callbacks of one client's failed messages, which may wait for another client.

    They must not run on C++ threads: the C++ client reports failures while it holds the producer's lock, and a callback
    that sent another message would wait for that lock forever.
    """

    def run(self, job: Callable[[], object]) -> None:
        try:
            super().run(job)
        except RuntimeError:  # the program is ending and starts no threads any more; `batch_scheduler` has one
            batch_scheduler.run(job)


def _in_child() -> None:
    for scheduler in list(_schedulers):
        scheduler._after_fork_()


os.register_at_fork(after_in_child=_in_child)


CONNECTION_POLL_SECONDS: Final = 0.04
"""Interval of connection polls; the C++ client takes at least 90 ms to make a new connection."""
_CLOCK_CHECK_EVERY: Final = 100
"""Number of polls whose duration is negligible."""


class PolledConnection(Closable, Protocol):
    def is_connection_unchanged(self, now: float) -> bool: ...


class ConnectionPolls:
    """Polls objects that have nothing else to do until their next tick; used on the scheduler's thread."""

    def __init__(self, scheduler: ClientScheduler) -> None:
        self._scheduler = scheduler
        self._each: WeakSet[PolledConnection] = WeakSet()

    def begin(self, one: PolledConnection) -> None:
        if one not in self._each:
            self._each.add(one)
            self._scheduler.watch(self, CONNECTION_POLL_SECONDS)

    def end(self, one: PolledConnection) -> None:
        self._each.discard(one)

    def tick(self, now: float) -> float | None:
        """Poll all objects; called by the scheduler."""
        for number, one in enumerate(list(self._each)):
            if not number % _CLOCK_CHECK_EVERY:
                now = time.monotonic()
            if not one.is_connection_unchanged(now):
                self._each.discard(one)
                self._scheduler.watch(one)
        return CONNECTION_POLL_SECONDS if self._each else None

    def close(self) -> None:
        self._each.clear()
