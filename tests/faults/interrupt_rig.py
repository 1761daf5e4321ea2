"""Common parts of all interrupted calls: a world with a broker, and handles that are reused."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pulsar as official

import pulsar_ext
from pulsar_ext import PulsarAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Feeder", "Outcomes", "Rig", "World", "acknowledged_entries", "index_of", "patiently"]

_OPERATION_SECONDS = 5
_PATIENT_SECONDS = 3.0


class World:
    """A broker, and clients of it that are never interrupted.

    Args:
        service_url: service URL of the broker.
        admin_url: admin URL of the broker.
    """

    def __init__(self, service_url: str, admin_url: str) -> None:
        self.service_url, self.admin_url = service_url, admin_url
        self.feeding = official.Client(service_url, logger=quiet())
        self.admin = PulsarAdmin(admin_url)
        self._names = itertools.count()
        self._feeders: dict[str, Feeder] = {}

    def client(self) -> pulsar_ext.Client:
        """Open a client to be interrupted."""
        return pulsar_ext.Client(
            self.service_url, admin=self.admin_url, logger=quiet(), operation_timeout_seconds=_OPERATION_SECONDS
        )

    def topic(self, partitions: int = 0) -> str:
        """Return an unused topic."""
        topic = f"persistent://public/default/interrupt-{os.getpid()}-{next(self._names)}"
        if partitions:
            self.admin.create_partitioned_topic(topic, partitions)
        return topic


def quiet() -> Any:
    """Return a logger that discards everything."""
    return official.FileLogger(official.LoggerLevel.Error, os.devnull)


class Feeder:
    """Sends numbered messages, in batches of a size, by the official client."""

    def __init__(self, world: World, topic: str, batch: int = 1) -> None:
        options: dict[str, Any] = {"block_if_queue_full": True}
        if batch > 1:
            options |= {
                "batching_enabled": True,
                "batching_max_messages": batch,
                "batching_max_publish_delay_ms": 10_000,
            }
        self._producer = world.feeding.create_producer(topic, **options)
        self._batch = batch
        self.sent = 0

    def send(self, count: int) -> None:
        """Send at least `count` more messages, in whole batches."""
        for _ in range(-(-count // self._batch) * self._batch):
            self._producer.send_async(b"%d" % self.sent, None)
            self.sent += 1
        self._producer.flush()

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


class Outcomes:
    """Reported outcomes of messages, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.of: dict[str, list[Any]] = defaultdict(list)

    def callback(self, name: str) -> Any:
        """Return the callback of a message."""

        def report(result: Any, _: Any) -> None:
            self.of[name].append(result)

        return report


class Rig:
    """Makes one kind of call repeatedly, and reports problems after each.

    Args:
        world: the broker and its clients.
        variant: the way of the call.
    """

    client: Any = None
    awaits = False
    """True if the call runs in an event loop, where a Ctrl-C cancels it."""
    cost = 1
    """Duration of a point, relative to the shortest one."""

    def __init__(self, world: World, variant: str = "") -> None:
        self.world, self.variant = world, variant
        self.outcomes = Outcomes()
        self._sent = itertools.count()
        self._handler_sent: list[tuple[str, bool]] = []
        self._sending: Any = None

    def open(self) -> None:
        """Open handles."""
        self.client = self.world.client()

    def begin(self) -> None:
        """Prepare one call."""

    def call(self) -> Any:
        """Make the call that is interrupted; its result is the application's."""
        raise NotImplementedError

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        """Yield problems right after the call, with the same handles."""
        raise NotImplementedError
        yield

    def check_later(self) -> Iterator[str]:
        """Yield problems after several calls, if they take longer to detect."""
        yield from self.handler_outcomes()

    def send(self) -> None:
        """Send, in a signal handler."""
        if self._sending is None:
            return
        name = f"handler-{next(self._sent)}"
        try:
            self._sending.send_async(name.encode(), self.outcomes.callback(name))
            self._handler_sent.append((name, True))
        except pulsar_ext.InvalidUse:
            self._handler_sent.append((name, False))

    def open_sending(self) -> None:
        """Open the producer for the signal handler."""
        self._sending = self.client.create_producer(
            self.world.topic(), batching_enabled=True, batching_max_publish_delay_ms=2
        )

    def close_handle(self) -> None:
        """Close the handle, in a signal handler."""
        self.client.close()

    def cancel(self) -> None:
        """Cancel the call, if it runs in an event loop."""
        raise NotImplementedError

    def close_client(self) -> None:
        """Close the client, in a signal handler."""
        self.client.close()

    def handler_outcomes(self) -> Iterator[str]:
        """Yield problems of messages that handlers sent."""
        if self._handler_sent and self._sending is not None and not self._sending.sender.closed:
            self._sending.flush()
        for name, accepted in self._handler_sent:
            count = len(self.outcomes.of[name])
            if count > 1 or (accepted and not count):
                yield f"a message sent by the handler has {count} outcomes"
        self._handler_sent.clear()

    def end(self) -> None:
        """Close everything."""
        if self.client is not None and not self.client.is_closed:
            self.client.close()


def index_of(message: Any) -> int:
    """Return the number in a message."""
    return int(message.data())


def acknowledged_entries(admin: PulsarAdmin, topic: str, upto: int) -> set[int]:
    """Return the entries below a number that the cursor shows, on a topic of one ledger."""
    cursor = admin.internal_stats(topic).cursors["s"]
    found = set(range(min(cursor.mark_delete_position.entry_id + 1, upto)))
    for one in cursor.individually_deleted:
        found.update(range(max(one.after.entry_id + 1, 0), one.last.entry_id + 1))
    return found


def patiently(call: Any) -> None:
    """Repeat a call until it succeeds, because the connection may be lost."""
    deadline = time.monotonic() + _PATIENT_SECONDS
    while True:
        try:
            return call()
        except official.PulsarException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
