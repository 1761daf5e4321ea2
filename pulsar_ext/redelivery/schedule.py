"""Redelivery times (pure): a queue by due time, backoffs, and the delays of one consumer.

Mirrors Java's `NegativeAcksTracker`, its `UnAckedMessageTracker` for chunked messages, `RedeliveryBackoff` and
`MultiplierRedeliveryBackoff`. The C++ client restarts its timer at each negative acknowledgement, so a steady stream of
them delays every redelivery. Here due messages are redelivered in groups, regardless of later ones.
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import Message

T = TypeVar("T")
_NEVER: Final = -math.inf


class DelayQueue(Generic[T]):
    """Items that become due, each once."""

    __slots__ = ("_gap", "_items", "_last", "_number", "_queue")

    def __init__(self, gap: float = 0.0) -> None:
        self._gap = gap
        self._queue: list[tuple[float, int, object]] = []
        """Due time, number and key of each item; dropped items stay in it."""
        self._items: dict[object, tuple[int, T]] = {}
        """Number and item by key."""
        self._number = 0
        self._last = _NEVER

    def __len__(self) -> int:
        return len(self._items)

    def add(self, key: object, item: T, due: float) -> None:
        """Add an item with its due time; if its key is queued already, the earlier time counts."""
        queued = self._items.get(key)
        if queued is None:
            self._number += 1
            queued = self._items[key] = self._number, item
        heapq.heappush(self._queue, (due, queued[0], key))

    def drop(self, key: object) -> None:
        """Remove the item of a key."""
        self._items.pop(key, None)

    def clear(self) -> None:
        """Remove everything."""
        self._queue.clear()
        self._items.clear()

    def due(self, now: float, slack: float = 0.0) -> list[T]:
        """Remove and return the items due now or within the slack, in order; none within the gap after a group."""
        if now < self._last + self._gap:
            return []
        found: list[T] = []
        while self._queue and self._queue[0][0] <= now + slack:
            _, number, key = heapq.heappop(self._queue)
            if self._is_queued(number, key):
                found.append(self._items.pop(key)[1])
        if found:
            self._last = now
        return found

    def wait(self, now: float) -> float | None:
        """Return the time until an item is due; None if the queue is empty."""
        while self._queue and not self._is_queued(*self._queue[0][1:]):
            heapq.heappop(self._queue)
        if not self._queue:
            return None
        return max(self._queue[0][0] - now, self._last + self._gap - now, 0.0)

    def _is_queued(self, number: int, key: object) -> bool:
        """Return True if the item with this number is still queued: its key may have been added again."""
        queued = self._items.get(key)
        return queued is not None and queued[0] == number


Backoff = Callable[[int], float]
"""Returns a delay in milliseconds for the number of earlier redeliveries of a message."""

_MAX_DELAY_MS = 2**63 - 1


@dataclass(frozen=True)
class MultiplierRedeliveryBackoff:
    """A delay that grows by a factor with each redelivery, up to a limit.

    `backoff(count)` returns the whole milliseconds of Java's `next(count)`.

    Args:
        min_delay_ms: the first delay in milliseconds, >= 0; 0 stays 0.
        max_delay_ms: the longest delay, >= the first.
        multiplier: the factor, > 1.

    Raises:
        InvalidUse: an argument is out of range.
    """

    min_delay_ms: int = 10_000
    max_delay_ms: int = 600_000
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        for name in ("min_delay_ms", "max_delay_ms"):
            if type(getattr(self, name)) is not int:
                raise InvalidUse(f"{name} must be an int (milliseconds), got {getattr(self, name)!r}")
        if type(self.multiplier) not in {int, float} or not math.isfinite(self.multiplier) or self.multiplier <= 1:
            raise InvalidUse(f"multiplier must be a number > 1, got {self.multiplier!r}")
        if not 0 <= self.min_delay_ms <= self.max_delay_ms <= _MAX_DELAY_MS:
            raise InvalidUse(
                f"The delays must be 0 <= min_delay_ms <= max_delay_ms <= {_MAX_DELAY_MS}, got {self.min_delay_ms} "
                f"and {self.max_delay_ms}"
            )

    def __call__(self, redelivery_count: int) -> int:
        """Return the delay in milliseconds of a message with this number of earlier redeliveries."""
        if redelivery_count <= 0 or self.min_delay_ms == 0:
            return self.min_delay_ms
        # The power above which the delay is `max_delay_ms`; it also keeps the power from overflowing.
        max_power = int(math.log(self.max_delay_ms / self.min_delay_ms) / math.log(self.multiplier)) + 1
        if redelivery_count > max_power:
            return self.max_delay_ms
        return int(min(self.min_delay_ms * math.pow(self.multiplier, redelivery_count), self.max_delay_ms))


def check_backoff(name: str, backoff: object) -> None:
    """Raise `InvalidUse` if a backoff is neither None nor callable, or if it is a class."""
    if backoff is not None and (isinstance(backoff, type) or not callable(backoff)):
        raise InvalidUse(
            f"{name} must be a MultiplierRedeliveryBackoff(…), or a function that returns milliseconds for a "
            f"redelivery count, got {backoff!r}"
        )


def delay_of(backoff: Backoff, redelivery_count: int) -> float:
    """Return the delay of a backoff in seconds."""
    millis: Any = backoff(redelivery_count)
    if type(millis) not in {int, float} or not math.isfinite(millis) or millis < 0:
        raise InvalidUse(f"The backoff must return milliseconds >= 0, got {millis!r} for count {redelivery_count}")
    return float(millis / 1000)


NATIVE_DELAY_MS: Final = 100
"""The shortest delay of the C++ client for negative acknowledgements."""
_NATIVE_DELAY_SECONDS: Final = NATIVE_DELAY_MS / 1000

_log = logging.getLogger("pulsar_ext")


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of one consumer."""

    delay_ms: int
    timeout_ms: int
    """Acknowledgement timeout; 0 for none."""
    nack_backoff: Backoff | None
    """Replaces `delay_ms`, by the redelivery count."""
    timeout_backoff: Backoff | None
    """Returns a delay to add to the timeout."""
    is_shared: bool

    def nack_due_at(self, message: Message | InnerMessage | None) -> float:
        """Return the time at which a message negatively acknowledged now is passed to the native consumer.

        `message` is None for an id, which has no redelivery count.
        """
        delay = self.delay_ms / 1000
        if self.nack_backoff is not None:
            delay = delay_of(self.nack_backoff, 0 if message is None else message.redelivery_count())
        delay = delay if delay > _NATIVE_DELAY_SECONDS else _NATIVE_DELAY_SECONDS  # noqa: FURB136  # faster than `max()`
        # The native consumer adds its own delay, which is subtracted here.
        return time.monotonic() + delay - (_NATIVE_DELAY_SECONDS if self.is_shared else 0)

    def ack_deadline(self, inner: InnerMessage) -> float:
        """Return the acknowledgement deadline of a native message received now."""
        due = time.monotonic() + self.timeout_ms / 1000
        if self.timeout_backoff is not None:
            try:
                due += delay_of(self.timeout_backoff, inner.redelivery_count())
            except Exception:  # noqa: BLE001  # of the application's function; the message is delivered nevertheless
                _log.exception("ack_timeout_redelivery_backoff raised; the timeout applies without it")
        return due
