"""Interrupted receives of a consumer, a reader, and loops: messages not returned are received next, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pulsar as official
from interrupt_health import Elsewhere
from interrupt_rig import Feeder, Rig, acknowledged_entries, index_of

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Asking",
    "AskingReader",
    "BatchReceiving",
    "ClosingReader",
    "Looping",
    "LoopingOn",
    "ManyReceiving",
    "Pausing",
    "Reading",
    "ReadingInGroup",
    "ReadingOnRanges",
    "Receiving",
]

MILLIS = 3000
_AHEAD = 400


class Receiving(Rig):
    """`Consumer.receive()`: the next message is the one after the last returned one."""

    batch = 10
    options: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        super().open()
        self.open_sending()
        self.topic = self.world.topic()
        if self.variant == "queue of 0":
            self.batch = 1  # otherwise only the first message of a batch would arrive
        self.feeder = Feeder(self.world, self.topic, self.batch)
        self.next, self.acknowledged = 0, 0
        self.elsewhere = Elsewhere()
        self.open_handle()

    def open_handle(self) -> None:
        """Subscribe."""
        options = dict(self.options)
        if self.variant == "queue of 0":
            options["receiver_queue_size"] = 0
        if self.variant == "screened":
            options["consumer_type"] = official.ConsumerType.Shared
            options["dead_letter_policy"] = official.ConsumerDeadLetterPolicy(3, self.topic + "-dead")
        if self.variant == "ranges":
            self.handle = self._of_ranges()
            return
        self.handle = self.client.subscribe(
            self.topic, "s", initial_position=official.InitialPosition.Earliest, **options
        )

    def _of_ranges(self) -> Any:
        policy = pulsar_ext.KeySharedPolicy.sticky_hash_range().ranges(pulsar_ext.KeyHashRange(0, 65535))
        builder = self.client.new_consumer().topic(self.topic).subscription_name("s").key_shared_policy(policy)
        return builder.subscription_initial_position(official.InitialPosition.Earliest).subscribe()

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
            self.open_sending()
            self.reopen()
        elif self.handle.is_closed:
            self.reopen()
        if self.feeder.sent - self.next < _AHEAD // 4:
            self.feeder.send(_AHEAD)
        if self.variant == "fetched ahead" and self.handle._prefetch is not None:
            self.handle._prefetch._fast = True
        if self.variant != "ready":
            self.handle._order.drop_ready()  # nothing is ready: the call takes its longest path

    def reopen(self) -> None:
        """Continue with a new consumer: it gets the unacknowledged messages."""
        self.open_handle()
        self.next = self.acknowledged // self.batch * self.batch

    @property
    def is_closed(self) -> bool:
        """True if the handle is closed, by itself or with its client."""
        return self.client.is_closed or self.handle.is_closed

    def call(self) -> Any:
        return self.handle.receive(MILLIS)

    def follow(self) -> list[Any]:
        """Receive the next messages after the call."""
        return [self.handle.receive(MILLIS)]

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        messages = came if isinstance(came, list) else [] if came is None else [came]
        yield from self.took(messages)
        if not self.is_closed:
            yield from self.took(self.follow(), " by the next call")

    def took(self, messages: list[Any], how: str = "") -> Iterator[str]:
        """Compare with the expected messages, and acknowledge."""
        for message in messages:
            index = index_of(message)
            if index != self.next:
                yield f"message {self.next} was expected{how}, and {index} received"
            self.next = index + 1
        if messages and self.variant != "not acknowledged" and not self.is_closed:
            self.acknowledge(messages)

    def acknowledge(self, messages: list[Any]) -> None:
        """Acknowledge messages."""
        self.handle.acknowledge_many(messages)
        self.acknowledged = self.next

    def check_later(self) -> Iterator[str]:
        yield from super().check_later()
        if self.is_closed:
            return
        self.begin()
        problem, message = self.elsewhere.call("receive()", lambda: self.handle.receive(MILLIS))
        yield from [problem] if problem else self.took([message], " to another thread")
        if isinstance(self, Reading) or self.variant == "not acknowledged":
            return
        while self.next % self.batch:
            yield from self.took([self.handle.receive(MILLIS)], " to fill a batch")
        problem, _ = self.elsewhere.call("flush_acks()", lambda: self.handle.flush_acks(confirm=True), 12)
        if problem:
            yield problem
        last = self.acknowledged // self.batch
        shown = acknowledged_entries(self.world.admin, self.topic, last)
        if missing := set(range(last)) - shown:
            yield f"entries {sorted(missing)[:3]} were acknowledged, and the cursor does not show it"
        if shown - set(range(self.acknowledged // self.batch + 1)):
            yield "the cursor shows entries that were not acknowledged"
        self.handle.close()
        self.reopen()  # numbered again: no other thread has received by this consumer

    def close_handle(self) -> None:
        self.handle.close()

    def end(self) -> None:
        self.feeder.close()
        super().end()


class ManyReceiving(Receiving):
    """`Consumer.receive_many()`: the next call returns the messages of the interrupted one."""

    def call(self) -> Any:
        return self.handle.receive_many(7, MILLIS)

    def follow(self) -> list[Any]:
        return self.handle.receive_many(3, MILLIS)

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from super().ended(came, error)
        if not self.is_closed:
            yield from self.took([self.handle.receive(MILLIS)], " by receive()")


class BatchReceiving(ManyReceiving):
    """`Consumer.batch_receive()`: the next call returns the messages of the interrupted one."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of the consumer; with a policy of its own, the C++ client builds the batches."""
        own = {"batch_receive_policy": official.ConsumerBatchReceivePolicy(7, 1 << 20, 20)}
        return own if self.variant == "own policy" else {}

    cost = 20

    def begin(self) -> None:
        super().begin()
        if self.feeder.sent == self.next:
            self.feeder.send(10)

    def call(self) -> Any:
        return self.handle.batch_receive()

    def follow(self) -> list[Any]:
        self.begin()
        return self.handle.batch_receive()

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from Receiving.ended(self, came, error)


