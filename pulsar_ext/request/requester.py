"""Requesters of the blocking client: a producer of requests, and a thread that receives the replies.

`Exchange` and `Correlations` (pure) decide which replies belong to which request, and when a request has all of them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.results import AlreadyClosed, Result, exception_of
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import InvalidUse, NoReply, RequestFailed
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message
from pulsar_ext.produce.options import Options
from pulsar_ext.producer import Producer

from .envelope import Reply, request_properties

Delivered = Message | BaseException


@dataclass(eq=False)
class Exchange:
    """A request, and its replies.

    If a replier dies while it replies, its request is redelivered to another one, which begins again: a reply of the
    same replier with the same index is a duplicate.
    """

    deliver: Callable[[Delivered], object]
    topic: str
    repliers: int | None
    timeout_ms: int
    correlation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_done: bool = False
    _seen: dict[str, set[int]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def take(self, delivered: Delivered) -> Message | None:
        """Return what was delivered if it is a new reply; raise the error that was delivered, or that it reports."""
        if isinstance(delivered, BaseException):
            self.is_done = True
            raise delivered
        reply = Reply.of(delivered.properties())
        if reply is None:
            return None
        seen = self._seen.setdefault(reply.replier, set())
        is_new = reply.index is not None and reply.index not in seen
        if reply.index is not None:
            seen.add(reply.index)
        if reply.error is not None:
            self._counts[reply.replier] = 0
        elif reply.count is not None:
            self._counts[reply.replier] = reply.count
        if self.repliers is not None:
            ended = sum(len(self._seen[one]) >= count for one, count in self._counts.items())
            self.is_done = ended >= self.repliers
        if reply.error is not None:
            raise RequestFailed(reply.error)
        return delivered if is_new else None

    def expire(self) -> None:
        """End the request after its timeout."""
        self.is_done = True
        if self.repliers is not None:
            raise self.unanswered()

    def unanswered(self) -> NoReply:
        """Return the error of a request that was not answered completely."""
        replies = sum(map(len, self._seen.values()))
        count = f"{replies} replies came" if replies else "No reply came"
        return NoReply(
            f"{count} to the request on {self.topic} within {self.timeout_ms} ms, and more were expected. It may "
            "still be answered; send it again only if the application can handle a duplicate.",
            topic=self.topic,
            correlation_id=self.correlation_id,
            replies=replies,
        )


class Correlations:
    """The pending requests of one requester, kept weakly: the waiting caller keeps its own."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakValueDictionary[str, Exchange] = weakref.WeakValueDictionary()
        self._is_closed = False

    def begin(self, exchange: Exchange) -> None:
        """Register a request for its replies."""
        self._waiting[exchange.correlation_id] = exchange
        if self._is_closed:
            raise _closed()

    def deliver_reply(self, message: Message) -> None:
        """Deliver a message to its request; drop it if the request is not pending."""
        reply = Reply.of(message.properties())
        waiting = None if reply is None else self._waiting.get(reply.correlation_id)
        if waiting is not None:
            waiting.deliver(message)

    def close(self) -> None:
        """End every pending and every later request with `AlreadyClosed`."""
        self._is_closed = True
        for waiting in list(self._waiting.values()):
            waiting.deliver(_closed())


def check_request(repliers: object, timeout_ms: object) -> None:
    """Raise if an argument of a request is invalid."""
    if repliers is not None and (type(repliers) is not int or repliers < 1):
        raise InvalidUse(f"repliers must be an int >= 1, or None, got {repliers!r}.")
    if type(timeout_ms) is not int or timeout_ms < 1:
        raise InvalidUse(f"timeout_ms must be an int >= 1, got {timeout_ms!r}.")


def _closed() -> Exception:
    error: Exception = pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the requester or its client is closed.")
    return error


_OK = pulsar.Result.Ok
_RETRY_SECONDS = 1.0
_log = logging.getLogger("pulsar_ext")


class Replies(Iterator[Message]):
    """The replies to one request, one after the other; created by `Requester.request_many()`."""

    def __init__(self, exchange: Exchange, arrived: SimpleQueue[Delivered], deadline: float) -> None:
        self._exchange, self._arrived, self._deadline = exchange, arrived, deadline

    def __next__(self) -> Message:
        """Wait for the next reply.

        Raises:
            NoReply: not all replies arrived in time.
            RequestFailed: the replier reports an error.
            pulsar.PulsarException: the request was not persisted; `AlreadyClosed` if the requester is closed.
        """
        while not self._exchange.is_done:
            try:
                left = max(self._deadline - time.monotonic(), 0)
                delivered = self._arrived.get(timeout=min(left, threading.TIMEOUT_MAX))
            except Empty:
                self._exchange.expire()
                break
            reply = self._exchange.take(delivered)
            if reply is not None:
                return reply
        raise StopIteration


