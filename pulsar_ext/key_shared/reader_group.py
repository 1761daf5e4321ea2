"""Readers that share a topic by key ranges without reading it once each; made by `Client.create_reader_group()`.

Where the topic's batches allow it, all readers stand on one sticky Key_Shared subscription, and the broker sends each
message to one of them. Where a batch mixes the keys of several readers, the broker could only send it to one of them,
so each reader reads everything and keeps its part.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import pulsar

from pulsar_ext.errors import AdminError, InvalidKeyHashRange, InvalidUse
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

from .batch_probe import probe_batches
from .consumer import open_judging_consumer
from .coverage import demand_cover
from .group_reader import GroupReader
from .hash_ranges import KeyHashRanges, as_ranges
from .policy import KeySharedPolicy
from .reader import RangeReader, refuse_missing_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_ext._runtime.context import ClientContext

    from .hash_ranges import RangesLike
    from .key_encoding import KeyFormsMode

__all__ = ["Filtering", "RangeReaderGroup", "open_group"]

Filtering = Literal["auto", "broker", "client"]

_COVER_SECONDS = 10.0

_log = logging.getLogger("pulsar_ext.keys")


class RangeReaderGroup:
    """Readers whose ranges tile the slots; read them at the same time, each in a thread of its own for instance.

    Iterating gives the readers. With `filtering == "broker"` a reader that is not read stalls the others in the end,
    because the broker keeps its messages.

    Args:
        readers: the readers, in order of the ranges.
        filtering: who filters: "broker" or "client".
        reason: why, in a sentence.
    """

    def __init__(
        self,
        readers: Sequence[GroupReader | RangeReader],
        filtering: Filtering,
        reason: str,
        resources: contextlib.ExitStack,
    ) -> None:
        self.readers = tuple(readers)
        self.filtering = filtering
        self.reason = reason
        self._resources = resources

    def close(self) -> None:
        """Close the readers and delete their subscription; closing again does nothing."""
        self._resources.close()

    def __iter__(self) -> Iterator[GroupReader | RangeReader]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)

    def __repr__(self) -> str:
        return f"<{len(self)} readers, filtered by the {self.filtering}: {self.reason}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_group(
    context: ClientContext,
    topic: str,
    start_message_id: Any,
    ranges: int | Sequence[RangesLike | KeyHashRanges],
    *,
    inclusive: bool = False,
    filtering: Filtering = "auto",
    key_forms: KeyFormsMode = "auto",
    receiver_queue_size: int = 1000,
) -> RangeReaderGroup:
    """Open readers that tile the slots; see `Client.create_reader_group`."""
    parts = KeyHashRanges.full().split(ranges) if isinstance(ranges, int) else [as_ranges(one) for one in ranges]
    _refuse_bad_tiling(parts)
    if filtering not in ("auto", "broker", "client"):
        raise InvalidUse(f"filtering is 'auto', 'broker' or 'client', not {filtering!r}.")
    admin = context.admin_api()
    refuse_missing_topic(admin, topic)
    reason = "asked for"
    subscription = f"pulsar-ext-range-group-{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:
        start = None
        if filtering != "client":
            start = _make_subscription(context, topic, subscription, start_message_id)
            stack.callback(_delete_subscription, context, topic, subscription)
        if filtering == "auto":
            allowed, reason = probe_batches(admin, topic, subscription, parts)
            filtering = "broker" if allowed else "client"
        _log.info("%s is read by %d readers, filtered by the %s: %s", topic, len(parts), filtering, reason)
        shared: dict[str, Any] = {"receiver_queue_size": receiver_queue_size, "key_forms": key_forms}
        open_part: Callable[[KeyHashRanges], GroupReader | RangeReader]
        if filtering == "client":
            stack.close()  # the subscription is of no use, and its backlog would only grow
            open_part = _reader_opener(context, topic, start_message_id, inclusive=inclusive, **shared)
        else:
            open_part = _consumer_opener(context, topic, subscription, start, inclusive=inclusive, **shared)
        readers: list[GroupReader | RangeReader] = []
        for part in parts:
            readers.append(open_part(part))
            stack.callback(readers[-1].close)
        if filtering == "broker":
            demand_cover(admin, [topic], subscription, _COVER_SECONDS)
        return RangeReaderGroup(readers, filtering, reason, stack.pop_all())


def _reader_opener(
    context: ClientContext, topic: str, start_message_id: Any, *, inclusive: bool, **options: Any
) -> Callable[[KeyHashRanges], RangeReader]:
    """Give what opens the reader of a part that reads everything and keeps its part."""

    def open_part(part: KeyHashRanges) -> RangeReader:
        reader: RangeReader = context.opener.create_reader(
            topic, start_message_id, start_message_id_inclusive=inclusive, key_hash_ranges=part, **options
        )
        return reader

    return open_part


def _consumer_opener(
    context: ClientContext,
    topic: str,
    subscription: str,
    start: MessageId | None,
    *,
    inclusive: bool,
    receiver_queue_size: int,
    key_forms: KeyFormsMode,
) -> Callable[[KeyHashRanges], GroupReader]:
    """Give what opens the reader of a part that the broker filters for."""

    def open_part(part: KeyHashRanges) -> GroupReader:
        options = {
            "topic": topic,
            "subscription_name": subscription,
            "consumer_type": pulsar.ConsumerType.KeyShared,
            "key_shared_policy": KeySharedPolicy.sticky_hash_range().ranges(*part),
            "receiver_queue_size": receiver_queue_size,
            "start_message_id_inclusive": True,  # a seek moves the cursor to an entry, which may be another reader's
        }
        assemble = partial(GroupReader._assemble_from_, start, inclusive)
        reader: Any = open_judging_consumer(context, options, part, "raise", key_forms, assemble=assemble)
        return reader  # type: ignore[no-any-return]  # of the class that was given

    return open_part


def _refuse_bad_tiling(parts: Sequence[KeyHashRanges]) -> None:
    covered = KeyHashRanges.empty()
    for part in parts:
        if covered.overlaps(part):
            raise InvalidKeyHashRange(f"Two readers of a group share the slots {covered & part}.")
        covered |= part
    if not (covered | KeyHashRanges([(0, 0)])).is_full:
        raise InvalidKeyHashRange(f"No reader of the group has the slots {covered.complement()}.")


def _make_subscription(
    context: ClientContext, topic: str, subscription: str, start_message_id: Any
) -> MessageId | None:
    """Make the subscription where the readers start, and give the id to start from where the entry is not enough."""
    admin = context.admin_api()
    if start_message_id == MessageId.earliest:
        admin.create_subscription(topic, subscription, "earliest")
        return None
    if start_message_id == MessageId.latest:
        admin.create_subscription(topic, subscription, "latest")
        return None
    if admin.partitions(topic):
        raise InvalidUse(f"{topic} has partitions: a group starts at MessageId.earliest or MessageId.latest there.")
    start = context.resolver.start_of(topic, start_message_id)
    first = start.first_chunk_message_id() if isinstance(start, ChunkMessageId) else start
    admin.create_subscription(topic, subscription, Position(first.ledger_id(), first.entry_id()))
    return start


def _delete_subscription(context: ClientContext, topic: str, subscription: str) -> None:
    try:
        context.admin_api().delete_subscription(TopicName.parse(topic), subscription, force=True)
    except AdminError as error:
        _log.warning("The subscription %s on %s is left behind: %s", subscription, topic, error)
