"""The awaited consumer: `pulsar_ext.Consumer` for an event loop."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.handles import AsyncConsumerDoor, MessageDoor
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._wire.message_id_data import has_first_chunk

from ._blocking_receiver import Asking
from ._receiving import AsyncSeeking
from .errors import awaited, error_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pulsar_ext.consumer import Consumer as BlockingConsumer
    from pulsar_ext.message import Message

    from ._executor import Threads

__all__ = ["AckScope", "Consumer"]

_log = logging.getLogger("pulsar_ext")


class Consumer(AsyncSeeking, AsyncConsumerDoor):
    """A `pulsar.asyncio.Consumer` with everything of `pulsar_ext.Consumer`; made by `Client.subscribe()`.

    It is also an asynchronous iterator, which ends when the consumer is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingConsumer, threads: Threads) -> None:
        super().__init__(blocking)
        # Where Python looks at each message (dead letters, key ranges, groups), the blocking receive does it.
        self._begin(blocking, threads, None if blocking.judges else blocking.inner.receive_async, blocking.receive)
        self._ask_batch = Asking(blocking.batch_receive)

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Receive one message. Cancelling loses none: what comes later is the next caller's.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            PulsarException: `Timeout`, or `AlreadyClosed`.
        """
        return await self._next(timeout_millis)

    async def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message]:
        """Wait for a message, and give it with up to `max_messages` of those that are here; empty after the timeout."""
        return await self._several(max_messages, timeout_millis)

    async def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as many as the `batch_receive_policy` says; see `receive_many` as well.

        Cancelling loses none: what comes later is the next caller's.
        """
        if self._feed.holds:
            return [await self._next(None), *self._here()]
        arriving: Future[list[Message]] = Future()
        arriving.set_running_or_notify_cancel()
        self._ask_batch(partial(_settle, arriving))
        try:
            messages = await asyncio.wrap_future(arriving)
        except asyncio.CancelledError:
            arriving.add_done_callback(self._keep)
            raise
        for noted in self._feed.heard:
            noted.extend(message.inner for message in messages)
        return [*self._here(), *messages]  # what an earlier receive had asked for came first

    async def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it; see `pulsar_ext.Consumer`."""
        if isinstance(message, MessageDoor | InnerMessage):
            with awaited():
                self.blocking.acknowledge(message)
        else:
            await self._threads.run(self.blocking.acknowledge, message)

    async def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages at once, each as `acknowledge()` would."""
        await self._threads.run(self.blocking.acknowledge_many, list(messages))

    async def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too; see `pulsar_ext.Consumer`."""
        await self._threads.run(self.blocking.acknowledge_cumulative, message)

    async def flush_acks(self, confirm: bool = False, timeout_ms: int = 10_000) -> None:
        """Send what was acknowledged now, and on demand wait until the broker's cursor shows it.

        Raises:
            AckNotConfirmed: the cursor does not show all of them in time; `missing` says which.
            AdminError: the admin API refused.
        """
        await self._threads.run(self.blocking.flush_acks, confirm, timeout_ms)

    def pending_acks(self) -> int:
        """Count what was acknowledged and has not been sent: entries, and parts of batches."""
        pending: int = self.blocking.pending_acks()
        return pending

    def ack_scope(
        self, messages: Iterable[Any] | None = None, *, confirm: bool = True, timeout_ms: int = 10_000
    ) -> AckScope:
        """Process some messages and acknowledge them whole at the end, or redeliver them whole after an exception.

        async with consumer.ack_scope(await consumer.receive_many(500)) as messages: …

        Args:
            messages: which; None for everything that this consumer receives inside the block.
            confirm: end only when the broker's cursor shows the acknowledgements.
            timeout_ms: how long that may take.
        """
        return AckScope(self, messages, confirm=confirm, timeout_ms=timeout_ms)

    async def negative_acknowledge(self, message: Any) -> None:
        """Have one message redelivered after `negative_ack_redelivery_delay_ms`, whole, by any id of it."""
        if isinstance(message, MessageDoor) and not has_first_chunk(message.inner.message_id().serialize()):
            with awaited():
                self.blocking.negative_acknowledge(message)
        else:
            await self._threads.run(self.blocking.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Have the broker deliver every unacknowledged message again."""
        with awaited():
            self.blocking.redeliver_unacknowledged_messages()

    async def unsubscribe(self) -> None:
        """Delete the subscription."""
        await self._threads.run(self.blocking.unsubscribe)
        self._feed.close()

    async def get_last_message_id(self) -> Any:
        """Give the id of the topic's last entry, a C++ id as officially; `MessageId.wrap` makes it one of ours."""
        last = await self._threads.run(self.blocking.get_last_message_id)
        return last.inner

    @property
    def misrouted(self) -> int:
        """How many messages of other slots a consumer of key ranges got; other consumers have no such thing."""
        count: int = self.blocking.misrouted
        return count

    def _here(self) -> list[Message]:
        """Take what has come and nobody was promised."""
        found = []
        while self._feed.holds and (inner := self._feed.take()) is not None:
            found.append(self.blocking.message_of(inner))
        return found

    def _keep(self, arrived: Future[list[Message]]) -> None:
        """Leave to the next caller what came for one that did not wait; on any thread."""
        error = arrived.exception()
        if error is None:
            self._feed.give(message.inner for message in arrived.result())
        elif not isinstance(error, pulsar.AlreadyClosed):
            self._feed.give([error])

    async def process(self, handler: Callable[[Message], Awaitable[object]], *, concurrency: int = 100) -> None:
        """Hand every message to `handler`, so many at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, in whatever order, and negatively acknowledged when it
        raises, which is logged. No more messages are taken than handlers run. When it is cancelled, so are the
        handlers, and their messages are negatively acknowledged.

        Args:
            handler: an async function of one message.
            concurrency: how many of them run at once, 1 or more.
        """
        slots = asyncio.Semaphore(concurrency)
        async with asyncio.TaskGroup() as running:
            while True:
                await slots.acquire()
                try:
                    message = await anext(self)
                except StopAsyncIteration:
                    return
                task = running.create_task(self._handle(handler, message))
                task.add_done_callback(lambda _: slots.release())

    async def _handle(self, handler: Callable[[Message], Awaitable[object]], message: Message) -> None:
        try:
            await handler(message)
        except Exception:  # noqa: BLE001  # whatever it is, the message has to come again
            _log.exception("A handler raised; its message %r is delivered again", message.message_id())
            await self.negative_acknowledge(message)
        except BaseException:
            await self.negative_acknowledge(message)
            raise
        else:
            await self.acknowledge(message)


