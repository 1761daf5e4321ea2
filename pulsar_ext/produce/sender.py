"""The protocol of what a producer sends with, senders that have one C++ producer, and senders around another one."""

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
    """Sends the messages of one producer. It is open once it is made, until `finish` or its client ends it."""

    context: ClientContext

    @property
    def many_in_flight(self) -> int | None:
        """How many of `send_many` are on their way at most; None where `post()` waits for room."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it takes no more messages, because it was closed."""
        ...

    def topic(self) -> str:
        """Give the topic's name."""
        ...

    def producer_name(self) -> str:
        """Give the producer's name."""
        ...

    def is_connected(self) -> bool:
        """Whether there is a connection to the broker."""
        ...

    def last_sequence_id(self) -> int:
        """Give the last sequence id that is persisted, as officially."""
        ...

    def last_sequence_id_published(self) -> int:
        """Give the sequence id up to which everything is persisted, -1 if there is none."""
        ...

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message has, persisted or on its way."""
        ...

    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait for its outcome; the arguments are the official ones, here and below."""
        ...

    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have its outcome reported; what a producer calls is `joining()`."""
        ...

    def joining(self) -> Callable[..., None]:
        """Return what the `send_async` of its producer is."""
        ...

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> object:
        """Send a message as one of `send_many`: with options by name, and `patient` to wait for room in any case."""
        ...

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, whose arguments come a column each, and with `flush` wait for their outcomes."""
        ...

    def flush(self) -> None:
        """Send what is batched, and wait for every outcome."""
        ...

    def finish(self, deadline: float) -> None:
        """Close, and wait for what is pending no longer than until `deadline`, a monotonic time in seconds."""
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
        """Return what the `send_async` of its producer is."""
        return self.send_async

    def topic(self) -> str:
        """Give the topic's name."""
        return str(self.handle.topic())

    def producer_name(self) -> str:
        """Give the producer's name."""
        return str(self.handle.producer_name())

    def is_connected(self) -> bool:
        """Whether there is a connection to the broker."""
        return bool(self.handle.is_connected())

    def last_sequence_id(self) -> int:
        """Give the last sequence id that is persisted, as officially."""
        return int(self.handle.last_sequence_id())

    def last_sequence_id_published(self) -> int:
        """Give the last sequence id that is persisted."""
        return self.last_sequence_id()

    def last_sequence_id_pushed(self) -> int:
        """Refuse: the C++ client gives the ids, and says nothing about them.

        Raises:
            InvalidUse: always.
        """
        raise InvalidUse("last_sequence_id_pushed() needs a producer created with deduplication=True.")


def close_quietly(producer: Any) -> None:
    """Close an official producer, or a C++ one, that is given up whatever the close says."""
    with contextlib.suppress(pulsar.PulsarException):
        producer.close()


def check_callback(callback: object) -> None:
    """Refuse a callback that is neither None nor callable.

    Raises:
        TypeError: it is something else.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"The callback must be a function, not {type(callback).__name__}.")


class WrappingSender:
    """Has everything of another sender, such as its topic and its last sequence ids.

    Args:
        sender: the other one.
    """

    many_in_flight: int | None
    send_async: Callable[..., None]

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.context, self.many_in_flight = sender.context, sender.many_in_flight

    def joining(self) -> Callable[..., None]:
        """Return what the `send_async` of its producer is."""
        return self.send_async

    def __getattr__(self, name: str) -> Any:
        """Give what is not another here."""
        return getattr(self._sender, name)
