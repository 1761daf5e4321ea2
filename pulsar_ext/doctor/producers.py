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

__all__ = ["find_duplicates"]

_SHOWN = 10


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
        f"deduplication is off, and of {len(facts.entries):,} entries that were looked at {len(again)} have the "
        f"sequence id of an earlier one of the same producer, and {len(back)} one that goes backwards; they were sent "
        "again, or by producers that began to count anew, of the name "
        f"{', '.join(map(repr, sorted(producers)))}",
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
                f"pulsar-admin namespaces set-deduplication --enable {namespace}",
            ),
        ),
    )
