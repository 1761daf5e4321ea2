"""How long a message waits that was refused, or that nobody acknowledges: as one consumer was opened."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .backoff import delay_of

if TYPE_CHECKING:
    from .backoff import Backoff

__all__ = ["OFFICIAL_DELAY_MILLIS", "Delays"]

OFFICIAL_DELAY_MILLIS: Final = 100
"""The shortest delay that the C++ client has, for what was handed over."""
_OFFICIAL_SECONDS: Final = OFFICIAL_DELAY_MILLIS / 1000

_log = logging.getLogger("pulsar_ext")


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of one consumer.

    Args:
        delay_ms: how long after a negative acknowledgement.
        timeout_ms: after how long without an acknowledgement a message is late; 0 for never.
        nack_backoff: gives the delay instead, by how often the message was redelivered.
        late_backoff: gives what is added to the timeout.
        splits: whether the broker redelivers single entries.
    """

    delay_ms: int
    timeout_ms: int
    nack_backoff: Backoff | None
    late_backoff: Backoff | None
    splits: bool

    def refused_until(self, inner: Any) -> float:
        """Give when what is refused now is handed over; raises what the application's backoff does.

        Args:
            inner: the C++ message; None for an id, which does not tell how often it was redelivered.
        """
        delay = self.delay_ms / 1000
        if self.nack_backoff is not None:
            delay = delay_of(self.nack_backoff, 0 if inner is None else inner.redelivery_count())
        # The C++ client has a delay of its own, for which what is handed over is not held here.
        return time.monotonic() + max(delay, _OFFICIAL_SECONDS) - (_OFFICIAL_SECONDS if self.splits else 0)

    def late_at(self, inner: Any) -> float:
        """Give when a C++ message that comes now is late."""
        due = time.monotonic() + self.timeout_ms / 1000
        if self.late_backoff is not None:
            try:
                due += delay_of(self.late_backoff, inner.redelivery_count())
            except Exception:  # noqa: BLE001  # the application's; the message is handed out all the same
                _log.exception("ack_timeout_redelivery_backoff raised; a message is late after the timeout alone")
        return due
