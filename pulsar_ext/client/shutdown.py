"""A clean end of the program: what is still open is flushed and closed."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Protocol

from pulsar_ext._native import threads

from .closing import close_late_ones

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["close_at_exit"]

_LEAVING_SECONDS = 0.05
"""How long a thread has, at the end of the program, to come back from the C++ client."""


class Barrable(Protocol):
    """A producer, a consumer or a reader."""

    def _bar_(self) -> None:
        """Let nobody enter the C++ object any more."""


class Closable(Protocol):
    """A client."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...

    def _handles_(self) -> Iterable[Barrable]:
        """Give what is open."""
        ...

    def close(self) -> None:
        """Close it."""


_open_clients: weakref.WeakSet[Closable] = weakref.WeakSet()
_workers: set[int] = set()


def close_at_exit(client: Closable) -> None:
    """Have a client closed at the end of the program, of a process that multiprocessing made as well."""
    _open_clients.add(client)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None and os.getpid() not in _workers:
        _workers.add(os.getpid())  # such a process skips what atexit knows
        Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    """Close what the program left open: an open C++ client aborts the process or loses what is pending."""
    for client in list(_open_clients):
        used = list(client._handles_())
        if not client.is_closed:
            with contextlib.suppress(Exception):
                client.close()
        for one in used:
            one._bar_()
    close_late_ones()
    if threads.IS_PATCHED or threading.active_count() > 1:
        # A daemon thread that goes on is ended by Python wherever it is. In the C++ client that aborts the process.
        threads.sleep(_LEAVING_SECONDS)


atexit.register(_close_all)
