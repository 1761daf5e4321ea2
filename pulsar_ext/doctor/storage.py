"""Rules for stored messages: near expiry, over a quota, kept, unread, of missing schema versions (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pulsar_ext.admin import EntryMetadata, Retention
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .findings import SHOWN, Finding, Remedy, TopicFacts, command, more_than_shown, raw_consumers

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
