"""Finding out when what left has surely arrived at the broker.

A connection may be dead for a minute before the C++ client notices, and all that it sent meanwhile is lost. A broker
serves a connection in order: once it has answered a request, everything that was sent before that has arrived.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pulsar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.answer import Answer

    from .in_flight import SentAcks

__all__ = ["ArrivalProof"]

_ASK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 0.5
"""How long an answer is waited for until it is looked for again."""
_GROUPED_SECONDS: Final = 0.5
"""How long the C++ client may keep an acknowledgement before it sends it: it sends them every 100 ms."""
_NOTICED_SECONDS: Final = 65.0
"""By then the C++ client has noticed a dead connection: it looks every 30 seconds whether an answer came to a ping."""
_UNSUPPORTED: Final = (pulsar.Result.OperationNotSupported, pulsar.Result.UnsupportedVersionError)


class ArrivalProof:
    """Asks the broker of one consumer, once a second at most. Times are `time.monotonic()`, in seconds.

    Args:
        begin: begins an asynchronous call of the C++ client, and gives what takes its answer.
    """

    def __init__(self, begin: Callable[[Callable[[Answer], object]], Answer]) -> None:
        self._begin = begin
        self._answer: Answer | None = None
        self._asked = self._proven = -math.inf
        self._can_ask = True

    def doubt(self) -> None:
        """Conclude nothing from a request that is on its way: it may be answered on another connection."""
        self._answer = None

    def look(self, inner: Any, now: float, sent: list[SentAcks]) -> float:
        """Ask, or take the answer.

        Args:
            inner: the C++ consumer. That of several topics cannot ask: there the time says it in the end.
            now: the time.
            sent: what may not have arrived; it is not asked before that can be proven.

        Returns:
            Until when what left has arrived, if no connection was lost since.
        """
        result = None if self._answer is None else self._answer.result
        if result is not None:
            self._answer = None
            if result == pulsar.Result.Ok:
                self._proven = self._asked - _GROUPED_SECONDS
            self._can_ask = result not in _UNSUPPORTED
        elif self._answer is None and self._can_ask and now >= self._next(sent):
            self._asked, self._answer = now, self._begin(inner.get_last_message_id_async)
        return max(self._proven, now - _NOTICED_SECONDS)

    def due(self, now: float, sent: list[SentAcks]) -> float:
        """Give when to look again."""
        if self._answer is not None:
            return now + _ANSWER_SECONDS
        return self._next(sent) if self._can_ask else now + _NOTICED_SECONDS

    def _next(self, sent: list[SentAcks]) -> float:
        """Give when to ask about what was sent."""
        return max(self._asked + _ASK_SECONDS, min(one.oldest for one in sent) + _GROUPED_SECONDS)
