"""Consumers under faults: a subscription with its sender and consumers, and the wait until all is acknowledged."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from acks_common import Outcome, Sender, label_of, subscribe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Stream", "wait_until_acknowledged"]

_CYCLE_SECONDS: Final = 45.0


class Stream:
    """A subscription: its sender, its consumers, and the messages they received."""

    def __init__(self, client: Any, sender: Sender, topic: str, outcome: Outcome, *, ahead: bool) -> None:
        self.topic, self.outcome, self._sender, self._ahead = topic, outcome, sender, ahead
        self.seen: Counter[int] = Counter()
        self._stop = threading.Event()
        count = 1 if outcome.type == "Exclusive" else 2
        queue = 1_000 if ahead else 20
        self._consumers = [subscribe(client, topic, outcome.kind, outcome.type, queue) for _ in range(count)]
        self._threads = [threading.Thread(target=self._consume, args=(one,), daemon=True) for one in self._consumers]
        for thread in self._threads:
            thread.start()

    def send(self, count: int) -> None:
        """Send at least `count` more messages, in whole batches."""
        self._sender.send(count // 10 if self.outcome.kind == "chunked" else count)

    def missing(self) -> int:
        """Return the number of sent messages that were not delivered yet."""
        return self._sender.sent - len(self.seen)

    def stop(self) -> None:
        """Stop consuming, and count."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.outcome.sent, self.outcome.delivered = self._sender.sent, len(self.seen)
        self.outcome.lost = self.missing()
        self.outcome.again = sum(self.seen.values()) - len(self.seen)

    def _consume(self, consumer: Any) -> None:
        dice = random.Random(id(consumer))
        held: list[Any] = []
        while not self._stop.is_set():
            if self._ahead:
                consumer._prefetch.fetch(400)
            with contextlib.suppress(official.Timeout):
                message = consumer.receive(100)
                self.seen[label_of(message.data())] += 1
                held.append(message)
                time.sleep(dice.random() * 0.01)
                if dice.random() > 0.2 and len(held) < 8:  # some are acknowledged late, out of order
                    continue
            dice.shuffle(held)
            for message in held:
                consumer.acknowledge(message)
            held.clear()


def wait_until_acknowledged(
    left_of: Callable[[str], str], streams: list[Stream], cycle: int, seconds: float = _CYCLE_SECONDS
) -> None:
    """Wait until every message was delivered and acknowledged; add a note for each stream that was late.

    Args:
        left_of: returns the unacknowledged entries of a topic, as `unacknowledged()`.
        streams: the streams to wait for.
        cycle: number of the cycle, for the note.
        seconds: the timeout.
    """
    waiting = {stream.topic: stream for stream in streams}
    deadline = time.monotonic() + seconds
    last: dict[str, str] = {}
    while waiting and time.monotonic() < deadline:
        time.sleep(0.2)
        for topic, stream in list(waiting.items()):
            left = left_of(topic)
            last[topic] = f"{stream.missing()} not delivered, {left}"
            if not stream.missing() and not left:
                del waiting[topic]
    for topic, stream in waiting.items():
        stream.outcome.holes += 1
        stream.outcome.notes.append(f"cycle {cycle}: {last[topic]}")
