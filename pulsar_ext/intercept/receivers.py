"""Consumers and readers with interceptors are of other classes, chosen as they are opened; the others pay nothing.

A Ctrl-C loses no message between a receive and the application, while interceptors are called with it.
"""

from __future__ import annotations

from functools import cache, partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import pulsar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import AlreadyClosed
from pulsar_ext.consumer import Consumer
from pulsar_ext.reader import Reader
from pulsar_ext.receive.order import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pulsar_ext.message import Message
    from pulsar_ext.receive.order import Transition

    from .chain import ConsumerChain, ReaderChain, ReceiverChain


class HandingOut(Part):
    """Has interceptors look at each message before it is handed out.

    What a thread had received when a Ctrl-C ended its call, its next call begins with, as with `Interrupted`.

    Args:
        chain: the interceptors.
    """

    def __init__(self, chain: ReceiverChain[Any]) -> None:
        self._chain = chain
        self._left: dict[int, tuple[list[Message], list[Message]]] = {}
        """By thread: what nobody has looked at, and what was looked at."""

    @property
    def holds(self) -> bool:
        """Whether this thread's next call has a message at once."""
        return any(self._left.get(get_ident(), ()))

    def one(self, receiver: Any, take: Callable[[], Message]) -> Message:
        """Give the next message.

        Args:
            receiver: the consumer or reader.
            take: receives one.
        """
        thread, kept_by = get_ident(), self._left
        unseen, seen = kept_by.setdefault(thread, ([], []))
        if not (unseen or seen):
            unseen.append(take())
        self._look(receiver, unseen, seen)
        message = seen[0]
        del seen[0]
        if not seen:
            try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose what nobody keeps any more
                del kept_by[thread]
            except KeyError:  # the handler of a signal has taken more meanwhile
                pass
        return message

    def many(self, receiver: Any, take: Callable[[], list[Message]]) -> list[Message]:
        """Give the next messages.

        Args:
            receiver: the consumer or reader.
            take: receives several.
        """
        thread, kept_by = get_ident(), self._left
        unseen, seen = kept_by.setdefault(thread, ([], []))
        if not (unseen or seen):
            unseen += take()
        self._look(receiver, unseen, seen)
        try:  # noqa: SIM105  # no call from here on, as above
            del kept_by[thread]
        except KeyError:
            pass
        return seen

    def _look(self, receiver: Any, unseen: list[Message], seen: list[Message]) -> None:
        while unseen:
            message = self._chain.before(receiver, unseen[0])
            del unseen[0]  # no call between these lines: a Ctrl-C finds the message in one place
            seen += (message,)

    def after(self, _: Transition, /) -> None:
        """Drop what is left: it comes again, or is not what was sought."""
        self._left = {}

    def drop_some(self, is_of_them: Callable[[Any], bool], /) -> None:
        """Drop what is left of some of several topics."""
        for kept in list(self._left.values()):  # other threads begin and end calls meanwhile
            for messages in kept:
                messages[:] = [message for message in messages if not is_of_them(message.inner)]


C = TypeVar("C", bound=Consumer)


class _Telling(Consumer):
    """A consumer whose interceptors hear of acknowledgements; an asyncio twin hands out its messages."""

    __slots__ = ()
    chain: ConsumerChain

    def acknowledge(self, message: Any) -> None:
        """Acknowledge one message; see `Consumer`."""
        self._tell(super().acknowledge, self.chain.acknowledged, message)

    def acknowledge_many(self, messages: Iterable[Any]) -> None:
        """Acknowledge several messages at once; see `Consumer`."""
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
                    self.chain.acknowledged(self._seen, message, error)
        else:
            for message in messages:
                self.acknowledge(message)

    def acknowledge_cumulative(self, message: Any) -> None:
        """Acknowledge every message up to this one and it too; see `Consumer`."""
        self._tell(super().acknowledge_cumulative, self.chain.acknowledged_cumulatively, message)

    def _tell(
        self,
        acknowledge: Callable[[Any], None],
        tell: Callable[[Any, Any, BaseException | None], None],
        message: Any,
    ) -> None:
        if isinstance(message, InnerMessage | pulsar.Message) and type(message) is not self._message_class_:
            message = self._own(message)  # as an interceptor altered it, or of another consumer
        error = None
        try:
            acknowledge(message)
        except BaseException as raised:
            error = raised
            raise
        finally:
            tell(self._seen, message, error)

    @property
    def _seen(self) -> Any:
        """What interceptors see: the asyncio twin, if there is one."""
        return (self.chain.awaited and self.chain.shown) or self

    def unsubscribe(self) -> None:
        """Delete the subscription; see `Consumer`."""
        super().unsubscribe()
        self.chain.close()

    def close(self) -> None:
        """Close; see `Consumer`."""
        try:
            super().close()
        finally:
            self.chain.close()


class _Intercepted(_Telling):
    """A consumer whose interceptors see each message as it is handed out."""

    __slots__ = ()
    handing: HandingOut

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Receive one message; see `Consumer`."""
        return self.handing.one(self, partial(super().receive, timeout_millis))

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message]:
        """Receive several messages at once; see `Consumer`."""
        return self.handing.many(self, partial(super().receive_many, max_messages, timeout_millis))

    def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as the `batch_receive_policy` says; see `Consumer`."""
        return self.handing.many(self, super().batch_receive)

    def __iter__(self) -> Iterator[Message]:
        """Receive for ever, one message after the other, until it is closed."""
        while not self.is_closed:
            try:
                message = self.receive()
            except AlreadyClosed:
                if self.is_closed:
                    return
                raise
            yield message


class _InterceptedReader(Reader):
    """A reader whose interceptors see each message as it is handed out."""

    __slots__ = ()
    chain: ReaderChain
    handing: HandingOut

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Read one message; see `Reader`."""
        read: Any = super().read_next  # untyped officially
        return self.handing.one(self, partial(read, timeout_millis))

    def has_message_available(self) -> bool:
        """Tell whether there is a message to read; see `Reader`."""
        return self.handing.holds or super().has_message_available()

    def close(self) -> None:
        """Close; see `Reader`."""
        try:
            super().close()
        finally:
            self.chain.close()


@cache
def _class_of(stands_before: Any, kind: Any) -> type[Any]:
    name = f"Intercepted{kind.__name__}"
    return type(name, (stands_before, kind), {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__})


def intercept_consumer(consumer: C, chain: ConsumerChain) -> C:
    """Have a consumer call interceptors from now on; gives it."""
    untyped: Any = consumer
    kind: Any = type(consumer)
    untyped.chain = chain
    if chain.awaited:
        untyped.__class__ = _class_of(_Telling, kind)
        return consumer
    untyped.handing = HandingOut(chain)
    consumer._take_part_(untyped.handing)
    untyped.__class__ = _class_of(_Intercepted, kind)
    return consumer


def intercept_reader(reader: Reader, chain: ReaderChain) -> None:
    """Have a reader call interceptors from now on."""
    untyped: Any = reader
    kind: Any = type(reader)
    untyped.chain, untyped.handing = chain, HandingOut(chain)
    reader._take_part_(untyped.handing)
    untyped.__class__ = _class_of(_InterceptedReader, kind)
