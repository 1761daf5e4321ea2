"""The C++ client's threads: their Python thread state is kept from one callback to the next.

A thread that Python did not start has no thread state. The official binding makes one for each callback and throws it
away behind it, and CPython maps memory for the first frame that such a state runs and unmaps it at the end: that takes
ten times as long as the callback. A thread state with one `PyGILState_Ensure()` more than `PyGILState_Release()` stays,
as that of a thread of Python's own does.

Python cannot know when a C++ thread has ended, so its thread state, 17 KB, is left behind until the interpreter ends.
Therefore only so many are kept, and callbacks on later threads are called as officially. So are all on a Python that
`tests/unit/native/test_thread_state.py` has not been run on: how a thread finds its state is CPython's own matter.
"""

from __future__ import annotations

import ctypes
import sys

from . import threads

__all__ = ["keep_thread_state"]

_IS_SHOWN = sys.implementation.name == "cpython" and sys.version_info < (3, 15)
_MOST = 256 if _IS_SHOWN else 0
"""A client has two such threads, unless it was asked for more: one for its connections, one for its listeners.
These are the threads of 128 clients, one after the other, and 4 MB at most."""


class _Here(threads.local):  # type: ignore[misc]  # a class of C
    """What is known of the running thread, for as long as its thread state lasts."""

    kept = False


_here = _Here()
_places = iter(range(_MOST))
_ensure = ctypes.pythonapi.PyGILState_Ensure


def keep_thread_state() -> None:
    """Keep the thread state of the C++ thread that runs the callback that calls this.

    It does nothing on a thread of Python's own, where the C++ client refuses a message at once.
    """
    if _here.kept:
        return
    around = sys._getframe(1).f_back  # the C++ client calls the callback, or one function around it
    if (around is None or around.f_back is None) and next(_places, None) is not None:
        _ensure()
        _here.kept = True
