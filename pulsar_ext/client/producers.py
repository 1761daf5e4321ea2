"""Creating producers: which kind fits the arguments, and what the C++ producer behind it is told instead.

A batched producer cuts its own batches, on a partitioned topic one for each partition. It is left to the official path
where it would start partitions lazily. Without batching, only deduplication makes it ours.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.handles import standing_for
from pulsar_ext._native.messages import truthy
from pulsar_ext._runtime.callbacks import guard_router
from pulsar_ext.dedup.chunked_sender import ChunkedDedupProducer, Redo
from pulsar_ext.dedup.opening import Opening, check_deduplication_arguments, open_surely
from pulsar_ext.dedup.sender import DedupProducer
from pulsar_ext.errors import InvalidUse
from pulsar_ext.message import Received, adopt_message
from pulsar_ext.produce.batching import BatchingProducer
from pulsar_ext.produce.config import Settings
from pulsar_ext.produce.mixed_keys import producer_class
from pulsar_ext.produce.partitioned import Inners, PartitionedProducer
from pulsar_ext.produce.pending_limit import Window
from pulsar_ext.produce.router import Routing
from pulsar_ext.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin

    from .client import Client

__all__ = ["make_producer"]


def make_producer(
    client: Client, named: dict[str, Any], admin: Callable[[], PulsarAdmin], *, deduplication: bool
) -> Producer:
    """Create a producer.

    Args:
        client: of this library.
        named: the official arguments by name.
        admin: gives the admin API when it is needed: with deduplication only.
        deduplication: whether it shall be effectively once.

    Raises:
        InvalidUse, DeduplicationDisabled, ProducerForgotten, AdminError: with deduplication; nothing was sent.
    """
    named = dict(named)
    router = named["message_router"]
    guarded = None
    if router is not None:
        guarded = guard_router(lambda message, count: router(adopt_message(message, Received), count))
    if deduplication:
        check_deduplication_arguments(named)
        _check_types(named)
    elif not _cuts_own_batches(named):
        return _official(client, named, guarded)
    partitions = _partitions(client, named["topic"])
    if partitions is None:
        return _single(client, named, named["topic"], admin, deduplication=deduplication)
    if named["lazy_start_partitioned_producers"] and not deduplication:
        return _official(client, named, guarded)
    return _partitioned(client, named, partitions, guarded, admin, deduplication=deduplication)


def _cuts_own_batches(named: dict[str, Any]) -> bool:
    """Whether the arguments are those of a batched producer, and of types that the official client takes."""
    return named["batching_enabled"] is True and named["chunking_enabled"] is False and _fits(named)


_TYPES = {
    "topic": str,
    "batching_enabled": bool,
    "batching_max_messages": int,
    "batching_max_allowed_size_in_bytes": int,
    "batching_max_publish_delay_ms": int,
    "batching_type": pulsar.BatchingType,
    "block_if_queue_full": bool,
    "chunking_enabled": bool,
    "lazy_start_partitioned_producers": bool,
    "max_pending_messages": int,
    "max_pending_messages_across_partitions": int,
    "send_timeout_millis": int,
}


def _fits(named: dict[str, Any]) -> bool:
    return not _odd(named)


def _odd(named: dict[str, Any]) -> str:
    """Name the arguments that the official client does not take."""
    if odd := [name for name, kind in _TYPES.items() if not isinstance(named[name], kind)]:
        return ", ".join(odd)
    least = {"max_pending_messages": 0, "max_pending_messages_across_partitions": 0, "batching_max_publish_delay_ms": 0}
    if named["batching_enabled"]:
        least |= {"batching_max_messages": 2, "batching_max_allowed_size_in_bytes": 0}
    return ", ".join(name for name, lowest in least.items() if named[name] < lowest)


def _check_types(named: dict[str, Any]) -> None:
    """Refuse what the official client would refuse, before anything is opened."""
    if not _fits(named):
        raise InvalidUse(
            f"An argument of create_producer is of another type, or out of range: {_odd(named)}. Nothing was opened."
        )


def _official(client: Client, named: dict[str, Any], router: Any) -> Producer:
    """Create a producer on the official path."""
    window = None
    limit, blocks = named["max_pending_messages"], named["block_if_queue_full"]
    if named["chunking_enabled"] is True and isinstance(limit, int) and isinstance(blocks, bool):
        window = Window(limit, blocks=blocks)
        named = {**named, "max_pending_messages": 0, "block_if_queue_full": False}
    named = {**named, "message_router": router, "initial_sequence_id": truthy(named["initial_sequence_id"])}
    kind = producer_class(Producer, named)
    return kind._of(pulsar.Client.create_producer(client, **named), client, window)  # noqa: SLF001  # our own factory


def _partitions(client: Client, topic: str) -> list[str] | None:
    """Give the partitions of a topic, None if it has none."""
    with contextlib.suppress(pulsar.PulsarException):  # creating the producer then tells why
        found: list[str] = client.get_topic_partitions(topic)
        if len(found) > 1 or (found and found[0].endswith("-partition-0") and not topic.endswith("-partition-0")):
            return found
    return None


def _single(
    client: Client,
    named: dict[str, Any],
    topic: str,
    admin: Callable[[], PulsarAdmin],
    *,
    deduplication: bool,
    partition: int = -1,
    partitions: int = 1,
) -> BatchingProducer:
    """Create a producer that cuts its own batches, on a topic without partitions or on one partition."""
    limit = named["max_pending_messages"]
    if partition >= 0:
        limit = min(limit, named["max_pending_messages_across_partitions"] // partitions)
    settings = Settings(named, limit=limit)
    settings.partition = partition
    inner = {
        **named,
        "topic": topic,
        "batching_enabled": False,
        "message_router": None,
        "max_pending_messages": 0,
        "block_if_queue_full": False,
        "lazy_start_partitioned_producers": False,
        "initial_sequence_id": truthy(named["initial_sequence_id"]),
    }
    base: type[BatchingProducer] = BatchingProducer
    if deduplication:
        base = ChunkedDedupProducer if named["chunking_enabled"] else DedupProducer
    kind = producer_class(base, named) if partition < 0 else base
    if not deduplication:
        producer = kind._of(pulsar.Client.create_producer(client, **inner), client, None)  # noqa: SLF001
        producer.open(settings)
        return producer
    # The broker's number, not an application's: it is read from a producer that was given none.
    inner |= {"send_timeout_millis": 0, "initial_sequence_id": None}
    opening = Opening(
        admin(),
        topic,
        named["producer_name"],
        named["initial_sequence_id"],
        settings.bounds.messages if settings.by_key else 0,
        chunked=named["chunking_enabled"],
    )

    def open_as(name: str) -> pulsar.Producer:
        return pulsar.Client.create_producer(client, **{**inner, "producer_name": name})

    official, sequence = open_surely(lambda: open_as(named["producer_name"]), lambda one: one.close(), opening)
    dedup = kind._of(official, client, None)  # noqa: SLF001
    dedup.open(settings)
    assert isinstance(dedup, DedupProducer)  # noqa: S101  # as asked for
    dedup.begin(sequence, named["send_timeout_millis"] / 1000)
    if isinstance(dedup, ChunkedDedupProducer):
        dedup.prepare(
            Redo(
                open_as,
                admin(),
                opening.settle,
                topic,
                named["producer_name"],
                opening.chunk_bytes(),
                opening.half,
            )
        )
    return dedup


def _partitioned(
    client: Client,
    named: dict[str, Any],
    topics: list[str],
    router: Any,
    admin: Callable[[], PulsarAdmin],
    *,
    deduplication: bool,
) -> PartitionedProducer:
    """Create a producer that cuts its own batches, on a partitioned topic."""

    def open_parts(wanted: list[str], begin: int) -> list[BatchingProducer]:
        parts: list[BatchingProducer] = []
        try:
            for index, topic in enumerate(wanted[begin:], begin):
                parts.append(
                    _single(
                        client,
                        named,
                        topic,
                        admin,
                        deduplication=deduplication,
                        partition=index,
                        partitions=len(wanted),
                    )
                )
        except BaseException:
            for part in parts:
                with contextlib.suppress(pulsar.PulsarException):
                    part.inner.close()
            raise
        return parts

    parts = open_parts(topics, 0)
    standing = standing_for(Inners(named["topic"], parts), named["schema"])
    kind = producer_class(PartitionedProducer, named)
    producer = kind._of(standing, client, None)  # noqa: SLF001
    routing = Routing(named, Settings(named), len(topics), router, deduplicates=deduplication)
    producer.open(parts, routing, lambda begin: open_parts(_partitions(client, named["topic"]) or [], begin))
    return producer
