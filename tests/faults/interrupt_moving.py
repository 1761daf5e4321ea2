"""Interrupted moves of a cursor and ends of a consumer: a second call completes them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pulsar as official
from interrupt_acking import MANY, Acknowledging
from interrupt_receiving import MILLIS, Receiving
from interrupt_rig import Rig, index_of, patiently

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Closing", "Redelivering", "Seeking", "Unsubscribing"]


class Seeking(Receiving):
    """`Consumer.seek()`, or `Reader.seek()`: a second seek succeeds."""

    cost = 20
    batch = 1

    def open_handle(self) -> None:
        if self.variant == "reader":
            self.handle = self.client.create_reader(self.topic, pulsar_ext.MessageId.earliest)
        else:
            super().open_handle()
        self.next = 0

    def begin(self) -> None:
        super().begin()
        for _ in range(3):
            self.last = self._receive()

    def _receive(self) -> Any:
        return (self.handle.read_next if self.variant == "reader" else self.handle.receive)(MILLIS)

    def call(self) -> Any:
        if self.variant == "id":
            self.handle.seek(self.last.message_id())
        else:
            self.handle.seek(pulsar_ext.MessageId.earliest)
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if self.is_closed:
            return
        if came and error is None:
            first = index_of(self._receive())
            wanted = index_of(self.last) + 1 if self.variant == "id" else 0
            if first != wanted:
                yield f"message {wanted} was the target, and {first} was received"
        patiently(lambda: self.handle.seek(pulsar_ext.MessageId.earliest))
        found = [index_of(self._receive()) for _ in range(4)]
        if found != [0, 1, 2, 3]:
            yield f"after another seek to the beginning {found} were received"

    def check_later(self) -> Iterator[str]:
        yield from Rig.check_later(self)


class Redelivering(Seeking):
    """`redeliver_unacknowledged_messages()`."""

    def call(self) -> Any:
        self.handle.redeliver_unacknowledged_messages()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if self.is_closed:
            return
        if not came:
            self.handle.redeliver_unacknowledged_messages()
        found: list[int] = []
        while 0 not in found and len(found) < self.feeder.sent:
            found.append(index_of(self._receive()))
        following = [index_of(self._receive()) for _ in range(3)]
        if following != [1, 2, 3]:
            yield f"after a redelivery {found[-3:]}, then {following} were received"


class Closing(Acknowledging):
    """`close()` with a pending acknowledgement: another consumer can subscribe, and the acknowledgement was sent."""

    cost = 5

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
        if self.is_closed:
            self.reopen()
        if self.feeder.sent - self.next < 20:
            self.feeder.send(MANY)
        self.message = self.handle.receive(MILLIS)
        self.handle.acknowledge(self.message)

    @property
    def is_reader(self) -> bool:
        return False

    def call(self) -> Any:
        if self.variant == "with":
            with self.handle:
                pass
        else:
            self.handle.close()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if not self.client.is_closed:
            self.handle.close()
        self.surely.add(index_of(self.message))
        if self.client.is_closed:
            self.client = self.world.client()
        self.open_handle()
        self.next = index_of(self.message) + 1
        message = self.handle.receive(MILLIS)
        found = index_of(message)
        if found != self.next:
            yield f"after the close message {self.next} was expected, and {found} was received"
        self.handle.acknowledge(message)
        self.surely.add(found)
        self.next = found + 1

    def reopen(self) -> None:
        self.open_handle()

    def check_later(self) -> Iterator[str]:
        yield from Rig.check_later(self)


class Unsubscribing(Closing):
    """`unsubscribe()`: repeated if it failed; a new subscription begins at its initial position."""

    def call(self) -> Any:
        self.handle.unsubscribe()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if not came and not self.is_closed:
            with contextlib.suppress(official.AlreadyClosed):
                self.handle.unsubscribe()
        if not self.client.is_closed:
            self.handle.close()
        else:
            self.client = self.world.client()
        self.open_handle()
        found = index_of(self.handle.receive(MILLIS))
        if found != 0 and (came or error is None):
            yield f"a new subscription began at message {found}"
        self.next = found + 1
