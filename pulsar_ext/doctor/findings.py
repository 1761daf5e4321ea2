"""Facts of one topic and its cursors, in entry numbers, and the parts of a diagnosis: findings and remedies (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, field, fields
from itertools import chain, islice
from typing import Any, Literal, TypedDict

from pulsar_ext.admin import (
    CursorInfo,
    EntryMetadata,
    InternalStats,
    NamespacePolicies,
    SchemaInfo,
    SubscriptionStats,
    TopicStats,
)
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName

from .broker import MissingSetting

_COMPACTION = "__compaction"

SHOWN = 10
"""Maximum number of places of one kind in the evidence of a finding."""


def more_than_shown(*places: Sized) -> int:
    """Return the number of places that are not in the evidence."""
    return sum(max(len(one) - SHOWN, 0) for one in places)


class RawConsumer(TypedDict, total=False):
    """Statistics of a consumer as the broker sends them; it omits some of them."""

    consumerName: str
    address: str
    availablePermits: int
    unackedMessages: int
    msgOutCounter: int
    blockedConsumerOnUnackedMsgs: bool
    lastAckedTimestamp: int
    lastConsumedTimestamp: int
    lastConsumedFlowTimestamp: int
    firstConsumedFlowTimestamp: int
    drainingHashes: list[dict[str, int]] | None


def raw_consumers(stats: SubscriptionStats) -> Sequence[RawConsumer]:
    """Return the consumers of a subscription."""
    found: Sequence[RawConsumer] = stats.raw.get("consumers") or ()
    return found


@dataclass(frozen=True, slots=True)
class DiagnosisLimits:
    """Thresholds of findings, and limits of the requests of a diagnosis.

    Args:
        hole_distance: Number of acknowledged entries after an unacknowledged one that make it a hole.
        patience_seconds: Seconds that an entry may be unacknowledged, a consumer idle or a chunked message incomplete
            before it is a finding.
        quota_share: Share of a quota or a time to live that may be used up before it is a finding, from 0 to 1.
        kept_ledgers: Number of full ledgers kept by one subscription alone that is a finding.
        entries: Maximum number of entries to inspect per topic. Each takes a request.
        pause_seconds: Seconds to watch for repeated deliveries. 0 disables the watch.
        max_requests: Maximum number of requests.

    Raises:
        InvalidUse: a value is negative, or the share is above 1.
    """

    hole_distance: int = 100
    patience_seconds: float = 60.0
    quota_share: float = 0.8
    kept_ledgers: int = 2
    entries: int = 100
    pause_seconds: float = 2.0
    max_requests: int = 5_000

    def __post_init__(self) -> None:
        least = {"hole_distance": 1, "kept_ledgers": 1, "max_requests": 10}
        for name in (one.name for one in fields(self)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least.get(name, 0):
                raise InvalidUse(f"{name} must be a number >= {least.get(name, 0)}, got {value!r}")
        if self.quota_share > 1:
            raise InvalidUse(f"quota_share must be a share from 0 to 1, got {self.quota_share!r}")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive unacknowledged entries, by their 1-based numbers in the topic."""

    first: int
    last: int
    acknowledged_after: int
    """Number of acknowledged entries after the run."""

    @property
    def entries(self) -> int:
        """Number of entries in the run."""
        return self.last - self.first + 1


def unacknowledged_runs(ledgers: Ledgers, cursor: CursorInfo) -> list[Run]:
    """Return the runs of unacknowledged entries of a cursor in order; the time is linear in its ranges."""
    found = list(ledgers.unacknowledged(cursor.mark_delete_position, cursor.individually_deleted))
    runs, waiting = [], 0
    for first, last in reversed(found):
        runs.append(Run(first, last, ledgers.entries - last - waiting))
        waiting += last - first + 1
    return runs[::-1]


