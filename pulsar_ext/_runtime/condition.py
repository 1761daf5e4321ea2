"""Waiting that a signal's handler may interrupt, or end by raising, at any point: no lock stays held, no wait lasts.

Python's own `Condition` and `Event` are written in Python: a Ctrl-C between the lock's being taken and the block's
beginning, or between the block's end and the lock's being let go, leaves it held for good. The next outcome then holds
up the C++ client's thread for ever.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from operator import attrgetter, call
from typing import Any

from pulsar_ext._native import threads
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext.errors import InvalidUse


def refuse_interrupting(what: str, *locks: OwnedLock) -> None:
    """Refuse what the handler of a signal asks for in the midst of what it interrupts.

    Raises:
        InvalidUse: this thread holds one of these locks: what it guards is half done.
    """
    if any(lock.is_held for lock in locks):
        raise InvalidUse(
            f"{what} in a signal's handler would meet the call that it interrupts, half done. Do it behind that call."
        )


class Condition(threading.Condition):
    """A `threading.Condition` with a re-entrant lock that a `with` block takes and lets go by itself."""

    # What a `with` looks up on the class: the lock's own methods, without a Python function in between.
    __enter__: Any = property(attrgetter("_lock.__enter__"))
    __exit__: Any = property(attrgetter("_lock.__exit__"))
    _waiters: Any
    _release_save: Any
    _acquire_restore: Any

    def __init__(self) -> None:
        self.lock = OwnedLock()
        super().__init__(self.lock)
        self._waiters = []  # few wait, and an empty deque takes 700 bytes, for each consumer

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is notified; False if it was not within so many seconds. The lock is held."""
        waiter = threads.Lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            # Let go as a step of an iteration: no look for signals lies between that and the block that takes it again.
            for state in map(call, (self._release_save,)):
                try:
                    return waiter.acquire(timeout=-1 if timeout is None else max(timeout, 0))  # type: ignore[no-any-return]
                finally:
                    self._acquire_restore(state)
        finally:
            try:  # noqa: SIM105  # no call before it: a waiter that stays would take another one's notification
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
        """Let the waiting thread go on."""
        with suppress(RuntimeError):  # it is set
            self._unset.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False if it is not within so many seconds."""
        if not self._unset.acquire(timeout=-1 if timeout is None else timeout):
            return False
        self.set()  # which it may be again by now
        return True
