"""Prefetching of some hundred messages by the native core.

Every kind of receive uses the same source: a few hundred prefetched messages, or a batch of waits for one message each
(see `Prefetch`). They are ready in the `ReceiveOrder`.

The native core takes messages from the C++ queue and creates ours in one call, which costs less than one call for each.
It is done while the application takes messages faster than one in ten microseconds; nothing is prefetched for a slower
one. Prefetched messages are delivered first by every kind of receive, and dropped by a seek and by a redelivery. To the
broker they are delivered and unacknowledged: after a close, a crash or a lost connection they are redelivered.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, repeat
from operator import attrgetter, length_hint
from typing import Any, Final

import pulsar

from pulsar_ext._native.core import IS_USED, ReceivedBase, drain
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.messages import InnerConsumer, InnerMessage
from pulsar_ext._native.results import POLL_MILLIS
from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import Message

from .order import NOTHING, Part, Transition, TransitionSubscriber
from .source import OwnIterator, Source

_MAX_FETCH, _MIN_QUEUE = 400, 200
"""Most messages of one fetch; smallest receiver queue from which messages are prefetched."""
_MAX_FETCH_BYTES: Final = 1 << 20
_PACE = 50
"""Number of messages by which the application's pace is measured."""
_FAST_SECONDS: Final = 10e-6
"""Seconds per message; a slower application would not notice what prefetching saves."""
_FAST_AWAITED_SECONDS: Final = 50e-6
"""Seconds per message of awaited receives."""

_inner: Callable[[Any], InnerMessage] = attrgetter("inner")


