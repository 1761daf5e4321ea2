"""Acknowledge messages by their ids, whichever consumer has them, or none: delayed messages are cancelled in this way.

The admin API has no such operation. A consumer that requests no message joins the subscription, acknowledges, and
leaves. The broker accepts acknowledgements of messages that it delivered to another consumer, and updates that
consumer's unacknowledged messages (`Consumer.individualAckNormal`).

The joining consumer has a receiver queue of 0, so that the broker dispatches nothing to it, and the lowest priority, so
that it never becomes the active consumer of a Failover subscription while another one is connected. On Key_Shared it
takes over some keys, whose messages wait until it has left; the broker keeps their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pulsar

from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._wire.message_id_data import MessageIdData, decode, encode
from pulsar_ext.admin import CursorInfo, SubscriptionStats
from pulsar_ext.chunks.resolver import as_message_id, batch_index_required, entry_topic
from pulsar_ext.chunks.search import Chunks
from pulsar_ext.errors import (
    AckNotConfirmed,
    AdminNotAllowed,
    AdminPrecondition,
    InvalidMessageId,
    InvalidUse,
    SubscriptionBusy,
)
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.skip.skipper import of_subscription

_TYPES: Final = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
_LOWEST_PRIORITY: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AckResult:
    """Result of an acknowledgement by ids, or of its `dry_run`.

    Args:
        requested: number of different messages that the ids name.
        acknowledged: number of them that were not acknowledged before, and are now. Messages of a batch that was
            acknowledged in part count here, because the broker does not show which of them were acknowledged.
        already_acknowledged: number of them that the cursor showed as acknowledged before.
        dry_run: nothing was acknowledged.
    """

    requested: int
    acknowledged: int
    already_acknowledged: int
    dry_run: bool = False


class StoredMessage(NamedTuple):
    """A message on one topic or partition."""

    entries: tuple[Position, ...]
    """Its chunks, or the entry of a message that is not chunked."""
    batch_index: int = -1
    """Its index in a batch of several messages."""
    batch_size: int = 1
    live: MessageId | None = None
    """The id of a chunked message, if no other has every chunk; `entries` are then the first and the last chunk."""

    def ids(self) -> Iterable[MessageId]:
        """Yield the ids that together acknowledge the message."""
        if self.live is not None:
            yield self.live
        elif self.batch_size > 1:
            yield _id(self.entries[0], self.batch_index, self.batch_size)
        else:
            # If the broker sees the first chunk acknowledged without the others, it never redelivers them.
            yield from map(_id, reversed(self.entries))


class AckPlan(NamedTuple):
    """The acknowledgements of one topic or partition."""

    topic: str
    requested: int
    already: int
    ids: Sequence[MessageId]
    partial: StoredMessage | None
    """A message of a batch that is acknowledged in part."""
    arguments: Arguments = {}  # noqa: RUF012  # never modified
    """Arguments of `subscribe()` for the consumer that acknowledges."""


def _id(at: Position, batch_index: int = -1, batch_size: int = 0) -> MessageId:
    """Return an id that needs no lookup."""
    data = MessageIdData(at.ledger_id, at.entry_id, batch_index=batch_index, batch_size=batch_size)
    return MessageId.deserialize(encode(data))


def plan_acks(topic: str, named: Iterable[StoredMessage], cursor: CursorInfo) -> AckPlan:
    """Return the acknowledgements of those messages that the cursor does not show as acknowledged (pure)."""
    messages = dict.fromkeys(named)
    pending = [one for one in messages if not all(cursor.acknowledges_each(one.entries))]
    of_batches: dict[Position, list[StoredMessage]] = {}
    for one in pending:
        if one.batch_size > 1:
            of_batches.setdefault(one.entries[0], []).append(one)
    whole = {at: _id(at) for at, some in of_batches.items() if len(some) == some[0].batch_size}
    parts = [one for one in pending if one.entries[0] not in whole]
    return AckPlan(
        topic,
        len(messages),
        len(messages) - len(pending),
        [*whole.values(), *(one_id for one in parts for one_id in one.ids())],
        next((one for one in parts if one.batch_size > 1), None),
    )


def joining(topic: str, subscription: str, own: SubscriptionStats) -> Arguments:
    """Return the arguments of `subscribe()` for a consumer beside those of a subscription; raise if it has no place."""
    sticky = own.raw.get("keySharedMode") == "STICKY"
    if own.consumers and (own.type == "Exclusive" or (own.type == "Key_Shared" and sticky)):
        raise SubscriptionBusy(
            f"Subscription {subscription!r} on {topic} is {own.type}{' with sticky ranges' if sticky else ''}, and "
            f"connected are {', '.join(map(repr, own.consumers))}: no other consumer can acknowledge. Nothing was "
            "acknowledged. Call acknowledge() of the consumer that has the message, or close these consumers first."
        )
    arguments: Arguments = {"consumer_type": _TYPES.get(own.type, pulsar.ConsumerType.Shared)}
    if own.type == "Key_Shared":
        unordered = bool(own.raw.get("allowOutOfOrderDelivery"))
        arguments["key_shared_policy"] = pulsar.ConsumerKeySharedPolicy(allow_out_of_order_delivery=unordered)
    return arguments


def acknowledge_by_id(
    context: ClientContext,
    topic: str,
    subscription: str,
    message_ids: object,
    *,
    dry_run: bool,
) -> AckResult:
    """Acknowledge messages, or only plan it; raise the errors of `Client.acknowledge()`."""
    asked = TopicName.parse(topic)
    if isinstance(message_ids, str | bytes) or not isinstance(message_ids, Iterable):
        message_ids = (message_ids,)
    by_topic: dict[str, list[MessageId]] = {}
    for one in map(as_message_id, message_ids):
        by_topic.setdefault(_topic_of(asked, one), []).append(one)
    planner = _Planner(context, subscription)
    plans = [planner.plan(name, ids) for name, ids in by_topic.items()]
    if not dry_run:
        planner.apply([one for one in plans if one.ids])
    requested, already = sum(one.requested for one in plans), sum(one.already for one in plans)
    return AckResult(requested, requested - already, already, dry_run)


def _topic_of(asked: TopicName, message_id: MessageId) -> str:
    """Return the topic or partition of an id."""
    if message_id.ledger_id() < 0 or message_id.entry_id() < 0 or message_id == MessageId.latest:
        raise InvalidMessageId(f"{message_id!r} is the id of no message. Nothing was acknowledged.")
    found = TopicName.parse(entry_topic(str(asked), message_id))
    if asked not in (found, found.parent) or message_id.partition() not in (-1, found.partition_index):
        raise InvalidUse(
            f"{message_id!r} is not an id of {asked}: its topic is {message_id.topic_name() or 'unknown'}, its "
            f"partition {message_id.partition()}. Nothing was acknowledged; pass the topic that has the message."
        )
    return str(found)


class _Planner:
    """Planner and executor of acknowledgements on one subscription."""

    def __init__(self, context: ClientContext, subscription: str) -> None:
        self._context, self._subscription = context, subscription

    def plan(self, topic: str, message_ids: Iterable[MessageId]) -> AckPlan:
        """Find the messages of one topic or partition; acknowledge nothing."""
        admin, name = self._context.admin_api(), self._subscription
        try:
            cursors = admin.internal_stats(topic).cursors
        except AdminNotAllowed as error:
            raise AdminNotAllowed(
                f"{error.message}. Nothing was acknowledged. If the topic is partitioned, pass ids with their "
                "partition, or the partition as topic.",
                **error.details,
            ) from None
        cursor = of_subscription(cursors, name, topic)
        own = of_subscription(admin.stats(topic).subscriptions, name, topic)
        if not own.durable:
            raise InvalidUse(f"Subscription {name!r} on {topic} is a reader's. Nothing was acknowledged.")
        plan = plan_acks(topic, [self._find(topic, one) for one in message_ids], cursor)
        if plan.partial is not None and not (keeps_indexes := self._context.keeps_batch_indexes()):
            raise _whole_batches_only(plan.partial, topic, is_known=keeps_indexes is not None)
        return plan._replace(arguments=joining(topic, name, own)) if plan.ids else plan

    def _find(self, topic: str, message_id: MessageId) -> StoredMessage:
        """Find a message on its topic; raise if it is not stored completely, or if the id names no single message."""
        found, index = self._context.resolver.find(topic, message_id), message_id.batch_index()
        if isinstance(found, Chunks):
            stored = StoredMessage(found.positions, batch_size=found.messages)
        else:
            data = decode(found.serialize())
            ends = dict.fromkeys(Position(one.ledger_id, one.entry_id) for one in (data.first_chunk or data, data))
            stored = StoredMessage((*ends,), batch_size=max(data.batch_size, 1), live=found if len(ends) > 1 else None)
        if index >= stored.batch_size:
            raise InvalidMessageId(
                f"The entry of {message_id!r} on {topic} holds {stored.batch_size} messages, so batch index {index} is "
                "invalid. Nothing was acknowledged."
            )
        if stored.batch_size == 1:
            return stored
        if index < 0:
            raise batch_index_required(message_id, topic, stored.batch_size)
        return stored._replace(batch_index=index)

    def apply(self, plans: Sequence[AckPlan]) -> None:
        """Acknowledge, and wait until the cursors show it; acknowledge nothing unless every topic can be joined."""
        with ExitStack() as stack:
            joined = [(one, stack.enter_context(self._join(one))) for one in plans]
            for plan, consumer in joined:
                consumer.acknowledge_many(plan.ids)
                self._confirm(plan.topic, consumer.flush_acks)

    def _join(self, plan: AckPlan) -> Any:
        try:
            return self._context.opener.subscribe(
                plan.topic,
                self._subscription,
                **plan.arguments,
                receiver_queue_size=0,
                batch_index_ack_enabled=True,
                priority_level=_LOWEST_PRIORITY,
            )
        except pulsar.ConsumerBusy as error:
            raise SubscriptionBusy(
                f"A consumer has just connected to subscription {self._subscription!r} on {plan.topic}, and keeps "
                f"another one from joining: {error}. Nothing was acknowledged; call acknowledge() again."
            ) from error

    def _confirm(self, topic: str, flush_acks: Callable[..., None]) -> None:
        timeout_ms = 1000 * self._context.operation_timeout_seconds
        try:
            flush_acks(confirm=True, timeout_ms=timeout_ms)
        except AckNotConfirmed as error:
            raise AckNotConfirmed(
                f"The cursor of subscription {self._subscription!r} on {topic} does not show {error.details['count']} "
                f"acknowledged entries after {timeout_ms} ms. It is unknown whether the broker has them. Call "
                "acknowledge() again: what is acknowledged already stays so.",
                **error.details,
            ) from error


def _whole_batches_only(part: StoredMessage, topic: str, *, is_known: bool) -> AdminPrecondition:
    """Return the error for one message of a batch, if the broker is not known to keep such an acknowledgement."""
    setting = "acknowledgmentAtBatchIndexLevelEnabled"
    reason = f"{setting} is false" if is_known else f"the admin API does not show {setting} to this client"
    return AdminPrecondition(
        f"Message {part.batch_index} of the {part.batch_size} in the batch at {part.entries[0]} of {topic} cannot be "
        f"acknowledged alone: {reason}. Nothing was acknowledged. Enable that setting of the broker, or pass the ids "
        "of all messages of the batch.",
        status=None,
        reason=reason,
        method=None,
        path=topic,
    )
