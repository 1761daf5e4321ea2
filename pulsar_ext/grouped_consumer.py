"""A consumer with a grouping of its own, which knows whole batches without looking at every message.

Asking the C++ client for a message's id costs more than anything else about an acknowledgement. So the messages that
one thread receives are numbered. They come out of a queue where the messages of a batch stand side by side in their
order: if the first and the last of some messages with consecutive numbers are as far apart in their batch as their
numbers are, then those between are the ones between, and need not be asked. Messages of other threads, and whatever
else does not fit, are looked at one by one.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from ._official import POLL_MILLIS, MessageDoor, Timeout
from .consumer import Consumer
from .receiving import Receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .message import Message

__all__ = ["GroupedConsumer"]


class GroupedConsumer(Consumer):
    """A `Consumer` whose messages are numbered; made by `Client.subscribe()` with a grouping."""

    __slots__ = ("_owner", "_received")

    _owner: int | None
    _received: int

    @classmethod
    def _of(cls, *args: Any, **kwargs: Any) -> Self:
        """Take over an official consumer; see `Consumer._of`."""
        self = super()._of(*args, **kwargs)
        self._owner = None
        self._received = 0
        return self

    def receive(self, timeout_millis: int | None = None) -> Message:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Receive one message; see `Receiving._receive`."""
        if get_ident() == self._owner and (timeout_millis is None or timeout_millis is POLL_MILLIS):
            message: Any = self._message_class()
            message.number = number = self._received + 1
            try:
                for message.inner in self._source:
                    self._received = number
                    return message  # type: ignore[no-any-return]
            except Timeout:
                if timeout_millis is not None:
                    raise
        elif self._owner is None:
            self._owner = get_ident()
        return Receiving._receive(self, timeout_millis)  # noqa: SLF001  # our own base

    def receive_many(self, max_messages: int = 1000, timeout_millis: int | None = None) -> list[Message]:
        """Receive several messages at once; see `ReceivingMany.receive_many`."""
        messages = super().receive_many(max_messages, timeout_millis)
        if self._owner is None:
            self._owner = get_ident()
        if get_ident() == self._owner:
            number = self._received
            message: Any
            for message in messages:
                number += 1
                message.number = number
            self._received = number
        return messages

    def __iter__(self) -> Iterator[Message]:
        while not self._closed:
            try:
                yield self.receive(POLL_MILLIS)
            except Timeout:
                continue

    def acknowledge(self, message: Any) -> None:
        """Acknowledge one message, all chunks of it, by the message or any id of it; see `Consumer.acknowledge`."""
        if type(message) is self._message_class:
            inbox = self._inbox
            inbox.append(message)
            acks = self._acks
            if len(inbox) >= acks.limit:
                acks.filled()
            elif not acks.scheduled:
                acks.schedule()
        else:
            super().acknowledge(message.inner if isinstance(message, MessageDoor) else message)

    def acknowledge_many(self, messages: Any) -> None:
        """Acknowledge several messages at once; see `Consumer.acknowledge_many`."""
        messages = list(messages)
        kind = self._message_class
        if all(type(message) is kind for message in messages):
            self._acks.add_messages(messages)
        else:
            super().acknowledge_many(messages)
