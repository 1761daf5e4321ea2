"""Requesters of the blocking client: a producer of requests, and a thread that takes the replies.

`Exchange` and `Correlations` (pure) decide which replies belong to which request, and when a request has all of them.
`RequesterOptions` has the arguments of the producer and the consumer, for the awaited client too.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
import weakref
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.results import AlreadyClosed, exception_of
from pulsar_ext.errors import InvalidUse, NoReply, RequestFailed
from pulsar_ext.ids.topic_name import TopicName

from .envelope import Reply, request_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.message import Message


class Exchange:
    """One request, and the replies to it.

    A replier that died amid its replies has its request come to another one, which begins anew: a reply of the same
    replier with the same index is the same reply.

    Args:
        deliver: is given what comes for this request, a message or an error, on any thread.
        topic: of the request.
        repliers: how many repliers have to end their replies; None if nobody knows.
        timeout_ms: how long all of it may take, in milliseconds.
    """

    def __init__(
        self, deliver: Callable[[Message | BaseException], object], topic: str, repliers: int | None, timeout_ms: int
    ) -> None:
        self.correlation_id = uuid.uuid4().hex
        self.deliver = deliver
        self.timeout_ms = timeout_ms
        self._topic, self._repliers = topic, repliers
        self._seen: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        self.is_done = False
        """Whether nothing more is waited for."""

    def take(self, came: Message | BaseException) -> Message | None:
        """Take what was delivered; give the message if it is a reply to hand out.

        Raises:
            RequestFailed: a replier says that it failed; others may have more to say.
            BaseException: the error that was delivered.
        """
        if isinstance(came, BaseException):
            self.is_done = True
            raise came
        reply = Reply.of(came.properties())
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
        if self._repliers is not None:
            ended = sum(len(self._seen[one]) >= count for one, count in self._counts.items())
            self.is_done = ended >= self._repliers
        if reply.error is not None:
            raise RequestFailed(reply.error)
        return came if is_new else None

    def expire(self) -> None:
        """End it: the time is over.

        Raises:
            NoReply: more was waited for.
        """
        self.is_done = True
        if self._repliers is not None:
            raise self.unanswered()

    def unanswered(self) -> NoReply:
        """Make the error of a request that was not answered, or not to the end."""
        replies = sum(map(len, self._seen.values()))
        came = f"{replies} replies came" if replies else "No reply came"
        return NoReply(
            f"{came} to the request on {self._topic} within {self.timeout_ms} ms, and more were waited for. It may "
            "still be answered, or be under way: whether to ask again is for the application to know.",
            topic=self._topic,
            correlation_id=self.correlation_id,
            replies=replies,
        )


class Correlations:
    """The requests of one requester that wait for replies, weakly: whoever waits keeps its own."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakValueDictionary[str, Exchange] = weakref.WeakValueDictionary()
        self._is_closed = False

    def begin(self, exchange: Exchange) -> None:
        """Have replies delivered to a request.

        Raises:
            pulsar.AlreadyClosed: no more replies come.
        """
        self._waiting[exchange.correlation_id] = exchange
        if self._is_closed:
            raise _closed()

    def hand_over(self, message: Any) -> None:
        """Deliver a message to its request; one that nobody waits for is dropped."""
        reply = Reply.of(message.properties())
        waiting = None if reply is None else self._waiting.get(reply.correlation_id)
        if waiting is not None:
            waiting.deliver(message)

    def close(self) -> None:
        """Have every request that waits, and every later one, end with `AlreadyClosed`."""
        self._is_closed = True
        for known in self._waiting.valuerefs():
            if (waiting := known()) is not None:
                waiting.deliver(_closed())


def check_request(repliers: Any, timeout_ms: Any) -> None:
    """Refuse what a request cannot have.

    Raises:
        InvalidUse: there are no so many repliers, or there is no such time.
    """
    if repliers is not None and (type(repliers) is not int or repliers < 1):
        raise InvalidUse(f"repliers is expected to be an int, 1 or more, or None, not {repliers!r}.")
    if type(timeout_ms) is not int or timeout_ms < 1:
        raise InvalidUse(f"timeout_ms is expected to be a whole number of milliseconds, 1 or more, not {timeout_ms!r}.")


def _closed() -> Exception:
    error: Exception = pulsar.AlreadyClosed("Pulsar error: AlreadyClosed: the requester, or its client, is closed.")
    return error


@dataclass(frozen=True, slots=True)
class RequesterOptions:
    """What a requester is made of; see `Client.requester()`.

    Raises:
        InvalidUse: one of them is not valid.
    """

    topic: str
    reply_topic: str | None
    subscription_name: str | None
    timeout_ms: int
    schema: Any
    reply_schema: Any
    producer_options: dict[str, Any]
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        check_request(None, self.timeout_ms)
        TopicName.parse(self.topic)

    @property
    def replies(self) -> str:
        """The topic of the replies: the given one, or one of this requester's own."""
        return self.reply_topic or f"{TopicName.parse(self.topic)}-replies-{self._name}"

    def producing(self) -> dict[str, Any]:
        """Give the arguments of `create_producer()`."""
        chunks = not self.producer_options.get("batching_enabled", False)
        # No limit of what is pending: those who send requests limit them, and wait for the replies.
        fixed = {"topic": self.topic, "schema": self.schema, "chunking_enabled": chunks, "max_pending_messages": 0}
        return {**fixed, **self.producer_options}

    def consuming(self) -> dict[str, Any]:
        """Give the arguments of `subscribe()`."""
        return {
            "topic": self.replies,
            "subscription_name": self.subscription_name or f"requester-{self._name}",
            "schema": self.reply_schema,
        }


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
