"""The headers of a stored entry, as the admin API gives them (pure).

Mirrors what `PersistentTopicsBase.generateResponseWithEntry` writes and `TopicsImpl.getMessagesFromHttpResponse` reads.
An HTTP header is Latin-1: the broker replaces every other character of a key, a property or a producer's name by `?`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from pulsar_ext.ids.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EntryMetadata"]

_PREFIX = "x-pulsar-"


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    """What the broker knows of one entry: a message, a batch of messages, or one chunk of a message.

    A number is None where the entry does not carry it; `num_messages_in_batch` is None for an entry that is no batch.
    Of a batch, `sequence_id` is its first message's, and `partition_key` and `properties` are those of the batch.

    `index` is the index of the entry's *last* message; it and `broker_timestamp` exist only where the broker has the
    interceptors. Times are milliseconds since the epoch. `payload` is None unless it was asked for; of a batch it is
    the raw batch, of a chunk that chunk's part; the broker has decompressed it.

    Note:
        In `partition_key`, `properties`, `producer_name` and `uuid` a `?` may stand for any character beyond Latin-1,
        for the broker writes them into HTTP headers. A key that was sent as bytes is exact, and in base64 (see
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
        """Whether this entry is one of several chunks of a message."""
        return self.num_chunks is not None and self.num_chunks > 1

    @property
    def message_count(self) -> int:
        """How many messages the entry holds: the size of its batch, else 1 (also for each single chunk)."""
        return 1 if self.num_messages_in_batch is None else self.num_messages_in_batch

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], payload: bytes | None = None) -> EntryMetadata:
        """Read the `X-Pulsar-…` headers of one answer.

        Args:
            headers: names in lower case; values decoded as Latin-1.
            payload: the answer's body, if it was read.

        Raises:
            ValueError: a header is missing or is not what the broker of the tested versions writes.
        """
        values = {name.removeprefix(_PREFIX): text for name, text in headers.items() if name.startswith(_PREFIX)}

        def number(name: str) -> int | None:
            return int(values[name]) if name in values else None

        def moment(name: str) -> int | None:
            return _millis(values[name]) if name in values else None

        def flag(name: str) -> bool:
            return values.get(name) == "true"

        def binary(name: str) -> bytes | None:
            return base64.b64decode(values[name]) if name in values else None

        return cls(
            position=Position.parse(values.get("message-id", "")),
            producer_name=values.get("producer-name", ""),
            sequence_id=int(values.get("sequence-id", "-1")),
            publish_time=moment("publish-time") or 0,
            highest_sequence_id=number("highest-sequence-id"),
            event_time=moment("event-time"),
            deliver_at_time=moment("deliver-at-time"),
            num_messages_in_batch=number("num-batch-message"),
            batch_size=number("batch-size"),
            uuid=values.get("uuid"),
            chunk_id=number("chunk-id"),
            num_chunks=number("num-chunks-from-msg"),
            total_chunk_size=number("total-chunk-msg-size"),
            index=number("broker-entry-metadata-index"),
            broker_timestamp=moment("broker-entry-metadata-timestamp"),
            partition_key=values.get("partition-key"),
            partition_key_b64_encoded=flag("partition-key-b64-encoded"),
            ordering_key=binary("base64-ordering-key"),
            schema_version=binary("base64-schema-version"),
            properties=json.loads(values.get("property") or "{}"),
            null_value=flag("null-value"),
            encrypted=flag("is-encrypted"),
            compression=values.get("compression"),
            uncompressed_size=number("uncompressed-size"),
            replicated_from=values.get("replicated-from"),
            marker_type=number("marker-type"),
            txn_uncommitted=flag("txn-uncommitted"),
            txn_aborted=flag("txn-aborted"),
            payload=payload,
        )


def _millis(text: str) -> int:
    # DateFormatter writes ISO 8601 with a zone. Rounded, for a float may lie just below its millisecond.
    return round(datetime.fromisoformat(text).timestamp() * 1000)
