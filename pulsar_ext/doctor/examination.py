"""The diagnosis: requests to the admin API within limits, and the rules applied to the answers.

All requests are read-only. The answers for a topic become `TopicFacts`, the only input of the rules.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

from pulsar_ext.admin import EntryMetadata, InternalStats, NamespacePolicies, PulsarAdmin, SchemaInfo, TopicStats
from pulsar_ext.chunks.leftovers import leftovers_among
from pulsar_ext.errors import AdminNotFound, AdminUnauthorized, InvalidUse
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from . import rules
from .broker import missing_settings
from .findings import Diagnosis, DiagnosisLimits, Observation, TopicFacts
from .rules import judge

T = TypeVar("T")
R = TypeVar("R")

_PARALLEL_REQUESTS = 8
_FIXED_REQUESTS = 4
_SAMPLES = 2
_BATCHES = 16
"""Maximum number of a topic's batches whose payload is read."""
_HEADER_BYTES = 600
_NO_SETTINGS: Mapping[str, str] = {}
_NO_POLICIES = NamespacePolicies(None, None, None, None, {}, {})


def has_work(facts: TopicFacts) -> bool:
    """Return True if a subscription of the topic has a consumer and a backlog."""
    return any(stats.consumers and stats.backlog_entries > 0 for _, stats in facts.subscriptions())


