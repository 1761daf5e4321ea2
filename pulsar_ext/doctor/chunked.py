"""Finds entries that stay: chunks of incomplete messages, and holes far below acknowledged entries (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from pulsar_ext.chunks.leftovers import leftovers_among
from pulsar_ext.ids.text import counted

from .findings import Finding, Remedy, Run, TopicFacts, skip_remedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata, SubscriptionStats
    from pulsar_ext.ids.position import Position


_SHOWN = 10


def looked_at(facts: TopicFacts, subscription: str) -> list[EntryMetadata]:
    """Give the headers of the first entries that a subscription has not acknowledged, without a gap."""
    found = []
    for position in facts.first_unacknowledged(subscription, facts.limits.entries):
        entry = facts.entries.get(position)
        if entry is None:
            break
        found.append(entry)
    return found


def find_chunks(facts: TopicFacts) -> Iterator[Finding]:
    """Find what of chunked messages no consumer of the C++ client can ever acknowledge, by subscription."""
    for name, _ in facts.subscriptions():
        seen = looked_at(facts, name)
        last = facts.number_of(facts.internal.last_confirmed_entry)
        if not seen:
            continue
        # What has its end behind the last entry that was looked at cannot be told from what has none.
        is_all = facts.entries_until(name, last) <= len(seen)
        until = facts.now_ms if is_all else seen[-1].publish_time
        found = leftovers_among(seen, until - int(facts.limits.patience_seconds * 1000))
        stuck = sorted({*found.useless, *found.endless})
        if stuck:
            yield _finding(facts, name, [one for one in seen if one.position in set(stuck)])


def _finding(facts: TopicFacts, name: str, stuck: Sequence[EntryMetadata]) -> Finding:
    messages: dict[object, list[EntryMetadata]] = {}
    for one in stuck:
        messages.setdefault((one.uuid, one.producer_name, one.sequence_id), []).append(one)
    shown = [_of_message(facts, name, chunks) for chunks in messages.values()]
    in_part = sum(bool(one["acknowledged_chunks"]) for one in shown)
    cost = sum((one.total_chunk_size or 0) // (one.num_chunks or 1) for one in stuck)
    first = facts.number_of(stuck[0].position)
    kept = facts.number_of(facts.internal.last_confirmed_entry) - first + 1
    remedies = [
        Remedy(
            "open a consumer of pulsar_ext on the subscription: it acknowledges what no consumer can receive, within a "
            "minute or two, and delivers the rest",
        )
    ]
    if facts.entries_until(name, facts.number_of(stuck[-1].position)) == len(stuck):
        remedies.append(
            skip_remedy(facts.name, name, len(stuck), "move the cursor over these chunks, before which nothing is left")
        )
    return Finding(
        "chunks",
        "error" if in_part else "warning",
        facts.name,
        name,
        f"{counted(len(stuck), 'chunk')} of {counted(len(messages), 'message')} that can never be received: "
        f"{in_part} acknowledged in part, {len(messages) - in_part} never to be complete",
        {
            "chunks": len(stuck),
            "bytes": cost,
            "messages": shown[:_SHOWN],
            "more_messages": max(len(shown) - _SHOWN, 0),
            "kept_entries": kept,
            "kept_bytes": round(kept * facts.internal.entry_bytes()),
        },
        f"they stay in the backlog for ever, and with them {counted(kept, 'entry')} after the first; on Shared they "
        "can stall the subscription",
        tuple(remedies),
    )


def _of_message(facts: TopicFacts, name: str, chunks: Sequence[EntryMetadata]) -> dict[str, Any]:
    """Say what is left of a message, and which chunks of it beside that are acknowledged."""
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
    """Give the entries just before one and behind it, where they are acknowledged."""
    cursor, number = facts.internal.cursors[name], facts.number_of(position)
    near = (facts.ledgers.number(number - 1), facts.ledgers.number(number + 1))
    return [one for one in near if one is not None and cursor.acknowledges(one)]


_COUNTED_TYPES = ("Shared", "Key_Shared")
"""Of these alone the broker counts what each consumer holds."""


def find_holes(facts: TopicFacts) -> Iterator[Finding]:
    """Find the holes of each subscription, and tell who holds them."""
    for name, stats in facts.subscriptions():
        holes = [
            run
            for run in facts.runs[name]
            if run.acknowledged_behind >= facts.limits.hole_distance and not _was_closed(facts, name, run)
        ]
        if holes and not _is_new(facts, holes) and not _all_wait_for_their_time(facts, stats, holes):
            yield _hole(facts, name, stats, holes)


def _was_closed(facts: TopicFacts, name: str, run: Run) -> bool:
    """Whether both its ends were acknowledged while it was watched: somebody is at work on it."""
    cursor = facts.later[-1][1].cursors.get(name) if facts.later else None
    ends = (facts.position(number) for number in (run.first, run.last))
    return cursor is not None and all(map(cursor.acknowledges, ends))


def _is_new(facts: TopicFacts, holes: list[Run]) -> bool:
    """Whether the first of them was sent a moment ago, so that it may be acknowledged yet."""
    first = facts.entries.get(facts.position(holes[0].first))
    return first is not None and facts.seconds_since(first.publish_time) < facts.limits.patience_seconds


def _all_wait_for_their_time(facts: TopicFacts, stats: SubscriptionStats, holes: list[Run]) -> bool:
    """Whether all of it, as far as it was looked at, is delayed: that is what delayed messages look like."""
    if not stats.delayed_messages:
        return False
    seen = [one for run in holes for one in _looked_at(facts, run)]
    return bool(seen) and all((one.deliver_at_time or 0) > facts.now_ms for one in seen)


def _looked_at(facts: TopicFacts, run: Run) -> Iterator[Any]:
    for number in range(run.first, min(run.last, run.first + facts.limits.entries) + 1):
        entry = facts.entries.get(facts.position(number))
        if entry is not None:
            yield entry


def _hole(facts: TopicFacts, name: str, stats: SubscriptionStats, holes: list[Run]) -> Finding:
    entries = sum(run.entries for run in holes)
    holders, said = _holders(stats)
    delivered = holes[-1].last <= facts.read_until(name)
    seen = [one for run in holes[:_SHOWN] for one in _looked_at(facts, run)]
    batches = [one for one in seen if one.message_count > 1]
    evidence: dict[str, Any] = {
        "entries": entries,
        "holes": [
            {"first": str(facts.position(run.first)), "last": str(facts.position(run.last)), "entries": run.entries}
            for run in holes[:_SHOWN]
        ],
        "more_holes": max(len(holes) - _SHOWN, 0),
        "acknowledged_behind": holes[0].acknowledged_behind,
        "mark_delete": str(facts.internal.cursors[name].mark_delete_position),
        "held_by": holders,
        "delivered": delivered,
    }
    if seen:
        evidence["oldest_seconds"] = round(facts.seconds_since(min(one.publish_time for one in seen)), 1)
    if batches:
        evidence["batches"] = {str(one.position): one.message_count for one in batches[:_SHOWN]}
    in_part = _acknowledged_in_part(facts, name, stats)
    if in_part:
        evidence["messages_acknowledged_in_batches"] = in_part
    topic = shlex.quote(facts.name)
    kept = (
        facts.ledgers.up_to(facts.position(facts.number_of(facts.internal.last_confirmed_entry))) - holes[0].first + 1
    )
    return Finding(
        "holes",
        "warning" if holders else "error",
        facts.name,
        name,
        f"{counted(entries, 'unacknowledged entry')} from {facts.position(holes[0].first)} on, "
        f"before {counted(holes[0].acknowledged_behind, 'acknowledged entry')}; {said}"
        + (f"; acknowledged inside batches among them: {counted(in_part, 'message')}" if in_part else ""),
        evidence,
        f"the cursor stays before them, which keeps {counted(kept, 'entry')}, about "
        f"{kept * facts.internal.entry_bytes():,.0f} bytes; if there are more such gaps than the broker stores, "
        "acknowledged messages come again",
        (
            Remedy(
                "have the broker load the topic anew: clients connect again, and what is not acknowledged is delivered "
                "again; it loses nothing",
                f"pulsar-ext admin unload {topic}",
            ),
            skip_remedy(
                facts.name,
                name,
                facts.entries_until(name, holes[-1].last),
                "give these messages up: the cursor goes behind the last of them",
            ),
        ),
    )


def _holders(stats: SubscriptionStats) -> tuple[list[dict[str, Any]], str]:
    """Tell which consumers may hold them, and say so."""
    consumers = stats.raw.get("consumers") or ()
    if not consumers:
        return [], "there is no consumer"
    are_counted = stats.type in _COUNTED_TYPES
    holders = [
        {
            "consumer": one.get("consumerName", ""),
            "address": one.get("address", ""),
            "unacknowledged_messages": one.get("unackedMessages", 0) if are_counted else None,
        }
        for one in consumers
        if not are_counted or one.get("unackedMessages", 0) > 0
    ]
    names = ", ".join(repr(one["consumer"]) for one in holders[:_SHOWN])
    if not holders:
        return [], f"held by none of {counted(len(consumers), 'consumer')}"
    if are_counted:
        return holders, f"held by {names}"
    return holders, f"consumers: {names}"


def _acknowledged_in_part(facts: TopicFacts, name: str, stats: SubscriptionStats) -> int:
    """Count the messages that are acknowledged inside batches that are not, where it can be told; else 0.

    The broker does not show them. But where consumers hold everything that was delivered, the messages that they hold
    are fewer than those of the entries by just as many.
    """
    consumers = stats.raw.get("consumers") or ()
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
