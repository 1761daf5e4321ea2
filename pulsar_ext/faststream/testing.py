"""The test client: handlers run in memory, or on a real broker, and FastStream's mocks and assertions work."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import AsyncMock, MagicMock

import anyio
import pulsar
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from pulsar_ext._native.messages import InnerMessageBuilder
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message, received

from .broker import PulsarBroker
from .message import PulsarParser
from .response import PulsarPublishCommand
from .sender import encoded, encoded_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faststream._internal.types import AsyncCallable
    from faststream.response import Response

    from .publisher import PulsarPublisher
    from .subscriber import PulsarSubscriber

_FOREVER_SECONDS = 1e9


class TestPulsarBroker(TestBroker[PulsarBroker, EnterType], broker=PulsarBroker):
    """Runs a broker's handlers in memory: `async with TestPulsarBroker(broker) as broker: await broker.publish(…)`.

    `publish()` returns when the handlers have ended, and raises what they raised. Each subscription of the topic gets
    the message once. Nothing is stored, and nothing comes again: `nack()` is only noted.

    It takes one broker or several, which see each other's messages. With `with_real=True` it connects to the real one;
    mocks and assertions work all the same, and what a publisher sends to a topic without a subscriber is received under
    a subscription that is deleted at the end. `connect_only` is FastStream's own.
    """

    def create_publisher_fake_subscriber(
        self, broker: PulsarBroker, publisher: PulsarPublisher
    ) -> tuple[PulsarSubscriber, bool]:
        """Give what receives a publisher's messages, and whether it is one of the application's."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.takes(publisher.topic):
                return subscriber, True
        subscription = f"faststream-test-{uuid.uuid4().hex}"
        made = broker.subscriber(
            publisher.topic, subscription=subscription, batch=publisher.is_batch, persistent=False, no_reply=True
        )
        made.is_temporary = True
        return made, False

    @contextmanager
    def _patch_producer(self, broker: PulsarBroker) -> Iterator[None]:
        config = broker.config.broker_config
        with change_producer(config, _Loopback(broker, self.brokers)):
            try:
                yield
            finally:
                config.opened = None

    async def _fake_connect(self, broker: PulsarBroker, *_: Any, **__: Any) -> Any:
        """Give what stands for the client: its consumers receive nothing, so that subscribers can be started later."""
        broker.check_publishers()
        consumer = AsyncMock(name="Consumer", receive=_nothing_comes, receive_many=_no_many)
        client = MagicMock(name="Client", subscribe=AsyncMock(return_value=consumer))
        broker.config.broker_config.opened = client
        return client


class _Loopback(ProducerProto[PulsarPublishCommand]):
    """Hands what is published to the handlers.

    Args:
        broker: publishes.
        brokers: all whose handlers get it.
    """

    _parser: AsyncCallable
    _decoder: AsyncCallable

    def __init__(self, broker: PulsarBroker, brokers: Sequence[PulsarBroker]) -> None:
        default = PulsarParser(lambda: None)
        config = broker.config
        self._parser = ParserComposition(config.broker_parser, default.parse_message)
        self._decoder = ParserComposition(config.broker_decoder, default.decode_message)
        self.codec = config.broker_codec or DefaultCodec()
        self._config, self._brokers = config, brokers
        self._numbers = itertools.count()

    async def publish(self, cmd: PulsarPublishCommand) -> MessageId:
        message = await self._encoded(cmd)
        for subscriber in self._takers(cmd.destination):
            await _hand_over(subscriber, message)
        return message.message_id()

    async def publish_batch(self, cmd: PulsarPublishCommand) -> list[MessageId]:
        ready = await encoded_batch(cmd, self.codec, self._config.fd_config._serializer)  # noqa: SLF001  # as FastStream's brokers do
        messages = [self._message(cmd, *one) for one in ready]
        takers = self._takers(cmd.destination)
        for message in messages:
            for subscriber in takers:
                if not subscriber.is_batch:
                    await _hand_over(subscriber, message)
        for subscriber in takers:
            if subscriber.is_batch and messages:
                await _hand_over(subscriber, *messages)
        return [message.message_id() for message in messages]

    async def request(self, cmd: PulsarPublishCommand) -> Message:
        message = await self._encoded(cmd)
        for subscriber in self._takers(cmd.destination):
            with anyio.fail_after(cmd.timeout):
                result = await _hand_over(subscriber, message)
            return await self._encoded(_reply(cmd, result))
        raise SubscriberNotFound(f"No subscriber of this test is for the topic {cmd.destination!r}.")

    def _takers(self, topic: str) -> list[PulsarSubscriber]:
        """Give one subscriber for each subscription."""
        takers = {one.subscription: one for one in reversed(_subscribers(self._brokers)) if one.takes(topic)}
        return list(reversed(takers.values()))

    async def _encoded(self, cmd: PulsarPublishCommand) -> Message:
        ready = await encoded(cmd, cmd.body, self.codec, self._config.fd_config._serializer)  # noqa: SLF001  # as FastStream's brokers do
        return self._message(cmd, *ready)

    def _message(self, cmd: PulsarPublishCommand, content: bytes, options: dict[str, Any]) -> Message:
        builder = InnerMessageBuilder()
        builder.content(content)
        for name, value in options["properties"].items():
            builder.property(name, value)
        for name in ("partition_key", "ordering_key", "event_timestamp"):
            if name in options:
                getattr(builder, name)(options[name])
        message = received(builder.build())
        topic, message_id = str(TopicName.parse(cmd.destination)), MessageId(-1, 0, next(self._numbers))
        message.__dict__.update(topic_name=lambda: topic, message_id=lambda: message_id)  # each hides the method
        return message


async def _hand_over(subscriber: PulsarSubscriber, *messages: Message) -> Response:
    """Have a subscriber handle a message, or a batch of them if it wants batches."""
    raw: Any = messages if subscriber.is_batch else messages[0]
    return await subscriber.process_message(raw)


async def _nothing_comes(timeout_millis: int | None = None) -> Message:
    await asyncio.sleep(_FOREVER_SECONDS if timeout_millis is None else timeout_millis / 1000)
    raise pulsar.Timeout("Pulsar error: TimeOut")


async def _no_many(_: int, timeout_millis: int | None = None) -> list[Message]:
    return [await _nothing_comes(timeout_millis)]


def _subscribers(brokers: Sequence[PulsarBroker]) -> list[PulsarSubscriber]:
    return [cast("PulsarSubscriber", one) for broker in brokers for one in broker.subscribers]


def _reply(cmd: PulsarPublishCommand, result: Response) -> PulsarPublishCommand:
    reply = PulsarPublishCommand.from_cmd(result.as_publish_command())
    reply.destination = cmd.destination
    return reply
