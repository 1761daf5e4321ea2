"""What the broker counts of a consumer or a producer, and what is known of it here (pure).

Mirrors Java's `ConsumerStats` and `ProducerStats`, whose numbers the client counts: here the broker does, so that sends
and receives cost nothing more. Numbers are since the C++ consumer or producer was opened, which a seek does anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext.admin import TopicStats


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Statistics of a consumer, summed over its topics and partitions.

    Args:
        topics: their full names.
        subscription: the subscription's name.
        consumer_name: the consumer's; those of other consumers of the same name are counted too.
        is_connected: whether it is connected to all of them.
        messages_received: how many messages the broker has sent to it, those that wait in its queue included.
        bytes_received: how many bytes these are.
        message_rate: how many of them a second, of late.
        byte_rate: how many bytes a second, of late.
        unacked_messages: how many it has and has not acknowledged; of batches and chunks the broker counts entries.
        available_permits: for how many more messages it has room.
        backlog_entries: how many entries the subscription has not acknowledged.
        pending_acks: how many acknowledgements have not been sent.
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
        producer_name: the producer's.
        is_connected: whether it is connected to all partitions.
        last_sequence_id_published: the last sequence id that is persisted, -1 if there is none.
        message_rate: how many messages a second it sends, of late.
        byte_rate: how many bytes a second, of late.
        average_message_size: in bytes, of late.
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
    """Statistics of what a client has open.

    Args:
        consumers: of each consumer.
        producers: of each producer.
        readers: how many readers there are; one of several topics counts once for each topic and partition.
    """

    consumers: tuple[ConsumerStats, ...]
    producers: tuple[ProducerStats, ...]
    readers: int


def consumer_stats(
    topics: Iterable[tuple[str, TopicStats]], subscription: str, consumer_name: str, **known: Any
) -> ConsumerStats:
    """Sum up what the broker shows of a consumer.

    Args:
        topics: the full names of its topics and partitions, and what the broker shows of each.
        subscription: the subscription's name.
        consumer_name: the consumer's.
        **known: what is known here.
    """
    topics = list(topics)
    found = [one.subscriptions[subscription] for _, one in topics if subscription in one.subscriptions]
    rows = [row for one in found for row in one.raw.get("consumers") or () if row.get("consumerName") == consumer_name]
    return ConsumerStats(
        topics=tuple(name for name, _ in topics),
        subscription=subscription,
        consumer_name=consumer_name,
        messages_received=_sum(rows, "msgOutCounter"),
        bytes_received=_sum(rows, "bytesOutCounter"),
        message_rate=_sum(rows, "msgRateOut"),
        byte_rate=_sum(rows, "msgThroughputOut"),
        unacked_messages=_sum(rows, "unackedMessages"),
        available_permits=_sum(rows, "availablePermits"),
        backlog_entries=sum(one.backlog_entries for one in found),
        **known,
    )


def producer_stats(topics: Iterable[TopicStats], producer_name: str, **known: Any) -> ProducerStats:
    """Sum up what the broker shows of a producer; the arguments are those of `consumer_stats()`."""
    rows = [
        row for one in topics for row in one.raw.get("publishers") or () if row.get("producerName") == producer_name
    ]
    messages, size = _sum(rows, "msgRateIn"), _sum(rows, "msgThroughputIn")
    return ProducerStats(
        producer_name=producer_name,
        message_rate=messages,
        byte_rate=size,
        average_message_size=size / messages if messages else 0.0,
        **known,
    )


def _sum(rows: list[Any], name: str) -> Any:
    return sum(row.get(name) or 0 for row in rows)
