"""Finds what keeps Key_Shared subscriptions from working: slots of nobody, batches of several keys (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.coverage import batch_keys, cover_of

from .findings import Finding, Remedy, TopicFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pulsar_ext.admin import SubscriptionStats
    from pulsar_ext.ids.position import Position
    from pulsar_ext.key_shared.coverage import KeyCover, StickyKey


_SHOWN = 10


def key_shared(facts: TopicFacts) -> list[str]:
    """Name the Key_Shared subscriptions of a topic."""
    return [name for name, stats in facts.subscriptions() if stats.type == "Key_Shared"]


def waits(facts: TopicFacts, position: Position, subscriptions: Iterable[str]) -> bool:
    """Whether one of these subscriptions has not acknowledged an entry."""
    return any(not facts.internal.cursors[name].acknowledges(position) for name in subscriptions)


def find_uncovered_slots(facts: TopicFacts) -> Iterator[Finding]:
    """Find slots that no consumer has, beside consumers with fixed ranges."""
    for name, stats in facts.subscriptions():
        if stats.type != "Key_Shared" or not stats.consumers:
            continue
        cover = cover_of(facts.name, name, stats)
        if cover.mode != "STICKY" or cover.uncovered.is_empty:
            continue
        topic, subscription = shlex.quote(facts.name), shlex.quote(name)
        yield Finding(
            "uncovered-slots",
            "error",
            facts.name,
            name,
            f"{counted(cover.uncovered.slots, 'slot')} of keys without a consumer: {cover.uncovered}",
            {
                "uncovered": str(cover.uncovered),
                "slots": cover.uncovered.slots,
                "consumers": {consumer: str(ranges) for consumer, ranges in cover.consumers},
            },
            "the broker keeps the messages of these slots, and at its limit it stops reading for every consumer",
            (
                Remedy(
                    "start consumers for these slots, or have all use KeySharedPolicy.auto_split_hash_range(); "
                    "this shows who has which",
                    f"pulsar-ext ranges check {topic} {subscription}",
                ),
            ),
        )


def find_blocked_slots(facts: TopicFacts) -> Iterator[Finding]:
    """Find slots that moved to other consumers, and wait for one that holds messages of theirs and does nothing."""
    for name, stats in facts.subscriptions():
        if stats.type != "Key_Shared":
            continue
        looks = [stats, *(one.subscriptions[name] for one, _ in facts.later if name in one.subscriptions)]
        always = set.intersection(*(set(_draining(one)) for one in looks))
        blocking = {key: held for key, held in _draining(stats).items() if key in always and _is_idle(facts, held)}
        if not blocking:
            continue
        slots = sorted(slot for _, slot in blocking)
        cover = cover_of(facts.name, name, stats)
        waiting = sorted({one for one, ranges in cover.consumers if any(slot in ranges for slot in slots)})
        holders = {holder: held["address"] for (holder, _), held in blocking.items()}
        messages = sum(held["unackMsgs"] for held in blocking.values())
        yield Finding(
            "blocked-slots",
            "error",
            facts.name,
            name,
            f"{counted(len(slots), 'slot')} of keys blocked by {', '.join(map(repr, holders))}, with "
            f"{counted(messages, 'unacknowledged message')} from before",
            {
                "held_by": holders,
                "held_messages": messages,
                "slots": slots[:_SHOWN],
                "more_slots": max(len(slots) - _SHOWN, 0),
                "waiting_consumers": waiting,
                "waiting_messages": stats.raw.get("msgInReplay", 0),
                "blocked_attempts": sum(held["blockedAttempts"] for held in blocking.values()),
            },
            "the keys of these slots come to nobody, and at the limit of messages that wait the broker stops reading "
            "for every consumer",
            (
                Remedy(
                    "have this consumer acknowledge what it holds, or close it, in the program at the address: its "
                    "messages then go to the consumers that have the slots now"
                ),
            ),
        )


def _draining(stats: SubscriptionStats) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Give what each consumer holds of slots that others have now, and that was asked for meanwhile."""
    return {
        (consumer.get("consumerName", ""), one["hash"]): {**consumer, **one}
        for consumer in stats.raw.get("consumers") or ()
        for one in consumer.get("drainingHashes") or ()
        if one.get("blockedAttempts")
    }


def _is_idle(facts: TopicFacts, consumer: Mapping[str, Any]) -> bool:
    last_ms = max(consumer.get("lastAckedTimestamp", 0), consumer.get("lastConsumedTimestamp", 0))
    return facts.seconds_since(last_ms) >= facts.limits.patience_seconds


def _slots_of(keys: Sequence[StickyKey], cover: KeyCover) -> int:
    """Count the slots of a batch's keys, and of its first message, which decides for all, with a key or without.

    Another message without a key may go to any consumer.
    """
    given = {cover.slot_of(one.key) for one in keys if one.is_given}
    return len(given | {cover.slot_of(keys[0].key)}) if given else 0


def find_mixed_batches(facts: TopicFacts) -> Iterator[Finding]:
    """Find batches whose messages belong to several slots, where somebody consumes by slots."""
    covers = {
        name: cover_of(facts.name, name, stats) for name, stats in facts.subscriptions() if stats.type == "Key_Shared"
    }
    mixed = {}
    for position, entry in sorted(facts.entries.items()):
        if entry.payload is None or entry.encrypted or not (entry.num_messages_in_batch or 0) > 1:
            continue
        waiting = [cover for name, cover in covers.items() if waits(facts, position, [name])]
        keys = batch_keys(entry.payload, entry.message_count, entry.producer_name) if waiting else None
        slots = max((_slots_of(keys, cover) for cover in waiting), default=0) if keys else 0
        if keys and slots > 1:
            mixed[position] = (len(keys), slots, entry.producer_name)
    if not mixed:
        return
    subscriptions = list(covers)
    producers = sorted({producer for _, _, producer in mixed.values()})
    yield Finding(
        "mixed-key-batches",
        "error",
        facts.name,
        "",
        f"{counted(len(mixed), 'batch')} of several keys in the backlog of "
        f"{', '.join(map(repr, subscriptions))}, from {', '.join(map(repr, producers))}",
        {
            "subscriptions": subscriptions,
            "producers": producers,
            "batches": {
                str(position): {"messages": messages, "slots": slots}
                for position, (messages, slots, _) in list(mixed.items())[:_SHOWN]
            },
            "more_batches": max(len(mixed) - _SHOWN, 0),
        },
        "the broker delivers a batch by its first message's key: the others come to consumers that do not have their "
        "keys, and out of their order",
        (
            Remedy(
                "have the producers batch by key: `batching_type=pulsar.BatchingType.KeyBased`, or no batches; what is "
                "stored already stays as it is until it is consumed"
            ),
        ),
    )
