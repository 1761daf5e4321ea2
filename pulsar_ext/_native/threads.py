"""Threads, locks and sleeps that C++ threads and greenlets can share if gevent or eventlet has patched Python.

A patched lock serves the greenlets of one thread: a release on a C++ thread wakes no waiter. So everything here uses
CPython's own `_thread`, and this library's threads are operating system threads. Only a wait on a thread with greenlets
polls, and lets other greenlets run between two polls. Without greenlets each name is Python's own.

Patch Python before importing this library. After a later patch each wait blocks its thread with all of its greenlets,
as each wait of the official client does.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from _queue import Empty, SimpleQueue
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from math import inf
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Final

_POLLS_SECONDS: Final = (0.001, 0.002, 0.005, 0.01)
"""The first poll intervals of a wait; the last one repeats."""

IS_PATCHED: Final = "greenlet" in sys.modules and not all(
    isinstance(one, BuiltinFunctionType) for one in (_thread.allocate_lock, time.sleep)
)
"""True if gevent or eventlet has replaced Python's locks or its sleep."""


def _copy_of(module: Any) -> Any:
    """Create a built-in module a second time, as CPython does."""
    from importlib.util import module_from_spec  # noqa: PLC0415  # takes a millisecond that others need not pay

    again = module_from_spec(module.__spec__)
    module.__spec__.loader.exec_module(again)
    return again


_own: Any = _copy_of(_thread) if IS_PATCHED else _thread
start_in_c: Callable[..., int] = _own.start_new_thread
"""Starts an operating system thread in one C call, which no signal handler interrupts."""


def start(target: Callable[..., object], *args: object, name: str, daemon: bool = True) -> None:
    """Start an operating system thread; beside greenlets it is a daemon and has no name."""
    if _thread.start_new_thread is start_in_c:
        threading.Thread(target=target, args=args, name=name, daemon=daemon).start()
        return
    try:
        calls = _idle.pop()
    except IndexError:
        calls = SimpleQueue()
        start_in_c(_serve, (calls,))
    calls.put(partial(target, *args))


_idle: list[SimpleQueue[Callable[[], object]]] = []
"""Queues of the idle threads beside greenlets. A hub keeps its descriptors after its thread ends, and every thread that
sleeps or opens a socket has a hub, so these threads stay and are reused."""


def _serve(calls: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        calls.get()()
        _idle.append(calls)


_current: Callable[[], Any] = sys.modules["greenlet"].getcurrent if IS_PATCHED else _own.get_ident
_main = _own.get_ident()


def shares_thread() -> bool:
    """Return if this thread has a hub, which runs other greenlets while this one waits.

    The thread that imported this library has one, and so has each greenlet that a hub created, but not the hub itself,
    which is below the thread's first greenlet. C++ threads and this library's threads have no hub.
    """
    parent = _current().parent
    return _own.get_ident() == _main if parent is None else parent.parent is not None


def pauses(seconds: float) -> Iterator[None]:
    """Let other greenlets run for `seconds`, yielding whenever the caller may poll."""
    deadline = time.monotonic() + seconds
    for interval in chain(_POLLS_SECONDS, repeat(_POLLS_SECONDS[-1])):
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(interval, left))
        yield


def _sleep(seconds: float) -> None:
    if shares_thread():
        time.sleep(seconds)
    else:
        held = _own.allocate_lock()
        held.acquire()
        held.acquire(timeout=seconds)


class _Lock:
    """Lock for greenlets and threads of any kind: any of them may release it, whichever acquired it."""

    __slots__ = ("_lock", "locked", "release")

    def __init__(self) -> None:
        self._lock = _own.allocate_lock()
        self.locked: Callable[[], bool] = self._lock.locked
        self.release: Callable[[], None] = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # as officially
        """Acquire the lock; return False if it is not free, or not within `timeout` seconds if that is not negative."""
        if self._lock.acquire(blocking=False):
            return True
        if not blocking:
            return False
        if not shares_thread():
            return bool(self._lock.acquire(timeout=timeout))
        return any(self._lock.acquire(blocking=False) for _ in pauses(inf if timeout < 0 else timeout))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _RLock:
    """Re-entrant lock owned by the greenlet that acquired it, as Python's is owned by the thread.

    Unlike CPython's it is not safe against a Ctrl-C during its own steps.
    """

    __slots__ = ("_count", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock, self._owner, self._count = _Lock(), None, 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # as officially
        """Acquire the lock, again if this greenlet already owns it; return False like `_Lock.acquire()`."""
        me = _current()
        if self._owner is not me:
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        """Release the lock once; it is free after as many releases as acquisitions."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    # Methods that `threading.Condition` calls on its lock.

    def _is_owned(self) -> bool:
        return self._owner is _current()

    def _release_save(self) -> int:
        count, self._count = self._count, 1
        self.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count


class _Queue(SimpleQueue):  # type: ignore[type-arg]
    """`queue.SimpleQueue` that any thread may put into."""

    __slots__ = ()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # as officially
        """Remove and return the first item; raise `queue.Empty` after `timeout` seconds without one."""
        if not (block and shares_thread()):
            return super().get(block, timeout)
        for _ in chain((None,), pauses(inf if timeout is None else timeout)):
            with suppress(Empty):
                return super().get(False)
        raise Empty


def _in_child() -> None:
    global _main  # noqa: PLW0603  # the thread that forks is the only one of the child
    _main = _own.get_ident()
    _idle.clear()


os.register_at_fork(after_in_child=_in_child)
if IS_PATCHED:
    time.sleep(0)  # creates the first hub: two threads doing this at once would deadlock in gevent's imports
if TYPE_CHECKING:
    Lock = threading.Lock
    local = threading.local
    Queue, sleep = SimpleQueue, time.sleep
else:
    Lock, Queue, sleep = (_Lock, _Queue, _sleep) if IS_PATCHED else (_thread.allocate_lock, SimpleQueue, time.sleep)
    local = _own._local  # the implementation of `threading.local`
RLock: Any = _RLock if IS_PATCHED else _thread.RLock
