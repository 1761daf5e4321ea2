"""Rules for readers that will lose messages, and for dead letters without a subscription (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_ext.admin import Retention
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .findings import Finding, Remedy, TopicFacts, command, raw_consumers

_MIB = 1024 * 1024
_MORE = 10
"""Factor between the retention that is needed now and the one that is proposed."""
_NONE = Retention(0, 0)
_UNLIMITED = -1


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
    retention = _retention(facts)
    for name, _ in facts.readers():
        unread = facts.entries_until(name, end)
        oldest = facts.entries.get(facts.position(facts.runs[name][0].first)) if unread else None
        age = 0.0 if oldest is None else facts.seconds_since(oldest.publish_time)
        used = _used(retention, age, facts.internal.total_size)
        if unread and used >= facts.limits.quota_share:
            yield _finding(facts, name, unread, age, used, retention)


def _retention(facts: TopicFacts) -> Retention:
    """Return the namespace's retention, or the broker's default."""
    defaults = (facts.settings.get(f"defaultRetention{what}") for what in ("TimeInMinutes", "SizeInMB"))
    return facts.policies.retention or Retention(*(int(one or 0) for one in defaults))


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


def _finding(facts: TopicFacts, name: str, unread: int, age: float, used: float, retention: Retention) -> Finding:
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
