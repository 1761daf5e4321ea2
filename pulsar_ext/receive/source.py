"""Where a consumer or a reader takes its C++ messages from: the C++ object, or what stands in for it or before it.

- The C++ object itself.
- With `receiver_queue_size=0` the official client has no wait with a timeout. Here an asynchronous request outlives the
  wait for it, and the next receive takes its answer.
- One of several C++ readers, without a thread for each: where a receive finds nothing, the C++ reader is asked for one
  message, and says when it is there. Until then it is not received from in any other way, so that its messages keep
  their order.
- A record of what comes through, for blocks that acknowledge all of it at their end.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from functools import partial
from itertools import chain
from operator import call, length_hint
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import WeakSet

import pulsar

from pulsar_ext._native.results import Timeout, polling, raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Condition
from pulsar_ext._wire.message_id_data import decode

from .order import NOTHING, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .order import Transition


class Source(Protocol):
    """Gives C++ messages, one after the other."""

    @property
    def each(self) -> Any:
        """Give an endless iterator, which raises `pulsar.Timeout` where none came within 100 ms."""
        ...

    def wait(self, timeout_millis: int, /) -> Any:
        """Wait so many milliseconds for a message, and raise `pulsar.Timeout` if none came."""
        ...


class NativeSource(Part):
    """The C++ consumer or reader itself.

    Args:
        inner: the C++ consumer or reader.
        wait_of: gives its receive with a timeout in milliseconds.
    """

    __slots__ = ("_native", "_wait_of", "each", "wait")
    wait: Any
    each: Iterator[Any]

    def __init__(self, inner: Any, wait_of: Callable[[Any], Callable[[int], Any]]) -> None:
        self._wait_of = wait_of
        self.renew(inner, NOTHING)

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Receive from another C++ object, and before it what is ahead."""
        native = self.wait = self._native = self._wait_of(inner)
        self.each = polling(native)
        if length_hint(ahead):

            def wait(timeout_millis: int) -> Any:
                for one in ahead:
                    return one
                return native(timeout_millis)

            self.wait, self.each = wait, chain(ahead, self.each)

    def before(self, transition: Transition, /) -> None:
        """Have what stands in for a receive with a timeout look at what it has."""
        if isinstance(self._native, Part):
            self._native.before(transition)

    def after(self, transition: Transition, /) -> None:
        """Have it drop that."""
        if isinstance(self._native, Part):
            self._native.after(transition)

    def is_owed(self) -> bool:
        """Whether it owes an answer to what stands in for a receive with a timeout."""
        return isinstance(self._native, Part) and self._native.is_owed()


class _Record(list[Any]):
    """What is noted in one block."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity
    __eq__ = object.__eq__


class Records:
    """Lists in which the same C++ messages are noted, one for each block that is open.

    They are kept weakly: a Ctrl-C may come before a block that has begun knows its list, or before it ends it.
    """

    def __init__(self) -> None:
        self.lists: WeakSet[_Record] = WeakSet()

    def begin(self) -> list[Any]:
        """Give a list in which everything is noted from now on, for as long as it is kept."""
        record = _Record()
        self.lists.add(record)
        return record

    def note(self, inners: Sequence[Any]) -> None:
        """Note C++ messages."""
        for record in self.lists:
            record.extend(inners)

    def drop(self) -> None:
        """Drop what was noted: it is of another cluster."""
        for record in self.lists:
            record.clear()

    def end(self, record: list[Any]) -> None:
        """Note nothing in this list any more."""
        self.lists.discard(record)  # type: ignore[arg-type]  # made here


class Recorder(Records):
    """A source that notes what comes through it.

    Args:
        source: gives the messages.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    @property
    def each(self) -> Self:
        """Give this: it is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for inner in self.source.each:
            self.note((inner,))
            return inner
        raise StopIteration

    def wait(self, millis: int) -> Any:
        """Receive as the source does."""
        for inner in map(self.source.wait, (millis,)):
            self.note((inner,))
            return inner
        raise AssertionError  # the map above has exactly one item


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
