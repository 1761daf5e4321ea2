"""Sources that pass on only the messages for the application; a Ctrl-C or an error in between loses none.

Messages stay here, screened or not, until a receive takes them. Readers of key ranges screen each message. Other
consumers screen messages while acknowledged ones may be redelivered, except for prefetched messages of which the native
core knows that they are above everything received before on their topic: these were not acknowledged.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import POLL_MILLIS, Timeout
from pulsar_ext.errors import MisroutedMessage

from .order import Part, ReceiveOrder, Transition, TransitionSubscriber
from .source import OwnIterator, Source

_CLOCK_CHECK_EVERY = 256

_redelivery_count = InnerMessage.redelivery_count


class _BufferedSource(OwnIterator, TransitionSubscriber):
    """A source that keeps messages between the C++ queue and the application."""

    part = Part.SOURCE

    def __init__(self, source: Source) -> None:
        self._source = source
        self.on_reopen()

    def on_after(self, _: Transition, /) -> None:
        """Drop the kept messages, which are redelivered or not wanted any more.

        A thread that screens an older message now puts it back into the old queue, which is not read any more.
        """
        self._ready: deque[InnerMessage] = deque()
        self._unseen: deque[InnerMessage] = deque()

    def on_reopen(self, *_: object) -> None:
        """Receive from the reopened C++ object; kept messages are redelivered."""
        self._ready, self._unseen = deque(), deque()
        self._each, self._wait = self._source.each, self._source.wait


class FilteredSource(_BufferedSource):
    """Passes on the messages that a function accepts.

    `skipped_count` counts the other messages. If none is accepted for 100 ms, the iterator raises `pulsar.Timeout`.
    """

    def __init__(self, source: Source, wanted: Callable[[InnerMessage], bool]) -> None:
        super().__init__(source)
        self._wanted = wanted
        self.skipped_count = 0

    def __next__(self) -> InnerMessage:
        if self._ready or self._unseen:
            found = self.next_kept()
            if found is not None:
                return found
        began, each = 0.0, self._each
        for inner in each:
            unseen = self._unseen
            try:
                if self._wanted(inner):
                    return inner
            except MisroutedMessage:
                raise  # it carries the message
            except BaseException:
                if each is self._each:
                    unseen.append(inner)
                raise
            self.skipped_count += 1
            if not self.skipped_count % _CLOCK_CHECK_EVERY:
                now = time.monotonic()
                began = began or now
                if now - began > POLL_MILLIS / 1000:
                    raise Timeout("Pulsar error: TimeOut")
        raise StopIteration

    def wait(self, millis: int) -> InnerMessage:
        """Wait for a wanted message, or raise `pulsar.Timeout`."""
        found = self.next_kept()
        if found is not None:
            return found
        deadline = time.monotonic() + millis / 1000
        while True:
            wait = self._wait
            for inner in map(wait, (millis,)):
                unseen = self._unseen
                try:
                    if self._wanted(inner):
                        return inner
                    self.skipped_count += 1
                except MisroutedMessage:
                    raise  # it carries the message
                except BaseException:
                    if wait is self._wait:
                        unseen.append(inner)
                    raise
            millis = int((deadline - time.monotonic()) * 1000)
            if millis <= 0:
                raise Timeout("Pulsar error: TimeOut")

    def wants(self, inner: InnerMessage) -> bool:
        """Return whether a C++ message is wanted; count it if not."""
        wanted = self._wanted(inner)
        self.skipped_count += not wanted
        return wanted

    def peek(self) -> bool:
        """Wait for a wanted message and keep it for the next receive; return False if none arrives within 100 ms."""
        if not self._ready:
            try:
                for inner in self:
                    self._ready.append(inner)
                    break
            except Timeout:
                return False
        return True

    def fetch(self) -> None:
        """Wait up to 100 ms for a message, and keep it for the next receive without screening it."""
        unseen = self._unseen
        with contextlib.suppress(Timeout):
            for inner in self._each:
                unseen.append(inner)
                break

    def drop_unwanted(self, inner: InnerMessage) -> None:
        """Drop the first unscreened message if it is `inner` and is not wanted."""
        unseen = self._unseen
        if unseen and unseen[0] is inner and not self.wants(inner):
            del unseen[0]

    @property
    def kept(self) -> tuple[deque[InnerMessage], deque[InnerMessage]]:
        """Messages kept by earlier calls, until the C++ object is replaced: the screened and the unscreened ones."""
        return self._ready, self._unseen

    @property
    def holds(self) -> bool:
        """True if the next receive has a wanted message at once."""
        ready = self._ready
        if not ready:
            found = self.next_kept()
            if found is None:
                return False
            ready.append(found)
        return True

    def next_kept(self, before: Sequence[object] = ()) -> InnerMessage | None:
        """Return the next wanted message kept by an earlier call, or None.

        `before` are messages that this call has already taken. With any, a misrouted message stays for the next call;
        otherwise the error carries it.
        """
        for inner in _pop_each(self._ready):
            return inner
        unseen = self._unseen
        for inner in _pop_each(unseen):
            try:
                if self._wanted(inner):
                    return inner
                self.skipped_count += 1
            except MisroutedMessage:
                if before:
                    unseen.appendleft(inner)
                raise
            except BaseException:
                unseen.appendleft(inner)
                raise
            if unseen is not self._unseen:  # the function called seek()
                break
        return None


class ScreenedSource(_BufferedSource):
    """Passes on the messages that pass a screen; they may be screened ahead of receives.

    Loops are functions separate from the code that must be undone afterwards: see `_native/locks.py`.

    `screen` returns whether a C++ message is for the application, and is called once for each, in order. Messages with
    at most the redelivery count `harmless` pass without it, unless the order requires screening.
    """

    def __init__(
        self,
        source: Source,
        screen: Callable[[InnerMessage], bool],
        *,
        harmless: int = -1,
        order: ReceiveOrder | None = None,
    ) -> None:
        super().__init__(source)
        self._screen, self._harmless, self._order = screen, harmless, order
        self._lock = OwnedLock()
        self._waiting = 0
        self._is_blocked = self._is_drained = False

    def __next__(self) -> InnerMessage:
        self._waiting += 1
        try:
            with self._lock:  # waits until no thread screens ahead
                pass
            return self._receive_screened()
        finally:
            self._waiting -= 1

    def _receive_screened(self) -> InnerMessage:
        if (self._ready or self._unseen) and (seen := self._next_screened()) is not None:
            return seen
        each = self._each
        for inner in each:
            unseen = self._unseen
            try:
                if self._is_harmless(inner) and not (unseen or self._ready):
                    return inner
            except BaseException:
                if each is self._each:
                    unseen.append(inner)
                raise
            unseen.append(inner)  # where a Ctrl-C finds it
            if (seen := self._next_screened()) is not None:
                return seen
        raise StopIteration

    def _is_harmless(self, inner: InnerMessage) -> bool:
        if self._order is not None and self._order.is_screening:
            return False
        return self._harmless >= 0 and _redelivery_count(inner) <= self._harmless

    def wait(self, millis: int) -> InnerMessage:
        """Wait for a message that passes, or raise `pulsar.Timeout`."""
        deadline = time.monotonic() + millis / 1000
        self._waiting += 1
        try:
            with self._lock:  # waits until no thread screens ahead
                pass
            return self._wait_for_screened(deadline)
        finally:
            self._waiting -= 1

    def _wait_for_screened(self, deadline: float) -> InnerMessage:
        while (seen := self._next_screened()) is None:
            self._unseen.extend(map(self._wait, (max(int((deadline - time.monotonic()) * 1000), 0),)))
        return seen

    def screen_ahead(self) -> None:
        """Screen queued messages up to the first that passes, while no thread is receiving."""
        with self._lock, contextlib.suppress(Timeout):
            self._screen_queue()

    def drain_to(self, batch: list[InnerMessage]) -> None:
        """Stop screening ahead, and move the kept messages to a batch that the C++ consumer completes."""
        self._is_drained = True
        with self._lock:  # waits until no thread screens ahead
            pass
        for kept in (self._ready, self._unseen):
            batch.extend(_pop_each(kept))

    def _screen_queue(self) -> None:
        while not (self._waiting or self._ready or self._is_blocked or self._is_drained):
            self._unseen.append(self._wait(0))
            self._screen_unseen()

    def on_before(self, _: Transition, /) -> None:
        """Stop screening ahead while the cursor moves."""
        with self._lock:  # waits until no thread screens ahead
            self._is_blocked = True

    def on_after(self, transition: Transition, /) -> None:
        """Drop the kept messages, which are redelivered or not wanted any more."""
        super().on_after(transition)
        self._is_blocked = False

    def on_abandon(self, _: Transition, /) -> None:
        """Continue as before: the cursor did not move."""
        self._is_blocked = False

    def _next_screened(self) -> InnerMessage | None:
        """Return the next kept message for the application, or None."""
        if not (self._unseen or self._ready):
            return None
        self._screen_unseen()
        try:
            for inner in iter(self._ready.popleft, None):  # no call after it: a Ctrl-C would lose the message
                return inner
        except IndexError:
            pass
        return None

    def _screen_unseen(self) -> None:
        """Screen the kept messages in their order, which is also the order of dead letters."""
        with self._lock:
            try:  # noqa: SIM105  # `suppress()` costs as much as the rest
                self._screen_each(self._ready, self._unseen)
            except IndexError:  # a signal handler has taken the message in between
                pass

    def _screen_each(self, ready: deque[InnerMessage], unseen: deque[InnerMessage]) -> None:
        while unseen:
            inner = unseen[0]
            wanted = self._screen(inner)
            del unseen[0]
            if wanted:
                ready.append(inner)


def _pop_each(kept: deque[InnerMessage]) -> Iterator[InnerMessage]:
    """Remove and yield one message after the other; other threads may do so at the same time."""
    try:
        yield from iter(kept.popleft, None)  # no call after it: a Ctrl-C would lose a message
    except IndexError:
        return


_MIN_SCREENED: Final = 100
"""Fewest messages that pass through the filter before a loop checks whether it is still active."""


class RedeliveryFilter(ScreenedSource):
    """Screens the messages of a consumer that screens none otherwise, while acknowledged ones may be redelivered.

    Args:
        order: the order of the messages, which stores whether each must be screened now.
        source: yields the messages.
        drops: returns whether a C++ message is not for the application; called once for each, in order.
    """

    part = Part.REDELIVERY_FILTER
    _order: ReceiveOrder

    def __init__(self, order: ReceiveOrder, source: Source, drops: Callable[[InnerMessage], bool]) -> None:
        super().__init__(source, lambda inner: not drops(inner), order=order)

    def on_after(self, transition: Transition, /) -> None:
        """Drop the kept messages, which are redelivered or not wanted any more."""
        super().on_after(transition)
        self.unseen = self._unseen

    def on_reopen(self, *_: object) -> None:
        """Receive from the reopened C++ object; kept messages are redelivered."""
        super().on_reopen()
        self.unseen = self._unseen
        """Messages that a thread received unscreened as the screening began; any thread may append."""

    @property
    def holds(self) -> bool:
        """True if messages are kept, which come first."""
        return bool(self._unseen or self._ready)

    @property
    def fast(self) -> Iterator[InnerMessage]:
        """Iterator for loops that check for a filter after each message; it ends when the filter may be inactive."""
        is_active = self._order.redelivery_filter is self or self.holds
        return map(self.wait, repeat(POLL_MILLIS, _MIN_SCREENED)) if is_active else self._source.each

    def __next__(self) -> InnerMessage:
        return self.wait(POLL_MILLIS)

    def wait(self, millis: int) -> InnerMessage:
        """Wait for a message for the application.

        Raises:
            pulsar.Timeout: none arrived in time.
        """
        if not (self._unseen or self._ready):
            if self._order.redelivery_filter is None:
                for inner in map(self._wait, (millis,)):
                    if self._order.redelivery_filter is None:
                        return inner
                    self._unseen.append(inner)
            else:
                self._unseen.extend(map(self._wait, (millis,)))
        if (seen := self._next_screened()) is not None:
            return seen
        return super().wait(millis)
