"""Finding out whether the broker knows a consumer, and when what left has surely arrived there.

A connection may be dead for a minute before the C++ client notices, and all that it sent meanwhile is lost. A broker
serves a connection in order: once it has answered a request, everything that was sent before that has arrived.

The C++ client calls itself connected before the broker knows its consumer again, which takes as long as the topic needs
to be loaded. Acknowledgements that come before that are dropped without a word. A request is refused then: so one that
is answered was sent when the broker knew the consumer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pulsar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._native.answer import Answer

    from .in_flight import SentAcks

__all__ = ["ArrivalProof"]

_ASK_SECONDS: Final = 1.0
_ASK_BUSY_SECONDS: Final = 0.25
"""The same where many have not surely arrived: all of them leave again if the connection may have been lost."""
_MANY: Final = 1_000
_ANSWER_SECONDS: Final = 0.5
"""How long an answer is waited for until it is looked for again."""
_GROUPED_SECONDS: Final = 0.5
"""How long the C++ client may keep an acknowledgement before it sends it: it sends them every 100 ms."""
_NOTICED_SECONDS: Final = 65.0
"""By then the C++ client has noticed a dead connection: it looks every 30 seconds whether an answer came to a ping."""
_REFUSED_SECONDS: Final = (0.1, 0.2, 0.4, 0.8)
"""After how long the broker is asked again that does not know the consumer yet; the C++ client logs each time."""
_UNSUPPORTED: Final = (pulsar.Result.OperationNotSupported, pulsar.Result.UnsupportedVersionError)


class ArrivalProof:
    """Asks the broker of one consumer. Times are `time.monotonic()`, in seconds.

    Args:
        begin: begins an asynchronous call of the C++ client, and gives what takes its answer.
        can_ask: whether the consumer can be asked, for all that is known.
    """

    def __init__(self, begin: Callable[[Callable[[Answer], object]], Answer], *, can_ask: bool = True) -> None:
        self._begin = begin
        self._answer: Answer | None = None
        self._asked = self._proven = self._earliest = -math.inf
        self._refused = 0
        self.can_ask = can_ask
        """Whether the consumer can be asked, for all that is known: one of several topics or partitions cannot, and one
        of a topic that is not persistent is refused."""
        self.known: float | None = None
        """When a request was sent that was answered since the last doubt: the broker has known the consumer since."""

    def doubt(self, earliest: float) -> None:
        """Conclude nothing from a request that is on its way: it may be answered on another connection.

        Args:
            earliest: when the broker may know the consumer again.
        """
        self._answer = self.known = None
        self._refused, self._earliest = 0, earliest

    def look(self, inner: Any, now: float, sent: Sequence[SentAcks], *, is_settled: bool) -> float:
        """Ask, or take the answer.

        Args:
            inner: the C++ consumer. Where it cannot be asked, the time says it in the end.
            now: the time.
            sent: what may not have arrived; it is not asked before that can be proven.
            is_settled: whether the broker surely knows the consumer; otherwise it is asked soon.

        Returns:
            Until when what left has arrived, if no connection was lost since.
        """
        result = None if self._answer is None else self._answer.result
        if result is not None:
            self._answer = None
            if result == pulsar.Result.Ok:
                self.known, self._refused = self._asked, 0
                if is_settled:
                    self._proven = self._asked - _GROUPED_SECONDS
            else:
                self._refused += 1
            self.can_ask = result not in _UNSUPPORTED
        elif self._answer is None and self.can_ask and now >= self._next(sent, is_settled=is_settled):
            self._asked, self._answer = now, self._begin(inner.get_last_message_id_async)
        return max(self._proven, now - _NOTICED_SECONDS)

    def due(self, now: float, sent: Sequence[SentAcks], *, is_settled: bool) -> float:
        """Give when to look again; the arguments are those of `look()`."""
        if self._answer is not None:
            return now + _ANSWER_SECONDS if is_settled else now
        return self._next(sent, is_settled=is_settled) if self.can_ask else now + _NOTICED_SECONDS

    def _next(self, sent: Sequence[SentAcks], *, is_settled: bool) -> float:
        """Give when to ask."""
        if is_settled and sent:
            pause = _ASK_SECONDS if sum(map(len, sent)) < _MANY else _ASK_BUSY_SECONDS
            return max(self._asked + pause, min(one.oldest for one in sent) + _GROUPED_SECONDS)
        if not self._refused:
            return self._earliest
        return self._asked + _REFUSED_SECONDS[min(self._refused, len(_REFUSED_SECONDS)) - 1]
