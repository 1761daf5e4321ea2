"""Threads that call back what waits for a time: open batches, groups of acknowledgements, redeliveries.

`batch_scheduler` is one for the process. It closes batches when their delay is over, and nothing of the application's
runs on it. Each client has three `ClientScheduler`: one for its acknowledgements; one for what may take long, because
it asks the broker, so that no answer holds up acknowledgements or batches; and an `OutcomeScheduler` for callbacks. One
that may fail over to another cluster has a fourth for that.

`ConnectionLooks` checks the connections of many consumers at once, while nothing else is due for them. The C++ client
does not report a lost connection and a new one, so it has to be checked several times a second. A tick of the scheduler
for each check of each consumer would keep a processor busy with a thousand of them.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import time
import weakref
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

import pulsar

from pulsar_ext._native import threads

from .condition import Condition

if TYPE_CHECKING:
    from collections.abc import Callable


_RETRY_SECONDS = 1.0
_SPARE = 100
"""So many more than twice what is due may be in the queue."""
_IDLE_SECONDS = 10.0
"""How long the thread of a client stays when it has nothing to do, so that the next group needs no new one."""


class Scheduled(Protocol):
    """What a scheduler watches."""

    def tick(self, now: float) -> float | None:
        """Do what is due at a monotonic time in seconds; give after how many seconds to look again, None for never."""


class Closable(Scheduled, Protocol):
    """What the scheduler of a client watches."""

    def close(self) -> None:
        """End: the client is closing."""


class Scheduler:
    """Calls `tick` of what it watches, weakly, when that is due; its thread begins with the first.

    Every method may be called from a signal's handler that interrupts another one.

    Args:
        thread_name: of its thread.
        log: where it says what a tick or a job raised.
        trouble: what it says then.
        lasting: whether the thread stays when it has nothing to do: a program that ends can start no more threads.
    """

    def __init__(self, thread_name: str, log: logging.Logger, trouble: str, *, lasting: bool) -> None:
        self._thread_name = thread_name
        self._lasting = lasting
        self._log = log
        self._trouble = trouble
        self._begin()
        _schedulers.add(self)

    def _begin(self) -> None:
        self._changed = Condition()
        self._due: dict[weakref.ref[Scheduled], float] = {}
        """When what is watched is due. What is gone stays until then."""
        self._queue: list[tuple[float, int, weakref.ref[Scheduled]]] = []
        """The same by time, with a number that decides between equal ones, and what has a newer time or is gone."""
        self._numbers = count()
        self._jobs: deque[Callable[[], object]] = deque()
        self._wakes = 0.0
        self._has_thread = False

    def watch(self, one: Scheduled, after: float = 0.0) -> None:
        """Have `one.tick()` called in so many seconds, or sooner."""
        due = time.monotonic() + after
        with self._changed:
            self._begin_thread()
            weak = weakref.ref(one)
            known = self._due.get(weak)
            if known is None or due < known:
                # First: a Ctrl-C in between leaves a time that does not count, not one that nobody looks for.
                heapq.heappush(self._queue, (due, next(self._numbers), weak))
                self._due[weak] = due
                self._wake(due)

    def run(self, job: Callable[[], object]) -> None:
        """Call `job` on the thread, soon."""
        with self._changed:
            self._begin_thread()
            self._jobs.append(job)
            self._wake(0.0)

    def _after_fork_(self) -> None:
        """Begin anew in a child process: none of its parent's threads are there, and a lock may be held for good."""
        self._begin()

    def _begin_thread(self) -> None:
        """Begin it if there is none: first, for where that fails nothing has changed."""
        if not self._has_thread:
            threads.start(self._work, name=self._thread_name)
            self._has_thread = True

    def _wake(self, due: float) -> None:
        if due < self._wakes:
            self._changed.notify()
            self._wakes = due  # afterwards: a Ctrl-C in between leaves it to the next to wake the thread

    def _work(self) -> None:
        while self._await_work():
            self._do_work()  # apart, so that nothing is kept alive by a local variable while the thread waits

    def _await_work(self) -> bool:
        """Wait until something is due; False if the thread ends, because nothing was for long."""
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
        """Give when the first is due, which is the first of the queue then; `otherwise` if nothing is."""
        queue, due = self._queue, self._due
        if len(queue) > 2 * len(due) + _SPARE:
            queue[:] = [one for one in queue if due.get(one[2]) == one[0]]
            heapq.heapify(queue)
        while queue and due.get(queue[0][2]) != queue[0][0]:
            heapq.heappop(queue)
        return queue[0][0] if queue else otherwise

    def _tick(self, one: Scheduled, now: float) -> None:
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
        except BaseException:  # noqa: BLE001  # the thread has to go on, for others too
            self._log.exception(self._trouble)


