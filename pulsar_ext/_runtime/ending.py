"""Ending what sends: all of it together, within one deadline, or at once; and blocking calls that can be cancelled."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import Answer
from pulsar_ext._native.results import raise_result

from .condition import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


T = TypeVar("T")


class CancellableCall(Generic[T]):
    """A blocking call; once it is cancelled, its present or next wait for the C++ client raises `CancelledError`.

    Args:
        call: what to call, once.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._awaited: Answer | None = None
        self._cancelled = False

    def __call__(self) -> T:
        """Make the call."""
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

    def end_with(self, answer: Answer) -> None:
        """Have a cancellation from now on end the wait for an answer.

        Raises:
            CancelledError: the call was cancelled before.
        """
        self._awaited = answer  # first: who cancels in between sees it
        if self._cancelled:
            raise CancelledError


_running: ContextVar[CancellableCall[Any] | None] = ContextVar("pulsar_ext_cancellable_call", default=None)


def end_if_cancelled(answer: Answer) -> None:
    """Have the wait for an answer end when the call that waits is cancelled, if that is a `CancellableCall`.

    Raises:
        CancelledError: it was cancelled before.
    """
    if (call := _running.get()) is not None:
        call.end_with(answer)


_CLOSED = (pulsar.Result.Ok, pulsar.Result.AlreadyClosed)
_GRACE_SECONDS = 1.0
"""How long the answers to closes, and then what they report, are waited for behind the deadline."""
_BEHIND_SECONDS = 0.1
"""How long the C++ client's own thread may take behind an answer that something failed: a connection ends there."""
_AT_ONCE_SECONDS = 0.5
"""How long a shutdown waits for brokers, and for callbacks, which may wait for the thread that shuts down."""


class Ending(Protocol):
    """What has one C++ producer, and messages on their way."""

    def refuse_interrupting(self) -> None:
        """Refuse to close in the handler of a signal that interrupts a send, which a close would wait for."""
        ...

    def stop(self) -> bool:
        """Take no more messages, and push what waits; False if it is closed, and nothing is left to do."""
        ...

    def settle(self, deadline: float) -> None:
        """Wait for outcomes while the connection lasts, until `deadline`, a monotonic time in seconds."""
        ...

    def begin_close(self) -> Answer:
        """Begin to close the C++ producer, which fails what is still on its way."""
        ...

    def conclude(self, deadline: float) -> None:
        """Wait until what failed is reported, until `deadline`, and let go of everything."""
        ...

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client is shut down."""
        ...

    def fail_pending(self) -> None:
        """Have everything that the C++ client does not report fail with `AlreadyClosed`; `forget` was called."""
        ...

    def _bar_(self) -> None:
        """Let no thread enter the C++ client any more: the program ends."""
        ...


class OpenSenders:
    """What sends for one client, weakly, and what is being opened; any thread may add to it while another ends it."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Ending, None] = weakref.WeakKeyDictionary()
        self._asked: weakref.WeakKeyDictionary[Answer, None] = weakref.WeakKeyDictionary()
        self._ended = False
        self._failed = -math.inf

    def ask(self, begin: Callable[[Answer], object]) -> Any:
        """Begin an asynchronous call of the C++ client, which may never answer once it ends, and wait for its value.

        Raises:
            pulsar.PulsarException: it failed; `AlreadyClosed`, if the client is closed or shut down meanwhile.
            CancelledError: the `CancellableCall` that this is part of was cancelled.
        """
        answer = self._note()
        try:
            self.refuse_ended()  # noted before: whoever ends it sees an answer that is owed, or this sees the end
            end_if_cancelled(answer)
            begin(answer)
        except Exception:
            answer.is_owed = False
            raise
        try:
            return answer.value()
        except pulsar.PulsarException:
            self._failed = time.monotonic()
            self.refuse_ended()  # the C++ client says anything where its end meets a call
            raise

    def answer_to(self, begin: Callable[[Answer], object]) -> Answer:
        """Begin an asynchronous call of the C++ client, though it is being ended."""
        answer = self._note()
        begin(answer)
        return answer

    def are_owed(self) -> bool:
        """Whether the C++ client has not answered everything, or is about to drop what belongs to an answer."""
        if time.monotonic() < self._failed + _BEHIND_SECONDS:
            return True
        return any(answer.is_owed for asked in self._asked.keyrefs() if (answer := asked()) is not None)

    def _note(self) -> Answer:
        answer = Answer()
        self._asked[answer] = None  # as long as anybody has it: the C++ client, or who waits
        return answer

    def add(self, one: Ending) -> None:
        """Add what has just been opened.

        Raises:
            pulsar.AlreadyClosed: the client was closed or shut down meanwhile.
        """
        self._known[one] = None
        self.refuse_ended()

    def refuse_ended(self) -> None:
        """Refuse what is done behind the client's end, once that has begun, with `AlreadyClosed`."""
        if self._ended:
            raise_result(pulsar.Result.AlreadyClosed)

    def end(self) -> list[Ending]:
        """Give all of them; from now on none is added, and nothing is opened."""
        self._ended = True
        for asked in self._asked.keyrefs():
            if (answer := asked()) is not None:
                answer.give_up(pulsar.Result.AlreadyClosed)
        return list(self)

    def __iter__(self) -> Iterator[Ending]:
        # At once: a thread that adds one would disturb an iteration over the dictionary itself.
        return iter([one for known in self._known.keyrefs() if (one := known()) is not None])


def finish_together(endings: Iterable[Ending], deadline: float) -> None:
    """Close what sends, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds.

    Where a Ctrl-C ended it in between, it may be called again, and does the rest.

    Raises:
        InvalidUse: a signal's handler calls this that interrupts a send; nothing is closed.
        pulsar.PulsarException: the first error; all of them are closed or closing.
    """
    endings = list(endings)
    for one in endings:
        one.refuse_interrupting()
    stopped = [one for one in endings if one.stop()]
    try:
        for one in stopped:
            one.settle(deadline)
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


def fail_together(endings: Sequence[Ending], close_client: Callable[[Callable[[Any], None]], None]) -> None:
    """Report what has no outcome, and close the C++ client, without waiting for long.

    It happens on a thread of its own, because a callback may wait for the thread that shuts down. And the C++ client is
    closed, not shut down: it does that with Python's lock held, and stands still for twenty seconds where one of its
    threads waits for that lock to report something. Where a broker does not answer, it goes on in the background.

    Args:
        endings: what sends, each of which was told to `forget`.
        close_client: begins to close the C++ client, and has a function called once that is done.
    """
    closed = Flag()  # set wherever the last reference ends: an event's lock may be held there, by the wait for it

    def fail() -> None:
        def answer(_: Any) -> None:
            """Nothing waits for this, but for the end of it: a callback must not be on its way as the program ends."""

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
    except RuntimeError:  # the interpreter is ending and starts no threads any more
        fail()
    closed.wait(_AT_ONCE_SECONDS)
