"""Answers of the broker that are not asked for again at once: many consumers of a client look at the same topics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["RecentAnswers"]

T = TypeVar("T")
_SECONDS: Final = 0.5


class _Known(NamedTuple):
    asked: float
    answer: Any


class RecentAnswers:
    """The answers of the last half second; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Known] = {}
        """The oldest first."""

    def forget(self) -> None:
        """Drop every answer: another cluster is asked from now on."""
        self._known.clear()

    def ask(self, question: Hashable, ask: Callable[[], T]) -> T:
        """Give an answer.

        Args:
            question: names it.
            ask: asks it anew; what it raises is no answer.
        """
        now = time.monotonic()
        while self._known and next(iter(self._known.values())).asked + _SECONDS <= now:
            del self._known[next(iter(self._known))]
        known = self._known.get(question)
        if known is None:
            known = self._known[question] = _Known(time.monotonic(), ask())
        answer: T = known.answer
        return answer
