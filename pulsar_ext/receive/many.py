"""Prefetching of some hundred messages.

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

import contextlib
import time
from collections import deque
from copy import copy
from functools import cache
from itertools import islice, repeat
from operator import attrgetter, length_hint
from typing import TYPE_CHECKING, Any, Final, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.core import IS_USED, drainer
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.results import POLL_MILLIS
from pulsar_ext.errors import InvalidUse

from .order import NOTHING, Part, Transition, TransitionSubscriber

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext._native.messages import InnerConsumer, InnerMessage
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.message import Message

    from .order import Arguments
    from .source import Source


_MAX_FETCH, _MIN_FETCH = 400, 50
"""Most and fewest messages of one fetch; fewer are not worth a fetch, unless the native core does it."""
_MAX_FETCH_BYTES: Final = 1 << 20
_WAIT_MILLIS: Final = 1
"""Milliseconds that an incomplete fetch waits for more; the shortest time that the C++ client supports."""
_FAST_SECONDS: Final = 10e-6
"""Seconds per message; a slower application would not notice what prefetching saves."""
_FAST_AWAITED_SECONDS: Final = 50e-6
"""Seconds per message of awaited receives."""
_SINGLE_RECEIVES: Final = 1000
"""Number of messages received one by one after a fetch that found few."""

_inner = attrgetter("inner")
_OFFICIAL_BYTES, _OFFICIAL_MILLIS = 10 << 20, 100
_PAUSE_SECONDS = 0.005
OFFICIAL_POLICY: Final = pulsar.ConsumerBatchReceivePolicy(-1, _OFFICIAL_BYTES, _OFFICIAL_MILLIS)
"""The C++ client's behaviour without a policy."""


def configure_prefetch(named: Arguments, *, screens: bool) -> int:
    """Reserve the C++ consumer's `batch_receive()` for prefetching; return the size of a fetch, 0 without prefetching.

    Nothing is prefetched with the application's own policy or listener, with a small queue, or if a timeout begins when
    a message is taken from the C++ queue, as acknowledgement timeouts do. The policy in `named`, the official arguments
    of `subscribe()`, is changed.
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
    """The prefetched messages before a consumer's native receive, at most `at_once` of a fetch."""

    __slots__ = (
        "_are_made",
        "_at_once",
        "_context",
        "_drain",
        "_drain_one",
        "_each",
        "_fast",
        "_fetch_blocks",
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
    part = Part.SOURCE

    def __init__(
        self, context: ClientContext, inner: InnerConsumer, source: Source, messages: type[Message], at_once: int
    ) -> None:
        self._context, self._source = context, source
        self._inner, self._each, self._wait = inner, source.each, source.wait
        self._prefetched: Iterator[Any] = NOTHING
        """The prefetched messages. Threads may share the iterator; dropping the messages exhausts it for all."""
        self._are_made = False
        """Whether these are messages of ours already, and not C++ messages."""
        self._at_once = at_once
        self.make(messages)
        self._timeouts: Iterator[int] = NOTHING
        self._waits: Iterator[InnerMessage] = NOTHING
        """Waits for one message each; its timeouts are exhausted before messages are fetched, which come first."""
        self._lock = OwnedLock()
        self._fetch_blocks = 0
        """Number of running fetches, each of which excludes the others, plus the permanent blocks."""
        self._is_moving = False
        """Whether the cursor moves; nothing is fetched during that time."""
        self._single_left = _MAX_FETCH
        """Number of messages still to be received one by one."""
        self._fast = False
        self._taken, self._since, self._left = 0, time.monotonic(), 0
        """The measured pace: messages taken, since when, and the number that remained at the last check. For awaited
        receives: messages fetched last, and when."""

    @property
    def each(self) -> Self:
        """Return this object, which is its own endless iterator."""
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> InnerMessage:
        for inner in self._inners(self._prefetched):
            return inner
        for inner in self._each:
            return inner
        raise StopIteration

    def wait(self, millis: int) -> InnerMessage:
        """Receive as the consumer does."""
        for inner in self._inners(self._prefetched):
            return inner
        for inner in map(self._wait, (millis,)):
            return inner
        raise AssertionError  # the map above has exactly one item

    def make(self, messages: type[Message]) -> None:
        """Create messages of this class from now on."""
        self._drain = drainer(messages, self._at_once, _MAX_FETCH_BYTES)
        self._drain_one = drainer(messages, 1, _MAX_FETCH_BYTES)

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

    def fetch_arrived(self) -> Iterator[Message]:
        """Fetch messages without waiting, for awaited receives: one, or many if they are taken fast.

        A transition drops those that are still in the iterator.
        """
        now = time.monotonic()
        is_fast, self._since = now - self._since < self._taken * _FAST_AWAITED_SECONDS, now
        with contextlib.suppress(pulsar.PulsarException):  # a request gets the same error, and handles it
            self._taken = self.fetch(only_one=not is_fast)
        return self._prefetched if self._are_made else NOTHING

    def _inners(self, kept: Iterator[Any]) -> Iterator[InnerMessage]:
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

    def note_few_found(self) -> None:
        """Receive messages one by one for a while, as too few arrive for fetching."""
        self._single_left = 1 if IS_USED else _SINGLE_RECEIVES

    def fetch(self, *, only_one: bool = False) -> int:
        """Fetch messages in the queue if none are prefetched; return the number of prefetched messages."""
        drain = self._drain_one if only_one else self._drain
        with self._lock:
            self._fetch_blocks += 1  # first: the handler of a signal may receive, or close the consumer, from here on
            try:
                if self._fetch_blocks == 1 and not self._is_moving and not length_hint(self._prefetched):
                    _exhaust(self._timeouts)
                    # Assigned without Python code in between: a Ctrl-C finds the messages in the queue or here.
                    for kept in map(iter, map(drain, (self._inner,))):
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

    def on_reopen(self, inner: InnerConsumer, ahead: Iterator[InnerMessage], /) -> None:
        """Fetch from the reopened C++ consumer; prefetched messages are redelivered."""
        with self._lock:
            _exhaust(self._timeouts)
            _exhaust(self._prefetched)
            self._inner, self._each, self._wait = inner, self._source.each, self._source.wait
            self._prefetched, self._are_made = ahead, False

    def end(self) -> None:
        """Drop the prefetched messages, and stop fetching."""
        with self._lock:  # waits for a running fetch
            self._fetch_blocks += 1
        _exhaust(self._prefetched)

    def batch(self, batch: list[InnerMessage]) -> None:
        """Receive into a list as the C++ client's `batch_receive()` does without a policy: for 100 ms, up to 10 MB.

        Nothing is done if a Ctrl-C left messages in the list.
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


def _exhaust(shared: Iterator[object]) -> None:
    """Exhaust an iterator that threads may share."""
    deque(shared, 0)


def require_max_messages(max_messages: object) -> None:
    """Raise `InvalidUse` unless `max_messages` is an int >= 1."""
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages must be an int >= 1, got {max_messages!r}.")
