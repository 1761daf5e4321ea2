"""Interceptors, called one after the other; none harms the client or the next one.

`InterceptedSender` stands before the sender of a producer, whichever that is. `PartitionWatch` polls for partitions
that were added, if an interceptor wants to be called for them. Mirrors Java's `ProducerInterceptors`,
`ConsumerInterceptors` and `ReaderInterceptorUtil`.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import pulsar

from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import shaped_like
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

I = TypeVar("I", bound=Interceptor)  # noqa: E741  # of which kind


class _Watch(Protocol):
    def close(self) -> None:
        """Look no more."""


class Chain(Generic[I]):
    """The interceptors of one producer, consumer or reader.

    Args:
        interceptors: in the order in which they are called.
        awaited: whether an asyncio twin hands out the messages.

    Raises:
        InvalidUse: one of them is of another kind; nothing was opened.
    """

    kind: type[I]

    def __init__(self, interceptors: Iterable[I], *, awaited: bool = False) -> None:
        self.interceptors = tuple(interceptors)
        self.awaited = awaited
        self._shown: Callable[[], Any] = lambda: None
        self.watch: _Watch | None = None
        """Kept here, because the scheduler keeps nothing."""
        self._closed = False
        for one in self.interceptors:
            if not isinstance(one, self.kind):
                raise InvalidUse(f"An interceptor here must be of {self.kind.__name__}, not of {type(one).__name__}.")

    @classmethod
    def of(cls, context: ClientContext, interceptors: Any, *, awaited: bool = False) -> Self | None:
        """Give the chain of what an application gave as `interceptors`; None if there are none.

        Args:
            context: of the client, which may have interceptors of its own: they come first.
            interceptors: the application's: a list, None, or what this gave before.
            awaited: whether an asyncio twin hands out the messages.

        Raises:
            InvalidUse: it is not a list of interceptors; nothing was opened.
        """
        if isinstance(interceptors, cls):
            return interceptors
        if not (interceptors is None or isinstance(interceptors, list | tuple)):
            raise InvalidUse(f"interceptors is expected to be a list, not {type(interceptors).__name__}.")
        every = [*(make() for kind, make in context.interceptors if kind is cls.kind), *(interceptors or ())]
        return cls(every, awaited=awaited) if every else None

    def show(self, shown: Any) -> None:
        """Have interceptors see this producer, consumer or reader: what the application holds."""
        self._shown = weakref.ref(shown)

    @property
    def shown(self) -> Any:
        """What interceptors see; None if it is not there yet, or if nobody holds it any more."""
        return self._shown()

    def hears(self, method: str) -> bool:
        """Whether an interceptor overrides a method."""
        return any(getattr(type(one), method) is not getattr(self.kind, method) for one in self.interceptors)

    def partitions_changed(self, topic: str, partitions: int) -> None:
        """Tell that a topic has more partitions."""
        for one in self.interceptors:
            _quietly(one.on_partitions_change, topic, partitions)

    def close(self) -> None:
        """Close them; again does nothing."""
        if not self._closed:
            self._closed = True
            if self.watch is not None:
                self.watch.close()
            for one in self.interceptors:
                _quietly(one.close)


class ProducerChain(Chain[ProducerInterceptor]):
    """The interceptors of a producer."""

    kind = ProducerInterceptor

    def before_send(self, message: OutgoingMessage) -> OutgoingMessage:
        """Give what is sent in the place of a message."""
        first, shown = message, self.shown
        for one in self.interceptors:
            if _eligible(one, first):
                message = _changed(OutgoingMessage, message, one.before_send, shown)
        return message

    def sent(self, shown: Any, message: OutgoingMessage, sent: MessageId | None, error: BaseException | None) -> None:
        """Tell what became of a message."""
        for one in self.interceptors:
            if _eligible(one, message):
                _quietly(one.on_send_acknowledgement, shown, message, sent, error)


class ReceiverChain(Chain[I]):
    """The interceptors of what receives."""

    _listens = False

    def before(self, receiver: Any, message: Message) -> Message:
        """Give what is handed out in the place of a message."""
        for one in self.interceptors:
            message = _changed(Message, message, self.change_of(one), receiver)
        return message

    @staticmethod
    def change_of(one: I) -> Callable[[Any, Message], Message]:
        """Give the method that may change a message."""
        raise NotImplementedError

    def listening(self, listener: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
        """Give a listener that calls the application's behind the interceptors; what this gave before, as it is."""
        if self._listens:
            return listener
        self._listens = True

        def heard(receiver: Any, message: Message) -> object:
            message = self.before(receiver, message)
            with handled_in(message):
                return listener(receiver, message)

        return heard