class Looping(Receiving):
    """A `for` loop over a consumer, started again after each message."""

    def call(self) -> Any:
        for message in self.handle:
            return message
        return None


class LoopingOn(Looping):
    """A `for` loop over a consumer that continues."""

    def begin(self) -> None:
        super().begin()
        if getattr(self, "_over", None) is not self.handle:
            self._over, self._loop = self.handle, iter(self.handle)

    def call(self) -> Any:
        for message in self._loop:
            return message
        self._over = None
        return None

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if error is not None:
            self._over = None  # an exception ends a generator
        yield from super().ended(came, error)


class Reading(Receiving):
    """`Reader.read_next()`."""

    def open_handle(self) -> None:
        options = {"receiver_queue_size": 0} if self.variant == "queue of 0" else {}
        self.handle = self.client.create_reader(self.topic, pulsar_ext.MessageId.earliest, **options)

    def call(self) -> Any:
        return self.handle.read_next(MILLIS)

    def follow(self) -> list[Any]:
        return [self.handle.read_next(MILLIS)]

    def acknowledge(self, messages: list[Any]) -> None:
        pass

    def check_later(self) -> Iterator[str]:
        yield from Rig.check_later(self)
        if self.is_closed:
            return
        self.begin()
        problem, message = self.elsewhere.call("read_next()", lambda: self.handle.read_next(MILLIS))
        yield from [problem] if problem else self.took([message], " to another thread")


class ReadingOfTopics(Reading):
    """`TopicsReader.read_next()`."""

    def open_handle(self) -> None:
        self.handle = self.client.create_reader([self.topic], pulsar_ext.MessageId.earliest)


class Asking(Receiving):
    """A consumer's method without arguments; the variant is its name."""

    def call(self) -> Any:
        getattr(self.handle, self.variant)()


class Pausing(Receiving):
    """`pause()` or `resume()`: after the pause the next message is received."""

    def call(self) -> Any:
        getattr(self.handle, self.variant)()

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if not self.is_closed:
            self.handle.resume()
        yield from super().ended(came, error)


class AskingReader(Reading):
    """A reader's method without arguments; the variant is its name."""

    def call(self) -> Any:
        getattr(self.handle, self.variant)()


class ClosingReader(Reading):
    """`Reader.close()`, or the end of its block: closing again works."""

    cost = 3

    def call(self) -> Any:
        if self.variant == "with":
            with self.handle:
                pass
        else:
            self.handle.close()

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if not self.client.is_closed:
            self.handle.close()
            self.open_handle()
            self.next = 0
            yield from self.took(self.follow(), " to a new reader")


class ReadingInGroup(Reading):
    """A reader of a group with the broker's filter; it is the only one, with all slots."""

    def open_handle(self) -> None:
        if not self.feeder.sent:
            self.feeder.send(_AHEAD)
        earliest = pulsar_ext.MessageId.earliest
        self.group = self.client.create_reader_group(self.topic, earliest, 1, filtering="broker")
        (self.handle,) = self.group.readers
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self.client.is_closed or self._closed

    def reopen(self) -> None:
        self.open_handle()
        self.next = 0

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
            self.open_sending()
            self.reopen()
        elif self._closed:
            self.reopen()
        if self.feeder.sent - self.next < _AHEAD // 4:
            self.feeder.send(_AHEAD)

    def call(self) -> Any:
        if self.variant == "close":
            self.group.close()
            return None
        return self.handle.read_next(MILLIS)

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if self.variant == "close":
            self.group.close()
            self._closed = True
        else:
            yield from super().ended(came, error)

    def close_handle(self) -> None:
        self._closed = True
        self.group.close()


class ReadingOnRanges(Reading):
    """A reader of nearly all slots: each message has no key, and one slot."""

    def open_handle(self) -> None:
        if not self.feeder.sent:
            self.feeder.send(_AHEAD)
        ranges = [pulsar_ext.KeyHashRange(0, 65534)]  # nearly all, so that each message is checked
        self.handle = self.client.create_reader(self.topic, pulsar_ext.MessageId.earliest, key_hash_ranges=ranges)

    def call(self) -> Any:
        if self.variant == "loop":
            for message in self.handle:
                return message
            return None
        if self.variant == "has_message_available":
            self.handle.has_message_available()
            return None
        return self.handle.read_next(MILLIS if self.variant else None)
