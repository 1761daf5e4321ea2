"""Builders of a topic's facts for the tests of the doctor."""

from __future__ import annotations

from pulsar_ext.admin import EntryMetadata, InternalStats, NamespacePolicies, TopicStats
from pulsar_ext.doctor.findings import DiagnosisLimits, TopicFacts
from pulsar_ext.ids.position import Position

TOPIC = "persistent://public/default/t"
NOW = 1_000_000_000


def internal_of(ledgers, cursors):
    """Return internal statistics from `(id, entries)` of ledgers and `(mark, ranges, read)` of cursors, as texts."""
    *_, (last, open_entries) = ledgers
    return InternalStats.from_json(
        {
            "ledgers": [
                {"ledgerId": one, "entries": 0 if one == last else count, "size": 10 * count} for one, count in ledgers
            ],
            "lastConfirmedEntry": f"{last}:{open_entries - 1}",
            "currentLedgerEntries": open_entries,
            "currentLedgerSize": 10 * open_entries,
            "numberOfEntries": sum(count for _, count in ledgers),
            "totalSize": 10 * sum(count for _, count in ledgers),
            "cursors": {
                name: {
                    "markDeletePosition": mark,
                    "individuallyDeletedMessages": ranges,
                    "readPosition": read or f"{last}:{open_entries}",
                }
                for name, (mark, ranges, read) in cursors.items()
            },
        }
    )


def subscription_of(kind="Shared", backlog=1, consumers=(), **more):
    """Return statistics of a subscription; a consumer is a dict of its statistics except the name."""
    named = [
        {"consumerName": f"c{at}", "address": "/10.0.0.1:5", "availablePermits": 100, **one}
        for at, one in enumerate(consumers)
    ]
    return {"type": kind, "msgBacklog": backlog, "isDurable": True, "consumers": named, **more}


def facts_of(ledgers, cursors, subscriptions=None, *, entries=(), later=(), policies=None, name=TOPIC, **more):
    """Return facts; what is not passed is as in a healthy topic."""
    limits = {"hole_distance": 3, **more.pop("limits", {})}
    only = more.pop("only", None)
    subscriptions = subscriptions if subscriptions is not None else {one: subscription_of() for one in cursors}
    return TopicFacts(
        name,
        TopicStats.from_json({"subscriptions": subscriptions, **more}),
        internal_of(ledgers, cursors),
        NamespacePolicies.from_json(policies or {}),
        {},
        NOW,
        DiagnosisLimits(**limits),
        entries={one.position: one for one in entries},
        later=later,
        only=only,
    )


def entry_of(ledger, entry, **more):
    """Return the headers of an entry that was published an hour ago."""
    return EntryMetadata(
        Position(ledger, entry),
        **{"producer_name": "p", "sequence_id": entry, "publish_time": NOW - 3_600_000, **more},
    )
