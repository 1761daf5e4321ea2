"""Closing of C++ clients after their last answer: requests that are unanswered at a close leak."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import ANSWER_SECONDS, answered_within
from pulsar_ext._native.fork import Refusing, refuse_after_fork
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerClient
from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext.consumer import Consumer
from pulsar_ext.reader import Reader

_BATCH_SECONDS = 0.5
"""Time in seconds for batch receives to complete before they are ended; their default timeout is 100 ms."""

_background_closes: set[ClientClose] = set()


class ClientClose:
    """Closes a C++ client, in the background if answers are outstanding after `ANSWER_SECONDS`.

    A producer, consumer or reader that is being opened, a pending receive or a request of the last message id would
    leak on close, together with the client's threads, memory and descriptors. `seconds` is the background's timeout.
    """

    def __init__(
        self, inner: InnerClient, senders: OpenSenders, receiving: list[Consumer | Reader], seconds: float
    ) -> None:
        self.inner: InnerClient | Refusing = inner
        self._senders, self._receiving, self._seconds = senders, receiving, seconds
        self._closing = Lock()

    def close(self, close: Callable[[], object]) -> None:
        """Close the client by `close`, when no answer is outstanding."""
        if self._awaits_answers():
            for one in self._receiving:  # completes their pending receives
                with contextlib.suppress(pulsar.PulsarException):
                    self._senders.answer_to(one.inner.close_async)
        if answered_within(ANSWER_SECONDS, self._awaits_answers) or not self._close_later():
            close()

    def close_now(self) -> None:
        """Close the client with outstanding answers; a second caller waits for the first."""
        with self._closing, contextlib.suppress(pulsar.PulsarException):
            self.inner.close()
        _background_closes.discard(self)

    def _after_fork_(self, refusal: Refusing) -> None:
        """Raise on a close in this child process; the lock may have been held during the fork."""
        self.inner, self._closing = refusal, Lock()

    def _close_later(self) -> bool:
        """Close the client on a background thread; return False if no thread can be started any more."""

        def run() -> None:
            answered_within(self._seconds, self._awaits_answers)
            self.close_now()

        refuse_after_fork(self, "Client")
        try:
            threads.start(run, name="pulsar_ext-closing")
        except RuntimeError:
            return False
        _background_closes.add(self)
        return True

    def _awaits_answers(self) -> bool:
        """Return whether answers of the C++ client are outstanding."""
        return self._senders.has_open_requests() or any(one._awaits_answer_ for one in self._receiving)


def stop_fetching(receiving: list[Consumer | Reader]) -> None:
    """End all batch receives of the consumers: the C++ client would not complete them."""
    consumers = [one for one in receiving if isinstance(one, Consumer)]
    for one in consumers:
        one._stop_fetching_()
    deadline = time.monotonic() + _BATCH_SECONDS
    for one in consumers:
        one._end_batches_(deadline)


_EXIT_SECONDS = 0.05
"""Time in seconds for threads to return from the C++ client at the end of the program."""


def finish_closing() -> None:
    """Wait, at the end of the program, for the closes in the background and for threads in the C++ client."""
    for closing in list(_background_closes):
        closing.close_now()
    if threads.IS_PATCHED or threading.active_count() > 1:
        # Python ends daemon threads anywhere; inside the C++ client this aborts the process.
        threads.sleep(_EXIT_SECONDS)
