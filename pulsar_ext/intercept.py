"""Interceptors: the application's code before a message is sent or delivered, and after its outcome.

Every method of an interceptor does nothing by default. It runs on the caller's thread or on a thread of the client: it
must be thread-safe and must not block on the client. A chain of interceptors logs their errors, which affect neither
the client nor the next interceptor: the message continues unchanged.

`InterceptedSender` wraps the sender of any producer. Consumers and readers with interceptors are subclasses that are
chosen at opening; others have no overhead. A Ctrl-C loses no message between a receive and the application, while
interceptors are called. `PartitionWatch` polls for added partitions, if an interceptor overrides
`on_partitions_change()`. Mirrors Java's `ProducerInterceptors`, `ConsumerInterceptors` and `ReaderInterceptorUtil`.
"""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from operator import attrgetter
from threading import get_ident
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

import pulsar

from ._native.messages import InnerMessage, InnerMessageId
from ._native.results import AlreadyClosed, Result, exception_of
from ._native.signatures import with_signature_of
from ._runtime.callbacks import SendCallback
from ._runtime.context import ClientContext
from .consumer import Consumer
from .errors import InvalidUse
from .ids.message_id import MessageId, from_inner
from .message import Message, handled_in, received
from .produce.options import Options, named_options
from .produce.outcome import DUPLICATE_MESSAGE, duplicate_message
from .produce.sender import Sender, WrappingSender, check_callback
from .reader import Reader
from .receive.order import Part, Transition, TransitionSubscriber

_log = logging.getLogger("pulsar_ext")

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message with the arguments of its send. It is immutable: an interceptor returns another one.

    Args:
        value: the message's value, before the schema encodes it.
        properties: this and the other fields are the arguments of `Producer.send()`, None if missing.
    """

    value: Any
    properties: Mapping[str, str] = field(default_factory=lambda: _NO_PROPERTIES)
    partition_key: str | None = None
    ordering_key: str | None = None
    sequence_id: int | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool | None = None
    event_timestamp: int | None = None
    deliver_at: int | None = None
    deliver_after: timedelta | None = None
    notes: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    """Data of interceptors, to use with the outcome; it is not sent, and is kept by `replace()`."""

    @classmethod
    def of(cls, value: object, options: Options) -> Self:
        """Return the message of a send's arguments; a TypeError names an argument that no send has."""
        properties = options.get("properties")
        if properties is None:
            properties = _NO_PROPERTIES
        elif isinstance(properties, dict):
            properties = MappingProxyType(dict(properties))  # a copy, because the application may change its own
        return cls(value, **{**options, "properties": properties})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other fields."""
        if isinstance(properties := changes.get("properties"), dict):
            changes["properties"] = MappingProxyType(dict(properties))
        return dataclasses.replace(self, **changes)

    def with_properties(self, properties: Mapping[str, str]) -> Self:
        """Return a copy with more properties, which override its own."""
        return self.replace(properties={**self.properties, **properties})

    def options(self) -> Options:
        """Return the arguments of its send by name, except the value."""
        given = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        if isinstance(self.properties, MappingProxyType):
            given["properties"] = dict(self.properties)
            if not self.properties:
                del given["properties"]
        return given


_OPTIONS = tuple(one.name for one in dataclasses.fields(OutgoingMessage) if one.name not in ("value", "notes"))


class Interceptor:
    """Base of all interceptors."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """Handle more partitions of a topic, which now has `partitions`; the client polls every minute."""

    def close(self) -> None:
        """Release resources: the producer, consumer, reader or client was closed. Called once."""


class ProducerInterceptor(Interceptor):
    """Interceptor of a producer's messages; Java's `ProducerInterceptor` of `api.interceptor`."""

    def eligible(self, message: OutgoingMessage, /) -> bool:
        """Return whether to call the other methods for a message."""
        del message
        return True

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Return the message to send instead of a message: the same object, or `message.replace(…)`.

        The send calls it with the result of the previous interceptor, before the message gets its partition and batch.
        """
        del producer
        return message

    def on_send_acknowledgement(
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: BaseException | None
    ) -> None:
        """Handle the outcome of a sent message, before the application does.

        It has an id if it was persisted, otherwise the error that the send raises.
        """


