"""Receiving several messages at once, and one after the other in a `for` loop.

Every kind of receive takes from the same place: a few hundred messages that were fetched ahead, or as many waits for
one (see `Ahead`). `_quick` is an iterator of them. While messages are acknowledged and one thread receives them, they
are numbered (see `Inbox`): then `_quick` is empty, and `_numbering` has that thread, an iterator of messages with
numbers, and the numbers: in one store, so that whatever other threads do, what a thread gets has numbers of its own.
"""

from __future__ import annotations

import threading
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native.results import Timeout
from pulsar_ext._runtime.callbacks import refuse_in_callback
from pulsar_ext.errors import InvalidUse

from .loop import Receiving
from .record import Overheard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.ack.grouping import Acknowledger
    from pulsar_ext.message import Message

    from .prefetch import Ahead

__all__ = ["NEVER", "NOTHING", "NOT_YET", "ReceivingMany", "check_max_messages"]

NOTHING: Final[Iterator[Any]] = iter(())
"""Where messages without numbers would come from: they are numbered, or the next receive has to find out."""
NOT_YET: Final[tuple[int | None, Any, Any]] = (None, (), ())
"""Nobody numbers what is received, and the next thread that receives may."""
NEVER: Final[tuple[int | None, Any, Any]] = (0, (), ())
"""Nobody may."""


class ReceivingMany(Receiving):
    """What a `Consumer` does with many messages."""

    _acks: Acknowledger
    _ahead: Ahead | None
    _batches: dict[int, list[Any]]
    _many: dict[int, list[Message]]
    _numbering: tuple[int | None, Any, Any]
    _numbering_lock: threading.RLock
    _quick: Any
    _redelivery: Any
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
            self._claim()
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
            numbers, ahead, left = self._claim(), self._fetching(), upto - len(kept)
            source = map(self._receive_call, repeat(0, left)) if ahead is None else ahead.several_here(left)
            self._mind(ahead)
            new = self._message_class
            message = new()
            if numbers is not None:
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
                self._refill()
                quick, numbering = self._quick, self._numbering
                if get_ident() == numbering[0]:
                    for message.inner, message.number in numbering[1]:
                        yield message
                        if self._numbering is not numbering:
                            break
                        message = new()
                else:
                    for message.inner in quick:
                        yield message
                        if self._quick is not quick:
                            break
                        message = new()
            except Timeout:
                refuse_in_callback(self._client, "a receive without messages")
            except pulsar.AlreadyClosed:
                if not self._closed:
                    raise

    def _refill(self) -> None:
        """Have this thread's next receives find messages where they look first, with numbers if that is right."""
        numbers, ahead = self._claim(), self._fetching()
        source = self._source if ahead is None else ahead.several()
        self._mind(ahead)
        with self._numbering_lock:
            if numbers is None:
                self._quick = source
            elif self._numbering[2] is numbers:
                self._numbering = (get_ident(), zip(source, numbers, strict=False), numbers)

    def _claim(self) -> Iterator[int] | None:
        """Give the numbers for what this thread receives; None if nothing is numbered.

        Nothing is for good, once several threads receive: their messages come in no order.
        """
        inbox, thread = self._acks.inbox, get_ident()
        with self._numbering_lock:
            owner, _, numbers = self._numbering
            if owner is None and inbox.wants_numbers:
                numbers = inbox.begin()
                self._numbering, self._quick = (thread, NOTHING, numbers), NOTHING
            elif owner and owner != thread:
                self._numbering = NEVER
                inbox.begin()  # with nobody's numbers: what one fetches ahead, the other may overtake
            return numbers if self._numbering[0] == thread else None

    def _mind(self, ahead: Ahead | None) -> None:
        """Conclude nothing over what another thread fetched: while it did, this one may have received what follows."""
        if ahead is not None and ahead.is_anothers:
            self._acks.inbox.leave_out()

    def _number_anew(self) -> None:
        """Conclude nothing from the numbers of what came and what follows: it is not behind what came.

        Whether there are numbers at all, the next receive finds out.
        """
        with self._numbering_lock:
            if self._numbering is not NEVER:
                self._numbering = NOT_YET
            self._acks.inbox.leave_out()
            self._quick = NOTHING

    def _number_no_more(self) -> None:
        """Number nothing from now on: messages come out of their order."""
        with self._numbering_lock:
            self._numbering = NEVER
            self._number_anew()

    def _receive_through(self, source: Any) -> None:
        """Have something stand before the queue: it gives the messages, and waits for one when it is called."""
        self._source = self._receive_call = source
        self._number_anew()

    def _fetching(self) -> Ahead | None:
        """Give what fetches ahead; None if nothing does, or something stands before it."""
        return self._ahead if self._source is self._ahead else None


def check_max_messages(max_messages: Any) -> None:
    """Refuse what is no number of messages to receive.

    Raises:
        InvalidUse: it is no int of 1 or more.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages is an int, 1 or more, not {max_messages!r}.")
