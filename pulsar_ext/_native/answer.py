"""Asynchronous calls of the C++ client, with interruptible waits for their results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

import pulsar
from _pulsar import Error

from . import threads
from .results import Result, raise_result
from .thread_state import keep_thread_state

ANSWER_SECONDS = 1.0
"""Time in seconds that a close waits for open calls; a broker that does not answer may keep them open longer."""
_OK: Final = pulsar.Result.Ok
"""The binding's own object; comparing it takes a microsecond, and it is mostly the same one."""
_POLL_SECONDS = 0.002
_ABANDONED_SECONDS = 1.0
"""Time in seconds to wait for an abandoned call that opens something, so that it can be closed."""


class Answer:
    """Callback of one asynchronous call; its first arguments are the result.

    One thread waits for it. A signal handler may set the result while it interrupts that wait.
    """

    __slots__ = ("__weakref__", "_is_abandoned", "_opened", "_outcome", "_waiter", "awaits_answer")

    def __init__(self) -> None:
        self._waiter = threads.Lock()
        self._waiter.acquire()
        self._outcome: tuple[Result | Exception, object] | None = None
        self._opened: Any = None
        """The object that the C++ client opened, even if another result was set before."""
        self._is_abandoned = False
        self.awaits_answer = True
        """True until the C++ client has answered."""

    def __call__(self, result: Result | Exception, value: object = None) -> None:
        """Set the result."""
        keep_thread_state()
        if result is _OK or result == _OK:  # the value of any other result is not open
            self._opened = value
        self.give_up(result, value)
        self.awaits_answer = False
        if self._is_abandoned and self._opened is not None:
            self._opened.close_async(None)

    def opened(self, outcome: object) -> None:
        """Set the object that was opened, or the error with the C++ client's message, as the result."""
        if isinstance(outcome, Error):
            self(outcome.error, outcome.message)
        else:
            self(_OK, outcome)

    def give_up(self, result: Result | Exception, value: object = None) -> None:
        """Set the result, unless one is set, so that the wait no longer depends on the C++ client."""
        if self._outcome is None:
            self._outcome = result, value
        try:  # noqa: SIM105  # three calls less, while the thread that waits is idle
            self._waiter.release()
        except RuntimeError:  # already released, or a Ctrl-C prevented that and it is released now
            pass

    @property
    def result(self) -> Result | Exception | None:
        return None if self._outcome is None else self._outcome[0]

    def result_until(self, deadline: float) -> Result | Exception:
        """Wait for the result until `deadline`, a monotonic time in seconds; return `Timeout` after it."""
        self._waiter.acquire(timeout=max(deadline - time.monotonic(), 0))
        return pulsar.Result.Timeout if self._outcome is None else self._outcome[0]

    def value(self) -> Any:
        """Wait for the result and return its value, or raise the call's exception or the official error."""
        self._waiter.acquire()
        assert self._outcome is not None  # noqa: S101  # comes with the lock
        result, value = self._outcome
        if result is not _OK and result != _OK:
            raise_result(result, value if isinstance(value, str) else "")
        return value

    def drop_value(self) -> None:
        """Drop the value: a C++ reader keeps its callback, and a reference to the reader would be a cycle."""
        self._opened = None
        if self._outcome is not None:
            self._outcome = self._outcome[0], None

    def close_abandoned(self) -> None:
        """Close the object that the call opens, now or when it arrives: the caller no longer wants it."""
        self._is_abandoned = True
        if self._outcome is None:
            self.result_until(time.monotonic() + _ABANDONED_SECONDS)
        if self._opened is not None:
            with contextlib.suppress(pulsar.PulsarException):
                self._opened.close()


def answered_within(seconds: float, awaits_answer: Callable[[], bool]) -> bool:
    """Wait until `awaits_answer` returns false; return False if it is still true after `seconds`."""
    deadline = time.monotonic() + seconds
    while awaits_answer():
        if time.monotonic() >= deadline:
            return False
        threads.sleep(_POLL_SECONDS)
    return True
