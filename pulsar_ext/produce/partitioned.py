"""The sender on a partitioned topic: one batching sender for each partition.

Messages go to the partitions that the official client would choose. With deduplication each partition has its own
sequence, and a message without a key is routed by its sequence id, so that a resend goes to the same partition. Mirrors
Java's `PartitionedProducerImpl`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.fork import refuse_after_fork
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.results import raise_result
from pulsar_ext._native.signatures import with_signature_of
from pulsar_ext._runtime.callbacks import SendCallback, call_back
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.ending import close_together
from pulsar_ext.ids.message_id import MessageId

from .batching import BatchingSender
from .options import Columns, Options, is_single_entry, named_options
from .outcome import BulkOutcome, SentMany
from .router import Routing
from .sender import check_callback, post_each

_INVALID = pulsar.Result.UnknownError
"""The official result of a message for which a router returns an invalid index."""
_NO_OPTIONS: Options = {}
_CHECK_SECONDS = 60.0
"""The interval of the check for added partitions, as in the official client."""


class PartitionedSender:
    """Sends to the partitions of a topic."""

    inner = None
    """None: only the parts have C++ producers."""
    many_in_flight = None
    """A patient send waits for room."""

    def __init__(
        self,
        topic: str,
        context: ClientContext,
        parts: list[BatchingSender],
        *,
        routing: Routing,
        grow: Callable[[int], list[BatchingSender]],
    ) -> None:
        self.context, self.parts = context, parts
        self._senders = [part.joining() for part in parts]
        """The `send_async` of each part, for plain messages."""
        self._topic, self._routing, self._grow = topic, routing, grow
        self._plain = routing.router is None and parts[0].takes_bytes
        self._lock = OwnedLock()
        self._next_check = time.monotonic() + _CHECK_SECONDS
        self._growing = threads.Lock()
        self._finished = False
        refuse_after_fork(self, "Producer")

    @property
    def closed(self) -> bool:
        """True once the sender was closed."""
        return self.parts[0].closed

    def topic(self) -> str:
        """Return the partitioned topic's name."""
        return self._topic

    def producer_name(self) -> str:
        """Return the producer name of the first partition, as the official client does."""
        return self.parts[0].producer_name()

    def is_connected(self) -> bool:
        """Return whether the producers of all partitions are connected."""
        return all(part.is_connected() for part in self.parts)

    def last_sequence_id(self) -> int:
        """Return the highest last sequence id of all partitions, as the official client does."""
        return max(part.last_sequence_id() for part in self.parts)

    def last_sequence_id_published(self) -> int:
        """Return the lowest last sequence id of all partitions: everything up to it is persisted. -1 if none."""
        return min(part.last_sequence_id_published() for part in self.parts)

    def last_sequence_id_pushed(self) -> int:
        """Return the highest sequence id pushed on any partition, persisted or in flight."""
        return max(part.last_sequence_id_pushed() for part in self.parts)

    def send(self, content: object, *args: object, **kwargs: object) -> MessageId:
        """Send a message together with its open batch, and wait until it is persisted."""
        options = named_options(args, kwargs)
        part = self._choose(content, options)
        if part is None:
            raise_result(_INVALID)
        return part.send(content, **options)

    @with_signature_of(pulsar.Producer.send_async)
    def send_async(self, content: object, callback: SendCallback | None, *args: object, **kwargs: object) -> None:
        """Send a message; `callback(result, message_id)` is called when it is persisted or has failed."""
        if self._plain and type(content) is bytes and not (args or kwargs):
            with self._lock:
                self._start_opening_added()
                send = self._senders[self._routing.choose(None, len(content), _NO_OPTIONS, len(self._senders))]
            send(content, callback)
            return
        check_callback(callback)
        options = named_options(args, kwargs) if args or kwargs else _NO_OPTIONS
        part = self._choose(content, options)
        if part is not None:
            part.send_async(content, callback, **options)
        elif callback is None:
            self.parts[0].pending.fail(_INVALID)  # raised by the next flush
        else:
            call_back(callback, _INVALID, MessageId())

    def post(self, content: object, callback: SendCallback, options: Options) -> None:
        """Send one message of `send_many`."""
        part = self._choose(content, options)
        if part is None:
            call_back(callback, _INVALID, MessageId())
        else:
            part.post(content, callback, options)

    def _choose(self, content: object, options: Options) -> BatchingSender | None:
        """Return the sender of a message's partition, None if the router's index is invalid."""
        routing, first = self._routing, self.parts[0]
        if first.pending.barred:
            return first  # which reports the error
        first.check_mixed_keys(options)
        if routing.router is not None or is_single_entry(options):
            message = first.handle.build(content, **options)
            size = message.length()
        else:
            message = None
            size = len(content) if self._plain and type(content) is bytes else len(first.encode(content, options)[0])
        with self._lock:
            self._start_opening_added()
            index = routing.choose(message, size, options, len(self.parts))
        return self.parts[index] if 0 <= index < len(self.parts) else None

    def _start_opening_added(self) -> None:
        """Start opening producers for added partitions on another thread, once a check is due."""
        if time.monotonic() >= self._next_check and not self._growing.locked():
            with contextlib.suppress(RuntimeError):  # the interpreter is ending and starts no threads any more
                threads.start(self._open_added_partitions, name="pulsar_ext-partitions")

    def _open_added_partitions(self) -> None:
        """Open producers for added partitions; `_growing` keeps them from being opened twice."""
        if not self._growing.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(pulsar.PulsarException):
                more = self._grow(len(self.parts))
                with self._lock:
                    self.parts, finished = [*self.parts, *more], self._finished
                    self._senders += [part.joining() for part in more]
                if finished:
                    close_together(more, time.monotonic())
        finally:
            self._next_check = time.monotonic() + _CHECK_SECONDS
            self._growing.release()

    def send_many(self, contents: Iterable[object], columns: Columns, *, flush: bool) -> SentMany:
        """Send many messages, without a callback for each."""
        self.parts[0].raise_if_closed()
        outcome = BulkOutcome()
        count = post_each(self, contents, columns, outcome)
        if flush:
            for part in self.parts:
                part.push()
        return outcome.sent(count, wait=flush)

    def route(
        self, keys: Sequence[str | None], sizes: Sequence[int], ids: Sequence[int] | None, partitions: int
    ) -> list[int]:
        """Return the partitions of many messages; see `Routing.choose_many`."""
        with self._lock:
            return self._routing.choose_many(keys, sizes, ids, partitions)

    def flush(self) -> None:
        """Push all open batches, wait until everything sent before is persisted, and raise the first error."""
        begun, failures = [], []
        for part in self.parts:
            try:
                begun.append((part, part.begin_flush()))
            except pulsar.PulsarException as error:
                failures.append(error)
        for part, since in begun:
            try:
                part.end_flush(since)
            except pulsar.PulsarException as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def finish(self, deadline: float) -> None:
        """Close the producers of all partitions; `deadline` applies to all of them together."""
        for part in self.parts:
            part.raise_if_interrupting()  # before any partition is closed
        with self._lock:
            self._finished = True  # `_open_added_partitions` sees this, or its parts are in `self.parts`
            parts = self.parts
        close_together(parts, deadline)

    def _after_fork_(self, _refusal: object, /) -> None:
        """Replace the lock, which another thread may have held at the fork; each part handles the fork itself."""
        self._lock = OwnedLock()
