"""The order of what a consumer or a reader has received, and the transitions that end it (pure).

Between two transitions, messages arrive in topic order. A seek, a redelivery, a cursor reset and a close are
transitions. An object that keeps messages or acknowledgements is a `TransitionSubscriber`, which is notified of each.

A transition that moves the cursor replaces the C++ object, because the old one remembers too much. It holds incomplete
chunked messages, and rejects their redelivered first chunk; it drops redelivered messages that were acknowledged; it
drops messages before its start position. The new one is opened after every subscriber has dropped what it kept, so
messages from before and after the transition never mix.

No clock, socket or thread is used here: the lock only makes each method atomic.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum, auto
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol

from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage, InnerMessageId, InnerReader
from pulsar_ext._runtime.condition import raise_if_interrupting
from pulsar_ext.message import Message

Arguments = dict[str, Any]
"""Official arguments of a consumer or a reader, by name."""
Native = InnerConsumer | InnerReader
Target = InnerMessageId | int
"""Of a seek: a C++ id, or a publish time in milliseconds."""

NOTHING: Final[Iterator[Any]] = iter(())
"""An empty iterator, shared to save the 50 bytes that each one takes."""


class Transition(Enum):
    """An event that ends the order of the messages received before it."""

    SEEK = "seek"
    REDELIVERY = "redelivery"
    """The broker redelivers all unacknowledged messages."""
    CURSOR_RESET = "cursor reset"
    """The broker's cursor was moved back, by an operator or because the broker lost a position."""
    REPLACEMENT = "replacement"
    """The C++ object cannot receive the next messages; a new one receives everything unacknowledged."""
    ANOTHER_CLUSTER = "another cluster"
    """The client is connected to another cluster, where earlier ids, positions and acknowledgements are invalid."""
    UNSUBSCRIPTION = "unsubscription"
    CLOSE = "close"

    @property
    def redelivers(self) -> bool:
        """True if received messages may be redelivered, or are not wanted any more."""
        return self.replaces or self is Transition.REDELIVERY

    @property
    def replaces(self) -> bool:
        """True if the C++ object is replaced."""
        return self in _REPLACING


_REPLACING: Final = frozenset(
    {Transition.SEEK, Transition.CURSOR_RESET, Transition.REPLACEMENT, Transition.ANOTHER_CLUSTER}
)


class Part(IntEnum):
    """The parts of consumers and readers, in the order in which every transition calls them.

    A part is called before those that depend on what it does: acknowledgements are sent while the C++ object still
    works, what wraps a source finds the reopened one, and messages are requested only when every part is ready.
    """

    COMPACTION = auto()
    """Drops compaction horizons, which the screening of a redelivered message queries."""
    REDELIVERY = auto()
    """Before `ACKS`: dead letters that it acknowledges until it stops are sent with the last group."""
    ACKS = auto()
    """Before all that stop: if the flush raises, or must not run, nothing was stopped and the consumer receives on."""
    INTERRUPTED = auto()
    """Waits for threads inside `batch_receive()`; the acknowledgements of a close do not wait for that."""
    PAUSE = auto()
    """Before the sources: a reopened C++ consumer is paused before its messages are used."""
    NATIVE = auto()
    """Before what wraps it, which reads its iterators of the reopened C++ object."""
    SOURCE = auto()
    """Messages prefetched or screened, or filtered by key ranges."""
    FAST_PATH = auto()
    """Shortcut of a reader past its filter, whose queues it reads."""
    INTERCEPTED = auto()
    """Messages between interceptors and the application."""
    MONITOR = auto()
    """Polls the broker's state of the reopened C++ object."""
    REDELIVERY_FILTER = auto()
    """Wraps the source while acknowledged messages may be redelivered. Almost last, as it is added on demand, perhaps
    by the `on_before()` of another part, and that transition must call it too."""
    AWAITED = auto()
    """Last: at once it requests messages of the reopened C++ object for the callers that wait."""


_part = attrgetter("part")


class TransitionSubscriber:
    """An object that keeps messages, or facts about them, of one consumer or reader."""

    __slots__ = ()
    part: ClassVar[Part] = Part.AWAITED

    def on_before(self, transition: Transition, /) -> None:
        """Prepare for a transition; an exception prevents the transition and abandons it here as well."""

    def on_after(self, transition: Transition, /) -> None:
        """Drop what is older than the transition, which has happened."""

    def on_abandon(self, transition: Transition, /) -> None:
        """Continue as before: the transition failed, perhaps before `on_before()` was complete."""

    def on_reopen(self, inner: Any, ahead: Iterator[InnerMessage], /) -> None:
        """Continue with the new C++ object and its first messages, which all parts share: each is taken once."""

    def drop_topics(self, is_affected: Callable[[InnerMessage], bool], /) -> None:
        """Drop what is kept of some of several topics, whose cursors were moved separately."""

    def awaits_answer(self) -> bool:
        """Return whether the C++ client has requests of this subscriber without an answer."""
        return False


