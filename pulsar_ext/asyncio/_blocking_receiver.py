"""Blocking receives in the shape of the C++ client's `receive_async`: a callback gets the outcome later.

Where Python looks at a message before the application does (dead letters, timeouts, key ranges, groups), and for whole
batches, the blocking receive does the work. It waits on a thread of its own, so that no other thread of the client is
held up, however many consumers wait, nor the end of the process.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._runtime.condition import Condition

from .errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BlockingReceiver"]

_LINGER_SECONDS = 1.0
"""How long a thread without requests waits for another one before it ends."""


class BlockingReceiver:
    """Serves one request after the other, so that what is received keeps its order.

    Args:
        receive: waits, and returns what was received, or raises.
    """

    def __init__(self, receive: Callable[[], Any]) -> None:
        self._receive = receive
        self._requests: deque[Callable[[Any, Any], None]] = deque()
        self._changed = Condition()
        self._runs = False

    def receive_async(self, callback: Callable[[Any, Any], None]) -> None:
        """Have `callback(pulsar.Result.Ok, what was received)` called, or `callback(the error, None)`, on a thread."""
        with self._changed:
            self._requests.append(callback)
            self._changed.notify()
            if self._runs:
                return
        # A daemon: a message that never comes must not hold up the end of the process.
        threads.start(self._serve, name="pulsar-ext-receive")

    def _serve(self) -> None:
        with self._changed:
            if self._runs:
                return  # only one serves; it says so itself, for a signal's handler may keep a thread from starting
            self._runs = True
        while True:
            with self._changed:
                if not self._requests:
                    self._changed.wait(_LINGER_SECONDS)
                if not self._requests:
                    self._runs = False
                    return
                callback = self._requests.popleft()
            try:
                received = self._receive()
            except pulsar.AlreadyClosed:
                callback(pulsar.Result.AlreadyClosed, None)
            except BaseException as error:  # noqa: BLE001  # it is raised where the message is awaited
                callback(translated(error), None)
            else:
                callback(pulsar.Result.Ok, received)
