"""Running the application's callbacks and listeners on the C++ client's threads, so that they cannot harm it.

What a callback raises makes the official client drop the rest of its batch's callbacks, hang in flush or abort the
process. And a callback runs on the thread that its own client needs to answer: a call that waits there waits for ever.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId

if TYPE_CHECKING:
    from collections.abc import Container


SendCallback = Callable[[Any, MessageId], object]

_INTERRUPTED, _CLOSED = pulsar.Result.Interrupted, pulsar.Result.AlreadyClosed

_log = logging.getLogger("pulsar_ext")


class CallbackGuard:
    """Knows on which threads send callbacks of one client run, and refuses there what would wait for these threads.

    A callback whose message is refused at once runs on its sender's own thread, inside `send_async`: there it may wait,
    and that thread is not noted.
    """

    def __init__(self) -> None:
        self._threads: set[int] = set()

    def run(self, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)`, which calls the application's send callbacks, on a thread that outcomes come by."""
        threads, thread = self._threads, get_ident()
        if thread in threads:
            call(*args)
            return
        threads.add(thread)
        try:
            call(*args)
        finally:
            threads.discard(thread)

    def guarded(
        self, callback: SendCallback, wrap: Callable[[Any], MessageId], senders: Container[int]
    ) -> Callable[[Any, Any], None]:
        """Turn an application's send callback into one that the C++ client may call.

        Args:
            callback: the application's.
            wrap: makes a message id of the C++ client's.
            senders: the threads that are inside a send of the producer now.
        """
        threads = self._threads

        def outcome(result: Any, inner: Any) -> None:
            keep_thread_state()
            thread = get_ident()
            noted = thread in threads or thread in senders
            if not noted:
                threads.add(thread)
            elif result == _INTERRUPTED:
                result = _CLOSED  # it waited for room, on its sender's own thread, until the producer was closed
            try:
                callback(result, wrap(inner))
            except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
                _log.exception("A send callback raised; the result of its message was %s", result)
            finally:
                if not noted:
                    threads.discard(thread)

        return outcome

    def refuse(self, what: str) -> None:
        """Refuse a call that would wait for the thread that it runs on.

        Raises:
            InvalidUse: a send callback of the client is running on this thread.
        """
        if get_ident() in self._threads:
            raise InvalidUse(
                f"{what} inside a send callback would wait for the thread that runs the callback. Use send_async, or "
                "hand the work to a thread of your own."
            )


def call_back(callback: SendCallback, result: Any, message_id: MessageId) -> None:
    """Call a send callback; what it raises is logged."""
    try:
        callback(result, message_id)
    except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
        _log.exception("A send callback raised; the result of its message was %s", result)


def guard_listener(listener: Callable[[Any, Any], object], consumer: Any, message: Any) -> None:
    """Call a listener; what it raises is logged and the message stays unacknowledged, as with Java's client."""
    try:
        listener(consumer, message)
    except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
        _log.exception("A listener raised; its message %r stays unacknowledged", message.message_id())


def guard_event(listener: Callable[..., object], *event: Any) -> None:
    """Call a listener of events that are no messages; what it raises is logged."""
    try:
        listener(*event)
    except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
        _log.exception("A listener raised; the event was %s", event)


def kept_weakly(listener: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Make a listener for the C++ client that does nothing once `listener` is gone.

    Python's garbage collector does not see what the C++ client keeps. What it kept for good would be whatever a
    listener refers to: the client, whose consumer keeps the listener.
    """
    kept = weakref.ref(listener)

    def listen(official: Any, message: Any) -> None:
        keep_thread_state()
        if (listener := kept()) is not None:
            listener(official, message)

    return listen


def guard_router(router: Callable[[Any, int], Any]) -> Callable[[Any, int], int]:
    """Keep what a message router raises, or gives that is not a number, away from the C++ client, which would crash.

    The message then fails with `UnknownError`, for it has no partition.
    """

    def guarded(message: Any, partitions: int) -> int:
        try:
            return int(router(message, partitions))
        except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
            _log.exception("A message router failed; its message has no partition")
            return -1

    return guarded
