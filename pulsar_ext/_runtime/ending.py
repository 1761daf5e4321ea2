"""Closing everything that sends, within one deadline or at once; and blocking calls that can be cancelled."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import Answer
from pulsar_ext._native.results import raise_result

from .condition import Flag

T_co = TypeVar("T_co", covariant=True)


class CancellableCall(Generic[T_co]):
    """A blocking call; once it is cancelled, its current or next wait for the C++ client raises `CancelledError`."""

    def __init__(self, call: Callable[[], T_co]) -> None:
        self._call = call
        self._awaited: Answer | None = None
        self._cancelled = False

    def __call__(self) -> T_co:
        token = _running.set(self)
        try:
            return self._call()
        finally:
            _running.reset(token)

    def cancel(self) -> None:
        """Cancel the call, from any thread."""
        self._cancelled = True
        if self._awaited is not None:
            self._awaited.give_up(CancelledError())

    def give_up_with(self, answer: Answer) -> None:
        """End the wait for an answer when the call is cancelled; raise if it was cancelled before."""
        self._awaited = answer  # first: a cancellation in between must see it
        if self._cancelled:
            raise CancelledError


_running: ContextVar[CancellableCall[object] | None] = ContextVar("pulsar_ext_cancellable_call", default=None)

_CLOSED = (pulsar.Result.Ok, pulsar.Result.AlreadyClosed)
_GRACE_SECONDS = 1.0
"""Seconds after the deadline to wait for answers to closes, and then for the outcomes they report."""
_DROP_SECONDS = 0.1
"""Seconds that the C++ client's thread may need after an error; a connection may end there."""
_SHUTDOWN_SECONDS = 0.5
"""Seconds that a shutdown waits for brokers and callbacks; a callback may wait for the thread that shuts down."""


class OpenSender(Protocol):
    """An object with one C++ producer, and messages in flight."""

    def raise_if_interrupting(self) -> None: ...  # if a signal handler interrupts a send, which a close would wait for
    def stop(self) -> bool: ...  # accepts no more, and pushes pending ones; False if it is closed: nothing left to do
    def await_outcomes(self, deadline: float) -> None: ...  # while the connection lasts, until a monotonic time
    def begin_close(self) -> Answer: ...  # of the C++ producer, which fails the messages in flight
    def conclude(self, deadline: float) -> None: ...  # waits for reports of failed messages, and releases resources
    def forget(self) -> None: ...  # marks it as closed without waiting: the client is shut down
    def fail_pending(self) -> None: ...  # what the C++ client does not report, with `AlreadyClosed`, after `forget()`
    def _block_(self) -> None: ...  # keeps threads from entering the C++ client, as the program ends


