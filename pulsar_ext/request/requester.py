"""Requesters of the blocking client: a producer of requests, and a thread that takes the replies."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.results import AlreadyClosed, exception_of

from .correlations import Correlations, Exchange, check_request
from .envelope import request_properties

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.message import Message

    from .opening import RequesterOptions

__all__ = ["Replies", "Requester"]

_OK = pulsar.Result.Ok
_AGAIN_SECONDS = 1.0
_log = logging.getLogger("pulsar_ext")


class Replies:
    """The replies to one request, one after the other; made by `Requester.request_many()`.

    Args:
        exchange: the request.
        arrived: what its replies are delivered to.
        deadline: a monotonic time in seconds.
    """

    def __init__(self, exchange: Exchange, arrived: SimpleQueue[Any], deadline: float) -> None:
        self._exchange, self._arrived, self._deadline = exchange, arrived, deadline

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Wait for the next reply.

        Raises:
            NoReply: not all of them came in time.
            RequestFailed: the replier says that it failed.
            pulsar.PulsarException: the request was not persisted; `AlreadyClosed`, if the requester is closed.
        """
        while not self._exchange.is_done:
            try:
                left = max(self._deadline - time.monotonic(), 0)
                came = self._arrived.get(timeout=min(left, threading.TIMEOUT_MAX))
            except Empty:
                self._exchange.expire()
                break
            reply = self._exchange.take(came)
            if reply is not None:
                return reply
        raise StopIteration


class Requester:
    """Sends requests to one topic, and gives their replies; made by `Client.requester()`.

    It may be used by any number of threads at once.
    """

    def __init__(self, context: ClientContext, options: RequesterOptions) -> None:
        self._context, self._options = context, options
        self._correlations = Correlations()
        self._consumer: Any = None
        self._producer: Any = None

    def open(self) -> Self:
        """Subscribe to the replies, and begin to receive them; a Ctrl-C leaves what `close()` finds."""
        opener = self._context.opener
        self._consumer = opener.subscribe(**self._options.consuming())
        self._producer = opener.create_producer(**self._options.producing())
        reading = (self._consumer, self._correlations)
        threads.start(_read, *reading, name="pulsar-ext-replies")
        return self

    @property
    def reply_topic(self) -> str:
        """Where the replies go."""
        return self._options.replies

    def request(self, content: Any, *, timeout_ms: int | None = None, **options: Any) -> Message:
        """Send a request, and wait for the first reply.

        Args:
            content: of the request, as for `Producer.send()`.
            timeout_ms: how long it may take, in milliseconds; None for the requester's own.
            **options: of `Producer.send_async()`, such as `properties` and `partition_key`.

        Raises:
            NoReply: none came in time.
            RequestFailed: the replier says that it failed.
            InvalidUse: in a callback of the client's, which it would wait for.
            pulsar.PulsarException: the request was not persisted; `AlreadyClosed`, if this is closed.
        """
        exchange, replies = self._begin(content, 1, timeout_ms, options)
        for reply in replies:
            return reply
        raise exchange.unanswered()  # the replier has ended its replies without any

    def request_many(
        self, content: Any, *, repliers: int | None = 1, timeout_ms: int | None = None, **options: Any
    ) -> Replies:
        """Send a request, and give an iterator of its replies, as they come.

        Args:
            content: of the request, as for `Producer.send()`.
            repliers: how many repliers answer, each of a subscription of its own: when all of them have ended their
                replies, the iterator ends. None if nobody knows: it ends when the time is over.
            timeout_ms: how long all of it may take, in milliseconds; None for the requester's own.
            **options: of `Producer.send_async()`, such as `properties` and `partition_key`.

        Raises:
            InvalidUse: one of these is not valid; nothing was sent. The rest is raised as the replies are taken.
        """
        return self._begin(content, repliers, timeout_ms, options)[1]

    def _begin(
        self, content: Any, repliers: int | None, timeout_ms: int | None, options: dict[str, Any]
    ) -> tuple[Exchange, Replies]:
        self._context.callbacks.refuse("request")
        arrived: SimpleQueue[Any] = threads.Queue()
        exchange = self.send(arrived.put, content, repliers, timeout_ms, options)
        return exchange, Replies(exchange, arrived, time.monotonic() + exchange.timeout_ms / 1000)

    def send(
        self, deliver: Any, content: Any, repliers: int | None, timeout_ms: int | None, options: dict[str, Any]
    ) -> Exchange:
        """Send a request, and have its replies, or an error, delivered on any thread; see `Exchange`."""
        timeout_ms = self._options.timeout_ms if timeout_ms is None else timeout_ms
        check_request(repliers, timeout_ms)
        exchange = Exchange(deliver, self._options.topic, repliers, timeout_ms)
        named = request_properties(options.get("properties"), exchange.correlation_id, self.reply_topic)
        self._correlations.begin(exchange)

        def on_sent(result: Any, _: Any) -> None:
            if result != _OK:
                exchange.deliver(exception_of(result))

        self._producer.send_async(content, on_sent, **{**options, "properties": named})
        return exchange

    def close(self) -> None:
        """Delete the subscription of the replies, and close; requests that wait raise `AlreadyClosed`.

        Closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or refused; it is closed all the same.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._correlations.close)
            if self._producer is not None:
                closing.callback(self._producer.close)
            if self._consumer is not None and not self._consumer.is_closed:
                closing.callback(self._consumer.close)
                self._consumer.unsubscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(consumer: Consumer, correlations: Correlations) -> None:
    """Hand over every reply, until the consumer is closed. It must not keep the requester."""
    while not consumer.is_closed:
        try:
            for message in consumer:
                correlations.hand_over(message)
                consumer.acknowledge(message)
        except AlreadyClosed:
            break
        except Exception:  # noqa: BLE001  # whatever it is, the next reply has to be handed over
            _log.exception("A requester's receive failed; it is tried again in a second")
            threads.sleep(_AGAIN_SECONDS)
    correlations.close()