class ReaderChain(ReceiverChain[ReaderInterceptor]):
    """The interceptors of a reader."""

    kind = ReaderInterceptor

    @staticmethod
    def change_of(one: ReaderInterceptor) -> Callable[[Any, Message], Message]:
        """Give the method that may change a message."""
        return one.before_read


class ConsumerChain(ReceiverChain[ConsumerInterceptor]):
    """The interceptors of a consumer."""

    kind = ConsumerInterceptor

    @staticmethod
    def change_of(one: ConsumerInterceptor) -> Callable[[Any, Message], Message]:
        """Give the method that may change a message."""
        return one.before_consume

    def acknowledged(self, consumer: Any, message: Any, error: BaseException | None) -> None:
        """Tell of an acknowledgement, by a message or an id."""
        message_id = _id_of(message)
        for one in self.interceptors:
            _quietly(one.on_acknowledge, consumer, message_id, error)

    def acknowledged_cumulatively(self, consumer: Any, message: Any, error: BaseException | None) -> None:
        """Tell of a cumulative acknowledgement, by a message or an id."""
        message_id = _id_of(message)
        for one in self.interceptors:
            _quietly(one.on_acknowledge_cumulative, consumer, message_id, error)

    def became_letter(self, inner: Any) -> None:
        """Tell that a refused C++ message is acknowledged: it is a dead letter by now."""
        consumer = self.shown
        if consumer is not None:
            self.acknowledged(consumer, received(inner), None)

    def redelivers(self, refused: list[Any], late: list[Any]) -> None:
        """Tell which entries the broker is asked for.

        Args:
            refused: C++ ids of what was negatively acknowledged.
            late: those of what was not acknowledged in time.
        """
        consumer = self.shown
        if consumer is None:
            return
        for one in self.interceptors:
            if refused:
                _quietly(one.on_negative_acks_send, consumer, set(map(from_inner, refused)))
            if late:
                _quietly(one.on_ack_timeout_send, consumer, set(map(from_inner, late)))


T = TypeVar("T")


def _changed(kind: type[T], message: T, change: Callable[[Any, T], T], shown: Any) -> T:
    """Give what an interceptor makes of a message; the message itself if that fails, or is something else."""
    try:
        changed = change(shown, message)
    except Exception:  # noqa: BLE001  # the application's
        _log.exception("An interceptor's %s raised; the message goes on as it was", change.__qualname__)
        return message
    if not isinstance(changed, kind):
        _log.error(
            "An interceptor's %s gave a %s and not a %s; the message goes on as it was",
            change.__qualname__,
            type(changed).__name__,
            kind.__name__,
        )
        return message
    return changed


def _eligible(one: ProducerInterceptor, message: OutgoingMessage) -> bool:
    try:
        return bool(one.eligible(message))
    except Exception:  # noqa: BLE001  # the application's
        _log.exception("An interceptor's %s raised; it does not see the message", one.eligible.__qualname__)
        return False


def _quietly(hear: Callable[..., object], *args: Any) -> None:
    try:
        hear(*args)
    except Exception:  # noqa: BLE001  # the application's
        _log.exception("An interceptor's %s raised", hear.__qualname__)


def _id_of(message: Any) -> Any:
    return message.message_id() if isinstance(message, Message) else message


_LOOK_SECONDS = 60.0
"""As often as the official client looks for them."""


