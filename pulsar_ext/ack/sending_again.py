"""Keeping what left until it has surely arrived, and sending it again if its connection may have been lost.

The broker is asked as soon as a connection may be another one. When it answers, it knows the consumer: what left before
the question leaves once more, and what leaves from then on arrives. A consumer that cannot be asked, of several topics
or partitions, sends again at fixed times instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .arrival import ArrivalProof
    from .cursor_monitor import CursorMonitor
    from .in_flight import SentAcks
    from .reconnect import ConnectionNews, ConnectionWatch
    from .topic_acks import AcksByTopic

__all__ = ["SendingAgain"]

_KNOWN_SECONDS: Final = 0.1
"""How long the broker usually takes at most, behind a lost connection, until it knows the consumer again."""


class SendingAgain:
    """Of one consumer; its acknowledgements' lock is held. Times are `time.monotonic()`, in seconds.

    Args:
        watch: notices that the connection may be another one.
        proof: asks the broker.
        topics: what was acknowledged.
        monitor: looks where the cursors are, once what was sent again should have arrived.
        glance: looks at the connection, while many leave.
    """

    def __init__(
        self,
        watch: ConnectionWatch,
        proof: ArrivalProof,
        topics: AcksByTopic,
        monitor: CursorMonitor,
        glance: Callable[[], None],
    ) -> None:
        self._watch, self._proof, self._topics, self._monitor, self._glance = watch, proof, topics, monitor, glance
        self._settles: float | None = None
        """When the cursors are to be looked at if the broker turns out not to be asked; None if they are not to be."""

    def look(self, inner: Any, now: float, *, connected: bool, waits: bool) -> ConnectionNews:
        """Look at the connection, and send again what it may have lost.

        Args:
            inner: the C++ consumer.
            now: the time.
            connected: whether there is a connection.
            waits: whether anything has been acknowledged that is to leave.

        Returns:
            What the look at the connection found.
        """
        news = self._watch.look(now, connected=connected, can_ask=self._proof.can_ask)
        if news.is_doubtful:
            self._proof.doubt(now + _KNOWN_SECONDS if news.is_other or not connected else now)
        if news.settles is not None:  # the connection is, or may be, another one
            for topic in self._topics:
                topic.hold(now)
                if news.is_other:
                    topic.doubt(now)
            self._settles = news.settles if self._proof.can_ask else None
            self._monitor.look_after(news.settles if self._settles is None else math.inf)
        if news.sends_again:
            self._mark(math.inf)
        if connected:
            self._ask(inner, now, waits=waits)
            self._hand_over(inner, now)
        return news

    def due(self, now: float) -> float:
        """Give when to look again, if nothing happens to the connection."""
        settled, sent = self._watch.is_settled, self._sent
        asks = sent or (self._settles is not None and not settled)
        return min(self._watch.due, self._proof.due(now, sent, is_settled=settled) if asks else math.inf)

    def end(self, inner: Any, now: float) -> None:
        """Send again what has to be, though the broker has not answered: the C++ consumer is being closed."""
        if not self._watch.is_settled:
            self._mark(math.inf)
            self._hand_over(inner, now)

    @property
    def _sent(self) -> list[SentAcks]:
        return [topic.sent for topic in self._topics if topic.sent]

    def _ask(self, inner: Any, now: float, *, waits: bool) -> None:
        """Ask the broker, or take its answer, and drop what has arrived."""
        settled, sent = self._watch.is_settled, self._sent
        if not sent and (settled or not (waits or self._settles is not None)):
            return
        arrived = self._proof.look(inner, now, sent, is_settled=settled)
        if not settled and self._proof.known is not None:
            self._watch.settle()
            self._mark(self._proof.known)
        elif not self._proof.can_ask and self._settles is not None:  # so it turned out just now
            self._monitor.look_after(self._settles)
            self._settles = None
        if self._watch.is_settled:
            for topic in self._topics:
                if topic.again is None:
                    topic.sent.expire(arrived)

    def _mark(self, before: float) -> None:
        """Have what may be lost of what left before a time sent again, as soon as nothing keeps it from that."""
        for topic in self._topics:
            since, until = topic.again or (self._watch.since, before)
            topic.again = min(since, self._watch.since), max(until, before)

    def _hand_over(self, inner: Any, now: float) -> None:
        """Send again what can be, and have the cursors looked at when all is."""
        for topic in self._topics:
            topic.hand_over_again(inner, now, self._glance)
        done = self._watch.is_settled and all(topic.again is None for topic in self._topics)
        if done and self._settles is not None:
            self._monitor.look_after(now)
            self._settles = None
