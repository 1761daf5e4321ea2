"""Receiving from one of several C++ readers, and hearing of what comes to the others, without a thread for each.

Where a receive finds nothing, the C++ reader is asked for one message, and says when it is there. Until then it is not
received from in any other way, so that its messages keep their order.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.results import Timeout, raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Condition

from .order import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from .order import Transition

__all__ = ["Arrivals"]


class Arrivals(Part):
    """A receive with a timeout in milliseconds; one of 0 that finds nothing has somebody hear when something comes.

    Args:
        native: the C++ reader's receive with a timeout.
        receive_async: its asynchronous one.
        hear: is called when a message has come, or there will be none; on a thread of the C++ client.

    Raises:
        pulsar.Timeout: from a call, when nothing came in time.
        pulsar.AlreadyClosed: from a call, when it is closed.
    """

    def __init__(
        self,
        native: Callable[[int], Any],
        receive_async: Callable[[Callable[[Any, Any], None]], None],
        hear: Callable[[], object],
    ) -> None:
        self._native, self._receive_async, self._hear = native, receive_async, hear
        self._arrived: deque[Any] = deque()
        self._failures: deque[Any] = deque()
        self._owed: deque[None] = deque()
        """One for each request without an answer."""
        self._changed = Condition()

    def __call__(self, timeout_millis: int) -> Any:
        """Wait up to `timeout_millis` for a C++ message."""
        try:
            if self._arrived or self._owed or self._failures:
                self._wait(timeout_millis / 1000)
                # No call behind this one: a Ctrl-C would lose the message.
                for message in iter(self._arrived.popleft, None):
                    return message
            for message in map(self._native, (timeout_millis,)):
                return message
        except IndexError:  # another thread has taken it
            raise Timeout("Pulsar error: TimeOut") from None
        except Timeout:
            if timeout_millis <= 0:
                self._ask()
            raise
        raise AssertionError  # the map above has exactly one item

    @property
    def holds(self) -> bool:
        """Whether a message has come that nobody has taken."""
        return bool(self._arrived)

    def is_owed(self) -> bool:
        """Whether a message was asked for that has not come."""
        return bool(self._owed)

    def after(self, transition: Transition, /) -> None:
        """Drop what has come and was not taken, if it comes again."""
        if transition.brings_back:
            self._arrived.clear()

    def _wait(self, seconds: float) -> None:
        """Wait for what was asked for."""
        with self._changed:
            if not (self._arrived or self._failures):
                self._changed.wait(seconds)
        if self._failures and not self._arrived:
            raise_result(self._failures.popleft())

    def _ask(self) -> None:
        with self._changed:
            if self._owed or self._arrived or self._failures:
                return
            # Nothing but C from the count on: behind a Ctrl-C in between the one would be without the other.
            steps = partial(self._owed.append, None), partial(self._receive_async, self._answer)
            try:
                deque(map(call, steps), 0)
            except pulsar.PulsarException:
                self._owed.clear()
                raise

    def _answer(self, result: Any, message: Any) -> None:
        keep_thread_state()
        with self._changed:
            self._owed.pop()
            if result == pulsar.Result.Ok:
                self._arrived.append(message)
            else:
                self._failures.append(result)
            self._changed.notify()
        self._hear()
