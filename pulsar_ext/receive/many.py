"""Receiving several messages at once, and one after the other in a `for` loop; some hundreds are fetched ahead.

Every kind of receive takes from the same place: a few hundred messages that were fetched ahead, or as many waits for
one (see `Prefetch`). They are ready in the `ReceiveOrder`, with numbers or without.

To fetch some hundreds at once costs less than one after the other. It is done for whoever takes messages faster than
one in ten microseconds: who takes longer has none ahead. What is ahead comes first for every kind of receive, and is
dropped by a seek and by a redelivery. To the broker it is delivered and not acknowledged: after a close, a crash or a
lost connection it is delivered again. The native core makes the messages in C++ as it fetches them.

The C++ client answers a `batch_receive()` on the thread that its listeners run on, and a closed client does not answer.
So nothing is fetched ahead in a client with a listener, which may take its time, or while a consumer or its client
closes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from copy import copy
from functools import cache
from itertools import islice, repeat
from operator import attrgetter, length_hint
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.core import IS_USED, drainer
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.results import POLL_MILLIS, AlreadyClosed, Timeout
from pulsar_ext.errors import InvalidUse
from pulsar_ext.schema.typed import T

from .order import NOTHING, Part, Transition
from .receiver import LEAVING_SECONDS, Receiving
from .source import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message

    from .filter import ScreenedSource, Sieve
    from .receiver import Interrupted, Pause
    from .source import Source


_MOST, _FEWEST = 400, 50
"""How many are fetched at once; fewer cost as much as one by one, unless the native core fetches them."""
_MOST_BYTES: Final = 1 << 20
_WAIT_MILLIS: Final = 1
"""How long a fetch that finds fewer waits for more; the C++ client knows no shorter time."""
_FAST_SECONDS: Final = 10e-6
"""A message: whoever takes longer would not notice what fetching ahead saves."""
_SINGLY: Final = 1000
"""So many come one by one after a fetch that found few."""

_inner = attrgetter("inner")
_OFFICIAL_BYTES, _OFFICIAL_MILLIS = 10 << 20, 100
_PAUSE_SECONDS = 0.005
OFFICIAL_POLICY: Final = pulsar.ConsumerBatchReceivePolicy(-1, _OFFICIAL_BYTES, _OFFICIAL_MILLIS)
"""What the C++ client does without one."""


def take_over_batches(named: dict[str, Any], *, screens: bool) -> int:
    """Have the C++ consumer's `batch_receive()` be for fetching ahead, of so many at once; 0 if it is not.

    It is not with a policy or a listener of the application's own; with a small queue; and where the time counts from
    the moment at which a message leaves the C++ queue, as it does for acknowledgement timeouts.

    Args:
        named: the official arguments of `subscribe()` by name; the policy in them is changed.
        screens: whether each message is looked at as it comes.
    """
    size = named["receiver_queue_size"]
    at_once = min(size // 4, _MOST) if isinstance(size, int) else 0
    own = ("batch_receive_policy", "message_listener", "unacked_messages_timeout_ms", "dead_letter_policy")
    if screens or at_once < _FEWEST or any(named[name] for name in own):
        return 0
    named["batch_receive_policy"] = _policy(at_once)
    return at_once


@cache
def _policy(at_once: int) -> pulsar.ConsumerBatchReceivePolicy:
    """Give the policy for fetching so many at once, which all consumers share."""
    return pulsar.ConsumerBatchReceivePolicy(at_once, _MOST_BYTES, _WAIT_MILLIS)


class Prefetch(Part):
    """Stands before a consumer's native receive with what was fetched ahead.

    Args:
        context: of the consumer's client.
        inner: the C++ consumer, see `take_over_batches()`.
        source: gives its messages one by one.
        messages: the class of the consumer's messages.
        at_once: how many are fetched at once, at most.
    """

    __slots__ = (
        "_are_made",
        "_at_once",
        "_barred",
        "_context",
        "_drain",
        "_each",
        "_fast",
        "_fetcher",
        "_inner",
        "_is_moving",
        "_kept",
        "_left",
        "_lock",
        "_since",
        "_singly",
        "_source",
        "_taken",
        "_timeouts",
        "_wait",
        "_waits",
    )

    def __init__(self, context: ClientContext, inner: Any, source: Source, messages: type, at_once: int) -> None:
        self._context, self._source = context, source
        self._inner, self._each, self._wait = inner, source.each, source.wait
        self._kept: Iterator[Any] = NOTHING
        """What is ahead, as it was drained: threads may share it, and whoever drops it exhausts it for all of them."""
        self._are_made = False
        """Whether they are messages of ours already, and not C++ messages."""
        self._at_once = at_once
        self.make(messages)
        self._timeouts: Iterator[int] = NOTHING
        self._waits: Iterator[Any] = NOTHING
        """Waits for one after the other; its timeouts are exhausted before messages are fetched, which come first."""
        self._fetcher = 0
        self._lock = OwnedLock()
        self._barred = 0
        """How many fetch, each of which keeps the others from it, or want that nothing is fetched for good."""
        self._is_moving = False
        """Whether the cursor moves, and nothing is fetched meanwhile."""
        self._singly = _MOST
        """How many are still to come one by one."""
        self._fast = False
        self._taken, self._since, self._left = 0, time.monotonic(), 0
        """What the pace is measured by: how many were taken since when, and how many were left at the last look."""

    @property
    def each(self) -> Self:
        """Give this: it is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for inner in self._inners(self._kept):
            return inner
        for inner in self._each:
            return inner
        raise StopIteration

    def wait(self, millis: int) -> Any:
        """Receive as the consumer does."""
        for inner in self._inners(self._kept):
            return inner
        for inner in map(self._wait, (millis,)):
            return inner
        raise AssertionError  # the map above has exactly one item

    def make(self, messages: type) -> None:
        """Make messages of this class from now on."""
        self._drain = drainer(messages, self._at_once, _MOST_BYTES)

    def several(self) -> tuple[Iterator[Any], bool]:
        """Return the next messages, and whether they are messages of ours already.

        Their iterator raises `pulsar.Timeout` if none comes in 100 ms.
        """
        with self._lock:
            if not length_hint(self._timeouts):
                if self._look():
                    return self._kept, self._are_made
                count = 1 if IS_USED and self._fast else _MOST
                self._singly -= count
                timeouts = repeat(POLL_MILLIS, count)
                waits = map(self._wait, timeouts)
                self._waits, self._timeouts = waits, timeouts  # no call in between, after which a Ctrl-C may come
                self._left = count
            return self._waits, False

    def several_here(self, upto: int) -> tuple[Iterator[Any], bool]:
        """Return messages that are here, so many at most, and whether they are messages of ours already.

        Their iterator raises `pulsar.Timeout` if no more are.
        """
        with self._lock:
            if self._look():
                return islice(self._kept, upto), self._are_made
            self._singly -= upto
            self._taken += upto
            return map(self._wait, repeat(0, upto)), False

    def _inners(self, kept: Iterator[Any]) -> Iterator[Any]:
        """Return the C++ messages of what is ahead, without Python code in between, which a signal would enter."""
        return map(_inner, kept) if self._are_made else kept

    def _look(self) -> int:
        """Tell how many are ahead; if none, and it is worth while, fetch some."""
        ahead = length_hint(self._kept)
        left = ahead + length_hint(self._timeouts)
        self._taken += max(self._left - left, 0)
        self._left = left
        if self._taken >= _FEWEST:
            now = time.monotonic()
            self._fast = now - self._since < self._taken * _FAST_SECONDS
            self._taken, self._since = 0, now
        if not ahead and self._fast and self._singly <= 0 and not self._context.calls_back:
            ahead = self.fetch()
            if ahead < (1 if IS_USED else _FEWEST):
                self.found_few()
        return ahead

    @property
    def ahead(self) -> int:
        """How many messages are ahead."""
        return length_hint(self._kept)

    @property
    def is_anothers(self) -> bool:
        """Whether something is ahead that another thread fetched."""
        return self._fetcher != threading.get_ident() and length_hint(self._kept) > 0

    def found_few(self) -> None:
        """Have messages taken one by one for a while: there are not enough."""
        self._singly = 1 if IS_USED else _SINGLY

    def fetch(self) -> int:
        """Fetch what is in the queue, if nothing is ahead, and tell how many are ahead."""
        with self._lock:
            self._barred += 1  # first: the handler of a signal may receive, or close the consumer, from here on
            try:
                if self._barred == 1 and not self._is_moving and not length_hint(self._kept):
                    self._fetcher = threading.get_ident()
                    _exhaust(self._timeouts)
                    # Straight into its place: a Ctrl-C finds the messages in the queue or there, not in between.
                    for kept in map(iter, map(self._drain, (self._inner,))):
                        self._kept, self._are_made = kept, IS_USED
                    if self._barred > 1 or self._is_moving:
                        _exhaust(self._kept)
                    self._left = length_hint(self._kept)
            finally:
                self._barred -= 1
            return length_hint(self._kept)

    def before(self, _: Transition, /) -> None:
        """Fetch nothing while the cursor moves, or while it is being closed."""
        with self._lock:  # until what is being fetched is here
            self._is_moving = True

    def after(self, transition: Transition, /) -> None:
        """Drop what is ahead: it comes again, or is not what was sought. Behind a close, fetch nothing any more."""
        if transition is Transition.CLOSE:
            self.end()
        else:
            _exhaust(self._kept)
            self._is_moving = False

    def abandon(self, _: Transition, /) -> None:
        """Keep what is ahead: the cursor did not move, or it is still open."""
        self._is_moving = False

    def renew(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Fetch from another C++ consumer; what was ahead comes again."""
        with self._lock:
            _exhaust(self._timeouts)
            _exhaust(self._kept)
            self._inner, self._each, self._wait = inner, self._source.each, self._source.wait
            self._kept, self._are_made, self._fetcher = ahead, False, 0

    def end(self) -> None:
        """Drop what is ahead, and fetch nothing any more."""
        with self._lock:  # as above
            self._barred += 1
        _exhaust(self._kept)

    def batch(self, batch: list[Any]) -> None:
        """Receive as the C++ client's `batch_receive()` does without a policy: what comes in 100 ms, up to 10 MB.

        Args:
            batch: where the messages go; nothing is done if there are some, which a Ctrl-C left.
        """
        size, deadline = 0, time.monotonic() + _OFFICIAL_MILLIS / 1000
        left = 0.0 if batch else 1.0
        while left > 0:
            ahead = self.fetch()
            size += sum(inner.length() for inner in self._inners(copy(self._kept)))
            if batch and size > _OFFICIAL_BYTES:
                return
            batch.extend(self._inners(self._kept))
            left = deadline - time.monotonic()
            if ahead < _FEWEST:
                threads.sleep(max(min(left, _PAUSE_SECONDS), 0))


def _exhaust(shared: Iterator[Any]) -> None:
    """End an iterator for everybody who has it."""
    deque(shared, 0)


_AWAY_MILLIS = 100
"""How long a broker that cannot be reached is waited for until a batch is empty: as long as officially by default."""


class ReceivingMany(Receiving[T]):
    """What a `Consumer` does with many messages."""

    _interrupted: Interrupted
    _pause: Pause
    _prefetch: Prefetch | None
    _recorder: Recorder | None
    _screen: Callable[[Any], bool] | None
    _screened: ScreenedSource | None
    _sieve: Sieve | None
    _source: Source
    _is_wanted: Callable[[Any], bool]
    """Tells whether a C++ message of a batch is for the application."""
    _receive_plain: Callable[[int | None], Message]
    """`receive()` without interceptors."""

    def pause(self) -> None:
        """Hand out no messages until `resume()`: receives and loops wait as if none came, and so does a listener.

        A receive that waits already may still get one, and so may a listener behind a seek that comes meanwhile: the
        C++ client begins to call it before it can be told to wait. The receiver queue stays full, and no more messages
        come from the broker. In a `batch_receive()` a pause counts as a time in which nothing came. Java's
        `Consumer.pause`, which hands out what is in the queue.

        Raises:
            pulsar.AlreadyClosed: it is closed.
        """
        self._refuse_closed()
        self._pause.begin(self.inner)

    def resume(self) -> None:
        """Hand out messages again, if it was paused; Java's `Consumer.resume`.

        Raises:
            pulsar.AlreadyClosed: it is closed.
        """
        self._refuse_closed()
        self._pause.end(self.inner)

    def pause_message_listener(self) -> None:
        """Have the listener wait, until `resume_message_listener()`: a seek or a redelivery does not end that.

        Raises:
            pulsar.InvalidConfiguration: there is no listener.
            pulsar.AlreadyClosed: it is closed.
        """
        self._pause.silence(self.inner)

    def resume_message_listener(self) -> None:
        """Have the listener go on, in a `pause()` behind that; raises as `pause_message_listener()`."""
        self._pause.unsilence(self.inner)

    @property
    def is_paused(self) -> bool:
        """Whether `pause()` was called, and `resume()` was not."""
        return self._order.is_paused

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message[T]]:
        """Receive several messages at once: waits for the first, and takes with it what is there already.

        What is not in the list stays where seeks, redeliveries and other receives find it. After a Ctrl-C the next call
        on the same thread returns what this one had.

        Args:
            max_messages: how many at most; a hundred are faster than a thousand, which leave the processor's cache.
            timeout_millis: how long to wait for the first; None waits for ever.

        Returns:
            The messages, in order; empty if none came in time.

        Raises:
            InvalidUse: `max_messages` is not an int of 1 or more.
            pulsar.AlreadyClosed: it is closed.
        """
        check_max_messages(max_messages)
        thread, kept_by = get_ident(), self._interrupted.many
        kept = kept_by.setdefault(thread, [])
        try:
            if not kept:
                kept.append(self._receive_plain(timeout_millis))
                self._take(kept, max_messages)
        except Timeout:
            if self._prefetch is not None:
                self._prefetch.found_few()
        except AlreadyClosed:  # or replaced: what was there before goes first
            if not kept:
                raise
        try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose what nobody keeps any more
            del kept_by[thread]
        except KeyError:  # a seek on another thread has dropped it
            pass
        return kept

    def batch_receive(self) -> list[Message[T]]:
        """Receive several messages at once, as many as the `batch_receive_policy` says.

        After a Ctrl-C the next call on the same thread returns what this one had.

        Returns:
            The messages, in order; empty if none came within the policy's time.
        """
        thread, batches = get_ident(), self._interrupted.batches
        while True:
            batch = self._receive_batch(thread)
            new = self._message_class  # afterwards: the wait may have ended on another cluster
            messages = []
            looks = self._screen is not None or self._order.is_doubted
            for inner in filter(self._is_wanted, batch) if looks else batch:
                message = new()
                message.inner = inner
                messages.append(message)
            if self._recorder is not None:
                self._recorder.note([message.inner for message in messages])
            try:  # noqa: SIM105  # no call from here on, as above
                del batches[thread]
            except KeyError:  # a seek on another thread has dropped it, or nothing came
                pass
            if messages or not batch:  # else none of them was for the application
                return messages

    def _stop_fetching_(self) -> None:
        """Let nobody begin to wait for the C++ consumer's answer: its client ends, and it may never give one."""
        interrupted = self._interrupted  # first: behind this it is refused only if it is closed
        if not self._closed:
            interrupted.bar()
        if (prefetch := self._prefetch) is not None:
            self._prefetch = None
            prefetch.end()

    def _end_batches_(self, deadline: float) -> None:
        """Wait for those who wait for a batch; whoever still does at `deadline` is answered by a close."""
        interrupted = self._interrupted  # first: behind this it is refused only if it is closed
        if not (self._closed or interrupted.await_others(deadline)):
            self.inner.close_async(None)
            interrupted.await_others(time.monotonic() + LEAVING_SECONDS[Transition.CLOSE])

    def _receive_batch(self, thread: int) -> list[Any]:
        """Receive several C++ messages, and keep them for the thread's next call."""
        batches, tried = self._interrupted.batches, None
        while True:
            try:
                self._wait_while_paused(POLL_MILLIS)
            except Timeout:
                return batches.setdefault(thread, [])
            try:
                batch: list[Any] = batches.setdefault(thread, [])
                if not batch and self._interrupted.is_barred:  # asked behind that: who bars waits for who is noted
                    batches.pop(thread, None)
                    self._order.wait_for_transition()
                    self._context.senders.refuse_ended()
                    continue
                self._take_ahead(batch)
                if self._prefetch is not None:
                    self._order.claim(thread)
                    self._prefetch.batch(batch)
                    return batch
                if not batch:
                    for batch in iter(self.inner.batch_receive, None):
                        batches[thread] = batch  # no call in between: a Ctrl-C leaves the batch to the next call
                        break
                    if self._flow is not None:
                        self._flow.received += len(batch)
                        self._flow.empty += not batch
                return batch  # noqa: TRY300  # an `else` could not tell the ways apart
            except AlreadyClosed:
                try:
                    tried = self._other_than(tried, _AWAY_MILLIS)
                except Timeout:
                    return batches.setdefault(thread, [])

    def _take_ahead(self, batch: list[Any]) -> None:
        """Take what comes before the C++ consumer's batches, into an empty one."""
        if not batch:
            batch += self._interrupted.ahead
        for kept in (self._screened, self._sieve):
            if not batch and kept is not None:
                kept.give_up_to(batch)

    def _take(self, kept: list[Message], upto: int) -> None:
        """Take messages that are there, until a list has so many.

        Raises:
            pulsar.Timeout: no more are there.
        """
        thread = get_ident()
        while len(kept) < upto:
            new = self._message_class
            numbers, ahead, left = self._order.claim(thread), self._fetching(), upto - len(kept)
            waits = map(self._source.wait, repeat(0, left))
            source, are_made = (waits, False) if ahead is None else ahead.several_here(left)
            self._mind(ahead)
            message = new()
            if are_made:
                kept.extend(source)
            elif numbers is not None:
                for message.inner, message.number in zip(source, numbers, strict=False):
                    kept.append(message)
                    message = new()
            else:
                for message.inner in source:
                    kept.append(message)
                    message = new()

    def __iter__(self) -> Iterator[Message[T]]:  # noqa: C901, PLR0912  # as in `receive()`
        """Receive for ever, one message after the other, until it is closed."""
        order, tried = self._order, None
        while not self._closed:
            new = self._message_class
            message = new()
            try:
                if order.sieve is not None:
                    yield self._receive_next_(POLL_MILLIS)
                    continue
                self._refill()
                made = order.made
                for message in made:
                    if (sieve := order.sieve) is not None:
                        sieve.unseen.append(message.inner)  # in one step: a Ctrl-C finds it there
                        break
                    yield message
                    if order.made is not made:
                        break
                run = order.run
                if run is not None and run.thread == get_ident():
                    for message.inner, message.number in run.messages:
                        if (sieve := order.sieve) is not None:
                            sieve.unseen.append(message.inner)
                            break
                        yield message
                        if order.run is not run:
                            break
                        message = new()
                else:
                    ready = order.ready
                    for message.inner in ready:
                        if (sieve := order.sieve) is not None:
                            sieve.unseen.append(message.inner)
                            break
                        yield message
                        if order.ready is not ready:
                            break
                        message = new()
            except Timeout:
                self._context.callbacks.refuse("a receive without messages")
            except AlreadyClosed:
                if not self._closed:
                    tried = self._other_than(tried)

    def _record_(self) -> list[Any]:
        """Note what is received from now on, as C++ messages in the list that is returned."""
        if self._recorder is None:
            self._recorder = Recorder(self._source)
            self._source = self._recorder
            self._order.begin_epoch()
        return self._recorder.begin()

    def _end_record_(self, noted: list[Any]) -> list[Message[T]]:
        """Stop noting in a list that `record()` returned, and give its messages."""
        recorder = self._recorder
        if recorder is not None:
            recorder.end(noted)
            if not recorder.lists:
                self._recorder, self._source = None, recorder.source
                self._order.begin_epoch()
        return [self._message_of_(inner) for inner in noted]

    def _message_of_(self, inner: Any) -> Message[T]:
        """Give a C++ message as one of this consumer's."""
        message = self._message_class()
        message.inner = inner
        return message

    def _refill(self) -> None:
        """Have this thread's next receives find messages where they look first, with numbers if that is right."""
        self._wait_while_paused(POLL_MILLIS)
        numbers, ahead = self._order.claim(get_ident()), self._fetching()
        source, are_made = (self._fast_source(), False) if ahead is None else ahead.several()
        self._mind(ahead)
        self._order.offer(source, numbers, made=are_made)

    def _wait_while_paused(self, timeout_millis: int) -> None:
        if self._order.is_paused and not self._closed:
            self._pause.wait(timeout_millis)

    def _mind(self, ahead: Prefetch | None) -> None:
        """Conclude nothing over what another thread fetched: while it did, this one may have received what follows."""
        if ahead is not None and ahead.is_anothers:
            self._order.leave_out()

    def _fetching(self) -> Prefetch | None:
        """Give what fetches ahead; None if nothing does, or something stands before it."""
        if self._recorder is not None or (self._sieve is not None and self._sieve.is_at_work):
            return None
        return self._prefetch

    def _fast_source(self) -> Any:
        """Give an endless iterator for loops that ask for a sieve behind each wait."""
        return self._source.each if self._recorder is not None or self._sieve is None else self._sieve.fast


def check_max_messages(max_messages: Any) -> None:
    """Refuse what cannot be a number of messages to receive.

    Raises:
        InvalidUse: it is not an int of 1 or more.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages is an int, 1 or more, not {max_messages!r}.")
