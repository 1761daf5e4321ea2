"""Health of the library after an interrupted call: locks, threads, calls from another thread."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import queue
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.answer import Answer
from pulsar_ext._runtime.condition import Flag
from pulsar_ext._runtime.scheduler import batch_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["HANG_EXIT", "Elsewhere", "Watchdog", "held_locks", "locks_of_library", "silent_schedulers"]

HANG_EXIT = 70
PATIENCE = 3.0
"""Timeout in seconds of calls that wait for nothing."""
_HANG_SECONDS = 15.0

_LOCKS = (type(threading.RLock()), type(threading.Lock()))


class Elsewhere:
    """A thread that makes calls, one after the other, and reports those that do not return."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(self._calls,), daemon=True, name="elsewhere").start()

    def call(self, name: str, call: Callable[[], Any], seconds: float = PATIENCE) -> tuple[str, Any]:
        """Make a call on the thread; return its problem, or an empty text, and its result."""
        done, answer = threading.Lock(), []
        done.acquire()
        self._calls.put((call, answer, done))
        if not done.acquire(timeout=seconds):
            self._begin()
            return f"{name} on another thread did not return within {seconds:g} s", None
        error, returned = answer
        return (f"{name} on another thread raised {error!r}" if error is not None else ""), returned

    @staticmethod
    def _work(calls: Any) -> None:
        while True:
            call, answer, done = calls.get()
            try:
                answer.extend((None, call()))
            except BaseException as error:  # noqa: BLE001  # reported
                answer.extend((error, None))
            done.release()


_broken: dict[int, Any] = {}
"""Locks that are held for good, so that none is reported twice."""


def locks_of_library() -> list[tuple[str, Any]]:
    """Return the locks of all live objects of the library, each with its name."""
    found = {}
    for one in gc.get_objects():
        kind = type(one)
        if not str(kind.__module__).startswith("pulsar_ext"):
            continue
        names = [*getattr(one, "__dict__", ()), *(name for base in kind.__mro__ for name in _slots(base))]
        for name in names:
            value = getattr(one, name, None) if not name.startswith("__") else None
            lock = getattr(value, "_lock", value) if isinstance(value, threading.Condition) else value
            if isinstance(lock, _LOCKS) and kind not in (Answer, Flag) and id(lock) not in _broken:
                found[id(lock)] = (f"{kind.__name__}.{name}", lock)
    return list(found.values())


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def held_locks(locks: list[tuple[str, Any]]) -> list[str]:
    """Return the names of locks that are never released; call it on a thread that holds none."""
    held = []
    for name, lock in locks:
        if lock.acquire(timeout=PATIENCE):
            lock.release()
        else:
            held.append(name)
            _broken[id(lock)] = lock
    return held


def silent_schedulers(client: Any) -> Iterator[str]:
    """Yield an error for each scheduler whose thread does not work any more."""
    schedulers = {"batches": batch_scheduler}
    if client is not None and not client.is_closed:
        context = client.context
        schedulers |= {"acks": context.scheduler, "inquiries": context.inquiries, "outcomes": context.outcomes}
    for name, scheduler in schedulers.items():
        ticked = threading.Lock()
        ticked.acquire()
        scheduler.run(ticked.release)
        if not ticked.acquire(timeout=PATIENCE):
            yield f"the scheduler of {name} does not work any more"


class Watchdog:
    """Ends this process if it hangs, and reports the place."""

    def __init__(self) -> None:
        self.doing: dict[str, Any] = {}
        self._since = time.monotonic()
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def beat(self, **doing: Any) -> None:
        """Record the current step."""
        self.doing, self._since = doing or self.doing, time.monotonic()

    def _watch(self) -> None:
        main = threading.main_thread().ident
        while time.monotonic() - self._since < _HANG_SECONDS:
            time.sleep(0.2)
        frames = sys._current_frames()
        stack = traceback.extract_stack(frames[main]) if main in frames else []
        where = [f"{'/'.join(one.filename.split('/')[-2:])}:{one.lineno} {one.name}" for one in stack[-8:]]
        print(json.dumps({"hang": self.doing, "stack": where}), flush=True)
        faulthandler.dump_traceback(file=sys.stderr)
        os._exit(HANG_EXIT)
