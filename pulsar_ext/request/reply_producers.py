"""The producers of one replier, one for each reply topic that is in use: requesters come and go."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.results import UNREACHABLE, AlreadyClosed, exception_of
from pulsar_ext.errors import PulsarExtError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NotSentError", "ReplyProducers"]

_log = logging.getLogger("pulsar_ext")

_OK = pulsar.Result.Ok
_AGAIN = (*UNREACHABLE, AlreadyClosed, pulsar.ProducerQueueIsFull)
_IDLE_SECONDS = 60.0
"""Longer than a send takes."""


class NotSentError(PulsarExtError):
    """A reply could not be sent, and may be sent later: its request has to come again."""

    retriable = True


class ReplyProducers:
    """Opens them as they are needed, and closes on demand those that were not for a while: their topics may then go.

    Args:
        open_producer: opens one for a topic.
        clock: gives a time in seconds.
    """

    def __init__(self, open_producer: Callable[[str], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = open_producer, clock
        self._known: dict[str, tuple[Any, float]] = {}
        self._lock = Lock()
        self._is_closed = False

    def send(self, topic: str, content: Any, properties: dict[str, str]) -> Future[None]:
        """Begin to send a reply; opening a producer may take a while.

        Returns:
            What is done when the reply is persisted, or raises `NotSentError`, or, if there is no use in trying again,
            another `pulsar.PulsarException`.

        Raises:
            NotSentError: as above.
            Exception: the reply cannot be encoded, or the topic cannot have it.
        """
        sent: Future[None] = Future()
        sent.set_running_or_notify_cancel()  # whoever awaits it may be cancelled; it is done all the same

        def on_sent(result: Any, _: Any) -> None:
            if result == _OK:
                sent.set_result(None)
            else:
                sent.set_exception(_error(exception_of(result)))

        try:
            self.producer(topic).send_async(content, on_sent, properties=properties)
        except pulsar.PulsarException as error:
            raise _error(error) from error
        return sent

    def producer(self, topic: str) -> Any:
        """Give the producer of a topic, which is opened if there is none.

        Raises:
            pulsar.PulsarException: it cannot be opened; `AlreadyClosed`, if this is closed.
        """
        opened = None if self.knows(topic) else self._open(topic)
        now = self._clock()
        with self._lock:
            known, _ = self._known.get(topic, (opened, now))
            producer = opened if known is None or known.sender.closed else known
            if producer is not None and not self._is_closed:
                self._known[topic] = (producer, now)
        if opened is not None and (opened is not producer or self._is_closed):  # another thread was faster
            _close(opened)
        if producer is None or self._is_closed:  # closed meanwhile
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the replier, or a producer of it, is closed.")
        return producer

    def close_idle(self) -> None:
        """Close those that nobody has used for long, which may wait for the broker; what fails there is logged."""
        with self._lock:
            leaving = [self._known.pop(topic)[0] for topic in self._idle()]
        for one in leaving:
            _close(one)

    @property
    def has_idle(self) -> bool:
        """Whether `close_idle()` has something to close."""
        with self._lock:
            return bool(self._idle())

    def _idle(self) -> list[str]:
        """Give the topics of those; the lock is held. Apart: see `_native/locks.py`."""
        before = self._clock() - _IDLE_SECONDS
        return [topic for topic, (_, used) in self._known.items() if used < before]

    def knows(self, topic: str) -> bool:
        """Whether a producer is there already."""
        known = self._known.get(topic)
        return known is not None and not known[0].sender.closed

    def close(self) -> None:
        """Close them all, and those that are being opened."""
        with self._lock:
            self._is_closed = True
            leaving = [producer for producer, _ in self._known.values()]
            self._known.clear()
        for one in leaving:
            one.close()


def _close(producer: Any) -> None:
    """Close a producer that nobody needs any more."""
    try:
        producer.close()
    except pulsar.PulsarException:
        _log.warning("A producer of replies could not be closed", exc_info=True)


def _error(error: Exception) -> Exception:
    if isinstance(error, _AGAIN):
        return NotSentError(f"A reply could not be sent, and its request comes again: {error}")
    return error
