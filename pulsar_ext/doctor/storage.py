"""Finds what a backlog will cost: messages that expire unread, quotas, ledgers that cannot be trimmed (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .findings import Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .facts import TopicFacts

__all__ = ["find_expiring", "find_kept_ledgers", "find_never_compacted", "find_quotas"]


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
