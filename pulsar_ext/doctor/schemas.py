"""Finds messages that wait and whose schema version does not fit: they have none, or one that is gone (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pulsar_ext.ids.topic_name import TopicName

from .findings import Finding, Remedy, skip_remedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pulsar_ext.admin import EntryMetadata
    from pulsar_ext.ids.position import Position

    from .facts import TopicFacts

__all__ = ["find_schema_misfits", "version_of"]

_SHOWN = 10


def version_of(entry: EntryMetadata) -> int | None:
    """Give the version of the topic's schema that an entry was sent with; None if it was sent without."""
    return int.from_bytes(entry.schema_version, "big") if entry.schema_version else None


def find_schema_misfits(facts: TopicFacts) -> Iterator[Finding]:
    """Find, among the entries that were looked at and that wait, those that no version of the schema is for."""
    if facts.schemas is None:
        return
    without: list[Position] = []
    gone: dict[Position, int] = {}
    for position, one in sorted(facts.entries.items()):
        version = version_of(one)
        if one.marker_type is not None or not facts.waits(position):
            continue
        if version is None and facts.schemas:
            without.append(position)
        elif version is not None and version not in facts.schemas:
            gone[position] = version
    if without or gone:
        yield _finding(facts, without, gone)


def _finding(facts: TopicFacts, without: Sequence[Position], gone: Mapping[Position, int]) -> Finding:
    schemas = facts.schemas or {}
    said = [f"{len(gone)} of versions that are gone" if gone else "", f"{len(without)} of none" if without else ""]
    misfits = sorted({*without, *gone})
    namespace = shlex.quote(TopicName.parse(facts.name).namespace_name)
    remedies = [
        Remedy(
            "read them with a consumer without a schema, or, where their version is gone, with one that has their "
            "schema and asks for none, as Python's do"
        )
    ]
    if without:
        remedies.append(
            Remedy(
                "have the broker refuse producers without a schema where there is one, from now on",
                f"pulsar-ext admin set-schema-validation-enforced {namespace} true",
            )
        )
    remedies += (
        skip_remedy(
            facts.name,
            name,
            facts.entries_until(name, facts.number_of(last)),
            "give everything up to the last of them up, on this subscription",
        )
        for name, last in _last_for_each(facts, misfits).items()
    )
    return Finding(
        "schema-misfits",
        "error" if gone else "warning",
        facts.name,
        "",
        f"of the entries that wait and were looked at, {' and '.join(one for one in said if one)}: the topic has a "
        f"schema in versions {', '.join(map(str, sorted(schemas))) or 'no more'}",
        {
            "versions": {str(version): one.type for version, one in sorted(schemas.items())},
            "gone": {str(position): version for position, version in list(gone.items())[:_SHOWN]},
            "without": list(map(str, without[:_SHOWN])),
            "more": max(len(gone) - _SHOWN, 0) + max(len(without) - _SHOWN, 0),
            "producers": sorted({facts.entries[position].producer_name for position in misfits}),
        },
        "consumers with a schema cannot read them: in Java, and wherever the version is asked for, a receive fails",
        tuple(remedies),
    )


def _last_for_each(facts: TopicFacts, misfits: Sequence[Position]) -> dict[str, Position]:
    """Give the last of them that each subscription waits for."""
    return {
        name: position
        for name, _ in facts.subscriptions()
        for position in misfits
        if not facts.internal.cursors[name].acknowledges(position)
    }
