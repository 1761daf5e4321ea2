"""Finds what is wrong with stored messages: they expire, exceed quotas, keep ledgers, lack a schema (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .findings import Finding, Remedy, TopicFacts, skip_remedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pulsar_ext.admin import EntryMetadata


def find_expiring(facts: TopicFacts) -> Iterator[Finding]:
    """Find messages that nobody has acknowledged and that the time to live of their namespace will drop soon."""
    seconds = facts.policies.message_ttl_seconds or 0
    namespace = TopicName.parse(facts.name).namespace_name
    for name, stats in facts.subscriptions() if seconds else ():
        positions = facts.first_unacknowledged(name, 1)
        entry = facts.entries.get(positions[0]) if positions else None
        age = 0.0 if entry is None else facts.seconds_since(entry.publish_time)
        if entry is None or age < seconds * facts.limits.quota_share:
            continue
        expired = stats.raw.get("totalMsgExpired", 0)
        yield Finding(
            "expiring",
            "error" if expired else "warning",
            facts.name,
            name,
            f"the oldest message that is not acknowledged is {age:,.0f} s old, and the time to live is {seconds:,} s"
            + (f"; dropped already: {counted(expired, 'message')}" if expired else ""),
            {
                "oldest": str(entry.position),
                "age_seconds": round(age, 1),
                "ttl_seconds": seconds,
                "expired_messages": expired,
                "backlog_entries": stats.backlog_entries,
            },
            "the broker acknowledges these messages by itself: nobody will have read them",
            (
                Remedy(
                    "give the consumers more time",
                    f"pulsar-ext admin set-message-ttl {shlex.quote(namespace)} {max(seconds * 10, round(age * 10))}",
                ),
            ),
        )


def find_quotas(facts: TopicFacts) -> Iterator[Finding]:
    """Find a topic whose backlog is near a quota, or above."""
    namespace = shlex.quote(TopicName.parse(facts.name).namespace_name)
    raw = facts.stats.raw
    kinds = (
        ("destination_storage", facts.stats.backlog_size, raw.get("backlogQuotaLimitSize", -1), "bytes"),
        (
            "message_age",
            raw.get("oldestBacklogMessageAgeSeconds", -1),
            raw.get("backlogQuotaLimitTime", -1),
            "seconds",
        ),
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
        evicts = policy == "consumer_backlog_eviction"
        yield Finding(
            "quota",
            "error" if used >= limit else "warning",
            facts.name,
            slowest,
            f"the backlog has used {used / limit:.0%} of its quota, {used:,} of {limit:,} {unit}; "
            f"{slowest!r} is the furthest behind",
            {"kind": kind, "used": used, "limit": limit, "unit": unit, "policy": policy, "slowest": slowest},
            "the broker skips the oldest messages of the backlog, unread"
            if evicts
            else "the broker lets nobody publish any more",
            (
                Remedy(
                    "raise the quota until the consumers are done",
                    f"pulsar-ext admin set-backlog-quota {namespace} --kind {kind} "
                    f"--limit-{unit} {max(used, limit) * 4} --policy {policy}",
                ),
            ),
        )


def find_kept_ledgers(facts: TopicFacts) -> Iterator[Finding]:
    """Find a subscription that alone keeps ledgers from being deleted which all others are done with."""
    cursors = facts.internal.cursors
    behind = sorted(
        (cursors[name].mark_delete_position, name)
        for name, stats in facts.stats.subscriptions.items()
        if stats.durable and name in cursors
    )
    if not behind or behind[0][1] not in dict(facts.subscriptions()):
        return
    mark, name = behind[0]
    done = behind[1][0] if len(behind) > 1 else facts.internal.last_confirmed_entry
    # Full ledgers only: the last one is being written to.
    full = [one for one in facts.internal.ledgers[:-1] if one.entries]
    kept = [one for one in full if mark < Position(one.ledger_id, one.entries - 1) <= done]
    if len(kept) < facts.limits.kept_ledgers:
        return
    size = sum(one.size for one in kept)
    topic, subscription = shlex.quote(facts.name), shlex.quote(name)
    others = [other for _, other in behind[1:]]
    yield Finding(
        "kept-ledgers",
        "warning",
        facts.name,
        name,
        f"kept for this subscription alone: {counted(len(kept), 'full ledger')}, {counted(size, 'byte')}"
        + (f", which {counted(len(others), 'other')} acknowledged" if others else ""),
        {
            "ledgers": [one.ledger_id for one in kept],
            "bytes": size,
            "mark_delete": str(mark),
            "backlog_entries": sum(run.entries for run in facts.runs[name]),
            "other_subscriptions": len(others),
        },
        "no ledger from the first of them on can be deleted, whatever the retention, and their number grows",
        (
            Remedy("have its consumers acknowledge what they are done with; with holes, mend these first"),
            Remedy(
                "delete the subscription, if nobody needs it: what it has not read is lost to it",
                f"pulsar-ext admin delete-subscription {topic} {subscription}",
            ),
        ),
    )


def find_never_compacted(facts: TopicFacts) -> Iterator[Finding]:
    """Find a topic above its namespace's threshold of compaction of which no compaction has succeeded."""
    threshold = facts.policies.raw.get("compaction_threshold") or 0
    compaction = facts.stats.raw.get("compaction") or {}
    stored = facts.internal.total_size
    if not 0 < threshold < stored or compaction.get("lastCompactionSucceedTimestamp"):
        return
    failed = compaction.get("lastCompactionFailedTimestamp", 0)
    yield Finding(
        "never-compacted",
        "warning",
        facts.name,
        "",
        f"{stored:,} bytes are stored, above the threshold of compaction, {threshold:,}, and none has succeeded since "
        "the broker loaded the topic" + ("; the last one failed" if failed else ""),
        {"bytes": stored, "threshold": threshold, "last_failed_ms": failed or None},
        "readers of the compacted topic read every message of each key, and each of their starts takes longer",
        (
            Remedy(
                "compact it now; if it failed, the broker's log says why",
                f"pulsar-ext admin compact {shlex.quote(facts.name)}",
            ),
        ),
    )


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
