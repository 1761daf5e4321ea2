"""Request and reply of the blocking client.

The properties of messages (pure) let a client in any language be either side. A requester has a producer of requests,
and a thread that receives the replies: `Exchange` and `Correlations` (pure) decide which replies belong to which
request, and when a request has all of them. A replier is a `process()` with a handler whose results are sent back:
`Replying` (pure) contains the steps from a request to its replies, for the asyncio client too. `ReplyProducers` keeps a
producer for each reply topic in use, as requesters come and go; for the asyncio client, `EndpointPool` does.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from queue import Empty, SimpleQueue
from typing import Any, Final, Self

import pulsar

from ._native import threads
from ._native.locks import Lock
from ._native.results import UNREACHABLE, AlreadyClosed, Result, exception_of
from ._native.signatures import Arguments
from ._runtime.context import ClientContext
from .consumer import Consumer
from .errors import InvalidUse, NoReply, PulsarExtError, RequestFailed
from .ids.message_id import MessageId
from .ids.topic_name import TopicName
from .message import Message
from .process import REDELIVER, Action, Steps, check_on_error, drive
from .produce.options import Options
from .producer import Producer

_log = logging.getLogger("pulsar_ext")
_OK: Final = pulsar.Result.Ok

CORRELATION: Final = "CORRELATION_ID"
REPLY_TOPIC: Final = "REPLY_TOPIC"
REPLIER: Final = "REPLIER"
INDEX: Final = "REPLY_INDEX"
COUNT: Final = "REPLY_COUNT"
ERROR: Final = "REPLY_ERROR"

_NUMBER: Final = re.compile("[0-9]{1,18}")


def request_properties(given: Mapping[str, str] | None, correlation_id: str, reply_topic: str) -> dict[str, str]:
    """Return the properties of a request."""
    ours = {CORRELATION: correlation_id, REPLY_TOPIC: reply_topic}
    if given and not given.keys().isdisjoint(ours):
        raise InvalidUse(f"A requester sets the properties {', '.join(ours)} of a request itself. Nothing was sent.")
    return {**(given or {}), **ours}


@dataclass(frozen=True, slots=True)
class Reply:
    """The properties of a reply."""

    correlation_id: str
    replier: str = ""
    """The replier's name, which all processes of one replier share."""
    index: int | None = 0
    """The index among this replier's replies; None if it only ends the replies."""
    count: int | None = 1
    """The number of this replier's replies, in its last message."""
    error: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Read the properties of a message; None if it is not a reply. A correlation id alone marks a single reply."""
        correlation_id = properties.get(CORRELATION)
        if correlation_id is None:
            return None
        replier, error = properties.get(REPLIER, ""), properties.get(ERROR)
        index, count = properties.get(INDEX), properties.get(COUNT)
        if error is None and index is None and count is None:
            return cls(correlation_id, replier)
        if not all(one is None or _NUMBER.fullmatch(one) for one in (index, count)):
            return None
        place, places = (None if one is None else int(one) for one in (index, count))
        return cls(correlation_id, replier, place, places, error)


class Answer:
    """The messages of one replier to one request: the properties of each."""

    def __init__(self, topic: str, correlation_id: str, replier: str) -> None:
        self.topic = topic
        self._common = {CORRELATION: correlation_id, REPLIER: replier}
        self._count = 0

    @classmethod
    def to(cls, properties: Mapping[str, str], replier: str) -> Self | None:
        """Begin the answer to a request with these properties; None if the request wants no replies."""
        topic, correlation_id = properties.get(REPLY_TOPIC), properties.get(CORRELATION)
        return cls(topic, correlation_id, replier) if topic and correlation_id is not None else None

    def only(self) -> dict[str, str]:
        """Return the properties of a single reply."""
        return {**self._common, INDEX: "0", COUNT: "1"}

    def next(self) -> dict[str, str]:
        """Return the properties of the next of several replies."""
        self._count += 1
        return {**self._common, INDEX: str(self._count - 1)}

    def end(self) -> dict[str, str]:
        """Return the properties of the message that ends the replies with their number."""
        return {**self._common, COUNT: str(self._count)}

    def failed(self, error: BaseException) -> dict[str, str]:
        """Return the properties of an error that ends the replies; only `RequestFailed` has no confidential text."""
        known = isinstance(error, RequestFailed)
        return {**self._common, ERROR: str(error) if known else f"The replier's handler raised {type(error).__name__}."}


def in_same_namespace(request_topic: str, reply_topic: str) -> bool:
    """Return whether a reply topic is in the request topic's namespace, as a request must not write elsewhere."""
    try:
        asked, replied = TopicName.parse(request_topic), TopicName.parse(reply_topic)
    except InvalidUse:
        return False
    return (asked.tenant, asked.namespace) == (replied.tenant, replied.namespace)


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