def _settle(arriving: Future[list[Message]], outcome: Any, messages: list[Message]) -> None:
    """Hear what became of a batch."""
    if isinstance(outcome, BaseException):
        arriving.set_exception(outcome)
    elif outcome != pulsar.Result.Ok:
        arriving.set_exception(error_of(outcome))
    else:
        arriving.set_result(messages)


class AckScope:
    """A block that acknowledges its messages at its end, and has them redelivered if it raises.

    Args:
        consumer: receives and acknowledges them.
        messages: which; None for what it receives inside the block.
        confirm: whether the cursor has to show them at the end.
        timeout_ms: for how long.
    """

    def __init__(self, consumer: Consumer, messages: Iterable[Any] | None, *, confirm: bool, timeout_ms: int) -> None:
        self._consumer, self._confirm, self._timeout_ms = consumer, confirm, timeout_ms
        self._given = None if messages is None else list(messages)
        self._heard: list[Any] = []

    async def __aenter__(self) -> Self | list[Any]:
        if self._given is not None:
            return self._given
        self._consumer._feed.heard.append(self._heard)  # noqa: SLF001  # its other half
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        consumer = self._consumer
        if self._given is None:
            heard = consumer._feed.heard  # noqa: SLF001
            heard[:] = [noted for noted in heard if noted is not self._heard]
            messages = [consumer.blocking.message_of(inner) for inner in self._heard]
        else:
            messages = self._given
        if kind is not None:
            for message in messages:
                await consumer.negative_acknowledge(message)
            return
        await consumer.acknowledge_many(messages)
        await consumer.flush_acks(confirm=self._confirm, timeout_ms=self._timeout_ms)
