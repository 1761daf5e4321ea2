"""A producer on a partitioned topic: one producer that cuts its own batches for each partition.

The partitions are those that the official client would choose. With deduplication each partition has a sequence of its
own, and a message without a key goes where its sequence id says, so that a message sent again goes to the same place.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._runtime.callbacks import SENDING, SendCallback, refuse_in_callback
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.producer import Producer

from .options import named_options, stands_alone
from .outcome import Bulk, SentMany, Waiter, call_back, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .batching import BatchingProducer
    from .router import Routing

__all__ = ["Inners", "PartitionedProducer"]

_NO_OPTIONS: dict[str, Any] = {}


class Inners:
    """Stands where a C++ producer of a partitioned topic would, in front of one for each partition."""

    def __init__(self, topic: str, parts: Sequence[Producer]) -> None:
        self._topic = topic
        self._parts = parts

    def topic(self) -> str:
        """Give the partitioned topic's name."""
        return self._topic

    def producer_name(self) -> str:
        """Give the first partition's producer name, as officially."""
        return str(self._parts[0].inner.producer_name())

    def last_sequence_id(self) -> int:
        """Give the highest of all partitions, as officially."""
        return max(int(part.last_sequence_id()) for part in self._parts)

    def is_connected(self) -> bool:
        """Whether each partition's producer is connected."""
        return all(part.inner.is_connected() for part in self._parts)

    def flush(self) -> None:
        """Flush each."""
        for part in self._parts:
            part.inner.flush()

    def close(self) -> None:
        """Close each."""
        for part in self._parts:
            part.inner.close()

    def send(self, message: Any) -> Any:
        """Refuse as a closed producer does."""
        return self._parts[0].inner.send(message)

    def send_async(self, message: Any, callback: Any) -> None:
        """Refuse as a closed producer does."""
        self._parts[0].inner.send_async(message, callback)


class PartitionedProducer(Producer):
    """A `Producer` on a partitioned topic; made by `Client.create_producer()`."""

    __slots__ = ("_grow", "_lock", "_next_look", "_routing", "parts")

    def open(
        self, parts: list[BatchingProducer], routing: Routing, grow: Callable[[int], list[BatchingProducer]]
    ) -> None:
        """Begin: the factory's second step. `grow` opens producers for partitions beyond so many."""
        self.parts = parts
        self._routing = routing
        self._grow = grow
        self._lock = threading.Lock()
        self._next_look = time.monotonic() + _LOOK_SECONDS

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message, with what its batch holds by now, and wait until it is persisted."""
        refuse_in_callback(self._client, "send")
        if self._barred:
            return super().send(content, *args, **kwargs)
        waiter = Waiter()
        options = named_options(args, kwargs)
        part = self._post(content, waiter, options)
        if part is not None:
            part.cut()
        return waiter.wait(options.get("sequence_id"))

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Publish a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        if callback is not None and not callable(callback):
            raise TypeError(f"The callback is a {type(callback).__name__}, which cannot be called.")
        if self._barred:
            super().send_async(content, callback, *args, **kwargs)
            return
        self._post(content, callback, named_options(args, kwargs) if args or kwargs else _NO_OPTIONS)

    def _post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> BatchingProducer | None:
        routing = self._routing
        if routing.router is not None or stands_alone(options):
            message = self.build(content, **options)
            size = message.length()
        else:
            message = None
            size = len(self.encode(content, options)[0])
        with self._lock:
            self._look_for_more()
            index = routing.choose(message, size, options, len(self.parts))
        if not 0 <= index < len(self.parts):
            if callback is not None:
                call_back(callback, pulsar.Result.UnknownError, MessageId(), self._client)
            return None
        part = self.parts[index]
        part.post(content, callback, options, patient=patient)
        return part

    def encode(self, content: Any, options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Write a message's payload, what it has besides, and its keys, as every partition's producer does."""
        return self.parts[0].encode(content, options)

    def _look_for_more(self) -> None:
        """Open producers for partitions that were added; looked for as often as officially, and by another thread."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            threading.Thread(target=self._open_more, name="pulsar_ext-partitions", daemon=True).start()

    def _open_more(self) -> None:
        with contextlib.suppress(pulsar.PulsarException):
            more = self._grow(len(self.parts))
            self.parts = [*self.parts, *more]

    def send_many(
        self,
        contents: Iterable[Any],
        *,
        partition_keys: Iterable[str | None] | None = None,
        ordering_keys: Iterable[str | None] | None = None,
        sequence_ids: Iterable[int | None] | None = None,
        properties: Iterable[dict[str, str] | None] | None = None,
        event_timestamps: Iterable[int | None] | None = None,
        flush: bool = True,
    ) -> SentMany:
        """Publish many messages, without a callback for each; the arguments are those of `BatchingProducer.send_many`.

        Raises:
            pulsar.PulsarException: with `flush`, the error of the first message that failed.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
            ValueError: the iterables are not equally long; what came before is sent.
        """
        refuse_in_callback(self._client, "send_many")
        if self._barred:
            self.inner.flush()  # raises what a closed producer raises
        bulk = Bulk()
        columns = columns_of(partition_keys, ordering_keys, sequence_ids, properties, event_timestamps)
        taken = 0
        for content, *row in zip(contents, *columns.values(), strict=True):
            self._post(content, bulk.one, dict(zip(columns, row, strict=True)), patient=True)
            taken += 1
        if flush:
            for part in self.parts:
                part.cut()
            for part in self.parts:
                part.await_all()
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    def last_sequence_id_published(self) -> int:
        """Give the lowest of the partitions' last sequence ids: up to it everything is persisted, -1 if nothing is."""
        return min(part.last_sequence_id_published() for part in self.parts)

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message of this producer has, persisted or on its way."""
        return max(part.last_sequence_id_pushed() for part in self.parts)

    def flush(self) -> None:
        """Push the open batches of all partitions and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message that was sent since the last flush has failed; the first one's error.
        """
        refuse_in_callback(self._client, "flush")
        if self._barred:
            self.inner.flush()
            return
        for part in self.parts:
            part.cut()
        failures = []
        for part in self.parts:
            try:
                part.flush()
            except pulsar.PulsarException as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def finish(self, deadline: float) -> None:
        """Close the producer of each partition."""
        if self._closed:
            return
        if self._barred:
            self.inner.close()  # inherited across a fork: raises
        self._closed = self._barred = True
        for part in self.parts:
            part.cut()
        with contextlib.ExitStack() as stack:
            for part in self.parts:
                stack.callback(part.finish, deadline)

    def forget(self) -> None:
        """Count as closed, without waiting for anything: the client was shut down."""
        self._closed = self._barred = True
        for part in self.parts:
            part.forget()


_LOOK_SECONDS = 60.0
SENDING.update({PartitionedProducer.send_async.__code__})
