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
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import unquote_plus

from pulsar_ext.ids.position import Position, PositionRanges

Json = Mapping[str, Any]
_PREFIX = "x-pulsar-"
_EPOCH, _CYCLE_YEARS, _CYCLE_MILLIS = 1970, 400, 146_097 * 86_400_000


def _moment(text: str) -> int:
    # DateFormatter writes ISO 8601 with a zone and any year: a producer may have sent smaller units as milliseconds.
    # The calendar repeats every 400 years, and datetime supports years up to 9999.
    year, _, rest = text[1:].partition("-")
    cycles, of_cycle = divmod(int(text[:1] + year) - _EPOCH, _CYCLE_YEARS)
    near = datetime.fromisoformat(f"{_EPOCH + of_cycle}-{rest}")
    # Rounded, because a float may be just below its millisecond.
    return round(near.timestamp() * 1000) + cycles * _CYCLE_MILLIS


def _flag(text: str) -> bool:
    return text == "true"


def _map(text: str) -> dict[str, str]:
    return dict(json.loads(text or "{}"))


def _header(name: str, read: Callable[[str], object]) -> dict[str, tuple[str, Callable[[str], object]]]:
    """Return the metadata of a field that is read from a header, named without its prefix."""
    return {"header": (name, read)}


_ABSENT: Json = {"producer_name": "", "sequence_id": -1, "publish_time": 0}
"""Values of required fields without a header."""


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
    producer_name: str = field(metadata=_header("producer-name", str))
    sequence_id: int = field(metadata=_header("sequence-id", int))
    publish_time: int = field(metadata=_header("publish-time", _moment))
    highest_sequence_id: int | None = field(default=None, metadata=_header("highest-sequence-id", int))
    event_time: int | None = field(default=None, metadata=_header("event-time", _moment))
    deliver_at_time: int | None = field(default=None, metadata=_header("deliver-at-time", _moment))
    num_messages_in_batch: int | None = field(default=None, metadata=_header("num-batch-message", int))
    batch_size: int | None = field(default=None, metadata=_header("batch-size", int))
    uuid: str | None = field(default=None, metadata=_header("uuid", str))
    chunk_id: int | None = field(default=None, metadata=_header("chunk-id", int))
    num_chunks: int | None = field(default=None, metadata=_header("num-chunks-from-msg", int))
    total_chunk_size: int | None = field(default=None, metadata=_header("total-chunk-msg-size", int))
    index: int | None = field(default=None, metadata=_header("broker-entry-metadata-index", int))
    broker_timestamp: int | None = field(default=None, metadata=_header("broker-entry-metadata-timestamp", _moment))
    partition_key: str | None = field(default=None, metadata=_header("partition-key", str))
    partition_key_b64_encoded: bool = field(default=False, metadata=_header("partition-key-b64-encoded", _flag))
    ordering_key: bytes | None = field(default=None, metadata=_header("base64-ordering-key", base64.b64decode))
    schema_version: bytes | None = field(default=None, metadata=_header("base64-schema-version", base64.b64decode))
    properties: Mapping[str, str] = field(default_factory=dict, metadata=_header("property", _map))
    null_value: bool = field(default=False, metadata=_header("null-value", _flag))
    encrypted: bool = field(default=False, metadata=_header("is-encrypted", _flag))
    compression: str | None = field(default=None, metadata=_header("compression", str))
    uncompressed_size: int | None = field(default=None, metadata=_header("uncompressed-size", int))
    replicated_from: str | None = field(default=None, metadata=_header("replicated-from", str))
    marker_type: int | None = field(default=None, metadata=_header("marker-type", int))
    txn_uncommitted: bool = field(default=False, metadata=_header("txn-uncommitted", _flag))
    txn_aborted: bool = field(default=False, metadata=_header("txn-aborted", _flag))
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
        """Parse lower-case `x-pulsar-…` headers in Latin-1; raise `ValueError` if one is missing or invalid."""
        texts = {name.removeprefix(_PREFIX): text for name, text in headers.items() if name.startswith(_PREFIX)}
        # The name in Pulsar 5, for a message after the first one of an open transaction.
        if texts.get("txn-consumable") == "false":
            texts["txn-uncommitted"] = "true"
        headed = ((one.name, *one.metadata["header"]) for one in fields(cls) if one.metadata)
        values = {name: read(texts[header]) for name, header, read in headed if header in texts}
        position = Position.parse(texts.get("message-id", ""))
        return cls(position, payload=payload, **{**_ABSENT, **values})


_REQUIRED: Final = object()


def member(
    *keys: str, absent: object = _REQUIRED, read: Callable[[Any], Any] = lambda found: found
) -> dict[str, object]:
    """Return the metadata of a field that is read from the first set member of an object, or else is `absent`."""

    def parse(data: Json) -> object:
        found = next((data[key] for key in keys if data.get(key) is not None), absent)
        if found is _REQUIRED:
            raise KeyError(keys[0])
        return None if found is None else read(found)

    return {"parse": parse, "key": keys[0]}


