"""Producers: the official methods over a sender.

The client chooses the sender when it creates the producer: one message at a time (`produce.direct`), in batches built
here (`produce.batching`), to partitions (`produce.partitioned`), or with deduplication (`dedup`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Generic, Self

import pulsar

from ._native.handles import SenderProducerHandle
from ._native.signatures import with_signature_of
from ._runtime.callbacks import SendCallback
from ._runtime.statistics import ProducerStats, producer_stats
from .ids.message_id import MessageId
from .produce.batching import BatchingSender
from .produce.options import columns_of
from .produce.outcome import SentMany
from .produce.sender import Sender
from .schema.typed import T

__all__ = ["Producer"]


class Producer(SenderProducerHandle, Generic[T]):
    """A `pulsar.Producer` whose sends return complete message ids; made by `Client.create_producer()`."""

    sender: Sender

    @classmethod
    def _over_(cls, sender: Sender, schema: object, client: object) -> Self:
        """Return the producer of a sender, with the attributes of an official producer."""
        self = cls.__new__(cls)
        self.open(sender, schema, client)
        # Bound directly, to save a call for each message.
        self.__dict__["send_async"] = sender.joining() if isinstance(sender, BatchingSender) else sender.send_async
        return self

    @with_signature_of(pulsar.Producer.send)
    def send(self, content: T, *args: object, **kwargs: object) -> MessageId:
        """Publish a message and wait until it is persisted; the arguments are the official ones.

        A batched producer publishes it together with its open batch.

        Returns:
            The message id, a `ChunkMessageId` if the message was sent in chunks.

        Raises:
            DuplicateMessage: with deduplication, the topic already has the message.
            InvalidUse: called in a callback of this client, where it would deadlock.
        """
        return self.sender.send(content, *args, **kwargs)

    @with_signature_of(pulsar.Producer.send_async)
    def send_async(self, content: T, callback: SendCallback | None, *args: object, **kwargs: object) -> None:
        """Publish a message; `callback(result, message_id)` is called when it is persisted or has failed.

        The callback gets a `pulsar.Result` and a `MessageId`; None ignores the outcome. It runs on a thread of its
        client: the I/O thread, or one of this library's threads for failures. An exception from it is logged. A send,
        flush or close with the same client would wait for that thread, and raises `InvalidUse` in the callback. One
        with another client is allowed, and delays this client's callbacks. Two clients whose callbacks wait for each
        other deadlock.
        """
        self.sender.send_async(content, callback, *args, **kwargs)

    def send_many(
        self,
        contents: Iterable[T],
        *,
        partition_keys: Iterable[str | None] | None = None,
        ordering_keys: Iterable[str | None] | None = None,
        sequence_ids: Iterable[int | None] | None = None,
        properties: Iterable[dict[str, str] | None] | None = None,
        event_timestamps: Iterable[int | None] | None = None,
        flush: bool = True,
    ) -> SentMany:
        """Publish many messages; with `batching_enabled` the fastest way to send.

        Waits for room if the queue is full, even without `block_if_queue_full`. If an iterable raises or a message is
        rejected, the messages before it are sent, and not waited for.

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
            InvalidUse: called in a callback of this client, where it would deadlock.
            ValueError: the iterables differ in length.
        """
        sender = self.sender
        sender.context.callbacks.raise_inside("send_many")
        columns = columns_of(partition_keys, ordering_keys, sequence_ids, properties, event_timestamps)
        return sender.send_many(contents, columns, flush=flush)

    def last_sequence_id_published(self) -> int:
        """Return the last persisted sequence id, like the official `last_sequence_id()`.

        With deduplication everything up to it is persisted; resume after it. On a partitioned topic it is the lowest of
        the partitions' last ids. -1 if no message is persisted.
        """
        return self.sender.last_sequence_id_published()

    def last_sequence_id_pushed(self) -> int:
        """Return the highest sequence id pushed, persisted or in flight.

        Raises:
            InvalidUse: the producer was created without `deduplication=True`.
        """
        return self.sender.last_sequence_id_pushed()

    def stats(self) -> ProducerStats:
        """Return statistics of this producer from the admin API; mirrors Java's `Producer.getStats`.

        Raises:
            AdminError: the admin API failed or did not answer.
        """
        context, topic = self.sender.context, self.topic()
        context.callbacks.raise_inside("stats")
        admin = context.admin_api()
        return producer_stats(
            [admin.stats(one) for one in context.opener.get_topic_partitions(topic)],
            self.producer_name(),
            topic=topic,
            is_connected=self.is_connected(),
            last_sequence_id_published=self.last_sequence_id_published(),
        )

    def flush(self) -> None:
        """Send the open batches and wait until everything sent before is persisted.

        Raises:
            pulsar.PulsarException: the first error of a batched producer since the last flush.
            InvalidUse: called in a callback of this client, where it would deadlock.
        """
        sender = self.sender
        sender.context.callbacks.raise_inside("flush")
        sender.flush()

    def close(self) -> None:
        """Wait until everything sent before is persisted, then close; closing again does nothing.

        The wait ends if the connection is lost, and after the client's `operation_timeout_seconds`: messages still
        pending then fail with `AlreadyClosed`.
        """
        sender = self.sender
        sender.context.callbacks.raise_inside("close")
        sender.finish(time.monotonic() + sender.context.operation_timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
