"""The interrupted asyncio client: calls are cancelled as by `asyncio.run()`, and the next one loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import pulsar as official
from interrupt_rig import Feeder, Rig, acknowledged_entries, index_of, patiently, quiet

import pulsar_ext
import pulsar_ext.asyncio

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Awaited", "AwaitedOpening", "AwaitedSending"]

MILLIS = 3000
_SECONDS = 10
_FEW = pulsar_ext.DiagnosisLimits(entries=3, pause_seconds=0)


class Awaited(Rig):
    """Awaits a consumer's or a reader's method in a loop; the variant is its name."""

    awaits = True

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.topic = self.world.topic()
        self.feeder = Feeder(self.world, self.topic)
        self.next = 0
        self.task: Any = None
        self.tasks: set[Any] = set()
        self.run(self._open())

    def run(self, awaited: Any) -> Any:
        """Run a coroutine in the loop."""
        return self.loop.run_until_complete(asyncio.wait_for(awaited, _SECONDS))

    async def _open(self) -> None:
        self.awaited = pulsar_ext.asyncio.Client(
            self.world.service_url, admin=self.world.admin_url, logger=quiet(), operation_timeout_seconds=5
        )
        self.client = self.awaited.blocking
        self.producer = await self.awaited.create_producer(self.world.topic(), batching_enabled=True)
        await self._open_handle()

    async def _open_handle(self) -> None:
        if self.variant in _OF_READER:
            self.handle = await self.awaited.create_reader(self.topic, pulsar_ext.MessageId.earliest)
        else:
            self.handle = await self.awaited.subscribe(
                self.topic,
                "s",
                initial_position=official.InitialPosition.Earliest,
                negative_ack_redelivery_delay_ms=100,
            )
        self.next = 0

    def begin(self) -> None:
        if self.client.is_closed:
            self.run(self._open())
        elif self.handle.blocking.is_closed:
            self.run(self._open_handle())
        if self.feeder.sent - self.next < 20:
            self.feeder.send(300)
        self.message = None
        if self.variant not in _RECEIVING:
            self.message = self.run(self._receive())
            self.next = index_of(self.message) + 1

    async def _receive(self) -> Any:
        read = self.handle.read_next if self.variant in _OF_READER else self.handle.receive
        return await read(MILLIS)

    def call(self) -> Any:
        self.got: Any = None
        self.task = self.loop.create_task(self._keep())
        self.loop.run_until_complete(self.task)

    async def _keep(self) -> None:
        self.got = await self._call()  # like an application's coroutine: a cancelled task returns nothing

    async def _call(self) -> Any:
        handle, variant = self.handle, self.variant
        blocks = {"loop": self._loop, "loop of reader": self._loop, "scope": self._scope}
        blocks |= {"with": self._with, "with reader": self._with}
        if variant in blocks:
            return await blocks[variant]()
        arguments: dict[str, tuple[Any, ...]] = {
            **dict.fromkeys(("receive", "read_next"), (MILLIS,)),
            **dict.fromkeys(("receive_many", "read_many"), (5, MILLIS)),
            **dict.fromkeys(("acknowledge", "acknowledge_cumulative", "negative_acknowledge"), (self.message,)),
            "acknowledge_many": ([self.message],),
            **dict.fromkeys(("seek", "seek of reader"), (pulsar_ext.MessageId.earliest,)),
        }
        called = getattr(handle, variant.removesuffix(" of reader"))(*arguments.get(variant, ()))
        came = await called if isawaitable(called) else called
        return [came] if variant in ("receive", "read_next") else came

    async def _loop(self) -> Any:
        async for message in self.handle:
            return [message]
        return None

    async def _scope(self) -> Any:
        async with self.handle.ack_scope(confirm=False):
            return [await self.handle.receive(MILLIS)]

    async def _with(self) -> None:
        async with self.handle:
            pass

    def cancel(self) -> None:
        """Cancel the call, as the first Ctrl-C of `asyncio.run()` does."""
        self.task.cancel()
        self.loop.call_soon_threadsafe(int)

    def send(self) -> None:
        name = f"handler-{next(self._sent)}"
        sending = self.loop.create_task(self.producer.send(name.encode()))
        self.tasks.add(sending)

    def close_handle(self) -> None:
        self.tasks.add(self.loop.create_task(self.handle.close()))

    def close_client(self) -> None:
        """Close the client, from a signal handler."""
        self.tasks.add(self.loop.create_task(self.awaited.close()))

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from self._tasks_end()
        came = self.got
        messages = came if isinstance(came, list) else []
        yield from self.took(messages)
        if self.feeder.sent - self.next < 10:
            self.feeder.send(20)
        if self.variant in _CLOSING and not self.handle.blocking.is_closed:  # a cancelled close may be in progress
            with contextlib.suppress(pulsar_ext.PulsarException):
                self.run(self.handle.close())
        if self.handle.blocking.is_closed or self.client.is_closed:
            return
        if self.variant in _MOVING:
            patiently(lambda: self.run(self.handle.seek(pulsar_ext.MessageId.earliest)))
            self.next = 0
        yield from self.took([self.run(self._receive())], " by the next call")

    def _tasks_end(self) -> Iterator[str]:
        tasks, self.tasks = self.tasks, set()
        for task in tasks:
            try:
                self.run(task)
            except pulsar_ext.PulsarException:
                pass
            except TimeoutError:
                yield "a task started by the handler does not end"

    def took(self, messages: list[Any], how: str = "") -> Iterator[str]:
        """Compare with the expected messages."""
        for message in messages:
            index = index_of(message)
            if index != self.next and self.variant not in _UNORDERED:
                yield f"message {self.next} was expected{how}, and {index} received"
            self.next = index + 1

    def check_later(self) -> Iterator[str]:
        if self.client.is_closed or self.handle.blocking.is_closed:
            self.begin()
        if self.variant in _OF_READER or self.variant not in _ACKNOWLEDGING:
            return
        message = self.run(self._receive())
        self.run(self.handle.acknowledge(message))
        self.run(self.handle.flush_acks(confirm=True))
        shown = acknowledged_entries(self.world.admin, self.topic, self.feeder.sent)
        if index_of(message) not in shown:
            yield "an acknowledgement does not show after a confirmed flush"

    def end(self) -> None:
        self.feeder.close()
        if not self.client.is_closed:
            self.run(self.awaited.close())
        self.loop.close()


_OF_READER = frozenset(
    {
        "read_next",
        "read_many",
        "loop of reader",
        "seek of reader",
        "with reader",
        "has_message_available",
        "close of reader",
    }
)
_CLOSING = frozenset({"unsubscribe", "close", "close of reader", "with", "with reader"})
_RECEIVING = frozenset(
    {"receive", "receive_many", "batch_receive", "read_next", "read_many", "loop", "loop of reader", "scope", "process"}
)
_MOVING = frozenset({"seek", "seek of reader", "redeliver_unacknowledged_messages"})
_ACKNOWLEDGING = frozenset({"acknowledge", "acknowledge_many", "acknowledge_cumulative", "flush_acks", "pending_acks"})
_UNORDERED = frozenset({"negative_acknowledge", "scope", "redeliver_unacknowledged_messages", "unsubscribe"})


class AwaitedSending(Awaited):
    """Awaits a producer's method."""

    async def _open_handle(self) -> None:
        self.handle = await self.awaited.create_producer(
            self.topic, batching_enabled=True, batching_max_publish_delay_ms=5
        )

    def begin(self) -> None:
        if self.client.is_closed:
            self.run(self._open())
        elif self.handle.blocking.sender.closed:
            self.run(self._open_handle())

    async def _call(self) -> Any:
        handle = self.handle
        if self.variant == "send":
            return await handle.send(b"x")
        if self.variant == "send_many":
            return await handle.send_many([b"x", b"y"])
        if self.variant == "with producer":
            async with handle:
                await handle.send(b"x")
        elif self.variant in ("flush", "close"):
            await getattr(handle, self.variant)()
        else:
            getattr(handle, self.variant)()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from self._tasks_end()
        if not (self.client.is_closed or self.handle.blocking.sender.closed):
            self.run(self.handle.send(b"z"))
            self.run(self.handle.flush())

    def check_later(self) -> Iterator[str]:
        return iter(())


