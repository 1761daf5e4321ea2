"""The awaited consumer: `pulsar_ext.Consumer` for an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import Future, InvalidStateError
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.handles import AsyncConsumerDoor, MessageDoor
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.ack.scope import ScopeCore

from ._blocking_receiver import BlockingReceiver
from ._receiving import AsyncSeeking
from .errors import error_of, translating

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pulsar_ext._runtime.statistics import ConsumerStats
    from pulsar_ext.consumer import Consumer as BlockingConsumer
    from pulsar_ext.message import Message

    from ._executor import Executor

__all__ = ["AckScope", "Consumer"]

_log = logging.getLogger("pulsar_ext")


class Consumer(AsyncSeeking, AsyncConsumerDoor):
    """A `pulsar.asyncio.Consumer` with everything of `pulsar_ext.Consumer`; made by `Client.subscribe()`.

    It is also an asynchronous iterator, which ends when the consumer is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingConsumer, executor: Executor) -> None:
        super().__init__(blocking)
        # Where Python looks at each message (dead letters, key ranges, groups), the blocking receive does it.
        self._begin(blocking, executor, None if blocking.judges else attrgetter("receive_async"), blocking.receive)
        self._batch_receiver = BlockingReceiver(blocking.batch_receive)
        self._batches: set[Future[list[Message]]] = set()
        """Those that are awaited; a closed client does not answer."""

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Receive one message. Cancelling loses none: the message that comes later goes to the next caller.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            PulsarException: `Timeout`, or `AlreadyClosed`.
        """
        return await self._receive(timeout_millis)

    async def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message]:
        """Wait for a message, then give up to `max_messages` that need no more waiting; empty after the timeout."""
        return await self._receive_many(max_messages, timeout_millis)

    async def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as many as the `batch_receive_policy` says; see `receive_many` as well.

        Cancelling loses none: the messages that come later go to the next caller.
        """
        if self._queue.has_ready:
            return [await self._receive_plain(None), *self._ready()]  # a subclass looks at all of them
        receiving: Future[list[Message]] = Future()
        receiving.set_running_or_notify_cancel()
        self._batches.add(receiving)
        receiving.add_done_callback(self._batches.discard)
        self._batch_receiver.receive_async(partial(_settle, receiving))
        try:
            messages = await asyncio.wrap_future(receiving)
        except asyncio.CancelledError:
            receiving.add_done_callback(self._put_in_queue)
            raise
        self._queue.records.note([message.inner for message in messages])
        return [*self._ready(), *messages]  # what an earlier receive asked for came first

    def end_receives(self) -> None:
        """Have every waiting and later receive raise `AlreadyClosed`: the blocking counterpart is closed."""
        super().end_receives()
        for receiving in list(self._batches):
            _settle(receiving, pulsar.Result.AlreadyClosed, [])

    async def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it; see `pulsar_ext.Consumer`."""
        if isinstance(message, MessageDoor | InnerMessage):
            with translating():
                self.blocking.acknowledge(message)
        else:
            await self._executor.run(self.blocking.acknowledge, message)

    async def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages at once, each as `acknowledge()` would."""
        await self._executor.run(self.blocking.acknowledge_many, list(messages))

    async def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too; see `pulsar_ext.Consumer`."""
        await self._executor.run(self.blocking.acknowledge_cumulative, message)

    async def reconsume_later(self, message: Any, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        """Have one message come again after a delay, as a letter in the retry topic; see `pulsar_ext.Consumer`."""
        await self._executor.run(self.blocking.reconsume_later, message, delay_ms, properties)

    async def reconsume_later_cumulative(
        self, message: Any, delay_ms: int, properties: dict[str, str] | None = None
    ) -> None:
        """Do the same, and acknowledge every message up to this one; see `pulsar_ext.Consumer`."""
        await self._executor.run(self.blocking.reconsume_later_cumulative, message, delay_ms, properties)

    async def flush_acks(self, confirm: bool = False, timeout_ms: int = 10_000) -> None:
        """Send what was acknowledged now, and with `confirm` wait until the broker's cursor shows it.

        A non-persistent topic has no cursor: there it is enough that it was sent.

        Raises:
            AckNotConfirmed: the cursor does not show all of them in time; `missing` says which.
            AdminError: the admin API refused.
        """
        await self._executor.run(self.blocking.flush_acks, confirm, timeout_ms)

    async def stats(self) -> ConsumerStats:
        """Give statistics of this consumer; see `pulsar_ext.Consumer`."""
        return await self._executor.run(self.blocking.stats)

    def pending_acks(self) -> int:
        """Count the acknowledgements that have not been sent: of entries, and of parts of batches."""
        pending: int = self.blocking.pending_acks()
        return pending

    def record(self) -> list[Any]:
        """Note what is received from now on, as C++ messages in the list that is returned."""
        return self._queue.records.begin()

    def end_record(self, noted: list[Any]) -> list[Message]:
        """Stop noting in a list that `record()` returned, and give its messages."""
        self._queue.records.end(noted)
        return [self.blocking.message_of(inner) for inner in noted]

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
            with translating():
                self.blocking.negative_acknowledge(message)
        else:
            await self._executor.run(self.blocking.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Have the broker deliver every unacknowledged message again."""
        with translating():
            self.blocking.redeliver_unacknowledged_messages()

    async def unsubscribe(self) -> None:
        """Delete the subscription."""
        await self._executor.run(self.blocking.unsubscribe)
        self.end_receives()

    async def get_last_message_id(self) -> Any:
        """Give the id of the topic's last entry, a C++ id as officially; `MessageId.wrap` makes it one of ours."""
        last = await self._executor.run(self.blocking.get_last_message_id)
        return last.inner

    @property
    def misrouted(self) -> int:
        """How many messages of other slots a consumer of key ranges got; an AttributeError for other consumers."""
        count: int = self.blocking.misrouted
        return count

    def _ready(self) -> list[Message]:
        """Take the messages that have arrived and are not reserved for another caller."""
        messages = []
        while self._queue.has_ready and (inner := self._queue.get_ready()) is not None:
            messages.append(self.blocking.message_of(inner))
        return messages

    def _put_in_queue(self, received: Future[list[Message]]) -> None:
        """Leave to the next caller what was received for one that was cancelled; on any thread."""
        error = received.exception()
        if error is None:
            self._queue.put(message.inner for message in received.result())
        elif not isinstance(error, pulsar.AlreadyClosed):
            self._queue.put([error])

    async def process(self, handler: Callable[[Message], Awaitable[object]], *, concurrency: int = 100) -> None:
        """Hand every message to `handler`, `concurrency` at a time, until the consumer is closed or this is cancelled.

        A message is acknowledged when its handler returns, in whatever order, and negatively acknowledged when it
        raises, which is logged. A message is received only when a handler can run for it. When this is cancelled, so
        are the handlers, and their messages are negatively acknowledged.

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
        settle = self.negative_acknowledge
        try:
            await handler(message)
            settle = self.acknowledge
        except Exception:  # noqa: BLE001  # whatever it is, the message has to be delivered again
            _log.exception("A handler raised; its message %r is delivered again", message.message_id())
        finally:
            with contextlib.suppress(pulsar.AlreadyClosed):  # it is delivered again
                await settle(message)


def _settle(receiving: Future[list[Message]], result: Any, messages: list[Message]) -> None:
    """Settle the future of a batch with the outcome, a `pulsar.Result` or an error, unless it is settled."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, BaseException):
            receiving.set_exception(result)
        elif result != pulsar.Result.Ok:
            receiving.set_exception(error_of(result))
        else:
            receiving.set_result(messages)


class AckScope(ScopeCore):
    """A block that acknowledges its messages at its end, and has them redelivered if it raises."""

    async def __aenter__(self) -> Self | list[Any]:
        return self.begin()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for call in self.finish(failed=kind is not None):
            await call
