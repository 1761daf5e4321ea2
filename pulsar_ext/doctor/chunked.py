"""Finds chunks in a backlog that are no message any more: acknowledged in part, or never complete (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext.chunks.leftovers import leftovers_among
from pulsar_ext.ids.text import counted

from .findings import Finding, Remedy, skip_remedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.admin import EntryMetadata
    from pulsar_ext.ids.position import Position

    from .facts import TopicFacts

__all__ = ["find_chunks", "looked_at", "neighbours"]

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
