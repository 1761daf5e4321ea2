"""What a disconnection does to acknowledgements, and what to do about it (pure).

The C++ client drops acknowledgements that it has not sent when the connection is lost, and calls itself connected
before the broker knows its consumer again. So what left shortly before is sent once more when the broker has answered,
and where it cannot be asked several times. Mirrors the retries of Java's `PersistentAcknowledgmentsGroupingTracker`.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["ConnectionNews", "ConnectionWatch", "is_same_connection"]

_SLEPT_SECONDS: Final = 0.085
"""Two looks further apart may have a disconnection and a reconnection between them."""
_AGAIN_SECONDS: Final = (0.3, 1.0, 3.0, 10.0, 30.0)
"""When what is doubtful is sent once more after a reconnection, as long as it is not known that the broker knows the
consumer: the C++ client calls itself connected, and sends what it has, before that."""
_ARRIVED_SECONDS: Final = 1.0
"""What left so long before a disconnection that nobody saw has arrived: a short one is noticed at once."""
_SETTLING_SECONDS: Final = 3.0
"""How long the broker usually takes to know it, where that cannot be asked."""
_CHUNKS_SECONDS: Final = (0.3, 3.0, 10.0, 30.0)
"""When half received chunked messages are asked for after a reconnection: first always, then if nothing was
acknowledged for a while, as another consumer may have got some of their chunks."""


class ConnectionNews(NamedTuple):
    """What a look at the connection asks for."""

    is_doubtful: bool = False
    """The connection may be another one than before."""
    is_other: bool = False
    """It was lost, and is there again."""
    sends_again: bool = False
    """What left lately has to be sent again."""
    settles: float | None = None
    """When that should have arrived, if nobody can be asked; None where it is the same connection."""
    asks_for_chunks: bool = False
    """Half received messages have to be asked for."""
    asks_again: bool = False
    """They have to be asked for once more, if nothing is being received."""


def is_same_connection(then: float, now: float) -> bool:
    """Whether a connection that is there at two times was not lost in between: to make another one takes longer."""
    return now - then <= _SLEPT_SECONDS


class ConnectionWatch:
    """Notices disconnections by looking at the connection again and again. Times are `time.monotonic()`, in seconds.

    Args:
        opened: when the broker surely knew the consumer on the present connection; None if that is not known.
    """

    def __init__(self, opened: float | None = None) -> None:
        self.looked = opened
        """When somebody looked the last time; None if nobody has for a while."""
        self.is_down = False
        self._again: list[float] = []
        self.since = -math.inf
        """Since when what left may have to be sent again, while it is not settled."""
        self._chunks: list[float] = []
        self._is_new = False

    @property
    def is_settled(self) -> bool:
        """Whether what leaves now surely arrives."""
        return not (self.is_down or self._is_new or self._again)

    @property
    def due(self) -> float:
        """When there is something to do, if nothing happens to the connection; infinite if there is nothing."""
        return min(self._again[:1] + self._chunks[:1], default=math.inf)

    def may_have_changed(self, now: float) -> bool:
        """Whether the connection may have been lost since the last look."""
        return self.looked is None or not is_same_connection(self.looked, now)

    def glance(self, now: float, *, connected: bool) -> None:
        """Look while something takes long; what is to be done about a disconnection is left to the next `look()`."""
        self.is_down = self.is_down or not connected
        if not self.may_have_changed(now):
            self.looked = now

    def stays(self, now: float, *, connected: bool) -> bool:
        """Look while nothing is due; tell whether it is as it was at the last look. If not, `look()` has to follow."""
        if connected is self.is_down or self.may_have_changed(now):
            self.is_down = self.is_down or not connected
            return False
        self.looked = now
        return True

    def rest(self) -> None:
        """Look no more for a while."""
        self.looked = None

    def settle(self) -> None:
        """Send nothing again: what leaves from now on arrives, or nothing has left that should."""
        self._again = []

    def renew(self) -> None:
        """Ask for no chunks after a disconnection before: another C++ consumer has half of nothing."""
        self._chunks, self._is_new, self.is_down = [], self._is_new or self.is_down, False

    def look(self, now: float, *, connected: bool, can_ask: bool = False) -> ConnectionNews:
        """Look at the connection.

        Args:
            now: the time.
            connected: whether there is one.
            can_ask: whether the broker is being asked, so that nothing is settled before it has answered.
        """
        began = self.looked is None
        slept = not began and self.may_have_changed(now)
        if began:  # the connection may be as new as this
            self._again, self.since = [now + _AGAIN_SECONDS[0]], -math.inf
        seen, self.looked = self.looked or now, now
        doubtful = began or slept or not connected or self.is_down or self._is_new
        asks = connected and bool(self._chunks) and now >= self._chunks[0]
        first = asks and len(self._chunks) == len(_CHUNKS_SECONDS)
        if asks:
            del self._chunks[0]
        news = ConnectionNews(is_doubtful=doubtful, asks_for_chunks=first, asks_again=asks and not first)
        if not connected:
            self.is_down = True
            return news
        if self.is_down or self._is_new:
            self._chunks = [now + seconds for seconds in _CHUNKS_SECONDS] if self.is_down else []
            self.is_down = self._is_new = False
            self._again, self.since = [now + seconds for seconds in _AGAIN_SECONDS], -math.inf
            return news._replace(is_other=True, settles=now + _SETTLING_SECONDS)
        if slept and not self._again:  # a machine this busy may have hidden a short disconnection
            self._again, self.since = [now + _AGAIN_SECONDS[1]], seen - _ARRIVED_SECONDS
            return news._replace(settles=self._again[0])
        if self._again and now >= self._again[0]:
            self._again = self._again[1:] or [now + _AGAIN_SECONDS[-1]] * can_ask
            return news._replace(sends_again=True)
        return news
