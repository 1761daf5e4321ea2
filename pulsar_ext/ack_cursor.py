"""What a consumer acknowledges on one topic, or one partition: what waits, what left, what is to be confirmed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from .ack_wire import AckWire
from .acks import SentAcks

if TYPE_CHECKING:
    from .acks import AckTracker, Entry, Leaving

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
        self.unconfirmed: dict[Entry, tuple[int, int] | None] = {}
        self.reached: Entry | None = None
        self.looked = 0.0
        self.behind = 0

    def add_singles(self, entries: list[Entry], ids: list[Any]) -> None:
        """Acknowledge single messages by their C++ ids."""
        self.live.update(zip(entries, ids, strict=True))
        self.tracker.add_wholes(entries)

    def hand_over(self, inner: Any, leaving: Leaving, now: float) -> None:
        """Give what leaves to the C++ consumer, and keep it for a while."""
        live, self.live = self.live, {}  # all that waits leaves
        self.sent.add(leaving, now, live)
        self.wire.send(inner, leaving, live)
        if leaving.cumulative is not None:
            self.reached = max(leaving.cumulative, self.reached or leaving.cumulative)
            upto = leaving.cumulative
            self.unconfirmed = {entry: part for entry, part in self.unconfirmed.items() if entry > upto}
            self.unconfirmed[upto] = None
            self.firsts = {entry: first for entry, first in self.firsts.items() if entry > upto}
        self.unconfirmed.update(dict.fromkeys(leaving.whole))
        for entry in leaving.whole if self.firsts else ():
            if (first := self.firsts.pop(entry, None)) is not None:
                self.unconfirmed[first] = None
        for entry, size, bits in leaving.indexes:
            self.unconfirmed[entry] = (size, bits)
        if (count := len(self.unconfirmed)) > 2 * _MAX_UNCONFIRMED:
            # All at once: taking the first out of a dictionary, one by one, gets slower with each.
            self.unconfirmed = dict(islice(self.unconfirmed.items(), count - _MAX_UNCONFIRMED, None))

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
        self.unconfirmed.clear()
        self.reached = None
