"""Statistics of consumers and producers, from the broker and from this client (pure).

Mirrors Java's `ConsumerStats` and `ProducerStats`, which the Java client counts itself. Here the broker's counts are
used, so that sends and receives cost nothing. They begin when the C++ consumer or producer is opened, and a seek
reopens it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_ext.admin import TopicStats


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Statistics of a consumer, summed over its topics and partitions.

    Args:
        topics: the full names of the topics and partitions.
        subscription: the subscription's name.
        consumer_name: the consumer's name; other consumers of that name are included.
        is_connected: whether it is connected on all topics and partitions.
        messages_received: number of messages that the broker has sent to it, including those in its queue.
        bytes_received: size of these messages in bytes.
        message_rate: recent messages per second.
        byte_rate: recent bytes per second.
        unacked_messages: number of unacknowledged messages; for batches and chunks, the broker counts entries.
        available_permits: number of messages that it can still receive.
        backlog_entries: number of entries that the subscription has not acknowledged.
        pending_acks: number of acknowledgements that have not been sent.
    """

    topics: tuple[str, ...]
    subscription: str
    consumer_name: str
    is_connected: bool
    messages_received: int
    bytes_received: int
    message_rate: float
    byte_rate: float
    unacked_messages: int
    available_permits: int
    backlog_entries: int
    pending_acks: int


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Statistics of a producer, summed over the partitions of its topic.

    Args:
        topic: the topic's name.
        producer_name: the producer's name.
        is_connected: whether it is connected on all partitions.
        last_sequence_id_published: the last persisted sequence id, or -1.
        message_rate: recent messages per second.
        byte_rate: recent bytes per second.
        average_message_size: recent average size in bytes.
    """

    topic: str
    producer_name: str
    is_connected: bool
    last_sequence_id_published: int
    message_rate: float
    byte_rate: float
    average_message_size: float


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Statistics of a client.

    Args:
        consumers: the statistics of each consumer.
        producers: the statistics of each producer.
        readers: number of readers; one of several topics counts once for each topic and partition.
    """

    consumers: tuple[ConsumerStats, ...]
    producers: tuple[ProducerStats, ...]
    readers: int


def consumer_stats(
    topics: Iterable[tuple[str, TopicStats]],
    subscription: str,
    consumer_name: str,
    *,
    is_connected: bool,
    pending_acks: int,
) -> ConsumerStats:
    topics = list(topics)
    found = [one.subscriptions[subscription] for _, one in topics if subscription in one.subscriptions]
    rows = [row for one in found for row in one.raw.get("consumers") or () if row.get("consumerName") == consumer_name]
    return ConsumerStats(
        topics=tuple(name for name, _ in topics),
        subscription=subscription,
        consumer_name=consumer_name,
        is_connected=is_connected,
        messages_received=int(_sum(rows, "msgOutCounter")),
        bytes_received=int(_sum(rows, "bytesOutCounter")),
        message_rate=_sum(rows, "msgRateOut"),
        byte_rate=_sum(rows, "msgThroughputOut"),
        unacked_messages=int(_sum(rows, "unackedMessages")),
        available_permits=int(_sum(rows, "availablePermits")),
        backlog_entries=sum(one.backlog_entries for one in found),
        pending_acks=pending_acks,
    )


def producer_stats(
    topics: Iterable[TopicStats], producer_name: str, *, topic: str, is_connected: bool, last_sequence_id_published: int
) -> ProducerStats:
    """Sum the broker's statistics of a producer of a topic; `topics` are those of its partitions."""
    every = [row for one in topics for row in one.raw.get("publishers") or ()]
    rows = [row for row in every if row.get("producerName") == producer_name]
    messages, size = _sum(rows, "msgRateIn"), _sum(rows, "msgThroughputIn")
    return ProducerStats(
        topic=topic,
        producer_name=producer_name,
        is_connected=is_connected,
        last_sequence_id_published=last_sequence_id_published,
        message_rate=messages,
        byte_rate=size,
        average_message_size=size / messages if messages else 0.0,
    )


def _sum(rows: list[dict[str, float]], name: str) -> float:
    return sum(row.get(name) or 0 for row in rows)
