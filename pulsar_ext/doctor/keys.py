"""Rules for Key_Shared subscriptions: uncovered or blocked slots, batches of several keys (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pulsar_ext.admin import SubscriptionStats
from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.coverage import KeyCover, StickyKey, batch_keys, cover_of

from .findings import SHOWN, Finding, Remedy, TopicFacts, command, more_than_shown, raw_consumers

KEY_SHARED = "Key_Shared"


def find_uncovered_slots(facts: TopicFacts) -> Iterator[Finding]:
    """Find slots without a consumer on subscriptions with fixed ranges."""
    for name, stats in facts.subscriptions(KEY_SHARED):
        cover = cover_of(facts.name, name, stats)
        if not stats.consumers or cover.mode != "STICKY" or cover.uncovered.is_empty:
            continue
        yield facts.finding(
            "uncovered-slots",
            "error",
            name,
            f"{counted(cover.uncovered.slots, 'key slot')} without a consumer: {cover.uncovered}",
            {
                "uncovered": str(cover.uncovered),
                "slots": cover.uncovered.slots,
                "consumers": {consumer: str(ranges) for consumer, ranges in cover.consumers},
            },
            "the broker retains the messages of these slots; at its limit it stops reading for every consumer",
            Remedy(
                "start consumers for these slots, or have all use KeySharedPolicy.auto_split_hash_range(); "
                "this command shows the slots of each consumer",
                command("ranges", "check", facts.name, name),
            ),
        )


def find_blocked_slots(facts: TopicFacts) -> Iterator[Finding]:
    """Find slots that moved to another consumer but are blocked by an idle consumer that holds their messages."""
    for name, stats in facts.subscriptions(KEY_SHARED):
        samples = [stats, *(one.subscriptions[name] for one, _ in facts.later if name in one.subscriptions)]
        always = set.intersection(*(set(_draining(one)) for one in samples))
        blocking = {
            key: held
            for key, held in _draining(stats).items()
            if key in always and facts.seconds_since(held.last_ms) >= facts.limits.patience_seconds
        }
        if not blocking:
            continue
        slots = sorted(slot for _, slot in blocking)
        cover = cover_of(facts.name, name, stats)
        waiting = sorted({one for one, ranges in cover.consumers if any(slot in ranges for slot in slots)})
        holders = {holder: held.address for (holder, _), held in blocking.items()}
        messages = sum(held.messages for held in blocking.values())
        yield facts.finding(
            "blocked-slots",
            "error",
            name,
            f"{counted(len(slots), 'key slot')} blocked by {', '.join(map(repr, holders))}, which holds "
            f"{counted(messages, 'unacknowledged message')} of them",
            {
                "held_by": holders,
                "held_messages": messages,
                "slots": slots[:SHOWN],
                "more_slots": more_than_shown(slots),
                "waiting_consumers": waiting,
                "waiting_messages": stats.raw.get("msgInReplay", 0),
                "blocked_attempts": sum(held.attempts for held in blocking.values()),
            },
            "messages of these slots are not delivered; at its limit of pending messages the broker stops reading for "
            "every consumer",
            Remedy(
                "have this consumer acknowledge the messages that it holds, or close it, in the program at the "
                "address; the consumers that own the slots now then receive its messages"
            ),
        )


class _Held(NamedTuple):
    """Messages of a slot that a consumer holds."""

    address: str
    messages: int
    attempts: int
    last_ms: int


def _draining(stats: SubscriptionStats) -> dict[tuple[str, int], _Held]:
    """Return the messages that each consumer holds of moved slots, if the broker tried to deliver more of them."""
    return {
        (consumer.get("consumerName", ""), one["hash"]): _Held(
            consumer.get("address", ""),
            one.get("unackMsgs", 0),
            one["blockedAttempts"],
            max(consumer.get("lastAckedTimestamp", 0), consumer.get("lastConsumedTimestamp", 0)),
        )
        for consumer in raw_consumers(stats)
        for one in consumer.get("drainingHashes") or ()
        if one.get("blockedAttempts")
    }


def _slots_of(keys: Sequence[StickyKey], cover: KeyCover) -> int:
    """Return the number of slots of a batch's keys; the first message counts with or without a key.

    The broker dispatches a batch by its first message. Any consumer may receive another message without a key.
    """
    given = {cover.slot_of(one.key) for one in keys if one.is_given}
    return len(given | {cover.slot_of(keys[0].key)}) if given else 0


def find_mixed_batches(facts: TopicFacts) -> Iterator[Finding]:
    """Find batches whose messages belong to several slots of a Key_Shared subscription."""
    covers = {name: cover_of(facts.name, name, stats) for name, stats in facts.subscriptions(KEY_SHARED)}
    mixed = {}
    for position, entry in sorted(facts.entries.items()):
        if entry.payload is None or entry.encrypted or not (entry.num_messages_in_batch or 0) > 1:
            continue
        waiting = [cover for name, cover in covers.items() if not facts.internal.cursors[name].acknowledges(position)]
        keys = batch_keys(entry.payload, entry.message_count, entry.producer_name) if waiting else None
        slots = max((_slots_of(keys, cover) for cover in waiting), default=0) if keys else 0
        if keys and slots > 1:
            mixed[position] = (len(keys), slots, entry.producer_name)
    if not mixed:
        return
    subscriptions = list(covers)
    producers = sorted({producer for _, _, producer in mixed.values()})
    yield facts.finding(
        "mixed-key-batches",
        "error",
        "",
        f"{counted(len(mixed), 'batch')} of several keys in the backlog of "
        f"{', '.join(map(repr, subscriptions))}, sent by {', '.join(map(repr, producers))}",
        {
            "subscriptions": subscriptions,
            "producers": producers,
            "batches": {
                str(position): {"messages": messages, "slots": slots}
                for position, (messages, slots, _) in list(mixed.items())[:SHOWN]
            },
            "more_batches": more_than_shown(mixed),
        },
        "the broker dispatches a batch by its first message's key: messages of the other keys reach the wrong "
        "consumers, out of order",
        Remedy(
            "have the producers batch by key: `batching_type=pulsar.BatchingType.KeyBased`, or disable batching; "
            "batches already stored stay as they are until they are consumed"
        ),
    )
