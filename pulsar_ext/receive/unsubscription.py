"""An unsubscription that a Ctrl-C interrupted: the broker may have carried it out all the same."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._native.answer import answered_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.answer import Answer

__all__ = ["Unsubscription"]


class Unsubscription:
    """What a consumer asked the broker for last, when it unsubscribed."""

    __slots__ = ("_answer",)

    def __init__(self) -> None:
        self._answer: Answer | None = None

    def noted(self, begin: Callable[[Answer], object]) -> Callable[[Answer], object]:
        """Give what begins it, and notes its answer."""
        return partial(self._begin, begin)

    def _begin(self, begin: Callable[[Answer], object], answer: Answer) -> None:
        self._answer = answer  # first: a Ctrl-C may come behind the next line
        begin(answer)

    def is_done(self, seconds: float) -> bool:
        """Whether an earlier one has been carried out; its answer is waited for."""
        answer = self._answer
        if answer is None or not answered_within(seconds, lambda: answer.result is None):
            return False
        return bool(answer.result == pulsar.Result.Ok)
