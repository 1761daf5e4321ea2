"""Publishers of handlers' return values and of replies, the commands that they send, and responses of handlers.

`PulsarSender` is FastStream's producer: it sends all commands of a broker, with a producer or requester of
`pulsar_ext.asyncio` for each topic in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self, TypedDict, Unpack

from fast_depends.library.serializer import SerializerProto
from faststream._internal.basic_types import SendableMessage
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import AsyncCallable, CustomCallable, PublisherMiddleware
from faststream.message import StreamMessage
from faststream.response import BatchPublishCommand, PublishCommand, PublishType

from pulsar_ext.asyncio import Client, Producer, Requester
from pulsar_ext.asyncio._pool import EndpointPool
from pulsar_ext.errors import InvalidUse, NoReply
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message
from pulsar_ext.request import CORRELATION

from .config import Options, PulsarBrokerConfig, PulsarPublisherConfig, check_producer_options
from .message import PulsarMessage, PulsarParser, Raw, properties_of


class SendOptions(TypedDict, total=False):
    """Arguments of a published message, described at `PulsarBroker.publish()`."""

    headers: dict[str, str] | None
    correlation_id: str | None
    key: str | None
    ordering_key: str | None
    event_timestamp: int | None
    deliver_after: timedelta | None


class PublishOptions(SendOptions, total=False):
    """Arguments of a message to a topic that may name a topic for replies."""

    reply_to: str


class PulsarPublishCommand(BatchPublishCommand):
    """Command to publish a body to a topic, as middlewares get it; see `PulsarBroker.publish()`."""

    timeout = 30.0
    """Seconds for which a request waits for its reply."""
    reply_topic: str | None = None
    """Topic that receives the reply to a request; None for the broker's."""
    producer_options: Options | None = None
    """Options of the publisher's own producer; None for the broker's."""
    _is_empty = False

    def __init__(
        self,
        message: object,
        /,
        *,
        _publish_type: PublishType = PublishType.PUBLISH,
        topic: str = "",
        correlation_id: str | None = None,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        super().__init__(
            message,
            _publish_type=_publish_type,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
            reply_to=reply_to,
        )
        self.key, self.ordering_key = key, ordering_key
        self.event_timestamp, self.deliver_after = event_timestamp, deliver_after

    def set_request(self, timeout: float, reply_topic: str | None) -> None:
        """Make it a request, whose reply a requester receives."""
        self.publish_type, self.timeout, self.reply_topic, self.reply_to = PublishType.REQUEST, timeout, reply_topic, ""

    def get_publish_key(self) -> str | None:
        """Return the key."""
        return self.key

    @property
    def batch_bodies(self) -> tuple[object, ...]:
        """Bodies of a batch, each a message; FastStream would omit a first one that is None."""
        return () if self._is_empty else (self.body, *self.extra_bodies)

    @batch_bodies.setter
    def batch_bodies(self, value: Sequence[object]) -> None:
        self._is_empty = not value
        self.body, *more = value or (None,)
        self.extra_bodies = tuple(more)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Convert any command to this class; with `batch`, each element of a sequence becomes a body."""
        command = cmd
        if not isinstance(command, cls):
            command = cls(
                cmd.body,
                _publish_type=cmd.publish_type,
                topic=cmd.destination,
                correlation_id=cmd.correlation_id,
                headers=cmd.headers,
                reply_to=cmd.reply_to,
            )
        if batch:
            first, more = cls._parse_bodies(command.body, batch=True)
            command.batch_bodies = () if first is None and not more else (first, *more)
        return command

    def send_options(self) -> dict[str, object]:
        """Return its arguments of `Producer.send()`, except the properties."""
        options = {
            "partition_key": self.key,
            "ordering_key": self.ordering_key,
            "event_timestamp": self.event_timestamp,
            "deliver_after": self.deliver_after,
        }
        return {name: value for name, value in options.items() if value is not None}


class PulsarResponse(PulsarPublishCommand):
    """Response of a handler with more than a body.

    Args:
        body: the published body.
        **options: `headers`, `key`, `ordering_key`, `event_timestamp` and `deliver_after`, as of
            `PulsarBroker.publish()`; and `correlation_id`, by default that of the handled message.
    """

    def __init__(self, body: object, **options: Unpack[SendOptions]) -> None:
        super().__init__(body, **options)

    def as_publish_command(self) -> PulsarPublishCommand:
        """Return the command for publishers."""
        return copy(self)


class PulsarPublisher(PublisherUsecase):
    """Publisher to one topic; created by `broker.publisher()`."""

    _outer_config: PulsarBrokerConfig
    is_batch = False
    """True if it publishes several messages at once."""

    def __init__(self, config: PulsarPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
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


_DEFAULTS: Final[Mapping[str, bool]] = {
    "batching_enabled": False,
    "chunking_enabled": True,
    "block_if_queue_full": True,
}
"""A publish is sent immediately, large messages are chunked, and a send waits while the queue is full."""


class EncodingProducer(ProducerProto[PulsarPublishCommand]):
    """Parser of replies, and encoder of messages by a broker's codec."""

    _parser: AsyncCallable
    _decoder: AsyncCallable
    _serializer: SerializerProto | None = None
    config: PulsarBrokerConfig
    """Configuration of the broker, set after it was made."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        default = PulsarParser(lambda: None)
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self.codec: CodecProto = DefaultCodec()

    def connect(self) -> None:
        """Encode with the broker's codec from now on."""
        self.codec = self.config.broker_codec or DefaultCodec()
        self._serializer = self.config.fd_config._serializer  # noqa: SLF001  # as FastStream's brokers do

    async def encoded(self, cmd: PulsarPublishCommand, body: object) -> tuple[bytes, dict[str, str]]:
        """Return a body as bytes, and the properties of its message."""
        content, content_type = await self.codec.encode(body, self._serializer)
        return content, properties_of(cmd, content_type)

    async def encoded_batch(self, cmd: PulsarPublishCommand) -> list[tuple[bytes, dict[str, str]]]:
        """Return each body of a batch, as `encoded()`; a codec may encode all of them at once."""
        if isinstance(self.codec, BatchCodecProto):
            ready = await self.codec.encode_batch(cmd.batch_bodies, self._serializer)
            return [(content, properties_of(cmd, content_type)) for content, content_type in ready]
        return [await self.encoded(cmd, body) for body in cmd.batch_bodies]


class PulsarSender(EncodingProducer):
    """Producer and requester of a connected broker."""

    def __init__(
        self,
        parser: CustomCallable | None,
        decoder: CustomCallable | None,
        producer_options: Options | None = None,
        reply_topic: str | None = None,
    ) -> None:
        super().__init__(parser, decoder)
        self._options = {**_DEFAULTS, **(producer_options or {})}
        check_producer_options(self._options)
        self._reply_topic = reply_topic

    def connect(self) -> None:
        """Encode with the broker's codec, and open producers and requesters, from now on."""
        super().connect()
        self._producers: EndpointPool[Producer[bytes]] = EndpointPool(lambda producer: producer.blocking.sender.closed)
        self._requesters: EndpointPool[Requester] = EndpointPool(lambda _: False)

    async def disconnect(self) -> None:
        """Close all producers and requesters; published messages are persisted then."""
        await self._requesters.close()
        await self._producers.close()

    async def publish(self, cmd: PulsarPublishCommand) -> MessageId:
        """Publish one message, and return its id once it is persisted."""
        content, properties = await self.encoded(cmd, cmd.body)
        async with self._producer(cmd) as producer:
            return await producer.send(content, properties=properties, **cmd.send_options())

    async def publish_batch(self, cmd: PulsarPublishCommand) -> list[MessageId]:
        """Publish messages in order, each even if others fail; return their ids, or raise the first error."""
        ready = await self.encoded_batch(cmd)
        async with self._producer(cmd) as producer:
            options = cmd.send_options()
            sends = [asyncio.ensure_future(producer.send(one, properties=more, **options)) for one, more in ready]
            await asyncio.gather(*sends, return_exceptions=True)
        return [sent.result() for sent in sends]

    async def request(self, cmd: PulsarPublishCommand) -> Message:
        """Publish a request, and return the first reply."""
        reply_topic = cmd.reply_topic or self._reply_topic
        options: Options = {}
        if reply_topic is not None:
            # A stable name, which the next start reuses, and a different one per requested topic.
            subscription = "requester-" + str(TopicName.parse(cmd.destination)).replace("/", ":")
            options = {"reply_topic": reply_topic, "subscription_name": subscription}
        opening = partial(self.config.client.requester, cmd.destination, **options)
        content, properties = await self.encoded(cmd, cmd.body)
        more, timeout_ms = cmd.send_options(), max(1, round(cmd.timeout * 1000))
        try:
            async with self._requesters.use((cmd.destination, reply_topic), opening) as requester:
                return await requester.request(content, timeout_ms=timeout_ms, properties=properties, **more)
        except NoReply as error:
            raise TimeoutError(f"The request to {cmd.destination!r} has no reply within {cmd.timeout} s.") from error

    def options_of(self, own: Options | None) -> Options:
        """Return the arguments of `create_producer()` for a publisher with its own options."""
        return {**self._options, **(own or {})}

    def _producer(self, cmd: PulsarPublishCommand) -> AbstractAsyncContextManager[Producer[bytes]]:
        if not cmd.destination:
            raise InvalidUse("A message needs a topic: publish(message, topic). Nothing was sent.")
        opening = partial(self._open_producer, self.config.client, cmd.destination, cmd.producer_options)
        return self._producers.use((cmd.destination, id(cmd.producer_options)), opening)

    async def _open_producer(self, client: Client, topic: str, own: Options | None) -> Producer[bytes]:
        return await client.create_producer(topic, **self.options_of(own))
