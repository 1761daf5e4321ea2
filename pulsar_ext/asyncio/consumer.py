"""The awaited consumer: `pulsar_ext.Consumer` for an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future, InvalidStateError
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.fork import LISTENED
from pulsar_ext._native.handles import AsyncConsumerDoor, MessageDoor
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._runtime.termination import at_termination
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.ack.confirm import ScopeCore
from pulsar_ext.consumer import Consumer as BlockingConsumer
from pulsar_ext.process.actions import Redeliver
from pulsar_ext.process.processing import Handling
from pulsar_ext.schema.typed import T

from ._executor import Executor, awaited
from ._processing import Run
from ._receiving import AsyncSeeking, BlockingReceiver
from .errors import error_of, raise_for, translating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext.message import Message
    from pulsar_ext.process.actions import Action


_REDELIVER = Redeliver()


class Consumer(AsyncSeeking[T], AsyncConsumerDoor):
    """A `pulsar.asyncio.Consumer` with everything of `pulsar_ext.Consumer`; made by `Client.subscribe()`.

    It is also an asynchronous iterator, which ends when the consumer is closed, and a context manager.
    """

    def __init__(self, blocking: BlockingConsumer[T], executor: Executor) -> None:
        super().__init__(blocking)
        # Where Python looks at each message (dead letters, key ranges, groups), the blocking receive does it.
        self._begin(blocking, executor, None if blocking._judges_ else attrgetter("receive_async"), blocking.receive)
        self._batch_receiver = BlockingReceiver(blocking.batch_receive)
        self._runs: set[Run] = set()
        self._batches: set[Future[list[Message]]] = set()
        """Those that are awaited; a closed client does not answer."""

    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """Receive one message. Cancelling loses none: the message that comes later goes to the next caller.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            PulsarException: `Timeout`, or `AlreadyClosed`.
        """
        return await self._receive(timeout_millis)

    async def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message[T]]:
        """Wait for a message, then give up to `max_messages` that need no more waiting; empty after the timeout."""
        return await self._receive_many(max_messages, timeout_millis)

    async def batch_receive(self) -> list[Message[T]]:
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

    def _end_receives_(self) -> None:
        """Have every waiting and later receive raise `AlreadyClosed`: the blocking counterpart is closed."""
        super()._end_receives_()
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

    acknowledge_cumulative = awaited(BlockingConsumer.acknowledge_cumulative)
    reconsume_later = awaited(BlockingConsumer.reconsume_later)
    reconsume_later_cumulative = awaited(BlockingConsumer.reconsume_later_cumulative)
    send_dead_letter = awaited(BlockingConsumer.send_dead_letter)
    flush_acks = awaited(BlockingConsumer.flush_acks)
    stats = awaited(BlockingConsumer.stats)

    def subscribed_to(self) -> str:
        """Give what was subscribed to: a topic's full name, several joined by commas, or the text of a pattern."""
        subscribed: str = self.blocking.subscribed_to()
        return subscribed

    def pending_acks(self) -> int:
        """Count the acknowledgements that have not been sent: of entries, and of parts of batches."""
        pending: int = self.blocking.pending_acks()
        return pending

    def _record_(self) -> list[Any]:
        """Note what is received from now on, as C++ messages in the list that is returned."""
        return self._queue.records.begin()

    def _end_record_(self, noted: list[Any]) -> list[Message[T]]:
        """Stop noting in a list that `record()` returned, and give its messages."""
        self._queue.records.end(noted)
        return [self.blocking._message_of_(inner) for inner in noted]

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
        """Delete the subscription; cancelling leaves that under way."""
        await self._executor.end(self.blocking.unsubscribe, self._end_receives_)

    async def get_last_message_id(self) -> Any:
        """Give the id of the topic's last entry, a C++ id as officially; `MessageId.wrap` makes it one of ours."""
        last = await self._executor.run(self.blocking.get_last_message_id)
        return last.inner

    @property
    def misrouted(self) -> int:
        """How many messages of other slots a consumer of key ranges got; an AttributeError for other consumers."""
        count: int = self.blocking.misrouted
        return count

    def _ready(self) -> list[Message[T]]:
        """Take the messages that have arrived and are not reserved for another caller."""
        messages = []
        while self._queue.has_ready and (inner := self._queue.get_ready()) is not None:
            messages.append(self.blocking._message_of_(inner))
        return messages

    def _put_in_queue(self, received: Future[list[Message]]) -> None:
        """Leave to the next caller what was received for one that was cancelled; on any thread."""
        error = received.exception()
        if error is None:
            self._queue.put(message.inner for message in received.result())
        elif not isinstance(error, pulsar.AlreadyClosed):
            self._queue.put([error])

    def pause(self) -> None:
        """Hand out no messages until `resume()`: receives, loops and a listener wait; see `pulsar_ext.Consumer`."""
        with translating():
            self.blocking.pause()
        self._queue.pause()

    def resume(self) -> None:
        """Hand out messages again, if it was paused."""
        with translating():
            self.blocking.resume()
        self._queue.resume()

    @property
    def is_paused(self) -> bool:
        """Whether `pause()` was called, and `resume()` was not."""
        return self._queue.is_paused

    async def process(
        self,
        handler: Callable[[Message[T]], object],
        *,
        concurrency: int = 100,
        on_error: Action | Callable[[Message[T], Exception], object] = _REDELIVER,
        batch_timeout_ms: int = 10_000,
    ) -> None:
        """Hand every message to `handler`, `concurrency` at a time, until something ends it.

        The arguments, the ends and the errors are those of `pulsar_ext.Consumer.process`. Here `handler` is async (a
        plain one holds up the loop), and `on_error` may be. A SIGTERM ends it if the loop runs in the main thread and
        the application has no handler of its own for that signal. When this is cancelled, so are the handlers, and
        their messages are negatively acknowledged.
        """
        if self.blocking.is_closed:
            raise_for(pulsar.Result.AlreadyClosed)
        if self._listener_task is not None:
            raise_for(pulsar.Result.InvalidConfiguration, LISTENED)
        run = Run(self, Handling(handler, concurrency, on_error, self.blocking._has_letters_, batch_timeout_ms))
        self._runs.add(run)
        try:
            with at_termination(run):
                await run.work()
        finally:
            self._runs.discard(run)

    def stop_processing(self) -> None:
        """Have every `process()` that runs now receive no more, and return when its handlers have ended.

        It waits for nothing, and may be called on any thread.
        """
        for run in list(self._runs):
            run.end()


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
