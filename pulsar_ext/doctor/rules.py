"""Rules of a diagnosis: functions from the facts of a topic to findings (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pulsar_ext.admin import EntryMetadata, Retention, SubscriptionStats
from pulsar_ext.chunks.leftovers import chunked_messages, leftovers_among
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.coverage import KeyCover, StickyKey, batch_keys, cover_of

from .findings import (
    SHOWN,
    Diagnosis,
    Finding,
    Observation,
    RawConsumer,
    Remedy,
    Run,
    TopicFacts,
    command,
    more_than_shown,
    raw_consumers,
)

# -- entries that stay: chunks of incomplete messages, and holes far below acknowledged entries ------------------------


def inspected_entries(facts: TopicFacts, subscription: str) -> list[EntryMetadata]:
    """Return the headers of a subscription's first unacknowledged entries, up to the first that was not read."""
    found = []
    for position in facts.first_unacknowledged(subscription, facts.limits.entries):
        entry = facts.entries.get(position)
        if entry is None:
            break
        found.append(entry)
    return found


def find_chunks(facts: TopicFacts) -> Iterator[Finding]:
    """Find chunks that no consumer of the C++ client can ever acknowledge, by subscription."""
    for name, _ in facts.subscriptions():
        seen = inspected_entries(facts, name)
        last = facts.number_of(facts.internal.last_confirmed_entry)
        if not seen:
            continue
        # The end of a message may be after the last entry that was read, so its chunks are judged by that entry's time.
        is_all = facts.entries_until(name, last) <= len(seen)
        until = facts.now_ms if is_all else seen[-1].publish_time
        found = leftovers_among(seen, until - int(facts.limits.patience_seconds * 1000))
        stuck = {*found.useless, *found.endless}
        if stuck:
            yield _finding(facts, name, [one for one in seen if one.position in stuck])