def prefetch_size(named: Mapping[str, Any], *, screens: bool) -> int:
    """Return the size of a fetch of a consumer with these official arguments of `subscribe()`; 0 without prefetching.

    Nothing is prefetched without the native core, with a listener, with a policy for batches, which prefetched messages
    could exceed, with a small queue, or if a timeout begins when a message is taken from the C++ queue, as
    acknowledgement timeouts do.
    """
    size = named["receiver_queue_size"]
    own = ("batch_receive_policy", "message_listener", "unacked_messages_timeout_ms", "dead_letter_policy")
    if not IS_USED or screens or any(map(named.get, own)) or not isinstance(size, int) or size < _MIN_QUEUE:
        return 0
    return min(size // 4, _MAX_FETCH)


class Prefetch(ReceivedBase, OwnIterator, TransitionSubscriber):
    """The prefetched messages before a consumer's native receive, at most `at_once` of a fetch."""

    __slots__ = (
        "_at_once",
        "_fast",
        "_fetch_blocks",
        "_inner",
        "_is_current",
        "_is_moving",
        "_left",
        "_lock",
        "_prefetched",
        "_since",
        "_source",
        "_taken",
        "_timeouts",
        "_waits",
    )
    part = Part.SOURCE

    def __init__(
        self,
        inner: InnerConsumer,
        source: Source,
        message_class: type[Message],
        at_once: int,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        self._source, self._is_current = source, is_current
        self._inner, self.native_wait = inner, source.wait
        self._prefetched: Iterator[Message] = NOTHING
        """The prefetched messages. Threads may share the iterator; dropping the messages exhausts it for all."""
        self._at_once, self.message_class = at_once, message_class
        self._timeouts: Iterator[int] = NOTHING
        self._waits: Iterator[Message] = NOTHING
        """Waits for one message each; its timeouts are exhausted before messages are fetched, which come first."""
        self._lock = OwnedLock()
        self._fetch_blocks = 0
        """Number of running fetches, each of which excludes the others, plus the permanent block."""
        self._is_moving = False
        """Whether the cursor moves; nothing is fetched during that time."""
        self._fast = False
        self._taken, self._since, self._left = 0, time.monotonic(), 0
        """The measured pace: messages taken, since when, and the number that remained at the last check. For awaited
        receives: messages fetched last, and when."""

    def __next__(self) -> InnerMessage:
        return self.wait(POLL_MILLIS)

    def wait(self, millis: int) -> InnerMessage:
        """Receive as the consumer does."""
        for inner in map(_inner, chain(self._prefetched, map(self.wait_noted, (millis,)))):
            return inner
        raise AssertionError  # the map above has at least one item

    def next_messages(self) -> Iterator[Message]:
        """Return the next messages; the iterator raises `pulsar.Timeout` if it waits for one longer than 100 ms."""
        with self._lock:
            if not length_hint(self._timeouts):
                if self._count_ahead():
                    return self._prefetched
                count = 1 if self._fast else _MAX_FETCH
                timeouts = repeat(POLL_MILLIS, count)
                waits = map(self.wait_noted, timeouts)
                self._waits, self._timeouts = waits, timeouts  # no call in between, after which a Ctrl-C may come
                self._left = count
            return self._waits

    def available_messages(self, limit: int) -> Iterator[Message]:
        """Return up to `limit` messages that have arrived."""
        with self._lock:
            if not self._count_ahead():
                self.fetch(limit)
            return islice(self._prefetched, limit)

    def fetch_arrived(self) -> Iterator[Message]:
        """Fetch messages without waiting, for awaited receives: one, or many if they are taken fast.

        A transition drops those that are still in the iterator.
        """
        now = time.monotonic()
        is_fast, self._since = now - self._since < self._taken * _FAST_AWAITED_SECONDS, now
        with contextlib.suppress(pulsar.PulsarException):  # a request gets the same error, and handles it
            self._taken = self.fetch(self._at_once if is_fast else 1)
        return self._prefetched

    def _count_ahead(self) -> int:
        """Return the number of prefetched messages; if it is 0 and fetching pays off, fetch some."""
        ahead = length_hint(self._prefetched)
        left = ahead + length_hint(self._timeouts)
        self._taken += max(self._left - left, 0)
        self._left = left
        if self._taken >= _PACE:
            now = time.monotonic()
            self._fast = now - self._since < self._taken * _FAST_SECONDS
            self._taken, self._since = 0, now
        return self.fetch(self._at_once) if self._fast and not ahead else ahead

    @property
    def ahead(self) -> int:
        """Number of prefetched messages."""
        return length_hint(self._prefetched)

    def fetch(self, most: int) -> int:
        """Fetch messages in the queue if none are prefetched; return the number of prefetched messages."""
        with self._lock:
            self._fetch_blocks += 1  # first: the handler of a signal may receive, or close the consumer, from here on
            try:
                if self._fetch_blocks == 1 and not self._is_moving and not length_hint(self._prefetched):
                    _exhaust(self._timeouts)
                    take = partial(drain, self, most, _MAX_FETCH_BYTES)
                    # Assigned without Python code in between: a Ctrl-C finds the messages in the queue or here.
                    for fetched in map(iter, map(take, (self._inner,))):
                        self._prefetched = fetched
                    if self._fetch_blocks > 1 or self._is_moving or not self._is_current():
                        _exhaust(self._prefetched)
                    self._left = length_hint(self._prefetched)
            finally:
                self._fetch_blocks -= 1
            return length_hint(self._prefetched)

    def drain_to(self, batch: list[InnerMessage]) -> None:
        """Move the prefetched messages to a batch."""
        batch.extend(map(_inner, self._prefetched))

    def on_before(self, _: Transition, /) -> None:
        """Stop fetching while the cursor moves or the consumer closes."""
        with self._lock:  # waits for a running fetch
            self._is_moving = True

    def on_after(self, transition: Transition, /) -> None:
        """Drop the prefetched messages, which are redelivered or not wanted any more. After a close, stop fetching."""
        if transition is Transition.CLOSE:
            with self._lock:  # waits for a running fetch
                self._fetch_blocks += 1
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
            self._inner, self.native_wait = inner, self._source.wait
            self._prefetched = iter([*map(self.note, ahead)])


def _exhaust(shared: Iterator[object]) -> None:
    """Exhaust an iterator that threads may share."""
    deque(shared, 0)


def require_max_messages(max_messages: object) -> None:
    """Raise `InvalidUse` unless `max_messages` is an int >= 1."""
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages must be an int >= 1, got {max_messages!r}.")
