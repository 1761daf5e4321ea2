"""Finds dead letters and messages to retry that nobody will ever read (pure)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .findings import Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .facts import TopicFacts

__all__ = ["find_unread_letters"]

_KINDS = {"-DLQ": "dead letters", "-RETRY": "messages to retry"}


def find_unread_letters(facts: TopicFacts) -> Iterator[Finding]:
    """Find a dead letter or retry topic, known by the ends of the clients' own names, without a subscription."""
    name = TopicName.parse(facts.name).parent.name
    what = next((what for end, what in _KINDS.items() if name.endswith(end)), None)
    stored, came = facts.internal.number_of_entries, facts.stats.messages_in
    if what is None or not max(stored, came) or facts.stats.subscriptions:
        return
    retention = facts.policies.retention
    kept = retention is not None and retention.minutes != 0 and retention.size_mib != 0
    yield Finding(
        "unread-letters",
        "warning" if kept else "error",
        facts.name,
        "",
        f"{what} come here, and no subscription keeps them: stored are {counted(stored, 'entry')}",
        {
            "entries": stored,
            "messages_since_load": came,
            "retention_minutes": None if retention is None else retention.minutes,
        },
        "they are deleted when the retention is over"
        if kept
        else "they are deleted with the ledger that they are in: without retention, soon after the next one is begun",
        (
            Remedy(
                "keep what is there and what comes, and read it",
                f"pulsar-ext admin create-subscription {shlex.quote(facts.name)} letters earliest",
            ),
            Remedy(
                "for new topics, have the dead letter policy create the subscription: "
                "`pulsar.ConsumerDeadLetterPolicy(…, initial_subscription_name=…)`"
            ),
        ),
    )