class AwaitedOpening(Awaited):
    """Awaits a method of the client twice."""

    async def _open_handle(self) -> None:
        if not self.feeder.sent:
            self.feeder.send(20)
            self.world.admin.create_subscription(self.topic, "skipped", "earliest")
        self.handle = await self.awaited.create_reader(self.topic, pulsar_ext.MessageId.earliest)
        self.first = (await self.handle.read_next(MILLIS)).message_id()

    def begin(self) -> None:
        if self.client.is_closed:
            self.run(self._open())

    async def _call(self) -> Any:
        client, topic = self.awaited, self.topic
        id_, earliest = pulsar_ext.MessageId.parse(self.first.to_text()), pulsar_ext.MessageId.earliest
        calls = {
            "create_producer": lambda: client.create_producer(topic, producer_name="one", batching_enabled=True),
            "subscribe": lambda: client.subscribe(topic, "s"),
            "create_reader": lambda: client.create_reader(topic, id_),
            "create_table_view": lambda: client.create_table_view(topic),
            "create_reader_group": lambda: client.create_reader_group(topic, earliest, 2),
            "new_reader": lambda: client.new_reader().topic(topic).start_message_id(earliest).create(),
            "new_consumer": lambda: client.new_consumer().topic(topic).subscription_name("k").subscribe(),
            "get_topic_partitions": lambda: client.get_topic_partitions(topic),
            "resolve_message_id": lambda: client.resolve_message_id(topic, id_),
            "message_id_after": lambda: client.message_id_after(topic, id_, 3),
            "diagnose": lambda: client.diagnose(topic, limits=_FEW),
            "look": lambda: client.look(topic, limits=_FEW),
            "read": lambda: client.read(topic, 0),
            "acknowledge by id": lambda: client.acknowledge(topic, "skipped", id_),
            "skip_messages": lambda: client.skip_messages(topic, "skipped", 3, dry_run=True),
            "close": client.close,
            "with client": lambda: _with(client),
        }
        return await calls[self.variant]()

    def close_handle(self) -> None:
        self.close_client()

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        yield from self._tasks_end()
        came = self.got
        if came is not None and hasattr(came, "close"):
            with contextlib.suppress(pulsar_ext.PulsarException):
                self.run(came.close())
        if self.variant in ("close", "with client"):
            self.run(self.awaited.close())
            return
        self.begin()
        self.loop.run_until_complete(asyncio.wait_for(self._again(), _SECONDS))

    async def _again(self) -> None:
        for attempt in range(100):
            try:
                again = await self._call()
            except official.PulsarException as busy:
                if "Busy" not in str(busy) or attempt == 99:
                    raise
                await asyncio.sleep(0.03)
            else:
                if hasattr(again, "close"):
                    await again.close()
                return

    def check_later(self) -> Iterator[str]:
        return iter(())


async def _with(client: Any) -> None:
    async with client:
        pass
