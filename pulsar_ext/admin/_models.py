"""Results of the admin API: frozen, typed values of the broker's JSON or an entry's headers (pure).

Each class has the fields that this project and operators use; `raw` has the broker's whole response.
Times are milliseconds since the epoch, sizes are bytes. Mirrors `org.apache.pulsar.common.policies.data`, and for
entries `PersistentTopicsBase.generateResponseWithEntry`. HTTP headers are Latin-1: the broker replaces any other
character of a key, a property or a producer name with `?`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import unquote_plus

from pulsar_ext.ids.position import Position, PositionRanges

Json = Mapping[str, Any]
_PREFIX = "x-pulsar-"
_EPOCH, _CYCLE_YEARS, _CYCLE_MILLIS = 1970, 400, 146_097 * 86_400_000


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    """Metadata of one entry: a message, a batch of messages, or one chunk of a message.

    A field that the entry lacks is None; `num_messages_in_batch` is None for an entry that is not a batch.
    Of a batch, `sequence_id` is its first message's, and `partition_key` and `properties` are the batch's.

    `index` is the index of the entry's *last* message; it and `broker_timestamp` need the broker's interceptors.
    Times are milliseconds since the epoch. `payload` is None unless it was requested; of a batch it is the raw batch,
    of a chunk the chunk's part, decompressed by the broker.

    Note:
        In `partition_key`, `properties`, `producer_name` and `uuid` a `?` may replace any character outside Latin-1,
        because the broker writes them into HTTP headers. A key that was sent as bytes is exact, and in base64 (see
        `partition_key_b64_encoded`).
    """

    position: Position
    producer_name: str
    sequence_id: int
    publish_time: int
    highest_sequence_id: int | None = None
    event_time: int | None = None
    deliver_at_time: int | None = None
    num_messages_in_batch: int | None = None
    batch_size: int | None = None
    uuid: str | None = None
    chunk_id: int | None = None
    num_chunks: int | None = None
    total_chunk_size: int | None = None
    index: int | None = None
    broker_timestamp: int | None = None
    partition_key: str | None = None
    partition_key_b64_encoded: bool = False
    ordering_key: bytes | None = None
    schema_version: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    null_value: bool = False
    encrypted: bool = False
    compression: str | None = None
    uncompressed_size: int | None = None
    replicated_from: str | None = None
    marker_type: int | None = None
    txn_uncommitted: bool = False
    txn_aborted: bool = False
    payload: bytes | None = None

    @property
    def is_chunk(self) -> bool:
        """True if this entry is one of several chunks of a message."""
        return self.num_chunks is not None and self.num_chunks > 1

    @property
    def message_count(self) -> int:
        """Number of messages in the entry: the size of its batch, otherwise 1 (also for a chunk)."""
        return 1 if self.num_messages_in_batch is None else self.num_messages_in_batch

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], payload: bytes | None = None) -> EntryMetadata:
        """Parse the `X-Pulsar-…` headers of a response; their names are lower-case, their values Latin-1.

        Raises:
            ValueError: a header is missing, or is not in the format of the tested broker versions.
        """
        texts = {name.removeprefix(_PREFIX): text for name, text in headers.items() if name.startswith(_PREFIX)}
        values = {field: read(texts[name]) for field, (name, read) in _HEADERS.items() if name in texts}
        position = Position.parse(texts.get("message-id", ""))
        return cls(position, payload=payload, **{**_ABSENT, **values})


def _moment(text: str) -> int:
    """Parse a time to milliseconds since the epoch."""
    # DateFormatter writes ISO 8601 with a zone and any year: a producer may have sent smaller units as milliseconds.
    # The calendar repeats every 400 years, and datetime supports years up to 9999.
    year, _, rest = text[1:].partition("-")
    cycles, of_cycle = divmod(int(text[:1] + year) - _EPOCH, _CYCLE_YEARS)
    near = datetime.fromisoformat(f"{_EPOCH + of_cycle}-{rest}")
    # Rounded, because a float may be just below its millisecond.
    return round(near.timestamp() * 1000) + cycles * _CYCLE_MILLIS


def _flag(text: str) -> bool:
    return text == "true"


_HEADERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "producer_name": ("producer-name", str),
    "sequence_id": ("sequence-id", int),
    "publish_time": ("publish-time", _moment),
    "highest_sequence_id": ("highest-sequence-id", int),
    "event_time": ("event-time", _moment),
    "deliver_at_time": ("deliver-at-time", _moment),
    "num_messages_in_batch": ("num-batch-message", int),
    "batch_size": ("batch-size", int),
    "uuid": ("uuid", str),
    "chunk_id": ("chunk-id", int),
    "num_chunks": ("num-chunks-from-msg", int),
    "total_chunk_size": ("total-chunk-msg-size", int),
    "index": ("broker-entry-metadata-index", int),
    "broker_timestamp": ("broker-entry-metadata-timestamp", _moment),
    "partition_key": ("partition-key", str),
    "partition_key_b64_encoded": ("partition-key-b64-encoded", _flag),
    "ordering_key": ("base64-ordering-key", base64.b64decode),
    "schema_version": ("base64-schema-version", base64.b64decode),
    "properties": ("property", lambda text: json.loads(text or "{}")),
    "null_value": ("null-value", _flag),
    "encrypted": ("is-encrypted", _flag),
    "compression": ("compression", str),
    "uncompressed_size": ("uncompressed-size", int),
    "replicated_from": ("replicated-from", str),
    "marker_type": ("marker-type", int),
    "txn_uncommitted": ("txn-uncommitted", _flag),
    "txn_aborted": ("txn-aborted", _flag),
}
"""The header of each field, without its prefix, and its parser."""
_ABSENT: Json = {"producer_name": "", "sequence_id": -1, "publish_time": 0}
"""Values of required fields without a header."""


_UNCOUNTED = frozenset({"Exclusive", "Failover"})
"""Subscription types for which the broker does not count unacknowledged messages."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """Statistics of one subscription.

    `backlog_entries` counts entries, not messages, although the broker calls it `msgBacklog`.
    """

    type: str
    backlog_entries: int
    unacked_messages: int
    durable: bool
    consumers: tuple[str, ...]
    properties: Mapping[str, str]
    raw: Json = field(repr=False, compare=False)

    @property
    def _consumers(self) -> Sequence[Json]:
        return self.raw.get("consumers") or ()

    @property
    def sessions(self) -> frozenset[tuple[str, str]]:
        """Each consumer's address and its connection time, as the broker has them."""
        return frozenset((one.get("address", ""), one.get("connectedSince", "")) for one in self._consumers)

    @property
    def held_messages(self) -> int:
        """Number of unacknowledged messages of the connected consumers."""
        return sum(one.get("unackedMessages", 0) for one in self._consumers)

    @property
    def most_held(self) -> int:
        """Upper limit of the unacknowledged messages of the connected consumers.

        The broker does not count them on Exclusive and Failover subscriptions.
        """
        counter = "msgOutCounter" if self.type in _UNCOUNTED else "unackedMessages"
        return sum(one.get(counter, 0) for one in self._consumers)

    @property
    def delivered_messages(self) -> int:
        """Number of messages delivered on the subscription so far."""
        return int(self.raw.get("msgOutCounter", 0))

    @property
    def delayed_messages(self) -> int:
        """Number of messages with delayed delivery that are not due yet."""
        return int(self.raw.get("msgDelayed", 0))

    @property
    def active_consumer(self) -> str | None:
        """Name of the active consumer of a Failover or Exclusive subscription."""
        return self.raw.get("activeConsumerName")

    @property
    def takes_more(self) -> bool:
        """True if each consumer that receives messages has permits and is not blocked."""
        active = self.active_consumer if self.type in _UNCOUNTED else None
        return all(
            one.get("availablePermits", 0) > 0 and not one.get("blockedConsumerOnUnackedMsgs")
            for one in self._consumers
            if active is None or one.get("consumerName") == active
        )

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse one value of `subscriptions` in the statistics."""
        return cls(
            type=data.get("type", ""),
            backlog_entries=data.get("msgBacklog", 0),
            unacked_messages=data.get("unackedMessages", 0),
            durable=data.get("durable", data.get("isDurable", True)),
            consumers=tuple(consumer.get("consumerName", "") for consumer in data.get("consumers", ())),
            properties=dict(data.get("subscriptionProperties") or {}),
            raw=data,
        )


COMPACTION_CURSOR: Final = "__compaction"
_WHOLE = re.compile(r" \(ackSet (is null|with long\[\] size of 0)\)\Z")
"""Suffix that brokers add to the position of a wholly acknowledged entry, as compaction acknowledges."""


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Statistics of one topic or partition, or their sum over all partitions."""

    messages_in: int
    bytes_in: int
    storage_size: int
    backlog_size: int
    deduplication_status: str
    publishers: tuple[str, ...]
    subscriptions: Mapping[str, SubscriptionStats]
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the response of `GET …/stats`."""
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
    """Statistics of a partitioned topic: the sum, and each partition's by its full name."""

    total: TopicStats
    partitions: Mapping[str, TopicStats]

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the response of `GET …/partitioned-stats`."""
        partitions = {name: TopicStats.from_json(value) for name, value in data["partitions"].items()}
        return cls(total=TopicStats.from_json(data), partitions=partitions)


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """Ledger of a topic; the broker lists the last, open one with 0 entries."""

    ledger_id: int
    entries: int
    size: int
    offloaded: bool

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse one item of `ledgers` in the internal statistics."""
        return cls(data["ledgerId"], data["entries"], data["size"], data.get("offloaded", False))


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """Cursor of one subscription.

    Acknowledged are all entries up to `mark_delete_position`, and `individually_deleted` after it, in order.
    """

    mark_delete_position: Position
    read_position: Position
    individually_deleted: PositionRanges
    state: str
    active: bool
    raw: Json = field(repr=False, compare=False)

    def acknowledges(self, position: Position) -> bool:
        """Return whether an entry is wholly acknowledged."""
        return position <= self.mark_delete_position or position in self.individually_deleted

    def acknowledges_each(self, positions: Sequence[tuple[int, int]]) -> list[bool]:
        """Return for each entry whether it is wholly acknowledged."""
        mark = self.mark_delete_position
        alone = self.individually_deleted.covering(positions)
        return [position <= mark or is_alone for position, is_alone in zip(positions, alone, strict=True)]

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse one value of `cursors` in the internal statistics."""
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
    """Ledgers and cursors of one topic or partition.

    The last of `ledgers` is open and shows 0 entries; `current_ledger_entries` has its number of entries.
    """

    ledgers: tuple[LedgerInfo, ...]
    last_confirmed_entry: Position
    current_ledger_entries: int
    current_ledger_size: int
    number_of_entries: int
    total_size: int
    state: str
    cursors: Mapping[str, CursorInfo]
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the response of `GET …/internalStats`."""
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
        """Return `(ledger_id, entries)` of each ledger, with the actual number for the open one."""
        sizes = {ledger.ledger_id: ledger.entries for ledger in self.ledgers}
        if self.ledgers:
            sizes[self.ledgers[-1].ledger_id] = max(self.current_ledger_entries, self.ledgers[-1].entries)
        return list(sizes.items())

    @property
    def compacted(self) -> LedgerInfo | None:
        """Ledger of the compacted view; None without one."""
        found = self.raw.get("compactedLedger")
        return None if found is None or found["ledgerId"] < 0 else LedgerInfo.from_json(found)

    @property
    def compaction_horizon(self) -> Position:
        """Last position that was compacted; -1:-1 if the topic was never compacted."""
        cursor = self.cursors.get(COMPACTION_CURSOR)
        return Position(-1, -1) if cursor is None else cursor.mark_delete_position

    def entry_bytes(self) -> float:
        """Return the average size of an entry in bytes."""
        return self.total_size / max(self.number_of_entries, 1)


