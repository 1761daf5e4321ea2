"""Chains of interceptors, whose errors affect neither the client nor the next interceptor.

`InterceptedSender` wraps the sender of any producer. `PartitionWatch` polls for added partitions, if an interceptor
overrides `on_partitions_change()`. Mirrors Java's `ProducerInterceptors`, `ConsumerInterceptors` and
`ReaderInterceptorUtil`.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import pulsar

from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import with_signature_of
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.message import Message, handled_in, received
from pulsar_ext.produce.options import named_options, rows_of
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, BulkOutcome, SentMany, duplicate_message
from pulsar_ext.produce.sender import WrappingSender, check_callback

from .interfaces import ConsumerInterceptor, Interceptor, OutgoingMessage, ProducerInterceptor, ReaderInterceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.produce.sender import Sender


_log = logging.getLogger("pulsar_ext")

I = TypeVar("I", bound=Interceptor)  # noqa: E741


class _Watch(Protocol):
    def close(self) -> None:
        """Stop polling."""


class Chain(Generic[I]):
    """Interceptors of one producer, consumer or reader.

    Args:
        interceptors: in the order of their calls.
        awaited: an asyncio twin delivers the messages.

    Raises:
        InvalidUse: one of them is of another kind; nothing was opened.
    """

    kind: type[I]

    def __init__(self, interceptors: Iterable[I], *, awaited: bool = False) -> None:
        self.interceptors = tuple(interceptors)
        self.awaited = awaited
        self._shown: Callable[[], Any] = lambda: None
        self.watch: _Watch | None = None
        """Referenced here, because the scheduler has weak references only."""
        self._closed = False
        for one in self.interceptors:
            if not isinstance(one, self.kind):
                raise InvalidUse(f"An interceptor here must be a {self.kind.__name__}, got a {type(one).__name__}.")

    @classmethod
    def of(cls, context: ClientContext, interceptors: Any, *, awaited: bool = False) -> Self | None:
        """Return the chain of the argument `interceptors`; None without interceptors.

        Args:
            context: context of the client, whose own interceptors come first.
            interceptors: the application's argument: a list, None, or a chain.
            awaited: an asyncio twin delivers the messages.

        Raises:
            InvalidUse: it is not a list of interceptors; nothing was opened.
        """
        if isinstance(interceptors, cls):
            return interceptors
        if not (interceptors is None or isinstance(interceptors, list | tuple)):
            raise InvalidUse(f"interceptors must be a list, got {type(interceptors).__name__}.")
        every = [*(make() for kind, make in context.interceptors if kind is cls.kind), *(interceptors or ())]
        return cls(every, awaited=awaited) if every else None

    def show(self, shown: Any) -> None:
        """Set the object to pass to interceptors: the application's producer, consumer or reader."""
        self._shown = weakref.ref(shown)

    @property
    def shown(self) -> Any:
        """Object that interceptors get; None before it is set, and after the application has released it."""
        return self._shown()

    def overrides(self, method: str) -> bool:
        """Return whether an interceptor overrides a method."""
        return any(getattr(type(one), method) is not getattr(self.kind, method) for one in self.interceptors)

    def partitions_changed(self, topic: str, partitions: int) -> None:
        """Call the interceptors because a topic has more partitions."""
        for one in self.interceptors:
            _call_logged(one.on_partitions_change, topic, partitions)

    def close(self) -> None:
        """Close the interceptors; a second call has no effect."""
        if not self._closed:
            self._closed = True
            if self.watch is not None:
                self.watch.close()
            for one in self.interceptors:
                _call_logged(one.close)


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

    def sent(self, shown: Any, message: OutgoingMessage, sent: MessageId | None, error: BaseException | None) -> None:
        """Call the interceptors with the outcome of a message."""
        for one in self.interceptors:
            if _eligible(one, message):
                _call_logged(one.on_send_acknowledgement, shown, message, sent, error)