@dataclass(frozen=True, slots=True)
class JsonValue:
    """Value whose fields name the members of the broker's JSON object that they are read from."""

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse the broker's JSON object; raise `KeyError` without a required member."""
        return cls(**{one.name: one.metadata["parse"](data) for one in fields(cls)})


_WHOLE_OBJECT: Final = {"parse": lambda data: data}


def _names_of(key: str) -> Callable[[Sequence[Json]], tuple[str, ...]]:
    return lambda objects: tuple(one.get(key, "") for one in objects)


def _each(read: Callable[[Json], object]) -> Callable[[Mapping[str, Json]], dict[str, object]]:
    return lambda objects: {name: read(one) for name, one in objects.items()}


def _position_if_any(text: str) -> Position | None:
    return Position.parse(text) if text else None


_UNCOUNTED = frozenset({"Exclusive", "Failover"})
"""Subscription types for which the broker does not count unacknowledged messages."""


@dataclass(frozen=True, slots=True)
class SubscriptionStats(JsonValue):
    """Statistics of one subscription.

    `backlog_entries` counts entries, not messages, although the broker calls it `msgBacklog`.
    """

    type: str = field(metadata=member("type", absent=""))
    backlog_entries: int = field(metadata=member("msgBacklog", absent=0))
    unacked_messages: int = field(metadata=member("unackedMessages", absent=0))
    durable: bool = field(metadata=member("durable", "isDurable", absent=True))
    consumers: tuple[str, ...] = field(metadata=member("consumers", absent=(), read=_names_of("consumerName")))
    properties: Mapping[str, str] = field(metadata=member("subscriptionProperties", absent={}, read=dict))
    raw: Json = field(repr=False, compare=False, metadata=_WHOLE_OBJECT)

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


COMPACTION_CURSOR: Final = "__compaction"
_WHOLE = re.compile(r" \(ackSet (is null|with long\[\] size of 0)\)\Z")
"""Suffix that brokers add to the position of a wholly acknowledged entry, as compaction acknowledges."""


def _cursor_position(text: str) -> Position:
    return Position.parse(_WHOLE.sub("", text))


@dataclass(frozen=True, slots=True)
class TopicStats(JsonValue):
    """Statistics of one topic or partition, or their sum over all partitions."""

    messages_in: int = field(metadata=member("msgInCounter", absent=0))
    bytes_in: int = field(metadata=member("bytesInCounter", absent=0))
    storage_size: int = field(metadata=member("storageSize", absent=0))
    backlog_size: int = field(metadata=member("backlogSize", absent=0))
    deduplication_status: str = field(metadata=member("deduplicationStatus", absent=""))
    publishers: tuple[str, ...] = field(metadata=member("publishers", absent=(), read=_names_of("producerName")))
    subscriptions: Mapping[str, SubscriptionStats] = field(
        metadata=member("subscriptions", absent={}, read=_each(SubscriptionStats.from_json))
    )
    raw: Json = field(repr=False, compare=False, metadata=_WHOLE_OBJECT)


@dataclass(frozen=True, slots=True)
class PartitionedStats(JsonValue):
    """Statistics of a partitioned topic: the sum, and each partition's by its full name."""

    total: TopicStats = field(metadata={"parse": TopicStats.from_json})
    partitions: Mapping[str, TopicStats] = field(metadata=member("partitions", read=_each(TopicStats.from_json)))


@dataclass(frozen=True, slots=True)
class ScalableStats(JsonValue):
    """Statistics of a scalable topic of Pulsar 5: the state of each segment, and each subscription's backlog."""

    segments: Mapping[str, str] = field(
        metadata=member("layout", read=lambda found: {one["name"]: one["state"] for one in found["segments"].values()})
    )
    """State of each segment by its name, `segment://…`: `ACTIVE`, or `SEALED` after a split or a merge."""
    backlog_messages: Mapping[str, int] = field(
        metadata=member("subscriptions", absent={}, read=_each(lambda found: found["msgBacklog"]))
    )
    """Number of messages in the backlog of each subscription."""
    storage_size: int = field(metadata=member("storageSize", absent=0))
    raw: Json = field(repr=False, compare=False, metadata=_WHOLE_OBJECT)


@dataclass(frozen=True, slots=True)
class LedgerInfo(JsonValue):
    """Ledger of a topic; the broker lists the last, open one with 0 entries."""

    ledger_id: int = field(metadata=member("ledgerId"))
    entries: int = field(metadata=member("entries"))
    size: int = field(metadata=member("size"))
    offloaded: bool = field(metadata=member("offloaded", absent=False))


@dataclass(frozen=True, slots=True)
class CursorInfo(JsonValue):
    """Cursor of one subscription.

    Acknowledged are all entries up to `mark_delete_position`, and `individually_deleted` after it, in order.
    """

    mark_delete_position: Position = field(metadata=member("markDeletePosition", read=_cursor_position))
    read_position: Position = field(metadata=member("readPosition", read=_cursor_position))
    individually_deleted: PositionRanges = field(
        metadata=member("individuallyDeletedMessages", absent="[]", read=PositionRanges.parse)
    )
    state: str = field(metadata=member("state", absent=""))
    active: bool = field(metadata=member("active", absent=False))
    raw: Json = field(repr=False, compare=False, metadata=_WHOLE_OBJECT)

    def acknowledges(self, position: Position) -> bool:
        """Return whether an entry is wholly acknowledged."""
        return position <= self.mark_delete_position or position in self.individually_deleted

    def acknowledges_each(self, positions: Sequence[tuple[int, int]]) -> list[bool]:
        """Return for each entry whether it is wholly acknowledged."""
        mark = self.mark_delete_position
        alone = self.individually_deleted.covering(positions)
        return [position <= mark or is_alone for position, is_alone in zip(positions, alone, strict=True)]