class Screening(Protocol):
    """The filter that screens messages while acknowledged ones may be redelivered; see `filter.py`."""

    unseen: deque[InnerMessage]
    """Messages received unscreened as the screening began."""


class Reopener(Protocol):
    """Closes, moves and reopens the C++ object of a consumer or a reader; see `native.py`."""

    def retire(self) -> None:
        """Close the C++ object, so that it can be replaced."""
        ...

    def wait_for_move(self) -> None:
        """Wait until the broker has answered a seek."""
        ...

    def is_excluded(self, inner: InnerMessage, /) -> bool:
        """Return whether a C++ message precedes the sought message in the same entry."""
        ...

    def move(self, target: Target, /) -> None:
        """Seek everywhere."""
        ...

    def note_moved_topics(self, topics: Mapping[str, Target] | None, /) -> None:
        """Note that the next seek moves these topics and partitions only; None for all."""
        ...

    def seek_each(self, targets: Mapping[str, Target], /) -> None:
        """Seek on some of several topics and partitions."""
        ...

    def move_before(self, inner_id: InnerMessageId, /) -> None:
        """Let the next C++ object begin with the message or the entry of an id."""
        ...

    def move_to_cluster(self) -> None:
        """Prepare to open the next C++ object on another cluster, where the first one began."""
        ...

    def enable_queue(self) -> None:
        """Use a receiver queue of one message for the next C++ object."""
        ...

    def reopen_native(self) -> tuple[Native, Iterator[InnerMessage]]:
        """Open a new C++ object and use it; return it, and the messages that were already received from it."""
        ...


class OutdatedError(Exception):
    """Raised if an earlier transition made this one unnecessary."""


def raise_unless(is_wanted: Callable[[], bool]) -> None:
    """Raise `OutdatedError` if a transition is not wanted any more."""
    if not is_wanted():
        raise OutdatedError


