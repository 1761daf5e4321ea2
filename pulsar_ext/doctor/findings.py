"""What is known of one topic and its cursors, in numbers, and what a diagnosis consists of: findings (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping  # noqa: TC003  # dataclasses are read at run time
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.position import Ledgers, Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.admin import (
        CursorInfo,
        EntryMetadata,
        InternalStats,
        NamespacePolicies,
        SchemaInfo,
        SubscriptionStats,
        TopicStats,
    )


_COMPACTION = "__compaction"


@dataclass(frozen=True, slots=True)
class DiagnosisLimits:
    """From when on something is a finding, and what finding it may cost.

    Args:
        hole_distance: How many acknowledged entries behind an unacknowledged one make it a hole.
        patience_seconds: How many seconds an entry may be unacknowledged, a consumer may do nothing, and a chunked
            message may lack its end, before it is a finding.
        quota_share: Which share of a quota or a time to live may be used up before it is a finding, from 0 to 1.
        kept_ledgers: How many full ledgers that one subscription alone keeps are a finding.
        entries: How many entries of a topic to look at, at most. Each takes a request.
        pause_seconds: How many seconds to watch whether the same messages come again and again. With 0 it does not
            watch.
        max_requests: How many requests to make, at most.

    Raises:
        InvalidUse: one of them is negative, or the share is above 1.
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
                raise InvalidUse(f"{name} must be a number of at least {least.get(name, 0)}, not {value!r}")
        if self.quota_share > 1:
            raise InvalidUse(f"quota_share must be a share from 0 to 1, not {self.quota_share!r}")


@dataclass(frozen=True, slots=True)
class Run:
    """Entries that are not acknowledged, one behind the other, by their numbers in the topic, 1-based.

    Args:
        first: the first one's number.
        last: the last one's number.
        acknowledged_behind: how many entries further behind are acknowledged.
    """

    first: int
    last: int
    acknowledged_behind: int

    @property
    def entries(self) -> int:
        """How many they are."""
        return self.last - self.first + 1


def unacknowledged_runs(ledgers: Ledgers, cursor: CursorInfo) -> list[Run]:
    """Give every run of entries that a cursor has not acknowledged, in order; in time linear in its ranges."""
    end = 0 if ledgers.last is None else ledgers.up_to(ledgers.last)
    edges = [ledgers.up_to(cursor.mark_delete_position)]
    acknowledged = 0
    for one in cursor.individually_deleted:
        begin, stop = max(ledgers.up_to(one.after), edges[-1]), ledgers.up_to(one.last)
        if stop > begin:
            edges += (begin, stop)
            acknowledged += stop - begin
    edges.append(end)
    runs = []
    for index, (after, last) in enumerate(pairwise(edges)):
        if index % 2:
            acknowledged -= last - after
        elif last > after:
            runs.append(Run(after + 1, last, acknowledged))
    return runs


