"""Sources that hand on only the messages that are for the application; none is lost to a Ctrl-C or an error in between.

What was looked at, and what is still to be looked at, stays here until a receive takes it. Readers of key ranges look
at each message; other consumers for as long as acknowledged ones may be delivered again.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Self

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.results import POLL_MILLIS, Timeout
from pulsar_ext.errors import MisroutedMessage

from .order import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .order import ReceiveOrder, Transition
    from .source import Source


_LOOK_AT_CLOCK = 256

_redelivery_count = InnerMessage.redelivery_count


class _Keeping(Part):
    """What keeps messages between the C++ queue and the application."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.renew()

    @property
    def each(self) -> Self:
        """Give this: it is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def after(self, _: Transition, /) -> None:
        """Drop what is kept: it is delivered again, or is not what was sought.

        Whoever looks at a message of before at this moment puts it back where it was, and nobody takes it from there.
        """
        self._ready: deque[Any] = deque()
        self._unseen: deque[Any] = deque()

    def renew(self, *_: Any) -> None:
        """Take from another C++ object; what is kept comes again."""
        self._ready, self._unseen = deque(), deque()
        self._each, self._wait = self._source.each, self._source.wait


class FilteredSource(_Keeping):
    """Hands on the messages that a function wants.

    Args:
        source: gives the messages.
        wanted: whether to hand on a C++ message.

    `passed_by` counts the messages that were not wanted. Where none was wanted for 100 ms, the iterator raises
    `pulsar.Timeout`, as where none came.
    """

    def __init__(self, source: Source, wanted: Callable[[Any], bool]) -> None:
        super().__init__(source)
        self._wanted = wanted
        self.passed_by = 0

    def __next__(self) -> Any:
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
            self.passed_by += 1
            if not self.passed_by % _LOOK_AT_CLOCK:
                now = time.monotonic()
                began = began or now
                if now - began > POLL_MILLIS / 1000:
                    raise Timeout("Pulsar error: TimeOut")
        raise StopIteration

    def wait(self, millis: int) -> Any:
        """Wait for a wanted message.

        Raises:
            pulsar.Timeout: none came in time.
        """
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
                    self.passed_by += 1
                except MisroutedMessage:
                    raise  # it carries the message
                except BaseException:
                    if wait is self._wait:
                        unseen.append(inner)
                    raise
            millis = int((deadline - time.monotonic()) * 1000)
            if millis <= 0:
                raise Timeout("Pulsar error: TimeOut")

    def wants(self, inner: Any) -> bool:
        """Whether a C++ message is wanted, which is counted if it is not."""
        wanted = self._wanted(inner)
        self.passed_by += not wanted
        return wanted

    def peek(self) -> bool:
        """Wait for a wanted message and keep it for the next receive; False if nothing came within 100 ms."""
        if not self._ready:
            try:
                for inner in self:
                    self._ready.append(inner)
                    break
            except Timeout:
                return False
        return True

    def fetch(self) -> None:
        """Wait for a message for up to 100 ms, and keep it for the next receive, not looked at."""
        unseen = self._unseen
        with contextlib.suppress(Timeout):
            for inner in self._each:
                unseen.append(inner)
                break

    def drop_unwanted(self, inner: Any) -> None:
        """Take the first message that was not looked at, if it is this one, for one that is not wanted."""
        unseen = self._unseen
        if unseen and unseen[0] is inner and not self.wants(inner):
            del unseen[0]

    @property
    def kept(self) -> tuple[deque[Any], deque[Any]]:
        """Give what earlier calls left behind, until another C++ object is taken from: looked at, and not."""
        return self._ready, self._unseen

    @property
    def holds(self) -> bool:
        """Whether the next receive has a wanted message at once."""
        ready = self._ready
        if not ready:
            found = self.next_kept()
            if found is None:
                return False
            ready.append(found)
        return True

    def next_kept(self, before: Sequence[Any] = ()) -> Any:
        """Give the next wanted message that an earlier call left behind, or None.

        Args:
            before: what was taken by the same call. If there is any, a misrouted message stays for the next one.

        Raises:
            MisroutedMessage: it carries the message, which is the next one.
        """
        for inner in _taken(self._ready):
            return inner
        unseen = self._unseen
        for inner in _taken(unseen):
            try:
                if self._wanted(inner):
                    return inner
                self.passed_by += 1
            except MisroutedMessage:
                if before:
                    unseen.appendleft(inner)
                raise
            except BaseException:
                unseen.appendleft(inner)
                raise
            if unseen is not self._unseen:  # the decision about it was a seek
                break
        return None


class ScreenedSource(_Keeping):
    """Hands on the messages that pass a screen, which may be looked at ahead of every receive.

    Loops are functions apart from what has to be undone behind them: see `_native/locks.py`.

    Args:
        source: gives the messages.
        screen: whether a C++ message is for the application; it is called once for each, in their order.
        harmless: messages that were redelivered no more often pass without it.
        order: of the messages; None if it never doubts them.
    """

    def __init__(
        self,
        source: Source,
        screen: Callable[[Any], bool],
        *,
        harmless: int = -1,
        order: ReceiveOrder | None = None,
    ) -> None:
        super().__init__(source)
        self._screen, self._harmless, self._order = screen, harmless, order
        self._lock = OwnedLock()
        self._waiting = 0
        self._is_barred = self._gives_up = False

    def __next__(self) -> Any:
        self._waiting += 1
        try:
            with self._lock:  # until nobody looks ahead
                pass
            return self._next_seen()
        finally:
            self._waiting -= 1

    def _next_seen(self) -> Any:
        if (self._ready or self._unseen) and (seen := self._seen()) is not None:
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
            if (seen := self._seen()) is not None:
                return seen
        raise StopIteration

    def _is_harmless(self, inner: Any) -> bool:
        if self._order is not None and self._order.is_doubted:
            return False
        return self._harmless >= 0 and _redelivery_count(inner) <= self._harmless

    def wait(self, millis: int) -> Any:
        """Wait for a message that passes.

        Raises:
            pulsar.Timeout: none came in time.
        """
        deadline = time.monotonic() + millis / 1000
        self._waiting += 1
        try:
            with self._lock:  # until nobody looks ahead
                pass
            return self._wait_for_seen(deadline)
        finally:
            self._waiting -= 1

    def _wait_for_seen(self, deadline: float) -> Any:
        while (seen := self._seen()) is None:
            self._unseen.extend(map(self._wait, (max(int((deadline - time.monotonic()) * 1000), 0),)))
        return seen

    def look_ahead(self) -> None:
        """Look at what waits, up to the first that passes: nobody may be receiving."""
        with self._lock, contextlib.suppress(Timeout):
            self._look_on()

    def give_up_to(self, batch: list[Any]) -> None:
        """Look at nothing ahead any more, and add what is kept to a batch, which the C++ consumer goes on with."""
        self._gives_up = True
        with self._lock:  # until nobody looks ahead
            pass
        for kept in (self._ready, self._unseen):
            batch.extend(_taken(kept))

    def _look_on(self) -> None:
        while not (self._waiting or self._ready or self._is_barred or self._gives_up):
            self._unseen.append(self._wait(0))
            self._look()

    def before(self, _: Transition, /) -> None:
        """Look at nothing ahead while the cursor moves."""
        with self._lock:  # until nobody looks ahead
            self._is_barred = True

    def after(self, transition: Transition, /) -> None:
        """Drop what is kept: it is delivered again, or is not what was sought."""
        super().after(transition)
        self._is_barred = False

    def abandon(self, _: Transition, /) -> None:
        """Go on as before: the cursor did not move."""
        self._is_barred = False

    def _seen(self) -> Any:
        """Give the next message for the application among those that came; None if there is none."""
        if not (self._unseen or self._ready):
            return None
        self._look()
        try:
            for inner in iter(self._ready.popleft, None):  # no call behind it, where a Ctrl-C would lose it
                return inner
        except IndexError:
            return None

    def _look(self) -> None:
        """Look at what has come, in its order: that is also the order of dead letters."""
        with self._lock, contextlib.suppress(IndexError):  # that the handler of a signal has taken it meanwhile
            self._look_at_each(self._ready, self._unseen)

    def _look_at_each(self, ready: deque[Any], unseen: deque[Any]) -> None:
        while unseen:
            inner = unseen[0]
            wanted = self._screen(inner)
            del unseen[0]
            if wanted:
                ready.append(inner)


def _taken(kept: deque[Any]) -> Iterator[Any]:
    """Take out one after the other, though another thread may do the same."""
    try:
        yield from iter(kept.popleft, None)  # no call behind it, where a Ctrl-C would lose one
    except IndexError:
        return


_AT_ONCE: Final = 100
"""How many messages come through a sieve at least, before it is seen that it has nothing to do any more."""


class Sieve(ScreenedSource):
    """Stands before the source of a consumer that looks at no message otherwise, from the first doubt on.

    Args:
        order: of the messages; it knows whether each has to be looked at now.
        source: gives the messages.
        drops: whether a C++ message is not for the application; it is called once for each, in their order.
    """

    _order: ReceiveOrder

    def __init__(self, order: ReceiveOrder, source: Source, drops: Callable[[Any], bool]) -> None:
        super().__init__(source, lambda inner: not drops(inner), order=order)

    def after(self, transition: Transition, /) -> None:
        """Drop what is kept: it is delivered again, or is not what was sought."""
        super().after(transition)
        self.unseen = self._unseen

    def renew(self, *_: Any) -> None:
        """Take from another C++ object; what is kept is delivered again."""
        super().renew()
        self.unseen = self._unseen
        """What was taken without a look, by who waited for it as the doubt began; anybody may append."""

    @property
    def is_at_work(self) -> bool:
        """Whether messages have to come from here: they are looked at, or some are kept."""
        return self._order.sieve is self or bool(self._unseen or self._ready)

    @property
    def fast(self) -> Any:
        """Return an iterator for those who look for a sieve after each message; it ends where it is of no more use."""
        return map(self.wait, repeat(POLL_MILLIS, _AT_ONCE)) if self.is_at_work else self._source.each

    def __next__(self) -> Any:
        return self.wait(POLL_MILLIS)

    def wait(self, millis: int) -> Any:
        """Wait for a message for the application.

        Raises:
            pulsar.Timeout: none came in time.
        """
        if not self.is_at_work:
            for inner in map(self._wait, (millis,)):
                if self._order.sieve is None:
                    return inner
                self._unseen.append(inner)
        return super().wait(millis)
