"""Python thread states of the C++ client's threads, kept from one callback to the next.

A thread that Python did not start has no thread state. The official binding creates one for each callback and destroys
it afterwards; CPython maps memory for the first frame of each thread state and unmaps it at the end, which takes ten
times as long as the callback. A thread state stays if `PyGILState_Ensure()` is called one time more than
`PyGILState_Release()`.

Python cannot detect the end of a C++ thread, so its thread state (17 KB) stays until the interpreter ends. Therefore
only a limited number is kept; later threads get a new one per callback, as officially. None is kept on a Python version
that `tests/unit/native/test_thread_state.py` has not run on: the lookup of a thread's state is internal to CPython.
"""

from __future__ import annotations

import ctypes
import sys

from . import threads

_IS_SHOWN = sys.implementation.name == "cpython" and sys.version_info < (3, 15)
_MAX_KEPT = 256 if _IS_SHOWN else 0
"""Maximum number of kept thread states, 4 MB. A client has two such threads by default, for connections and for
listeners, so this is enough for 128 clients."""


class _ThreadData(threads.local):
    """Data of the running thread, which lives as long as its thread state."""

    kept = False


_thread_data = _ThreadData()
_slots = iter(range(_MAX_KEPT))
_ensure = ctypes.pythonapi.PyGILState_Ensure


def keep_thread_state() -> None:
    """Keep the thread state of the C++ thread that runs the calling callback.

    Do nothing on a Python thread, where the C++ client reports an immediate rejection.
    """
    if _thread_data.kept:
        return
    around = sys._getframe(1).f_back  # the C++ client calls the callback directly, or one function around it
    if (around is None or around.f_back is None) and next(_slots, None) is not None:
        _ensure()
        _thread_data.kept = True