def _finding(facts: TopicFacts, name: str, stuck: Sequence[EntryMetadata]) -> Finding:
    shown = [_of_message(facts, name, chunks) for chunks in chunked_messages(stuck)]
    in_part = sum(bool(one["acknowledged_chunks"]) for one in shown)
    cost = sum((one.total_chunk_size or 0) // (one.num_chunks or 1) for one in stuck)
    first = facts.number_of(stuck[0].position)
    kept = facts.number_of(facts.internal.last_confirmed_entry) - first + 1
    remedies = [
        Remedy(
            "open a consumer of pulsar_ext on the subscription: within a minute or two it acknowledges the chunks that "
            "no consumer can receive, and delivers the rest"
        )
    ]
    if facts.entries_until(name, facts.number_of(stuck[-1].position)) == len(stuck):
        remedies.append(
            facts.skip_remedy(
                name, len(stuck), "move the cursor past these chunks; no unacknowledged entry precedes them"
            )
        )
    return facts.finding(
        "chunks",
        "error" if in_part else "warning",
        name,
        f"{counted(len(stuck), 'chunk')} of {counted(len(shown), 'message')} that can never be received: "
        f"{in_part} partly acknowledged, {len(shown) - in_part} incomplete",
        {
            "chunks": len(stuck),
            "bytes": cost,
            "messages": shown[:SHOWN],
            "more_messages": more_than_shown(shown),
            "kept_entries": kept,
            "kept_bytes": round(kept * facts.internal.entry_bytes()),
        },
        f"they stay in the backlog forever and keep {counted(kept, 'entry')} from the first on; on Shared they can "
        "stall the subscription",
        *remedies,
    )


def _of_message(facts: TopicFacts, name: str, chunks: Sequence[EntryMetadata]) -> dict[str, object]:
    """Describe the remaining chunks of a message, and the acknowledged chunks next to them."""
    first = chunks[0]
    beside = {position for one in chunks for position in neighbours(facts, name, one.position)}
    acknowledged = sorted(
        one.chunk_id or 0
        for position in beside
        if (one := facts.entries.get(position)) is not None
        and one.is_chunk
        and (one.uuid, one.producer_name) == (first.uuid, first.producer_name)
    )
    return {
        "producer": first.producer_name,
        "sequence_id": first.sequence_id,
        "of_chunks": first.num_chunks,
        "chunks": {str(one.position): one.chunk_id for one in chunks},
        "acknowledged_chunks": acknowledged,
    }


def neighbours(facts: TopicFacts, name: str, position: Position) -> list[Position]:
    """Return the entries directly before and after a position that are acknowledged."""
    cursor, number = facts.internal.cursors[name], facts.number_of(position)
    near = (facts.ledgers.number(number - 1), facts.ledgers.number(number + 1))
    return [one for one in near if one is not None and cursor.acknowledges(one)]


_COUNTED_TYPES = ("Shared", "Key_Shared")
"""Subscription types for which the broker counts unacknowledged messages per consumer."""


def find_holes(facts: TopicFacts) -> Iterator[Finding]:
    """Find the holes of each subscription, and the consumers that hold them."""
    for name, stats in facts.subscriptions():
        holes = [run for run in facts.runs[name] if run.acknowledged_after >= facts.limits.hole_distance]
        cursor = facts.later[-1][1].cursors.get(name) if facts.later else None
        if cursor is not None:  # a consumer works on holes whose ends were acknowledged during the watch
            ends = {run: (facts.position(run.first), facts.position(run.last)) for run in holes}
            holes = [run for run in holes if not all(map(cursor.acknowledges, ends[run]))]
        first = facts.entries.get(facts.position(holes[0].first)) if holes else None
        is_new = first is not None and facts.seconds_since(first.publish_time) < facts.limits.patience_seconds
        seen = [one for run in holes for one in _inspected(facts, run)] if stats.delayed_messages else []
        are_delayed = bool(seen) and all((one.deliver_at_time or 0) > facts.now_ms for one in seen)
        if holes and not is_new and not are_delayed:
            yield _hole(facts, name, stats, holes)


def _inspected(facts: TopicFacts, run: Run) -> Iterator[EntryMetadata]:
    numbers = range(run.first, min(run.last, run.first + facts.limits.entries) + 1)
    return filter(None, map(facts.entries.get, map(facts.position, numbers)))


def _hole(facts: TopicFacts, name: str, stats: SubscriptionStats, holes: list[Run]) -> Finding:
    entries = sum(run.entries for run in holes)
    holders, description = _holders(stats)
    delivered = holes[-1].last <= facts.read_until(name)
    seen = [one for run in holes[:SHOWN] for one in _inspected(facts, run)]
    batches = [one for one in seen if one.message_count > 1]
    evidence: dict[str, object] = {
        "entries": entries,
        "holes": [
            {"first": str(facts.position(run.first)), "last": str(facts.position(run.last)), "entries": run.entries}
            for run in holes[:SHOWN]
        ],
        "more_holes": more_than_shown(holes),
        "acknowledged_behind": holes[0].acknowledged_after,
        "mark_delete": str(facts.internal.cursors[name].mark_delete_position),
        "held_by": holders,
        "delivered": delivered,
    }
    if seen:
        evidence["oldest_seconds"] = round(facts.seconds_since(min(one.publish_time for one in seen)), 1)
    if batches:
        evidence["batches"] = {str(one.position): one.message_count for one in batches[:SHOWN]}
    in_part = _acknowledged_in_part(facts, name, stats)
    if in_part:
        evidence["messages_acknowledged_in_batches"] = in_part
    kept = facts.number_of(facts.internal.last_confirmed_entry) - holes[0].first + 1
    return facts.finding(
        "holes",
        "warning" if holders else "error",
        name,
        f"{counted(entries, 'unacknowledged entry')} from {facts.position(holes[0].first)} on, "
        f"before {counted(holes[0].acknowledged_after, 'acknowledged entry')}; {description}"
        + (f"; {counted(in_part, 'message')} inside their batches acknowledged" if in_part else ""),
        evidence,
        f"the cursor stays before them, which keeps {counted(kept, 'entry')}, about "
        f"{kept * facts.internal.entry_bytes():,.0f} bytes; if there are more holes than the broker stores, "
        "acknowledged messages are redelivered",
        Remedy(
            "unload the topic: the broker loads it again, clients reconnect, and unacknowledged messages are "
            "redelivered; nothing is lost",
            command("admin", "unload", facts.name),
        ),
        facts.skip_remedy(
            name,
            facts.entries_until(name, holes[-1].last),
            "abandon these messages: the cursor moves past the last of them",
        ),
    )


def _holders(stats: SubscriptionStats) -> tuple[list[dict[str, object]], str]:
    """Return the consumers that may hold the unacknowledged messages, and a phrase that names them."""
    consumers = raw_consumers(stats)
    if not consumers:
        return [], "there is no consumer"
    are_counted = stats.type in _COUNTED_TYPES
    holders: list[dict[str, object]] = [
        {
            "consumer": one.get("consumerName", ""),
            "address": one.get("address", ""),
            "unacknowledged_messages": one.get("unackedMessages", 0) if are_counted else None,
        }
        for one in consumers
        if not are_counted or one.get("unackedMessages", 0) > 0
    ]
    names = ", ".join(repr(one["consumer"]) for one in holders[:SHOWN])
    if not holders:
        return [], f"none of the {counted(len(consumers), 'consumer')} holds them"
    if are_counted:
        return holders, f"held by {names}"
    return holders, f"consumers: {names}"


def _acknowledged_in_part(facts: TopicFacts, name: str, stats: SubscriptionStats) -> int:
    """Return the number of messages acknowledged inside unacknowledged batches, or 0 if it cannot be computed.

    The broker does not show them. If consumers hold every entry that was delivered, the number is the difference
    between the messages of these entries and the messages that the consumers hold.
    """
    consumers = raw_consumers(stats)
    if stats.type not in _COUNTED_TYPES or stats.raw.get("msgInReplay") or not consumers:
        return 0
    delivered = facts.entries_until(name, facts.read_until(name))
    positions = facts.first_unacknowledged(name, delivered) if delivered <= facts.limits.entries else []
    seen = [facts.entries[at] for at in positions if at in facts.entries]
    if not seen or len(seen) < delivered or any(one.is_chunk for one in seen):
        return 0
    held = stats.held_messages
    messages = sum(one.message_count for one in seen)
    return messages - held if 0 < held < messages else 0


# -- clients: missing or stalled consumers, storms, slots of Key_Shared, producers that send twice ---------------------


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

    The broker dispatches a batch by its first message. A message without a key may go to any consumer.
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


# -- stored messages: near expiry, over a quota, kept, unread, of missing schema versions ------------------------------

_MIB = 1024 * 1024
_MORE = 10
"""Factor between the retention that is needed now and the one that is proposed."""
_NONE = Retention(0, 0)
_UNLIMITED = -1


def find_expiring(facts: TopicFacts) -> Iterator[Finding]:
    """Find unacknowledged messages that the namespace's time to live will soon expire."""
    seconds = facts.policies.message_ttl_seconds or 0
    for name, stats in facts.subscriptions() if seconds else ():
        positions = facts.first_unacknowledged(name, 1)
        entry = facts.entries.get(positions[0]) if positions else None
        age = 0.0 if entry is None else facts.seconds_since(entry.publish_time)
        if entry is None or age < seconds * facts.limits.quota_share:
            continue
        expired = stats.raw.get("totalMsgExpired", 0)
        yield facts.finding(
            "expiring",
            "error" if expired else "warning",
            name,
            f"the oldest unacknowledged message is {age:,.0f} s old, and the time to live is {seconds:,} s"
            + (f"; already expired: {counted(expired, 'message')}" if expired else ""),
            {
                "oldest": str(entry.position),
                "age_seconds": round(age, 1),
                "ttl_seconds": seconds,
                "expired_messages": expired,
                "backlog_entries": stats.backlog_entries,
            },
            "the broker acknowledges these messages itself, and they are never read",
            Remedy(
                "raise the time to live",
                command("admin", "set-message-ttl", facts.namespace, max(seconds * 10, round(age * 10))),
            ),
        )


def find_quotas(facts: TopicFacts) -> Iterator[Finding]:
    """Find a topic whose backlog is near or above a quota."""
    raw = facts.stats.raw
    oldest_seconds = raw.get("oldestBacklogMessageAgeSeconds", -1)
    kinds = (
        ("destination_storage", facts.stats.backlog_size, raw.get("backlogQuotaLimitSize", -1), "bytes"),
        ("message_age", oldest_seconds, raw.get("backlogQuotaLimitTime", -1), "seconds"),
    )
    for kind, used, limit, unit in kinds:
        if limit <= 0 or used <= 0 or used < limit * facts.limits.quota_share:
            continue
        policy = (facts.policies.backlog_quotas.get(kind) or {}).get("policy", "producer_request_hold")
        slowest = min(
            (name for name, _ in facts.subscriptions()),
            key=lambda name: facts.internal.cursors[name].mark_delete_position,
            default="",
        )
        yield facts.finding(
            "quota",
            "error" if used >= limit else "warning",
            slowest,
            f"the backlog has used {used / limit:.0%} of its quota, {used:,} of {limit:,} {unit}; "
            f"{slowest!r} has the oldest cursor",
            {"kind": kind, "used": used, "limit": limit, "unit": unit, "policy": policy, "slowest": slowest},
            "the broker skips the oldest messages of the backlog unread"
            if policy == "consumer_backlog_eviction"
            else "the broker blocks all producers of the topic",
            Remedy(
                "raise the quota until the consumers catch up",
                command(
                    *("admin", "set-backlog-quota", facts.namespace, "--kind", kind),
                    *(f"--limit-{unit}", max(used, limit) * 4, "--policy", policy),
                ),
            ),
        )


def find_kept_ledgers(facts: TopicFacts) -> Iterator[Finding]:
    """Find a subscription that alone keeps ledgers, which all others have acknowledged, from being deleted."""
    cursors = facts.internal.cursors
    cursors_by_mark = sorted(
        (cursors[name].mark_delete_position, name)
        for name, stats in facts.stats.subscriptions.items()
        if stats.durable and name in cursors
    )
    if not cursors_by_mark or cursors_by_mark[0][1] not in dict(facts.subscriptions()):
        return
    mark, name = cursors_by_mark[0]
    done = cursors_by_mark[1][0] if len(cursors_by_mark) > 1 else facts.internal.last_confirmed_entry
    # Full ledgers only: the last one is being written to.
    full = [one for one in facts.internal.ledgers[:-1] if one.entries]
    kept = [one for one in full if mark < Position(one.ledger_id, one.entries - 1) <= done]
    if len(kept) < facts.limits.kept_ledgers:
        return
    size = sum(one.size for one in kept)
    others = [other for _, other in cursors_by_mark[1:]]
    yield facts.finding(
        "kept-ledgers",
        "warning",
        name,
        f"kept for this subscription alone: {counted(len(kept), 'full ledger')}, {counted(size, 'byte')}"
        + (f", acknowledged by {counted(len(others), 'other')}" if others else ""),
        {
            "ledgers": [one.ledger_id for one in kept],
            "bytes": size,
            "mark_delete": str(mark),
            "backlog_entries": sum(run.entries for run in facts.runs[name]),
            "other_subscriptions": len(others),
        },
        "no ledger from the first of them on can be deleted, whatever the retention",
        Remedy("have its consumers acknowledge; if there are holes, resolve these first"),
        facts.delete_remedy(name),
    )


def find_never_compacted(facts: TopicFacts) -> Iterator[Finding]:
    """Find a topic above its namespace's compaction threshold for which no compaction has succeeded."""
    threshold = facts.policies.raw.get("compaction_threshold") or 0
    compaction = facts.stats.raw.get("compaction") or {}
    stored = facts.internal.total_size
    if not 0 < threshold < stored or compaction.get("lastCompactionSucceedTimestamp"):
        return
    failed = compaction.get("lastCompactionFailedTimestamp", 0)
    yield facts.finding(
        "never-compacted",
        "warning",
        "",
        f"{stored:,} bytes are stored, above the compaction threshold of {threshold:,}, and no compaction has "
        "succeeded since the broker loaded the topic" + ("; the last one failed" if failed else ""),
        {"bytes": stored, "threshold": threshold, "last_failed_ms": failed or None},
        "readers of the compacted topic read every message of each key, and start more and more slowly",
        Remedy("compact it now; if it failed, the broker's log says why", command("admin", "compact", facts.name)),
    )


def version_of(entry: EntryMetadata) -> int | None:
    """Return the schema version that an entry was sent with; None if it was sent without a schema."""
    return int.from_bytes(entry.schema_version, "big") if entry.schema_version else None


def find_schema_misfits(facts: TopicFacts) -> Iterator[Finding]:
    """Find inspected entries in a backlog that have no schema version or one that no longer exists."""
    if facts.schemas is None:
        return
    without: list[Position] = []
    deleted: dict[Position, int] = {}
    for position, one in sorted(facts.entries.items()):
        version = version_of(one)
        if one.marker_type is not None or not facts.is_unacknowledged(position):
            continue
        if version is None and facts.schemas:
            without.append(position)
        elif version is not None and version not in facts.schemas:
            deleted[position] = version
    if without or deleted:
        yield _misfits(facts, without, deleted)


def _misfits(facts: TopicFacts, without: Sequence[Position], deleted: Mapping[Position, int]) -> Finding:
    schemas = facts.schemas or {}
    counts = [
        f"{len(deleted)} have a deleted schema version" if deleted else "",
        f"{len(without)} have no schema" if without else "",
    ]
    misfits = sorted({*without, *deleted})
    last_for_each = {
        name: position
        for name, _ in facts.subscriptions()
        for position in misfits
        if not facts.internal.cursors[name].acknowledges(position)
    }
    remedies = [
        Remedy(
            "read them with a consumer without a schema or, if their version is deleted, with a consumer of their "
            "schema that does not request the version, as Python's do"
        )
    ]
    if without:
        remedies.append(
            Remedy(
                "have the broker reject producers without a schema on topics with one, from now on",
                command("admin", "set-schema-validation-enforced", facts.namespace, "true"),
            )
        )
    remedies += (
        facts.skip_remedy(
            name,
            facts.entries_until(name, facts.number_of(last)),
            "abandon all messages up to the last of them on this subscription",
        )
        for name, last in last_for_each.items()
    )
    return facts.finding(
        "schema-misfits",
        "error" if deleted else "warning",
        "",
        f"of the inspected entries in the backlog, {' and '.join(one for one in counts if one)}; the topic has "
        f"schema versions {', '.join(map(str, sorted(schemas))) or '(none)'}",
        {
            "versions": {str(version): one.type for version, one in sorted(schemas.items())},
            "gone": {str(position): version for position, version in list(deleted.items())[:SHOWN]},
            "without": list(map(str, without[:SHOWN])),
            "more": more_than_shown(deleted, without),
            "producers": sorted({facts.entries[position].producer_name for position in misfits}),
        },
        "consumers with a schema cannot read them: in Java, and if the version is requested, a receive fails",
        *remedies,
    )


def find_lagging_readers(facts: TopicFacts) -> Iterator[Finding]:
    """Find readers with unread entries in full ledgers that every subscription has acknowledged.

    A reader's cursor keeps no ledger: when the retention is over, the broker moves the cursor past deleted ledgers.
    """
    readers = {name for name, stats in facts.stats.subscriptions.items() if not stats.durable}
    kept_from = min(
        (one.mark_delete_position for name, one in facts.internal.cursors.items() if name not in readers),
        default=facts.internal.last_confirmed_entry,
    )
    # The last ledger is being written to, and is not deleted.
    free = [one for one in facts.internal.ledgers[:-1] if Position(one.ledger_id, one.entries - 1) <= kept_from]
    end = facts.number_of(Position(free[-1].ledger_id, free[-1].entries - 1)) if free else 0
    of_broker = (facts.settings.get(f"defaultRetention{what}") for what in ("TimeInMinutes", "SizeInMB"))
    retention = facts.policies.retention or Retention(*(int(one or 0) for one in of_broker))
    for name, _ in facts.readers():
        unread = facts.entries_until(name, end)
        oldest = facts.entries.get(facts.position(facts.runs[name][0].first)) if unread else None
        age = 0.0 if oldest is None else facts.seconds_since(oldest.publish_time)
        used = _used(retention, age, facts.internal.total_size)
        if unread and used >= facts.limits.quota_share:
            yield _lagging_reader(facts, name, unread, age, used, retention)


def _used(retention: Retention, age_seconds: float, stored: int) -> float:
    """Return the share of a retention that is used up, by age or by size, whichever is larger."""
    if retention == _NONE:
        return 1.0
    shares = [0.0]
    if retention.minutes > 0:
        shares.append(age_seconds / (60 * retention.minutes))
    if retention.size_mib > 0:
        shares.append(stored / (_MIB * retention.size_mib))
    return max(shares)


def _lagging_reader(
    facts: TopicFacts, name: str, unread: int, age: float, used: float, retention: Retention
) -> Finding:
    stats = facts.stats.subscriptions[name]
    consumers = [
        {"reader": one.get("consumerName", ""), "address": one.get("address", "")} for one in raw_consumers(stats)
    ]
    stored = facts.internal.total_size
    minutes = _UNLIMITED if retention.minutes < 0 else max(_MORE * retention.minutes, round(_MORE * age / 60), 60)
    size = _UNLIMITED if retention.size_mib < 0 else max(_MORE * retention.size_mib, _MORE * stored // _MIB, 1024)
    return facts.finding(
        "readers-behind",
        "error" if used >= 1 else "warning",
        name,
        f"a reader has {counted(unread, 'unread entry')} in full ledgers that no subscription keeps, and "
        + ("there is no retention" if retention == _NONE else f"{used:.0%} of the retention is used up"),
        {
            "readers": consumers,
            "unread_entries": unread,
            "first": str(facts.position(facts.runs[name][0].first)),
            "age_seconds": round(age, 1),
            "bytes_stored": stored,
            "retention_minutes": retention.minutes,
            "retention_mib": retention.size_mib,
        },
        "the broker deletes these ledgers and silently moves the reader past them",
        Remedy(
            "keep acknowledged messages longer",
            command("admin", "set-retention", facts.namespace, f"--minutes={minutes}", f"--size-mib={size}"),
        ),
        Remedy("read with a durable subscription, which keeps its unacknowledged messages"),
    )


_KINDS = {"-DLQ": "dead letters", "-RETRY": "messages to retry"}


def find_unread_letters(facts: TopicFacts) -> Iterator[Finding]:
    """Find dead letter and retry topics, by the names that clients choose for them, without a subscription."""
    name = TopicName.parse(facts.name).parent.name
    what = next((what for end, what in _KINDS.items() if name.endswith(end)), None)
    stored, received = facts.internal.number_of_entries, facts.stats.messages_in
    if what is None or not max(stored, received) or facts.stats.subscriptions:
        return
    retention = facts.policies.retention
    kept = retention is not None and retention.minutes != 0 and retention.size_mib != 0
    yield facts.finding(
        "unread-letters",
        "warning" if kept else "error",
        "",
        f"{what} are sent here, but no subscription keeps them; {counted(stored, 'entry')} stored",
        {
            "entries": stored,
            "messages_since_load": received,
            "retention_minutes": None if retention is None else retention.minutes,
        },
        "they are deleted when the retention is over"
        if kept
        else "they are deleted with their ledger: without retention, soon after the next ledger is opened",
        Remedy(
            "keep the stored and future messages, and read them",
            command("admin", "create-subscription", facts.name, "letters", "earliest"),
        ),
        Remedy(
            "for new topics, have the dead letter policy create the subscription: "
            "`pulsar.ConsumerDeadLetterPolicy(…, initial_subscription_name=…)`"
        ),
    )


# -- all of them -------------------------------------------------------------------------------------------------------

RULES: tuple[Callable[[TopicFacts], Iterator[Finding]], ...] = (
    find_holes,
    find_chunks,
    find_stalled,
    find_storms,
    find_uncovered_slots,
    find_blocked_slots,
    find_mixed_batches,
    find_unread_letters,
    find_expiring,
    find_lagging_readers,
    find_quotas,
    find_kept_ledgers,
    find_never_compacted,
    find_unconsumed,
    find_duplicates,
    find_forgotten,
    find_schema_misfits,
)


def judge(seen: Observation) -> Diagnosis:
    """Return the findings in an observation (pure)."""
    found = [finding for one in seen.facts for rule in RULES for finding in rule(one)]
    found.sort(key=lambda one: one.severity != "error")
    return Diagnosis(
        tuple(found), len(seen.facts), seen.excluded, seen.requests, seen.notes, seen.version, seen.missing
    )
