"""Receiving several messages at once, and one after the other in a `for` loop.

Both take messages out of the C++ client's queue one native call each, without waiting: that is as fast as the official
`batch_receive()`, needs no policy, and leaves nothing fetched that a seek or a redelivery would have to find.
"""

from __future__ import annotations

from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pulsar

from ._official import Timeout
from .callbacks import refuse_in_callback
from .errors import InvalidUse
from .receiving import Receiving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .message import Message

__all__ = ["ReceivingMany", "check_max_messages"]


class ReceivingMany(Receiving):
    """What a `Consumer` does with many messages."""

    _many: dict[int, list[Message]]
    _numbered: Any
    _numbers: Iterator[int]
    _owner: int | None
    _leave_number_out: Callable[[], None]
    receive: Callable[[int | None], Message]

    def receive_many(self, max_messages: int = 1000, timeout_millis: int | None = None) -> list[Message]:
        """Receive several messages at once: waits for the first, and takes with it what is there already.

        Nothing is fetched in advance: what is not in the list stays in the client's queue, for seeks, redeliveries and
        other receives to find. After a Ctrl-C the next call on the same thread returns what this one had.

        Args:
            max_messages: how many at most.
            timeout_millis: how long to wait for the first; None waits for ever.

        Returns:
            The messages, in order; empty if none came in time.

        Raises:
            InvalidUse: `max_messages` is no int of 1 or more.
            pulsar.AlreadyClosed: it is closed.
        """
        check_max_messages(max_messages)
        thread = get_ident()
        messages = self._many.setdefault(thread, [])
        try:
            if not messages:
                messages.append(self.receive(timeout_millis))
            message = self._message_class()
            source = map(self._receive_call, repeat(0, max_messages - len(messages)))
            if thread == self._owner:
                for message.inner, message.number in zip(source, self._numbers, strict=False):
                    messages.append(message)
                    message = self._message_class()
            else:
                for message.inner in source:
                    messages.append(message)
                    message = self._message_class()
        except Timeout:
            pass
        del self._many[thread]
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Receive for ever, one message after the other, until it is closed."""
        new = self._message_class
        while not self._closed:
            message = new()
            try:
                while get_ident() == self._owner:
                    for message.inner, message.number in self._numbered:
                        yield message
                        message = new()
                        break
                self._leave_number_out()
                for message.inner in self._source:
                    yield message
                    break
            except Timeout:
                refuse_in_callback(self._client, "a receive without messages")
            except pulsar.AlreadyClosed:
                if not self._closed:
                    raise

    def _forget_many(self) -> None:
        """Drop what an interrupted call left behind: it is from before a seek or a redelivery."""
        self._many.clear()


def check_max_messages(max_messages: Any) -> None:
    """Refuse what is no number of messages to receive.

    Raises:
        InvalidUse: it is no int of 1 or more.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages is an int, 1 or more, not {max_messages!r}.")
