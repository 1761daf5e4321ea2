"""The headers of a stored entry, as the admin API gives them (pure).

Mirrors what `PersistentTopicsBase.generateResponseWithEntry` writes and `TopicsImpl.getMessagesFromHttpResponse` reads.
An HTTP header is Latin-1: the broker replaces every other character of a key, a property or a producer's name by `?`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, overload

from pulsar_ext.ids.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EntryMetadata"]

_PREFIX = "x-pulsar-"
_EPOCH, _CYCLE_YEARS, _CYCLE_MILLIS = 1970, 400, 146_097 * 86_400_000


@dataclass(frozen=True, slots=True)
class EntryMetadata:
    """What the broker knows of one entry: a message, a batch of messages, or one chunk of a message.

    A number that the entry does not carry is None; `num_messages_in_batch` is None for an entry that is not a batch.
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
        found = _Headers(headers)
        return cls(
            position=Position.parse(found.text("message-id", "")),
            producer_name=found.text("producer-name", ""),
            sequence_id=int(found.text("sequence-id", "-1")),
            publish_time=found.moment("publish-time") or 0,
            highest_sequence_id=found.number("highest-sequence-id"),
            event_time=found.moment("event-time"),
            deliver_at_time=found.moment("deliver-at-time"),
            num_messages_in_batch=found.number("num-batch-message"),
            batch_size=found.number("batch-size"),
            uuid=found.text("uuid"),
            chunk_id=found.number("chunk-id"),
            num_chunks=found.number("num-chunks-from-msg"),
            total_chunk_size=found.number("total-chunk-msg-size"),
            index=found.number("broker-entry-metadata-index"),
            broker_timestamp=found.moment("broker-entry-metadata-timestamp"),
            partition_key=found.text("partition-key"),
            partition_key_b64_encoded=found.flag("partition-key-b64-encoded"),
            ordering_key=found.binary("base64-ordering-key"),
            schema_version=found.binary("base64-schema-version"),
            properties=json.loads(found.text("property") or "{}"),
            null_value=found.flag("null-value"),
            encrypted=found.flag("is-encrypted"),
            compression=found.text("compression"),
            uncompressed_size=found.number("uncompressed-size"),
            replicated_from=found.text("replicated-from"),
            marker_type=found.number("marker-type"),
            txn_uncommitted=found.flag("txn-uncommitted"),
            txn_aborted=found.flag("txn-aborted"),
            payload=payload,
        )


class _Headers:
    """The `X-Pulsar-…` headers of one answer, read by their names without the prefix."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._texts = {name.removeprefix(_PREFIX): text for name, text in headers.items() if name.startswith(_PREFIX)}

    @overload
    def text(self, name: str) -> str | None: ...
    @overload
    def text(self, name: str, default: str) -> str: ...
    def text(self, name: str, default: str | None = None) -> str | None:
        return self._texts.get(name, default)

    def number(self, name: str) -> int | None:
        return int(self._texts[name]) if name in self._texts else None

    def moment(self, name: str) -> int | None:
        """Read a time, in milliseconds since the epoch."""
        if name not in self._texts:
            return None
        # DateFormatter writes ISO 8601 with a zone, and with any year: what a producer took for milliseconds may have
        # been smaller units. Years are alike every 400, and datetime knows those up to 9999.
        text = self._texts[name]
        year, _, rest = text[1:].partition("-")
        cycles, of_cycle = divmod(int(text[:1] + year) - _EPOCH, _CYCLE_YEARS)
        near = datetime.fromisoformat(f"{_EPOCH + of_cycle}-{rest}")
        # Rounded, for a float may lie just below its millisecond.
        return round(near.timestamp() * 1000) + cycles * _CYCLE_MILLIS

    def flag(self, name: str) -> bool:
        return self._texts.get(name) == "true"

    def binary(self, name: str) -> bytes | None:
        return base64.b64decode(self._texts[name]) if name in self._texts else None