class ConsumerInterceptor(Interceptor):
    """Interceptor of a consumer's messages; Java's `ConsumerInterceptor`."""

    def before_consume(self, consumer: Any, message: Message) -> Message:
        """Return the message to deliver instead of a message: the same object, or `message.altered(…)`.

        Called with the result of the previous interceptor, when the application receives the message, not when it is
        prefetched.
        """
        del consumer
        return message

    def on_acknowledge(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """Handle an acknowledgement by the application, or of a message that became a dead letter.

        It has the message's id, or the id that the application passed, and the error that `acknowledge()` raises.
        """

    def on_acknowledge_cumulative(self, consumer: Any, message_id: Any, error: BaseException | None) -> None:
        """Handle a cumulative acknowledgement; see `on_acknowledge()`."""

    def on_negative_acks_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """Handle a request to redeliver entries because of negative acknowledgements.

        A whole batch is one entry; each chunk is an entry.
        """

    def on_ack_timeout_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        """Handle a request to redeliver entries that were not acknowledged in `unacked_messages_timeout_ms`."""


class ReaderInterceptor(Interceptor):
    """Interceptor of a reader's messages; Java's `ReaderInterceptor`."""

    def before_read(self, reader: Any, message: Message) -> Message:
        """Return the message to deliver instead of a message; see `ConsumerInterceptor.before_consume()`."""
        del reader
        return message


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
    if result is DUPLICATE_MESSAGE:
        return duplicate_message(sequence_id)
    return None if result == pulsar.Result.Ok else exception_of(result)


class InterceptedDelivery(TransitionSubscriber):
    """Delivery through interceptors; a thread's next call first returns messages kept by a Ctrl-C: `Interrupted`."""

    part = Part.INTERCEPTED

    def __init__(self, chain: ReceiverChain[Any]) -> None:
        self._chain = chain
        self._kept: dict[int, tuple[list[Message], list[Message]]] = {}
        """By thread: messages before and after the interceptors."""

    @property
    def holds(self) -> bool:
        """True if this thread's next call returns at once."""
        return any(self._kept.get(get_ident(), ()))

    def receive_one(self, receiver: object, take: Callable[[], Message]) -> Message:
        """Return the next message."""
        thread, kept_by = get_ident(), self._kept
        unseen, seen = kept_by.setdefault(thread, ([], []))
        if not (unseen or seen):
            unseen.append(take())
        self._intercept(receiver, unseen, seen)
        message = seen[0]
        del seen[0]
        if not seen:
            try:  # noqa: SIM105  # no function call from here on: a Ctrl-C in it would lose the message
                del kept_by[thread]
            except KeyError:  # a signal handler has received in between
                pass
        return message

    def receive_many(self, receiver: object, take: Callable[[], list[Message]]) -> list[Message]:
        """Return the next messages."""
        thread, kept_by = get_ident(), self._kept
        unseen, seen = kept_by.setdefault(thread, ([], []))
        if not (unseen or seen):
            unseen += take()
        self._intercept(receiver, unseen, seen)
        try:  # noqa: SIM105  # no function call from here on: a Ctrl-C in it would lose the messages
            del kept_by[thread]
        except KeyError:
            pass
        return seen

    def _intercept(self, receiver: object, unseen: list[Message], seen: list[Message]) -> None:
        while unseen:
            message = self._chain.before(receiver, unseen[0])
            del unseen[0]  # no function call between these lines: a Ctrl-C finds the message in one list
            seen += (message,)

    def on_after(self, _: Transition, /) -> None:
        """Discard the kept messages, which are redelivered or precede a seek."""
        self._kept = {}

    def drop_topics(self, is_affected: Callable[[InnerMessage], bool], /) -> None:
        """Discard the kept messages of some of several topics."""
        for kept in list(self._kept.values()):  # a copy, because other threads change it
            for messages in kept:
                messages[:] = [message for message in messages if not is_affected(message.inner)]


C = TypeVar("C", bound=Consumer)


class _Notifying(Consumer):
    """A consumer that calls interceptors after acknowledgements; an asyncio twin delivers its messages."""

    __slots__ = ()
    chain: ConsumerChain

    def acknowledge(self, message: object) -> None:
        self._acknowledge(super().acknowledge, "on_acknowledge", message)

    def acknowledge_many(self, messages: Iterable[object]) -> None:
        messages = list(messages)
        if {*map(type, messages)} <= {self._message_class_}:
            error = None
            try:
                super().acknowledge_many(messages)
            except BaseException as raised:
                error = raised
                raise
            finally:
                for message in messages:
                    self.chain.acknowledged(self._as_shown, message, error)
        else:
            for message in messages:
                self.acknowledge(message)

    def acknowledge_cumulative(self, message: object) -> None:
        self._acknowledge(super().acknowledge_cumulative, "on_acknowledge_cumulative", message)

    def _acknowledge(self, acknowledge: Callable[[object], None], method: str, message: object) -> None:
        if isinstance(message, InnerMessage | pulsar.Message) and type(message) is not self._message_class_:
            message = self._own(message)  # altered by an interceptor, or of another consumer
        try:
            acknowledge(message)
        except BaseException as error:
            self.chain.acknowledged(self._as_shown, message, error, method)
            raise
        self.chain.acknowledged(self._as_shown, message, None, method)

    @property
    def _as_shown(self) -> object:
        """Object that interceptors get: the asyncio twin, if there is one."""
        return (self.chain.awaited and self.chain.shown) or self

    def unsubscribe(self) -> None:
        super().unsubscribe()
        self.chain.close()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.chain.close()


class _Intercepted(_Notifying):
    __slots__ = ()
    delivery: InterceptedDelivery

    def receive(self, timeout_millis: int | None = None) -> Message:
        return self.delivery.receive_one(self, partial(super().receive, timeout_millis))

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message]:
        return self.delivery.receive_many(self, partial(super().receive_many, max_messages, timeout_millis))

    def batch_receive(self) -> list[Message]:
        return self.delivery.receive_many(self, super().batch_receive)

    def __iter__(self) -> Iterator[Message]:
        """Receive one message after the other, until the consumer is closed."""
        while not self.is_closed:
            try:
                message = self.receive()
            except AlreadyClosed:
                if self.is_closed:
                    return
                raise
            yield message


