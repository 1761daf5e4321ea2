"""Subscriber: a consumer whose messages are passed to handlers, with a limit on concurrent ones.

FastStream's exceptions acknowledge or reject a message here in cases in which FastStream leaves it unacknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Final, cast

import pulsar
from faststream import BaseMiddleware
from faststream._internal.basic_types import AsyncFuncAny
from faststream._internal.context import ContextRepo
from faststream._internal.endpoint.publisher import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream._internal.types import BrokerMiddleware
from faststream.exceptions import AckMessage, HandlerException, IncorrectState, NackMessage, RejectMessage, SkipMessage
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy

from pulsar_ext._native.results import POLL_MILLIS, raise_result
from pulsar_ext.asyncio import Consumer
from pulsar_ext.asyncio._processing import finish_batches
from pulsar_ext.message import handled_in
from pulsar_ext.process import BegunBatches

from .config import PulsarBrokerConfig, PulsarSubscriberConfig, check_consumer_options
from .message import PulsarMessage, PulsarParser, Raw, Rejection, each_of, redeliver
from .publisher import PulsarReplyPublisher


class ExceptionAcknowledger(BaseMiddleware):
    """Middleware that acknowledges, negatively acknowledges or rejects a message by its handler's exception.

    With manual acknowledgement, it applies `AckMessage`, `NackMessage` and `RejectMessage`. With a policy, it only
    acknowledges a message whose handler raised `SkipMessage`, which would otherwise stay unacknowledged.
    """

    def __init__(
        self, raw_message: Raw, /, *, context: ContextRepo, is_manual: bool, log: Callable[..., object]
    ) -> None:
        super().__init__(raw_message, context=context)
        self._is_manual, self._log = is_manual, log
        self._message: StreamMessage[Raw] | None = None

    async def consume_scope(self, call_next: AsyncFuncAny, msg: StreamMessage[Raw]) -> object:
        """Store the message."""
        self._message = msg
        return await call_next(msg)

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool:
        """Apply the exception to the message; return true if the exception is handled."""
        del exc_type, exc_tb
        if self._message is None or not isinstance(exc_val, HandlerException):
            return False
        try:
            await self._apply(self._message, exc_val)
        except Exception as error:  # noqa: BLE001  # as FastStream does
            self._log(logging.CRITICAL, repr(error), exc_info=error)
        return self._is_manual

    async def _apply(self, message: StreamMessage[Raw], error: HandlerException) -> None:
        if not self._is_manual:
            if isinstance(error, SkipMessage):
                await message.ack()
        elif isinstance(error, AckMessage):
            await message.ack(**error.extra_options)
        elif isinstance(error, NackMessage):
            await message.nack(**error.extra_options)
        elif isinstance(error, RejectMessage):
            await message.reject(**error.extra_options)


_RETRY_SECONDS: Final = 1.0
_own_task: ContextVar[asyncio.Task[None] | None] = ContextVar("pulsar_ext_faststream_handling", default=None)
"""Task that handles a message here; tasks started by a handler, such as those of `broker.stop()`, inherit it."""


class PulsarSubscriber(SubscriberUsecase[Raw]):
    """Subscriber that passes each message of a subscription to a handler; created by `broker.subscriber()`.

    A message is received only when a handler can run for it. `stop()` receives no more messages, except the rest of a
    batch if the broker acknowledges only whole batches. It waits for the handlers for the broker's `graceful_timeout`,
    cancels the remaining ones, and closes the consumer: unacknowledged messages are redelivered.
    """

    _outer_config: PulsarBrokerConfig
    is_temporary = False
    """True if `stop()` deletes the subscription."""

    def __init__(
        self,
        config: PulsarSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Raw],
    ) -> None:
        self.topics, self.subscription, self._type = config.topics, config.subscription, config.subscription_type
        self._max_records = config.max_records
        has_letters = config.options.get("dead_letter_policy") is not None
        self._options = {"enable_retry": has_letters and not config.topics.is_pattern, **config.options}
        check_consumer_options(config.topics.with_prefix(""), self.subscription, self._type, self._options)
        rejection = Rejection.REDELIVER if has_letters else Rejection.ACKNOWLEDGE
        if self._options["enable_retry"]:  # `reject()` sends dead letters
            rejection = Rejection.DEAD_LETTER
        parser = PulsarParser(lambda: self._consumer, rejection)
        config.parser, config.decoder = parser.parse_message, parser.decode_message
        if self.is_batch:  # FastStream uses these attributes for both
            config.parser, config.decoder = parser.parse_batch, parser.decode_batch
        super().__init__(config, specification, calls)
        self._consumer: Consumer[bytes] | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._handling: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(config.max_workers)
        self._batches: BegunBatches | None = None

    @property
    def topic(self) -> str:
        """Topic with its router's prefix; several topics joined, or the pattern."""
        return ",".join(self.topics.each(self._outer_config.prefix))

    @property
    def is_batch(self) -> bool:
        """True if a handler receives several messages at once."""
        return self._max_records is not None

    @property
    def _broker_middlewares(self) -> Sequence[BrokerMiddleware[Raw]]:
        acknowledger = partial(ExceptionAcknowledger, is_manual=self.ack_policy is AckPolicy.MANUAL, log=self._log)
        return (acknowledger, *super()._broker_middlewares)

    def subscribes_to(self, topic: str) -> bool:
        """Return true if it subscribes to a topic."""
        return self.topics.include(topic, self._outer_config.prefix)

    async def start(self) -> None:
        """Subscribe, and receive if there is a handler; a second call has no effect. Raise the broker's error."""
        if self._consumer is not None:
            return
        client = self._outer_config.client
        await super().start()
        consumer = await client.subscribe(
            self.topics.with_prefix(self._outer_config.prefix),
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
        """Stop as the class describes, even if cancelled; a handler that calls this or the broker's is not awaited."""
        receiving, self._receiving = self._receiving, None
        own, consumer, began = _own_task.get(), self._consumer, time.monotonic()
        if receiving is not None:
            receiving.cancel()  # loses no message
        try:
            if receiving is not None and consumer is not None and own not in self._handling:
                await asyncio.wait([receiving])
                if self._batches is not None and receiving.cancelled():  # the rest of each batch that was begun
                    await finish_batches(self._batches, lambda: self._dispatch_one(consumer, POLL_MILLIS, most=1))
            patience = (self._outer_config.graceful_timeout or 0.0) - (time.monotonic() - began)
            if (others := self._handling - {own}) and patience > 0:
                await asyncio.wait(others, timeout=patience)
        finally:
            self.lock = contextlib.nullcontext()  # FastStream would also wait for the calling handler
            await super().stop()
            others = self._handling - {own}
            self._consumer = None
            for task in others:
                task.cancel()
            try:
                await asyncio.gather(*others, return_exceptions=True)
            finally:
                with contextlib.suppress(pulsar.AlreadyClosed):
                    if consumer is not None and self.is_temporary:
                        await consumer.unsubscribe()
                    if consumer is not None:
                        await consumer.close()  # sends pending acknowledgements first

    async def get_one(self, *, timeout: float = 5.0) -> PulsarMessage | None:  # noqa: ASYNC109  # FastStream's signature
        """Receive one message of a subscriber without handlers, None if none arrived in `timeout` seconds.

        Acknowledge it with `await message.ack()`. If there are handlers, `AssertionError` is raised, as in FastStream.
        """
        try:
            raw = await self._take(self._own_consumer(), round(timeout * 1000))
        except pulsar.Timeout:
            return None
        return await self._parsed(raw)

    async def __aiter__(self) -> AsyncIterator[PulsarMessage]:
        """Yield the messages one by one, until it is stopped; see `get_one()`."""
        consumer = self._own_consumer()
        with contextlib.suppress(pulsar.AlreadyClosed):
            while True:
                yield await self._parsed(await self._take(consumer))

    def get_log_context(self, message: StreamMessage[Raw] | None) -> dict[str, str]:
        """Return the context of log lines."""
        topic = message.topic if isinstance(message, PulsarMessage) else self.topic
        message_id = getattr(message, "message_id", "")
        return {"topic": topic, "subscription": self.subscription, "message_id": message_id}

    async def _receive(self, consumer: Consumer[bytes]) -> None:
        while True:
            try:
                await self._dispatch_one(consumer)
            except pulsar.AlreadyClosed:
                self._log(logging.ERROR, "The consumer was closed by other code: no more messages are received.")
                return
            except Exception as error:  # noqa: BLE001  # for instance of an interceptor; receiving has to continue
                self._log(logging.ERROR, "Receiving failed; retrying in 1 s.", exc_info=error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _dispatch_one(
        self, consumer: Consumer[bytes], timeout_millis: int | None = None, *, most: int | None = None
    ) -> None:
        """Receive a message, or several, when a handler can run for it, and start that handler."""
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

    async def _take(
        self, consumer: Consumer[bytes], timeout_millis: int | None = None, *, most: int | None = None
    ) -> Raw:
        if self._max_records is None:
            return await consumer.receive(timeout_millis)
        messages = await consumer.receive_many(most or self._max_records, timeout_millis)
        if not messages:
            raise_result(pulsar.Result.Timeout)
        return tuple(messages)

    async def _handle(self, consumer: Consumer[bytes], message: Raw) -> None:
        _own_task.set(asyncio.current_task())
        try:
            with contextlib.nullcontext() if isinstance(message, tuple) else handled_in(message):
                await self.consume(message)
        except asyncio.CancelledError:
            # FastStream does nothing then. During a stop, the close causes a redelivery; otherwise nothing would.
            if self.running and self.ack_policy not in (AckPolicy.ACK_FIRST, AckPolicy.MANUAL):
                await redeliver(consumer, message)
            raise

    def _make_response_publisher(self, message: StreamMessage[Raw]) -> Sequence[PublisherProto]:
        requested = each_of(message.raw_message)[0].topic_name()
        if self._outer_config.may_reply_to(requested, message.reply_to):
            return (PulsarReplyPublisher(self._outer_config.producer, message),)
        self._log(
            logging.WARNING,
            f"A message on {requested} requests a reply on {message.reply_to}, in another namespace. No reply is sent; "
            "allow it with PulsarBroker(may_reply_to=…).",
        )
        return ()

    def _own_consumer(self) -> Consumer[bytes]:
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