class Requester(contextlib.AbstractContextManager["Requester"]):
    """Sends requests to one topic, and returns their replies; created by `Client.requester()`.

    It is thread-safe.
    """

    def __init__(
        self,
        context: ClientContext,
        topic: str,
        reply_topic: str | None,
        subscription_name: str | None,
        timeout_ms: int,
        schema: object,
        reply_schema: object,
        producer_options: Arguments,
    ) -> None:
        check_request(None, timeout_ms)
        name = uuid.uuid4().hex
        own_topic = f"{TopicName.parse(topic)}-replies-{name}"
        self.reply_topic: Final = reply_topic or own_topic
        """Topic of the replies."""
        self._context, self._topic, self._timeout_ms = context, topic, timeout_ms
        self._consumer_arguments: Arguments = {
            "topic": self.reply_topic,
            "subscription_name": subscription_name or f"requester-{name}",
            "schema": reply_schema,
        }
        self._producer_arguments: Arguments = {
            "topic": topic,
            "schema": schema,
            "chunking_enabled": not producer_options.get("batching_enabled", False),
            "max_pending_messages": 0,  # requests are limited by their callers, which wait for the replies
            **producer_options,
        }
        self._correlations = Correlations()
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    def open(self) -> Self:
        """Subscribe to the replies, and begin to receive them; if that fails, close what was opened."""
        opener = self._context.opener
        try:
            self._consumer = opener.subscribe(**self._consumer_arguments)
            self._producer = producer = opener.create_producer(**self._producer_arguments)
            self._send_async = producer.send_async
            threads.start(_read, self._consumer, self._correlations, name="pulsar-ext-replies")
        except BaseException:  # such as a Ctrl-C: the caller does not get the requester
            with contextlib.suppress(pulsar.PulsarException):
                self.close()
            raise
        return self

    def request(self, content: object, *, timeout_ms: int | None = None, **options: object) -> Message:
        """Send a request, and wait for the first reply.

        Args:
            content: the content of the request, as for `Producer.send()`.
            timeout_ms: the timeout in milliseconds; None for the requester's own.
            **options: arguments of `Producer.send_async()`, such as `properties` and `partition_key`.

        Raises:
            NoReply: no reply arrived in time.
            RequestFailed: the replier reports an error.
            InvalidUse: called in a send callback of the client, which it would wait for.
            pulsar.PulsarException: the request was not persisted; `AlreadyClosed` if this is closed.
        """
        exchange, replies = self._begin(content, 1, timeout_ms, options)
        for reply in replies:
            return reply
        raise exchange.unanswered()  # the replier has ended its replies without any

    def request_many(
        self, content: object, *, repliers: int | None = 1, timeout_ms: int | None = None, **options: object
    ) -> Replies:
        """Send a request, and return an iterator of its replies as they arrive.

        Args:
            content: the content of the request, as for `Producer.send()`.
            repliers: the number of repliers that answer, each with its own subscription. The iterator ends when all of
                them have ended their replies. None if it is unknown: the iterator ends after the timeout.
            timeout_ms: the timeout of all replies in milliseconds; None for the requester's own.
            **options: arguments of `Producer.send_async()`, such as `properties` and `partition_key`.

        Raises:
            InvalidUse: an argument is invalid; nothing was sent. Other errors are raised by the iterator.
        """
        return self._begin(content, repliers, timeout_ms, options)[1]

    def _begin(
        self, content: object, repliers: int | None, timeout_ms: int | None, options: Options
    ) -> tuple[Exchange, Replies]:
        self._context.callbacks.raise_inside("request")
        arrived: SimpleQueue[Delivered] = threads.Queue()
        exchange = self.send(arrived.put, content, repliers, timeout_ms, options)
        return exchange, Replies(exchange, arrived, time.monotonic() + exchange.timeout_ms / 1000)

    def send(
        self,
        deliver: Callable[[Delivered], object],
        content: object,
        repliers: int | None,
        timeout_ms: int | None,
        options: Options,
    ) -> Exchange:
        """Send a request; its replies, or an error, are delivered on any thread, see `Exchange`."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        check_request(repliers, timeout_ms)
        exchange = Exchange(deliver, self._topic, repliers, timeout_ms)
        named = request_properties(options.get("properties"), exchange.correlation_id, self.reply_topic)
        self._correlations.begin(exchange)

        def on_sent(result: Result, _: MessageId) -> None:
            if result != _OK:
                exchange.deliver(exception_of(result))

        self._send_async(content, on_sent, **{**options, "properties": named})
        return exchange

    def close(self) -> None:
        """Delete the subscription of the replies, and close; pending requests raise `AlreadyClosed`.

        Closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or rejected the close; this is closed nevertheless.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._correlations.close)
            if self._producer is not None:
                closing.callback(self._producer.close)
            if self._consumer is not None and not self._consumer.is_closed:
                closing.callback(self._consumer.close)
                self._consumer.unsubscribe()

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(consumer: Consumer, correlations: Correlations) -> None:
    """Deliver every reply until the consumer is closed, without a reference to the requester."""
    while not consumer.is_closed:
        try:
            for message in consumer:
                correlations.deliver_reply(message)
                consumer.acknowledge(message)
        except AlreadyClosed:
            break
        except Exception:  # noqa: BLE001  # the next replies must still be delivered
            _log.exception("A requester's receive failed; retrying in 1 s")
            threads.sleep(_RETRY_SECONDS)
    correlations.close()
