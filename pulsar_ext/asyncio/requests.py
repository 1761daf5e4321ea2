"""The asyncio requester and replier, like `pulsar_ext.Requester` and `pulsar_ext.Replier`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self

from pulsar_ext.message import Message
from pulsar_ext.request import Answer, Exchange, Replying, as_not_sent
from pulsar_ext.request import Requester as BlockingRequester

from ._executor import Closable, Closing, running_loop_bridge
from ._pool import EndpointPool
from ._processing import drive
from .consumer import Consumer
from .errors import translated, translating
from .producer import Producer


class Replies:
    """Replies to one request, as an asynchronous iterator; made by `Requester.request_many()`."""

    def __init__(self, exchange: Exchange, arrived: asyncio.Queue[Message | BaseException]) -> None:
        self._exchange, self._arrived = exchange, arrived
        self._deadline = asyncio.get_running_loop().time() + exchange.timeout_ms / 1000

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Wait for the next reply; raises like the blocking client's iterator."""
        while not self._exchange.is_done:
            try:
                async with asyncio.timeout_at(self._deadline):
                    item = await self._arrived.get()
            except TimeoutError:
                self._exchange.expire()
                break
            reply = self._exchange.take(translated(item) if isinstance(item, BaseException) else item)
            if reply is not None:
                return reply
        raise StopAsyncIteration


class Requester(Closing[BlockingRequester]):
    """Sends requests to one topic and awaits their replies; made by `Client.requester()`.

    It may be used by several tasks at once, also of several loops.
    """

    @property
    def reply_topic(self) -> str:
        """Topic of the replies."""
        return self.blocking.reply_topic

    async def request(self, content: object, *, timeout_ms: int | None = None, **options: object) -> Message:
        """Send a request and await its first reply; cancelling does not cancel the request.

        The arguments and errors are those of the blocking client.
        """
        exchange, replies = self._begin(content, 1, timeout_ms, options)
        async for reply in replies:
            return reply
        raise exchange.unanswered()

    def request_many(
        self, content: object, *, repliers: int | None = 1, timeout_ms: int | None = None, **options: object
    ) -> Replies:
        """Send a request and return an asynchronous iterator of its replies; see the blocking client."""
        return self._begin(content, repliers, timeout_ms, options)[1]

    def _begin(
        self, content: object, repliers: int | None, timeout_ms: int | None, options: dict[str, object]
    ) -> tuple[Exchange, Replies]:
        arrived: asyncio.Queue[Message | BaseException] = asyncio.Queue()
        deliver = partial(running_loop_bridge().call_soon, arrived.put_nowait)
        with translating():
            exchange = self.blocking.send(deliver, content, repliers, timeout_ms, options)
        return exchange, Replies(exchange, arrived)


class Replier(Closable):
    """Answers the requests of one topic; made by `Client.replier()`."""

    def __init__(
        self, consumer: Consumer, open_producer: Callable[[str], Awaitable[Producer]], replying: Replying
    ) -> None:
        self.consumer, self._open, self._replying = consumer, open_producer, replying
        self._producers: EndpointPool[Producer] = EndpointPool(lambda producer: producer.blocking.sender.closed)

    async def run(self, *, concurrency: int = 100) -> None:
        """Answer requests, `concurrency` at a time, until `stop()`, a close or a SIGTERM; see `Consumer.process()`."""
        await self.consumer.process(self._handle, concurrency=concurrency, on_error=self._replying.choose_action)

    def stop(self) -> None:
        """Stop every `run()`, which returns after its current requests are answered; this does not wait."""
        self.consumer.stop_processing()

    async def close(self) -> None:
        """Close; unanswered requests are redelivered to another replier."""
        try:
            if not self.consumer.blocking.is_closed:
                await self.consumer.close()
        finally:
            await self._producers.close()

    async def _handle(self, message: Message) -> None:
        await drive(self._replying.steps(message, self._send))

    async def _send(self, answer: Answer, properties: dict[str, str], content: object) -> None:
        with as_not_sent():
            async with self._producers.use(answer.topic, partial(self._open, answer.topic)) as producer:
                await producer.send(content, properties=properties)
