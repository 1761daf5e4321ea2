"""Publishers: what a decorated handler returns goes to a topic, and what answers a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response import PublishCommand, PublishType

from .message import PulsarMessage, answering
from .response import PulsarPublishCommand

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.producer import ProducerProto
    from faststream._internal.types import PublisherMiddleware
    from faststream.message import StreamMessage

    from pulsar_ext.ids.message_id import MessageId

    from .config import PulsarBrokerConfig, PulsarPublisherConfig


class PulsarPublisher(PublisherUsecase):
    """Publishes to one topic; made by `broker.publisher()`.

    Args:
        config: what was asked for.
        specification: for AsyncAPI.
    """

    _outer_config: PulsarBrokerConfig
    is_batch = False
    """Whether it publishes several messages at once."""

    def __init__(self, config: PulsarPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._topic, self.key = config.topic, config.key
        self.headers, self.reply_to = dict(config.headers), config.reply_to
        self.producer_options = config.options

    @property
    def topic(self) -> str:
        """The topic with its router's prefix."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: SendableMessage,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message, and give its id; the arguments are those of `PulsarBroker.publish()`."""
        cmd = PulsarPublishCommand(
            message,
            topic=topic or self.topic,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.reply_to,
            key=key or self.key,
            ordering_key=ordering_key,
            event_timestamp=event_timestamp,
            deliver_after=deliver_after,
            producer_options=self.producer_options,
            _publish_type=PublishType.PUBLISH,
        )
        sent: MessageId = await self._basic_publish(cmd, producer=self._outer_config.producer, _extra_middlewares=())
        return sent

    async def request(
        self,
        message: SendableMessage,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        key: str | None = None,
        timeout: float = 30.0,  # noqa: ASYNC109  # FastStream's signature
        reply_topic: str | None = None,
    ) -> PulsarMessage:
        """Publish a request, and give its reply; the arguments are those of `PulsarBroker.request()`."""
        cmd = PulsarPublishCommand(
            message,
            topic=topic or self.topic,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            key=key or self.key,
            timeout=timeout,
            reply_topic=reply_topic,
            _publish_type=PublishType.REQUEST,
        )
        reply: PulsarMessage = await self._basic_request(cmd, producer=self._outer_config.producer)
        return reply

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish what a handler returned."""
        ours = self._ours(cmd)
        await self._basic_publish(ours, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    def _ours(self, cmd: PublishCommand) -> PulsarPublishCommand:
        """Return the command for what a handler returned."""
        ours = PulsarPublishCommand.from_cmd(cmd, batch=self.is_batch)
        ours.destination = self.topic
        ours.reply_to = self.reply_to
        ours.key = ours.key or self.key
        ours.add_headers(self.headers, override=False)
        ours.producer_options = self.producer_options
        return ours


class PulsarBatchPublisher(PulsarPublisher):
    """Publishes several messages at once; made by `broker.publisher(batch=True)`."""

    is_batch = True

    async def publish(  # type: ignore[override]  # as in each of FastStream's brokers
        self,
        *messages: SendableMessage,
        topic: str = "",
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: str | None = None,
    ) -> list[MessageId]:
        """Publish several messages, and give their ids; the arguments are those of `PulsarBroker.publish_batch()`."""
        cmd = PulsarPublishCommand(
            None,
            topic=topic or self.topic,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            reply_to=reply_to or self.reply_to,
            key=key or self.key,
            producer_options=self.producer_options,
            _publish_type=PublishType.PUBLISH,
        )
        cmd.batch_bodies = messages
        producer = self._outer_config.producer
        sent: list[MessageId] = await self._basic_publish_batch(cmd, producer=producer, _extra_middlewares=())
        return sent

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish each element of what a handler returned; of nothing one empty message, as FastStream's others."""
        ours = self._ours(cmd)
        ours.batch_bodies = ours.batch_bodies or (b"",)
        producer = self._outer_config.producer
        await self._basic_publish_batch(ours, producer=producer, _extra_middlewares=_extra_middlewares)


class PulsarReplyPublisher(FakePublisher):
    """Publishes the answer to one message.

    Args:
        producer: what sends.
        message: the message that wants it.
    """

    def __init__(self, producer: ProducerProto[Any], message: StreamMessage[Any]) -> None:
        super().__init__(producer=producer)
        self._topic, self._headers = message.reply_to, answering(message.headers)

    def patch_command(self, cmd: PublishCommand) -> PulsarPublishCommand:
        """Send it where it is wanted, and say what it answers."""
        ours = PulsarPublishCommand.from_cmd(super().patch_command(cmd))
        ours.destination = self._topic
        ours.headers = {**ours.headers, **self._headers}  # those of the response are for other publishers too
        return ours