class PartitionWatch:
    """Counts the partitions of topics from time to time.

    Args:
        context: of the client.
        chain: the interceptors.
        topics: their names.
    """

    def __init__(self, context: ClientContext, chain: Chain[Any], topics: list[str]) -> None:
        self._context, self._chain, self._topics = context, chain, topics
        self._known: dict[str, int] = {}
        self._closed = False

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # it looks whenever it is called
        """Look, and tell the interceptors; give after how many seconds to look again, None for never."""
        if self._closed or self._chain.shown is None:
            return None
        for topic in self._topics:
            try:
                count = len(self._context.opener.get_topic_partitions(topic))
            except pulsar.PulsarException:  # the broker is away, and is asked again
                continue
            known, self._known[topic] = self._known.get(topic, count), count
            if count > known:  # fewer: the client is connected to another cluster
                self._chain.partitions_changed(topic, count)
        return _LOOK_SECONDS

    def close(self) -> None:
        """Look no more."""
        self._closed = True


def look_after(context: ClientContext, chain: Chain[Any], topics: Any) -> None:
    """Close interceptors with their client, and tell them of partitions that are added, if one wants to know.

    Args:
        context: of the client.
        chain: the interceptors.
        topics: what is opened: a topic, a list, or a pattern, which has no partitions.
    """
    context.chains.add(chain)
    if chain.hears("on_partitions_change") and isinstance(topics, str | list):
        watch = chain.watch = PartitionWatch(context, chain, [topics] if isinstance(topics, str) else topics)
        context.inquiries.watch(watch)


_OK = pulsar.Result.Ok


class InterceptedSender(WrappingSender):
    """Has interceptors see each message before it is sent, and what becomes of it.

    Args:
        sender: sends what they give.
        chain: the interceptors.
    """

    def __init__(self, sender: Sender, chain: ProducerChain) -> None:
        super().__init__(sender)
        self.chain = chain

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait for its outcome."""
        self.context.callbacks.refuse("send")  # before an interceptor sees it
        shown, message = self._before(content, named_options(args, kwargs))
        try:
            sent = self._sender.send(message.value, **message.options())
        except BaseException as error:
            self.chain.sent(shown, message, None, error)
            raise
        self.chain.sent(shown, message, sent, None)
        return sent

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        check_callback(callback)
        shown, message = self._before(content, named_options(args, kwargs))
        try:
            self._sender.send_async(message.value, _Outcome(self.chain, shown, message, callback), **message.options())
        except BaseException as error:  # it has no outcome
            self.chain.sent(shown, message, None, error)
            raise

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, and with `flush` wait until all of them are persisted."""
        self._sender.send_many((), {}, flush=False)  # refuses what cannot be
        bulk, taken = BulkOutcome(), 0
        for content, options in rows_of(contents, columns):
            self.post(content, bulk.one, options, patient=True)
            taken += 1
            if self.many_in_flight is not None:
                bulk.wait(taken - self.many_in_flight)
        if flush:
            with contextlib.suppress(pulsar.PulsarException):  # of any message that failed: ours are known below
                self._sender.flush()
            bulk.wait(taken)
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> None:
        """Send one of many; the sender says how."""
        shown, message = self._before(content, options)
        outcome = _Outcome(self.chain, shown, message, callback)
        try:
            self._sender.post(message.value, outcome, message.options(), patient=patient)
        except BaseException as error:  # it has no outcome
            self.chain.sent(shown, message, None, error)
            raise

    def finish(self, deadline: float) -> None:
        """Close, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds."""
        try:
            self._sender.finish(deadline)
        finally:
            self.chain.close()

    def _before(self, content: Any, options: dict[str, Any]) -> tuple[Any, OutgoingMessage]:
        return self.chain.shown, self.chain.before_send(OutgoingMessage.of(content, options))


class _Outcome:
    """The callback of one message: tells the interceptors first, then the application.

    Args:
        chain: the interceptors.
        shown: the producer, which is kept until the message has its outcome.
        message: what is sent.
        callback: the application's; None if it does not ask.
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
    """Give what a send with a result raises; None if it is persisted."""
    if result is DUPLICATE_MESSAGE:
        return duplicate_message(sequence_id)
    if result == _OK:
        return None
    try:
        raise_result(result)
    except pulsar.PulsarException as raised:
        error: BaseException = raised
        return error
