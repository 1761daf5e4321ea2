"""Receiving several messages at once, or one after the other in a `for` loop, with some hundreds prefetched.

Every kind of receive uses the same source: a few hundred prefetched messages, or a batch of waits for one message each
(see `Prefetch`). They are ready in the `ReceiveOrder`, with or without numbers.

Fetching some hundreds at once costs less than one after the other. It is done while the application takes messages
faster than one in ten microseconds; nothing is prefetched for a slower one. Prefetched messages are delivered first by
every kind of receive, and dropped by a seek and by a redelivery. To the broker they are delivered and unacknowledged:
after a close, a crash or a lost connection they are redelivered. The native core creates the messages in C++ as it
fetches them.

The C++ client answers a `batch_receive()` on its listener thread, and a closed client does not answer. So nothing is
prefetched in a client with a listener, which may block, or while a consumer or its client closes.
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

from .order import NOTHING, Transition, TransitionSubscriber
from .receiver import CLOSING_SECONDS, Receiving
from .source import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message

    from .filter import RedeliveryFilter, ScreenedSource
    from .receiver import Interrupted, Pause
    from .source import Source


_MAX_FETCH, _MIN_FETCH = 400, 50
"""Most and fewest messages of one fetch; fewer are not worth a fetch, unless the native core does it."""
_MAX_FETCH_BYTES: Final = 1 << 20
_WAIT_MILLIS: Final = 1
"""Milliseconds that an incomplete fetch waits for more; the shortest time that the C++ client supports."""
_FAST_SECONDS: Final = 10e-6
"""Seconds per message; a slower application would not notice what prefetching saves."""
_SINGLE_RECEIVES: Final = 1000
"""Number of messages received one by one after a fetch that found few."""

_inner = attrgetter("inner")
_OFFICIAL_BYTES, _OFFICIAL_MILLIS = 10 << 20, 100
_PAUSE_SECONDS = 0.005
OFFICIAL_POLICY: Final = pulsar.ConsumerBatchReceivePolicy(-1, _OFFICIAL_BYTES, _OFFICIAL_MILLIS)
"""The C++ client's behaviour without a policy."""


