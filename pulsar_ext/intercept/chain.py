"""Chains of interceptors, whose errors affect neither the client nor the next interceptor.

`InterceptedSender` wraps the sender of any producer. `PartitionWatch` polls for added partitions, if an interceptor
overrides `on_partitions_change()`. Mirrors Java's `ProducerInterceptors`, `ConsumerInterceptors` and
`ReaderInterceptorUtil`.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

import pulsar

from pulsar_ext._native.messages import InnerMessage, InnerMessageId
from pulsar_ext._native.results import Result, exception_of
from pulsar_ext._native.signatures import with_signature_of
from pulsar_ext._runtime.callbacks import SendCallback
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId, from_inner
from pulsar_ext.message import Message, handled_in, received
from pulsar_ext.produce.options import Columns, Options, named_options
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, BulkOutcome, SentMany, duplicate_message
from pulsar_ext.produce.sender import Sender, WrappingSender, check_callback, post_each

from .interfaces import ConsumerInterceptor, Interceptor, OutgoingMessage, ProducerInterceptor, ReaderInterceptor

_log = logging.getLogger("pulsar_ext")

I = TypeVar("I", bound=Interceptor)  # noqa: E741
T = TypeVar("T")


class Chain(Generic[I]):
    """Interceptors of one producer, consumer or reader, whose messages an asyncio twin delivers if `awaited`."""

    kind: type[I]

    def __init__(self, interceptors: Iterable[I], *, awaited: bool = False) -> None:
        self.interceptors = tuple(interceptors)
        self.awaited = awaited
        self._shown: Callable[[], object] = lambda: None
        self.watch: PartitionWatch | None = None
        """Referenced here, because the scheduler has weak references only."""
        self._closed = False
        for one in self.interceptors:
            if not isinstance(one, self.kind):
                raise InvalidUse(f"An interceptor here must be a {self.kind.__name__}, got a {type(one).__name__}.")

    @classmethod
    def of(cls, context: ClientContext, interceptors: object, *, awaited: bool = False) -> Self | None:
        """Return the chain of the argument `interceptors`; None without interceptors."""
        if isinstance(interceptors, cls):
            return interceptors
        if not (interceptors is None or isinstance(interceptors, list | tuple)):
            raise InvalidUse(f"interceptors must be a list, got {type(interceptors).__name__}.")
        if not (interceptors or context.interceptors):
            return None
        every = [*(make() for kind, make in context.interceptors if kind is cls.kind), *(interceptors or ())]
        return cls(every, awaited=awaited) if every else None

    def show(self, shown: object) -> None:
        """Set the object to pass to interceptors: the application's producer, consumer or reader."""
        self._shown = weakref.ref(shown)

    @property
    def shown(self) -> object:
        """Object that interceptors get; None before it is set, and after the application has released it."""
        return self._shown()

    def overrides(self, method: str) -> bool:
        """Return whether an interceptor overrides a method."""
        return any(getattr(type(one), method) is not getattr(self.kind, method) for one in self.interceptors)

    def notify(self, method: str, *args: object) -> None:
        """Call a method of each interceptor; log its errors."""
        for one in self.interceptors:
            _call_logged(getattr(one, method), *args)

    def close(self) -> None:
        """Close the interceptors; a second call has no effect."""
        if not self._closed:
            self._closed = True
            if self.watch is not None:
                self.watch.close()
            self.notify("close")


