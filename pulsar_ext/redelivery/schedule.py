"""When a message is redelivered (pure): a queue by due time, backoffs, and one consumer's delays.

Mirrors Java's `NegativeAcksTracker`, its `UnAckedMessageTracker` for chunked messages, `RedeliveryBackoff` and
`MultiplierRedeliveryBackoff`. The C++ client restarts its timer at each negative acknowledgement, so a steady stream of
them delays every redelivery; here what is due is sent in groups, however many come after it.
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pulsar_ext.errors import InvalidUse

T = TypeVar("T")
_NEVER: Final = -math.inf
_NOTHING_DUE: Final[list[Any]] = []
_NOTHING_WAITS: Final[dict[Any, Any]] = {}
"""Where nothing was ever added, which is so for most consumers; nothing is ever put into these two."""


class Delayed(Generic[T]):
    """Things that become due, each once.

    Args:
        gap: the least time between two groups, in the unit of every time here.
    """

    __slots__ = ("_gap", "_last", "_number", "_queue", "_things")

    def __init__(self, gap: float = 0.0) -> None:
        self._gap = gap
        self._queue: list[tuple[float, int, object]] = _NOTHING_DUE
        """When something is due, and its number and key; what was dropped since stays in it."""
        self._things: dict[object, tuple[int, T]] = _NOTHING_WAITS
        """What waits, by key, with its number."""
        self._number = 0
        self._last = _NEVER

    def __len__(self) -> int:
        return len(self._things)

    def add(self, key: object, thing: T, due: float) -> None:
        """Have a thing come due at a time; if its key waits already, the earlier time counts."""
        if self._things is _NOTHING_WAITS:
            self._queue, self._things = [], {}
        waiting = self._things.get(key)
        if waiting is None:
            self._number += 1
            waiting = self._things[key] = self._number, thing
        heapq.heappush(self._queue, (due, waiting[0], key))

    def drop(self, key: object) -> None:
        """Have nothing come due for a key."""
        self._things.pop(key, None)

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()
        self._things.clear()

    def due(self, now: float, slack: float = 0.0) -> list[T]:
        """Give what is due, or will be within the slack, in order; nothing within the gap after the group before."""
        if now < self._last + self._gap:
            return []
        found: list[T] = []
        while self._queue and self._queue[0][0] <= now + slack:
            _, number, key = heapq.heappop(self._queue)
            if self._waits(number, key):
                found.append(self._things.pop(key)[1])
        if found:
            self._last = now
        return found

    def wait(self, now: float) -> float | None:
        """Give how long until something is due; None if nothing waits."""
        while self._queue and not self._waits(*self._queue[0][1:]):
            heapq.heappop(self._queue)
        if not self._queue:
            return None
        return max(self._queue[0][0] - now, self._last + self._gap - now, 0.0)

    def _waits(self, number: int, key: object) -> bool:
        """Whether a thing of this number was neither dropped nor given: its key may wait anew."""
        waiting = self._things.get(key)
        return waiting is not None and waiting[0] == number


Backoff = Callable[[int], float]
"""Gives a delay in milliseconds for how many times a message was redelivered before, 0 for the first."""

_MOST_MILLIS = 2**63 - 1


@dataclass(frozen=True)
class MultiplierRedeliveryBackoff:
    """A delay that grows by a factor with each redelivery, up to a limit.

    `backoff(count)` gives the whole milliseconds that Java's `next(count)` does.

    Args:
        min_delay_ms: the first delay, in milliseconds, 0 or more; 0 stays 0.
        max_delay_ms: the longest one, not below the first.
        multiplier: the factor, above 1.

    Raises:
        InvalidUse: one of them is out of its range.
    """

    min_delay_ms: int = 10_000
    max_delay_ms: int = 600_000
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        for name in ("min_delay_ms", "max_delay_ms"):
            if type(getattr(self, name)) is not int:
                raise InvalidUse(f"{name} is expected to be a whole number of milliseconds: {getattr(self, name)!r}.")
        if type(self.multiplier) not in {int, float} or not math.isfinite(self.multiplier) or self.multiplier <= 1:
            raise InvalidUse(f"multiplier is expected to be a number above 1, not {self.multiplier!r}.")
        if not 0 <= self.min_delay_ms <= self.max_delay_ms <= _MOST_MILLIS:
            raise InvalidUse(
                f"The delays are expected to be 0 or more, and the longest not below the first: {self.min_delay_ms}, "
                f"{self.max_delay_ms}."
            )

    def __call__(self, redelivery_count: int) -> int:
        """Give the delay in milliseconds before a message that was redelivered so often is redelivered again."""
        if redelivery_count <= 0 or self.min_delay_ms == 0:
            return self.min_delay_ms
        if redelivery_count > self._most_power:
            return self.max_delay_ms
        return int(min(self.min_delay_ms * math.pow(self.multiplier, redelivery_count), self.max_delay_ms))

    @property
    def _most_power(self) -> int:
        """The power from which on the delay is the longest; it also keeps the power from overflowing."""
        return int(math.log(self.max_delay_ms / self.min_delay_ms) / math.log(self.multiplier)) + 1


def check_backoff(name: str, backoff: Any) -> None:
    """Refuse what cannot be asked for a delay.

    Raises:
        InvalidUse: it is neither None nor callable, or it is a class, such as `MultiplierRedeliveryBackoff` itself.
    """
    if backoff is not None and (isinstance(backoff, type) or not callable(backoff)):
        raise InvalidUse(
            f"{name} must be a MultiplierRedeliveryBackoff(…), or a function of how often a message was "
            f"redelivered that gives milliseconds, not {backoff!r}."
        )


def delay_of(backoff: Backoff, redelivery_count: int) -> float:
    """Ask for a delay, in seconds.

    Raises:
        InvalidUse: the answer is no delay.
        Exception: what the application's function raises.
    """
    millis: Any = backoff(redelivery_count)
    if type(millis) not in {int, float} or not math.isfinite(millis) or millis < 0:
        raise InvalidUse(f"The backoff gave {millis!r} for {redelivery_count}: expected milliseconds, 0 or more.")
    return float(millis / 1000)


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
