"""The one owner of what a consumer or a reader has received: its epochs, and the order of its messages (pure).

An epoch is the time in which each message that comes is behind the one that came before. A seek, a redelivery, a cursor
that was reset, a new connection, a close and a fork each end one. Whoever keeps messages or acknowledgements is a
`Part`, and takes part in every such `Transition` through the same three methods.

Within an epoch the messages that one thread receives are numbered while they are acknowledged, so that what stands
between two of them in a batch need not be asked for its id, which costs more than anything else about an
acknowledgement; see `pulsar_ext.ack.inbox`. A number contains its epoch: one of an older epoch is known by itself.

No clock, socket or thread is used here: threads are numbers, and the lock only makes each method one step.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext._runtime.condition import OwnedLock

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NumberedRun", "Part", "ReceiveOrder", "Transition"]

_BITS: Final = 40
"""So many bits of a number count the messages of one epoch."""
_EPOCHS = count(1)
"""Of all consumers: a message may be acknowledged by another consumer than it came from."""


class Transition(Enum):
    """What ends an epoch."""

    SEEK = "seek"
    REDELIVERY = "redelivery"
    """The broker delivers everything again that is not acknowledged."""
    CURSOR_RESET = "cursor reset"
    """The broker's cursor was moved back, by an operator or because the broker lost a position."""
    UNSUBSCRIPTION = "unsubscription"
    CLOSE = "close"

    @property
    def brings_back(self) -> bool:
        """Whether messages that came may come again, or are not what was asked for."""
        return self in (Transition.SEEK, Transition.REDELIVERY, Transition.CURSOR_RESET)


class Part:
    """What keeps messages, or something about them, of one consumer or reader."""

    def before(self, transition: Transition, /) -> None:
        """Get ready for a transition; what this raises keeps it from happening."""

    def after(self, transition: Transition, /) -> None:
        """Drop what is from before the transition: it has happened."""

    def abandon(self, transition: Transition, /) -> None:
        """Go on as before: the transition has failed."""


class NumberedRun:
    """The messages that one thread receives, with numbers.

    Args:
        thread: whose.
        numbers: its numbers, without end.
        messages: an iterator of C++ messages with their numbers; empty until something is fetched.
    """

    __slots__ = ("messages", "numbers", "thread")

    def __init__(self, thread: int, numbers: Iterator[int], messages: Iterator[tuple[Any, int]]) -> None:
        self.thread, self.numbers, self.messages = thread, numbers, messages


class ReceiveOrder:
    """The order in which a consumer's messages are handed out.

    Args:
        numbers: whether its messages may be numbered; not if any may come again in the midst of others.
    """

    __slots__ = ("_lock", "_may_number", "_parts", "epoch", "ready", "run", "wants_numbers")

    def __init__(self, *, numbers: bool = False) -> None:
        self.epoch = next(_EPOCHS)
        self.ready: Any = iter(())
        """The next messages without numbers, for any thread: an iterator of C++ messages, or what refuses every use."""
        self.run: NumberedRun | None = None
        """The next messages with numbers, for one thread; if there is one, nothing is ready without numbers."""
        self.wants_numbers = False
        """Whether numbers spare anything now."""
        self._may_number = numbers
        self._parts: list[Part] = []
        self._lock = OwnedLock()

    @property
    def lock(self) -> OwnedLock:
        """What makes each method one step: a signal's handler asks whether it interrupts one."""
        return self._lock

    def take_part(self, part: Part) -> None:
        """Have a part hear of every transition from now on."""
        self._parts.append(part)

    @contextlib.contextmanager
    def passing(self, transition: Transition) -> Iterator[None]:
        """Carry out a transition in the block; if the block raises, it has not happened."""
        ready: list[Part] = []
        try:
            for part in self._parts:
                part.before(transition)
                ready.append(part)
            self.begin_epoch()
            yield
        except BaseException:
            for part in ready:
                part.abandon(transition)
            raise
        self.begin_epoch()
        for part in self._parts:
            part.after(transition)

    def begin_epoch(self) -> None:
        """Conclude nothing from the numbers of what came: what follows is not surely behind it."""
        with self._lock:
            self.epoch = next(_EPOCHS)
            self.run = None
            self.ready = iter(())

    def end(self, refusal: Any) -> None:
        """Hand out nothing any more: the process was forked, or ends.

        Args:
            refusal: raises at every use.
        """
        self._lock = OwnedLock()  # the old one may have been held at a fork, for good
        self._may_number, self.run, self.ready = False, None, refusal

    def number_if(self, *, wanted: bool) -> None:
        """Number what is received from now on, or not."""
        self.wants_numbers = wanted
        self.begin_epoch()

    @property
    def may_number(self) -> bool:
        """Whether messages may be numbered at all."""
        return self._may_number

    def number_no_more(self) -> None:
        """Number nothing for good: messages come out of their order."""
        if self._may_number:
            with self._lock:
                self._may_number = False
                self.begin_epoch()

    def claim(self, thread: int) -> Iterator[int] | None:
        """Give the numbers for what a thread receives; None if nothing is numbered.

        Nothing is for good, once several threads receive: their messages come in no order.
        """
        with self._lock:
            run = self.run
            if run is None:
                if not (self.wants_numbers and self._may_number):
                    return None
                run = self.run = NumberedRun(thread, count((self.epoch << _BITS) + 1), iter(()))
                self.ready = iter(())
            elif run.thread != thread:
                self.number_no_more()
                return None
            return run.numbers

    def offer(self, source: Iterator[Any], numbers: Iterator[int] | None) -> None:
        """Have the next receives find messages where they look first.

        Args:
            source: an iterator of C++ messages.
            numbers: what `claim()` gave; nothing is offered if an epoch has begun since.
        """
        with self._lock:
            if numbers is None:
                self.ready = source
            elif self.run is not None and self.run.numbers is numbers:
                self.run = NumberedRun(self.run.thread, numbers, zip(source, numbers, strict=False))

    def leave_out(self) -> None:
        """Leave a number out: another thread may have received what is between the message before and the one after."""
        with self._lock:
            if self.run is not None:
                next(self.run.numbers)

    def trusted(self) -> range:
        """Give the numbers of this epoch; empty if nothing is numbered."""
        with self._lock:
            first = (self.epoch << _BITS) + 1
            return range(0) if self.run is None else range(first, first + (1 << _BITS) - 1)
