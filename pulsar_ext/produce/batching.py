"""The batched producer's sends: one message, one and its id, and many at once. The batches are `batch_engine.py`'s."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._runtime.callbacks import SENDING, SendCallback, refuse_in_callback
from pulsar_ext._wire.batch_payload import NULL_VALUE, key_fields, option_fields

from .batch import Batch
from .dispatch import BatchEngine
from .options import key_of, named_options, stands_alone
from .outcome import Bulk, SentMany, Waiter, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext.ids.message_id import MessageId

__all__ = ["BatchingProducer"]

_NO_OPTIONS: dict[str, Any] = {}


class BatchingProducer(BatchEngine):
    """A `Producer` with batches of its own, on a topic without partitions or on one partition."""

    __slots__ = ()

    # Sending

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message, with what its batch holds by now, and wait until it is persisted.

        Raises:
            DuplicateMessage: with deduplication, the topic holds it already.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        refuse_in_callback(self._client, "send")
        if self._barred:
            return super().send(content, *args, **kwargs)
        waiter = Waiter()
        options = named_options(args, kwargs)
        self.post(content, waiter, options)
        self.cut()
        return waiter.wait(options.get("sequence_id"))

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Publish a message and have `callback(result, message_id)` called once it is persisted or has failed.

        The callback runs on the client's I/O thread, or on one of this library's. What it raises is logged and goes no
        further; a send, flush or close that would wait for that same thread is refused there.
        """
        if not (args or kwargs) and type(content) is bytes and self._plain and callable(callback):
            with self._lock:  # what nearly every message is: it joins a batch that it does not fill
                group, numbers = self._group, self._numbers
                left = group.left - len(content)
                if (
                    group.only is not None
                    and group.free > 1
                    and left > 0
                    and numbers.steady
                    and self._accepted - self._released < self._most
                ):
                    number = numbers.last + 1
                    group.only.append((content, callback, number, b"", b""))
                    numbers.last = number
                    group.free -= 1
                    group.left = left
                    self._accepted += 1
                    return
        if callback is not None and not callable(callback):
            raise TypeError(f"The callback is a {type(callback).__name__}, which cannot be called.")
        if self._barred:
            super().send_async(content, callback, *args, **kwargs)
            return
        self.post(content, callback, named_options(args, kwargs) if args or kwargs else _NO_OPTIONS)

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
        """Publish many messages, without a callback for each; the fastest way to send.

        Waits for room where the queue is full, also without `block_if_queue_full`.

        Args:
            contents: the messages' values.
            partition_keys: one for each message.
            ordering_keys: one for each message.
            sequence_ids: one for each message.
            properties: one for each message.
            event_timestamps: one for each message, in milliseconds since the epoch.
            flush: whether to wait until all of them are persisted.

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
        if set(columns) <= self._swift:
            taken = self.bulk_post(contents, columns.get("sequence_id"), bulk)
        else:
            taken = 0
            for content, *row in zip(contents, *columns.values(), strict=True):
                self.post(content, bulk.one, dict(zip(columns, row, strict=True)), patient=True)
                taken += 1
        if flush:
            self.cut()
            self.await_done(lambda: bulk.done >= taken)
            bulk.raise_failure()
        return SentMany(taken, bulk.duplicates, bulk.last)

    _swift = frozenset[str]()
    """Which columns of `send_many` go with whole batches at once."""

    def post(
        self, content: Any, callback: SendCallback | None, options: dict[str, Any], *, patient: bool = False
    ) -> None:
        """Put a message into its batch.

        Args:
            content: its value.
            callback: is called with its outcome.
            options: the official arguments, by name.
            patient: whether to wait for room in any case.
        """
        if options and stands_alone(options):
            with self._lock:
                if self._has_room() or self._make_room(callback, patient=patient):
                    number = self._number(options)
                    message = self.build(content, **{**options, "sequence_id": number})
                    self._push_alone(message, callback, (number,))
                    self._numbers.last = max(self._numbers.last, number)
            return
        data, fields, keys = (
            self.encode(content, options)
            if options or content is None
            else (
                self._schema.encode(content),
                b"",
                b"",
            )
        )
        if type(data) is not bytes:
            self.build(content)  # raises what the official client raises
        with self._lock:
            if not self._has_room() and not self._make_room(callback, patient=patient):
                return
            sequence_id = self._number(options)
            self._join(key_of(options), (data, callback, sequence_id, fields, keys))
            self._numbers.last = max(self._numbers.last, sequence_id)

    def _number(self, options: dict[str, Any]) -> int:
        """Give a message's sequence id: an automatic one goes on behind explicit ones."""
        given: int | None = options.get("sequence_id")
        return self._numbers.last + 1 if given is None else given

    def encode(self, content: Any, options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """Write a message's payload, what it has besides, and its keys.

        Raises:
            TypeError: as officially, for an argument that the official client does not take.
        """
        if not self._settings.takes(options):
            self.build(content, **options)
        if content is None:
            return b"", NULL_VALUE + option_fields(options), key_fields(options)
        return self._schema.encode(content), option_fields(options), key_fields(options)

    # Bulk

    def bulk_post(self, contents: Iterable[Any], sequence_ids: Iterable[Any] | None, bulk: Bulk) -> int:
        """Send without callbacks, in whole batches where that is possible; give how many."""
        limit, taken = self._settings.limit, 0
        step = self._settings.bounds.messages if not limit else min(self._settings.bounds.messages, max(1, limit // 2))
        source = iter(contents)
        ids = None if sequence_ids is None else iter(sequence_ids)
        encode = self._schema.encode
        while part := list(islice(source, step)):
            numbers = None if ids is None else list(islice(ids, len(part)))
            if numbers is not None and len(numbers) != len(part):
                raise ValueError(f"There are fewer sequence_ids than contents: {taken + len(numbers)}.")
            data: list[Any] = [encode(content) if content is not None else None for content in part]
            whole = not self._settings.by_key and all(type(one) is bytes for one in data)
            whole = whole and sum(map(len, data)) <= self._settings.bounds.size
            if not whole or not self._bulk_push(data, numbers, bulk):
                for index, content in enumerate(part):
                    options = {} if numbers is None else {"sequence_id": numbers[index]}
                    self.post(content, bulk.one, options, patient=True)
            taken += len(part)
        if ids is not None and next(ids, None) is not None:
            raise ValueError(f"There are more sequence_ids than contents: {taken}.")
        return taken

    def _bulk_push(self, data: list[bytes], numbers: list[Any] | None, bulk: Bulk) -> bool:
        """Push a batch of its own at once; False if that is not possible, and nothing was done."""
        if numbers is not None:
            return False
        with self._lock:
            self._wait_for_bulk(len(data))
            first = self._numbers.last + 1
            self._numbers.last += len(data)
            self._push_whole(Batch.of(data, range(first, first + len(data)), bulk))
        return True

    def _wait_for_bulk(self, count: int) -> None:
        """Wait for room for so many; the lock is held once."""
        while not self._has_room(count):
            if self._barred:
                self.inner.flush()  # raises what a closed producer raises
            self._cut()
            self._lock.release()
            try:
                self.await_done(lambda: self._barred or self._has_room(count))
            finally:
                self._lock.acquire()


SENDING.add(BatchingProducer.send_async.__code__)
