"""Producers: the official methods over a sender.

Which sender it is, the client decides as it creates the producer: messages go one by one (`produce.direct`), in batches
of this library (`produce.batching`), to partitions (`produce.partitioned`), or effectively once (`dedup`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, Self

import pulsar

from ._native.handles import ProducerDoor
from ._native.signatures import shaped_like
from ._runtime.statistics import producer_stats
from .produce.options import columns_of
from .schema.typed import T

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._runtime.callbacks import SendCallback
    from ._runtime.statistics import ProducerStats
    from .ids.message_id import MessageId
    from .produce.outcome import SentMany
    from .produce.sender import Sender

__all__ = ["Producer"]


class Producer(ProducerDoor, Generic[T]):
    """A `pulsar.Producer` whose sends give whole ids; made by `Client.create_producer()`."""

    sender: Sender

    @classmethod
    def _over_(cls, sender: Sender, schema: Any, client: Any) -> Self:
        """Make the producer of a sender, with the official attributes of a producer."""
        self = cls.__new__(cls)
        self.open(sender, schema, client)
        self.__dict__["send_async"] = sender.joining()  # itself: a call in between costs each message
        return self

    @shaped_like(pulsar.Producer.send)
    def send(self, content: T, *args: Any, **kwargs: Any) -> MessageId:
        """Publish a message and wait until it is persisted; the arguments are the official ones.

        A batched producer publishes it with what its batch holds by now.

        Returns:
            The message's id, a `ChunkMessageId` if it was sent in chunks.

        Raises:
            DuplicateMessage: with deduplication, the topic holds it already.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        return self.sender.send(content, *args, **kwargs)

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: T, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Publish a message and have `callback(result, message_id)` called once it is persisted or has failed.

        The callback runs on a thread of its client: the I/O thread, or one of this library's for failures. What it
        raises is logged and goes no further. A send, flush or close with the same client would wait for that thread
        and is refused there; one with another client may wait, and holds up this client's callbacks meanwhile. Two
        clients whose callbacks wait for each other at once wait for ever.

        Args:
            content: the message's value.
            callback: called with a `pulsar.Result` and a `MessageId`; None ignores the outcome.
            *args: the official arguments.
            **kwargs: the official arguments.
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

        Waits for room where the queue is full, also without `block_if_queue_full`. What comes before an error of an
        iterable, or before a message that is not accepted, is sent, and not waited for.

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
            ValueError: the iterables are not equally long.
        """
        sender = self.sender
        sender.context.callbacks.refuse("send_many")
        columns = columns_of(partition_keys, ordering_keys, sequence_ids, properties, event_timestamps)
        return sender.send_many(contents, columns, flush=flush)

    def last_sequence_id_published(self) -> int:
        """Give the last sequence id that is persisted, as the official `last_sequence_id()`.

        With deduplication everything up to it is persisted: resume behind it. On a partitioned topic it is the lowest
        of the partitions' last ids. -1 if there is none.
        """
        return self.sender.last_sequence_id_published()

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message has, persisted or on its way.

        Raises:
            InvalidUse: without `deduplication=True` the C++ client gives the ids, and says nothing about them.
        """
        return self.sender.last_sequence_id_pushed()

    def stats(self) -> ProducerStats:
        """Give statistics of this producer, which the admin API is asked for; mirrors Java's `Producer.getStats`.

        Raises:
            AdminError: the admin API refused, or did not answer.
        """
        context, topic = self.sender.context, self.topic()
        context.callbacks.refuse("stats")
        admin = context.admin_api()
        return producer_stats(
            [admin.stats(one) for one in context.opener.get_topic_partitions(topic)],
            self.producer_name(),
            topic=topic,
            is_connected=self.is_connected(),
            last_sequence_id_published=self.last_sequence_id_published(),
        )

    def flush(self) -> None:
        """Send what is batched and wait until everything sent so far is persisted.

        Raises:
            pulsar.PulsarException: a message of a batched producer that was sent since the last flush has failed; the
                first one's error.
            InvalidUse: in a callback of this client, where waiting would wait for itself.
        """
        sender = self.sender
        sender.context.callbacks.refuse("flush")
        sender.flush()

    def close(self) -> None:
        """Wait until everything sent so far is persisted, then close; closing again does nothing.

        The wait ends with the connection, and at the latest after the client's `operation_timeout_seconds`: what is
        pending then fails with `AlreadyClosed`.
        """
        sender = self.sender
        sender.context.callbacks.refuse("close")
        sender.finish(time.monotonic() + sender.context.operation_timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
