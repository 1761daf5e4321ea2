"""Running the application's callbacks and listeners on the C++ client's threads without harming that client.

An exception in a callback makes the official client drop the other callbacks of the batch, hang in flush or abort the
process. A callback runs on the thread that delivers its client's answers, so a call that waits there waits forever.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Container
from threading import get_ident
from typing import Protocol, SupportsInt, TypeVar, TypeVarTuple

import pulsar

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import Result
from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId


class _Message(Protocol):
    def message_id(self) -> object: ...


A = TypeVar("A")
B = TypeVar("B")
M = TypeVar("M", bound=_Message)
Args = TypeVarTuple("Args")

SendCallback = Callable[["Result", MessageId], object]

_INTERRUPTED, _CLOSED = pulsar.Result.Interrupted, pulsar.Result.AlreadyClosed

_log = logging.getLogger("pulsar_ext")


class CallbackGuard:
    """Tracks the threads that run send callbacks of one client, and raises if a call would wait for such a thread.

    A callback of a message that is rejected at once runs on its sender's own thread, inside `send_async`. It may wait
    there, and that thread is not tracked.
    """

    def __init__(self) -> None:
        self._threads: set[int] = set()

    def run(self, call: Callable[[*Args], object], *args: *Args) -> None:
        """Call `call(*args)`, which calls the application's send callbacks, on a thread that delivers outcomes."""
        threads, thread = self._threads, get_ident()
        if thread in threads:
            call(*args)
            return
        threads.add(thread)
        try:
            call(*args)
        finally:
            threads.discard(thread)

    def reporter(
        self,
        unanswered: dict[int, SendCallback | None],
        wrap: Callable[[InnerMessageId], MessageId],
        senders: Container[int],
    ) -> Callable[[int, Result, InnerMessageId], None]:
        """Return a function for the C++ client that removes and calls the send callback of a number, if there is one.

        `senders` are the threads inside a send of the producer now.
        """
        threads = self._threads

        def report(number: int, result: Result, inner: InnerMessageId) -> None:
            keep_thread_state()
            callback = unanswered.pop(number, None)
            if callback is None:
                return
            thread = get_ident()
            noted = thread in threads or thread in senders
            if not noted:
                threads.add(thread)
            elif result == _INTERRUPTED:
                result = _CLOSED  # it waited for queue space on its sender's own thread until the producer was closed
            try:
                callback(result, wrap(inner))
            except BaseException:  # noqa: BLE001  # no exception may reach the C++ client
                _log.exception("A send callback raised; the result of its message was %s", result)
            finally:
                if not noted:
                    threads.discard(thread)

        return report

    def raise_inside(self, what: str) -> None:
        """Raise if a call would wait for the thread that it runs on."""
        if get_ident() in self._threads:
            raise InvalidUse(
                f"{what} inside a send callback would wait for the thread that runs the callback. Use send_async, or "
                "pass the work to another thread."
            )


def call_back(callback: SendCallback, result: Result, message_id: MessageId) -> None:
    try:
        callback(result, message_id)
    except BaseException:  # noqa: BLE001  # no exception may reach the C++ client
        _log.exception("A send callback raised; the result of its message was %s", result)


def guard_listener(listener: Callable[[A, M], object], consumer: A, message: M) -> None:
    """Call a listener; log an exception, and leave the message unacknowledged, as Java's client does."""
    try:
        listener(consumer, message)
    except BaseException:  # noqa: BLE001  # no exception may reach the C++ client
        _log.exception("A listener raised; its message %r stays unacknowledged", message.message_id())


def guard_event(listener: Callable[[*Args], object], *event: *Args) -> None:
    """Call a listener of events other than messages; log an exception."""
    try:
        listener(*event)
    except BaseException:  # noqa: BLE001  # no exception may reach the C++ client
        _log.exception("A listener raised; the event was %s", event)


def weak_listener(listener: Callable[[A, B], None]) -> Callable[[A, B], None]:
    """Return a listener for the C++ client that does nothing once `listener` has been collected.

    Python's garbage collector does not see references of the C++ client. A strong one would keep the client alive
    forever, because the listener refers to the client, whose consumer keeps the listener.
    """
    kept = weakref.ref(listener)

    def listen(official: A, message: B) -> None:
        keep_thread_state()
        if (listener := kept()) is not None:
            listener(official, message)

    return listen


def guard_router(router: Callable[[A, int], SupportsInt]) -> Callable[[A, int], int]:
    """Return a message router whose exceptions and invalid results do not reach the C++ client, which would crash.

    The message then has no partition, and fails with `UnknownError`.
    """

    def guarded(message: A, partitions: int) -> int:
        try:
            return int(router(message, partitions))
        except BaseException:  # noqa: BLE001  # no exception may reach the C++ client
            _log.exception("A message router failed; its message is not sent")
            return -1

    return guarded
