"""Sources of C++ messages for a consumer or a reader: the C++ object, or what replaces or wraps its receive.

- The C++ object itself.
- With `receiver_queue_size=0` the official client has no receive with a timeout. Here an asynchronous request outlives
  its wait, and the next receive takes its answer.
- One of several C++ readers, without a thread for each. If a receive finds nothing, the C++ reader is asked for one
  message, and calls back when it has arrived. Until then nothing else receives from it, so messages keep their order.
- A recorder of received messages, for blocks that acknowledge all of them at their end.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from operator import call, length_hint
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakSet

import pulsar

from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._native.results import Timeout, polling, raise_result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext._runtime.condition import Condition
from pulsar_ext._wire.message_id_data import decode

from .order import NOTHING, Native, Part, Transition, TransitionSubscriber

ReceiveAsync = Callable[[Callable[[pulsar.Result, InnerMessage], None]], None]
"""The asynchronous receive of a C++ object."""


N = TypeVar("N", bound="Native")


class Source(Protocol):
    """Yields C++ messages, one after the other."""

    @property
    def each(self) -> Iterator[InnerMessage]:
        """Endless iterator, which raises `pulsar.Timeout` if no message arrives within 100 ms."""
        ...

    @property
    def wait(self) -> Callable[[int], InnerMessage]:
        """Waits a number of milliseconds for a message; raises `pulsar.Timeout` if none arrives."""
        ...


def of_one_cluster(
    wait: Callable[[int], InnerMessage], receive_async: ReceiveAsync, is_current: Callable[[], bool]
) -> tuple[Callable[[int], InnerMessage], ReceiveAsync]:
    """Return the two receives of a C++ object without messages that arrive while `is_current` returns False.

    They are of another cluster, and another C++ object receives them again.
    """

    def wait_on_cluster(timeout_millis: int) -> InnerMessage:
        while True:
            for message in map(wait, (timeout_millis,)):
                if is_current():
                    return message

    def receive_async_on_cluster(callback: Callable[[pulsar.Result, InnerMessage], None]) -> None:
        def on_message(result: pulsar.Result, message: InnerMessage) -> None:
            if result == pulsar.Result.Ok and not is_current():
                receive_async(on_message)
            else:
                callback(result, message)

        receive_async(on_message)

    return wait_on_cluster, receive_async_on_cluster


class NativeSource(TransitionSubscriber):
    """Receives from the C++ consumer or reader, by the receive that `receive_of` returns."""

    __slots__ = ("_native", "_receive_of", "each", "wait")
    part = Part.NATIVE
    wait: Callable[[int], InnerMessage]
    each: Iterator[InnerMessage]

    def __init__(self, inner: N, receive_of: Callable[[N], Callable[[int], InnerMessage]]) -> None:
        self._receive_of: Callable[[Any], Callable[[int], InnerMessage]] = receive_of
        self.on_reopen(inner, NOTHING)

    def on_reopen(self, inner: Native, ahead: Iterator[InnerMessage], /) -> None:
        """Receive the messages that are ahead, and then from the reopened C++ object."""
        native = self.wait = self._native = self._receive_of(inner)
        self.each = polling(native)
        if length_hint(ahead):

            def wait(timeout_millis: int) -> InnerMessage:
                for one in ahead:
                    return one
                return native(timeout_millis)

            self.wait, self.each = wait, chain(ahead, self.each)

    def on_before(self, transition: Transition, /) -> None:
        """Notify the replacement of a receive with a timeout, if there is one."""
        if isinstance(self._native, TransitionSubscriber):
            self._native.on_before(transition)

    def on_after(self, transition: Transition, /) -> None:
        """Notify the replacement of a receive with a timeout, if there is one."""
        if isinstance(self._native, TransitionSubscriber):
            self._native.on_after(transition)

    def awaits_answer(self) -> bool:
        """Return whether the replacement of a receive with a timeout has a request without an answer."""
        return isinstance(self._native, TransitionSubscriber) and self._native.awaits_answer()


class _Record(list["InnerMessage"]):
    """The recorded messages of one block."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity
    __eq__ = object.__eq__


