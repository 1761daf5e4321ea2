"""Interrupted openings, lookups, skips and ends: a second call works, and nothing stays open."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pulsar as official
from interrupt_rig import Feeder, Rig, index_of

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Ending", "Opening", "TableViewing"]

_MESSAGES = 30
_FEW = pulsar_ext.DiagnosisLimits(entries=3, pause_seconds=0)


class Opening(Rig):
    """Calls a method of the client twice; the variant is its name."""

    cost = 5

    def open(self) -> None:
        super().open()
        self.open_sending()
        self.topic = self.world.topic()
        self.feeder = Feeder(self.world, self.topic)
        self.feeder.send(_MESSAGES)
        reader = self.client.create_reader(self.topic, pulsar_ext.MessageId.earliest)
        self.first = reader.read_next(3000).message_id()
        reader.close()
        self.world.admin.create_subscription(self.topic, "skipped", "earliest")
        self.opened: list[Any] = []

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
            self.open_sending()
        if self.variant == "acknowledge":
            self.feeder.send(1)
            self.last = self.world.admin.last_message_id(self.topic)

    def _calls(self) -> dict[str, Callable[[], Any]]:
        client, topic, earliest = self.client, self.topic, official.InitialPosition.Earliest
        id_ = pulsar_ext.MessageId.parse(self.first.to_text())
        half = pulsar_ext.KeyHashRange(0, 65535)
        sticky = pulsar_ext.KeySharedPolicy.sticky_hash_range().ranges(half)
        return {
            "create_producer direct": lambda: client.create_producer(topic, producer_name="one"),
            "create_producer batched": lambda: client.create_producer(
                topic, producer_name="one", batching_enabled=True
            ),
            "create_producer deduplicated": lambda: client.create_producer(
                topic, producer_name="two", batching_enabled=True, deduplication=True
            ),
            "subscribe": lambda: client.subscribe(topic, "s", initial_position=earliest),
            "subscribe shared": lambda: client.subscribe(
                topic, "t", official.ConsumerType.Shared, initial_position=earliest
            ),
            "create_reader": lambda: client.create_reader(topic, id_, start_message_id_inclusive=True),
            "create_reader ranges": lambda: client.create_reader(
                topic, pulsar_ext.MessageId.earliest, key_hash_ranges=[pulsar_ext.KeyHashRange(0, 65534)]
            ),
            "create_table_view": lambda: client.create_table_view(topic),
            "read": lambda: client.read(topic, 0),
            "requester": lambda: client.requester(topic, reply_topic=f"{topic}-replies", subscription_name="one"),
            "replier": lambda: client.replier(topic, print, consumer_type=official.ConsumerType.Exclusive),
            "create_reader_group": lambda: client.create_reader_group(topic, pulsar_ext.MessageId.earliest, 2),
            "new_consumer": lambda: (
                client.new_consumer().topic(topic).subscription_name("k").key_shared_policy(sticky).subscribe()
            ),
            "new_reader": lambda: (
                client.new_reader().topic(topic).start_message_id(pulsar_ext.MessageId.earliest).create()
            ),
            "get_topic_partitions": lambda: client.get_topic_partitions(topic),
            "get_service_info": client.get_service_info,
            "resolve_message_id": lambda: client.resolve_message_id(topic, id_),
            "message_id_after": lambda: client.message_id_after(topic, id_, 3),
            "diagnose": lambda: client.diagnose(topic, limits=_FEW),
            "look": lambda: client.look(topic, limits=_FEW),
            "acknowledge": lambda: client.acknowledge(topic, "skipped", self.last),
            "skip_messages": lambda: client.skip_messages(topic, "skipped", 3, dry_run=True),
            "skip_messages really": lambda: client.skip_messages(topic, "skipped", 1),
        }

    def call(self) -> Any:
        self.came = self._calls()[self.variant]()
        return self.came

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        self.came = None
        self._end_one(came)
        del came
        self.begin()
        if self.variant == "skip_messages really":
            self.feeder.send(2)
        deadline = time.monotonic() + 3
        while True:
            try:
                again = self._calls()[self.variant]()
                break
            except (official.ConsumerBusy, official.ProducerBusy) as busy:
                if time.monotonic() > deadline:
                    yield f"what the interrupted call opened is still open: {busy}"
                    return
                time.sleep(0.02)
        if self.variant == "subscribe shared":
            found = [index_of(again.receive(3000)) for _ in range(_MESSAGES)]
            if sorted(found) != list(range(_MESSAGES)):
                yield f"messages went to an unreferenced consumer: {sorted(set(range(_MESSAGES)) - set(found))}"
        self._end_one(again)

    @staticmethod
    def _end_one(one: Any) -> None:
        if one is not None and hasattr(one, "close"):
            with contextlib.suppress(pulsar_ext.AlreadyClosed):
                one.close()


class Ending(Rig):
    """`Client.close()` with open handles: earlier sends and acknowledgements are not lost."""

    cost = 8

    def open(self) -> None:
        super().open()
        self.topic, self.to = self.world.topic(), self.world.topic()
        self.feeder = Feeder(self.world, self.topic)
        self.next = 0
        self._ready = False

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
        if self.feeder.sent - self.next < 10:
            self.feeder.send(100)
        self.consumer = self.client.subscribe(self.topic, "s", initial_position=official.InitialPosition.Earliest)
        message = self.consumer.receive(3000)
        self.first = index_of(message)
        self.consumer.acknowledge(message)
        self._sending = self.producer = self.client.create_producer(
            self.to, batching_enabled=True, batching_max_publish_delay_ms=5_000
        )
        self.producer.send_async(b"x", self.outcomes.callback("x"))

    def call(self) -> Any:
        if self.variant == "shutdown":
            self.client.shutdown()
        elif self.variant == "with":
            with self.client:
                pass
        else:
            self.client.close()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if self.variant == "shutdown":
            self.client.shutdown()
        self.client.close()
        results = self.outcomes.of.pop("x", [])
        allowed = [[official.Result.Ok]] if error is None else [[official.Result.Ok], [official.Result.AlreadyClosed]]
        if self.variant != "shutdown" and results not in allowed:
            yield f"a message that was sent before the close has the outcomes {results}"
        if self.first != self.next and self.variant != "shutdown":
            yield f"message {self.next} was expected, and {self.first} received"
        self.next = self.first + 1

    def check_later(self) -> Iterator[str]:
        self._handler_sent.clear()
        return iter(())


class TableViewing(Rig):
    """A table view's methods."""

    def open(self) -> None:
        super().open()
        self.open_sending()
        self.topic = self.world.topic()
        producer = self.world.feeding.create_producer(self.topic)
        for key in ("a", "b"):
            producer.send(key.encode(), partition_key=key)
        producer.close()
        self.handle = self.client.create_table_view(self.topic)

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
            self.open_sending()
            self.handle = self.client.create_table_view(self.topic)
        elif getattr(self, "_closed", False):
            self.handle = self.client.create_table_view(self.topic)
        self._closed = False

    def call(self) -> Any:
        found: list[Any] = []
        if self.variant == "get":
            found.append(self.handle.get("a"))
        elif self.variant == "len":
            found.append(len(self.handle))
        elif self.variant == "close":
            self.handle.close()
        else:
            getattr(self.handle, self.variant)(lambda key, value: found.append((key, value)))
        return found

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        if self.client.is_closed or self._closed:
            return
        if self.variant != "close" and self.handle.get("a") != b"a":
            yield f"the view shows {self.handle.get('a')!r}"
        if self.variant == "close":
            with contextlib.suppress(pulsar_ext.PulsarException):
                self.handle.close()
            self._closed = True

    def close_handle(self) -> None:
        self._closed = True
        with contextlib.suppress(pulsar_ext.PulsarException):  # already closed, as officially
            self.handle.close()
