"""Consumers and readers with interceptors, as subclasses that are chosen at opening; others have no overhead.

A Ctrl-C loses no message between a receive and the application, while interceptors are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from threading import get_ident
from typing import Any, TypeVar

import pulsar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import AlreadyClosed
from pulsar_ext.consumer import Consumer
from pulsar_ext.message import Message
from pulsar_ext.reader import Reader
from pulsar_ext.receive.order import Part, Transition, TransitionSubscriber

from .chain import ConsumerChain, ReaderChain, ReceiverChain


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
    """A consumer that calls interceptors for each message as it is delivered."""

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
    """A reader that calls interceptors for each message as it is delivered."""

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
