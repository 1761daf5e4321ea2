"""The sender protocol, senders with one C++ producer, and senders that wrap another sender."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Protocol

import pulsar

from pulsar_ext._native.handles import ProducerHandle
from pulsar_ext._native.messages import InnerProducer
from pulsar_ext._runtime.callbacks import SendCallback
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.ending import OpenSender, close_together
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId

from .options import Columns, Options, rows_of
from .outcome import BulkOutcome, SentMany


class Sender(Protocol):
    """Sends the messages of one producer, which calls it as if it were the official producer's C++ producer."""

    context: ClientContext

    @property
    def many_in_flight(self) -> int | None:
        """Maximum number of `send_many` messages in flight; None if `post()` waits for room."""
        ...

    @property
    def closed(self) -> bool:
        """True once the sender was closed."""
        ...

    def last_sequence_id_published(self) -> int:
        """Return the sequence id up to which everything is persisted, -1 if none."""
        ...

    def last_sequence_id_pushed(self) -> int:
        """Return the highest sequence id pushed, persisted or in flight."""
        ...

    def send(self, content: object, *args: object, **kwargs: object) -> MessageId:
        """Send a message and wait for its outcome; the arguments are the official ones."""
        ...

    def send_async(self, content: object, callback: SendCallback | None, *args: object, **kwargs: object) -> None:
        """Send a message and report its outcome to the callback."""
        ...

    def post(self, content: object, callback: SendCallback, options: Options) -> object:
        """Send one message of a `send_many`; wait for room, even without `block_if_queue_full`."""
        ...

    def send_many(self, contents: Iterable[object], columns: Columns, *, flush: bool) -> SentMany:
        """Send many messages, whose options are columns; with `flush`, wait for their outcomes."""
        ...

    def flush(self) -> None:
        """Send the open batches, and wait for every outcome."""
        ...

    def finish(self, deadline: float) -> None:
        """Close, and wait for pending messages until `deadline`, a monotonic time in seconds."""
        ...


def post_each(sender: Sender, contents: Iterable[object], columns: Columns, outcome: BulkOutcome) -> int:
    """Send the messages of a `send_many` one by one; return their number."""
    count, most = 0, sender.many_in_flight
    for content, options in rows_of(contents, columns):
        sender.post(content, outcome.one, options)
        count += 1
        if most is not None:
            outcome.wait(count - most)
    return count


class HandleSender:
    """A sender with one C++ producer."""

    def __init__(self, handle: ProducerHandle, context: ClientContext) -> None:
        self.handle, self.context = handle, context
        self.topic, self.producer_name, self.is_connected = handle.topic, handle.producer_name, handle.is_connected

    @property
    def inner(self) -> InnerProducer:
        """The C++ producer."""
        return self.handle.inner

    def last_sequence_id(self) -> int:
        """Return the last persisted sequence id, as the official client does."""
        return self.handle.last_sequence_id()

    def last_sequence_id_published(self) -> int:
        """Return the last persisted sequence id."""
        return self.last_sequence_id()

    def last_sequence_id_pushed(self) -> int:
        """Raise: the C++ client assigns the sequence ids and does not expose them."""
        raise InvalidUse("last_sequence_id_pushed() needs a producer created with deduplication=True.")

    def finish(self: OpenSender, deadline: float) -> None:
        """Close, and wait for pending messages until `deadline`, a monotonic time in seconds."""
        close_together([self], deadline)


class _Closable(Protocol):
    def close(self) -> object: ...


def close_quietly(producer: _Closable) -> None:
    """Close an official or C++ producer, ignoring errors."""
    with contextlib.suppress(pulsar.PulsarException):
        producer.close()


def check_callback(callback: object) -> None:
    """Raise TypeError if a callback is neither None nor callable."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {type(callback).__name__}")


class WrappingSender:
    """Wraps another sender and delegates to it, for example `topic()`."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.context, self.many_in_flight = sender.context, sender.many_in_flight

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sender, name)

    def send_many(self, contents: Iterable[object], columns: Columns, *, flush: bool) -> SentMany:
        """Send many messages one by one, and with `flush` wait until all of them are persisted."""
        self._sender.send_many((), {}, flush=False)  # raises if it is unsupported
        outcome = BulkOutcome()
        count = post_each(self, contents, columns, outcome)
        if flush:
            self._sender.send_many((), {}, flush=True)  # a flush() would raise, and so forget, errors of other messages
        return outcome.sent(count, wait=flush)
