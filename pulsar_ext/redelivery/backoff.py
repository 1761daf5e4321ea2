"""How long a message waits before it is redelivered, the longer the more often it was (pure).

Mirrors Java's `RedeliveryBackoff` and `MultiplierRedeliveryBackoff`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulsar_ext.errors import InvalidUse

__all__ = ["Backoff", "MultiplierRedeliveryBackoff", "check_backoff", "delay_of"]

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