@dataclass(frozen=True)
class TopicFacts:
    """Facts that the admin API shows of one topic or partition."""

    name: str
    stats: TopicStats
    internal: InternalStats
    policies: NamespacePolicies
    settings: Mapping[str, str]  # of the broker; empty if not permitted
    now_ms: int  # time of the statistics
    limits: DiagnosisLimits
    entries: Mapping[Position, EntryMetadata] = field(default_factory=dict)  # headers of the inspected entries
    later: Sequence[tuple[TopicStats, InternalStats]] = ()  # later samples, if the topic was watched
    only: str | None = None  # the only subscription to inspect
    schemas: Mapping[int, SchemaInfo] | None = None  # existing versions; None if not requested
    ledgers: Ledgers = field(init=False, repr=False, compare=False)
    runs: Mapping[str, Sequence[Run]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ledgers = Ledgers(self.internal.ledger_sizes())
        runs = {name: unacknowledged_runs(ledgers, cursor) for name, cursor in self.internal.cursors.items()}
        object.__setattr__(self, "ledgers", ledgers)
        object.__setattr__(self, "runs", runs)

    def subscriptions(self, kind: str | None = None) -> Iterator[tuple[str, SubscriptionStats]]:
        """Yield each durable subscription to inspect, of one type or of all, that both requests' statistics have."""
        for name, stats in self.stats.subscriptions.items():
            asked = name == self.only if self.only is not None else name != _COMPACTION
            if asked and name in self.internal.cursors and stats.durable and kind in (None, stats.type):
                yield name, stats

    def readers(self) -> Iterator[tuple[str, SubscriptionStats]]:
        """Yield each reader to inspect, by the name of its cursor."""
        for name, stats in self.stats.subscriptions.items():
            if self.only in (None, name) and name in self.internal.cursors and not stats.durable:
                yield name, stats

    def is_unacknowledged(self, position: Position, kind: str | None = None) -> bool:
        """Return True if an inspected subscription, of one type or of any, has not acknowledged an entry."""
        return any(not self.internal.cursors[name].acknowledges(position) for name, _ in self.subscriptions(kind))

    def position(self, number: int) -> Position:
        """Return the position of the entry with a number."""
        return self.ledgers[number]

    def first_unacknowledged(self, subscription: str, limit: int) -> list[Position]:
        """Return the first unacknowledged entries of a subscription in order, at most `limit`."""
        numbers = chain.from_iterable(range(run.first, run.last + 1) for run in self.runs[subscription])
        return list(map(self.position, islice(numbers, max(int(limit), 0))))

    def number_of(self, position: Position) -> int:
        """Return the 1-based number of an entry."""
        return self.ledgers.up_to(position)

    def read_until(self, subscription: str) -> int:
        """Return the number of the last entry read for a subscription, which may have been delivered."""
        ledger_id, entry_id = self.internal.cursors[subscription].read_position
        return self.ledgers.up_to(Position(ledger_id, entry_id - 1))

    def entries_until(self, subscription: str, number: int) -> int:
        """Return the number of unacknowledged entries of a subscription up to and including an entry number."""
        return sum(min(run.last, number) - run.first + 1 for run in self.runs[subscription] if run.first <= number)

    def seconds_since(self, milliseconds: float) -> float:
        """Return the seconds since a timestamp in milliseconds; infinity for a timestamp of 0."""
        return float("inf") if milliseconds <= 0 else max(self.now_ms - milliseconds, 0) / 1000

    @property
    def namespace(self) -> str:
        """Namespace of the topic."""
        return TopicName.parse(self.name).namespace_name

    def finding(
        self,
        kind: str,
        severity: Severity,
        subscription: str,
        what: str,
        evidence: Mapping[str, object],
        otherwise: str,
        *remedies: Remedy,
    ) -> Finding:
        """Return a finding about the topic, or about a subscription that is not empty."""
        return Finding(kind, severity, self.name, subscription, what, evidence, otherwise, remedies)

    def skip_remedy(self, subscription: str, entries: int, what: str) -> Remedy:
        """Return the remedy that moves a cursor past entries."""
        done = command("skip", self.name, subscription, entries, "--unit", "entry")
        return Remedy(what, done, f"{done} --dry-run")

    def delete_remedy(self, subscription: str) -> Remedy:
        """Return the remedy that deletes a subscription."""
        return Remedy(
            "delete the subscription if it is not needed: its unread messages are lost to it",
            command("admin", "delete-subscription", self.name, subscription),
        )


def command(*words: object) -> str:
    """Return a command line of `pulsar-ext`."""
    return shlex.join(["pulsar-ext", *map(str, words)])


Severity = Literal["warning", "error"]
"""`error`: messages are already lost or a subscription stalls; `warning`: they will."""

_STATUS = {"warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Remedy:
    """A way to resolve a finding.

    Args:
        what: what to do, and its effect, in a sentence.
        command: shell command that does it; empty if only the application can.
        dry_run: the command with its dry-run option; empty if it has none.
    """

    what: str
    command: str = ""
    dry_run: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem of a topic or subscription.

    Args:
        kind: its name, such as `holes`; `docs/doctor.md` lists them.
        severity: `warning` or `error`.
        topic: full name of a topic or partition.
        subscription: of the topic; empty if the topic itself is concerned.
        what: the problem, in a sentence.
        evidence: numbers, positions and names that show it, as JSON values.
        otherwise: the effect of doing nothing.
        remedies: ways to resolve it; one that loses no messages comes first.
    """

    kind: str
    severity: Severity
    topic: str
    subscription: str
    what: str
    evidence: Mapping[str, Any]
    otherwise: str
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True)
class Observation:
    """Facts about topics, the topics beyond the limit of requests, and notes of what could not be inspected."""

    facts: tuple[TopicFacts, ...]
    excluded: tuple[str, ...]
    requests: int
    notes: tuple[str, ...]
    version: str = ""
    missing: tuple[MissingSetting, ...] = ()
    """Version of the broker, and its settings that guarantees need."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, errors first, and the cost of the diagnosis.

    Args:
        findings: all of them.
        topics: number of topics and partitions that were inspected.
        left_out: topics that were not inspected because of the limit of requests.
        requests: number of requests sent.
        notes: what could not be inspected, and why.
        broker_version: version of the broker that answered; empty if these credentials do not permit to query it.
        missing_settings: its settings without which a guarantee of this library does not hold; no finding.
    """

    findings: tuple[Finding, ...]
    topics: int
    left_out: tuple[str, ...] = ()
    requests: int = 0
    notes: tuple[str, ...] = field(default=())
    broker_version: str = ""
    missing_settings: tuple[MissingSetting, ...] = ()

    @property
    def exit_status(self) -> int:
        """Exit status: 0 without findings, 1 with warnings, 2 with errors."""
        return max((_STATUS[one.severity] for one in self.findings), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {"exit_status": self.exit_status, **asdict(self)}
