"""Receiving several messages at once, and one after the other in a `for` loop.

Both take what the client has; what they fetch ahead for speed, every other kind of receive finds (see `Ahead`).
"""

from __future__ import annotations

from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import pulsar

from ._official import Timeout
from .ack_flush import Overheard
from .callbacks import refuse_in_callback
from .errors import InvalidUse
from .receiving import Receiving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .acknowledging import Acknowledger
    from .ahead import Ahead
    from .message import Message

__all__ = ["NUMBERED", "ReceivingMany", "check_max_messages"]

NUMBERED: Final[Iterator[Any]] = iter(())
"""Stands where messages without numbers would come from, while they come with numbers from elsewhere."""


class ReceivingMany(Receiving):
    """What a `Consumer` does with many messages."""

    _acks: Acknowledger
    _ahead: Ahead | None
    _batches: dict[int, list[Any]]
    _many: dict[int, list[Message]]
    _numbering: tuple[int | None, Any, Any]
    _quick: Any
    _redelivery: Any
    _number: Callable[..., None]
    _number_if_right: Callable[[], None]
    receive: Callable[[int | None], Message]

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message]:
        """Receive several messages at once: waits for the first, and takes with it what is there already.

        What is not in the list stays where seeks, redeliveries and other receives find it. After a Ctrl-C the next call
        on the same thread returns what this one had.

        Args:
            max_messages: how many at most; a hundred are faster than a thousand, which leave the processor's cache.
            timeout_millis: how long to wait for the first; None waits for ever.

        Returns:
            The messages, in order; empty if none came in time.

        Raises:
            InvalidUse: `max_messages` is no int of 1 or more.
            pulsar.AlreadyClosed: it is closed.
        """
        check_max_messages(max_messages)
        kept = self._many.setdefault(get_ident(), [])
        try:
            if not kept:
                kept.append(self.receive(timeout_millis))
                self._take(kept, max_messages)
        except Timeout:
            if self._ahead is not None:
                self._ahead.found_few()
        del self._many[get_ident()]
        return kept

    def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as many as the `batch_receive_policy` says.

        After a Ctrl-C the next call on the same thread returns what this one had.

        Returns:
            The messages, in order; empty if none came within the policy's time.
        """
        thread, new, batches = get_ident(), self._message_class, self._batches
        if self._ahead is not None:
            self._number_if_right()
            self._ahead.batch(batches.setdefault(thread, []))
        elif thread not in batches:
            # Straight into its place, as in the receive loop: a Ctrl-C leaves the batch to the next call.
            for batches[thread] in iter(self.inner.batch_receive, None):
                break
        messages = []
        for inner in filter(self._redelivery.screen, batches[thread]) if self._redelivery.screens else batches[thread]:
            message = new()
            message.inner = inner
            messages.append(message)
        if isinstance(self._source, Overheard):
            self._source.note(messages)
        del batches[thread]
        return messages

    def _take(self, kept: list[Message], upto: int) -> None:
        """Take messages that are there, until a list has so many.

        Raises:
            pulsar.Timeout: no more are there.
        """
        while len(kept) < upto:
            ahead, left = self._fetching(), upto - len(kept)
            source = map(self._receive_call, repeat(0, left)) if ahead is None else ahead.several_here(left)
            new = self._message_class
            message = new()
            owner, _, numbers = self._numbering
            if get_ident() == owner and self._quick is NUMBERED:
                for message.inner, message.number in zip(source, numbers, strict=False):
                    kept.append(message)
                    message = new()
            else:
                for message.inner in source:
                    kept.append(message)
                    message = new()

    def __iter__(self) -> Iterator[Message]:
        """Receive for ever, one message after the other, until it is closed."""
        new = self._message_class
        while not self._closed:
            message = new()
            try:
                ahead = self._fetching()
                self._number_if_right()
                front, numbering = self._source, self._numbering
                source = front if ahead is None else ahead.several()
                if self._quick is NUMBERED and numbering[0] == get_ident():
                    for message.inner, message.number in zip(source, numbering[2], strict=False):
                        yield message
                        if self._numbering is not numbering:
                            break
                        message = new()
                else:
                    for message.inner in source:
                        yield message
                        if self._quick is not front:
                            break
                        message = new()
            except Timeout:
                refuse_in_callback(self._client, "a receive without messages")
            except pulsar.AlreadyClosed:
                if not self._closed:
                    raise

    def _fetching(self) -> Ahead | None:
        """Have what fetches ahead stand before the queue from now on; None if it may not."""
        ahead = self._ahead
        if ahead is None or self._source is ahead:
            return ahead
        if not ahead.stands_before(self._source):  # something else does
            return None
        self._source = self._receive_call = ahead
        self._number(on=self._acks.inbox.numbering)
        return ahead


def check_max_messages(max_messages: Any) -> None:
    """Refuse what is no number of messages to receive.

    Raises:
        InvalidUse: it is no int of 1 or more.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages is an int, 1 or more, not {max_messages!r}.")