@dataclass(frozen=True)
class TopicFacts:
    """What the admin API shows of one topic or partition.

    Args:
        name: its full name.
        stats: its statistics.
        internal: its ledgers and cursors.
        policies: of its namespace.
        settings: of the broker; empty if they may not be seen.
        now_ms: when they were asked for, in milliseconds since the epoch.
        entries: the headers of entries that were looked at, by position.
        later: statistics and cursors of moments later, if it was watched.
        schemas: each version of its schema that there is; None where nobody asked.
        limits: what is a finding.
        only: the one subscription that is asked about; None for all.
    """

    name: str
    stats: TopicStats
    internal: InternalStats
    policies: NamespacePolicies
    settings: Mapping[str, str]
    now_ms: int
    limits: DiagnosisLimits
    entries: Mapping[Position, EntryMetadata] = field(default_factory=dict)
    later: Sequence[tuple[TopicStats, InternalStats]] = ()
    only: str | None = None
    schemas: Mapping[int, SchemaInfo] | None = None
    ledgers: Ledgers = field(init=False, repr=False, compare=False)
    runs: Mapping[str, Sequence[Run]] = field(init=False, repr=False, compare=False)
    """Of each cursor what it has not acknowledged."""

    def __post_init__(self) -> None:
        ledgers = Ledgers(self.internal.ledger_sizes())
        runs = {name: unacknowledged_runs(ledgers, cursor) for name, cursor in self.internal.cursors.items()}
        object.__setattr__(self, "ledgers", ledgers)
        object.__setattr__(self, "runs", runs)

    def subscriptions(self) -> Iterator[tuple[str, SubscriptionStats]]:
        """Give each subscription that is asked about, and that both statistics know: some come or go in between.

        Those of readers are not among them, nor the one of the compaction.
        """
        for name, stats in self.stats.subscriptions.items():
            asked = name == self.only if self.only is not None else name != _COMPACTION
            if asked and name in self.internal.cursors and stats.durable:
                yield name, stats

    def readers(self) -> Iterator[tuple[str, SubscriptionStats]]:
        """Give each reader that is asked about, by the name of its cursor."""
        for name, stats in self.stats.subscriptions.items():
            if self.only in (None, name) and name in self.internal.cursors and not stats.durable:
                yield name, stats

    def waits(self, position: Position) -> bool:
        """Whether a subscription that is asked about has not acknowledged an entry."""
        return any(not self.internal.cursors[name].acknowledges(position) for name, _ in self.subscriptions())

    def position(self, number: int) -> Position:
        """Give where the entry of a number is.

        Raises:
            InvalidUse: the topic has no such entry.
        """
        found = self.ledgers.number(number)
        if found is None:
            raise InvalidUse(f"{self.name} has no entry {number}")
        return found

    def first_unacknowledged(self, subscription: str, most: int) -> list[Position]:
        """Give the first entries that a subscription has not acknowledged, in order, so many at most."""
        found: list[Position] = []
        for run in self.runs[subscription]:
            room = most - len(found)
            found += (self.position(number) for number in range(run.first, min(run.last + 1, run.first + room)))
            if len(found) >= most:
                break
        return found

    def number_of(self, position: Position) -> int:
        """Give the number of an entry, 1-based."""
        return self.ledgers.up_to(position)

    def read_until(self, subscription: str) -> int:
        """Give the number of the last entry that was read for a subscription, and so perhaps delivered."""
        ledger_id, entry_id = self.internal.cursors[subscription].read_position
        return self.ledgers.up_to(Position(ledger_id, entry_id - 1))

    def entries_until(self, subscription: str, number: int) -> int:
        """Count the entries up to a number that a subscription has not acknowledged."""
        return sum(min(run.last, number) - run.first + 1 for run in self.runs[subscription] if run.first <= number)

    def seconds_since(self, milliseconds: float) -> float:
        """Tell how long ago a moment was; since for ever, if it never was."""
        return float("inf") if milliseconds <= 0 else max(self.now_ms - milliseconds, 0) / 1000


Severity = Literal["warning", "error"]
"""An error costs messages, or stalls a subscription, already; a warning will."""

_STATUS = {"warning": 1, "error": 2}


@dataclass(frozen=True, slots=True)
class Remedy:
    """What mends a finding.

    Args:
        what: what is to be done, and what that does, in a sentence.
        command: which does it, as typed into a shell; empty where only the application can.
        dry_run: the same command, that only shows what it would do; empty where there is no such.
    """

    what: str
    command: str = ""
    dry_run: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: its name, such as `holes`; `docs/doctor.md` lists them.
        severity: `warning` or `error`.
        topic: the full name of a topic or one partition.
        subscription: of the topic, empty where it is about the topic itself.
        what: what is the case, in a sentence.
        evidence: what shows it: numbers, positions and names, as JSON has them.
        otherwise: what happens if nothing is done.
        remedies: what mends it; the first loses nothing, where there is such a one.
    """

    kind: str
    severity: Severity
    topic: str
    subscription: str
    what: str
    evidence: Mapping[str, Any]
    otherwise: str
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, the errors first, and what it cost.

    Args:
        findings: all of them.
        topics: how many topics and partitions were looked at.
        left_out: those that were not, because they would have passed the limit of requests.
        requests: how many requests were sent.
        notes: what could not be looked at, and why.
    """

    findings: tuple[Finding, ...]
    topics: int
    left_out: tuple[str, ...] = ()
    requests: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def exit_status(self) -> int:
        """0 without findings, 1 with warnings, 2 with errors."""
        return max((_STATUS[one.severity] for one in self.findings), default=0)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return {"exit_status": self.exit_status, **asdict(self)}


def skip_remedy(topic: str, subscription: str, entries: int, what: str) -> Remedy:
    """Give the command that moves a cursor over so many entries."""
    command = f"pulsar-ext skip {shlex.quote(topic)} {shlex.quote(subscription)} {entries} --unit entry"
    return Remedy(what, command, f"{command} --dry-run")
