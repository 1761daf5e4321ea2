"""Messages that a consumer fetches ahead of the application: some hundreds at once cost less than one after the other.

That is done for whoever takes messages faster than one in ten microseconds: who takes longer has none ahead. What is
ahead comes first for every kind of receive, and is dropped by a seek and by a redelivery. To the broker it is delivered
and not acknowledged: after a close, a crash or a lost connection it is delivered again.

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
from typing import TYPE_CHECKING, Any, Final, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.core import IS_USED, drainer
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.results import POLL_MILLIS

from .order import NOTHING, Part, Transition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext._runtime.context import ClientContext

    from .source import Source

__all__ = ["OFFICIAL_POLICY", "Prefetch", "take_over_batches"]

_MOST, _FEWEST = 400, 50
"""How many are fetched at once; fewer cost as much as one by one."""
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


def take_over_batches(named: dict[str, Any], *, screens: bool) -> bool:
    """Have the C++ consumer's `batch_receive()` be for fetching ahead, and tell whether it is.

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
        return False
    named["batch_receive_policy"] = _policy(at_once)
    return True


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
    """

    __slots__ = (
        "_are_made",
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

    def __init__(self, context: ClientContext, inner: Any, source: Source, messages: type) -> None:
        self._context, self._source = context, source
        self._inner, self._each, self._wait = inner, source.each, source.wait
        self._kept: Iterator[Any] = NOTHING
        """What is ahead, as it was drained: threads may share it, and whoever drops it exhausts it for all of them."""
        self._are_made = False
        """Whether they are messages of ours already, and not C++ messages."""
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
        self._drain = drainer(messages)

    def several(self) -> tuple[Iterator[Any], bool]:
        """Return the next messages, and whether they are messages of ours already.

        Their iterator raises `pulsar.Timeout` if none comes in 100 ms.
        """
        with self._lock:
            if not length_hint(self._timeouts):
                if self._look():
                    return self._kept, self._are_made
                self._singly -= _MOST
                timeouts = repeat(POLL_MILLIS, _MOST)
                waits = map(self._wait, timeouts)
                self._waits, self._timeouts = waits, timeouts  # no call in between, after which a Ctrl-C may come
                self._left = _MOST
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
            if ahead < _FEWEST:
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
        self._singly = _SINGLY

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