def configure_prefetch(named: dict[str, Any], *, screens: bool) -> int:
    """Reserve the C++ consumer's `batch_receive()` for prefetching; return the size of a fetch, 0 without prefetching.

    Nothing is prefetched with the application's own policy or listener, with a small queue, or if a timeout begins when
    a message is taken from the C++ queue, as acknowledgement timeouts do.

    Args:
        named: the official arguments of `subscribe()` by name; the policy in them is changed.
        screens: whether each message is screened on arrival.
    """
    size = named["receiver_queue_size"]
    at_once = min(size // 4, _MAX_FETCH) if isinstance(size, int) else 0
    own = ("batch_receive_policy", "message_listener", "unacked_messages_timeout_ms", "dead_letter_policy")
    if screens or at_once < _MIN_FETCH or any(named[name] for name in own):
        return 0
    named["batch_receive_policy"] = _policy(at_once)
    return at_once


@cache
def _policy(at_once: int) -> pulsar.ConsumerBatchReceivePolicy:
    """Return the policy for fetching `at_once` messages, which all consumers share."""
    return pulsar.ConsumerBatchReceivePolicy(at_once, _MAX_FETCH_BYTES, _WAIT_MILLIS)


class Prefetch(TransitionSubscriber):
    """The prefetched messages before a consumer's native receive.

    Args:
        context: the context of the consumer's client.
        inner: the C++ consumer, see `configure_prefetch()`.
        source: yields its messages one by one.
        messages: the class of the consumer's messages.
        at_once: the most messages that are fetched at once.
    """

    __slots__ = (
        "_are_made",
        "_at_once",
        "_context",
        "_drain",
        "_each",
        "_fast",
        "_fetch_blocks",
        "_fetcher",
        "_inner",
        "_is_moving",
        "_left",
        "_lock",
        "_prefetched",
        "_since",
        "_single_left",
        "_source",
        "_taken",
        "_timeouts",
        "_wait",
        "_waits",
    )

    def __init__(self, context: ClientContext, inner: Any, source: Source, messages: type, at_once: int) -> None:
        self._context, self._source = context, source
        self._inner, self._each, self._wait = inner, source.each, source.wait
        self._prefetched: Iterator[Any] = NOTHING
        """The prefetched messages. Threads may share the iterator; dropping the messages exhausts it for all."""
        self._are_made = False
        """Whether these are messages of ours already, and not C++ messages."""
        self._at_once = at_once
        self.make(messages)
        self._timeouts: Iterator[int] = NOTHING
        self._waits: Iterator[Any] = NOTHING
        """Waits for one message each; its timeouts are exhausted before messages are fetched, which come first."""
        self._fetcher = 0
        self._lock = OwnedLock()
        self._fetch_blocks = 0
        """Number of running fetches, each of which excludes the others, plus the permanent blocks."""
        self._is_moving = False
        """Whether the cursor moves; nothing is fetched during that time."""
        self._single_left = _MAX_FETCH
        """Number of messages still to be received one by one."""
        self._fast = False
        self._taken, self._since, self._left = 0, time.monotonic(), 0
        """The measured pace: messages taken, since when, and the number that remained at the last check."""

    @property
    def each(self) -> Self:
        """Return this object, which is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        for inner in self._inners(self._prefetched):
            return inner
        for inner in self._each:
            return inner
        raise StopIteration

    def wait(self, millis: int) -> Any:
        """Receive as the consumer does."""
        for inner in self._inners(self._prefetched):
            return inner
        for inner in map(self._wait, (millis,)):
            return inner
        raise AssertionError  # the map above has exactly one item

    def make(self, messages: type) -> None:
        """Create messages of this class from now on."""
        self._drain = drainer(messages, self._at_once, _MAX_FETCH_BYTES)

    def next_messages(self) -> tuple[Iterator[Any], bool]:
        """Return the next messages, and whether they are messages of ours already.

        Their iterator raises `pulsar.Timeout` if none arrives in 100 ms.
        """
        with self._lock:
            if not length_hint(self._timeouts):
                if self._count_ahead():
                    return self._prefetched, self._are_made
                count = 1 if IS_USED and self._fast else _MAX_FETCH
                self._single_left -= count
                timeouts = repeat(POLL_MILLIS, count)
                waits = map(self._wait, timeouts)
                self._waits, self._timeouts = waits, timeouts  # no call in between, after which a Ctrl-C may come
                self._left = count
            return self._waits, False

    def available_messages(self, limit: int) -> tuple[Iterator[Any], bool]:
        """Return up to `limit` messages that have arrived, and whether they are messages of ours already.

        Their iterator raises `pulsar.Timeout` if there are no more.
        """
        with self._lock:
            if self._count_ahead():
                return islice(self._prefetched, limit), self._are_made
            self._single_left -= limit
            self._taken += limit
            return map(self._wait, repeat(0, limit)), False

    def _inners(self, kept: Iterator[Any]) -> Iterator[Any]:
        """Return the C++ messages of an iterator, without Python code in between that a signal could interrupt."""
        return map(_inner, kept) if self._are_made else kept

    def _count_ahead(self) -> int:
        """Return the number of prefetched messages; if it is 0 and fetching pays off, fetch some."""
        ahead = length_hint(self._prefetched)
        left = ahead + length_hint(self._timeouts)
        self._taken += max(self._left - left, 0)
        self._left = left
        if self._taken >= _MIN_FETCH:
            now = time.monotonic()
            self._fast = now - self._since < self._taken * _FAST_SECONDS
            self._taken, self._since = 0, now
        if not ahead and self._fast and self._single_left <= 0 and not self._context.calls_back:
            ahead = self.fetch()
            if ahead < (1 if IS_USED else _MIN_FETCH):
                self.note_few_found()
        return ahead

    @property
    def ahead(self) -> int:
        """Number of prefetched messages."""
        return length_hint(self._prefetched)

    @property
    def is_from_other_thread(self) -> bool:
        """True if there are prefetched messages that another thread fetched."""
        return self._fetcher != threading.get_ident() and length_hint(self._prefetched) > 0

    def note_few_found(self) -> None:
        """Receive messages one by one for a while, as too few arrive for fetching."""
        self._single_left = 1 if IS_USED else _SINGLE_RECEIVES

    def fetch(self) -> int:
        """Fetch the messages in the queue if none are prefetched; return the number of prefetched messages."""
        with self._lock:
            self._fetch_blocks += 1  # first: the handler of a signal may receive, or close the consumer, from here on
            try:
                if self._fetch_blocks == 1 and not self._is_moving and not length_hint(self._prefetched):
                    self._fetcher = threading.get_ident()
                    _exhaust(self._timeouts)
                    # Assigned without Python code in between: a Ctrl-C finds the messages in the queue or here.
                    for kept in map(iter, map(self._drain, (self._inner,))):
                        self._prefetched, self._are_made = kept, IS_USED
                    if self._fetch_blocks > 1 or self._is_moving:
                        _exhaust(self._prefetched)
                    self._left = length_hint(self._prefetched)
            finally:
                self._fetch_blocks -= 1
            return length_hint(self._prefetched)

    def on_before(self, _: Transition, /) -> None:
        """Stop fetching while the cursor moves or the consumer closes."""
        with self._lock:  # waits for a running fetch
            self._is_moving = True

    def on_after(self, transition: Transition, /) -> None:
        """Drop the prefetched messages, which are redelivered or not wanted any more. After a close, stop fetching."""
        if transition is Transition.CLOSE:
            self.end()
        else:
            _exhaust(self._prefetched)
            self._is_moving = False

    def on_abandon(self, _: Transition, /) -> None:
        """Keep the prefetched messages: the cursor did not move, and the consumer is still open."""
        self._is_moving = False

    def on_reopen(self, inner: Any, ahead: Iterator[Any], /) -> None:
        """Fetch from the reopened C++ consumer; prefetched messages are redelivered."""
        with self._lock:
            _exhaust(self._timeouts)
            _exhaust(self._prefetched)
            self._inner, self._each, self._wait = inner, self._source.each, self._source.wait
            self._prefetched, self._are_made, self._fetcher = ahead, False, 0

    def end(self) -> None:
        """Drop the prefetched messages, and stop fetching."""
        with self._lock:  # waits for a running fetch
            self._fetch_blocks += 1
        _exhaust(self._prefetched)

    def batch(self, batch: list[Any]) -> None:
        """Receive as the C++ client's `batch_receive()` does without a policy: for 100 ms, up to 10 MB.

        Args:
            batch: the list to fill; nothing is done if a Ctrl-C left messages in it.
        """
        size, deadline = 0, time.monotonic() + _OFFICIAL_MILLIS / 1000
        left = 0.0 if batch else 1.0
        while left > 0:
            ahead = self.fetch()
            size += sum(inner.length() for inner in self._inners(copy(self._prefetched)))
            if batch and size > _OFFICIAL_BYTES:
                return
            batch.extend(self._inners(self._prefetched))
            left = deadline - time.monotonic()
            if ahead < _MIN_FETCH:
                threads.sleep(max(min(left, _PAUSE_SECONDS), 0))


def _exhaust(shared: Iterator[Any]) -> None:
    """Exhaust an iterator that threads may share."""
    deque(shared, 0)


_RECONNECT_MILLIS = 100
"""Milliseconds to wait for an unreachable broker before a batch is returned empty; the official default timeout."""


class ReceivingMany(Receiving[T]):
    """The receives of a `Consumer` that return several messages."""

    _interrupted: Interrupted
    _pause: Pause
    _prefetch: Prefetch | None
    _recorder: Recorder | None
    _screen: Callable[[Any], bool] | None
    _screened: ScreenedSource | None
    _redelivery_filter: RedeliveryFilter | None
    _source: Source
    _is_wanted: Callable[[Any], bool]
    """Whether a C++ message of a batch is for the application."""
    _receive_plain: Callable[[int | None], Message]
    """`receive()` without interceptors."""

    def pause(self) -> None:
        """Deliver no messages until `resume()`: receives, loops and the listener wait as if none had arrived.

        A receive that waits already may still return one message. A listener may still be called with one after a
        concurrent seek. The receiver queue stays full, and the broker sends no more messages. In a `batch_receive()` a
        pause counts as a time without messages. Java's `Consumer.pause` still delivers the messages in the queue.

        Raises:
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._raise_if_closed()
        self._pause.begin(self.inner)

    def resume(self) -> None:
        """Deliver messages again after `pause()`; mirrors Java's `Consumer.resume`.

        Raises:
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._raise_if_closed()
        self._pause.end(self.inner)

    def pause_message_listener(self) -> None:
        """Pause the listener until `resume_message_listener()`, across seeks and redeliveries.

        Raises:
            pulsar.InvalidConfiguration: the consumer has no listener.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        self._pause.silence(self.inner)

    def resume_message_listener(self) -> None:
        """Resume the listener; during a `pause()`, once that ends. Raises as `pause_message_listener()`."""
        self._pause.unsilence(self.inner)

    @property
    def is_paused(self) -> bool:
        """True if the consumer is paused by `pause()`."""
        return self._order.is_paused

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message[T]]:
        """Receive several messages at once: wait for the first, and return it with those that have arrived.

        Messages that are not in the list stay available to other receives, seeks and redeliveries. After a Ctrl-C, the
        next call on the same thread returns the messages of the interrupted one.

        Args:
            max_messages: the most messages to return; a hundred are faster than a thousand, which exceed the CPU cache.
            timeout_millis: the milliseconds to wait for the first message; None waits forever.

        Returns:
            The messages, in order; an empty list if none arrived in time.

        Raises:
            InvalidUse: `max_messages` is not an int >= 1.
            pulsar.AlreadyClosed: the consumer is closed.
        """
        require_max_messages(max_messages)
        thread, kept_by = get_ident(), self._interrupted.many
        kept = kept_by.setdefault(thread, [])
        try:
            if not kept:
                kept.append(self._receive_plain(timeout_millis))
                self._take(kept, max_messages)
        except Timeout:
            if self._prefetch is not None:
                self._prefetch.note_few_found()
        except AlreadyClosed:  # or replaced: messages received before that are returned first
            if not kept:
                raise
        try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose messages that are in no list
            del kept_by[thread]
        except KeyError:  # a seek on another thread has dropped it
            pass
        return kept

    def batch_receive(self) -> list[Message[T]]:
        """Receive as many messages at once as the `batch_receive_policy` defines.

        After a Ctrl-C, the next call on the same thread returns the messages of the interrupted one.

        Returns:
            The messages, in order; an empty list if none arrived within the policy's timeout.
        """
        thread, batches = get_ident(), self._interrupted.batches
        while True:
            batch = self._receive_batch(thread)
            new = self._message_class  # afterwards: the wait may have ended on another cluster
            messages = []
            screens = self._screen is not None or self._order.is_screening
            for inner in filter(self._is_wanted, batch) if screens else batch:
                message = new()
                message.inner = inner
                messages.append(message)
            if self._recorder is not None:
                self._recorder.note([message.inner for message in messages])
            try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose the messages
                del batches[thread]
            except KeyError:  # a seek on another thread has dropped it, or no messages arrived
                pass
            if messages or not batch:  # else none of them was for the application
                return messages

    def _stop_fetching_(self) -> None:
        """Stop waiting for the C++ consumer's answers: its client ends, and may never answer."""
        interrupted = self._interrupted  # first: later this raises only if it is closed
        if not self._closed:
            interrupted.block()
        if (prefetch := self._prefetch) is not None:
            self._prefetch = None
            prefetch.end()

    def _end_batches_(self, deadline: float) -> None:
        """Wait until `deadline` for threads inside `batch_receive()`; close the C++ consumer to answer the others."""
        interrupted = self._interrupted  # first: later this raises only if it is closed
        if not (self._closed or interrupted.wait_for_others(deadline)):
            self.inner.close_async(None)
            interrupted.wait_for_others(time.monotonic() + CLOSING_SECONDS[Transition.CLOSE])

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
                if not batch and self._interrupted.is_blocked:  # checked last: the blocker waits for registered threads
                    batches.pop(thread, None)
                    self._order.wait_for_transition()
                    self._context.senders.raise_if_ended()
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
                return batch  # noqa: TRY300  # an `else` could not distinguish the branches
            except AlreadyClosed:
                try:
                    tried = self._replacement_of(tried, _RECONNECT_MILLIS)
                except Timeout:
                    return batches.setdefault(thread, [])

    def _take_ahead(self, batch: list[Any]) -> None:
        """Move the messages that precede the C++ consumer's batches into an empty batch."""
        if not batch:
            batch += self._interrupted.ahead
        for kept in (self._screened, self._redelivery_filter):
            if not batch and kept is not None:
                kept.drain_to(batch)

    def _take(self, kept: list[Message], limit: int) -> None:
        """Append messages that have arrived to a list, until it has `limit` of them.

        Raises:
            pulsar.Timeout: fewer have arrived.
        """
        thread = get_ident()
        while len(kept) < limit:
            new = self._message_class
            numbers, ahead, left = self._order.claim(thread), self._fetching(), limit - len(kept)
            waits = map(self._source.wait, repeat(0, left))
            source, are_made = (waits, False) if ahead is None else ahead.available_messages(left)
            self._note_foreign_fetch(ahead)
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
        """Receive one message after the other until the consumer is closed."""
        order, tried = self._order, None
        while not self._closed:
            new = self._message_class
            message = new()
            try:
                if order.redelivery_filter is not None:
                    yield self._receive_next_(POLL_MILLIS)
                    continue
                self._refill()
                made = order.made
                for message in made:
                    if (redelivery_filter := order.redelivery_filter) is not None:
                        redelivery_filter.unseen.append(message.inner)  # in one step: a Ctrl-C finds it there
                        break
                    yield message
                    if order.made is not made:
                        break
                run = order.run
                if run is not None and run.thread == get_ident():
                    for message.inner, message.number in run.messages:
                        if (redelivery_filter := order.redelivery_filter) is not None:
                            redelivery_filter.unseen.append(message.inner)
                            break
                        yield message
                        if order.run is not run:
                            break
                        message = new()
                else:
                    ready = order.ready
                    for message.inner in ready:
                        if (redelivery_filter := order.redelivery_filter) is not None:
                            redelivery_filter.unseen.append(message.inner)
                            break
                        yield message
                        if order.ready is not ready:
                            break
                        message = new()
            except Timeout:
                self._context.callbacks.raise_inside("a receive without messages")
            except AlreadyClosed:
                if not self._closed:
                    tried = self._replacement_of(tried)

    def _record_(self) -> list[Any]:
        """Record the C++ messages received from now on in the list that is returned."""
        if self._recorder is None:
            self._recorder = Recorder(self._source)
            self._source = self._recorder
            self._order.begin_epoch()
        return self._recorder.begin()

    def _end_record_(self, noted: list[Any]) -> list[Message[T]]:
        """Stop recording in a list that `_record_()` returned, and return its messages."""
        recorder = self._recorder
        if recorder is not None:
            recorder.end(noted)
            if not recorder.lists:
                self._recorder, self._source = None, recorder.source
                self._order.begin_epoch()
        return [self._message_of_(inner) for inner in noted]

    def _message_of_(self, inner: Any) -> Message[T]:
        """Return a C++ message as a message of this consumer."""
        message = self._message_class()
        message.inner = inner
        return message

    def _refill(self) -> None:
        """Offer messages to this thread's next receives, with numbers if numbering is possible."""
        self._wait_while_paused(POLL_MILLIS)
        numbers, ahead = self._order.claim(get_ident()), self._fetching()
        source, are_made = (self._fast_source(), False) if ahead is None else ahead.next_messages()
        self._note_foreign_fetch(ahead)
        self._order.offer(source, numbers, made=are_made)

    def _wait_while_paused(self, timeout_millis: int) -> None:
        if self._order.is_paused and not self._closed:
            self._pause.wait(timeout_millis)

    def _note_foreign_fetch(self, ahead: Prefetch | None) -> None:
        """Skip a number if another thread fetched: during its fetch, this thread may have received later messages."""
        if ahead is not None and ahead.is_from_other_thread:
            self._order.skip_number()

    def _fetching(self) -> Prefetch | None:
        """Return the prefetch; None without prefetching, or if another source precedes it."""
        if self._recorder is not None or (self._redelivery_filter is not None and self._redelivery_filter.is_active):
            return None
        return self._prefetch

    def _fast_source(self) -> Any:
        """Return an endless iterator for loops that check for a redelivery filter after each wait."""
        return (
            self._source.each
            if self._recorder is not None or self._redelivery_filter is None
            else self._redelivery_filter.fast
        )


def require_max_messages(max_messages: Any) -> None:
    """Raise unless `max_messages` is a valid number of messages.

    Raises:
        InvalidUse: it is not an int >= 1.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages must be an int >= 1, got {max_messages!r}.")
