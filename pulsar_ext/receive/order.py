"""The one owner of what a consumer or a reader has received: its epochs, and the order of its messages (pure).

An epoch is the time in which each message that comes is behind the one that came before. A seek, a redelivery, a cursor
that was reset, a new connection, a close and a fork each end one. Whoever keeps messages or acknowledgements is a
`Part`, and takes part in every such `Transition` through the same few methods.

Where a transition moves the cursor, another C++ object takes the place of the old one, which remembers too much: half
of the chunks of a message, and refuses its first when it comes again; what was acknowledged, and drops it when it comes
again; where it was started, and drops what is before. The new one is opened when every part has dropped what it kept:
nothing from before the transition comes behind it, and nothing from behind it meets what was kept from before.

Within an epoch the messages that one thread receives are numbered while they are acknowledged, so that what stands
between two of them in a batch need not be asked for its id, which costs more than anything else about an
acknowledgement; see `pulsar_ext.ack.topics`. A number contains its epoch: one of an older epoch is known by itself.

No clock, socket or thread is used here: threads are numbers, and the lock only makes each method one step.
"""

from __future__ import annotations

import contextlib
from collections import deque
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._runtime.condition import refuse_interrupting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "NOTHING",
    "Foundation",
    "NumberedRun",
    "OutdatedError",
    "Part",
    "ReceiveOrder",
    "Transition",
    "refuse_unless",
]

NOTHING: Final[Iterator[Any]] = iter(())
"""What gives nothing, wherever nothing is yet: each iterator of its own would take 50 bytes."""
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
    REPLACEMENT = "replacement"
    """The C++ object is not fit for what comes; another one gets everything that is not acknowledged."""
    ANOTHER_CLUSTER = "another cluster"
    """The client is connected to another cluster, where no id, position or acknowledgement from before is valid."""
    UNSUBSCRIPTION = "unsubscription"
    CLOSE = "close"

    @property
    def brings_back(self) -> bool:
        """Whether messages that came may come again, or are not what was asked for."""
        return self.replaces or self is Transition.REDELIVERY

    @property
    def replaces(self) -> bool:
        """Whether another C++ object takes the place of the old one."""
        return self in _REPLACING


_REPLACING: Final = frozenset(
    {Transition.SEEK, Transition.CURSOR_RESET, Transition.REPLACEMENT, Transition.ANOTHER_CLUSTER}
)


