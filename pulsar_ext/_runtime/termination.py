"""Ending tasks cleanly at a SIGTERM, instead of ending the process.

Our signal handler is installed only while there are such tasks, and only if the application has installed none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol


class Terminable(Protocol):
    """A task that ends soon when `end` is called, on the main thread, between any two of its steps."""

    def end(self) -> None: ...


_active: weakref.WeakKeyDictionary[Terminable, None] = weakref.WeakKeyDictionary()
"""Weak references: a collected task must not keep the signal from ending the process."""


@contextlib.contextmanager
def at_termination(task: Terminable) -> Iterator[None]:
    """End a task at a SIGTERM while the block runs, instead of ending the process.

    This requires that the application has no handler for the signal, and that a block is entered on the main thread.
    """
    _active[task] = None
    try:
        if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        yield
    finally:
        _active.pop(task, None)
        if not _active and _is_main() and signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, _: object) -> None:
    tasks = [one for known in _active.keyrefs() if (one := known()) is not None]
    if not tasks:  # end the process, as without a handler
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    for one in tasks:
        one.end()


def _in_child() -> None:
    """Restore the default SIGTERM in a forked child, which has nothing to end cleanly.

    It is restored at once: from CPython 3.13 on, a child forked by another thread than the main one does not call
    Python's signal handlers while it computes.
    """
    _active.clear()
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


os.register_at_fork(after_in_child=_in_child)
