"""The thread of a client that sends groups of acknowledgements when they are due, and watches their connections.

It begins with the first acknowledgement that has to wait, ends when there is nothing to watch, and begins anew. It is
a daemon: at the end of a program the client's own `close()` sends what is left. A forked child has no such thread, and
none of its parent's consumers works there.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any

import pulsar

__all__ = ["AckKeeper"]

_log = logging.getLogger("pulsar_ext.acks")
_RETRY_SECONDS = 1.0


class AckKeeper:
    """Calls `tick(now)` of whatever it watches, as often as that asks for."""

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, one: Any) -> None:
        """Call `one.tick(now)` from now on, until it answers None."""
        with self._condition:
            self._watched.add(one)
            self._all.add(one)
            if self._stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pulsar-ext-acks", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self) -> None:
        """Let everything that waits leave, and watch nothing any more."""
        with self._condition:
            self._stopped = True
            every = list(self._all)
            self._condition.notify()
        for one in every:
            one.close()

    def _run(self) -> None:
        while True:
            waits = [self._tick(one) for one in list(self._watched)]
            with self._condition:
                if self._stopped or not self._watched:
                    self._thread = None
                    return
                self._condition.wait(min((wait for wait in waits if wait is not None), default=0))

    def _tick(self, one: Any) -> float | None:
        with self._condition:
            self._watched.discard(one)
        try:
            wait: float | None = one.tick(time.monotonic())
        except pulsar.AlreadyClosed:  # by unsubscribe(), or with its client
            wait = None
        except Exception:  # noqa: BLE001  # the thread has to go on, for others too
            _log.exception("Acknowledgements could not be sent; they are kept")
            wait = _RETRY_SECONDS
        if wait is not None:
            with self._condition:
                self._watched.add(one)
        return wait
