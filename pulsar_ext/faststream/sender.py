"""FastStream's producer, with a producer or requester of `pulsar_ext.asyncio` for each topic in use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from fast_depends.library.serializer import SerializerProto
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import AsyncCallable, CustomCallable

from pulsar_ext.asyncio import Client, Producer, Requester
from pulsar_ext.asyncio._pool import EndpointPool
from pulsar_ext.errors import InvalidUse, NoReply
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message

from .config import Options, PulsarBrokerConfig, check_producer_options
from .message import PulsarParser, properties_of
from .publisher import PulsarPublishCommand

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
