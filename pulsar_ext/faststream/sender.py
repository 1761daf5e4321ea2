"""FastStream's producer, with a producer or requester of `pulsar_ext.asyncio` for each topic in use."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import pulsar
from fast_depends.library.serializer import SerializerProto
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import AsyncCallable, CustomCallable

from pulsar_ext.asyncio import Client, Producer, Requester
from pulsar_ext.errors import InvalidUse, NoReply
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message

from .config import Options, PulsarBrokerConfig, check_producer_options
from .message import PulsarParser, properties_of
from .publisher import PulsarPublishCommand

_IDLE_SECONDS: Final = 60.0


class _Closable(Protocol):
    async def close(self) -> None: ...


EndpointT = TypeVar("EndpointT", bound=_Closable)


@dataclass(slots=True)
class _Opened(Generic[EndpointT]):
    open: Callable[[], Awaitable[EndpointT]]
    """Keeps alive what it refers to; the endpoint's name may contain the id of it."""
    opening: asyncio.Future[EndpointT]
    users: int = 0
    last_used: float = 0.0

    @property
    def has_failed(self) -> bool:
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)


class EndpointPool(Generic[EndpointT]):
    """Pool of producers or requesters, opened once, and closed after an idle minute: the broker deletes idle topics."""

    def __init__(self, is_closed: Callable[[EndpointT], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_closed, self._clock = is_closed, clock
        self._known: dict[Hashable, _Opened[EndpointT]] = {}

    @contextlib.asynccontextmanager
    async def use(self, name: Hashable, opening: Callable[[], Awaitable[EndpointT]]) -> AsyncIterator[EndpointT]:
        """Yield the endpoint of a name for a block; a failed opening raises, and is repeated by the next use."""
        known = self._known.get(name)
        if known is None or known.has_failed or (known.opening.done() and self._is_closed(known.opening.result())):
            known = self._known[name] = _Opened(opening, asyncio.ensure_future(opening()))
        known.users += 1
        try:
            await self._close_idle()
            yield await asyncio.shield(known.opening)  # others may wait for it
        finally:
            known.users -= 1
            known.last_used = self._clock()

    async def close(self) -> None:
        """Close all endpoints, also those that are being opened."""
        opened = list(self._known.values())
        self._known.clear()
        await asyncio.gather(*map(_close, opened))

    async def _close_idle(self) -> None:
        before = self._clock() - _IDLE_SECONDS
        idle = [name for name, one in self._known.items() if not one.users and one.last_used < before]
        if idle:
            await asyncio.gather(*[_close(self._known.pop(name)) for name in idle])


async def _close(one: _Opened[EndpointT]) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # its opening failed, or it is closed
        await (await one.opening).close()


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
            sends = (producer.send(content, properties=properties, **options) for content, properties in ready)
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

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
