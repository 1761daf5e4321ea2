"""The asyncio consumer, like `pulsar_ext.Consumer`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from operator import attrgetter
from typing import Self

import pulsar

from pulsar_ext._native.fork import LISTENED
from pulsar_ext._native.handles import AsyncConsumerHandle, MessageHandle
from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._runtime.termination import at_termination
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.ack.confirm import ScopeCore
from pulsar_ext.consumer import Consumer as BlockingConsumer
from pulsar_ext.message import Message
from pulsar_ext.process import REDELIVER, Action, Handling
from pulsar_ext.schema.typed import T

from ._executor import Executor, awaited, forwarded
from ._processing import ProcessRun
from ._receiving import AsyncSeeking, BlockingReceiver, complete
from .errors import error_of, translating


class Consumer(AsyncSeeking[T], AsyncConsumerHandle):
    """A `pulsar.asyncio.Consumer` with the features of `pulsar_ext.Consumer`; made by `Client.subscribe()`.

    It is also an asynchronous iterator, which ends when the consumer is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingConsumer[T], executor: Executor) -> None:
        super().__init__(blocking)
        # If Python screens messages (dead letters, key ranges, groups), the blocking receive is used.
        self._begin(blocking, executor, None if blocking._screens_ else attrgetter("receive_async"), blocking.receive)
        self._batch_receiver = BlockingReceiver(blocking.batch_receive)
        self._runs: set[ProcessRun] = set()
        self._batches: set[Future[list[Message]]] = set()
        """Futures of awaited batches; a closed client would not complete them."""

    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """Receive one message, or raise `Timeout`. Cancelling loses no message: the next caller gets it."""
        return await self._receive(timeout_millis)

    async def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message[T]]:
        """Wait for a message, then return up to `max_messages` available ones; return an empty list on timeout."""
        return await self._receive_many(max_messages, timeout_millis)

    async def batch_receive(self) -> list[Message[T]]:
        """Receive several messages by the `batch_receive_policy`; cancelling loses none. See also `receive_many()`."""
        if self._queue.has_ready:
            return [await self._receive_plain(None), *self._ready()]  # a subclass screens all of them together
        receiving = self._batch_receiver.future()
        self._batches.add(receiving)
        receiving.add_done_callback(self._batches.discard)
        try:
            messages = await asyncio.wrap_future(receiving)
        except asyncio.CancelledError:
            receiving.add_done_callback(self._put_in_queue)
            raise
        self._queue.records.note([message.inner for message in messages])
        return [*self._ready(), *messages]  # messages of an earlier receive come first

    def _end_receives_(self) -> None:
        super()._end_receives_()
        for receiving in list(self._batches):
            complete(receiving, pulsar.Result.AlreadyClosed, [])

    async def acknowledge(self, message: object) -> None:
        """Acknowledge one message with all its chunks, by the message or any id of it; see `pulsar_ext.Consumer`."""
        if isinstance(message, MessageHandle | InnerMessage):
            with translating():
                self.blocking.acknowledge(message)
        else:
            await self._executor.run(self.blocking.acknowledge, message)

    async def acknowledge_many(self, messages: Iterable[object]) -> None:
        """Acknowledge several messages at once, each like `acknowledge()`."""
        await self._executor.run(self.blocking.acknowledge_many, list(messages))

    acknowledge_cumulative = awaited(BlockingConsumer.acknowledge_cumulative)
    reconsume_later = awaited(BlockingConsumer.reconsume_later)
    reconsume_later_cumulative = awaited(BlockingConsumer.reconsume_later_cumulative)
    send_dead_letter = awaited(BlockingConsumer.send_dead_letter)
    flush_acks = awaited(BlockingConsumer.flush_acks)
    stats = awaited(BlockingConsumer.stats)
    subscribed_to = forwarded(BlockingConsumer.subscribed_to)
    pending_acks = forwarded(BlockingConsumer.pending_acks)
    redeliver_unacknowledged_messages = forwarded(BlockingConsumer.redeliver_unacknowledged_messages)

    def _record_(self) -> list[InnerMessage]:
        """Record received C++ messages from now on in the returned list."""
        return self._queue.records.begin()

    def _end_record_(self, recorded: list[InnerMessage]) -> list[Message[T]]:
        """Stop recording in a list that `_record_()` returned, and return its messages."""
        return [self.blocking._message_of_(inner) for inner in self._queue.records.end(recorded)]

    def ack_scope(
        self, messages: Iterable[object] | None = None, *, confirm: bool = True, timeout_ms: int = 10_000
    ) -> AckScope:
        """Acknowledge messages together at the end of an `async with` block; see `pulsar_ext.Consumer.ack_scope`."""
        return AckScope(self, messages, confirm=confirm, timeout_ms=timeout_ms)

    async def negative_acknowledge(self, message: object) -> None:
        """Redeliver one whole message after `negative_ack_redelivery_delay_ms`, by the message or any id of it."""
        if isinstance(message, MessageHandle) and not has_first_chunk(message.inner.message_id().serialize()):
            with translating():
                self.blocking.negative_acknowledge(message)
        else:
            await self._executor.run(self.blocking.negative_acknowledge, message)

    async def unsubscribe(self) -> None:
        """Delete the subscription; cancelling does not cancel that."""
        await self._executor.end(self.blocking.unsubscribe, self._end_receives_)

    async def get_last_message_id(self) -> InnerMessageId:
        """Return the C++ id of the topic's last entry, as officially; `MessageId.wrap` makes it a `MessageId`."""
        last: InnerMessageId = (await self._executor.run(self.blocking.get_last_message_id)).inner
        return last

    @property
    def misrouted(self) -> int:
        """A range consumer's number of messages of other slots; AttributeError for other consumers."""
        count: int = self.blocking.misrouted
        return count

    def _ready(self) -> list[Message[T]]:
        messages = []
        while self._queue.has_ready and (message := self._queue.get_ready()) is not None:
            messages.append(message)
        return messages

    def _put_in_queue(self, received: Future[list[Message]]) -> None:
        """Put the batch of a cancelled caller into the queue for the next one; callable from any thread."""
        error = received.exception()
        if error is None:
            self._queue.put(received.result())
        elif not isinstance(error, pulsar.AlreadyClosed):
            self._queue.put([error])

    def pause(self) -> None:
        """Deliver no messages until `resume()`: receives, loops and a listener wait; see `pulsar_ext.Consumer`."""
        with translating():
            self.blocking.pause()
        self._queue.pause()

    def resume(self) -> None:
        """Deliver messages again after a `pause()`."""
        with translating():
            self.blocking.resume()
        self._queue.resume()

    @property
    def is_paused(self) -> bool:
        """True between `pause()` and `resume()`."""
        return "consumer" in self._queue.paused

    async def process(
        self,
        handler: Callable[[Message[T]], object],
        *,
        concurrency: int = 100,
        on_error: Action | Callable[[Message[T], Exception], object] = REDELIVER,
        batch_timeout_ms: int = 10_000,
    ) -> None:
        """Call `handler` with every message, `concurrency` at a time, until processing ends.

        The arguments, the ends and the errors are those of `pulsar_ext.Consumer.process`. Here `handler` is async (a
        plain function would block the loop), and `on_error` may be. A SIGTERM ends it if the loop runs in the main
        thread and the application has no handler for that signal. If this is cancelled, the handlers are cancelled too,
        and their messages are negatively acknowledged.
        """
        if self.blocking.is_closed:
            raise error_of(pulsar.Result.AlreadyClosed)
        if self._listener_task is not None:
            raise error_of(pulsar.Result.InvalidConfiguration, LISTENED)
        run = ProcessRun(self, Handling(handler, concurrency, on_error, self.blocking._has_letters_, batch_timeout_ms))
        self._runs.add(run)
        try:
            with at_termination(run):
                await run.work()
        finally:
            self._runs.discard(run)

    def stop_processing(self) -> None:
        """Stop every running `process()`, which returns when its handlers have ended; callable from any thread."""
        for run in list(self._runs):
            run.end()


class AckScope(ScopeCore[Awaitable[None]]):
    """Block that acknowledges its messages at the end, and redelivers them if it raises."""

    async def __aenter__(self) -> Self | list[object]:
        return self.begin()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for call in self.finish(failed=kind is not None):
            await call