class ProducerChain(Chain[ProducerInterceptor]):
    """Interceptors of a producer."""

    kind = ProducerInterceptor

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send instead of a message."""
        first, shown = message, self.shown
        for one in self.interceptors:
            if _eligible(one, first):
                message = _changed(OutgoingMessage, message, one.before_send, shown)
        return message

    def sent(
        self, shown: object, message: OutgoingMessage, sent: MessageId | None, error: BaseException | None
    ) -> None:
        """Call the interceptors with the outcome of a message."""
        for one in self.interceptors:
            if _eligible(one, message):
                _call_logged(one.on_send_acknowledgement, shown, message, sent, error)


class ReceiverChain(Chain[I]):
    """Interceptors of a consumer or a reader."""

    _listens = False
    change_of: Callable[[I], Callable[[object, Message], Message]]
    """Returns the method that may change a message."""

    def before(self, receiver: object, message: Message) -> Message:
        """Return the message to deliver instead of a message."""
        for one in self.interceptors:
            message = _changed(Message, message, self.change_of(one), receiver)
        return message

    def listening(self, listener: Callable[[T, Message], object]) -> Callable[[T, Message], object]:
        """Return a listener that calls the interceptors and then the application's; a second call has no effect."""
        if self._listens:
            return listener
        self._listens = True

        def listen(receiver: T, message: Message) -> object:
            message = self.before(receiver, message)
            with handled_in(message):
                return listener(receiver, message)

        return listen


class ReaderChain(ReceiverChain[ReaderInterceptor]):
    """Interceptors of a reader."""

    kind = ReaderInterceptor
    change_of = staticmethod(attrgetter("before_read"))


class ConsumerChain(ReceiverChain[ConsumerInterceptor]):
    """Interceptors of a consumer."""

    kind = ConsumerInterceptor
    change_of = staticmethod(attrgetter("before_consume"))

    def acknowledged(
        self, consumer: object, message: object, error: BaseException | None, method: str = "on_acknowledge"
    ) -> None:
        """Call a method of the interceptors after an acknowledgement by a message or an id."""
        self.notify(method, consumer, message.message_id() if isinstance(message, Message) else message, error)

    def dead_lettered(self, inner: InnerMessage) -> None:
        """Call the interceptors because a native message was acknowledged after it became a dead letter."""
        consumer = self.shown
        if consumer is not None:
            self.acknowledged(consumer, received(inner), None)

    def redelivers(self, rejected: list[InnerMessageId], late: list[InnerMessageId]) -> None:
        """Call the interceptors with the rejected, and the not acknowledged, entries that are to be redelivered."""
        consumer = self.shown
        if consumer is None:
            return
        for method, ids in (("on_negative_acks_send", rejected), ("on_ack_timeout_send", late)):
            if ids:
                self.notify(method, consumer, set(map(from_inner, ids)))


def _changed(kind: type[T], message: T, change: Callable[[object, T], T], shown: object) -> T:
    """Return the message that an interceptor returns; the original one if it raises or returns another type."""
    changed = _call_logged(change, shown, message, default=message, then="; the message is not changed by it")
    if isinstance(changed, kind):
        return changed
    _log.error(
        "An interceptor's %s returned a %s instead of a %s; the message is not changed by it",
        *(change.__qualname__, type(changed).__name__, kind.__name__),
    )
    return message


def _eligible(one: ProducerInterceptor, message: OutgoingMessage) -> bool:
    return bool(_call_logged(one.eligible, message, default=False, then="; it is skipped for this message"))


def _call_logged(method: Callable[..., object], *args: object, default: object = None, then: str = "") -> object:
    try:
        return method(*args)
    except Exception:  # noqa: BLE001  # from the application's code
        _log.exception("An interceptor's %s raised%s", method.__qualname__, then)
        return default


_POLL_SECONDS = 60.0
"""Interval of the official client."""


class PartitionWatch:
    """Poll of the number of partitions of topics."""

    def __init__(self, context: ClientContext, chain: Chain[Any], topics: list[str]) -> None:
        self._context, self._chain, self._topics = context, chain, topics
        self._known: dict[str, int] = {}
        self._closed = False

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # it polls at each call
        """Poll, and call the interceptors; return the seconds until the next poll, None to stop."""
        if self._closed or self._chain.shown is None:
            return None
        for topic in self._topics:
            try:
                count = len(self._context.opener.get_topic_partitions(topic))
            except pulsar.PulsarException:  # the broker is unavailable: retry at the next poll
                continue
            known, self._known[topic] = self._known.get(topic, count), count
            if count > known:  # it is less if the client has connected to another cluster
                self._chain.notify("on_partitions_change", topic, count)
        return _POLL_SECONDS

    def close(self) -> None:
        """Stop polling."""
        self._closed = True


