"""Finds what was sent twice, or will be taken for it: sequence ids of named producers (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pulsar_ext.ids.topic_name import TopicName

from .findings import Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext.ids.position import Position

    from .facts import TopicFacts

__all__ = ["find_duplicates", "find_forgotten", "unremembered"]

_SHOWN = 10
_SNAPSHOT = "pulsar.dedup"
"""The cursor whose position and properties are the broker's snapshot of sequence ids."""


def unremembered(facts: TopicFacts) -> list[str]:
    """Name the connected producers that the broker's snapshot of sequence ids does not have; none if it has none."""
    cursor = facts.internal.cursors.get(_SNAPSHOT)
    if facts.stats.deduplication_status != "Enabled" or cursor is None:
        return []
    remembered = cursor.raw.get("properties") or {}
    return sorted(set(facts.stats.publishers) - set(remembered))


def find_forgotten(facts: TopicFacts) -> Iterator[Finding]:
    """Find connected producers that deduplication has forgotten.

    What a broker knows of a name is in its snapshot, or in entries behind it, which it reads when it loads the topic.
    Looks at the entries that were looked at, those at the end of the topic among them.
    """
    names = {name.encode("latin-1", "replace").decode("latin-1"): name for name in unremembered(facts)}
    last = {names[one.producer_name]: one for _, one in sorted(facts.entries.items()) if one.producer_name in names}
    snapshot = facts.internal.cursors[_SNAPSHOT] if last else None
    if snapshot is None:
        return
    forgotten = {name: one for name, one in sorted(last.items()) if one.position <= snapshot.mark_delete_position}
    if not forgotten:
        return
    kept, most = (
        len(snapshot.raw.get("properties") or {}),
        facts.settings.get("brokerDeduplicationMaxNumberOfProducers"),
    )
    sequence_ids = {name: max(one.highest_sequence_id or 0, one.sequence_id) for name, one in forgotten.items()}
    name, sequence_id = next(iter(sequence_ids.items()))
    yield Finding(
        "forgotten-producers",
        "warning",
        facts.name,
        "",
        f"deduplication is on, but the broker would know no sequence id of {len(forgotten)} connected producers that "
        f"have sent, {', '.join(map(repr, forgotten))}: its snapshot has none, nor has an entry behind the snapshot",
        {
            "producers": {
                one: {"last_entry": str(entry.position), "sequence_id": sequence_ids[one]}
                for one, entry in list(forgotten.items())[:_SHOWN]
            },
            "more": max(len(forgotten) - _SHOWN, 0),
            "snapshot": str(snapshot.mark_delete_position),
            "producers_in_snapshot": kept,
            "most_in_snapshot": most,
            "forgotten_after_minutes": facts.settings.get("brokerDeduplicationProducerInactivityTimeoutMinutes"),
        },
        "once the topic is loaded anew, if it was not since, what they send again is stored twice",
        (
            Remedy(
                f"close each, and go on behind its last message under a new name: for {name!r} behind the sequence id "
                f"{sequence_id}, with `create_producer(…, producer_name=…, deduplication=True)`, which refuses a name "
                "that was forgotten",
            ),
            Remedy(
                "have the broker remember more producers, or for longer, in broker.conf: "
                "brokerDeduplicationMaxNumberOfProducers, brokerDeduplicationProducerInactivityTimeoutMinutes"
            ),
        ),
    )


def find_duplicates(facts: TopicFacts) -> Iterator[Finding]:
    """Find, without deduplication, entries of one producer name whose sequence ids come again or go backwards.

    Looks at the entries that were looked at, those at the end of the topic among them.
    """
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
    namespace = shlex.quote(TopicName.parse(facts.name).namespace_name)
    yield Finding(
        "sequence-ids",
        "warning",
        facts.name,
        "",
        f"deduplication is off; of {len(facts.entries):,} entries that were looked at, {len(again)} repeat the "
        f"sequence id of an earlier one of the same producer, and the ids of {len(back)} go backwards; "
        f"{', '.join(map(repr, sorted(producers)))} sent messages again, or began to count anew",
        {
            "producers": sorted(producers),
            "again": [[str(first), str(second)] for first, second in again[:_SHOWN]],
            "backwards": [{"entry": str(at), "after": before, "sequence_id": now} for at, before, now in back[:_SHOWN]],
            "more": max(len(again) - _SHOWN, 0) + max(len(back) - _SHOWN, 0),
            "deduplication": facts.stats.deduplication_status,
        },
        "consumers get what was sent again twice; and where deduplication is switched on, ids that go backwards are "
        "dropped: have the producers go on with theirs first",
        (
            Remedy(
                "have the broker drop what comes twice, and open the producers with `deduplication=True`",
                f"pulsar-ext admin set-deduplication {namespace} true",
            ),
        ),
    )
