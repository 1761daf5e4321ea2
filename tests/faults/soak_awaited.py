"""The awaited half of the soak: producers, consumers, cancelled receives and whole clients in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from soak_sending import content

import pulsar_ext.asyncio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from soak_model import Flow, Taken
    from soak_rig import Rig

__all__ = ["Awaited"]

_STEP_SECONDS: Final = 0.1
_PER_STEP: Final = 5
_CHURN_MESSAGES: Final = 10
_PAUSE_SECONDS: Final = 0.3
_END_SECONDS: Final = 5.0
_BY_KEY: Final = {"batching_enabled": True, "batching_type": official.BatchingType.KeyBased}


class Awaited:
    """An event loop on a thread of its own, with all awaited objects."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._dice = rig.dice("awaited")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), name="awaited", daemon=True)
        for name, subscriptions in {"awaited": ("shared", "keys", "many"), "awaited-churn": ("churn",)}.items():
            for subscription in subscriptions:
                rig.flow(name).subscription(subscription)
        self._thread.start()

    def tasks(self) -> int:
        """Return the number of the loop's tasks."""
        return len(asyncio.all_tasks(self._loop)) if self._loop is not None else 0

    def join(self, seconds: float) -> None:
        """Wait for the end of the loop's thread."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._rig.found("the event loop did not end")
        self._loop = None

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        flow, churned = self._rig.flow("awaited"), self._rig.flow("awaited-churn")
        client = self._rig.client(pulsar_ext.asyncio)
        try:
            async with asyncio.TaskGroup() as tasks:
                for session in (
                    lambda: self._write(client, flow),
                    lambda: self._receive(client, flow.taken["shared"]),
                    lambda: self._receive(client, flow.taken["shared"]),
                    lambda: self._process(client, flow.taken["keys"]),
                    lambda: self._receive_many(client, flow.taken["many"]),
                    lambda: self._churn(churned),
                ):
                    tasks.create_task(self._keep_on(session))
        finally:
            with contextlib.suppress(official.PulsarException, TimeoutError):
                await asyncio.wait_for(client.close(), _END_SECONDS * 2)

    async def _keep_on(self, session: Callable[[], Awaitable[None]]) -> None:
        while not self._rig.over.is_set():
            try:
                await session()
            except Exception as error:  # noqa: BLE001  # reported
                self._rig.failed(error)
                await asyncio.sleep(_PAUSE_SECONDS)

    def _lives(self) -> float:
        return time.monotonic() + self._dice.uniform(15, 45)

    async def _write(self, client: Any, flow: Flow) -> None:
        if self._rig.draining.is_set():
            await asyncio.sleep(_STEP_SECONDS)
            return
        producer = await client.create_producer(flow.topic, send_timeout_millis=0, **_BY_KEY)
        try:
            ends = self._lives()
            while time.monotonic() < ends and not self._rig.draining.is_set():
                await asyncio.gather(*(self._send(producer, flow, number) for number in flow.begin(_PER_STEP)))
                await asyncio.sleep(_STEP_SECONDS)
        finally:
            await producer.close()
            self._rig.did["awaited producers closed"] += 1

    async def _send(self, producer: Any, flow: Flow, number: int) -> None:
        try:
            await producer.send(content(number), partition_key=f"key-{number % 50}")
        except BaseException as error:
            flow.fail(number)
            self._rig.errors[f"send: {type(error).__name__}"] += 1
            raise
        flow.confirm(number)

    async def _subscribe(self, client: Any, taken: Taken, kind: official.ConsumerType, **options: Any) -> Any:
        consumer = await client.subscribe(
            taken.flow.topic,
            taken.name,
            consumer_type=kind,
            initial_position=official.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=1_000,
            **options,
        )
        self._rig.consumers.add(consumer)
        return consumer

    async def _close(self, consumer: Any) -> None:
        with contextlib.suppress(official.PulsarException):
            await consumer.close()
        self._rig.did["awaited consumers closed"] += 1

    async def _receive(self, client: Any, taken: Taken) -> None:
        """Receive with a timeout that mostly cancels; negatively acknowledge a few messages."""
        consumer = await self._subscribe(client, taken, official.ConsumerType.Shared)
        try:
            ends = self._lives()
            while time.monotonic() < ends and not self._rig.over.is_set():
                with contextlib.suppress(TimeoutError):
                    message = await asyncio.wait_for(consumer.receive(), self._dice.choice((0.002, 0.02, 0.2)))
                    self._rig.taken(taken, message)
                    if self._dice.random() < 0.05:
                        await consumer.negative_acknowledge(message)
                    else:
                        await consumer.acknowledge(message)
        finally:
            await self._close(consumer)

    async def _process(self, client: Any, taken: Taken) -> None:
        """Handle every message with a handler that sometimes raises."""
        consumer = await self._subscribe(client, taken, official.ConsumerType.KeyShared)

        async def handle(message: Any) -> None:
            self._rig.taken(taken, message)
            await asyncio.sleep(0.01)
            if self._dice.random() < 0.005:
                raise official.UnknownError("a handler that failed")

        working = asyncio.ensure_future(consumer.process(handle, concurrency=20))
        try:
            ends = self._lives()
            while time.monotonic() < ends and not self._rig.over.is_set() and not working.done():
                await asyncio.wait([working], timeout=_STEP_SECONDS)
        finally:
            working.cancel()
            await asyncio.wait([working])
            await self._close(consumer)
        if not working.cancelled():
            working.result()

    async def _receive_many(self, client: Any, taken: Taken) -> None:
        consumer = await self._subscribe(client, taken, official.ConsumerType.Exclusive, ack_group_time_ms=200)
        try:
            ends, turns = self._lives(), 0
            while time.monotonic() < ends and not self._rig.over.is_set():
                messages = await consumer.receive_many(50, 200)
                for message in messages:
                    self._rig.taken(taken, message)
                await consumer.acknowledge_many(messages)
                turns += 1
                if turns % 50 == 0:
                    await consumer.flush_acks(confirm=True)
        finally:
            await self._close(consumer)

    async def _churn(self, flow: Flow) -> None:
        """Open a client, send, receive, and close it with everything open."""
        async with self._rig.client(pulsar_ext.asyncio) as client:
            if not self._rig.draining.is_set():
                producer = await client.create_producer(flow.topic, send_timeout_millis=0, **_BY_KEY)
                numbers = flow.begin(_CHURN_MESSAGES)
                await asyncio.gather(*(self._send(producer, flow, number) for number in numbers))
            taken = flow.taken["churn"]
            consumer = await self._subscribe(client, taken, official.ConsumerType.Shared)
            while messages := await consumer.receive_many(50, 300):
                for message in messages:
                    self._rig.taken(taken, message)
                    await consumer.acknowledge(message)
        self._rig.did["awaited clients closed"] += 1
        await asyncio.sleep(_PAUSE_SECONDS)
