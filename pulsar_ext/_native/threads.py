"""Threads, locks and sleeps that C++ threads and greenlets can share, if gevent or eventlet has patched Python's.

A patched lock is for the greenlets of one thread: a C++ thread that releases it wakes nobody. So everything here is
made of CPython's own `_thread`, and this library's threads are threads of the operating system. Only a wait on a thread
that has greenlets polls, and lets the others run between two polls. Without greenlets each name is Python's own.

What patches Python has to do so before this library is imported. If it comes later, each wait blocks its thread with
all of its greenlets, as each wait of the official client does.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from _queue import Empty, SimpleQueue
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from math import inf
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["IS_PATCHED", "Lock", "Queue", "RLock", "local", "pauses", "shares_thread", "sleep", "start", "start_in_c"]

_POLLS_SECONDS: Final = (0.001, 0.002, 0.005, 0.01)
"""After how long the first polls of a wait come; the last interval stays."""

IS_PATCHED: Final = "greenlet" in sys.modules and not all(
    isinstance(one, BuiltinFunctionType) for one in (_thread.allocate_lock, time.sleep)
)
"""Whether gevent or eventlet has replaced Python's locks, or what sleeps."""


def _made_again(module: Any) -> Any:
    """Make a built-in module a second time, as CPython makes it."""
    from importlib.util import module_from_spec  # noqa: PLC0415  # takes a millisecond that others need not pay

    again = module_from_spec(module.__spec__)
    module.__spec__.loader.exec_module(again)
    return again


_own: Any = _made_again(_thread) if IS_PATCHED else _thread
local: Any = _own._local  # what `threading.local` is
start_in_c: Callable[..., int] = _own.start_new_thread
"""Starts a thread of the operating system in one call of C, which no signal's handler interrupts."""


def start(target: Callable[..., object], *args: Any, name: str, daemon: bool = True) -> None:
    """Start a thread of the operating system.

    Args:
        target: what it calls.
        *args: what it calls that with.
        name: of the thread; one beside greenlets has none, because `threading.Thread` is a greenlet there.
        daemon: whether the program ends without waiting for it; beside greenlets it always does.

    Raises:
        RuntimeError: the interpreter is ending and starts no threads any more.
    """
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
"""Of the threads beside greenlets that have nothing to do. A hub keeps its descriptors when its thread ends, and every
thread that sleeps or opens a socket has one: so these threads stay, and are used again."""


def _serve(calls: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        calls.get()()
        _idle.append(calls)


_current: Callable[[], Any] = sys.modules["greenlet"].getcurrent if IS_PATCHED else _own.get_ident
_main = _own.get_ident()


def shares_thread() -> bool:
    """Return if this thread has a hub, which runs other greenlets while this one waits.

    That is so on the thread that has imported this library, and in each greenlet that was made by a hub, but not in
    the hub itself, which is below the thread's first greenlet. Threads of C++ and of this library have no hub.
    """
    parent = _current().parent
    return _own.get_ident() == _main if parent is None else parent.parent is not None


def pauses(seconds: float) -> Iterator[None]:
    """Let other greenlets run for so many seconds, with a step wherever something may be polled."""
    deadline = time.monotonic() + seconds
    for interval in chain(_POLLS_SECONDS, repeat(_POLLS_SECONDS[-1])):
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(interval, left))
        yield


def _sleep(seconds: float) -> None:
    """Sleep, and let other greenlets run if there are any."""
    if shares_thread():
        time.sleep(seconds)
    else:
        held = _own.allocate_lock()
        held.acquire()
        held.acquire(timeout=seconds)


class _Lock:
    """A lock for greenlets and threads of any kind: any of them may release what another one has acquired."""

    __slots__ = ("_lock", "locked", "release")

    def __init__(self) -> None:
        self._lock = _own.allocate_lock()
        self.locked: Callable[[], bool] = self._lock.locked
        self.release: Callable[[], None] = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # as officially
        """Acquire the lock; return False if that is not possible, in so many seconds if they are not negative."""
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
    """A re-entrant lock that belongs to the greenlet that has acquired it, as Python's belongs to the thread.

    Unlike CPython's it is not safe against a Ctrl-C amid its own few steps.
    """

    __slots__ = ("_count", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock, self._owner, self._count = _Lock(), None, 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # as officially
        """Acquire the lock, once more if this greenlet has it; return False as a lock does."""
        me = _current()
        if self._owner is not me:
            if not self._lock.acquire(blocking, timeout):
                return False
            self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        """Release the lock, if that is the last time."""
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    # What `threading.Condition` asks of a lock.

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
    """A `queue.SimpleQueue` that any thread may put into."""

    __slots__ = ()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # as officially
        """Take the first item; raises `queue.Empty` if there is none in so many seconds."""
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
    time.sleep(0)  # makes the first hub: two threads that do so at once would wait in the midst of gevent's imports
Lock: Any = _Lock if IS_PATCHED else _thread.allocate_lock
RLock: Any = _RLock if IS_PATCHED else _thread.RLock
Queue: Any = _Queue if IS_PATCHED else SimpleQueue
sleep: Callable[[float], None] = _sleep if IS_PATCHED else time.sleep
