"""Asynchronous calls of the C++ client, and waits for their answers that can end without one."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pulsar

from . import threads
from .results import raise_result
from .thread_state import keep_thread_state

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ANSWER_SECONDS", "Answer", "answered_within"]

ANSWER_SECONDS = 1.0
"""How long a close waits for what the C++ client owes; where the broker does not answer, that may take long."""
_LOOK_SECONDS = 0.002


_COMING_SECONDS = 1.0
"""How long an answer is waited for that nobody wants any more."""


class Answer:
    """The callback of one asynchronous call; what it is called with first is the answer.

    One thread waits for it. A signal's handler may give the answer while it interrupts that wait.
    """

    __slots__ = ("__weakref__", "_given", "_opened", "_unknown", "_unwanted", "is_owed")

    def __init__(self) -> None:
        self._unknown = threads.Lock()
        self._unknown.acquire()
        self._given: tuple[Any, Any] | None = None
        self._opened: Any = None
        """What the C++ client opened, also where another answer was given before."""
        self._unwanted = False
        self.is_owed = True
        """Whether the C++ client has not answered."""

    def __call__(self, result: Any, value: Any = None) -> None:
        """Take the answer."""
        keep_thread_state()
        if result == pulsar.Result.Ok:  # what comes with another result is not open
            self._opened = value
        self.give_up(result, value)
        self.is_owed = False
        if self._unwanted and self._opened is not None:
            self._opened.close_async(None)

    def give_up(self, result: Any, value: Any = None) -> None:
        """Have this be the answer, if there is none yet: nobody waits for that of the C++ client any more."""
        if self._given is None:
            self._given = result, value
        with contextlib.suppress(RuntimeError):  # it was released; where a Ctrl-C kept it from that, it is now
            self._unknown.release()

    @property
    def result(self) -> Any:
        """The result; None if there is none yet."""
        return None if self._given is None else self._given[0]

    def result_until(self, deadline: float) -> Any:
        """Wait for the result until `deadline`, a monotonic time in seconds; `Timeout` if there is none by then."""
        self._unknown.acquire(timeout=max(deadline - time.monotonic(), 0))
        return pulsar.Result.Timeout if self._given is None else self._given[0]

    def value(self) -> Any:
        """Wait for the answer, and give what came with it.

        Raises:
            Exception: what the call raised; the official error of its result.
        """
        self._unknown.acquire()
        assert self._given is not None  # noqa: S101  # comes with the lock
        result, value = self._given
        if isinstance(result, Exception):
            raise result
        if result != pulsar.Result.Ok:
            raise_result(result, value if isinstance(value, str) else "")
        return value

    def let_go(self) -> None:
        """Keep what came with the answer no longer: a C++ reader keeps its callback, and would never be freed."""
        self._opened = None
        if self._given is not None:
            self._given = self._given[0], None

    def close_again(self) -> None:
        """Close what comes with the answer, which nobody gets; if it comes later, without a wait."""
        self._unwanted = True
        if self._given is None:
            self.result_until(time.monotonic() + _COMING_SECONDS)
        if self._opened is not None:
            with contextlib.suppress(pulsar.PulsarException):
                self._opened.close()


def answered_within(seconds: float, is_owed: Callable[[], bool]) -> bool:
    """Wait until the C++ client owes nothing any more; False if it still does after so many seconds."""
    deadline = time.monotonic() + seconds
    while is_owed():
        if time.monotonic() >= deadline:
            return False
        threads.sleep(_LOOK_SECONDS)
    return True
