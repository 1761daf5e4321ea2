"""What the admin API answers, as values: frozen, typed, read from the broker's JSON (pure).

Each class names what this project and operators use; where the broker gives more, `raw` has its whole answer.
Times are milliseconds since the epoch, sizes are bytes. Mirrors `org.apache.pulsar.common.policies.data`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import unquote_plus

from pulsar_ext.ids.position import Position, PositionRanges

from ._subscription_stats import SubscriptionStats

__all__ = [
    "BacklogAnalysis",
    "ClusterInfo",
    "CursorInfo",
    "InternalStats",
    "LedgerInfo",
    "NamespacePolicies",
    "PartitionedStats",
    "Persistence",
    "Retention",
    "SubscriptionStats",
    "TopicStats",
]

_Json = Mapping[str, Any]
COMPACTION_CURSOR: Final = "__compaction"
_WHOLE = re.compile(r" \(ackSet (is null|with long\[\] size of 0)\)\Z")
"""What brokers write behind some positions that a whole entry was acknowledged at, as a compaction does."""


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Statistics of one topic or partition, or the sum over the partitions."""

    messages_in: int
    bytes_in: int
    storage_size: int
    backlog_size: int
    deduplication_status: str
    publishers: tuple[str, ...]
    subscriptions: Mapping[str, SubscriptionStats]
    raw: _Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read the answer of `GET …/stats`."""
        return cls(
            messages_in=data.get("msgInCounter", 0),
            bytes_in=data.get("bytesInCounter", 0),
            storage_size=data.get("storageSize", 0),
            backlog_size=data.get("backlogSize", 0),
            deduplication_status=data.get("deduplicationStatus") or "",
            publishers=tuple(publisher.get("producerName", "") for publisher in data.get("publishers") or ()),
            subscriptions={
                name: SubscriptionStats.from_json(value) for name, value in (data.get("subscriptions") or {}).items()
            },
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class PartitionedStats:
    """Statistics of a partitioned topic: the sum, and each partition by its full name."""

    total: TopicStats
    partitions: Mapping[str, TopicStats]

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read the answer of `GET …/partitioned-stats`."""
        partitions = {name: TopicStats.from_json(value) for name, value in data["partitions"].items()}
        return cls(total=TopicStats.from_json(data), partitions=partitions)


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger of a topic, as the broker lists it: the open ledger, the last of the list, shows 0 entries."""

    ledger_id: int
    entries: int
    size: int
    offloaded: bool

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read one item of `ledgers` in the internal statistics."""
        return cls(data["ledgerId"], data["entries"], data["size"], data.get("offloaded", False))


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """The cursor of one subscription.

    Everything up to `mark_delete_position` is acknowledged, and `individually_deleted` beyond it, which is in order.
    """

    mark_delete_position: Position
    read_position: Position
    individually_deleted: PositionRanges
    state: str
    active: bool
    raw: _Json = field(repr=False, compare=False)

    def acknowledges(self, position: Position) -> bool:
        """Whether an entry is acknowledged, all of it."""
        return position <= self.mark_delete_position or position in self.individually_deleted

    def acknowledges_each(self, positions: Sequence[tuple[int, int]]) -> list[bool]:
        """Tell of each of many entries whether it is acknowledged, all of it."""
        mark = self.mark_delete_position
        alone = self.individually_deleted.covering(positions)
        return [position <= mark or is_alone for position, is_alone in zip(positions, alone, strict=True)]

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read one value of `cursors` in the internal statistics."""
        return cls(
            mark_delete_position=Position.parse(_WHOLE.sub("", data["markDeletePosition"])),
            read_position=Position.parse(_WHOLE.sub("", data["readPosition"])),
            individually_deleted=PositionRanges.parse(data.get("individuallyDeletedMessages") or "[]"),
            state=data.get("state", ""),
            active=data.get("active", False),
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class InternalStats:
    """The ledgers and cursors of one topic or partition.

    The last of `ledgers` is the open one and shows 0 entries: `current_ledger_entries` has its count.
    """

    ledgers: tuple[LedgerInfo, ...]
    last_confirmed_entry: Position
    current_ledger_entries: int
    current_ledger_size: int
    number_of_entries: int
    total_size: int
    state: str
    cursors: Mapping[str, CursorInfo]
    raw: _Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read the answer of `GET …/internalStats`."""
        return cls(
            ledgers=tuple(map(LedgerInfo.from_json, data["ledgers"])),
            last_confirmed_entry=Position.parse(data["lastConfirmedEntry"]),
            current_ledger_entries=data["currentLedgerEntries"],
            current_ledger_size=data["currentLedgerSize"],
            number_of_entries=data["numberOfEntries"],
            total_size=data["totalSize"],
            state=data.get("state", ""),
            cursors={unquote_plus(name): CursorInfo.from_json(value) for name, value in data["cursors"].items()},
            raw=data,
        )

    def ledger_sizes(self) -> list[tuple[int, int]]:
        """Give `(ledger_id, entries)` of each ledger; the broker lists the open one with 0 entries."""
        sizes = {ledger.ledger_id: ledger.entries for ledger in self.ledgers}
        if self.ledgers:
            sizes[self.ledgers[-1].ledger_id] = max(self.current_ledger_entries, self.ledgers[-1].entries)
        return list(sizes.items())

    @property
    def compacted(self) -> LedgerInfo | None:
        """The ledger of the compacted view; None without one."""
        found = self.raw.get("compactedLedger")
        return None if found is None or found["ledgerId"] < 0 else LedgerInfo.from_json(found)

    @property
    def compaction_horizon(self) -> Position:
        """The last position that compaction has gone over; -1:-1 if the topic was never compacted."""
        cursor = self.cursors.get(COMPACTION_CURSOR)
        return Position(-1, -1) if cursor is None else cursor.mark_delete_position

    def entry_bytes(self) -> float:
        """Give the average size of an entry, in bytes."""
        return self.total_size / max(self.number_of_entries, 1)


