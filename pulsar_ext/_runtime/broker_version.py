"""The version of the broker, as far as acknowledgements depend on it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import pulsar

from pulsar_ext.errors import PulsarExtError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BrokerVersion", "passes_over_unknown"]

_AGAIN_SECONDS: Final = 60.0
"""Interval between questions while the admin API does not answer."""
_PASSES_OVER: Final = 4
"""First major version that passes over acknowledgements of unknown ledgers on every type of subscription."""


class BrokerVersion:
    """The version of the broker that a client is connected to; it is asked for in the background.

    Args:
        ask: asks the admin API for the version.
        run: calls a function on another thread.
    """

    def __init__(self, ask: Callable[[], str], run: Callable[[Callable[[], object]], object]) -> None:
        self._ask, self._run = ask, run
        self._due, self._passes_over = -math.inf, False

    def forget(self) -> None:
        """Ask again: the client is connected to another cluster."""
        self._due, self._passes_over = -math.inf, False

    @property
    def passes_over_unknown(self) -> bool:
        """If the broker is known to pass over acknowledgements of a ledger that cannot exist.

        Brokers before 4.0 close the connection of a Shared or Key_Shared consumer that sends one, and what it
        acknowledged with it is lost.
        """
        self.learn()
        return self._passes_over

    def learn(self) -> None:
        """Ask in the background, unless it is known or was asked within a minute."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _AGAIN_SECONDS
            self._run(self._learn)

    def _learn(self) -> None:
        try:
            self._passes_over = passes_over_unknown(self._ask())
        except (PulsarExtError, pulsar.PulsarException):  # no admin API answers, or the client is closed
            return
        self._due = math.inf


def passes_over_unknown(version: str) -> bool:
    """Return if a broker of a version such as `4.2.4` passes over acknowledgements of unknown ledgers."""
    major = version.partition(".")[0]
    return major.isdecimal() and int(major) >= _PASSES_OVER
