"""The columns of a message, in one table (pure; no Arrow, no Spark)."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["COLUMNS", "STANDARD", "WRITTEN", "Column", "column_table"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its Spark types (the first is the default), whether `load()` gives it, and its meaning."""

    name: str
    types: tuple[str, ...]
    meaning: str
    standard: bool = True


_ALL = (
    Column("value", ("binary", "string"), "The payload; with `valueFormat` json or avro, the value's fields instead."),
    Column("__key", ("binary", "string"), "The key, null without one."),
    Column("__topic", ("string",), "The topic partition's full name."),
    Column("__messageId", ("binary",), "The id's bytes, which every client's `MessageId.deserialize` reads."),
    Column("__publishTime", ("timestamp",), "When the producer published it."),
    Column("__eventTime", ("timestamp",), "The application's own time, null if it set none."),
    Column("__messageProperties", ("map<string,string>",), "The properties."),
    Column("__orderingKey", ("binary",), "The ordering key, null without one."),
    Column("__partition", ("int",), "Index of the partition, -1 on a topic without partitions."),
    Column("__sequenceId", ("bigint",), "The producer's sequence id."),
    Column("__producerName", ("string",), "The producer's name."),
    Column("__firstChunkId", ("binary",), "Of a chunked message the bytes of its first chunk's id, else null."),
    Column("__keySlot", ("int",), "The slot the broker hashes it to: by ordering key, key, or producer and sequence."),
    Column("__ledgerId", ("bigint",), "The ledger of its (last) entry.", standard=False),
    Column("__entryId", ("bigint",), "Its (last) entry.", standard=False),
    Column(
        "__beginLedgerId",
        ("bigint",),
        "Where it begins: the ledger of its first chunk.",
        standard=False,
    ),
    Column("__beginEntryId", ("bigint",), "Where it begins: the entry of its first chunk.", standard=False),
    Column("__batchIndex", ("int",), "Its index in the entry's batch, -1 if it is in none.", standard=False),
)

COLUMNS: Final = MappingProxyType({column.name: column for column in _ALL})
STANDARD: Final = tuple(column.name for column in _ALL if column.standard)
"""What `load()` gives without a schema."""

WRITTEN: Final = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime", "__topic")
"""What a write takes; the other columns that a read gives are ignored there."""


def column_table() -> str:
    """Write the columns as a Markdown table."""
    lines = ["| column | type | given by `load()` | written | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{column.name}` | {' or '.join(column.types)} | {'yes' if column.standard else ''} | "
        f"{'yes' if column.name in WRITTEN else ''} | {column.meaning} |"
        for column in _ALL
    ]
    return "\n".join(lines) + "\n"
