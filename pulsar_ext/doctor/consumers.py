"""Rules for clients: missing or stalled consumers, storms, slots of Key_Shared, producers that send twice (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pulsar_ext.admin import SubscriptionStats
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.key_shared.coverage import KeyCover, StickyKey, batch_keys, cover_of

from .findings import SHOWN, Finding, RawConsumer, Remedy, TopicFacts, command, more_than_shown, raw_consumers


def find_unconsumed(facts: TopicFacts) -> Iterator[Finding]:
    """Find subscriptions with a backlog that have had no consumer for a while."""
    for name, stats in facts.subscriptions():
        last_ms = max(stats.raw.get("lastConsumedFlowTimestamp", 0), stats.raw.get("lastAckedTimestamp", 0))
        idle = facts.seconds_since(last_ms)
        runs = facts.runs[name]
        if stats.consumers or not runs or idle < facts.limits.patience_seconds:
            continue
        entries = sum(run.entries for run in runs)
        size = round(entries * facts.internal.entry_bytes())
        since = "since the broker loaded the topic" if idle == float("inf") else f"for {idle:,.0f} s"
        yield facts.finding(
            "no-consumers",
            "warning",
            name,
            f"no consumer {since}, and a backlog of {counted(entries, 'entry')}",
            {
                "entries": entries,
                "bytes": size,
                "first": str(facts.position(runs[0].first)),
                "idle_seconds": None if idle == float("inf") else round(idle, 1),
                "type": stats.type,
            },
            "its backlog grows with each message, and no ledger from its first entry on can be trimmed",
            Remedy("start its consumers; if it is read only from time to time, ignore this"),
            facts.delete_remedy(name),
        )


def find_stalled(facts: TopicFacts) -> Iterator[Finding]:
    """Find consumers that receive nothing although their subscription has a backlog."""
    for name, stats in facts.subscriptions():
        if not stats.backlog_entries:
            continue
        blocked = bool(stats.raw.get("blockedSubscriptionOnUnackedMsgs"))
        stalled = [stall for one in raw_consumers(stats) if (stall := _stalled(facts, name, one)) is not None]
        if not stalled and not blocked:
            continue
        count = len(stats.consumers)
        is_all = blocked or len(stalled) == count
        why = sorted({str(one["why"]) for one in stalled})
        yield facts.finding(
            "stalled-consumers",
            "error" if is_all else "warning",
            name,
            f"{len(stalled)} of {counted(count, 'consumer')} without progress: {'; '.join(why)}"
            if not blocked
            else "the broker delivers nothing more to this subscription: it has "
            f"{counted(stats.unacked_messages, 'unacknowledged message')}",
            {
                "consumers": stalled,
                "of": count,
                "blocked_subscription": blocked,
                "unacknowledged_messages": stats.unacked_messages,
                "limit": facts.settings.get("maxUnackedMessagesPerSubscription"),
                "backlog_entries": stats.backlog_entries,
            },
            "the messages that they hold stay with them, and they receive no others"
            + ("; none is consumed" if is_all else ""),
            Remedy(
                "have these consumers receive and acknowledge, or close them, in the program at the address; other "
                "consumers then receive the messages that they hold"
            ),
        )


def _stalled(facts: TopicFacts, name: str, consumer: RawConsumer) -> dict[str, object] | None:
    """Describe a consumer that has received nothing for long enough; return None for any other."""
    permits, blocked = consumer.get("availablePermits", 0), bool(consumer.get("blockedConsumerOnUnackedMsgs"))
    moments = (
        consumer.get("lastConsumedFlowTimestamp"),
        consumer.get("lastAckedTimestamp"),
        consumer.get("firstConsumedFlowTimestamp"),
    )
    idle = facts.seconds_since(max(moment or 0 for moment in moments))
    if (permits > 0 and not blocked) or idle < facts.limits.patience_seconds:
        return None
    why = "it has no permits left"
    if blocked:
        why = "it is at its limit of unacknowledged messages"
    elif permits < 0:
        why = "its permits are negative: it received more than it asked for"
    key = consumer.get("consumerName", "")
    for later, _ in facts.later:
        again = later.subscriptions.get(name)
        for one in () if again is None else raw_consumers(again):
            if one.get("consumerName") == key and one.get("msgOutCounter") != consumer.get("msgOutCounter"):
                return None
    return {
        "consumer": key,
        "address": consumer.get("address", ""),
        "why": why,
        "permits": permits,
        "unacknowledged_messages": consumer.get("unackedMessages", 0),
        "limit": facts.settings.get("maxUnackedMessagesPerConsumer"),
        "idle_seconds": None if idle == float("inf") else round(idle, 1),
    }


def find_storms(facts: TopicFacts) -> Iterator[Finding]:
    """Find subscriptions whose same entries were delivered again between all samples of the watch."""
    if len(facts.later) < 2:  # noqa: PLR2004  # a single one is a normal redelivery
        return
    for name, stats in facts.subscriptions():
        samples = [(facts.stats, facts.internal), *facts.later]
        if not all(name in each.subscriptions and name in cursors.cursors for each, cursors in samples):
            continue
        cursors = [internal.cursors[name] for _, internal in samples]
        seen = [each.subscriptions[name] for each, _ in samples]
        again = [
            (after.delivered_messages + after.delayed_messages) - (before.delivered_messages + before.delayed_messages)
            for before, after in pairwise(seen)
        ]
        states = {(one.mark_delete_position, one.read_position, one.individually_deleted) for one in cursors}
        if len(states) > 1 or min(again) <= 0:
            continue
        first = facts.runs[name][0].first if facts.runs[name] else None
        entries = facts.entries_until(name, facts.read_until(name))
        yield facts.finding(
            "redelivery-storm",
            "error",
            name,
            f"{counted(sum(again), 'delivery')} of the same {counted(entries, 'entry')} within "
            f"{facts.limits.pause_seconds:g} s; no entry was new, and none was acknowledged",
            {
                "delivered": sum(again),
                "seconds": facts.limits.pause_seconds,
                "entries": entries,
                "first": None if first is None else str(facts.position(first)),
                "read_position": str(cursors[0].read_position),
                "consumers": list(stats.consumers),
            },
            "consumers repeat work on messages that they never acknowledge",
            Remedy(
                "check why the application negatively acknowledges the first of them, and set a dead letter policy "
                "(`dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(…)`) or a longer redelivery delay"
            ),
        )


_SNAPSHOT = "pulsar.dedup"
"""The cursor whose position and properties are the broker's snapshot of sequence ids."""


