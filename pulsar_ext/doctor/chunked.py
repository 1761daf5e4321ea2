"""Rules for entries that stay: chunks of incomplete messages, and holes far below acknowledged entries (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulsar_ext.admin import EntryMetadata, SubscriptionStats
from pulsar_ext.chunks.leftovers import chunked_messages, leftovers_among
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted

from .findings import SHOWN, Finding, Remedy, Run, TopicFacts, command, more_than_shown, raw_consumers


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
        stuck = sorted({*found.useless, *found.endless})
        if stuck:
            yield _finding(facts, name, [one for one in seen if one.position in set(stuck)])


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
        holes = [
            run
            for run in facts.runs[name]
            if run.acknowledged_after >= facts.limits.hole_distance and not _is_closing(facts, name, run)
        ]
        if holes and not _is_new(facts, holes) and not _are_delayed(facts, stats, holes):
            yield _hole(facts, name, stats, holes)


def _is_closing(facts: TopicFacts, name: str, run: Run) -> bool:
    """Return True if both ends of a hole were acknowledged during the watch, so that a consumer works on it."""
    cursor = facts.later[-1][1].cursors.get(name) if facts.later else None
    ends = (facts.position(number) for number in (run.first, run.last))
    return cursor is not None and all(map(cursor.acknowledges, ends))


def _is_new(facts: TopicFacts, holes: list[Run]) -> bool:
    """Return True if the first hole's entry was published a moment ago, and may yet be acknowledged."""
    first = facts.entries.get(facts.position(holes[0].first))
    return first is not None and facts.seconds_since(first.publish_time) < facts.limits.patience_seconds


def _are_delayed(facts: TopicFacts, stats: SubscriptionStats, holes: list[Run]) -> bool:
    """Return True if every inspected entry of the holes is a delayed message."""
    if not stats.delayed_messages:
        return False
    seen = [one for run in holes for one in _inspected(facts, run)]
    return bool(seen) and all((one.deliver_at_time or 0) > facts.now_ms for one in seen)


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