class ReceiverChain(Chain[I]):
    """Interceptors of a consumer or a reader."""

    _listens = False

    def before(self, receiver: Any, message: Message) -> Message:
        """Return the message to deliver instead of a message."""
        for one in self.interceptors:
            message = _changed(Message, message, self.change_of(one), receiver)
        return message

    @staticmethod
    def change_of(one: I) -> Callable[[Any, Message], Message]:
        """Return the method that may change a message."""
        raise NotImplementedError

    def listening(self, listener: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
        """Return a listener that calls the interceptors and then the application's; a second call has no effect."""
        if self._listens:
            return listener
        self._listens = True

        def listen(receiver: Any, message: Message) -> object:
            message = self.before(receiver, message)
            with handled_in(message):
                return listener(receiver, message)

        return listen


class ReaderChain(ReceiverChain[ReaderInterceptor]):
    """Interceptors of a reader."""

    kind = ReaderInterceptor

    @staticmethod
    def change_of(one: ReaderInterceptor) -> Callable[[Any, Message], Message]:
        """Return the method that may change a message."""
        return one.before_read


class ConsumerChain(ReceiverChain[ConsumerInterceptor]):
    """Interceptors of a consumer."""

    kind = ConsumerInterceptor

    @staticmethod
    def change_of(one: ConsumerInterceptor) -> Callable[[Any, Message], Message]:
        """Return the method that may change a message."""
        return one.before_consume

    def acknowledged(self, consumer: Any, message: Any, error: BaseException | None) -> None:
        """Call the interceptors after an acknowledgement by a message or an id."""
        message_id = _id_of(message)
        for one in self.interceptors:
            _call_logged(one.on_acknowledge, consumer, message_id, error)

    def acknowledged_cumulatively(self, consumer: Any, message: Any, error: BaseException | None) -> None:
        """Call the interceptors after a cumulative acknowledgement by a message or an id."""
        message_id = _id_of(message)
        for one in self.interceptors:
            _call_logged(one.on_acknowledge_cumulative, consumer, message_id, error)

    def dead_lettered(self, inner: Any) -> None:
        """Call the interceptors because a native message was acknowledged after it became a dead letter."""
        consumer = self.shown
        if consumer is not None:
            self.acknowledged(consumer, received(inner), None)

    def redelivers(self, rejected: list[Any], late: list[Any]) -> None:
        """Call the interceptors with the entries that the broker is asked to redeliver.

        Args:
            rejected: native ids of negatively acknowledged messages.
            late: native ids of messages that were not acknowledged in time.
        """
        consumer = self.shown
        if consumer is None:
            return
        for one in self.interceptors:
            if rejected:
                _call_logged(one.on_negative_acks_send, consumer, set(map(from_inner, rejected)))
            if late:
                _call_logged(one.on_ack_timeout_send, consumer, set(map(from_inner, late)))


T = TypeVar("T")


def _changed(kind: type[T], message: T, change: Callable[[Any, T], T], shown: Any) -> T:
    """Return the message that an interceptor returns; the original one if it raises or returns another type."""
    try:
        changed = change(shown, message)
    except Exception:  # noqa: BLE001  # from the application's code
        _log.exception("An interceptor's %s raised; the message is not changed by it", change.__qualname__)
        return message
    if not isinstance(changed, kind):
        _log.error(
            "An interceptor's %s returned a %s instead of a %s; the message is not changed by it",
            change.__qualname__,
            type(changed).__name__,
            kind.__name__,
        )
        return message
    return changed


def _eligible(one: ProducerInterceptor, message: OutgoingMessage) -> bool:
    try:
        return bool(one.eligible(message))
    except Exception:  # noqa: BLE001  # from the application's code
        _log.exception("An interceptor's %s raised; it is skipped for this message", one.eligible.__qualname__)
        return False


def _call_logged(method: Callable[..., object], *args: Any) -> None:
    try:
        method(*args)
    except Exception:  # noqa: BLE001  # from the application's code
        _log.exception("An interceptor's %s raised", method.__qualname__)


def _id_of(message: Any) -> Any:
    return message.message_id() if isinstance(message, Message) else message


_POLL_SECONDS = 60.0
"""Interval of the official client."""


class PartitionWatch:
    """Poll of the number of partitions of topics.

    Args:
        context: context of the client.
        chain: the interceptors.
        topics: the topics' names.
    """

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
                self._chain.partitions_changed(topic, count)
        return _POLL_SECONDS

    def close(self) -> None:
        """Stop polling."""
        self._closed = True


def register_chain(context: ClientContext, chain: Chain[Any], topics: Any) -> None:
    """Close interceptors with their client, and poll for added partitions if an interceptor handles them.

    Args:
        context: context of the client.
        chain: the interceptors.
        topics: the argument of the opening: a topic, a list, or a pattern, which has no partitions.
    """
    context.chains.add(chain)
    if chain.overrides("on_partitions_change") and isinstance(topics, str | list):
        watch = chain.watch = PartitionWatch(context, chain, [topics] if isinstance(topics, str) else topics)
        context.inquiries.watch(watch)


_OK = pulsar.Result.Ok


class InterceptedSender(WrappingSender):
    """Sender that calls interceptors before each send and after its outcome.

    Args:
        sender: sends the messages that the interceptors return.
        chain: the interceptors.
    """

    def __init__(self, sender: Sender, chain: ProducerChain) -> None:
        super().__init__(sender)
        self.chain = chain

    @with_signature_of(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
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
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        check_callback(callback)
        shown, message = self._before(content, named_options(args, kwargs))
        try:
            self._sender.send_async(message.value, _Outcome(self.chain, shown, message, callback), **message.options())
        except BaseException as error:  # the callback will not be called
            self.chain.sent(shown, message, None, error)
            raise

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, and with `flush` wait until all of them are persisted."""
        self._sender.send_many((), {}, flush=False)  # raises if it is unsupported
        bulk, taken = BulkOutcome(), 0
        for content, options in rows_of(contents, columns):
            self.post(content, bulk.one, options, patient=True)
            taken += 1
            if self.many_in_flight is not None:
                bulk.wait(taken - self.many_in_flight)
        if flush:
            with contextlib.suppress(pulsar.PulsarException):  # of any message: failures of these are raised below
                self._sender.flush()
            bulk.wait(taken)
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> None:
        """Send one of many messages; see the sender."""
        shown, message = self._before(content, options)
        outcome = _Outcome(self.chain, shown, message, callback)
        try:
            self._sender.post(message.value, outcome, message.options(), patient=patient)
        except BaseException as error:  # the callback will not be called
            self.chain.sent(shown, message, None, error)
            raise

    def finish(self, deadline: float) -> None:
        """Close, and wait for pending messages until `deadline`, a monotonic time in seconds."""
        try:
            self._sender.finish(deadline)
        finally:
            self.chain.close()

    def _before(self, content: Any, options: dict[str, Any]) -> tuple[Any, OutgoingMessage]:
        return self.chain.shown, self.chain.before_send(OutgoingMessage.of(content, options))


class _Outcome:
    """Callback of one message: calls the interceptors first, then the application's callback.

    Args:
        chain: the interceptors.
        shown: the producer, referenced until the message has its outcome.
        message: the sent message.
        callback: the application's callback or None.
    """

    __slots__ = ("_callback", "_chain", "_message", "_shown")

    def __init__(
        self, chain: ProducerChain, shown: Any, message: OutgoingMessage, callback: SendCallback | None
    ) -> None:
        self._chain, self._shown, self._message, self._callback = chain, shown, message, callback

    def __call__(self, result: Any, message_id: MessageId) -> None:
        try:
            error = _error_of(result, self._message.sequence_id)
            self._chain.sent(self._shown, self._message, message_id if error is None else None, error)
        finally:
            if self._callback is not None:
                self._callback(result, message_id)


def _error_of(result: Any, sequence_id: int | None) -> BaseException | None:
    """Return the error that a send with this result raises; None if it is persisted."""
    if result is DUPLICATE_MESSAGE:
        return duplicate_message(sequence_id)
    if result == _OK:
        return None
    try:
        raise_result(result)
    except pulsar.PulsarException as raised:
        error: BaseException = raised
        return error
