"""Publishers: send the return values of decorated handlers, and replies to requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher

from pulsar_ext.request.envelope import CORRELATION

from .response import PulsarPublishCommand

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.producer import ProducerProto
    from faststream._internal.types import PublisherMiddleware
    from faststream.message import StreamMessage
    from faststream.response import PublishCommand

    from pulsar_ext.ids.message_id import MessageId

    from .config import PulsarBrokerConfig, PulsarPublisherConfig
    from .message import PulsarMessage, Raw
    from .response import PublishOptions, SendOptions

    _Specification = PublisherSpecification[PulsarBrokerConfig, PulsarPublisherConfig]


class PulsarPublisher(PublisherUsecase):
    """Publisher to one topic; created by `broker.publisher()`."""

    _outer_config: PulsarBrokerConfig
    is_batch = False
    """True if it publishes several messages at once."""

    def __init__(self, config: PulsarPublisherConfig, specification: _Specification) -> None:
        super().__init__(config, specification)
        self._config, self.producer_options = config, config.options

    @property
    def topic(self) -> str:
        """Topic with its router's prefix."""
        return self._config.prefixed_topic

    async def publish(self, message: SendableMessage, topic: str = "", **options: Unpack[PublishOptions]) -> MessageId:
        """Publish a message, and return its id; the arguments are those of `PulsarBroker.publish()`."""
        sent: MessageId = await self._send(self._new_command(message, topic, options))
        return sent

    async def request(
        self,
        message: SendableMessage,
        topic: str = "",
        *,
        timeout: float = 30.0,  # noqa: ASYNC109  # FastStream's signature
        reply_topic: str | None = None,
        **options: Unpack[SendOptions],
    ) -> PulsarMessage:
        """Publish a request, and return its reply; the arguments are those of `PulsarBroker.request()`."""
        cmd = self._new_command(message, topic, options)
        cmd.set_request(timeout, reply_topic)
        reply: PulsarMessage = await self._basic_request(cmd, producer=self._outer_config.producer)
        return reply

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish a handler's return value; an empty one of several as one empty message, as in FastStream."""
        command = self._with_defaults(PulsarPublishCommand.from_cmd(cmd, batch=self.is_batch))
        command.destination = self.topic
        if self.is_batch:
            command.batch_bodies = command.batch_bodies or (b"",)
        await self._send(command, _extra_middlewares)

    async def _send(self, cmd: PulsarPublishCommand, middlewares: Iterable[PublisherMiddleware] = ()) -> Any:
        send = self._basic_publish_batch if self.is_batch else self._basic_publish
        return await send(cmd, producer=self._outer_config.producer, _extra_middlewares=middlewares)

    def _new_command(self, message: object, topic: str, options: SendOptions) -> PulsarPublishCommand:
        command = PulsarPublishCommand(message, topic=topic or self.topic, **options)
        command.correlation_id = command.correlation_id or self._outer_config.id_generator()
        return self._with_defaults(command)

    def _with_defaults(self, command: PulsarPublishCommand) -> PulsarPublishCommand:
        command.reply_to = command.reply_to or self._config.reply_to
        command.key = command.key or self._config.key
        command.add_headers(dict(self._config.headers), override=False)
        command.producer_options = self.producer_options
        return command


class PulsarBatchPublisher(PulsarPublisher):
    """Publisher of several messages at once; created by `broker.publisher(batch=True)`."""

    is_batch = True

    async def publish(  # type: ignore[override]  # as in each of FastStream's brokers
        self, *messages: SendableMessage, topic: str = "", **options: Unpack[PublishOptions]
    ) -> list[MessageId]:
        """Publish several messages, and return their ids; the arguments are those of `PulsarBroker.publish_batch()`."""
        cmd = self._new_command(None, topic, options)
        cmd.batch_bodies = messages
        sent: list[MessageId] = await self._send(cmd)
        return sent


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