@dataclass(frozen=True, slots=True)
class BacklogAnalysis:
    """The backlog of a subscription, counted by reading it: entries, and the messages in their batches.

    `aborted` says that the broker stopped at its limit of entries or time, so the counts are only a lower bound.
    """

    entries: int
    messages: int
    marker_messages: int
    aborted: bool
    first: Position | None
    last: Position | None

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read the answer of `POST …/analyzeBacklog`."""
        first, last = data.get("firstMessageId"), data.get("lastMessageId")
        return cls(
            entries=data["entries"],
            messages=data["messages"],
            marker_messages=data.get("markerMessages", 0),
            aborted=data.get("aborted", False),
            first=Position.parse(first) if first else None,
            last=Position.parse(last) if last else None,
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """How long acknowledged messages are kept: minutes and MiB; 0 keeps none, -1 sets no limit."""

    minutes: int
    size_mib: int

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read `retention_policies`."""
        return cls(data["retentionTimeInMinutes"], data["retentionSizeInMB"])

    def to_json(self) -> dict[str, int]:
        """Write what `POST …/retention` takes."""
        return {"retentionTimeInMinutes": self.minutes, "retentionSizeInMB": self.size_mib}


@dataclass(frozen=True, slots=True)
class Persistence:
    """How many bookies store an entry, and how often a cursor's position is stored (per second; 0: always)."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    max_mark_delete_rate: float = 0.0

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read `persistence`."""
        return cls(
            data["bookkeeperEnsemble"],
            data["bookkeeperWriteQuorum"],
            data["bookkeeperAckQuorum"],
            data["managedLedgerMaxMarkDeleteRate"],
        )

    def to_json(self) -> dict[str, float]:
        """Write what `POST …/persistence` takes."""
        return {
            "bookkeeperEnsemble": self.ensemble,
            "bookkeeperWriteQuorum": self.write_quorum,
            "bookkeeperAckQuorum": self.ack_quorum,
            "managedLedgerMaxMarkDeleteRate": self.max_mark_delete_rate,
        }


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """The policies of a namespace; None where it sets none and the broker's own configuration applies."""

    retention: Retention | None
    deduplication: bool | None
    persistence: Persistence | None
    message_ttl_seconds: int | None
    backlog_quotas: Mapping[str, Any]
    raw: _Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read the answer of `GET /namespaces/{tenant}/{namespace}`."""
        retention, persistence = data.get("retention_policies"), data.get("persistence")
        return cls(
            retention=Retention.from_json(retention) if retention else None,
            deduplication=data.get("deduplicationEnabled"),
            persistence=Persistence.from_json(persistence) if persistence else None,
            message_ttl_seconds=data.get("message_ttl_in_seconds"),
            backlog_quotas=dict(data.get("backlog_quota_map") or {}),
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Where a cluster answers; empty where it is not configured."""

    service_url: str
    service_url_tls: str
    broker_service_url: str
    broker_service_url_tls: str

    @classmethod
    def from_json(cls, data: _Json) -> Self:
        """Read the answer of `GET /clusters/{cluster}`."""
        keys = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")
        return cls(*(data.get(key) or "" for key in keys))
