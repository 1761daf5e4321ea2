"""The contract of a topic's messages: each confirmed one is delivered to each subscription (pure, bounded).

A message is a number. The state grows with undelivered messages, not with sent ones: numbers without an outcome,
numbers that a subscription has not received yet, and the ids of the last few thousand.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Flow", "Taken"]

_IDS: Final = 5_000
"""Number of messages whose ids a subscription remembers: a message is written twice within seconds."""


class Flow:
    """The messages of one topic, from the producers' side."""

    def __init__(self, name: str, topic: str, *, once: bool = False) -> None:
        self.name, self.topic, self.once = name, topic, once
        self.sent = self.confirmed = self.failed = self.outcomes_twice = 0
        self.taken: dict[str, Taken] = {}
        self.open: set[int] = set()
        self.lock = threading.Lock()

    def subscription(self, name: str, expects: Callable[[int], bool] = lambda _: True) -> Taken:
        """Add a subscription that has to receive the messages it expects."""
        return self.taken.setdefault(name, Taken(self, name, expects))

    def begin(self, count: int = 1) -> range:
        """Return the next numbers, which are about to be sent."""
        with self.lock:
            numbers = range(self.sent, self.sent + count)
            self.sent += count
            self.open.update(numbers)
        return numbers

    def confirm(self, number: int) -> None:
        """Record that a message is persisted."""
        with self.lock:
            if number not in self.open:
                self.outcomes_twice += 1
                return
            self.open.remove(number)
            self.confirmed += 1
            for one in self.taken.values():
                one.expect(number)

    def fail(self, number: int) -> None:
        """Record that a message failed: it may be on the topic or not, and is not resent."""
        with self.lock:
            if number not in self.open:
                self.outcomes_twice += 1
                return
            self.open.remove(number)
            self.failed += 1
            for one in self.taken.values():
                one.early.discard(number)

    def oldest(self) -> float:
        """Longest current wait of a subscription for a message, in seconds."""
        with self.lock:
            since = [next(iter(one.pending.values())) for one in self.taken.values() if one.pending]
        return time.monotonic() - min(since) if since else 0.0

    def missing(self) -> int:
        """Number of missing deliveries and outcomes."""
        with self.lock:
            return len(self.open) + sum(len(one.pending) for one in self.taken.values())


class Taken:
    """Messages of a flow that one subscription, or reader, received."""

    def __init__(self, flow: Flow, name: str, expects: Callable[[int], bool]) -> None:
        self.flow, self.name, self._expects = flow, name, expects
        self.pending: dict[int, float] = {}
        self.early: set[int] = set()
        self.deliveries = self.again = self.written_twice = 0
        self.longest = 0.0
        self._ids: dict[int, tuple[Any, ...]] = {}

    def expect(self, number: int) -> None:
        """Expect a persisted message; with the flow's lock held."""
        if number in self.early:
            self.early.remove(number)
        elif self._expects(number):
            self.pending[number] = time.monotonic()

    def deliver(self, number: int, where: Any = None) -> None:
        """Record a delivery.

        Args:
            number: of the message.
            where: its position on the topic; None if it is not compared.
        """
        with self.flow.lock:
            self.deliveries += 1
            if where is not None:
                self._compare(number, where)
            since = self.pending.pop(number, None)
            if since is not None:
                self.longest = max(self.longest, time.monotonic() - since)
            elif number in self.flow.open and number not in self.early:
                self.early.add(number)
            else:
                self.again += 1

    def _compare(self, number: int, where: Any) -> None:
        known = self._ids.get(number)
        if known is None:
            self._ids[number] = (where,)
            if len(self._ids) > _IDS:
                del self._ids[next(iter(self._ids))]
        elif where not in known:
            self._ids[number] = (*known, where)
            self.written_twice += 1
