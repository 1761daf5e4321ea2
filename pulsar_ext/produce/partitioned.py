"""The sender on a partitioned topic: a sender with batches of its own for each partition.

The partitions are those that the official client would choose. With deduplication each partition has a sequence of its
own, and a message without a key goes where its sequence id says, so that a message sent again goes to the same place.
Mirrors Java's `PartitionedProducerImpl`.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.fork import refuse_after_fork
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.ending import finish_together
from pulsar_ext.ids.message_id import MessageId

from .options import named_options, rows_of, stands_alone
from .outcome import BulkOutcome, OutcomeWaiter, SentMany
from .sender import check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pulsar_ext._runtime.context import ClientContext

    from .batching import BatchingSender, MixedKeyCheck
    from .router import Routing


_NO_OPTIONS: dict[str, Any] = {}
_LOOK_SECONDS = 60.0
"""After how long partitions that were added are looked for, as officially."""


class PartitionedSender:
    """Sends to the partitions of a topic.

    Args:
        topic: the partitioned topic's name.
        context: of the client.
        parts: what sends to each partition; they end with the client by themselves.
        routing: chooses the partition of a message.
        grow: opens what sends to the partitions beyond so many.
        mixed_keys: looks for the first message with a key, if batches mix keys.
    """

    inner = None
    """It has no C++ producer; its parts have."""
    many_in_flight = None
    """A send that is patient waits for room."""

    def __init__(
        self,
        topic: str,
        context: ClientContext,
        parts: list[BatchingSender],
        *,
        routing: Routing,
        grow: Callable[[int], list[BatchingSender]],
        mixed_keys: MixedKeyCheck | None,
    ) -> None:
        self.context = context
        self.parts = parts
        self._topic = topic
        self._routing = routing
        self._grow = grow
        self._mixed_keys = mixed_keys
        self._lock = OwnedLock()
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._growing = threads.Lock()
        self._finished = False
        refuse_after_fork(self, "Producer")

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.parts[0].closed

    def topic(self) -> str:
        """Give the partitioned topic's name."""
        return self._topic

    def producer_name(self) -> str:
        """Give the first partition's producer name, as officially."""
        return self.parts[0].producer_name()

    def is_connected(self) -> bool:
        """Whether each partition's producer is connected."""
        return all(part.is_connected() for part in self.parts)

    def last_sequence_id(self) -> int:
        """Give the highest of all partitions, as officially."""
        return max(part.last_sequence_id() for part in self.parts)

    def last_sequence_id_published(self) -> int:
        """Give the lowest of the partitions' last sequence ids: up to it everything is persisted, -1 if nothing is."""
        return min(part.last_sequence_id_published() for part in self.parts)

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message of this producer has, persisted or on its way."""
        return max(part.last_sequence_id_pushed() for part in self.parts)

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message, with what its batch holds by now, and wait until it is persisted."""
        self.context.callbacks.refuse("send")
        if self._is_barred():
            return self.parts[0].send(content, *args, **kwargs)  # raises
        waiter = OutcomeWaiter()
        options = named_options(args, kwargs)
        part = self.post(content, waiter, options)
        if part is not None:
            part.dispatch.push()
        return waiter.wait(options.get("sequence_id"))

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        check_callback(callback)
        if self._is_barred():
            self.parts[0].send_async(content, callback, *args, **kwargs)  # refuses it
            return
        self.post(content, callback, named_options(args, kwargs) if args or kwargs else _NO_OPTIONS)

    def joining(self) -> Callable[..., None]:
        """Return what the `send_async` of its producer is."""
        return self.send_async

    def _is_barred(self) -> bool:
        return self.parts[0].dispatch.pending.barred

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> BatchingSender | None:
        """Put a message into its partition's batch; give what sends there, None if there is no such partition.

        The arguments are those of `BatchingSender.post()`.
        """
        routing, first = self._routing, self.parts[0]
        self.look_at_keys(options)
        if routing.router is not None or stands_alone(options):
            message = first.handle.build(content, **options)
            size = message.length()
        else:
            message = None
            size = len(first.encode(content, options)[0])
        with self._lock:
            self._look_for_more()
            index = routing.choose(message, size, options, len(self.parts))
        if not 0 <= index < len(self.parts):
            if callback is None:
                first.dispatch.pending.fail(pulsar.Result.UnknownError)  # for the next flush
            else:
                call_back(callback, pulsar.Result.UnknownError, MessageId())
            return None
        part = self.parts[index]
        part.post(content, callback, options, patient=patient)
        return part

    def _look_for_more(self) -> None:
        """Open producers for partitions that were added; looked for as often as officially, and by another thread."""
        if time.monotonic() >= self._next_look and not self._growing.locked():
            with contextlib.suppress(RuntimeError):  # the interpreter is ending and starts no threads any more
                threads.start(self._open_more, name="pulsar_ext-partitions")

    def _open_more(self) -> None:
        """Open them; only whoever has `_growing` may, or they would be opened twice."""
        if not self._growing.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(pulsar.PulsarException):
                more = self._grow(len(self.parts))
                with self._lock:
                    self.parts, finished = [*self.parts, *more], self._finished
                if finished:
                    finish_together([part.dispatch for part in more], time.monotonic())
        finally:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._growing.release()

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, without a callback for each."""
        self.parts[0].dispatch.refuse_closed()
        outcome = BulkOutcome()
        taken = 0
        for content, options in rows_of(contents, columns):
            self.post(content, outcome.one, options, patient=True)
            taken += 1
        if flush:
            for part in self.parts:
                part.dispatch.push()
            for part in self.parts:
                part.dispatch.pending.wait_for_all()
            outcome.raise_failure()
        return SentMany(taken, outcome.duplicates, outcome.last)

    def look_at_keys(self, options: dict[str, Any]) -> None:
        """Warn if this is the first message with a key, and batches mix keys."""
        if self._mixed_keys is not None and options:
            self._mixed_keys = self._mixed_keys.look(options, self)

    def route(
        self, keys: Sequence[str | None], sizes: Sequence[int], ids: Sequence[int] | None, partitions: int
    ) -> list[int]:
        """Give the partitions of many messages; see `Routing.choose_many`."""
        with self._lock:
            return self._routing.choose_many(keys, sizes, ids, partitions)

    def flush(self) -> None:
        """Push the open batches of all partitions and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message that was sent since the last flush has failed; the first one's error.
        """
        begun, failures = [], []
        for part in self.parts:
            try:
                begun.append((part.dispatch, part.dispatch.begin_flush()))
            except pulsar.PulsarException as error:
                failures.append(error)
        for dispatch, since in begun:
            try:
                dispatch.end_flush(since)
            except pulsar.PulsarException as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def finish(self, deadline: float) -> None:
        """Close the producers of all partitions, and wait no longer than until `deadline` for all of them together."""
        for part in self.parts:
            part.dispatch.refuse_interrupting()  # before any is closed
        with self._lock:
            self._finished = True  # what opens partitions that were added sees that, or they are among the parts
            parts = self.parts
        finish_together([part.dispatch for part in parts], deadline)

    def _after_fork_(self, _refusal: Any, /) -> None:
        """Replace the lock, which may have been held at the fork, for good; the parts refuse by themselves."""
        self._lock = OwnedLock()
