"""What publishes: FastStream's producer, over a producer or requester of `pulsar_ext.asyncio` for each topic in use."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import pulsar
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState

from pulsar_ext.errors import InvalidUse, NoReply
from pulsar_ext.ids.topic_name import TopicName

from .config import check_producer_options
from .message import PulsarParser, properties_of
from .response import PulsarPublishCommand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
    from contextlib import AbstractAsyncContextManager

    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.types import AsyncCallable, CustomCallable

    from pulsar_ext.asyncio import Client, Producer, Requester
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.message import Message


_IDLE_SECONDS: Final = 60.0


class _Closable(Protocol):
    async def close(self) -> None: ...


OutletT = TypeVar("OutletT", bound=_Closable)


@dataclass(slots=True)
class _Opened(Generic[OutletT]):
    opening: asyncio.Task[OutletT]
    users: int = 0
    left_at: float = 0.0

    @property
    def has_failed(self) -> bool:
        return self.opening.done() and (self.opening.cancelled() or self.opening.exception() is not None)


class Outlets(Generic[OutletT]):
    """Opens them as they are needed, one opening for all who wait, and closes those that nobody used for a minute.

    An idle topic may then go, and the topics of replies are many.

    Args:
        is_closed: whether one that was opened has closed by itself; then another one is opened.
        clock: gives a time in seconds.
    """

    def __init__(self, is_closed: Callable[[OutletT], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_closed, self._clock = is_closed, clock
        self._known: dict[Hashable, _Opened[OutletT]] = {}

    @contextlib.asynccontextmanager
    async def lent(self, name: Hashable, opening: Callable[[], Coroutine[Any, Any, OutletT]]) -> AsyncIterator[OutletT]:
        """Lend the one of that name for a block.

        It raises what opening it raises, and opens it again the next time.
        """
        known = self._known.get(name)
        if known is None or known.has_failed or (known.opening.done() and self._is_closed(known.opening.result())):
            known = self._known[name] = _Opened(asyncio.ensure_future(opening()))
        known.users += 1
        try:
            await self._close_idle()
            yield await asyncio.shield(known.opening)  # others may wait for it
        finally:
            known.users -= 1
            known.left_at = self._clock()

    async def close(self) -> None:
        """Close them all, and those that are being opened."""
        leaving = list(self._known.values())
        self._known.clear()
        await asyncio.gather(*map(_close, leaving))

    async def _close_idle(self) -> None:
        before = self._clock() - _IDLE_SECONDS
        idle = [name for name, one in self._known.items() if not one.users and one.left_at < before]
        await asyncio.gather(*[_close(self._known.pop(name)) for name in idle])


async def _close(one: _Opened[Any]) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # it never opened, or is closed
        await (await one.opening).close()


_DEFAULTS: Final[Mapping[str, Any]] = {
    "batching_enabled": False,
    "chunking_enabled": True,
    "block_if_queue_full": True,
}
"""A publish leaves at once, what is too large for one message is sent in chunks, and a full queue is waited for."""


class PulsarSender(ProducerProto[PulsarPublishCommand]):
    """Publishes, and asks for replies, while its broker is connected.

    Args:
        parser: the application's parser of replies, if it has one.
        decoder: likewise.
        producer_options: of every producer; over the defaults above.
        reply_topic: where replies come; None for a topic of each requester's own.

    Raises:
        SetupError: one of them is not valid, or is not known.
    """

    _parser: AsyncCallable
    _decoder: AsyncCallable

    def __init__(
        self,
        *,
        parser: CustomCallable | None,
        decoder: CustomCallable | None,
        producer_options: Mapping[str, Any] | None = None,
        reply_topic: str | None = None,
    ) -> None:
        default = PulsarParser(lambda: None)
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self.codec: CodecProto = DefaultCodec()
        self._options = {**_DEFAULTS, **(producer_options or {})}
        check_producer_options(self._options)
        self._reply_topic = reply_topic
        self._serializer: SerializerProto | None = None
        self._client: Client | None = None
        self._producers: Outlets[Producer[Any]] = Outlets(lambda producer: producer.blocking.sender.closed)
        self._requesters: Outlets[Requester] = Outlets(lambda _: False)

    def connect(self, client: Client, serializer: SerializerProto | None, codec: CodecProto | None) -> None:
        """Begin to publish through a client."""
        self._client, self._serializer, self.codec = client, serializer, codec or DefaultCodec()

    async def disconnect(self) -> None:
        """Close what was opened; what was published is persisted then."""
        self._client = None
        await self._requesters.close()
        await self._producers.close()

    async def publish(self, cmd: PulsarPublishCommand) -> MessageId:
        """Publish one message, and give its id when it is persisted."""
        content, options = await encoded(cmd, cmd.body, self.codec, self._serializer)
        async with self._producer(cmd) as producer:
            return await producer.send(content, **options)

    async def publish_batch(self, cmd: PulsarPublishCommand) -> list[MessageId]:
        """Publish several messages in their order, and give their ids when all of them are persisted.

        Each is sent whatever becomes of the others; the first error is raised then.
        """
        ready = await encoded_batch(cmd, self.codec, self._serializer)
        async with self._producer(cmd) as producer:
            sends = (producer.send(content, **options) for content, options in ready)
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def request(self, cmd: PulsarPublishCommand) -> Message:
        """Publish a request, and give the first reply.

        Raises:
            TimeoutError: none came in time; its cause is the `NoReply`.
        """
        options = _replies_on(cmd.reply_topic or self._reply_topic, cmd.destination)
        opening = partial(self._connected().requester, cmd.destination, **options)
        name = cmd.destination, options.get("reply_topic")
        content, sending = await encoded(cmd, cmd.body, self.codec, self._serializer)
        timeout_ms = max(1, round(cmd.timeout * 1000))
        try:
            async with self._requesters.lent(name, opening) as requester:
                return await requester.request(content, timeout_ms=timeout_ms, **sending)
        except NoReply as error:
            raise TimeoutError(f"The request to {cmd.destination!r} has no reply within {cmd.timeout} s.") from error

    def options_of(self, own: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the arguments of `create_producer()` for a publisher with options of its own."""
        return {**self._options, **(own or {})}

    def _producer(self, cmd: PulsarPublishCommand) -> AbstractAsyncContextManager[Producer[Any]]:
        if not cmd.destination:
            raise InvalidUse("A message needs a topic: publish(message, topic). Nothing was sent.")
        opening = partial(self._connected().create_producer, cmd.destination, **self.options_of(cmd.producer_options))
        return self._producers.lent((cmd.destination, _Own(cmd.producer_options)), opening)

    def _connected(self) -> Client:
        if self._client is None:
            raise IncorrectState("The broker is not connected: call `await broker.connect()` or `start()` first.")
        return self._client


