"""A subscriber: a consumer whose messages go to handlers, so many at a time.

FastStream's exceptions acknowledge or refuse a message here where FastStream itself leaves it unacknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pulsar
from faststream import BaseMiddleware
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import AckMessage, HandlerException, IncorrectState, NackMessage, RejectMessage, SkipMessage
from faststream.middlewares import AckPolicy

from pulsar_ext._native.results import POLL_MILLIS, raise_result
from pulsar_ext.asyncio._processing import finish_batches
from pulsar_ext.message import handled_in
from pulsar_ext.process.processing import BegunBatches

from .config import PulsarBrokerConfig, PulsarSubscriberConfig, check_consumer_options
from .message import PulsarMessage, PulsarParser, Raw, Rejection, each_of, have_again
from .publisher import PulsarReplyPublisher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from types import TracebackType

    from faststream._internal.basic_types import AsyncFuncAny
    from faststream._internal.context import ContextRepo
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream._internal.types import BrokerMiddleware
    from faststream.message import StreamMessage

    from pulsar_ext.asyncio import Consumer


class Settling(BaseMiddleware):
    """Settles one message whose handler raised.

    Without a policy that settles messages, `AckMessage`, `NackMessage` and `RejectMessage` do it. With one, a message
    that `SkipMessage` is raised for is acknowledged: it would stay unacknowledged for as long as there is the consumer.

    Args:
        raw_message: what was received.
        context: FastStream's.
        is_manual: whether the handler settles its messages.
        log: logs a line at a level, with an error.
    """

    def __init__(
        self, raw_message: Any, /, *, context: ContextRepo, is_manual: bool, log: Callable[..., object]
    ) -> None:
        super().__init__(raw_message, context=context)
        self._is_manual, self._log = is_manual, log
        self._message: StreamMessage[Any] | None = None

    async def consume_scope(self, call_next: AsyncFuncAny, msg: StreamMessage[Any]) -> Any:
        """Note the message."""
        self._message = msg
        return await call_next(msg)

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool:
        """Settle it as the exception says; return if the exception goes no further."""
        del exc_type, exc_tb
        if self._message is None or not isinstance(exc_val, HandlerException):
            return False
        try:
            await self._settle(self._message, exc_val)
        except Exception as error:  # noqa: BLE001  # as FastStream does
            self._log(logging.CRITICAL, repr(error), exc_info=error)
        return self._is_manual

    async def _settle(self, message: StreamMessage[Any], error: HandlerException) -> None:
        if isinstance(error, SkipMessage) and not self._is_manual:
            await message.ack()
        elif isinstance(error, AckMessage) and self._is_manual:
            await message.ack(**error.extra_options)
        elif isinstance(error, NackMessage) and self._is_manual:
            await message.nack(**error.extra_options)
        elif isinstance(error, RejectMessage) and self._is_manual:
            await message.reject(**error.extra_options)


_AGAIN_SECONDS: Final = 1.0
_own_task: ContextVar[asyncio.Task[None] | None] = ContextVar("pulsar_ext_faststream_handling", default=None)
"""What handles a message here; tasks that a handler begins, such as those of `broker.stop()`, are of it too."""


class PulsarSubscriber(SubscriberUsecase[Raw]):
    """Hands each message of a subscription to a handler; made by `broker.subscriber()`.

    A message is received only when a handler can run for it. `stop()` receives no more but the rest of a batch, if the
    broker keeps whole batches only, waits for the handlers for the broker's `graceful_timeout`, cancels those that are
    left, and closes the consumer: whatever was not acknowledged comes again.

    Args:
        config: what was asked for.
        specification: for AsyncAPI.
        calls: the handlers.

    Raises:
        SetupError: `Client.subscribe()` does not take one of the arguments.
    """

    _outer_config: PulsarBrokerConfig
    is_temporary = False
    """Whether `stop()` deletes the subscription."""

    def __init__(
        self,
        config: PulsarSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Raw],
    ) -> None:
        self.topics, self.subscription = config.topics, config.subscription
        self._type, self._max_workers = config.subscription_type, config.max_workers
        self._max_records = config.max_records
        self._options = {"enable_retry": self._wants_letters(config), **config.options}
        check_consumer_options(config.topics.behind(""), self.subscription, self._type, self._options)
        parser = PulsarParser(lambda: self._consumer, _rejection_of(self._options))
        config.parser, config.decoder = parser.parse_message, parser.decode_message
        if self.is_batch:  # FastStream knows it by these names
            config.parser, config.decoder = parser.parse_batch, parser.decode_batch
        super().__init__(config, specification, calls)
        self._consumer: Consumer[Any] | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._handling: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(self._max_workers)
        self._batches: BegunBatches | None = None

    @property
    def topic(self) -> str:
        """The topic with its router's prefix; of several topics all of them, and of a pattern the pattern."""
        return self.topics.shown(self._outer_config.prefix)

    @property
    def is_batch(self) -> bool:
        """Whether a handler gets several messages at once."""
        return self._max_records is not None

    @property
    def _broker_middlewares(self) -> Sequence[BrokerMiddleware[Raw]]:
        settling = partial(Settling, is_manual=self.ack_policy is AckPolicy.MANUAL, log=self._log)
        return (settling, *super()._broker_middlewares)

    def takes(self, topic: str) -> bool:
        """Whether it subscribes to a topic."""
        return self.topics.include(topic, self._outer_config.prefix)

    async def start(self) -> None:
        """Subscribe, and begin to receive if there is a handler; started again, it does nothing.

        Raises:
            pulsar.PulsarException: the broker refused, or did not answer.
        """
        if self._consumer is not None:
            return
        client = self._outer_config.client
        await super().start()
        consumer = await client.subscribe(
            self.topics.behind(self._outer_config.prefix),
            self.subscription,
            consumer_type=self._type,
            **self._options,
        )
        self._consumer = consumer
        self._post_start()
        if self.calls:
            timeout_ms = round((self._outer_config.graceful_timeout or 0) * 1000)
            self._batches = BegunBatches(timeout_ms, consumer.blocking._ask_about_batches_)
            self._receiving = asyncio.create_task(self._receive(consumer))

    async def stop(self) -> None:
        """Stop as the class says; a handler may call it, or the broker's, and is not waited for.

        Cancelling it has it wait for nobody, and it is stopped all the same.
        """
        receiving, self._receiving = self._receiving, None
        own, consumer, began = _own_task.get(), self._consumer, time.monotonic()
        if receiving is not None:
            receiving.cancel()  # which loses no message
        try:
            if receiving is not None and consumer is not None and own not in self._handling:
                await self._finish_batches(receiving, consumer)
            if (others := self._handling - {own}) and (seconds := self._seconds_left(began)):
                await asyncio.wait(others, timeout=seconds)
        finally:
            self.lock = contextlib.nullcontext()  # FastStream would wait for whoever calls this as well
            await super().stop()
            others = self._handling - {own}
            self._consumer = None
            for task in others:
                task.cancel()
            try:
                await asyncio.gather(*others, return_exceptions=True)
            finally:
                await self._leave(consumer)

    async def get_one(self, *, timeout: float = 5.0) -> PulsarMessage | None:  # noqa: ASYNC109  # FastStream's signature
        """Receive one message of a subscriber without handlers; acknowledge it with `await message.ack()`.

        Args:
            timeout: how long to wait, in seconds.

        Returns:
            None if none came in time.

        Raises:
            AssertionError: there are handlers, which get the messages; as FastStream's other brokers.
            IncorrectState: it is not started.
        """
        try:
            raw = await self._take(self._own_consumer(), round(timeout * 1000))
        except pulsar.Timeout:
            return None
        return await self._parsed(raw)

    async def __aiter__(self) -> AsyncIterator[PulsarMessage]:
        """Give the messages one by one, until it is stopped; as `get_one()`."""
        consumer = self._own_consumer()
        with contextlib.suppress(pulsar.AlreadyClosed):
            while True:
                yield await self._parsed(await self._take(consumer))

    def get_log_context(self, message: StreamMessage[Raw] | None) -> dict[str, str]:
        """Give what is logged with each line."""
        topic = message.topic if isinstance(message, PulsarMessage) else self.topic
        return {
            "topic": topic,
            "subscription": self.subscription,
            "message_id": getattr(message, "message_id", ""),
        }

    async def _leave(self, consumer: Consumer[Any] | None) -> None:
        if consumer is not None:
            with contextlib.suppress(pulsar.AlreadyClosed):
                if self.is_temporary:
                    await consumer.unsubscribe()
                await consumer.close()  # acknowledgements leave first

    async def _receive(self, consumer: Consumer[Any]) -> None:
        while True:
            try:
                await self._begin_one(consumer)
            except pulsar.AlreadyClosed:
                self._log(logging.ERROR, "The consumer was closed from elsewhere: no more messages come.")
                return
            except Exception as error:  # noqa: BLE001  # such as an interceptor's: the next message has to come
                self._log(logging.ERROR, "A receive failed, and is tried again in a second.", exc_info=error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _begin_one(
        self, consumer: Consumer[Any], timeout_millis: int | None = None, *, most: int | None = None
    ) -> None:
        """Receive a message, or several, when a handler can run for it, and begin that handler."""
        await self._slots.acquire()
        try:
            message = await self._take(consumer, timeout_millis, most=most)
        except BaseException:
            self._slots.release()
            raise
        if self._batches is not None and not all(map(self._batches.note, each_of(message))):
            self._slots.release()  # it is redelivered: the consumer is about to be closed
            return
        task = asyncio.create_task(self._handle(consumer, message))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        task.add_done_callback(lambda _: self._slots.release())

    def _seconds_left(self, began: float) -> float:
        """Return how long handlers may still run that a stop at a monotonic time waits for, in seconds."""
        return max((self._outer_config.graceful_timeout or 0.0) - (time.monotonic() - began), 0.0)

    async def _finish_batches(self, receiving: asyncio.Task[None], consumer: Consumer[Any]) -> None:
        """Handle the rest of each batch that was begun, once nobody else receives."""
        await asyncio.wait([receiving])
        if self._batches is not None and receiving.cancelled():
            await finish_batches(self._batches, lambda: self._begin_one(consumer, POLL_MILLIS, most=1))

    async def _take(
        self, consumer: Consumer[Any], timeout_millis: int | None = None, *, most: int | None = None
    ) -> Raw:
        """Receive what a handler gets.

        Args:
            consumer: of the subscription.
            timeout_millis: how long to wait for a message; None for ever.
            most: how many messages a batch has at most; None for as many as were declared.

        Raises:
            pulsar.Timeout: none came in time.
        """
        if self._max_records is None:
            return await consumer.receive(timeout_millis)
        messages = await consumer.receive_many(most or self._max_records, timeout_millis)
        if not messages:
            raise_result(pulsar.Result.Timeout)
        return tuple(messages)

    async def _handle(self, consumer: Consumer[Any], message: Raw) -> None:
        _own_task.set(asyncio.current_task())
        try:
            with contextlib.nullcontext() if isinstance(message, tuple) else handled_in(message):
                await self.consume(message)
        except asyncio.CancelledError:
            # FastStream settles nothing then. Amid a stop the close has it come again; otherwise nothing would.
            if self.running and self.ack_policy not in (AckPolicy.ACK_FIRST, AckPolicy.MANUAL):
                await have_again(consumer, message)
            raise

    def _make_response_publisher(self, message: StreamMessage[Raw]) -> Sequence[PublisherProto]:
        asked = each_of(message.raw_message)[0].topic_name()
        if self._outer_config.may_reply_to(asked, message.reply_to):
            return (PulsarReplyPublisher(self._outer_config.producer, message),)
        self._log(
            logging.WARNING,
            f"A message on {asked} wants a reply on {message.reply_to}, which is in another namespace. None is sent: "
            "PulsarBroker(may_reply_to=…) decides otherwise.",
        )
        return ()

    def _own_consumer(self) -> Consumer[Any]:
        if self.calls:
            raise AssertionError("This subscriber has handlers, which get its messages: use one without handlers.")
        if self._consumer is None:
            raise IncorrectState("This subscriber is not started: call `await subscriber.start()` first.")
        return self._consumer

    async def _parsed(self, raw: Raw) -> PulsarMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = (one(raw, context=context) for one in self._broker_middlewares)
        parsed = await process_msg(msg=raw, middlewares=middlewares, parser=parser, decoder=decoder)
        return cast("PulsarMessage", parsed)

    @staticmethod
    def _wants_letters(config: PulsarSubscriberConfig) -> bool:
        """Whether the consumer sends letters, unless it is said: `reject()` sends dead letters then."""
        return config.options.get("dead_letter_policy") is not None and not config.topics.is_pattern


def _rejection_of(options: dict[str, Any]) -> Rejection:
    if options["enable_retry"]:
        return Rejection.DEAD_LETTER
    return Rejection.ACKNOWLEDGE if options.get("dead_letter_policy") is None else Rejection.REDELIVER