@dataclass(frozen=True, slots=True)
class BacklogAnalysis:
    """Backlog of a subscription, counted by reading it: entries, and the messages in their batches.

    `aborted` is true if the broker stopped at its limit of entries or time; the counts are lower bounds then.
    """

    entries: int
    messages: int
    marker_messages: int
    aborted: bool
    first: Position | None
    last: Position | None

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the response of `POST …/analyzeBacklog`."""
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
    """Retention of acknowledged messages in minutes and MiB; 0 keeps none, -1 means no limit."""

    minutes: int
    size_mib: int

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse `retention_policies`."""
        return cls(data["retentionTimeInMinutes"], data["retentionSizeInMB"])

    def to_json(self) -> dict[str, int]:
        """Return the body of `POST …/retention`."""
        return {"retentionTimeInMinutes": self.minutes, "retentionSizeInMB": self.size_mib}


@dataclass(frozen=True, slots=True)
class Persistence:
    """Replication of entries, and the rate per second at which cursors are persisted (0: no limit)."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    max_mark_delete_rate: float = 0.0

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse `persistence`."""
        return cls(*(data[key] for key in _PERSISTENCE))

    def to_json(self) -> dict[str, float]:
        """Return the body of `POST …/persistence`."""
        return dict(zip(_PERSISTENCE, astuple(self), strict=True))


_PERSISTENCE = (
    *("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"),
    "managedLedgerMaxMarkDeleteRate",
)


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """Policies of a namespace; None if not set, so that the broker's configuration applies."""

    retention: Retention | None
    deduplication: bool | None
    persistence: Persistence | None
    message_ttl_seconds: int | None
    backlog_quotas: Json
    raw: Json = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the response of `GET /namespaces/{tenant}/{namespace}`."""
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
    """Service URLs of a cluster; empty if not configured."""

    service_url: str
    service_url_tls: str
    broker_service_url: str
    broker_service_url_tls: str

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the response of `GET /clusters/{cluster}`."""
        keys = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")
        return cls(*(data.get(key) or "" for key in keys))
