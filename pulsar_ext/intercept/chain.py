"""Interceptors, called one after the other; none harms the client or the next one.

Mirrors Java's `ProducerInterceptors`, `ConsumerInterceptors` and `ReaderInterceptorUtil`.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.message import Message, handled_in, received

from .interfaces import ConsumerInterceptor, Interceptor, ProducerInterceptor, ReaderInterceptor
from .outgoing import OutgoingMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId

__all__ = ["Chain", "ConsumerChain", "ProducerChain", "ReaderChain", "ReceiverChain"]

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