def _cursors(found: Mapping[str, Json]) -> dict[str, CursorInfo]:
    return {unquote_plus(name): CursorInfo.from_json(one) for name, one in found.items()}


@dataclass(frozen=True, slots=True)
class InternalStats(JsonValue):
    """Ledgers and cursors of one topic or partition.

    The last of `ledgers` is open and shows 0 entries; `current_ledger_entries` has its number of entries.
    """

    ledgers: tuple[LedgerInfo, ...] = field(
        metadata=member("ledgers", read=lambda found: tuple(map(LedgerInfo.from_json, found)))
    )
    last_confirmed_entry: Position = field(metadata=member("lastConfirmedEntry", read=Position.parse))
    current_ledger_entries: int = field(metadata=member("currentLedgerEntries"))
    current_ledger_size: int = field(metadata=member("currentLedgerSize"))
    number_of_entries: int = field(metadata=member("numberOfEntries"))
    total_size: int = field(metadata=member("totalSize"))
    state: str = field(metadata=member("state", absent=""))
    cursors: Mapping[str, CursorInfo] = field(metadata=member("cursors", read=_cursors))
    raw: Json = field(repr=False, compare=False, metadata=_WHOLE_OBJECT)

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
class BacklogAnalysis(JsonValue):
    """Backlog of a subscription, counted by reading it: entries, and the messages in their batches.

    `aborted` is true if the broker stopped at its limit of entries or time; the counts are lower bounds then.
    """

    entries: int = field(metadata=member("entries"))
    messages: int = field(metadata=member("messages"))
    marker_messages: int = field(metadata=member("markerMessages", absent=0))
    aborted: bool = field(metadata=member("aborted", absent=False))
    first: Position | None = field(metadata=member("firstMessageId", absent=None, read=_position_if_any))
    last: Position | None = field(metadata=member("lastMessageId", absent=None, read=_position_if_any))


@dataclass(frozen=True, slots=True)
class Policy(JsonValue):
    """Policy that is also sent to the broker."""

    def to_json(self) -> dict[str, object]:
        """Return the broker's JSON object."""
        return {one.metadata["key"]: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, slots=True)
class Retention(Policy):
    """Retention of acknowledged messages in minutes and MiB; 0 keeps none, -1 means no limit."""

    minutes: int = field(metadata=member("retentionTimeInMinutes"))
    size_mib: int = field(metadata=member("retentionSizeInMB"))


@dataclass(frozen=True, slots=True)
class Persistence(Policy):
    """Replication of entries, and the rate per second at which cursors are persisted (0: no limit)."""

    ensemble: int = field(metadata=member("bookkeeperEnsemble"))
    write_quorum: int = field(metadata=member("bookkeeperWriteQuorum"))
    ack_quorum: int = field(metadata=member("bookkeeperAckQuorum"))
    max_mark_delete_rate: float = field(default=0.0, metadata=member("managedLedgerMaxMarkDeleteRate"))


@dataclass(frozen=True, slots=True)
class NamespacePolicies(JsonValue):
    """Policies of a namespace; None if not set, so that the broker's configuration applies."""

    retention: Retention | None = field(metadata=member("retention_policies", absent=None, read=Retention.from_json))
    deduplication: bool | None = field(metadata=member("deduplicationEnabled", absent=None))
    persistence: Persistence | None = field(metadata=member("persistence", absent=None, read=Persistence.from_json))
    message_ttl_seconds: int | None = field(metadata=member("message_ttl_in_seconds", absent=None))
    backlog_quotas: Json = field(metadata=member("backlog_quota_map", absent={}, read=dict))
    raw: Json = field(repr=False, compare=False, metadata=_WHOLE_OBJECT)


@dataclass(frozen=True, slots=True)
class ClusterInfo(JsonValue):
    """Service URLs of a cluster; empty if not configured."""

    service_url: str = field(metadata=member("serviceUrl", absent=""))
    service_url_tls: str = field(metadata=member("serviceUrlTls", absent=""))
    broker_service_url: str = field(metadata=member("brokerServiceUrl", absent=""))
    broker_service_url_tls: str = field(metadata=member("brokerServiceUrlTls", absent=""))


@dataclass(frozen=True, slots=True)
class SchemaInfo(JsonValue):
    """Schema of a topic: its version, type (`JSON`, `AVRO`, `STRING`, …) and definition as text."""

    version: int = field(metadata=member("version"))
    type: str = field(metadata=member("type"))
    data: str = field(metadata=member("data", absent=""))
    properties: Mapping[str, str] = field(metadata=member("properties", absent={}, read=dict))
