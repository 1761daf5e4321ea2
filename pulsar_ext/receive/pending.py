"""A receive with a timeout, made of the asynchronous one.

With `receiver_queue_size=0` the official client has no wait with a timeout. Here a request outlives the wait for it,
and the next receive takes its answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.results import Timeout, raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Condition
from pulsar_ext._wire.message_id_data import decode

from .order import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from .order import Transition

__all__ = ["PendingReceives"]


class PendingReceives(Part):
    """A receive with a timeout in milliseconds, made of the C++ asynchronous one.

    Args:
        receive_async: the C++ consumer's or reader's asynchronous receive.
        meet_batch: is given the id of the first message of a batch, and has all of it come again; False if it cannot.
        leaves_out: whether a C++ message is not to be handed out.

    Raises:
        pulsar.Timeout: from a call, when nothing came in time; what was asked for stays asked for.
        pulsar.AlreadyClosed: from a call, when it is closed, or a batch was met.
    """

    def __init__(
        self,
        receive_async: Callable[[Callable[[Any, Any], None]], None],
        meet_batch: Callable[[Any], bool],
        leaves_out: Callable[[Any], bool],
    ) -> None:
        self._receive_async = receive_async
        self._meet_batch, self._leaves_out = meet_batch, leaves_out
        self._answers: deque[Any] = deque()
        self._before: list[Any] = []
        self._failures: deque[Any] = deque()
        self._waiters: set[int] = set()
        self._asked = 0
        self._changed = Condition()

    def __call__(self, timeout_millis: int) -> Any:
        """Wait up to `timeout_millis` for a C++ message."""
        deadline = time.monotonic() + timeout_millis / 1000
        while True:
            self._wait_until(deadline)
            try:
                first = self._answers[0]
                inner_id = first.message_id()
                if decode(inner_id.serialize()).batch_size > 1 and self._meet_batch(inner_id):
                    raise_result(pulsar.Result.AlreadyClosed)
                if self._leaves_out(first):
                    self._drop(first)
                    continue
                # No call behind this one, not even the end of a `with`: a Ctrl-C would lose the message.
                for message in iter(self._answers.popleft, None):
                    return message
            except IndexError:  # another thread has taken or dropped it
                continue

    def _wait_until(self, deadline: float) -> None:
        """Wait for an answer up to a time of `time.monotonic()`."""
        waiter = threading.get_ident()
        try:
            with self._changed:
                self._waiters.add(waiter)
                self._ask()
                if not (self._answers or self._failures):
                    self._changed.wait(max(deadline - time.monotonic(), 0))
        finally:
            self._waiters.discard(waiter)
        if self._failures:
            raise_result(self._failures.popleft())
        if not self._answers:
            raise Timeout("Pulsar error: TimeOut")

    def _ask(self) -> None:
        """Ask for as many messages as are waited for. Apart: see `_native/locks.py`."""
        while self._asked + len(self._answers) < len(self._waiters) and not self._failures:
            # Counted afterwards: a Ctrl-C in between asks once too often, never once too few.
            self._receive_async(self._answer)
            self._asked += 1

    def before(self, transition: Transition, /) -> None:
        """Find out which answers come again if it happens; what is answered meanwhile may have come again already."""
        self._before = list(self._answers) if transition.brings_back else []

    def after(self, _: Transition, /) -> None:
        """Drop the answers that nobody has taken, if they come again."""
        self._drop(*self._before)
        self._before = []

    def is_owed(self) -> bool:
        """Whether a request has no answer yet."""
        return self._asked > 0

    def _drop(self, *answers: Any) -> None:
        """Drop some answers, unless somebody has taken them."""
        for one in answers:
            with contextlib.suppress(ValueError):
                self._answers.remove(one)

    def _answer(self, result: Any, message: Any) -> None:
        keep_thread_state()
        with self._changed:
            self._asked -= 1
            if result.name == "Ok":
                self._answers.append(message)
            else:
                self._failures.append(result)
            self._changed.notify()
