"""Waits that a signal handler may interrupt, or end by raising, at any point, without leaving a lock held.

Python's own `Condition` and `Event` are written in Python. A Ctrl-C between acquiring the lock and entering the block,
or between leaving the block and releasing the lock, leaves it held permanently. The next outcome would then block the
C++ client's thread forever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter, call
from typing import Any

from pulsar_ext._native import threads
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext.errors import InvalidUse


def raise_if_interrupting(what: str, *locks: OwnedLock) -> None:
    """Raise if a signal handler interrupts a call that must not be entered again."""
    if any(lock.is_held for lock in locks):
        raise InvalidUse(
            f"{what} in a signal handler would interfere with the call that it interrupts. Do it after that call."
        )


class Condition(threading.Condition):
    """A `threading.Condition` with a re-entrant lock that a `with` block acquires and releases without Python code."""

    # A `with` looks these up on the class: they are the lock's own methods, without a Python function in between.
    __enter__: Any = property(attrgetter("_lock.__enter__"))
    __exit__: Any = property(attrgetter("_lock.__exit__"))
    _waiters: list[threads.Lock]  # few wait, and an empty deque takes 700 bytes per consumer
    _release_save: Callable[[], object]
    _acquire_restore: Callable[[object], None]

    def __init__(self) -> None:
        self.lock = OwnedLock()
        super().__init__(self.lock)
        self._waiters = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for a notification; return False without one. The lock must be held."""
        waiter = threads.Lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            # Released as a step of an iteration: Python does not check for signals before the block that reacquires it.
            for state in map(call, (self._release_save,)):
                try:
                    return waiter.acquire(timeout=-1 if timeout is None else max(timeout, 0))
                finally:
                    self._acquire_restore(state)
        finally:
            try:  # noqa: SIM105  # no call before it: a remaining waiter would take another one's notification
                self._waiters.remove(waiter)
            except ValueError:
                pass
        raise AssertionError  # the map above has exactly one item


class Flag:
    """An event that one thread waits for; setting it again does nothing."""

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threads.Lock()
        self._unset.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is set
            self._unset.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds until the flag is set; return False if it is not."""
        if not self._unset.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self.set()  # the flag stays set
        return True
