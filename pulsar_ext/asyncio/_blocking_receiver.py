"""Blocking receives, asked for and answered later.

Where Python looks at a message before the application does (dead letters, timeouts, key ranges, groups), and for whole
batches, the blocking receive does the work. It waits on a thread of its own: none of the client's other threads are
held up by it, however many consumers wait, and the end of the process is not either.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import pulsar

from .errors import both_worlds

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Asking"]

_LINGER_SECONDS = 1.0
"""How long a thread without work stays for more."""


class Asking:
    """Answers one request after the other, so that what comes keeps its order.

    Args:
        receive: what waits, and gives what came or raises.
    """

    def __init__(self, receive: Callable[[], Any]) -> None:
        self._receive = receive
        self._requests: deque[Callable[[Any, Any], None]] = deque()
        self._changed = threading.Condition()
        self._runs = False

    def __call__(self, answer: Callable[[Any, Any], None]) -> None:
        """Have `answer(pulsar.Result.Ok, what came)` called, or `answer(the error, None)`."""
        with self._changed:
            self._requests.append(answer)
            self._changed.notify()
            if self._runs:
                return
            self._runs = True
        # A daemon: what is asked for and never comes must not hold up the end of the process.
        threading.Thread(target=self._run, name="pulsar-ext-receive", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._requests:
                    self._changed.wait(_LINGER_SECONDS)
                if not self._requests:
                    self._runs = False
                    return
                answer = self._requests.popleft()
            try:
                came = self._receive()
            except pulsar.AlreadyClosed:
                answer(pulsar.Result.AlreadyClosed, None)
            except BaseException as error:  # noqa: BLE001  # it is raised where the message is awaited
                answer(both_worlds(error), None)
            else:
                answer(pulsar.Result.Ok, came)
