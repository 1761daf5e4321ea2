"""`Consumer.process()` of the asyncio client: handlers run as tasks, and awaitable steps are awaited."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from inspect import isawaitable
from typing import Any

import pulsar

from pulsar_ext._native.results import POLL_MILLIS
from pulsar_ext.message import Message
from pulsar_ext.process import BegunBatches, Handling, Steps, redelivery_steps

from ._executor import is_own_cancellation, running_loop_bridge


async def drive(steps: Steps) -> None:
    """Make each step; a cancellation of what a step awaits is a `CancelledError` of `concurrent.futures` for it."""
    result: object = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(result) if error is None else steps.throw(error)
        except StopIteration:
            return
        result, error = None, None
        try:
            result = step()
            if isawaitable(result):
                result = await result
        except BaseException as raised:  # noqa: BLE001  # passed to the steps
            error = raised
            if isinstance(raised, asyncio.CancelledError) and not is_own_cancellation(raised):
                error = CancelledError("An awaited operation was cancelled.")
                error.__cause__ = raised


async def finish_batches(batches: BegunBatches, begin_one: Callable[[], Awaitable[object]]) -> None:
    """Handle the rest of each batch that was begun; see `BegunBatches`."""
    # The rest of a batch may not be in the queue: it arrives with a new connection, or never.
    with contextlib.suppress(TimeoutError, pulsar.Timeout, pulsar.AlreadyClosed):
        while seconds := batches.seconds_left(time.monotonic()):
            async with asyncio.timeout(seconds):
                await begin_one()


class ProcessRun:
    """A call of `process()` in the running loop."""

    def __init__(self, consumer: Any, handling: Handling) -> None:
        self._consumer, self._handling = consumer, handling
        self._slots = asyncio.Semaphore(handling.concurrency)
        self._bridge = running_loop_bridge()
        self._batches = BegunBatches(handling.batch_timeout_ms, consumer.blocking._ask_about_batches_)
        self._receiving: asyncio.Task[None] | None = None
        self._not_started: set[Message] = set()
        self._error: Exception | None = None

    def end(self) -> None:
        """Stop receiving; callable from any thread and from a signal handler."""
        self._bridge.call_soon(self._end)

    async def work(self) -> None:
        """Receive messages and start handlers until the end; then wait for them and flush acknowledgements."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._receiving = tasks.create_task(self._receive(tasks))
                await asyncio.wait([self._receiving])
                if self._receiving.cancelled():
                    await finish_batches(self._batches, lambda: self._begin_one(tasks, POLL_MILLIS))
        finally:
            for message in self._not_started:  # a task that is cancelled before it starts runs no code
                await drive(redelivery_steps(self._consumer, message))
        with contextlib.suppress(pulsar.AlreadyClosed):
            await self._consumer.flush_acks()
        if self._error is not None:
            raise self._error

    def _end(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()  # loses no message

    async def _receive(self, tasks: asyncio.TaskGroup) -> None:
        try:
            while True:
                await self._begin_one(tasks)
        except pulsar.AlreadyClosed:
            return
        except Exception as error:  # noqa: BLE001  # raised after the handlers have ended
            self._error = error

    async def _begin_one(self, tasks: asyncio.TaskGroup, timeout_millis: int | None = None) -> None:
        await self._slots.acquire()
        try:
            message = await self._consumer.receive(timeout_millis)
        except BaseException:
            self._slots.release()
            raise
        self._not_started.add(message)
        if not self._batches.note(message):
            self._slots.release()
            return
        handled = tasks.create_task(self._handle(message))
        handled.add_done_callback(lambda _: self._slots.release())

    async def _handle(self, message: Message) -> None:
        self._not_started.discard(message)
        await drive(self._handling.steps(self._consumer, message))