class ClientScheduler(Scheduler):
    """A scheduler of one client, which closes with it.

    Args:
        thread_name: of its thread.
        log: where it says what a tick raised.
        trouble: what it says then.
    """

    def __init__(self, thread_name: str, log: logging.Logger, trouble: str) -> None:
        super().__init__(thread_name, log, trouble, lasting=False)
        self._kept: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._closed = False

    def watch(self, one: Closable, after: float = 0.0) -> None:  # type: ignore[override]  # closes what it watches
        """Have `one.tick()` called in so many seconds, or sooner, unless the client is closed."""
        with self._changed:
            if not self._closed:
                super().watch(one, after)

    def keep(self, one: Closable) -> None:
        """Have `one` closed with the client, whether it is watched or not."""
        with self._changed:
            self._kept.add(one)

    def close(self) -> None:
        """Close what is kept and what is watched, and watch nothing any more."""
        with self._changed:
            self._closed = True
            every: dict[Any, None] = dict.fromkeys((*self._kept, *(weak() for weak in self._due)))
            self._due.clear()
            self._wakes = 0.0
            self._changed.notify()
        for one in every:
            if one is not None:
                one.close()


_schedulers: weakref.WeakSet[Scheduler] = weakref.WeakSet()

batch_scheduler = Scheduler(
    "pulsar_ext-batches", logging.getLogger("pulsar_ext"), "A batch could not be closed in time", lasting=True
)


class OutcomeScheduler(ClientScheduler):
    """Runs the callbacks of one client's messages that have failed; they may wait for another client.

    They must not run on C++ threads: the C++ client reports failures while it holds the producer's lock, and a callback
    that sent another message would wait for that lock for ever.
    """

    def run(self, job: Callable[[], object]) -> None:
        """Call `job` on the thread, soon."""
        try:
            super().run(job)
        except RuntimeError:  # the program is ending and starts no threads any more; this one is there
            batch_scheduler.run(job)


def _in_child() -> None:
    for scheduler in list(_schedulers):
        scheduler._after_fork_()


os.register_at_fork(after_in_child=_in_child)


LOOK_SECONDS: Final = 0.04
"""How often the connection is looked at; the C++ client takes 90 ms at least to make a new one."""
_AT_ONCE: Final = 100
"""So many looks take no time that counts."""


class LookedAt(Closable, Protocol):
    """Whose connection is looked at."""

    def is_as_before(self, now: float) -> bool:
        """Look at the connection at a monotonic time in seconds; tell whether nothing has happened to it."""
        ...


class ConnectionLooks:
    """Looks at what has nothing else to do until its next tick; used on the scheduler's thread.

    Args:
        scheduler: calls this, and the tick of whatever is not as before.
    """

    def __init__(self, scheduler: ClientScheduler) -> None:
        self._scheduler = scheduler
        self._each: WeakSet[LookedAt] = WeakSet()

    def begin(self, one: LookedAt) -> None:
        """Look at it from now on."""
        if one not in self._each:
            self._each.add(one)
            self._scheduler.watch(self, LOOK_SECONDS)

    def end(self, one: LookedAt) -> None:
        """Look at it no more."""
        self._each.discard(one)

    def tick(self, now: float) -> float | None:
        """Look at all; the scheduler's call."""
        for number, one in enumerate(list(self._each)):
            if not number % _AT_ONCE:
                now = time.monotonic()
            if not one.is_as_before(now):
                self._each.discard(one)
                self._scheduler.watch(one)
        return LOOK_SECONDS if self._each else None

    def close(self) -> None:
        """Look at nothing any more: the client is closing."""
        self._each.clear()
