"""Locks that a `with` block takes and lets go with no look for signals in between: a Ctrl-C leaves none held.

Up to CPython 3.13 the locks of `threading` are that already, for a `with` block calls their `__enter__` in one
instruction. CPython 3.14 looks for signals behind that call and before the block's protection begins: a handler that
raises there leaves the lock held for good, whatever lock it is. Behind the return of a function in Python it does not
look. So here `__enter__` is one there, which takes the lock as a step of an iteration: behind that it does not look
either. `__exit__` stays one in C: in the beginning of a function in Python it does look.

From CPython 3.12 on, a jump back that the compiler makes of a condition at a loop's end lies outside the `with` and
`try` blocks round the loop. CPython looks for signals there, so a handler that raises leaves a lock held, and a
`finally` undone. Where that does harm, the loop is a function of its own, which the block calls: a call is protected.
"""

from __future__ import annotations

import sys
from operator import attrgetter, call
from typing import Any

from . import threads

__all__ = ["Lock", "OwnedLock"]

_take = threads.RLock.acquire


class OwnedLock(threads.RLock):  # type: ignore[misc]  # one of two classes
    """A re-entrant lock that tells a signal's handler whether it interrupts who holds it."""

    __slots__ = ()

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:
            for held in map(_take, (self,)):
                return held  # type: ignore[no-any-return]  # the lock's own class is not known to type checkers
            raise AssertionError  # the map above has exactly one item

    @property
    def is_held(self) -> bool:
        """Whether this thread holds it."""
        held: bool = self._is_owned()
        return held


if sys.version_info >= (3, 14):

    class Lock:
        """A lock for a `with` block."""

        __slots__ = ("_lock",)

        # What a `with` looks up on the class: the lock's own method, without a Python function in between.
        __exit__: Any = property(attrgetter("_lock.__exit__"))

        def __init__(self) -> None:
            self._lock = threads.Lock()

        def __enter__(self) -> bool:
            for held in map(call, (self._lock.acquire,)):
                return held
            raise AssertionError  # the map above has exactly one item

else:
    Lock = threads.Lock