def wanted_entries(facts: TopicFacts, limit: int) -> list[Position]:
    """Choose the entries to inspect: each subscription's first unacknowledged ones, and the last ones of the topic.

    The last ones show the producers' sequence ids: they matter without deduplication, or if the broker's snapshot
    lacks a producer.
    """
    end = facts.ledgers.entries
    wanted: dict[Position, None] = {}
    for name, _ in facts.subscriptions():
        room = limit - len(wanted)
        if room <= 0:
            break
        wanted |= dict.fromkeys(facts.first_unacknowledged(name, room))
    for name, _ in facts.readers():
        if len(wanted) < limit:
            wanted |= dict.fromkeys(facts.first_unacknowledged(name, 1))
    if facts.stats.deduplication_status != "Enabled" or rules.producers_missing_from_snapshot(facts):
        wanted |= dict.fromkeys(facts.position(number) for number in range(max(end - limit // 2, 0) + 1, end + 1))
    return list(wanted)


@dataclass
class Observer:
    """Collects the facts about topics, without judging them; the arguments and the errors are those of `examine()`."""

    admin: PulsarAdmin
    subscription: str | None
    limits: DiagnosisLimits
    report: Callable[[str], None]
    wanted: Callable[[TopicFacts, int], Sequence[Position]] = wanted_entries
    watched: Callable[[TopicFacts], bool] = has_work
    requests: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.subscription is not None and not isinstance(self.subscription, str):
            raise InvalidUse(f"subscription must be a name or None, got {self.subscription!r}; no request was sent")
        if not isinstance(self.limits, DiagnosisLimits):
            raise InvalidUse(
                f"limits must be DiagnosisLimits(…), MapLimits(…) or None, got {self.limits!r}; no request was sent"
            )

    def observe(self, target: str) -> Observation:
        """Return the facts about the topics of a namespace, or of a topic's partitions."""
        namespace, topics = self._topics(target)
        policies = self._if_permitted(
            "the policies of the namespace", lambda: self.admin.policies(namespace), _NO_POLICIES
        )
        settings = self._if_permitted("the broker's settings", self.admin.broker_configuration, _NO_SETTINGS)
        version = self._if_permitted("the broker's version", self.admin.broker_version, "")
        missing = missing_settings(settings, is_deduplicated=policies.deduplication)
        watches = self.limits.pause_seconds > 0
        each = 2 + (2 * _SAMPLES if watches else 0)
        fixed = _FIXED_REQUESTS + (namespace == target)
        room = max((self.limits.max_requests - fixed) // each, 1)
        topics, excluded = topics[:room], topics[room:]
        if namespace == target:
            self._note_scalable_topics(namespace, room - len(topics))
        self.report(f"{counted(len(topics), 'topic')}: {2 * len(topics) + fixed} requests for statistics")
        facts = self._first_sample(topics, policies, settings)
        if watches:
            facts = self._watch(facts)
        facts = self._inspect_schemas(self._inspect_entries(facts))
        return Observation(tuple(facts), tuple(excluded), self.requests, tuple(self.notes), version, missing)

    def _topics(self, target: str) -> tuple[str, list[str]]:
        """Return the namespace, and the topics and partitions of a target."""
        self.requests += 1
        if isinstance(target, str) and "://" not in target and target.count("/") == 1:
            TopicName.parse(f"{target}/-")  # raises for an invalid name
            return target, list(self.admin.topics(target))
        name = TopicName.parse(target)
        if not name.is_persistent:
            raise InvalidUse(f"{name} is not persistent, so it has no backlog; name a persistent topic")
        count = 0 if name.is_partition else self.admin.partitions(name)
        return name.namespace_name, list(map(str, name.parts(count)))

    def _note_scalable_topics(self, namespace: str, room: int) -> None:
        """Note the segments and backlogs of Pulsar 5's scalable topics; of at most `room` of them."""
        nothing: tuple[str, ...] = ()
        found = self._if_permitted("the scalable topics", lambda: self.admin.scalable_topics(namespace), nothing)
        for topic, stats in zip(found, self._each(self.admin.scalable_stats, found[:room]), strict=False):
            if stats is not None:
                backlogs = ", ".join(f"{name} {count:,}" for name, count in stats.backlog_messages.items())
                segments = counted(sum(state == "ACTIVE" for state in stats.segments.values()), "active segment")
                backlogs = f"backlog in messages: {backlogs or 'no subscriptions'}"
                self.notes.append(f"not examined, as it is scalable: {topic}, {segments}, {backlogs}")
        if len(found) > room:
            self.notes.append(f"not inspected: {counted(len(found) - room, 'scalable topic')} more")

    def _if_permitted(self, what: str, ask: Callable[[], T], otherwise: T) -> T:
        """Call `ask`, and return `otherwise` with a note if the credentials do not permit it."""
        self.requests += 1
        try:
            return ask()
        except AdminUnauthorized:
            self.notes.append(f"not permitted with these credentials: {what}; the rules that need it were not applied")
            return otherwise

    def _first_sample(
        self, topics: Sequence[str], policies: NamespacePolicies, settings: Mapping[str, str]
    ) -> list[TopicFacts]:
        def sample(topic: str) -> TopicFacts:
            found, now = self._statistics(topic), time.time_ns() // 1_000_000
            return TopicFacts(topic, *found, policies, settings, now, self.limits, only=self.subscription)

        facts = [one for one in self._each(sample, topics, requests=2) if one is not None]
        wanted = self.subscription
        if len(facts) < len(topics):
            self.notes.append(f"deleted during the diagnosis: {counted(len(topics) - len(facts), 'topic')}")
        if wanted is not None and not any(wanted in one.stats.subscriptions for one in facts):
            raise AdminNotFound(
                f"subscription {wanted!r} not found on {counted(len(facts), 'topic')}",
                status=None,
                reason="Subscription not found",
                method=None,
                path=topics[0] if topics else "",
            )
        return facts

    def _statistics(self, topic: str) -> tuple[TopicStats, InternalStats]:
        return self.admin.stats(topic), self.admin.internal_stats(topic)

    def _watch(self, facts: Sequence[TopicFacts]) -> list[TopicFacts]:
        """Sample the statistics of busy topics twice more."""
        busy = [one.name for one in facts if self.watched(one)]
        later: dict[str, list[tuple[TopicStats, InternalStats]]] = {name: [] for name in busy}
        if busy:
            self.report(
                f"{counted(len(busy), 'topic')} watched during {self.limits.pause_seconds:g} s: "
                f"{2 * _SAMPLES * len(busy)} requests"
            )
        for _ in range(_SAMPLES if busy else 0):
            time.sleep(self.limits.pause_seconds / _SAMPLES)
            for name, found in zip(busy, self._each(self._statistics, busy, requests=2), strict=True):
                if found is not None:
                    later[name].append(found)
        return [replace(one, later=later.get(one.name, ())) for one in facts]

    def _inspect_entries(self, facts: Sequence[TopicFacts]) -> list[TopicFacts]:
        remaining = self.limits.max_requests - self.requests
        limit = max(min(int(self.limits.entries), remaining // (2 * max(len(facts), 1))), 0)
        chosen = [(one, self.wanted(one, limit)) for one in facts]
        count = sum(len(positions) for _, positions in chosen)
        if not count:
            return list(facts)
        self.report(f"{counted(count, 'entry')}: {counted(count, 'request')}, about {count * _HEADER_BYTES:,} bytes")
        read = self._read([(one.name, position, False) for one, positions in chosen for position in positions])
        facts = [replace(one, entries=read.get(one.name, {})) for one in facts]
        more = [
            *((one.name, position, True) for one in facts for position in _batches(one)),
            *((one.name, position, False) for one in facts for position in _neighbours_of_chunks(one)),
        ][: max(self.limits.max_requests - self.requests, 0)]
        if more:
            size = {one.name: one.internal.entry_bytes() for one in facts}
            cost = sum(size[topic] if payload else _HEADER_BYTES for topic, _, payload in more)
            self.report(f"{counted(len(more), 'entry')} more: {counted(len(more), 'request')}, about {cost:,.0f} bytes")
        found = self._read(more)
        return [replace(one, entries={**one.entries, **found.get(one.name, {})}) for one in facts]

    def _inspect_schemas(self, facts: Sequence[TopicFacts]) -> list[TopicFacts]:
        """Read the schemas of topics with inspected entries in a backlog."""
        waiting = [one.name for one in facts if any(map(one.is_unacknowledged, one.entries))]
        waiting = waiting[: max(self.limits.max_requests - self.requests, 0)]
        if not waiting:
            return list(facts)
        self.report(f"schemas of {counted(len(waiting), 'topic')}: {counted(len(waiting), 'request')}")
        found = dict(zip(waiting, self._each(self._schemas, waiting), strict=True))
        return [replace(one, schemas=found.get(one.name)) for one in facts]

    def _schemas(self, topic: str) -> Mapping[int, SchemaInfo] | None:
        with contextlib.suppress(AdminUnauthorized):
            return self.admin.schemas(topic)
        return None

    def _read(self, wanted: Sequence[tuple[str, Position, bool]]) -> dict[str, dict[Position, EntryMetadata]]:
        """Read entries; those that no longer exist are omitted."""

        def read(one: tuple[str, Position, bool]) -> EntryMetadata:
            topic, position, payload = one
            return self.admin.entry(topic, position.ledger_id, position.entry_id, payload=payload)

        found: dict[str, dict[Position, EntryMetadata]] = {}
        for (topic, position, _), entry in zip(wanted, self._each(read, wanted), strict=True):
            if entry is not None:
                found.setdefault(topic, {})[position] = entry
        return found

    def _each(self, ask: Callable[[T], R], items: Sequence[T], requests: int = 1) -> list[R | None]:
        """Ask about all items at once, with these requests for each; None for an item that no longer exists."""

        def ask_if_exists(item: T) -> R | None:
            with contextlib.suppress(AdminNotFound):
                return ask(item)
            return None

        self.requests += requests * len(items)
        with ThreadPoolExecutor(min(_PARALLEL_REQUESTS, len(items)) or 1) as pool:
            return list(pool.map(ask_if_exists, items))


def _batches(facts: TopicFacts) -> Iterable[Position]:
    """Choose batches in the backlog of a Key_Shared subscription."""
    waiting = (
        position
        for position, one in sorted(facts.entries.items())
        if one.message_count > 1 and facts.is_unacknowledged(position, rules.KEY_SHARED)
    )
    return islice(waiting, _BATCHES)


def _neighbours_of_chunks(facts: TopicFacts) -> Iterable[Position]:
    """Choose acknowledged entries next to unacknowledged chunks."""
    wanted: dict[Position, None] = {}
    for name, _ in facts.subscriptions():
        chunks = [one for one in rules.inspected_entries(facts, name) if one.is_chunk]
        left = leftovers_among(chunks, facts.now_ms)
        for position in (*left.useless, *left.endless):
            wanted |= dict.fromkeys(rules.neighbours(facts, name, position))
    return [position for position in wanted if position not in facts.entries]


def examine(
    admin: PulsarAdmin,
    target: str,
    subscription: str | None = None,
    limits: DiagnosisLimits | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Diagnose a namespace or a topic."""
    chosen = DiagnosisLimits() if limits is None else limits
    return judge(Observer(admin, subscription, chosen, report).observe(target))