class _InterceptedReader(Reader):
    __slots__ = ()
    chain: ReaderChain
    delivery: InterceptedDelivery

    def read_next(self, timeout_millis: int | None = None) -> Message:
        return self.delivery.receive_one(self, partial(super().read_next, timeout_millis))

    def has_message_available(self) -> bool:
        return self.delivery.holds or super().has_message_available()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.chain.close()


@cache
def _class_of(mixin: type, kind: type) -> type:
    name = f"Intercepted{kind.__name__}"
    return type(name, (mixin, kind), {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__})


def intercept_consumer(consumer: C, chain: ConsumerChain) -> C:
    """Make a consumer call interceptors from now on, and return it."""
    vars(consumer)["chain"] = chain
    if not chain.awaited:
        vars(consumer)["delivery"] = delivery = InterceptedDelivery(chain)
        consumer._add_subscriber_(delivery)
    kind: Any = type(consumer)
    consumer.__class__ = _class_of(_Notifying if chain.awaited else _Intercepted, kind)
    return consumer


def intercept_reader(reader: Reader, chain: ReaderChain) -> None:
    """Make a reader call interceptors from now on."""
    delivery = InterceptedDelivery(chain)
    vars(reader).update(chain=chain, delivery=delivery)
    reader._add_subscriber_(delivery)
    kind: Any = type(reader)
    reader.__class__ = _class_of(_InterceptedReader, kind)
