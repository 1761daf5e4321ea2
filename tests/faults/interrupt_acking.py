"""Interrupted acknowledgements and other moves of a cursor: acknowledged messages are sent, and no others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import pulsar as official
from interrupt_health import PATIENCE
from interrupt_receiving import MILLIS, Receiving
from interrupt_rig import Feeder, Rig, acknowledged_entries, index_of

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Acknowledging",
    "AcknowledgingMany",
    "AcknowledgingUpTo",
    "Flushing",
    "Nacking",
    "Reconsuming",
    "Scoping",
]

_SHOWN_SECONDS = 8.0
_EXCLUDED = 100


def _coming_again(consumer: Any, wanted: set[int]) -> set[int]:
    """Receive and acknowledge until these messages were received; return those received in time, and any others."""
    deadline, came = time.monotonic() + PATIENCE, set[int]()
    while wanted - came and time.monotonic() < deadline:
        for message in consumer.receive_many(1000, 100):
            came.add(index_of(message))
            consumer.acknowledge(message)
    return came


class Acknowledging(Receiving):
    """Acknowledges some of the messages, each an entry; every hundredth one is never acknowledged."""

    batch = 1
    how = "acknowledge"

    def open(self) -> None:
        self.surely: set[int] = set()
        self.maybe: set[int] = set()
        super().open()
        if self.how == "acknowledge_cumulative":
            self.call = self._call_cumulative  # type: ignore[method-assign]

    def open_handle(self) -> None:
        options = dict(self.options)
        if self.variant == "each at once":
            options["ack_group_time_ms"] = 0
        if self.variant == "in runs":
            options |= {"ack_group_time_ms": 50, "max_ack_group_size": 3}
        self.handle = self.client.subscribe(
            self.topic, "s", initial_position=official.InitialPosition.Earliest, **options
        )

    def begin(self) -> None:
        super().begin()
        before = {"a full inbox": 255, "in runs": 2}.get(self.variant, 0)
        if self.feeder.sent - self.next < (2 * MANY if before > _EXCLUDED else 20):
            self.feeder.send(2 * MANY)
        messages = self.receive(6)
        while sum(index_of(one) % _EXCLUDED > 0 for one in messages[:-1]) < 2:
            messages = self.receive(6)  # a new consumer first gets the excluded ones
        if before:
            others = [one for one in self.receive(before + before // 10 + 1) if index_of(one) % _EXCLUDED][:before]
            self.surely.update(index_of(one) for one in others)
            self.handle.flush_acks()
            for message in others:
                self.handle.acknowledge(message)
        elif self.variant != "again":
            self.handle._acks.scheduled = False  # the call takes its longest path
        self.indexes = [index_of(one) for one in messages[:-1] if index_of(one) % _EXCLUDED]
        self.messages = [one for one in messages if index_of(one) in self.indexes]
        self.targets = self.messages
        if self.variant == "by id":
            self.targets = [pulsar_ext.MessageId.parse(one.message_id().to_text()) for one in self.messages]

    def receive(self, count: int) -> list[Any]:
        """Receive `count` messages, and record them."""
        messages = [self.handle.receive(MILLIS) for _ in range(count)]
        self.next = index_of(messages[-1]) + 1
        return messages

    def reopen(self) -> None:
        self.open_handle()
        self.next = 0

    def call(self) -> Any:
        if self.how == "acknowledge_many":
            self.handle.acknowledge_many(self.targets)
        else:
            self.handle.acknowledge(self.targets[0])
        return True

    def _call_cumulative(self) -> Any:
        self.handle.acknowledge_cumulative(self.targets[0])
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        indexes = self.indexes if self.how == "acknowledge_many" else self.indexes[:1]
        if self.how == "acknowledge_cumulative":
            indexes = list(range(indexes[0] + 1))
        (self.surely if came else self.maybe).update(indexes)
        if not self.is_closed:
            self.handle.acknowledge(self.messages[-1])
            self.surely.add(self.indexes[-1])
            problem, _ = self.elsewhere.call("pending_acks()", self.handle.pending_acks)
            if problem:
                yield problem

    def check_later(self) -> Iterator[str]:
        yield from Rig.check_later(self)
        if not self.is_closed:
            self.begin()
            self.handle.acknowledge(self.messages[0])
            self.surely.add(self.indexes[0])
            yield from self._shows("by itself")
            self.handle.flush_acks(confirm=True)
        yield from self._shows("after a flush" if not self.is_closed else "after the close")

    def _shows(self, when: str) -> Iterator[str]:
        """Yield acknowledgements that the cursor does not show in time, and wrong ones that it shows."""
        deadline = time.monotonic() + _SHOWN_SECONDS
        while True:
            shown = acknowledged_entries(self.world.admin, self.topic, self.feeder.sent)
            missing = self.surely - shown
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if missing:
            yield f"{len(missing)} of {len(self.surely)} acknowledgements do not show {when}: {sorted(missing)[:3]}"
        if wrong := shown - self.surely - self.maybe:
            yield f"{len(wrong)} messages are acknowledged without a call: {sorted(wrong)[:3]}"


MANY = 600


class AcknowledgingMany(Acknowledging):
    how = "acknowledge_many"


class AcknowledgingUpTo(Acknowledging):
    how = "acknowledge_cumulative"


class Flushing(Acknowledging):
    """`flush_acks()` and `pending_acks()`, with pending acknowledgements."""

    def begin(self) -> None:
        super().begin()
        for message in self.messages:
            self.handle.acknowledge(message)
        self.surely.update(self.indexes)

    def call(self) -> Any:
        if self.variant == "pending":
            self.handle.pending_acks()
        else:
            self.handle.flush_acks(confirm=self.variant == "confirmed")
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if self.is_closed:
            return
        problem, _ = self.elsewhere.call("flush_acks()", self.handle.flush_acks)
        if problem:
            yield problem


class Scoping(Acknowledging):
    """A block of `ack_scope()`: all acknowledged at its end, or all redelivered."""

    options: ClassVar = {"negative_ack_redelivery_delay_ms": 100, "consumer_type": official.ConsumerType.Shared}

    def begin(self) -> None:
        Receiving.begin(self)
        if self.feeder.sent - self.next < 20:
            self.feeder.send(MANY)
        self.taken: list[int] = []
        self.inside = False

    def call(self) -> Any:
        if self.variant == "explicit":
            messages = self.handle.receive_many(2, MILLIS)
            for message in messages:
                self.taken.append(index_of(message))
            with self.handle.ack_scope(messages, confirm=False):
                self.inside = True
            return True
        with self.handle.ack_scope(confirm=False):
            for _ in (1, 2):
                message = self.handle.receive(MILLIS)
                self.taken.append(index_of(message))
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        self.next = max([self.next, *(one + 1 for one in self.taken)])
        (self.surely if came else self.maybe).update(self.taken)
        if not self.is_closed and self.handle._recorder is not None and self.handle._recorder.lists:
            yield "a scope that has ended still records received messages"

    def check_later(self) -> Iterator[str]:
        yield from Rig.check_later(self)
        if self.is_closed:
            Receiving.begin(self)
        else:
            self.handle.close()
            self.open_handle()
        wanted = set(range(self.feeder.sent)) - self.surely
        came = set()
        deadline = time.monotonic() + PATIENCE
        while wanted - self.maybe - came and time.monotonic() < deadline:
            for message in self.handle.receive_many(1000, 100):
                came.add(index_of(message))
                self.handle.acknowledge(message)
        if missing := wanted - self.maybe - came:
            yield f"{len(missing)} messages do not reach a new consumer: {sorted(missing)[:3]}"
        if again := came & self.surely:
            yield f"{len(again)} acknowledged messages are redelivered: {sorted(again)[:3]}"
        self.surely |= came | self.maybe
        self.next = self.feeder.sent


class Nacking(Scoping):
    """`negative_acknowledge()`: the message is redelivered to this consumer."""

    def begin(self) -> None:
        super().begin()
        self.message = self.handle.receive(MILLIS)
        self.taken = [index_of(self.message)]

    def call(self) -> Any:
        self.handle.negative_acknowledge(self.message)
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        self.next = max(self.next, self.taken[0] + 1)
        if came:
            self.nacked = getattr(self, "nacked", set()) | set(self.taken)
        if not self.is_closed:
            other = self.handle.receive(MILLIS)
            problem, _ = self.elsewhere.call("negative_acknowledge()", lambda: self.handle.negative_acknowledge(other))
            self.next = max(self.next, index_of(other) + 1)
            self.nacked = getattr(self, "nacked", set()) | {index_of(other)}
            if problem:
                yield problem

    def check_later(self) -> Iterator[str]:
        nacked, self.nacked = getattr(self, "nacked", set()), set()
        if not self.is_closed:
            came = _coming_again(self.handle, nacked)
            if missing := nacked - came:
                yield f"{len(missing)} negatively acknowledged messages are not redelivered: {sorted(missing)[:3]}"
            self.handle.flush_acks(confirm=True)
            self.surely |= came
        yield from super().check_later()


class Reconsuming(Rig):
    """`reconsume_later()`: the message is redelivered, as a letter if there is one, and no message is missing."""

    cost = 4

    def open(self) -> None:
        super().open()
        self.topic = self.world.topic()
        self.feeder = Feeder(self.world, self.topic)
        self._subscribe()

    def _subscribe(self) -> None:
        self.handle = self.client.subscribe(
            self.topic,
            "s",
            initial_position=official.InitialPosition.Earliest,
            enable_retry=True,
            dead_letter_policy=official.ConsumerDeadLetterPolicy(1_000),
        )
        self.wanted: set[int] = set()

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
        if self.handle.is_closed:
            self._subscribe()
        self.feeder.send(1)
        self.wanted.add(self.feeder.sent - 1)
        self.message = self.handle.receive(MILLIS)

    def call(self) -> Any:
        self.handle.reconsume_later(self.message, 0)
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        return iter(())

    def check_later(self) -> Iterator[str]:
        wanted, self.wanted = self.wanted, set()
        if not self.client.is_closed and not self.handle.is_closed:
            self.handle.close()  # unacknowledged messages are redelivered to the next one
            self._subscribe()
            came = _coming_again(self.handle, wanted)
            if missing := wanted - came:
                yield f"{len(missing)} messages are not redelivered: {sorted(missing)[:3]}"
        yield from super().check_later()
