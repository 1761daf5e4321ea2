"""A clean end of the program: what is still open is flushed and closed."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client

__all__ = ["close_at_exit", "close_in_worker_processes", "open_clients"]

_LEAVING_SECONDS = 0.05
"""How long a thread has, at the end of the program, to come back from the C++ client."""


open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def close_at_exit() -> None:
    """Close what the program left open: an open C++ client aborts the process or loses what is pending."""
    for client in list(open_clients):
        senders = list(client.context.senders)
        used = client._received_by()  # noqa: SLF001  # this module's own class
        if not client._closed:  # noqa: SLF001
            with contextlib.suppress(Exception):
                client.close()
        for one in used:
            one._bar()  # noqa: SLF001
        for sender in senders:
            sender.bar()
    if threading.active_count() > 1:
        # A daemon thread that goes on is ended by Python wherever it is. In the C++ client that aborts the process.
        time.sleep(_LEAVING_SECONDS)


def close_in_worker_processes() -> None:
    """Close at the end of a process that multiprocessing made as well: those skip what atexit knows."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is None or processes.parent_process() is None or os.getpid() in _workers:
        return
    _workers.add(os.getpid())
    Finalize(None, close_at_exit, exitpriority=100)


_workers: set[int] = set()