def register_chain(context: ClientContext, chain: Chain[Any], topics: object) -> None:
    """Close interceptors with their client, and poll for added partitions if one handles them; patterns have none."""
    context.chains.add(chain)
    if chain.overrides("on_partitions_change") and isinstance(topics, str | list):
        watch = chain.watch = PartitionWatch(context, chain, [topics] if isinstance(topics, str) else topics)
        context.inquiries.watch(watch)


class InterceptedSender(WrappingSender):
    """Sender that calls interceptors before each send and after its outcome."""

    def __init__(self, sender: Sender, chain: ProducerChain) -> None:
        super().__init__(sender)
        self.chain = chain

    def send(self, content: object, *args: object, **kwargs: object) -> MessageId:
        """Send a message and wait for its outcome."""
        self.context.callbacks.raise_inside("send")  # before an interceptor sees it
        shown, message = self._before(content, named_options(args, kwargs))
        try:
            sent = self._sender.send(message.value, **message.options())
        except BaseException as error:
            self.chain.sent(shown, message, None, error)
            raise
        self.chain.sent(shown, message, sent, None)
        return sent

    @with_signature_of(pulsar.Producer.send_async)
    def send_async(self, content: object, callback: SendCallback | None, *args: object, **kwargs: object) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""

        def begin(message: OutgoingMessage, outcome: SendCallback) -> None:
            self._sender.send_async(message.value, outcome, **message.options())

        check_callback(callback)
        self._begin(begin, content, callback, named_options(args, kwargs))

    def send_many(self, contents: Iterable[object], columns: Columns, *, flush: bool) -> SentMany:
        """Send many messages, and with `flush` wait until all of them are persisted."""
        self._sender.send_many((), {}, flush=False)  # raises if it is unsupported
        outcome = BulkOutcome()
        count = post_each(self, contents, columns, outcome)
        if flush:
            self._sender.send_many((), {}, flush=True)  # a flush() would raise, and so forget, errors of other messages
        return outcome.sent(count, wait=flush)

    def post(self, content: object, callback: SendCallback, options: Options) -> None:
        """Send one of many messages; see the sender."""

        def begin(message: OutgoingMessage, outcome: SendCallback) -> None:
            self._sender.post(message.value, outcome, message.options())

        self._begin(begin, content, callback, options)

    def finish(self, deadline: float) -> None:
        """Close, and wait for pending messages until `deadline`, a monotonic time in seconds."""
        try:
            self._sender.finish(deadline)
        finally:
            self.chain.close()

    def _before(self, content: object, options: Options) -> tuple[object, OutgoingMessage]:
        return self.chain.shown, self.chain.before_send(OutgoingMessage.of(content, options))

    def _begin(
        self,
        begin: Callable[[OutgoingMessage, SendCallback], object],
        content: object,
        callback: SendCallback | None,
        options: Options,
    ) -> None:
        """Begin a send; its outcome calls the interceptors first, then the application's callback."""
        shown, message = self._before(content, options)  # the producer is referenced until the outcome

        def outcome(result: Result, message_id: MessageId) -> None:
            try:
                error = _error_of(result, message.sequence_id)
                self.chain.sent(shown, message, message_id if error is None else None, error)
            finally:
                if callback is not None:
                    callback(result, message_id)

        try:
            begin(message, outcome)
        except BaseException as error:  # the callback will not be called
            self.chain.sent(shown, message, None, error)
            raise


def _error_of(result: Result, sequence_id: int | None) -> Exception | None:
    """Return the error that a send with this result raises; None if it is persisted."""
    if result is DUPLICATE_MESSAGE:
        return duplicate_message(sequence_id)
    return None if result == pulsar.Result.Ok else exception_of(result)
