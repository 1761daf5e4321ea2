"""Acknowledgements that left and may not have arrived, to be sent again if their connection was lost (pure)."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from .leaving import NOTHING, Entry, Leaving, Singles

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SentAcks"]


class _Sent(NamedTuple):
    """What left at one time."""

    time: float
    leaving: Leaving | Singles
    ids: Mapping[Entry, Any]
    is_repeated: bool


class SentAcks:
    """What left and has not surely arrived, to be sent again if the connection turns out to have been lost.

    Args:
        limit: how many entries are kept at most.
    """

    def __init__(self, limit: int = 50_000) -> None:
        self._limit = limit
        self._sent: deque[_Sent] = deque()
        self._count = 0
        self._taken_back: list[tuple[float, tuple[Entry, int, int]]] = []
        """Messages that are to be delivered again, and when that was said."""
        self.arrived: Entry | None = None
        """An entry, acknowledged lately, whose acknowledgement has arrived."""

    def __len__(self) -> int:
        """How many entries, parts of batches and positions it keeps."""
        return self._count

    def add(
        self, leaving: Leaving | Singles, now: float, ids: Mapping[Entry, Any], *, is_repeated: bool = False
    ) -> None:
        """Keep what left.

        Args:
            leaving: what left.
            now: when, in seconds of any steady clock.
            ids: by which ids that nobody can make.
            is_repeated: whether it had left before.
        """
        self._sent.append(_Sent(now, leaving, ids, is_repeated))
        self._count += len(leaving)
        while self._count > self._limit and len(self._sent) > 1:
            self._count -= len(self._sent.popleft().leaving)

    @property
    def oldest(self) -> float:
        """When the oldest left of what is kept; there is some."""
        return self._sent[0].time

    def expire(self, arrived: float) -> None:
        """Drop what left until a time: it has arrived."""
        while self._sent and self._sent[0].time <= arrived:
            left = self._sent.popleft().leaving
            self._count -= len(left)
            self.arrived = _last_entry(left) or self.arrived
        if self._taken_back:
            oldest = self._sent[0].time if self._sent else math.inf
            self._taken_back = [one for one in self._taken_back if one[0] >= oldest]

    def take_back(self, entry: Entry, index: int, size: int, now: float) -> None:
        """Keep no acknowledgement of a message that left until now: the message is to be delivered again.

        Args:
            entry: its entry.
            index: its place in its batch; -1 if it is not in a batch.
            size: number of messages in its batch; 0 if that is not known.
            now: the time.
        """
        if self._sent:
            self._taken_back.append((now, (entry, index, size)))

    @property
    def ids(self) -> dict[Entry, Any]:
        """By which ids the kept entries left."""
        return {entry: one for sent in self._sent for entry, one in sent.ids.items()}

    def take(self, since: float = -math.inf, before: float = math.inf) -> Leaving:
        """Give everything that left in a time, as one, and keep no more of it.

        Args:
            since: the beginning of that time; if it is given, what had left before stays: it was sent again already.
            before: its end.
        """

        def is_wanted(one: _Sent) -> bool:
            return since <= one.time < before and not (one.is_repeated and since > -math.inf)

        taken = list(filter(is_wanted, self._sent))
        if not taken:
            return NOTHING
        self._sent = deque(one for one in self._sent if not is_wanted(one))
        self._count -= sum(len(one.leaving) for one in taken)
        return self._as_one(taken)

    def since(self, time: float) -> Leaving:
        """Give everything that left since a time, as one; it is kept."""
        return self._as_one([one for one in self._sent if one.time >= time])

    def _as_one(self, some: list[_Sent]) -> Leaving:
        every = [self._left(one) for one in some]
        cumulative = max((one.cumulative for one in every if one.cumulative is not None), default=None)
        whole = tuple(entry for one in every for entry in one.whole)
        indexes = tuple(part for one in every for part in one.indexes)
        return NOTHING.merged(Leaving(cumulative, whole, indexes))

    def _left(self, one: _Sent) -> Leaving:
        """Give what left at one time, without what was taken back since."""
        left = one.leaving if isinstance(one.leaving, Leaving) else Leaving(whole=tuple(one.leaving.entries))
        since = [message for time, message in self._taken_back if time >= one.time]
        return left.without(since) if since else left


def _last_entry(left: Leaving | Singles) -> Entry | None:
    if not isinstance(left, Leaving):
        return left.ledger_id, left.entry_ids[-1]
    return left.whole[-1] if left.whole else left.cumulative