_RETRY_SECONDS = 1.0


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


Send = Callable[[Answer, dict[str, str], object], object]
"""Sends one reply, from its properties and its content."""

_TRANSIENT = (*UNREACHABLE, AlreadyClosed, pulsar.ProducerQueueIsFull)
_IDLE_SECONDS = 60.0
"""Idle time after which a producer is closed; longer than a send takes."""


def replier_arguments(
    topic: str, subscription_name: str, schema: object, reply_schema: object, consumer_options: Arguments
) -> tuple[Arguments, Arguments]:
    """Return the arguments of `subscribe()`, and of `create_producer()` for any reply topic; see `Client.replier()`."""
    TopicName.parse(topic)
    if "message_listener" in consumer_options:
        raise InvalidUse("A replier receives with its handler; message_listener is not supported.")
    consumer: Arguments = {
        "topic": topic,
        "subscription_name": subscription_name,
        "schema": schema,
        "consumer_type": pulsar.ConsumerType.Shared,
        "initial_position": pulsar.InitialPosition.Earliest,
        "negative_ack_redelivery_delay_ms": 1_000,
        **consumer_options,
    }
    # A reply is not rejected for its size or number.
    unlimited = {"batching_enabled": False, "chunking_enabled": True, "max_pending_messages": 0}
    return consumer, {"schema": reply_schema, **unlimited}


class NotSentError(PulsarExtError):
    """A reply could not be sent, and may be sent later: its request has to be redelivered."""

    retriable = True