class OpenSenders:
    """Weak references to everything that sends for one client, and to open requests; thread-safe."""

    def __init__(self) -> None:
        # Dictionaries of references: each opening would run the Python code of a `WeakKeyDictionary` several times.
        self._known: dict[weakref.ref[OpenSender], None] = {}
        self._asked: dict[weakref.ref[Answer], None] = {}
        self._forget, self._forget_asked = self._known.pop, self._asked.pop
        self._ended = False
        self._failed = -math.inf

    def ask(self, begin: Callable[[Answer], object]) -> Any:
        """Begin an asynchronous call of the C++ client, and wait for its value.

        Raises:
            pulsar.PulsarException: it failed; `AlreadyClosed` if the client was closed or shut down during the call.
            CancelledError: the enclosing `CancellableCall` was cancelled.
        """
        answer = self._note()
        try:
            self.raise_if_ended()  # after noting it: `end()` sees the open request, or this sees the end
            if (call := _running.get()) is not None:
                call.give_up_with(answer)
            begin(answer)
        except Exception:
            answer.awaits_answer = False
            raise
        try:
            return answer.value()
        except pulsar.PulsarException:
            self._failed = time.monotonic()
            self.raise_if_ended()  # the C++ client reports arbitrary errors if its end meets a call
            raise

    def answer_to(self, begin: Callable[[Answer], object]) -> Answer:
        """Begin an asynchronous call of the C++ client although it is being closed."""
        answer = self._note()
        begin(answer)
        return answer

    def has_open_requests(self) -> bool:
        """Return whether the C++ client has not answered a request, or may be about to drop its state."""
        if time.monotonic() < self._failed + _DROP_SECONDS:
            return True
        return any(answer.awaits_answer for asked in list(self._asked) if (answer := asked()) is not None)

    def _note(self) -> Answer:
        answer = Answer()
        # Weakly: the C++ client or the waiting thread keeps it alive.
        self._asked[weakref.ref(answer, self._forget_asked)] = None
        return answer

    def add(self, one: OpenSender) -> None:
        """Add a sender that has just been opened; raise `AlreadyClosed` if the client was closed in between."""
        self._known[weakref.ref(one, self._forget)] = None
        self.raise_if_ended()

    def raise_if_ended(self) -> None:
        """Raise `AlreadyClosed` once the client's end has begun."""
        if self._ended:
            raise_result(pulsar.Result.AlreadyClosed)

    def end(self) -> list[OpenSender]:
        """Return all senders; from now on `add()` and new requests raise."""
        self._ended = True
        for asked in list(self._asked):
            if (answer := asked()) is not None:
                answer.give_up(pulsar.Result.AlreadyClosed)
        return list(self)

    def __iter__(self) -> Iterator[OpenSender]:
        # A list: a thread that adds a sender would disturb an iteration over the dictionary itself.
        return iter([one for known in list(self._known) if (one := known()) is not None])


def close_together(endings: Iterable[OpenSender], deadline: float) -> None:
    """Close senders, and wait for pending messages until `deadline`, a monotonic time in seconds.

    After a Ctrl-C it may be called again, and completes the rest. In a signal handler that interrupts a send it raises
    before anything is closed; otherwise it raises the first error after all are closed or closing.
    """
    endings = list(endings)
    for one in endings:
        one.raise_if_interrupting()
    stopped = [one for one in endings if one.stop()]
    try:
        for one in stopped:
            one.await_outcomes(deadline)
    finally:
        answers = [one.begin_close() for one in stopped]
        deadline = max(deadline, time.monotonic() + _GRACE_SECONDS)
        results = [answer.result_until(deadline) for answer in answers]
        deadline = time.monotonic() + _GRACE_SECONDS
        for one in stopped:
            one.conclude(deadline)
    for result in results:
        if result not in _CLOSED:
            raise_result(result)


def fail_together(endings: Sequence[OpenSender], close_client: Callable[[Callable[[object], None]], object]) -> None:
    """Fail messages without an outcome, and close the C++ client, without waiting for long.

    It runs on a separate thread, because a callback may wait for the thread that shuts down. The C++ client is closed,
    not shut down: a shutdown holds Python's lock, and blocks for twenty seconds if a C++ thread waits for that lock to
    report an outcome. If a broker does not answer, the close continues in the background.
    """
    closed = Flag()  # set when the last reference is dropped: an `Event`'s lock may be held there by its waiter

    def fail() -> None:
        def answer(_: object) -> None:
            """Ignore the answer; only its collection matters: a callback must not be running as the program ends."""

        weakref.finalize(answer, closed.set)
        with contextlib.suppress(pulsar.PulsarException):  # inherited across a fork, or the program ends
            for one in endings:
                one.fail_pending()
            close_client(answer)
            deadline = time.monotonic() + _GRACE_SECONDS
            for one in endings:
                one.conclude(deadline)

    try:
        threads.start(fail, name="pulsar_ext-shutdown")
    except RuntimeError:  # the interpreter is shutting down and starts no threads any more
        fail()
    closed.wait(_SHUTDOWN_SECONDS)
