"""Test client: handlers run in memory, or on a real broker, with FastStream's mocks and assertions."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import anyio
import pulsar
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound
from faststream.response import Response

from pulsar_ext._native.messages import InnerMessageBuilder
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message, received

from .broker import PulsarBroker
from .message import Raw
from .publisher import EncodingProducer, PulsarPublishCommand, PulsarPublisher
from .subscriber import PulsarSubscriber

_FOREVER_SECONDS = 1e9


class TestPulsarBroker(TestBroker[PulsarBroker, EnterType], broker=PulsarBroker):
    """Runs a broker's handlers in memory: `async with TestPulsarBroker(broker) as broker: await broker.publish(…)`.

    `publish()` returns when the handlers have ended, and raises their errors. Each subscription of the topic gets the
    message once. Nothing is stored or redelivered: `nack()` is only recorded.

    It takes one broker or several, which receive each other's messages. With `with_real=True` it connects to the real
    broker; mocks and assertions work there too, and messages to a topic without a subscriber are received under a
    subscription that is deleted at the end. `connect_only` is FastStream's own.
    """

    def create_publisher_fake_subscriber(
        self, broker: PulsarBroker, publisher: PulsarPublisher
    ) -> tuple[PulsarSubscriber, bool]:
        """Return the subscriber for a publisher's messages, and true if it is one of the application's."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.subscribes_to(publisher.topic):
                return subscriber, True
        subscription = f"faststream-test-{uuid.uuid4().hex}"
        created = broker.subscriber(
            publisher.topic, subscription=subscription, batch=publisher.is_batch, persistent=False, no_reply=True
        )
        created.is_temporary = True
        return created, False

    @contextmanager
    def _patch_producer(self, broker: PulsarBroker) -> Iterator[None]:
        config = broker.config.broker_config
        with change_producer(config, _Loopback(broker, self.brokers)):
            try:
                yield
            finally:
                config.opened = None

    async def _fake_connect(self, broker: PulsarBroker, *_: object, **__: object) -> Any:
        """Return a mock client whose consumers receive nothing, so that subscribers can be started later."""
        broker.check_publishers()
        consumer = AsyncMock(name="Consumer", receive=_receive_nothing, receive_many=_receive_none_of_many)
        client = MagicMock(name="Client", subscribe=AsyncMock(return_value=consumer))
        broker.config.broker_config.opened = client
        return client


class _Loopback(EncodingProducer):
    def __init__(self, broker: PulsarBroker, brokers: Sequence[PulsarBroker]) -> None:
        super().__init__(broker.config.broker_parser, broker.config.broker_decoder)
        self.config, self._brokers = broker.config.broker_config, brokers
        self.connect()
        self._numbers = itertools.count()

    async def publish(self, cmd: PulsarPublishCommand) -> MessageId:
        message = await self._encoded(cmd)
        for subscriber in self._subscribers_of(cmd.destination):
            await _deliver(subscriber, message)
        return message.message_id()

    async def publish_batch(self, cmd: PulsarPublishCommand) -> list[MessageId]:
        messages = [self._message(cmd, *one) for one in await self.encoded_batch(cmd)]
        subscribers = self._subscribers_of(cmd.destination)
        for message in messages:
            for subscriber in subscribers:
                if not subscriber.is_batch:
                    await _deliver(subscriber, message)
        for subscriber in subscribers:
            if subscriber.is_batch and messages:
                await _deliver(subscriber, *messages)
        return [message.message_id() for message in messages]

    async def request(self, cmd: PulsarPublishCommand) -> Message:
        message = await self._encoded(cmd)
        for subscriber in self._subscribers_of(cmd.destination):
            with anyio.fail_after(cmd.timeout):
                result = await _deliver(subscriber, message)
            reply = PulsarPublishCommand.from_cmd(result.as_publish_command())
            reply.destination = cmd.destination
            return await self._encoded(reply)
        raise SubscriberNotFound(f"No subscriber of this test is for the topic {cmd.destination!r}.")

    def _subscribers_of(self, topic: str) -> list[PulsarSubscriber]:
        found = {one.subscription: one for one in reversed(_subscribers(self._brokers)) if one.subscribes_to(topic)}
        return list(reversed(found.values()))

    async def _encoded(self, cmd: PulsarPublishCommand) -> Message:
        return self._message(cmd, *await self.encoded(cmd, cmd.body))

    def _message(self, cmd: PulsarPublishCommand, content: bytes, properties: dict[str, str]) -> Message:
        builder = InnerMessageBuilder()
        builder.content(content)
        builder.properties(properties)
        for name, value in cmd.send_options().items():
            getattr(builder, name)(value)
        message = received(builder.build())
        topic, message_id = str(TopicName.parse(cmd.destination)), MessageId(-1, 0, next(self._numbers))
        message.__dict__.update(topic_name=lambda: topic, message_id=lambda: message_id)  # each hides the method
        return message


async def _deliver(subscriber: PulsarSubscriber, *messages: Message) -> Response:
    """Let a subscriber handle a message, or a batch of them if it handles batches."""
    raw: Raw = messages if subscriber.is_batch else messages[0]
    return await subscriber.process_message(raw)


async def _receive_nothing(timeout_millis: int | None = None) -> Message:
    await asyncio.sleep(_FOREVER_SECONDS if timeout_millis is None else timeout_millis / 1000)
    raise pulsar.Timeout("Pulsar error: TimeOut")


async def _receive_none_of_many(_: int, timeout_millis: int | None = None) -> list[Message]:
    return [await _receive_nothing(timeout_millis)]


def _subscribers(brokers: Sequence[PulsarBroker]) -> list[PulsarSubscriber]:
    return [cast("PulsarSubscriber", one) for broker in brokers for one in broker.subscribers]