class Records:
    """Lists in which received C++ messages are recorded, one for each open block.

    The lists are kept weakly: a Ctrl-C may come before a block has stored its list, or before it ends the recording.
    """

    def __init__(self) -> None:
        self.lists: WeakSet[list[InnerMessage]] = WeakSet()

    def begin(self) -> list[InnerMessage]:
        """Return a list in which every message is recorded from now on, until it is dropped."""
        record = _Record()
        self.lists.add(record)
        return record

    def note(self, inners: Iterable[InnerMessage]) -> None:
        """Record C++ messages."""
        for record in self.lists:
            record.extend(inners)

    def drop(self) -> None:
        """Drop the recorded messages, which belong to another cluster."""
        for record in self.lists:
            record.clear()

    def end(self, record: list[InnerMessage]) -> list[InnerMessage]:
        """Stop recording in this list; return its messages, each once, as a message screened twice is noted twice."""
        self.lists.discard(record)
        return list({id(inner): inner for inner in record}.values())


class OwnIterator:
    """Base of the sources that are their own endless iterators."""

    __slots__ = ()

    @property
    def each(self) -> Self:
        """Return this object, which is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self


class Recorder(OwnIterator, Records):
    """A source that records the messages of another source."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    def __next__(self) -> InnerMessage:
        for inner in self.source.each:
            self.note((inner,))
            return inner
        raise StopIteration

    def wait(self, millis: int) -> InnerMessage:
        """Receive as the source does."""
        for inner in map(self.source.wait, (millis,)):
            self.note((inner,))
            return inner
        raise AssertionError  # the map above has exactly one item


class _AsyncReceive(TransitionSubscriber):
    """Requests messages by the asynchronous receive of a C++ object, and keeps what has arrived."""

    def __init__(self, receive_async: ReceiveAsync) -> None:
        self._receive_async = receive_async
        self._arrived: deque[InnerMessage] = deque()
        self._failures: deque[pulsar.Result] = deque()
        self._unanswered: deque[None] = deque()
        """One item for each request without an answer."""
        self._changed = Condition()

    def awaits_answer(self) -> bool:
        """Return whether a request has no answer yet."""
        return bool(self._unanswered)

    def _request(self) -> None:
        """Request a message; the lock is held."""
        # Only C code from the count on: a Ctrl-C in between would leave a count without a request.
        steps = partial(self._unanswered.append, None), partial(self._receive_async, self._answer)
        try:
            deque(map(call, steps), 0)
        except pulsar.PulsarException:
            self._unanswered.pop()
            raise

    def _answer(self, result: pulsar.Result, message: InnerMessage) -> None:
        keep_thread_state()
        with self._changed:
            self._unanswered.pop()
            if result == pulsar.Result.Ok:
                self._arrived.append(message)
            else:
                self._failures.append(result)
            self._changed.notify()


