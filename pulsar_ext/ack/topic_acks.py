"""What a consumer acknowledges on one topic, or one partition: what waits, what left, what is to be confirmed."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from .in_flight import SentAcks
from .native_sender import AckWire

if TYPE_CHECKING:
    from .tracker import AckTracker, Entry, Leaving, Singles

__all__ = ["Cursor"]

_DOUBTFUL_SECONDS = 1.0
"""What was handed over so shortly before a disconnection may not have arrived."""
_MAX_UNCONFIRMED = 20_000
"""How many entries a confirmed flush surely checks: what left before these has long arrived."""


class Cursor:
    """One topic, or one partition, that a consumer acknowledges on.

    Args:
        topic: its full name.
        partition: its index, -1 if none.
        named: whether the C++ consumer needs the topic with each id.
        tracker: what has not left.
    """

    def __init__(self, topic: str, partition: int, *, named: bool, tracker: AckTracker) -> None:
        self.topic, self.tracker = topic, tracker
        self.wire = AckWire(topic if named else None, partition)
        self.sent = SentAcks(_DOUBTFUL_SECONDS)
        self.live: dict[Entry, Any] = {}
        self.firsts: dict[Entry, Entry] = {}
        self._unconfirmed: dict[Entry, tuple[int, int] | None] = {}
        self._passed: deque[Singles] = deque()
        self._passed_count = 0
        self.reached: Entry | None = None
        self.looked = 0.0
        self.behind = 0

    def note_passed(self, singles: Singles, now: float) -> None:
        """Keep what was given to the C++ consumer, message by message, for a while."""
        self.sent.add(singles, now, {})
        self._passed.append(singles)
        self._passed_count += len(singles)
        while self._passed_count - len(self._passed[0]) > _MAX_UNCONFIRMED:
            self._passed_count -= len(self._passed.popleft())

    def unconfirmed(self) -> dict[Entry, tuple[int, int] | None]:
        """Give what left and was not confirmed yet: of a batch the number of its messages, and the bit set of some."""
        for singles in self._passed:
            self._unconfirmed.update(dict.fromkeys(singles.entries))
        self._forget_passed()
        if (count := len(self._unconfirmed)) > 2 * _MAX_UNCONFIRMED:
            # All at once: taking the first out of a dictionary, one by one, gets slower with each.
            self._unconfirmed = dict(islice(self._unconfirmed.items(), count - _MAX_UNCONFIRMED, None))
        return self._unconfirmed

    def confirmed(self, entry: Entry, part: tuple[int, int] | None) -> None:
        """Note that the broker shows what left; more of the same batch may have left since."""
        if self._unconfirmed.get(entry, ()) == part:
            self._unconfirmed.pop(entry, None)

    def hand_over(self, inner: Any, leaving: Leaving, now: float) -> None:
        """Give what leaves to the C++ consumer, and keep it for a while."""
        live, self.live = self.live, {}  # all that waits leaves
        self.sent.add(leaving, now, live)
        self.wire.send(inner, leaving, live)
        unconfirmed = self.unconfirmed()
        if leaving.cumulative is not None:
            self.reached = max(leaving.cumulative, self.reached or leaving.cumulative)
            upto = leaving.cumulative
            for entry in [entry for entry in unconfirmed if entry <= upto]:
                del unconfirmed[entry]
            unconfirmed[upto] = None
            self.firsts = {entry: first for entry, first in self.firsts.items() if entry > upto}
        unconfirmed.update(dict.fromkeys(leaving.whole))
        for entry in leaving.whole if self.firsts else ():
            if (first := self.firsts.pop(entry, None)) is not None:
                unconfirmed[first] = None
        for entry, size, bits in leaving.indexes:
            unconfirmed[entry] = (size, bits)

    def hand_over_again(self, inner: Any, now: float, *, keep: bool) -> None:
        """Give it once more what may have been lost with a connection, and keep it for yet another time or not."""
        live = self.sent.ids
        again = self.sent.take()
        if again:
            if keep:
                self.sent.add(again, now, live)
            self.wire.send(inner, again, live)

    def hand_over_missing(self, inner: Any, missing: Leaving) -> None:
        """Give it once more what the broker does not show, and flush."""
        self.wire.send(inner, missing, self.sent.ids)
        self.wire.flush(inner)

    def expire(self, now: float) -> None:
        """Forget what has surely arrived."""
        self.sent.expire(now)

    def forget(self) -> None:
        """Forget everything: the cursor was moved elsewhere."""
        self.tracker.clear()
        self.wire.forget()
        self.sent.take()
        self.live.clear()
        self.firsts.clear()
        self._forget_passed()
        self._unconfirmed.clear()
        self.reached = None

    def _forget_passed(self) -> None:
        self._passed.clear()
        self._passed_count = 0
