"""The receive loop of consumers and readers: fast, and a Ctrl-C loses nothing.

The official `receive()` hands a request to the C++ client and waits for the answer; a Ctrl-C abandons the request,
and the message that answers it later vanishes. Here the wait is native and short, and its result goes straight into
the message: nothing is ever on its way when Python looks for signals.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext._native.fork import closed
from pulsar_ext._native.handles import consumers_of
from pulsar_ext._native.results import POLL_MILLIS, Timeout
from pulsar_ext.chunks.resolver import seek_target

from .order import Part, ReceiveOrder, Transition
from .pending import PendingReceives
from .source import NativeSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.condition import OwnedLock
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message

    from .source import Source

__all__ = ["Receiving", "native_source"]


_listening: set[Receiving] = set()
"""Those with a listener that are open: were one dropped, and with it its client, nobody would hear its messages."""


def native_source(
    order: ReceiveOrder, wait: Callable[[int], Any], receive_async: Callable[[Any], None], *, queued: bool
) -> NativeSource:
    """Give the source that takes from the C++ object.

    Args:
        order: of the consumer or reader.
        wait: its receive with a timeout in milliseconds.
        receive_async: its asynchronous receive, where the receiver queue has no room and a wait is impossible.
        queued: whether it has.
    """
    if queued:
        return NativeSource(wait)
    pending = PendingReceives(receive_async)
    order.take_part(pending)
    return NativeSource(pending)


class Receiving:
    """What `Consumer` and `Reader` share; it stands before the official class."""

    inner: Any
    _client: Any
    _closed: bool
    _context: ClientContext
    _hear: Any
    _message_class: type[Message]
    _order: ReceiveOrder
    _source: Source
    _topics: Any

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called."""
        return self._closed

    @property
    def message_class(self) -> type[Message]:
        """What the received messages are."""
        return self._message_class

    @property
    def locks(self) -> tuple[OwnedLock, ...]:
        """What the handler of a signal finds held by its own thread where a close would meet something half done."""
        return (self._order.lock,)

    def take_part(self, part: Part) -> None:
        """Have a part that keeps messages hear of seeks, redeliveries and the like."""
        self._order.take_part(part)

    def receive_next(self, timeout_millis: int | None = None) -> Message:
        """Receive one message.

        A Ctrl-C ends the wait within 100 ms and loses no message.

        Args:
            timeout_millis: how long to wait; None waits for ever.

        Raises:
            pulsar.Timeout: no message came in time.
            pulsar.AlreadyClosed: it is closed.
        """
        message = self._message_class()
        if timeout_millis is not None and (type(timeout_millis) is not int or timeout_millis < POLL_MILLIS):
            return self._receive_soon(message, timeout_millis)
        deadline = None
        while True:
            try:
                for message.inner in self._source.each:
                    return message
            except Timeout:
                self._context.callbacks.refuse("a receive without messages")
                if timeout_millis is None:
                    continue
                if deadline is None:
                    deadline = time.monotonic() + (timeout_millis - POLL_MILLIS) / 1000
                left = int((deadline - time.monotonic()) * 1000)
                if left < POLL_MILLIS:
                    return self._receive_soon(message, left)

    def seek(self, messageid: Any) -> None:
        """Move to a message, or to a publish time in milliseconds.

        A chunked message is reached at its first chunk, by whatever id. With `start_message_id_inclusive=True` it is
        the next one to come, otherwise the one after it is.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        self._context.callbacks.refuse("seek")
        target = seek_target(self._context.resolver, self._topics, messageid)
        with self._order.passing(Transition.SEEK):
            self.inner.seek(target)

    def close(self) -> None:
        """Close, after sending pending acknowledgements; closing again does nothing."""
        if self._closed:
            return
        self._context.callbacks.refuse("close")
        with self._order.passing(Transition.CLOSE):
            self._closed = True
            self.release()
            self.inner.close()
        consumers = consumers_of(self._client)
        if self in consumers:
            consumers.remove(self)

    def listen(self, hear: Any) -> None:
        """Keep what the listener calls, and with a listener be kept, until it is closed."""
        self._hear = hear
        if hear is not None:
            _listening.add(self)

    def release(self) -> None:
        """Be kept no longer: it is closed, or its client is."""
        _listening.discard(self)

    def bar(self) -> None:
        """Let nobody enter the C++ object any more: the program ends."""
        self._refuse(closed(type(self).__name__))

    def after_fork(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self._refuse(refusal)

    def _refuse(self, refusal: Any) -> None:
        self.inner = self._source = refusal
        self._order.end(refusal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive_soon(self, message: Message, timeout_millis: int) -> Message:
        """Receive within less than one poll."""
        if not isinstance(timeout_millis, int):
            found = type(timeout_millis).__name__
            raise ValueError(  # noqa: TRY004  # what the official client raises
                f"Argument timeout_millis is expected to be of type 'int' and not '{found}'"
            )
        for message.inner in map(self._source.wait, (max(timeout_millis, 0),)):
            return message
        raise AssertionError  # the map above has exactly one item
