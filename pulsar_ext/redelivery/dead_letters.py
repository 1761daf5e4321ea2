"""Dead letters: a message that was redelivered too often goes to another topic, that message alone, and whole.

The C++ client sends every message of a batch there when one of them is refused, cannot send a chunked message, and
ends the process when sending fails. Here its policy is taken over: the letter is written by a producer that chunks, in
a thread of its own, and acknowledged when it is persisted. If that fails the message is redelivered. Mirrors the dead
letter part of Java's `ConsumerImpl`.
"""

from __future__ import annotations

import logging
import queue
from typing import TYPE_CHECKING, Any

from pulsar_ext._native import threads
from pulsar_ext._native.locks import Lock
from pulsar_ext.ids.message_id import from_inner

from .letter_properties import dead_letter_topic, origin_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from .letter_producers import LetterProducers

__all__ = ["DeadLetters"]

_log = logging.getLogger("pulsar_ext")
_IDLE_SECONDS = 10.0


class DeadLetters:
    """The dead letters of one consumer.

    Args:
        producers: what the letters are sent with.
        policy: the official `ConsumerDeadLetterPolicy`.
        subscription: the consumer's subscription.
        acknowledge: is given each C++ message that is persisted.
        redeliver: is given each that could not be.
        cluster: returns the number of the cluster that messages are received from; neither is given one of another.
    """

    def __init__(
        self,
        producers: LetterProducers,
        policy: Any,
        subscription: str,
        *,
        acknowledge: Callable[[Any], None],
        redeliver: Callable[[Any], None],
        cluster: Callable[[], int] = lambda: 0,
    ) -> None:
        self.max_redeliver_count: int = policy.max_redeliver_count
        self._producers, self._policy, self._subscription = producers, policy, subscription
        self._acknowledge, self._redeliver, self._cluster = acknowledge, redeliver, cluster
        self.tell: Callable[[Any], None] | None = None
        """Hears which C++ messages were acknowledged, because they are letters by now."""
        self._letters: queue.SimpleQueue[tuple[bytes, Any]] = threads.Queue()
        self._on_their_way: set[bytes] = set()
        self._lock = Lock()
        self._has_thread = False
        self._closed = False

    def send(self, inner: Any) -> None:
        """Send a C++ message to the dead letter topic, once, however often it is asked for meanwhile."""
        key = self._cluster_key() + inner.topic_name().encode() + bytes(inner.message_id().serialize())
        with self._lock:
            if self._closed or key in self._on_their_way:
                return
            if not self._has_thread:  # first: where no thread can begin, it is sent the next time
                threads.start(self._run, name="pulsar-ext-dead-letters")
                self._has_thread = True
            self._on_their_way.add(key)
            self._letters.put((key, inner))

    def close(self) -> None:
        """Send no more: what is left stays unacknowledged, and comes again to another consumer."""
        with self._lock:
            self._closed = True
            if self._has_thread:
                self._letters.put((b"", None))  # to wake it

    def _run(self) -> None:
        while True:
            try:
                key, inner = self._letters.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._letters.empty():
                        self._has_thread = False
                        return
                continue
            if self._closed:
                return
            try:
                self._deliver(inner)
            except Exception as error:  # noqa: BLE001  # whatever it was, the message is redelivered
                _log.error(
                    "%r could not be sent to its dead letter topic and is redelivered: %s",
                    from_inner(inner.message_id()),
                    error,
                )
                then = self._redeliver
            else:
                then = self._acknowledge
            try:
                if key.startswith(self._cluster_key()):  # else its id is of another cluster by now
                    then(inner)
                if then is self._acknowledge and self.tell is not None:
                    self.tell(inner)
            except Exception:  # noqa: BLE001  # the other letters still go
                _log.exception("%r is neither acknowledged nor redelivered yet", from_inner(inner.message_id()))
            with self._lock:
                self._on_their_way.discard(key)

    def _cluster_key(self) -> bytes:
        return b"%d " % self._cluster()

    def _deliver(self, inner: Any) -> None:
        topic = inner.topic_name()
        message_id = from_inner(inner.message_id()).to_text()
        self._producers.send_dead(
            self._policy.dead_letter_topic or dead_letter_topic(topic, self._subscription),
            inner,
            origin_properties(inner.properties(), topic, message_id, self._subscription),
            self._subscription,
            self._policy.initial_subscription_name,
        )
