"""An unsubscription that a Ctrl-C interrupted, and one from several topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.answer import answered_within
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._native.answer import Answer

__all__ = ["Unsubscription", "is_of_several"]


def is_of_several(topics: Any, partitions_of: Callable[[str], list[str]]) -> bool:
    """Whether the C++ consumer of what was subscribed to is one of several topics or partitions.

    Args:
        topics: what was subscribed to.
        partitions_of: gives the names of a topic's partitions; of a topic without partitions its own.
    """
    if not isinstance(topics, str):
        return True
    return not TopicName.parse(topics).is_partition and any(
        TopicName.parse(one).is_partition for one in partitions_of(topics)
    )


class Unsubscription:
    """What a consumer asked the broker for last, when it unsubscribed; the broker may have done it all the same."""

    __slots__ = ("_answer", "_begun")

    def __init__(self) -> None:
        self._answer: Answer | None = None
        self._begun: Sequence[int] = ()

    def noted(self, begin: Callable[[Answer, list[int]], object]) -> Callable[[Answer], object]:
        """Give what begins it, and notes its answer.

        Args:
            begin: is called with the answer, and with a list that gets an item together with the beginning.
        """
        return partial(self._begin, begin)

    def _begin(self, begin: Callable[[Answer, list[int]], object], answer: Answer) -> None:
        begun: list[int] = []
        self._answer, self._begun = answer, begun  # first: a Ctrl-C may come behind the next line
        begin(answer, begun)

    def is_done(self, seconds: float) -> bool:
        """Whether an earlier one has been carried out; its answer is waited for, if a Ctrl-C let it begin."""
        answer = self._answer
        if answer is None or not self._begun or not answered_within(seconds, lambda: answer.result is None):
            return False
        return bool(answer.result == pulsar.Result.Ok)