class PendingReceives(_AsyncReceive):
    """A receive with a timeout in milliseconds, based on the asynchronous receive; after it, the request stays open.

    `on_batch` is called with the id of the first message of a batch; it has the batch redelivered, or returns False.
    """

    def __init__(
        self,
        receive_async: ReceiveAsync,
        on_batch: Callable[[InnerMessageId], bool],
        is_excluded: Callable[[InnerMessage], bool],
    ) -> None:
        super().__init__(receive_async)
        self._on_batch, self._is_excluded = on_batch, is_excluded
        self._stale: list[InnerMessage] = []
        self._waiters: set[int] = set()

    def __call__(self, timeout_millis: int) -> InnerMessage:
        """Wait for a C++ message, or raise `pulsar.Timeout`; raise `pulsar.AlreadyClosed` also if a batch arrived."""
        deadline = time.monotonic() + timeout_millis / 1000
        while True:
            self._wait_until(deadline)
            try:
                first = self._arrived[0]
                inner_id = first.message_id()
                if decode(inner_id.serialize()).batch_size > 1 and self._on_batch(inner_id):
                    raise_result(pulsar.Result.AlreadyClosed)
                if self._is_excluded(first):
                    self._drop(first)
                    continue
                # No call after this one, not even the end of a `with`: a Ctrl-C would lose the message.
                for message in iter(self._arrived.popleft, None):
                    return message
            except IndexError:  # another thread has taken or dropped it
                continue

    def _wait_until(self, deadline: float) -> None:
        """Wait for an answer until `deadline`, a time of `time.monotonic()`."""
        waiter = threading.get_ident()
        try:
            with self._changed:
                self._waiters.add(waiter)
                self._ask()
                if not (self._arrived or self._failures):
                    self._changed.wait(max(deadline - time.monotonic(), 0))
        finally:
            self._waiters.discard(waiter)
        if self._failures:
            raise_result(self._failures.popleft())
        if not self._arrived:
            raise Timeout("Pulsar error: TimeOut")

    def _ask(self) -> None:
        """Request one message per waiting thread. A separate function: see `_native/locks.py`."""
        while len(self._unanswered) + len(self._arrived) < len(self._waiters) and not self._failures:
            self._request()

    def on_before(self, transition: Transition, /) -> None:
        """Note which answers the transition makes stale; later ones may be redelivered messages already."""
        self._stale = list(self._arrived) if transition.redelivers else []

    def on_after(self, _: Transition, /) -> None:
        """Drop stale answers that no thread has taken."""
        self._drop(*self._stale)
        self._stale = []

    def _drop(self, *answers: InnerMessage) -> None:
        """Drop some answers, unless a thread has taken them."""
        for one in answers:
            with contextlib.suppress(ValueError):
                self._arrived.remove(one)


class Arrivals(_AsyncReceive):
    """A receive with a timeout in milliseconds; a timeout of 0 without a message requests a callback for the next one.

    `on_arrival` is called on a C++ thread when a message has arrived, or the request has failed.
    """

    def __init__(
        self, native: Callable[[int], InnerMessage], receive_async: ReceiveAsync, on_arrival: Callable[[], object]
    ) -> None:
        super().__init__(receive_async)
        self._native, self._on_arrival = native, on_arrival

    def __call__(self, timeout_millis: int) -> InnerMessage:
        """Wait up to `timeout_millis` for a C++ message, or raise `pulsar.Timeout`."""
        try:
            if self._arrived or self._unanswered or self._failures:
                self._wait(timeout_millis / 1000)
                # No call after this one: a Ctrl-C would lose the message.
                for message in iter(self._arrived.popleft, None):
                    return message
            for message in map(self._native, (timeout_millis,)):
                return message
        except IndexError:  # another thread has taken it
            raise Timeout("Pulsar error: TimeOut") from None
        except Timeout:
            if timeout_millis <= 0:
                with self._changed:
                    if not (self._unanswered or self._arrived or self._failures):
                        self._request()
            raise
        raise AssertionError  # the map above has exactly one item

    @property
    def holds(self) -> bool:
        """True if a message has arrived that no thread has taken."""
        return bool(self._arrived)

    def on_after(self, transition: Transition, /) -> None:
        """Drop messages that have arrived and were not taken, if they are redelivered."""
        if transition.redelivers:
            self._arrived.clear()

    def _wait(self, seconds: float) -> None:
        """Wait for the requested message."""
        with self._changed:
            if not (self._arrived or self._failures):
                self._changed.wait(seconds)
        if self._failures and not self._arrived:
            raise_result(self._failures.popleft())

    def _answer(self, result: pulsar.Result, message: InnerMessage) -> None:
        super()._answer(result, message)
        self._on_arrival()