class ReplyProducers:
    """Opens producers of replies on demand, and closes idle ones on demand, so that their topics can be deleted."""

    def __init__(self, open_producer: Callable[[str], Producer], clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = open_producer, clock
        self._known: dict[str, tuple[Producer, float]] = {}
        """By topic: the producer, and the time of its last use."""
        self._lock = Lock()
        self._is_closed = False

    def producer(self, topic: str) -> Producer:
        """Return the producer of a topic; open it if necessary, and raise `AlreadyClosed` if this is closed."""
        known, _ = self._known.get(topic, (None, 0.0))
        opened = self._open(topic) if known is None or known.sender.closed else None
        now = self._clock()
        with self._lock:
            known, _ = self._known.get(topic, (opened, now))
            producer = opened if known is None or known.sender.closed else known
            if producer is not None and not self._is_closed:
                self._known[topic] = (producer, now)
        if opened is not None and (opened is not producer or self._is_closed):  # another thread was faster
            _close(opened)
        if producer is None or self._is_closed:  # closed in between
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the replier or its producer is closed.")
        return producer

    def close_idle(self) -> None:
        """Close idle producers, which may block; log failures."""
        before = self._clock() - _IDLE_SECONDS
        with self._lock:
            # No condition in a loop here: see `_native/locks.py`.
            idle = list(filter(lambda topic: self._known[topic][1] < before, self._known))
            producers = [self._known.pop(topic)[0] for topic in idle]
        for one in producers:
            _close(one)

    def close(self) -> None:
        """Close all producers, including those that are being opened; then raise an error of one, if any."""
        with self._lock:
            self._is_closed = True
            producers = [producer for producer, _ in self._known.values()]
            self._known.clear()
        with contextlib.ExitStack() as closing:
            for one in producers:
                closing.callback(one.close)


def _close(producer: Producer) -> None:
    try:
        producer.close()
    except pulsar.PulsarException:
        _log.warning("A producer of replies could not be closed", exc_info=True)


@contextlib.contextmanager
def as_not_sent() -> Iterator[None]:
    """Raise `NotSentError` for an error after which a reply may be sent later."""
    try:
        yield
    except _TRANSIENT as error:
        raise NotSentError(f"A reply could not be sent; its request is redelivered: {error}") from error


END = object()
"""Marks the end of an iterator of replies."""


@dataclass(frozen=True, slots=True)
class Replying:
    """The handling of a request by a replier."""

    handler: Callable[[Message], object]
    """Called with each request; it returns the reply, or an iterator of several replies."""
    name: str
    on_error: Action | Callable[[Message, Exception], object] | None = None
    """The action for a request whose handler raised, as in `process()`; None to report to the requester."""
    may_reply_to: Callable[[str, str], bool] = in_same_namespace
    """Returns whether replies to a request on the first topic may be sent to the second one."""
    has_letters: bool = False
    """Whether the consumer of the requests has retry letters."""

    def __post_init__(self) -> None:
        if self.on_error is not None:
            check_on_error(self.on_error, has_letters=self.has_letters)
        if not callable(self.handler):
            raise InvalidUse(f"handler must be a function of a request, got {self.handler!r}.")

    def steps(self, message: Message, send: Send) -> Steps:
        """Yield the steps of one request."""
        answer = Answer.to(message.properties(), self.name)
        if answer is not None and not self._may_reply(message.topic_name(), answer.topic):
            _log.error("A request on %s has a reply topic that is not allowed: %s", message.topic_name(), answer.topic)
            return
        try:
            yield from self._reply(message, answer, send)
        except NotSentError:
            raise
        except Exception as error:
            if self.on_error is not None and not isinstance(error, RequestFailed):
                raise
            _log.log(
                logging.DEBUG if isinstance(error, RequestFailed) else logging.ERROR,
                "A request on %s could not be answered",
                message.topic_name(),
                exc_info=error,
            )
            if answer is not None:
                yield from _report_failure(answer, error, send)

    def choose_action(self, message: Message, error: Exception) -> Any:
        """Return the action for a request that could not be answered; the `on_error` of `process()`."""
        action = self.on_error
        if action is None or isinstance(error, NotSentError):
            action = REDELIVER
        elif callable(action):
            return action(message, error)
        _log.error("A request on %s could not be answered; %r", message.topic_name(), action, exc_info=error)
        return action

    def _may_reply(self, topic: str, reply_topic: str) -> bool:
        """Return the application's decision; False if it raises."""
        try:
            return self.may_reply_to(topic, reply_topic)
        except Exception:  # noqa: BLE001  # otherwise the request would be redelivered forever
            _log.exception("%r raised for a request on %s", self.may_reply_to, topic)
            return False

    def _reply(self, message: Message, answer: Answer | None, send: Send) -> Steps:
        result = yield partial(self.handler, message)
        if not isinstance(result, Iterator | AsyncIterator):
            if answer is not None:
                yield partial(send, answer, answer.only(), result)
            return
        step = partial(next, result, END) if isinstance(result, Iterator) else partial(anext, result, END)
        while (reply := (yield step)) is not END:
            if answer is not None:
                yield partial(send, answer, answer.next(), reply)
        if answer is not None:
            yield partial(send, answer, answer.end(), None)


def _report_failure(answer: Answer, error: Exception, send: Send) -> Steps:
    """Report an error to the requester; if that fails too, only log it."""
    try:
        yield partial(send, answer, answer.failed(error), None)
    except NotSentError:
        raise
    except Exception:  # noqa: BLE001  # such as a topic that rejects it
        _log.exception("The error could not be reported to the requester at %s", answer.topic)


class Replier(contextlib.AbstractContextManager["Replier"]):
    """Answers the requests on one topic; created by `Client.replier()`.

    Several processes with the same subscription share the requests.
    """

    def __init__(
        self, context: ClientContext, replying: Replying, consumer_arguments: Arguments, producer_arguments: Arguments
    ) -> None:
        if iscoroutinefunction(replying.handler):
            raise InvalidUse("The handler is an async function; use replier() of pulsar_ext.asyncio.")
        opener, self._replying = context.opener, replying
        self._producers = ReplyProducers(lambda topic: opener.create_producer(topic, **producer_arguments))
        self.consumer: Consumer = opener.subscribe(**consumer_arguments)

    def run(self, *, concurrency: int = 1) -> None:
        """Answer requests, `concurrency` at a time, until `stop()`, a close or a SIGTERM; see `Consumer.process()`.

        A request is acknowledged when its replies are persisted. If the process dies before, the request is
        redelivered to another replier.

        Args:
            concurrency: the number of requests handled at once, each on its own thread.

        Raises:
            InvalidUse: `concurrency` is not an int >= 1.
            pulsar.AlreadyClosed: the replier was closed before.
            pulsar.PulsarException: a receive failed.
        """
        self.consumer.process(self._handle, concurrency=concurrency, on_error=self._replying.choose_action)

    def stop(self) -> None:
        """Stop every `run()`: it receives no more, and returns when running handlers have answered. Does not wait."""
        self.consumer.stop_processing()

    def close(self) -> None:
        """Close; unanswered requests are redelivered to another replier. Closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or rejected the close; this is closed nevertheless.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._producers.close)
            self.consumer.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handle(self, message: Message) -> None:
        drive(self._replying.steps(message, self._send))

    def _send(self, answer: Answer, properties: dict[str, str], content: object) -> None:
        with as_not_sent():
            self._producers.producer(answer.topic).send(content, properties=properties)
        self._producers.close_idle()
