"""The diagnosis: asks the admin API about topics within limits, and applies every rule to what it shows.

It sends reading requests only. What they show of a topic becomes `TopicFacts`, and the rules see these alone.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pulsar_ext.admin import NamespacePolicies
from pulsar_ext.chunks.leftovers import leftovers_among
from pulsar_ext.errors import AdminNotFound, AdminUnauthorized, InvalidUse
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from . import chunked, consumers, keys, readers, storage
from .findings import Diagnosis, DiagnosisLimits, Finding, TopicFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pulsar_ext.admin import EntryMetadata, InternalStats, PulsarAdmin, SchemaInfo, TopicStats
    from pulsar_ext.ids.position import Position


T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 8
_FIXED_REQUESTS = 3
_LOOKS = 2
_BATCHES = 16
"""So many batches of a topic are taken apart."""
_HEADER_BYTES = 600
_NO_SETTINGS: Mapping[str, str] = {}
_NO_POLICIES = NamespacePolicies(None, None, None, None, {}, {})


@dataclass(frozen=True)
class Observation:
    """What was seen of topics.

    Args:
        facts: of each topic and partition.
        left_out: topics that were not looked at, because they would have passed the limit of requests.
        requests: how many requests were sent.
        notes: what could not be looked at, and why.
    """

    facts: tuple[TopicFacts, ...]
    left_out: tuple[str, ...]
    requests: int
    notes: tuple[str, ...]


def has_work(facts: TopicFacts) -> bool:
    """Whether the consumers of a topic have something to do."""
    return any(consumers.is_busy(stats) for _, stats in facts.subscriptions())


def wanted_entries(facts: TopicFacts, most: int) -> list[Position]:
    """Choose the entries to look at: the first unacknowledged ones of each subscription, the last ones of the topic.

    The last ones show how producers count: that matters where nothing is deduplicated, or a producer is not known.
    """
    end = 0 if facts.ledgers.last is None else facts.ledgers.up_to(facts.ledgers.last)
    wanted: dict[Position, None] = {}
    for name, _ in facts.subscriptions():
        room = most - len(wanted)
        if room <= 0:
            break
        wanted |= dict.fromkeys(facts.first_unacknowledged(name, room))
    for name, _ in facts.readers():
        if len(wanted) < most:
            wanted |= dict.fromkeys(facts.first_unacknowledged(name, 1))
    if facts.stats.deduplication_status != "Enabled" or consumers.unremembered(facts):
        wanted |= dict.fromkeys(facts.position(number) for number in range(max(end - most // 2, 0) + 1, end + 1))
    return list(wanted)


def observe(
    admin: PulsarAdmin,
    target: str,
    subscription: str | None = None,
    limits: DiagnosisLimits | None = None,
    tell: Callable[[str], None] = lambda _: None,
    *,
    wanted: Callable[[TopicFacts, int], Sequence[Position]] = wanted_entries,
    watched: Callable[[TopicFacts], bool] = has_work,
) -> Observation:
    """Look at topics, and judge nothing; the first arguments and the errors are those of `examine()`.

    Args:
        admin: see `examine`.
        target: see `examine`.
        subscription: see `examine`.
        limits: see `examine`.
        tell: see `examine`.
        wanted: chooses the entries of a topic to look at, so many at most.
        watched: whether to look at a topic's statistics twice more.
    """
    if subscription is not None and not isinstance(subscription, str):
        raise InvalidUse(f"subscription must be its name or None, not {subscription!r}. Nothing was asked.")
    if limits is not None and not isinstance(limits, DiagnosisLimits):
        raise InvalidUse(f"limits must be DiagnosisLimits(…), MapLimits(…) or None, not {limits!r}. Nothing was asked.")
    asking = _Observer(admin, subscription, limits or DiagnosisLimits(), tell)
    return asking.observe(target, wanted, watched)


class _Observer:
    """Asks for one observation; the arguments are those of `examine()`."""

    def __init__(
        self, admin: PulsarAdmin, subscription: str | None, limits: DiagnosisLimits, tell: Callable[[str], None]
    ) -> None:
        self._admin, self._subscription, self._limits, self._tell = admin, subscription, limits, tell
        self._requests = 0
        self._notes: list[str] = []

    def observe(
        self,
        target: str,
        wanted: Callable[[TopicFacts, int], Sequence[Position]],
        watched: Callable[[TopicFacts], bool],
    ) -> Observation:
        namespace, topics = self._topics(target)
        policies = self._allowed("the policies of the namespace", lambda: self._admin.policies(namespace), _NO_POLICIES)
        settings = self._allowed("the broker's settings", self._admin.broker_configuration, _NO_SETTINGS)
        watches = self._limits.pause_seconds > 0
        each = 2 + (2 * _LOOKS if watches else 0)
        room = max((self._limits.max_requests - _FIXED_REQUESTS) // each, 1)
        topics, left_out = topics[:room], topics[room:]
        self._tell(f"{counted(len(topics), 'topic')}: {2 * len(topics) + _FIXED_REQUESTS} requests for statistics")
        facts = self._first_look(topics, policies, settings)
        if watches:
            facts = self._watch(facts, watched)
        facts = self._look_at_schemas(self._look_at_entries(facts, wanted))
        return Observation(tuple(facts), tuple(left_out), self._requests, tuple(self._notes))

    # -- what there is -----------------------------------------------------------------------------------------------

    def _topics(self, target: str) -> tuple[str, list[str]]:
        """Give the namespace, and the topics and partitions that are meant."""
        self._requests += 1
        if isinstance(target, str) and "://" not in target and target.count("/") == 1:
            TopicName.parse(f"{target}/-")  # refuses a name that cannot be
            return target, list(self._admin.topics(target))
        name = TopicName.parse(target)
        if not name.is_persistent:
            raise InvalidUse(f"{name} is not persistent: it stores nothing, so it has no backlog")
        count = 0 if name.is_partition else self._admin.partitions(name)
        return name.namespace_name, [str(name.partition(index)) for index in range(count)] or [str(name)]

    def _allowed(self, what: str, ask: Callable[[], T], otherwise: T) -> T:
        """Ask for what not everybody may see."""
        self._requests += 1
        try:
            return ask()
        except AdminUnauthorized:
            self._notes.append(
                f"{what} may not be seen with these credentials, so what depends on it was not looked at"
            )
            return otherwise

    def _first_look(
        self, topics: Sequence[str], policies: NamespacePolicies, settings: Mapping[str, str]
    ) -> list[TopicFacts]:
        def look(topic: str) -> TopicFacts | None:
            found = self._statistics(topic)
            now = time.time_ns() // 1_000_000
            if found is None:
                return None
            stats, internal = found
            return TopicFacts(topic, stats, internal, policies, settings, now, self._limits, only=self._subscription)

        self._requests += 2 * len(topics)
        facts = [one for one in self._map(look, topics) if one is not None]
        wanted = self._subscription
        if len(facts) < len(topics):
            self._notes.append(f"deleted meanwhile: {counted(len(topics) - len(facts), 'topic')}")
        if wanted is not None and not any(wanted in one.stats.subscriptions for one in facts):
            raise AdminNotFound(
                f"None of {counted(len(facts), 'topic')} has a subscription {wanted!r}",
                status=None,
                reason="Subscription not found",
                method=None,
                path=topics[0] if topics else "",
            )
        return facts

    def _statistics(self, topic: str) -> tuple[TopicStats, InternalStats] | None:
        try:
            return self._admin.stats(topic), self._admin.internal_stats(topic)
        except AdminNotFound:
            return None

    # -- a while later -----------------------------------------------------------------------------------------------

    def _watch(self, facts: Sequence[TopicFacts], watched: Callable[[TopicFacts], bool]) -> list[TopicFacts]:
        """Look again twice at topics in which something may happen."""
        busy = [one.name for one in facts if watched(one)]
        later: dict[str, list[tuple[TopicStats, InternalStats]]] = {name: [] for name in busy}
        if busy:
            self._tell(
                f"{counted(len(busy), 'topic')} watched for {self._limits.pause_seconds:g} s: "
                f"{2 * _LOOKS * len(busy)} requests"
            )
        for _ in range(_LOOKS if busy else 0):
            time.sleep(self._limits.pause_seconds / _LOOKS)
            self._requests += 2 * len(busy)
            for name, found in zip(busy, self._map(self._statistics, busy), strict=True):
                if found is not None:
                    later[name].append(found)
        return [replace(one, later=later.get(one.name, ())) for one in facts]

    # -- entries -----------------------------------------------------------------------------------------------------

    def _look_at_entries(
        self, facts: Sequence[TopicFacts], wanted: Callable[[TopicFacts, int], Sequence[Position]]
    ) -> list[TopicFacts]:
        left = self._limits.max_requests - self._requests
        most = max(min(int(self._limits.entries), left // (2 * max(len(facts), 1))), 0)
        chosen = [(one, wanted(one, most)) for one in facts]
        count = sum(len(positions) for _, positions in chosen)
        if not count:
            return list(facts)
        self._tell(f"{counted(count, 'entry')}: {counted(count, 'request')}, about {count * _HEADER_BYTES:,} bytes")
        read = self._read([(one.name, position, False) for one, positions in chosen for position in positions])
        facts = [replace(one, entries=read.get(one.name, {})) for one in facts]
        more = [
            *((one.name, position, True) for one in facts for position in _batches(one)),
            *((one.name, position, False) for one in facts for position in _beside_chunks(one)),
        ][: max(self._limits.max_requests - self._requests, 0)]
        if more:
            size = {one.name: one.internal.entry_bytes() for one in facts}
            cost = sum(size[topic] if payload else _HEADER_BYTES for topic, _, payload in more)
            self._tell(f"{counted(len(more), 'entry')} more: {counted(len(more), 'request')}, about {cost:,.0f} bytes")
        found = self._read(more)
        return [replace(one, entries={**one.entries, **found.get(one.name, {})}) for one in facts]

    def _look_at_schemas(self, facts: Sequence[TopicFacts]) -> list[TopicFacts]:
        """Ask for the schemas of topics where entries wait that were looked at."""
        waiting = [one.name for one in facts if any(map(one.waits, one.entries))]
        waiting = waiting[: max(self._limits.max_requests - self._requests, 0)]
        if not waiting:
            return list(facts)
        self._tell(f"schemas of {counted(len(waiting), 'topic')}: {counted(len(waiting), 'request')}")
        self._requests += len(waiting)
        found = dict(zip(waiting, self._map(self._schemas, waiting), strict=True))
        return [replace(one, schemas=found.get(one.name)) for one in facts]

    def _schemas(self, topic: str) -> Mapping[int, SchemaInfo] | None:
        try:
            return self._admin.schemas(topic)
        except (AdminNotFound, AdminUnauthorized):
            return None

    def _read(self, wanted: Sequence[tuple[str, Position, bool]]) -> dict[str, dict[Position, EntryMetadata]]:
        """Read entries; those that are gone are left out."""

        def read(one: tuple[str, Position, bool]) -> EntryMetadata | None:
            topic, position, payload = one
            try:
                return self._admin.entry(topic, position.ledger_id, position.entry_id, payload=payload)
            except AdminNotFound:
                return None

        self._requests += len(wanted)
        found: dict[str, dict[Position, EntryMetadata]] = {}
        for (topic, position, _), entry in zip(wanted, self._map(read, wanted), strict=True):
            if entry is not None:
                found.setdefault(topic, {})[position] = entry
        return found

    def _map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if not items:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
            return list(pool.map(function, items))


def _batches(facts: TopicFacts) -> Iterable[Position]:
    """Choose batches that a Key_Shared subscription waits for."""
    subscriptions = keys.key_shared(facts)
    waiting = [
        position
        for position, one in sorted(facts.entries.items())
        if one.message_count > 1 and keys.waits(facts, position, subscriptions)
    ]
    return waiting[:_BATCHES]


def _beside_chunks(facts: TopicFacts) -> Iterable[Position]:
    """Choose acknowledged entries beside chunks that are not."""
    wanted: dict[Position, None] = {}
    for name, _ in facts.subscriptions():
        chunks = [one for one in chunked.looked_at(facts, name) if one.is_chunk]
        left = leftovers_among(chunks, facts.now_ms)
        for position in (*left.useless, *left.endless):
            wanted |= dict.fromkeys(chunked.neighbours(facts, name, position))
    return [position for position in wanted if position not in facts.entries]


RULES: tuple[Callable[[TopicFacts], Iterator[Finding]], ...] = (
    chunked.find_holes,
    chunked.find_chunks,
    consumers.find_stalled,
    consumers.find_storms,
    keys.find_uncovered_slots,
    keys.find_blocked_slots,
    keys.find_mixed_batches,
    readers.find_unread_letters,
    storage.find_expiring,
    readers.find_readers_behind,
    storage.find_quotas,
    storage.find_kept_ledgers,
    storage.find_never_compacted,
    consumers.find_forsaken,
    consumers.find_duplicates,
    consumers.find_forgotten,
    storage.find_schema_misfits,
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