def _replies_on(reply_topic: str | None, asked: str) -> dict[str, str]:
    """Return the options of the requester of one topic.

    Its subscription has a name that the next start finds again, and that the requester of no other topic has.
    """
    if reply_topic is None:
        return {}
    return {
        "reply_topic": reply_topic,
        "subscription_name": "requester-" + str(TopicName.parse(asked)).replace("/", ":"),
    }


class _Own:
    """The options of one publisher as a name: none but these, and they are kept, so that no others get their id."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        self._options = options

    def __hash__(self) -> int:
        return id(self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Own) and self._options is other._options


async def encoded(
    cmd: PulsarPublishCommand, body: Any, codec: CodecProto, serializer: SerializerProto | None
) -> tuple[bytes, dict[str, Any]]:
    """Give a body as bytes, and the arguments of `Producer.send()` that go with it."""
    return _sending(cmd, *(await codec.encode(body, serializer)))


async def encoded_batch(
    cmd: PulsarPublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> list[tuple[bytes, dict[str, Any]]]:
    """Return each body of a batch, as `encoded()`; a codec may encode all of them at once."""
    if isinstance(codec, BatchCodecProto):
        return [_sending(cmd, *one) for one in await codec.encode_batch(cmd.batch_bodies, serializer)]
    return [await encoded(cmd, body, codec, serializer) for body in cmd.batch_bodies]


def _sending(cmd: PulsarPublishCommand, content: bytes, content_type: str | None) -> tuple[bytes, dict[str, Any]]:
    properties = properties_of(
        cmd.headers, content_type=content_type, correlation_id=cmd.correlation_id, reply_to=cmd.reply_to
    )
    return content, {"properties": properties, **cmd.send_options()}
