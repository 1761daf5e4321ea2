"""Interrupted `process()`, blocking and awaited: each message is handled once, or next, and no thread stays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pulsar as official
from interrupt_awaited import Awaited
from interrupt_health import PATIENCE
from interrupt_receiving import MILLIS, Receiving
from interrupt_rig import Rig, acknowledged_entries, index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AwaitedProcessing", "Processing"]

_EACH = 3
_THREAD = "pulsar-ext-handler"
_OPTIONS: dict[str, Any] = {
    "consumer_type": official.ConsumerType.Shared,  # where a single message is redelivered
    "initial_position": official.InitialPosition.Earliest,
    "negative_ack_redelivery_delay_ms": 100,
}


class _Account:
    """The messages handled in this call and before."""

    def __init__(self) -> None:
        self.call: list[int] = []
        self.done: set[int] = set()
        self.may_repeat: set[int] = set()
        self.next = 0
        """All messages below it are done."""

    def end_call(self, *, closed: bool) -> tuple[int, list[str]]:
        """Return the end of the messages that must have been received by now, and the problems of handled ones."""
        handled, self.call = self.call, []
        problems = self.note(handled)
        if closed:
            self.may_repeat.update(handled)  # the current message of a closing handler cannot be acknowledged
        return max(handled, default=self.next) + 1, problems

    def misses(self, upto: int) -> bool:
        """Return True if a message up to this one was not received."""
        while self.next in self.done:
            self.next += 1
        return self.next <= upto

    def note(self, numbers: list[int], how: str = "") -> list[str]:
        """Record received messages; return their problems."""
        again = [number for number in numbers if number in self.done and number not in self.may_repeat]
        self.may_repeat.difference_update(numbers)
        self.done.update(numbers)
        return [f"message {number} was received again{how}, and was acknowledged" for number in again]

    def unseen(self, shown: set[int]) -> list[str]:
        """Return handled messages that the cursor does not show."""
        missing = sorted(self.done - self.may_repeat - shown)
        return [f"messages {missing[:3]} were handled, and the cursor does not show it"] if missing else []


class Processing(Receiving):
    """`Consumer.process()` on two threads, which a handler stops at its third message."""

    batch = 1
    cost = 2

    def open(self) -> None:
        self.account = _Account()
        super().open()

    def open_handle(self) -> None:
        self.handle = self.client.subscribe(self.topic, "s", **_OPTIONS)

    def reopen(self) -> None:
        """Continue with a new consumer: it gets the unacknowledged messages."""
        self.open_handle()

    def call(self) -> None:
        self.handle.process(self._handle, concurrency=2)

    def _handle(self, message: Any) -> None:
        self.account.call.append(index_of(message))
        if len(self.account.call) == _EACH:
            self.handle.stop_processing()

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from _threads_end()
        upto, problems = self.account.end_call(closed=self.is_closed)
        yield from problems
        while not self.is_closed and self.account.misses(upto):
            message = self.handle.receive(MILLIS)
            yield from self.account.note([index_of(message)], " by receive()")
            self.handle.acknowledge(message)
        self.next = len(self.account.done)  # determines the number of messages to send

    def check_later(self) -> Iterator[str]:
        yield from Rig.check_later(self)
        if self.is_closed:
            return
        problem, _ = self.elsewhere.call("flush_acks()", lambda: self.handle.flush_acks(confirm=True), 12)
        if problem:
            yield problem
        yield from self.account.unseen(acknowledged_entries(self.world.admin, self.topic, self.feeder.sent))


def _threads_end() -> Iterator[str]:
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            if thread.ident is not None:
                thread.join(PATIENCE)
            if thread.ident is None or thread.is_alive():
                thread.name += ", left"  # reported once
                yield "a handler's thread does not end, or never started"


class AwaitedProcessing(Awaited):
    """`process()` of the asyncio client, two tasks at a time, which a handler stops at its third message."""

    cost = 2

    def open(self) -> None:
        self.account = _Account()
        super().open()

    async def _open_handle(self) -> None:
        self.handle = await self.awaited.subscribe(self.topic, "s", **_OPTIONS)

    async def _call(self) -> None:
        await self.handle.process(self._handle, concurrency=2)

    async def _handle(self, message: Any) -> None:
        self.account.call.append(index_of(message))
        if len(self.account.call) == _EACH:
            self.handle.stop_processing()

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from self._tasks_end()
        upto, problems = self.account.end_call(closed=self._is_closed)
        yield from problems
        while not self._is_closed and self.account.misses(upto):
            message = self.run(self._receive())
            yield from self.account.note([index_of(message)], " by receive()")
            self.run(self.handle.acknowledge(message))
        self.next = len(self.account.done)  # determines the number of messages to send

    @property
    def _is_closed(self) -> bool:
        return bool(self.client.is_closed or self.handle.blocking.is_closed)

    def check_later(self) -> Iterator[str]:
        if self._is_closed:
            return
        self.run(self.handle.flush_acks(confirm=True))
        yield from self.account.unseen(acknowledged_entries(self.world.admin, self.topic, self.feeder.sent))
