"""Repliers of the blocking client: `process()` with a handler whose results are sent back.

`Replying` (pure) contains the steps from a request to its replies, for the asyncio client too. `ReplyProducers` keeps
a producer for each reply topic in use, as requesters come and go; for the asyncio client, `EndpointPool` does.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.results import UNREACHABLE, AlreadyClosed
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import InvalidUse, PulsarExtError, RequestFailed
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.message import Message
from pulsar_ext.process import REDELIVER, Action, Steps, check_on_error, drive
from pulsar_ext.producer import Producer

from .envelope import Answer, in_same_namespace

Send = Callable[[Answer, dict[str, str], object], object]
"""Sends one reply, from its properties and its content."""

_log = logging.getLogger("pulsar_ext")

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
    return consumer, {"schema": reply_schema, "chunking_enabled": True, "max_pending_messages": 0}


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
            idle = [topic for topic, (_, used) in self._known.items() if used < before]
            producers = [self._known.pop(topic)[0] for topic in idle]
        for one in producers:
            _close(one)

    def close(self) -> None:
        """Close all producers, including those that are being opened."""
        with self._lock:
            self._is_closed = True
            producers = [producer for producer, _ in self._known.values()]
            self._known.clear()
        for one in producers:
            one.close()


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
