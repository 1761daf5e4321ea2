"""What is told of a SIGTERM, so that it ends cleanly in place of the process.

The signal's handler is the application's. Ours is there only while something is to be told, and only where there is
none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminable(Protocol):
    """What is told of a SIGTERM."""

    def end(self) -> None:
        """End soon; on the main thread, between any two steps of it."""
        ...


_told: weakref.WeakKeyDictionary[Terminable, None] = weakref.WeakKeyDictionary()
"""Weakly: what is gone must not keep the signal from ending the process."""


@contextlib.contextmanager
def at_termination(told: Terminable) -> Iterator[None]:
    """Have something told of a SIGTERM as long as the block runs, in place of the end of the process.

    That is so if the application has no handler for it, and the thread of one that is told is the main one.
    """
    _told[told] = None
    try:
        if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        yield
    finally:
        _told.pop(told, None)
        if not _told and _is_main() and signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, _: Any) -> None:
    told = [one for known in _told.keyrefs() if (one := known()) is not None]
    if not told:  # nobody is left: as without a handler
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    for one in told:
        one.end()


def _in_child() -> None:
    """Let a SIGTERM end a forked child as by default: it has nothing to end cleanly.

    It is done at once. From CPython 3.13 on, a child that another thread than the main one has forked does not call
    Python's handlers of signals while it computes.
    """
    _told.clear()
    if signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


os.register_at_fork(after_in_child=_in_child)
