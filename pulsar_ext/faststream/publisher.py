"""Publishers: send the return values of decorated handlers, and replies to requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response import PublishCommand, PublishType

from pulsar_ext.request.envelope import CORRELATION

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
    from .message import PulsarMessage, Raw


class PulsarPublisher(PublisherUsecase):
    """Publisher to one topic; created by `broker.publisher()`."""

    _outer_config: PulsarBrokerConfig
    is_batch = False
    """True if it publishes several messages at once."""

    def __init__(self, config: PulsarPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._topic, self.key = config.topic, config.key
        self.headers, self.reply_to = dict(config.headers), config.reply_to
        self.producer_options = config.options

    @property
    def topic(self) -> str:
        """Topic with its router's prefix."""
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
        """Publish a message, and return its id; the arguments are those of `PulsarBroker.publish()`."""
        cmd = self._new_command(message, topic, headers, correlation_id, key)
        cmd.reply_to, cmd.producer_options = reply_to or self.reply_to, self.producer_options
        cmd.ordering_key, cmd.event_timestamp, cmd.deliver_after = ordering_key, event_timestamp, deliver_after
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
        """Publish a request, and return its reply; the arguments are those of `PulsarBroker.request()`."""
        cmd = self._new_command(message, topic, headers, correlation_id, key)
        cmd.publish_type, cmd.timeout, cmd.reply_topic = PublishType.REQUEST, timeout, reply_topic
        reply: PulsarMessage = await self._basic_request(cmd, producer=self._outer_config.producer)
        return reply

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish a handler's return value."""
        command = self._command(cmd)
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    def _new_command(
        self, message: object, topic: str, headers: dict[str, str] | None, correlation_id: str | None, key: str | None
    ) -> PulsarPublishCommand:
        return PulsarPublishCommand(
            message,
            topic=topic or self.topic,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            key=key or self.key,
        )

    def _command(self, cmd: PublishCommand) -> PulsarPublishCommand:
        """Return the command for a handler's return value."""
        command = PulsarPublishCommand.from_cmd(cmd, batch=self.is_batch)
        command.destination = self.topic
        command.reply_to = self.reply_to
        command.key = command.key or self.key
        command.add_headers(self.headers, override=False)
        command.producer_options = self.producer_options
        return command


class PulsarBatchPublisher(PulsarPublisher):
    """Publisher of several messages at once; created by `broker.publisher(batch=True)`."""

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
        """Publish several messages, and return their ids; the arguments are those of `PulsarBroker.publish_batch()`."""
        cmd = self._new_command(None, topic, headers, correlation_id, key)
        cmd.reply_to, cmd.producer_options = reply_to or self.reply_to, self.producer_options
        cmd.batch_bodies = messages
        producer = self._outer_config.producer
        sent: list[MessageId] = await self._basic_publish_batch(cmd, producer=producer, _extra_middlewares=())
        return sent

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish each element of a handler's return value; an empty one as one empty message, as in FastStream."""
        command = self._command(cmd)
        command.batch_bodies = command.batch_bodies or (b"",)
        producer = self._outer_config.producer
        await self._basic_publish_batch(command, producer=producer, _extra_middlewares=_extra_middlewares)


class PulsarReplyPublisher(FakePublisher):
    """Publisher of the reply to one message."""

    def __init__(self, producer: ProducerProto[PulsarPublishCommand], message: StreamMessage[Raw]) -> None:
        super().__init__(producer=producer)
        self._topic = message.reply_to
        self._headers = {name: value for name, value in message.headers.items() if name == CORRELATION}
        """The property by which a `Requester` recognizes its reply."""

    def patch_command(self, cmd: PublishCommand) -> PulsarPublishCommand:
        """Set the reply topic, and the properties of the request."""
        command = PulsarPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self._topic
        command.headers = {**command.headers, **self._headers}  # a copy: other publishers use the response's headers
        return command
