"""Running the application's callbacks and listeners on the C++ client's threads, so that they cannot harm it.

What a callback raises makes the official client drop the rest of its batch's callbacks, hang in flush or abort the
process. And a callback runs on the thread that its own client needs to answer: a call that waits there waits for ever.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.thread_state import keep_thread_state
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId, from_inner

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = [
    "GUARDING",
    "SENDING",
    "CallbackGuard",
    "SendCallback",
    "guard_callback",
    "guard_listener",
    "guard_router",
    "kept_weakly",
    "refuse_in_callback",
]

SendCallback = Callable[[Any, MessageId], object]

SENDING: set[CodeType] = set()
"""The code of `Producer.send_async`, which calls a callback itself when its message is refused."""

GUARDING: set[CodeType] = set()
"""The code that send callbacks run under; its local `_client` is the client."""

_log = logging.getLogger("pulsar_ext")


def guard_callback(
    callback: SendCallback, client: object, wrap: Callable[[Any], MessageId]
) -> Callable[[Any, Any], None]:
    """Turn an application's send callback into one that the C++ client may call; `wrap` wraps the id that it gives."""

    def guarded(result: Any, inner: Any, _client: object = client) -> None:
        try:
            keep_thread_state()
            callback(result, wrap(inner))
        except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
            _log.exception("A send callback raised; the result of its message was %s", result)

    return guarded


def guard_listener(listener: Callable[[Any, Any], object], consumer: Any, message: Any) -> None:
    """Call a listener; what it raises is logged and the message stays unacknowledged, as with Java's client."""
    try:
        listener(consumer, message)
    except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
        _log.exception("A listener raised; its message %r stays unacknowledged", message.message_id())


def kept_weakly(hear: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Make a listener for the C++ client that does nothing once `hear` is gone.

    Python's garbage collector does not see what the C++ client keeps. What it kept for good would be whatever a
    listener refers to: the client, whose consumer keeps the listener.
    """
    kept = weakref.ref(hear)

    def listen(official: Any, message: Any) -> None:
        keep_thread_state()
        if (hear := kept()) is not None:
            hear(official, message)

    return listen


def guard_router(router: Callable[[Any, int], Any]) -> Callable[[Any, int], int]:
    """Keep what a message router raises, or gives that is no number, away from the C++ client, which would crash.

    The message then fails with `UnknownError`, for it has no partition.
    """

    def guarded(message: Any, partitions: int) -> int:
        try:
            return int(router(message, partitions))
        except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
            _log.exception("A message router failed; its message has no partition")
            return -1

    return guarded


def refuse_in_callback(client: object, what: str) -> None:
    """Refuse a call that would wait for the thread that it runs on.

    Raises:
        InvalidUse: a send callback of `client` is running on this thread.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the stack tells at no cost to the callbacks
    inside = False
    while frame is not None:
        inside = inside or (frame.f_code in GUARDING and frame.f_locals["_client"] is client)
        if inside and frame.f_code in SENDING:
            return  # the message was refused at once, and its callback runs on the sender's own thread
        frame = frame.f_back
    if inside:
        raise InvalidUse(
            f"{what} inside a send callback would wait for the thread that runs the callback. Use send_async, or hand "
            "the work to a thread of your own."
        )


class CallbackGuard:
    """Knows on which threads the send callbacks of one client run, and refuses there what would wait for them.

    Args:
        client: whose callbacks.
    """

    def __init__(self, client: object) -> None:
        self._client = client

    def refuse(self, what: str) -> None:
        """Refuse a call that would wait for the thread that it runs on.

        Raises:
            InvalidUse: a send callback of the client is running on this thread.
        """
        refuse_in_callback(self._client, what)


GUARDING.add(guard_callback(lambda *_: None, None, from_inner).__code__)