class Part:
    """What keeps messages, or something about them, of one consumer or reader."""

    __slots__ = ()

    def before(self, transition: Transition, /) -> None:
        """Get ready for a transition; what this raises keeps it from happening, and has it abandoned here as well."""

    def after(self, transition: Transition, /) -> None:
        """Drop what is from before the transition: it has happened."""

    def abandon(self, transition: Transition, /) -> None:
        """Go on as before: the transition has failed, perhaps before this had got ready."""

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Go on with another C++ object, which is in the place of the one before.

        Args:
            inner: the C++ object.
            ahead: its first messages, for whoever hands out the next one; what takes one takes it from all.
        """

    def drop_some(self, is_of_them: Callable[[Any], bool], /) -> None:
        """Drop what is kept of some of several topics, which were moved by themselves.

        Args:
            is_of_them: whether a C++ message is of one of them.
        """

    def is_owed(self) -> bool:
        """Whether the C++ client has not answered everything that this asked it for."""
        return False


class Foundation(Protocol):
    """The C++ object that a consumer or a reader stands on."""

    def retire(self) -> None:
        """Close it, so that another one can take its place."""
        ...

    def leaves_out(self, inner: Any, /) -> bool:
        """Whether a C++ message is in the entry that was sought, and before what was sought."""
        ...

    def move_to_cluster(self) -> None:
        """Get ready to open the next one on another cluster; it begins there as the first one began."""
        ...

    def open_anew(self) -> tuple[Any, Iterator[Any]]:
        """Open another one, stand on it, and give it, and the messages that it has given already."""
        ...


class OutdatedError(Exception):
    """Another transition came first, behind which this one is not wanted."""


def refuse_unless(is_wanted: Callable[[], bool]) -> None:
    """Refuse a transition that is not wanted any more with `OutdatedError`."""
    if not is_wanted():
        raise OutdatedError


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

    __slots__ = (
        "_ahead",
        "_is_retired",
        "_lock",
        "_may_number",
        "_moving",
        "_parts",
        "cluster",
        "epoch",
        "foundation",
        "is_doubted",
        "is_paused",
        "is_silent",
        "made",
        "make_sieve",
        "ready",
        "run",
        "sieve",
        "wants_numbers",
    )

    def __init__(self, *, numbers: bool = False) -> None:
        self.epoch = next(_EPOCHS)
        self.ready: Any = NOTHING
        """The next messages without numbers, for any thread: an iterator of C++ messages, or what refuses every use."""
        self.made: Any = NOTHING
        """Before these, for any thread: messages that need not be made any more."""
        self.run: NumberedRun | None = None
        """The next messages with numbers, for one thread; if there is one, nothing is ready without numbers."""
        self.wants_numbers = False
        """Whether numbers spare anything now."""
        self.is_paused = False
        """Whether nothing is handed out."""
        self.is_silent = False
        """Whether the listener alone is paused."""
        self.is_doubted = False
        """Whether acknowledged messages may be delivered again, and each is looked at."""
        self.make_sieve: Callable[[], Any] | None = None
        """Gives what looks at messages then; None where something looks at each anyway."""
        self.sieve: Any = None
        """What looks at messages now; None if nothing has to."""
        self._may_number = numbers
        self._parts: list[Part] = []
        self._lock = OwnedLock()
        self._moving = OwnedLock()
        self.cluster = 0
        """Number of the cluster that the native object was opened on; see `pulsar_ext._runtime.cluster`."""
        self.foundation: Any = None
        """The `Foundation` that transitions replace; None where it cannot be replaced, and behind a close."""
        self._is_retired = False
        self._ahead: Iterator[Any] = NOTHING
        """The first messages of another C++ object, until they are taken or dropped."""

    @property
    def locks(self) -> tuple[OwnedLock, ...]:
        """What makes each method, and each replacement, one step: a signal's handler asks whether it interrupts one."""
        return self._lock, self._moving

    def is_owed(self) -> bool:
        """Whether the C++ client owes a part an answer."""
        return any(part.is_owed() for part in self._parts)

    def take_part(self, part: Part) -> None:
        """Have a part hear of every transition from now on."""
        self._parts.append(part)

    @contextlib.contextmanager
    def passing(
        self, transition: Transition, check: Callable[[], None] = lambda: None, *, renews: bool = True
    ) -> Iterator[None]:
        """Carry out a transition in the block; if the block raises, it has not happened.

        Another thread's is waited for.

        Args:
            transition: which one.
            check: is called behind that wait, before any part hears of the transition, which it may refuse by raising.
            renews: whether another C++ object is opened at the end, if the one before was closed.

        Raises:
            InvalidUse: in the handler of a signal that interrupts another one.
        """
        refuse_interrupting("A seek, a redelivery or a close", *self.locks)
        with self._moving:
            check()
            if transition is not Transition.CLOSE:
                self.renew()  # the last one may have been interrupted
            ready: list[Part] = []
            try:
                for part in self._parts:
                    ready.append(part)  # first: what this one does may be interrupted as it ends
                    part.before(transition)
                self.begin_epoch()
                yield
            except BaseException:
                _call_each([part.abandon for part in ready], transition)
                raise
            try:
                self._retire(transition)
            finally:
                self.begin_epoch()
                deque(self._ahead, 0)
                _call_each([part.after for part in self._parts], transition)
            if renews:
                self.renew()

    def wait_for_transition(self) -> None:
        """Wait until another thread's transition is over."""
        with self._moving:
            pass

    def drop_some(self, is_of_them: Callable[[Any], bool]) -> None:
        """Have every part drop what it keeps of some of several topics."""
        for part in self._parts:
            part.drop_some(is_of_them)

    def replace(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Have another C++ object get everything that is not acknowledged, if that is wanted when its turn comes."""
        with contextlib.suppress(OutdatedError), self.passing(Transition.REPLACEMENT, lambda: refuse_unless(is_wanted)):
            pass

    @property
    def is_retired(self) -> bool:
        """Whether the C++ object is closed, or about to be, and another one takes its place."""
        return self._is_retired

    def _retire(self, transition: Transition) -> None:
        if self.foundation is None:
            return
        if transition.replaces:
            self._is_retired = True  # first: a Ctrl-C in between has it replaced all the same
            try:
                self.foundation.retire()
            except BaseException:
                self.foundation.retire()  # whoever uses it now finds out that it is closed
                raise
        elif not transition.brings_back:
            self.foundation = None  # nothing comes behind a close

    def renew(self) -> None:
        """Have every part go on with a new C++ object if the old one is closed; waits for whoever is at it."""
        if not self._is_retired:
            return
        with self._moving:
            if self._is_retired and self.foundation is not None:
                inner, self._ahead = self.foundation.open_anew()
                for part in self._parts:
                    part.renew(inner, self._ahead)
                self.begin_epoch()
                self._is_retired = False
                if self.foundation is None:  # closed meanwhile
                    deque(self._ahead, 0)

    def begin_epoch(self) -> None:
        """Conclude nothing from the numbers of what came: what follows is not surely behind it."""
        with self._lock:
            self.epoch = next(_EPOCHS)
            self.run = None
            self.made = self.ready = NOTHING

    def end(self, refusal: Any) -> None:
        """Hand out nothing any more: the process was forked, or ends.

        Args:
            refusal: raises at every use.
        """
        self._lock, self._moving = OwnedLock(), OwnedLock()  # may have been held at a fork, for good
        self.foundation = None
        deque(self._ahead, 0)
        self._may_number, self.run, self.ready, self.is_paused = False, None, refusal, False
        self.made = NOTHING
        self.look_no_more()

    def pause(self) -> None:
        """Hand out nothing any more, until `resume()`."""
        with self._lock:
            self.is_paused = True
            self.begin_epoch()

    def resume(self) -> None:
        """Hand out again."""
        with self._lock:
            self.is_paused = False

    def doubt(self) -> None:
        """Have each message looked at, until `trust()`: acknowledged ones may be delivered again."""
        with self._lock:
            if not self.is_doubted:
                self.is_doubted = True
                if self.make_sieve is not None:
                    self.sieve = self.make_sieve()
                self.begin_epoch()

    def trust(self) -> None:
        """Have no message looked at any more."""
        with self._lock:
            self.is_doubted, self.sieve = False, None

    def look_no_more(self) -> None:
        """Have no message looked at for good: none is delivered any more."""
        with self._lock:
            self.make_sieve = self.sieve = None

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
                self.ready = NOTHING
            elif run.thread != thread:
                self.number_no_more()
                return None
            return run.numbers

    def offer(self, source: Iterator[Any], numbers: Iterator[int] | None, *, made: bool = False) -> None:
        """Have the next receives find messages where they look first.

        Args:
            source: an iterator of C++ messages.
            numbers: what `claim()` gave; nothing is offered if an epoch has begun since, or in a pause.
            made: whether they are messages of ours, which get no numbers.
        """
        with self._lock:
            if self.is_paused:
                return
            if made:
                self.made = source
            elif numbers is None:
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


def _call_each(calls: list[Callable[[Transition], None]], transition: Transition) -> None:
    """Make each of the calls, in order, even if a Ctrl-C ends one of them."""
    with contextlib.ExitStack() as stack:
        for call in reversed(calls):
            stack.callback(call, transition)