class ReceiveOrder:
    """The order in which a consumer's messages are delivered to the application."""

    __slots__ = (
        "_ahead",
        "_is_retired",
        "_lock",
        "_moving",
        "_subscribers",
        "cluster",
        "is_paused",
        "is_screening",
        "is_silent",
        "made",
        "make_redelivery_filter",
        "passed",
        "ready",
        "redelivery_filter",
        "reopener",
    )

    def __init__(self) -> None:
        self.ready: Iterator[InnerMessage] = NOTHING
        """The next messages, for any thread: an iterator of C++ messages, or one that always raises."""
        self.made: Iterator[Message] = NOTHING
        """Messages of ours before these, for any thread; they do not have to be created any more."""
        self.is_paused = False
        """Whether delivery is paused."""
        self.is_silent = False
        """Whether only the listener is paused."""
        self.is_screening = False
        """Whether each message is screened, as acknowledged messages may be redelivered."""
        self.make_redelivery_filter: Callable[[], Screening] | None = None
        """Creates the filter for that; None if the consumer screens each message anyway."""
        self.redelivery_filter: Screening | None = None
        """The filter that screens messages now, or None."""
        self.passed = 0
        """Number of messages that passed the screening."""
        self._subscribers: list[TransitionSubscriber] = []
        self._lock = OwnedLock()
        self._moving = OwnedLock()
        self.cluster = 0
        """Number of the cluster that the native object was opened on; see `pulsar_ext._runtime.cluster`."""
        self.reopener: Reopener | None = None
        """The `Reopener` that transitions use; None if the C++ object cannot be replaced, and after a close."""
        self._is_retired = False
        self._ahead: Iterator[InnerMessage] = NOTHING
        """The first messages of a reopened C++ object, until they are taken or dropped."""

    @property
    def locks(self) -> tuple[OwnedLock, ...]:
        """Locks that make each method and each replacement atomic; a signal handler checks if it interrupts one."""
        return self._lock, self._moving

    def awaits_answer(self) -> bool:
        """Return whether the C++ client has a request of a subscriber without an answer."""
        return any(subscriber.awaits_answer() for subscriber in self._subscribers)

    def add_subscriber(self, *subscribers: TransitionSubscriber) -> None:
        """Notify subscribers of every transition from now on, in the order of `Part`."""
        with self._lock:  # in place: a running transition may be iterating over the list
            self._subscribers[:] = sorted((*self._subscribers, *subscribers), key=_part)

    @contextlib.contextmanager
    def run_transition(
        self, transition: Transition, check: Callable[[], None] = lambda: None, *, reopens: bool = True
    ) -> Iterator[None]:
        """Carry out a transition in the block, after a running one; if the block raises, it has not happened.

        `check` is called after that wait and before the subscribers, and may raise to prevent the transition. Raises
        `InvalidUse` if a signal handler interrupts another transition.
        """
        raise_if_interrupting("A seek, a redelivery or a close", *self.locks)
        with self._moving:
            check()
            if transition is not Transition.CLOSE:
                self.reopen()  # the last one may have been interrupted
            ready: list[TransitionSubscriber] = []
            try:
                for subscriber in self._subscribers:
                    ready.append(subscriber)  # first: a Ctrl-C may interrupt its `on_before()` at the end
                    subscriber.on_before(transition)
                self.drop_ready()
                yield
            except BaseException:
                _call_each([subscriber.on_abandon for subscriber in ready], transition)
                raise
            try:
                self._retire(transition)
            finally:
                self.drop_ready()
                deque(self._ahead, 0)
                _call_each([subscriber.on_after for subscriber in self._subscribers], transition)
            if reopens:
                self.reopen()

    def wait_for_transition(self) -> None:
        """Wait until another thread's transition has ended."""
        with self._moving:
            pass

    def drop_topics(self, is_affected: Callable[[InnerMessage], bool]) -> None:
        """Drop what every subscriber keeps of some of several topics."""
        for subscriber in self._subscribers:
            subscriber.drop_topics(is_affected)

    def replace(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Replace the C++ object if that is still wanted after waiting; unacknowledged messages are redelivered."""
        with (
            contextlib.suppress(OutdatedError),
            self.run_transition(Transition.REPLACEMENT, lambda: raise_unless(is_wanted)),
        ):
            pass

    @property
    def is_retired(self) -> bool:
        """True if the C++ object is closed or about to be, and will be replaced."""
        return self._is_retired

    def _retire(self, transition: Transition) -> None:
        if self.reopener is None:
            return
        if transition.replaces:
            self._is_retired = True  # first: a Ctrl-C in between must not prevent the replacement
            try:
                self.reopener.retire()
            except BaseException:
                self.reopener.retire()  # a thread that uses it detects that it is closed
                raise
        elif not transition.redelivers:
            self.reopener = None  # nothing is delivered after a close

    def reopen(self) -> None:
        """Reopen a closed C++ object, and notify every subscriber; wait for a thread that is reopening it."""
        if not self._is_retired:
            return
        with self._moving:
            if self._is_retired and self.reopener is not None:
                inner, self._ahead = self.reopener.reopen_native()
                for subscriber in self._subscribers:
                    subscriber.on_reopen(inner, self._ahead)
                self.drop_ready()
                self._is_retired = False
                if self.reopener is None:  # closed in between
                    deque(self._ahead, 0)

    def drop_ready(self) -> None:
        """Let no receive take a message that was offered before."""
        with self._lock:
            self.made = self.ready = NOTHING

    def end(self, raising: Any) -> None:
        """Stop delivery permanently: the process was forked, or ends. `raising` is a stub that raises at every use."""
        self._lock, self._moving = OwnedLock(), OwnedLock()  # after a fork, the old ones may stay locked
        self.reopener = None
        deque(self._ahead, 0)
        self.made, self.ready, self.is_paused = NOTHING, raising, False
        self.stop_screening()

    def pause(self) -> None:
        """Stop delivery until `resume()`."""
        with self._lock:
            self.is_paused = True
            self.drop_ready()

    def resume(self) -> None:
        """Continue delivery."""
        with self._lock:
            self.is_paused = False

    def start_screening(self) -> None:
        """Screen each message until `end_screening()`: acknowledged messages may be redelivered."""
        with self._lock:
            if not self.is_screening:
                self.is_screening = True
                if self.make_redelivery_filter is not None:
                    self.redelivery_filter = self.make_redelivery_filter()
                self.drop_ready()

    def end_screening(self) -> None:
        """End the screening of messages."""
        with self._lock:
            self.is_screening, self.redelivery_filter = False, None

    def stop_screening(self) -> None:
        """Disable screening permanently: nothing is delivered any more."""
        with self._lock:
            self.make_redelivery_filter = self.redelivery_filter = None

    def offer_made(self, messages: Iterator[Message]) -> None:
        """Offer messages of ours to the next receives, unless they are paused."""
        with self._lock:
            if not self.is_paused:
                self.made = messages

    def offer(self, source: Iterator[InnerMessage]) -> None:
        """Offer C++ messages to the next receives, unless they are paused."""
        with self._lock:
            if not self.is_paused:
                self.ready = source


def _call_each(calls: list[Callable[[Transition], None]], transition: Transition) -> None:
    """Make each of the calls, in order, even if a Ctrl-C interrupts one of them."""
    with contextlib.ExitStack() as stack:
        for call in reversed(calls):
            stack.callback(call, transition)
