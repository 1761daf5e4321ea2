"""The diagnosis: what was observed of topics, and every rule that finds something in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import chunked, consumers, holes, keys, letters, producers, readers, schemas, storage
from .findings import Diagnosis, Finding
from .observation import observe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.admin import PulsarAdmin

    from .facts import DiagnosisLimits, TopicFacts
    from .observation import Observation

__all__ = ["RULES", "examine", "judge"]

RULES: tuple[Callable[[TopicFacts], Iterator[Finding]], ...] = (
    holes.find_holes,
    chunked.find_chunks,
    consumers.find_stalled,
    consumers.find_storms,
    keys.find_uncovered_slots,
    keys.find_blocked_slots,
    keys.find_mixed_batches,
    letters.find_unread_letters,
    storage.find_expiring,
    readers.find_readers_behind,
    storage.find_quotas,
    storage.find_kept_ledgers,
    storage.find_never_compacted,
    consumers.find_forsaken,
    producers.find_duplicates,
    producers.find_forgotten,
    schemas.find_schema_misfits,
)


def examine(
    admin: PulsarAdmin,
    target: str,
    subscription: str | None = None,
    limits: DiagnosisLimits | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Look at a namespace or a topic.

    Args:
        admin: the admin API; only read from.
        target: `tenant/namespace`, or a topic with or without partitions.
        subscription: the one to look at; all by default.
        limits: what is a finding, and what finding it may cost.
        tell: is called with what is about to be asked for, and what that costs.

    Raises:
        InvalidUse: the target is neither.
        AdminNotFound: no such namespace or topic, or none of its topics has the subscription.
        AdminError: the admin API refused or did not answer.
    """
    return judge(observe(admin, target, subscription, limits, tell))


def judge(seen: Observation) -> Diagnosis:
    """Say what is wrong with what was seen (pure)."""
    found = [finding for one in seen.facts for rule in RULES for finding in rule(one)]
    found.sort(key=lambda one: one.severity != "error")
    return Diagnosis(tuple(found), len(seen.facts), seen.left_out, seen.requests, seen.notes)
