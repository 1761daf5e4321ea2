"""Locks that a Ctrl-C cannot leave held: a `with` block acquires and releases them with no signal check in between.

Up to CPython 3.13 the locks of `threading` have this property: a `with` block calls their C `__enter__` in one
instruction. CPython 3.14 checks for signals after that call and before the block is protected, so a handler that raises
there leaves the lock held. It does not check after the return of a Python function. So on 3.14 `__enter__` is a Python
function, which acquires the lock in a step of an iteration: no check follows that either. `__exit__` stays in C: a
Python function checks for signals when it begins.

From CPython 3.12 on, the jump back of a condition at a loop's end lies outside the `with` and `try` blocks around the
loop. CPython checks for signals there, so a handler that raises leaves a lock held and skips a `finally`. Where this
matters, the loop is a function of its own that the block calls: a call is protected.
"""

from __future__ import annotations

import sys
from operator import attrgetter, call
from typing import Any

from . import threads

_acquire = threads.RLock.acquire


class OwnedLock(threads.RLock):  # type: ignore[misc]  # the base is one of two classes
    """Re-entrant lock that shows a signal handler whether its own thread holds it."""

    __slots__ = ()

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:
            for held in map(_acquire, (self,)):
                return held  # type: ignore[no-any-return]  # the lock has no type hints
            raise AssertionError  # the map above has exactly one item

    @property
    def is_held(self) -> bool:
        held: bool = self._is_owned()
        return held


if sys.version_info >= (3, 14):

    class Lock:
        """Lock for a `with` block."""

        __slots__ = ("_lock",)

        # A `with` block looks this up on the class: the C lock's own method, without a Python function in between.
        __exit__: Any = property(attrgetter("_lock.__exit__"))

        def __init__(self) -> None:
            self._lock = threads.Lock()

        def __enter__(self) -> bool:
            for held in map(call, (self._lock.acquire,)):
                return held
            raise AssertionError  # the map above has exactly one item

else:
    Lock = threads.Lock
