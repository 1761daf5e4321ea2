"""The sender protocol, senders with one C++ producer, and senders that wrap another sender."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.ids.message_id import MessageId

    from .outcome import SentMany


class Sender(Protocol):
    """Sends the messages of one producer; open from its creation until `finish`, or until its client is closed."""

    context: ClientContext

    @property
    def many_in_flight(self) -> int | None:
        """Maximum number of `send_many` messages in flight; None if `post()` waits for room."""
        ...

    @property
    def closed(self) -> bool:
        """True once the sender was closed."""
        ...

    def topic(self) -> str:
        """Return the topic's name."""
        ...

    def producer_name(self) -> str:
        """Return the producer's name."""
        ...

    def is_connected(self) -> bool:
        """Return whether the producer is connected to a broker."""
        ...

    def last_sequence_id(self) -> int:
        """Return the last persisted sequence id, as the official client does."""
        ...

    def last_sequence_id_published(self) -> int:
        """Return the sequence id up to which everything is persisted, -1 if none."""
        ...

    def last_sequence_id_pushed(self) -> int:
        """Return the highest sequence id pushed, persisted or in flight."""
        ...

    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait for its outcome; the arguments are the official ones."""
        ...

    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and report its outcome to the callback."""
        ...

    def joining(self) -> Callable[..., None]:
        """Return the `send_async` of its producer."""
        ...

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> object:
        """Send one message of `send_many`; `patient` waits for room even without `block_if_queue_full`."""
        ...

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, whose options are columns; with `flush`, wait for their outcomes."""
        ...

    def flush(self) -> None:
        """Send the open batches, and wait for every outcome."""
        ...

    def finish(self, deadline: float) -> None:
        """Close, and wait for pending messages until `deadline`, a monotonic time in seconds."""
        ...


class HandleSender:
    """A sender with one C++ producer.

    Args:
        handle: the C++ producer.
        context: of its client.
    """

    __slots__ = ("__weakref__", "context", "handle")

    def __init__(self, handle: ProducerHandle, context: ClientContext) -> None:
        self.handle = handle
        self.context = context

    send_async: Callable[..., None]

    def joining(self) -> Callable[..., None]:
        """Return the `send_async` of its producer."""
        return self.send_async

    def topic(self) -> str:
        """Return the topic's name."""
        return str(self.handle.topic())

    def producer_name(self) -> str:
        """Return the producer's name."""
        return str(self.handle.producer_name())

    def is_connected(self) -> bool:
        """Return whether the producer is connected to a broker."""
        return bool(self.handle.is_connected())

    def last_sequence_id(self) -> int:
        """Return the last persisted sequence id, as the official client does."""
        return int(self.handle.last_sequence_id())

    def last_sequence_id_published(self) -> int:
        """Return the last persisted sequence id."""
        return self.last_sequence_id()

    def last_sequence_id_pushed(self) -> int:
        """Raise: the C++ client assigns the sequence ids and does not expose them.

        Raises:
            InvalidUse: always.
        """
        raise InvalidUse("last_sequence_id_pushed() needs a producer created with deduplication=True.")


def close_quietly(producer: Any) -> None:
    """Close an official or C++ producer, ignoring errors."""
    with contextlib.suppress(pulsar.PulsarException):
        producer.close()


def check_callback(callback: object) -> None:
    """Check that a callback is None or callable.

    Raises:
        TypeError: it is neither.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {type(callback).__name__}")


class WrappingSender:
    """Wraps another sender and delegates to it, for example `topic()`.

    Args:
        sender: the wrapped sender.
    """

    many_in_flight: int | None
    send_async: Callable[..., None]

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.context, self.many_in_flight = sender.context, sender.many_in_flight

    def joining(self) -> Callable[..., None]:
        """Return the `send_async` of its producer."""
        return self.send_async

    def __getattr__(self, name: str) -> Any:
        """Return the wrapped sender's attribute."""
        return getattr(self._sender, name)
