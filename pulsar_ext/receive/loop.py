"""The receive loop of consumers and readers: fast, and a Ctrl-C loses nothing.

The official `receive()` hands a request to the C++ client and waits for the answer; a Ctrl-C abandons the request,
and the message that answers it later vanishes. Here the wait is native and short, and its result goes straight into
the message: nothing is ever on its way when Python looks for signals.

With `receiver_queue_size=0` the official client has no wait with a timeout. There `PendingReceives` keeps the request
beyond the wait, and the next receive takes its answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext._native.fork import closed
from pulsar_ext._native.handles import consumers_of
from pulsar_ext._native.results import POLL_MILLIS, Timeout, polling
from pulsar_ext._runtime.callbacks import refuse_in_callback
from pulsar_ext.chunks.resolver import seek_target

from .pending import PendingReceives

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.client.client import Client
    from pulsar_ext.message import Message

__all__ = ["Receiving"]


_listening: set[Receiving] = set()
"""Those with a listener that are open: were one dropped, and with it its client, nobody would hear its messages."""


class Receiving:
    """What `Consumer` and `Reader` share; it stands before the official class."""

    inner: Any
    _answers: Any
    _client: Client
    _closed: bool
    _hear: Any
    _message_class: type[Message]
    _receive_call: Callable[[int], Any]
    _source: Any
    _topics: Any

    def _receive_from(self, call: Callable[[int], Any], receive_async: Callable[[Any], None] | None) -> None:
        """Set the native wait: `call` with a timeout in milliseconds, or `receive_async` where that is impossible."""
        self._answers = None if receive_async is None else PendingReceives(receive_async)
        self._receive_call = call if receive_async is None else self._answers
        self._source = polling(self._receive_call)

    def _receive(self, timeout_millis: int | None = None) -> Message:
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
                for message.inner in self._source:
                    return message
            except Timeout:
                refuse_in_callback(self._client, "a receive without messages")
                if timeout_millis is None:
                    continue
                if deadline is None:
                    deadline = time.monotonic() + (timeout_millis - POLL_MILLIS) / 1000
                left = int((deadline - time.monotonic()) * 1000)
                if left < POLL_MILLIS:
                    return self._receive_soon(message, left)

    def _answered_by(self, answers: Any) -> None:
        """Have `answers.forget()` called before a seek or a redelivery: it keeps messages that were asked for."""
        self._answers = answers

    def _forget_answers(self) -> None:
        """Drop what was asked for earlier and came since: it is from before a seek or a redelivery."""
        if self._answers is not None:
            self._answers.forget()

    def seek(self, messageid: Any) -> None:
        """Move to a message, or to a publish time in milliseconds.

        A chunked message is reached at its first chunk, by whatever id. With `start_message_id_inclusive=True` it is
        the next one to come, otherwise the one after it is.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        refuse_in_callback(self._client, "seek")
        target = seek_target(self._client.context.resolver, self._topics, messageid)
        self._forget_answers()
        self.inner.seek(target)

    def close(self) -> None:
        """Close, after sending pending acknowledgements; closing again does nothing."""
        if self._closed:
            return
        refuse_in_callback(self._client, "close")
        self._closed = True
        self._let_go()
        self.inner.close()
        consumers = consumers_of(self._client)
        if self in consumers:
            consumers.remove(self)

    def _listen(self, hear: Any) -> None:
        """Keep what the listener calls, and with a listener be kept, until it is closed."""
        self._hear = hear
        if hear is not None:
            _listening.add(self)

    def _let_go(self) -> None:
        """Be kept no longer: it is closed, or its client is."""
        _listening.discard(self)

    def after_fork(self, refusal: Any) -> None:
        """Refuse every use in this child process."""
        self.inner = self._source = self._receive_call = refusal

    def _bar(self) -> None:
        """Let nobody enter the C++ object any more: the program ends."""
        self.inner = self._source = self._receive_call = closed(type(self).__name__)

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
        for message.inner in map(self._receive_call, (max(timeout_millis, 0),)):
            return message
        raise AssertionError  # the map above has exactly one item