def producers_missing_from_snapshot(facts: TopicFacts) -> list[str]:
    """Return the connected producers missing from the broker's snapshot of sequence ids; `[]` without a snapshot."""
    cursor = facts.internal.cursors.get(_SNAPSHOT)
    if facts.stats.deduplication_status != "Enabled" or cursor is None:
        return []
    known = cursor.raw.get("properties") or {}
    return sorted(set(facts.stats.publishers) - set(known))


def find_forgotten(facts: TopicFacts) -> Iterator[Finding]:
    """Find connected producers whose sequence ids deduplication has forgotten.

    The broker knows a producer name from its snapshot, or from entries after the snapshot, which it reads when it loads
    the topic. Only the inspected entries are considered, which include those at the end of the topic.
    """
    names = {
        name.encode("latin-1", "replace").decode("latin-1"): name for name in producers_missing_from_snapshot(facts)
    }
    last = {names[one.producer_name]: one for _, one in sorted(facts.entries.items()) if one.producer_name in names}
    snapshot = facts.internal.cursors[_SNAPSHOT] if last else None
    if snapshot is None:
        return
    forgotten = {name: one for name, one in sorted(last.items()) if one.position <= snapshot.mark_delete_position}
    if not forgotten:
        return
    sequence_ids = {name: max(one.highest_sequence_id or 0, one.sequence_id) for name, one in forgotten.items()}
    name, sequence_id = next(iter(sequence_ids.items()))
    yield facts.finding(
        "forgotten-producers",
        "warning",
        "",
        f"deduplication is on, but the broker has no sequence id of {len(forgotten)} connected producers that have "
        f"sent, {', '.join(map(repr, forgotten))}: neither in its snapshot nor in an entry after the snapshot",
        {
            "producers": {
                one: {"last_entry": str(entry.position), "sequence_id": sequence_ids[one]}
                for one, entry in list(forgotten.items())[:SHOWN]
            },
            "more": more_than_shown(forgotten),
            "snapshot": str(snapshot.mark_delete_position),
            "producers_in_snapshot": len(snapshot.raw.get("properties") or {}),
            "most_in_snapshot": facts.settings.get("brokerDeduplicationMaxNumberOfProducers"),
            "forgotten_after_minutes": facts.settings.get("brokerDeduplicationProducerInactivityTimeoutMinutes"),
        },
        "after the topic is loaded again, messages that they resend are stored twice",
        Remedy(
            f"close each, and continue after its last message under a new name: for {name!r} after sequence id "
            f"{sequence_id}, with `create_producer(…, producer_name=…, deduplication=True)`, which raises for a "
            "forgotten name"
        ),
        Remedy(
            "have the broker keep more producers, or keep them longer; in broker.conf: "
            "brokerDeduplicationMaxNumberOfProducers, brokerDeduplicationProducerInactivityTimeoutMinutes"
        ),
    )


def find_duplicates(facts: TopicFacts) -> Iterator[Finding]:
    """Find, without deduplication, inspected entries of a producer name whose sequence ids repeat or go backwards."""
    if facts.stats.deduplication_status == "Enabled":
        return
    last: dict[str, int] = {}
    seen: dict[tuple[str, int, int | None], Position] = {}
    again: list[tuple[Position, Position]] = []
    back: list[tuple[Position, int, int]] = []
    producers = set()
    for position, one in sorted(facts.entries.items()):
        if not one.producer_name or one.sequence_id < 0 or one.marker_type is not None or one.replicated_from:
            continue
        key = (one.producer_name, one.sequence_id, one.chunk_id)
        before = last.get(one.producer_name, -1)
        if key in seen:
            again.append((seen[key], position))
            producers.add(one.producer_name)
        elif one.sequence_id < before:
            back.append((position, before, one.sequence_id))
            producers.add(one.producer_name)
        seen.setdefault(key, position)
        last[one.producer_name] = max(before, one.highest_sequence_id or 0, one.sequence_id)
    if not producers:
        return
    yield facts.finding(
        "sequence-ids",
        "warning",
        "",
        f"deduplication is off; of {len(facts.entries):,} inspected entries, {len(again)} repeat the sequence id of an "
        f"earlier entry of their producer, and the ids of {len(back)} go backwards; "
        f"{', '.join(map(repr, sorted(producers)))} resent messages or restarted the sequence",
        {
            "producers": sorted(producers),
            "again": [[str(first), str(second)] for first, second in again[:SHOWN]],
            "backwards": [{"entry": str(at), "after": before, "sequence_id": now} for at, before, now in back[:SHOWN]],
            "more": more_than_shown(again, back),
            "deduplication": facts.stats.deduplication_status,
        },
        "consumers receive resent messages twice; and after deduplication is switched on, messages whose ids go "
        "backwards are dropped: let the producers continue their sequence first",
        Remedy(
            "have the broker drop duplicates, and open the producers with `deduplication=True`",
            command("admin", "set-deduplication", facts.namespace, "true"),
        ),
    )


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
