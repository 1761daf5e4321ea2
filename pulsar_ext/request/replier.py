"""Repliers of the blocking client: `process()` with a handler whose results are sent back.

`Replying` (pure) has the steps from a request to its replies, for the awaited client too. `ReplyProducers` keeps a
producer for each reply topic that is in use: requesters come and go.
`ReplierOptions` has the arguments of the consumer and the producers.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.results import UNREACHABLE, AlreadyClosed, exception_of
from pulsar_ext._runtime.condition import Flag
from pulsar_ext.errors import InvalidUse, PulsarExtError, RequestFailed
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.process.actions import Redeliver, check_on_error
from pulsar_ext.process.processing import drive

from .envelope import Answer, in_same_namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.message import Message
    from pulsar_ext.process.actions import Action
    from pulsar_ext.process.processing import Steps


_log = logging.getLogger("pulsar_ext")

_OK = pulsar.Result.Ok
_AGAIN = (*UNREACHABLE, AlreadyClosed, pulsar.ProducerQueueIsFull)
_IDLE_SECONDS = 60.0
"""Longer than a send takes."""


_REDELIVERY_MILLIS = 1_000


@dataclass(frozen=True, slots=True)
class ReplierOptions:
    """What a replier is made of; see `Client.replier()`.

    Raises:
        InvalidUse: one of them is not valid.
    """

    topic: str
    subscription_name: str
    schema: Any
    reply_schema: Any
    consumer_options: dict[str, Any]

    def __post_init__(self) -> None:
        TopicName.parse(self.topic)
        if "message_listener" in self.consumer_options:
            raise InvalidUse("A replier receives with its handler, and can have no listener.")

    def consuming(self) -> dict[str, Any]:
        """Give the arguments of `subscribe()`."""
        return {
            "topic": self.topic,
            "subscription_name": self.subscription_name,
            "schema": self.schema,
            "consumer_type": pulsar.ConsumerType.Shared,
            "initial_position": pulsar.InitialPosition.Earliest,
            "negative_ack_redelivery_delay_ms": _REDELIVERY_MILLIS,
            **self.consumer_options,
        }

    def producing(self, reply_topic: str) -> dict[str, Any]:
        """Give the arguments of `create_producer()`."""
        whole = {"chunking_enabled": True, "max_pending_messages": 0}  # neither the size nor the number rejects a reply
        return {"topic": reply_topic, "schema": self.reply_schema, **whole}


class NotSentError(PulsarExtError):
    """A reply could not be sent, and may be sent later: its request has to come again."""

    retriable = True


class ReplyProducers:
    """Opens them as they are needed, and closes on demand those that were not for a while: their topics may then go.

    Args:
        open_producer: opens one for a topic.
        clock: gives a time in seconds.
    """

    def __init__(self, open_producer: Callable[[str], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = open_producer, clock
        self._known: dict[str, tuple[Any, float]] = {}
        self._lock = Lock()
        self._is_closed = False

    def send(self, topic: str, content: Any, properties: dict[str, str]) -> Future[None]:
        """Begin to send a reply; opening a producer may take a while.

        Returns:
            What is done when the reply is persisted, or raises `NotSentError`, or, if there is no use in trying again,
            another `pulsar.PulsarException`.

        Raises:
            NotSentError: as above.
            Exception: the reply cannot be encoded, or the topic cannot have it.
        """
        sent: Future[None] = Future()
        sent.set_running_or_notify_cancel()  # whoever awaits it may be cancelled; it is done all the same

        def on_sent(result: Any, _: Any) -> None:
            if result == _OK:
                sent.set_result(None)
            else:
                sent.set_exception(_error(exception_of(result)))

        try:
            self.producer(topic).send_async(content, on_sent, properties=properties)
        except pulsar.PulsarException as error:
            raise _error(error) from error
        return sent

    def producer(self, topic: str) -> Any:
        """Give the producer of a topic, which is opened if there is none.

        Raises:
            pulsar.PulsarException: it cannot be opened; `AlreadyClosed`, if this is closed.
        """
        opened = None if self.knows(topic) else self._open(topic)
        now = self._clock()
        with self._lock:
            known, _ = self._known.get(topic, (opened, now))
            producer = opened if known is None or known.sender.closed else known
            if producer is not None and not self._is_closed:
                self._known[topic] = (producer, now)
        if opened is not None and (opened is not producer or self._is_closed):  # another thread was faster
            _close(opened)
        if producer is None or self._is_closed:  # closed meanwhile
            raise AlreadyClosed("Pulsar error: AlreadyClosed: the replier, or a producer of it, is closed.")
        return producer

    def close_idle(self) -> None:
        """Close those that nobody has used for long, which may wait for the broker; what fails there is logged."""
        with self._lock:
            leaving = [self._known.pop(topic)[0] for topic in self._idle()]
        for one in leaving:
            _close(one)

    @property
    def has_idle(self) -> bool:
        """Whether `close_idle()` has something to close."""
        with self._lock:
            return bool(self._idle())

    def _idle(self) -> list[str]:
        """Give the topics of those; the lock is held. Apart: see `_native/locks.py`."""
        before = self._clock() - _IDLE_SECONDS
        return [topic for topic, (_, used) in self._known.items() if used < before]

    def knows(self, topic: str) -> bool:
        """Whether a producer is there already."""
        known = self._known.get(topic)
        return known is not None and not known[0].sender.closed

    def close(self) -> None:
        """Close them all, and those that are being opened."""
        with self._lock:
            self._is_closed = True
            leaving = [producer for producer, _ in self._known.values()]
            self._known.clear()
        for one in leaving:
            one.close()


def _close(producer: Any) -> None:
    """Close a producer that nobody needs any more."""
    try:
        producer.close()
    except pulsar.PulsarException:
        _log.warning("A producer of replies could not be closed", exc_info=True)


def _error(error: Exception) -> Exception:
    if isinstance(error, _AGAIN):
        return NotSentError(f"A reply could not be sent, and its request comes again: {error}")
    return error


END = object()
"""What stands for the end of an iterator of replies."""


@dataclass(frozen=True, slots=True)
class Replying:
    """What a replier does with a request.

    Args:
        handler: is given each request; what it returns is the reply, an iterator gives several.
        name: the replier's.
        on_error: what becomes of a request whose handler raised, as in `process()`; None to tell the requester.
        may_reply_to: whether replies to a request on the first topic may go to the second one.
        has_letters: whether the consumer of the requests has retry letters.

    Raises:
        InvalidUse: the handler or `on_error` is not valid.
    """

    handler: Callable[[Message], Any]
    name: str
    on_error: Action | Callable[[Message, Exception], Any] | None = None
    may_reply_to: Callable[[str, str], bool] = in_same_namespace
    has_letters: bool = False

    def __post_init__(self) -> None:
        if self.on_error is not None:
            check_on_error(self.on_error, has_letters=self.has_letters)
        if not callable(self.handler):
            raise InvalidUse(f"handler is expected to be a function of a request, not {self.handler!r}.")

    def steps(self, message: Message, send: Callable[[Answer, dict[str, str], Any], Any]) -> Steps:
        """Give the steps of one request.

        Args:
            message: the request.
            send: sends one reply, given its properties and its content.

        Raises:
            NotSentError: a reply may be sent later.
            Exception: what the handler raised, if there is an `on_error`.
        """
        answer = Answer.to(message.properties(), self.name)
        if answer is not None and not self._may_reply(message.topic_name(), answer.topic):
            _log.error("A request on %s wants its reply on %s, and is left out", message.topic_name(), answer.topic)
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
                yield from _say_failed(answer, error, send)

    def becomes(self, message: Message, error: Exception) -> Any:
        """Say what becomes of a request that could not be answered, as `on_error` of `process()`."""
        comes_again = isinstance(error, NotSentError) or self.on_error is None
        if callable(self.on_error) and not comes_again:
            return self.on_error(message, error)
        action = Redeliver() if comes_again else self.on_error
        _log.error("A request on %s could not be answered; %r", message.topic_name(), action, exc_info=error)
        return action

    def _may_reply(self, topic: str, reply_topic: str) -> bool:
        """Ask the application; where it raises, it does not say that a reply may go there."""
        try:
            return self.may_reply_to(topic, reply_topic)
        except Exception:  # noqa: BLE001  # whatever it is, the request would come again for ever
            _log.exception("%r raised for a request on %s", self.may_reply_to, topic)
            return False

    def _reply(
        self, message: Message, answer: Answer | None, send: Callable[[Answer, dict[str, str], Any], Any]
    ) -> Steps:
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


def _say_failed(answer: Answer, error: Exception, send: Callable[[Answer, dict[str, str], Any], Any]) -> Steps:
    """Tell the requester; where that cannot be told, nothing else can be done."""
    try:
        yield partial(send, answer, answer.failed(error), None)
    except NotSentError:
        raise
    except Exception:  # noqa: BLE001  # such as a topic that does not take it
        _log.exception("The requester at %s cannot be told", answer.topic)


class Replier:
    """Answers the requests on one topic; made by `Client.replier()`.

    Several processes with the same subscription share the requests.
    """

    def __init__(self, context: ClientContext, options: ReplierOptions, replying: Replying) -> None:
        if iscoroutinefunction(replying.handler):
            raise InvalidUse("The handler is an async function: replier() of pulsar_ext.asyncio awaits it.")
        self._opener, self._options, self._replying = context.opener, options, replying
        self.consumer: Consumer
        self._producers = ReplyProducers(lambda topic: context.opener.create_producer(**options.producing(topic)))

    def open(self) -> Self:
        """Subscribe to the requests."""
        self.consumer = self._opener.subscribe(**self._options.consuming())
        return self

    def run(self, *, concurrency: int = 1) -> None:
        """Answer requests, so many at a time, until `stop()`, a close or a SIGTERM; see `Consumer.process()`.

        A request is acknowledged when its replies are persisted. If the process dies before, it comes to another
        replier.

        Args:
            concurrency: how many requests are handled at once, each on a thread of its own.

        Raises:
            InvalidUse: it is not an int, 1 or more.
            pulsar.AlreadyClosed: it was closed before.
            pulsar.PulsarException: a receive failed.
        """
        self.consumer.process(self._handle, concurrency=concurrency, on_error=self._replying.becomes)

    def stop(self) -> None:
        """Have every `run()` receive no more, and return when what is under way is answered; it waits for nothing."""
        self.consumer.stop_processing()

    def close(self) -> None:
        """Close; requests that are not answered come to another replier. Closing again does nothing.

        Raises:
            pulsar.PulsarException: the broker did not answer, or refused; it is closed all the same.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._producers.close)
            self.consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _handle(self, message: Message) -> None:
        drive(self._replying.steps(message, self._send))

    def _send(self, answer: Answer, properties: dict[str, str], content: Any) -> None:
        sent = self._producers.send(answer.topic, content, properties)
        known = Flag()  # the future's own wait is not for C++ threads to end, if greenlets have patched Python's locks
        sent.add_done_callback(lambda _: known.set())
        known.wait()
        sent.result()
        self._producers.close_idle()
