"""Receiving several messages at once, and one after the other in a `for` loop.

The C++ client hands over a hundred messages in one call as fast as sixty one by one, but only by a policy that is given
when subscribing, and it waits for the hundred. So consumers without a policy of their own are subscribed with
`gathering_policy()`, which waits for a millisecond; `receive_many()` asks by it only when many messages are there, and
`batch_receive()` does by it what the official default policy does.

A `for` loop fetches some hundred messages ahead. They are the next ones of any receive; a seek or a redelivery drops
them.
"""

from __future__ import annotations

import contextlib
import time
from itertools import islice, repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any

import pulsar

from ._official import Timeout
from .ack_flush import Overheard
from .callbacks import refuse_in_callback
from .errors import InvalidUse
from .receiving import Receiving

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator

    from .message import Message

__all__ = ["ReceivingMany", "check_max_messages", "gathering_policy"]

_GROUP = 100
"""How many messages the C++ client gives at once by `gathering_policy()`."""
_TRIED = 16
"""If so many are there, more may be."""
_AHEAD = 500
"""How many messages a `for` loop fetches at most."""
_OFFICIAL_BYTES, _OFFICIAL_SECONDS = 10 << 20, 0.1
"""The official policy of `batch_receive()` by default."""


def gathering_policy() -> Any:
    """Give the policy by which the C++ client gathers a hundred messages, or what has come after a millisecond."""
    return pulsar.ConsumerBatchReceivePolicy(_GROUP, -1, 1)


class ReceivingMany(Receiving):
    """What a `Consumer` does with many messages."""

    _ahead: deque[Message]
    _batches: dict[int, list[Any]]
    _gathers: Any
    _many: dict[int, list[Message]]
    _numbered: Any
    _numbers: Iterator[int]
    _owner: int | None
    _redelivery: Any
    _number_anew: Callable[[], None]
    _leave_number_out: Callable[[], None]
    receive: Callable[[int | None], Message]

    def receive_many(self, max_messages: int = 1000, timeout_millis: int | None = None) -> list[Message]:
        """Receive several messages at once: waits for the first, and takes with it what is there already.

        What is not in the list stays in the client's queue, for seeks, redeliveries and other receives to find. After a
        Ctrl-C the next call on the same thread returns what this one had.

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
        kept = self._many.setdefault(thread, [])
        with contextlib.suppress(Timeout):
            if thread in self._batches:
                self._gather(kept)
            if not (kept or self._take_ahead(kept, max_messages)):
                kept.append(self.receive(timeout_millis))
                self._take(kept, min(max_messages, _TRIED))
                came = _GROUP
                while self._receive_call is self._gathers and came == _GROUP <= max_messages - len(kept):
                    came = self._gather(kept)
                if came == _GROUP:
                    self._take(kept, max_messages)
        del self._many[thread]
        return kept

    def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as many as the `batch_receive_policy` says.

        Returns:
            The messages, in order; empty if none came within the policy's time.
        """
        thread = get_ident()
        self._leave_number_out()
        kept = self._many.setdefault(thread, [])
        deadline, size = time.monotonic() + _OFFICIAL_SECONDS, 0
        while not self._take_ahead(kept, _AHEAD):
            before = len(kept)
            self._gather(kept)
            if self._gathers is None:
                break
            size += sum(message.inner.length() for message in kept[before:])
            if size >= _OFFICIAL_BYTES or time.monotonic() >= deadline:
                break
        del self._many[thread]
        return kept

    def _take(self, kept: list[Message], upto: int) -> None:
        """Take messages that are there, one by one, until a list has so many.

        Raises:
            pulsar.Timeout: no more are there.
        """
        message = self._message_class()
        source = map(self._receive_call, repeat(0, max(upto - len(kept), 0)))
        if get_ident() == self._owner:
            for message.inner, message.number in zip(source, self._numbers, strict=False):
                kept.append(message)
                message = self._message_class()
        else:
            for message.inner in source:
                kept.append(message)
                message = self._message_class()

    def _gather(self, kept: list[Message]) -> int:
        """Add to a list what one native call gives; after a Ctrl-C the next call on the same thread has it.

        Returns:
            How many messages came.
        """
        thread, new, batches = get_ident(), self._message_class, self._batches
        if thread not in batches:
            # Straight into its place, as in the receive loop: a Ctrl-C leaves the batch to the next call.
            for batches[thread] in iter(self.inner.batch_receive, None):
                break
        batch = batches[thread]
        screen = self._redelivery.screen if self._redelivery.screens else None
        numbers = self._numbers if thread == self._owner else repeat(0)
        wrapped = []
        for inner, number in zip(batch if screen is None else filter(screen, batch), numbers, strict=False):
            message = new()
            message.inner = inner
            message.number = number
            wrapped.append(message)
        if isinstance(self._source, Overheard):
            self._source.note(wrapped, 0)
        end = len(kept)
        kept[end:] = wrapped  # no call from here on: Python looks for signals at calls
        del batches[thread]
        return len(batch)

    def __iter__(self) -> Iterator[Message]:
        """Receive for ever, one message after the other, until it is closed."""
        ahead = self._ahead
        while not self._closed:
            with contextlib.suppress(IndexError):
                for message in iter(ahead.popleft, None):
                    yield message
            try:
                if self._receive_call is self._gathers:
                    self._fetch_ahead()
                    continue
                message = self._message_class()
                self._leave_number_out()
                for message.inner in self._source:
                    yield message
                    break
            except Timeout:
                refuse_in_callback(self._client, "a receive without messages")
            except pulsar.AlreadyClosed:
                if not self._closed:
                    raise

    def _fetch_ahead(self) -> None:
        """Wait for messages, and fetch those that are there."""
        try:
            self._ahead.extend(self.receive_many(_AHEAD))
        finally:
            self._number_anew()  # a receive looks at what is ahead where it begins to number

    def _take_ahead(self, kept: list[Message], most: int) -> bool:
        """Add to a list what a `for` loop fetched ahead; False if there is nothing."""
        before = len(kept)
        with contextlib.suppress(IndexError):  # another thread was faster
            kept.extend(islice(iter(self._ahead.popleft, None), min(most, len(self._ahead))))
        if isinstance(self._source, Overheard):
            self._source.note(kept, before)
        return len(kept) > before

    def _forget_many(self) -> None:
        """Drop what was fetched, or an interrupted call left behind: it is from before a seek or a redelivery."""
        self._many.clear()
        self._ahead.clear()


def check_max_messages(max_messages: Any) -> None:
    """Refuse what is no number of messages to receive.

    Raises:
        InvalidUse: it is no int of 1 or more.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages is an int, 1 or more, not {max_messages!r}.")
