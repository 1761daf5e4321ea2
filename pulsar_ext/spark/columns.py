"""The columns of a message, in one table (pure; no Arrow, no Spark)."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["COLUMNS", "KEY_PART", "STANDARD", "WRITTEN", "Column", "column_table"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its Spark types (the first is the default), its meaning, and whether `load()` has it."""

    name: str
    types: tuple[str, ...]
    meaning: str
    standard: bool = True


_ALL = (
    Column("value", ("binary", "string"), "The payload; with `valueFormat` json or avro, the value's fields instead."),
    Column("__key", ("binary", "string"), "The key; null if the message has none."),
    Column("__topic", ("string",), "The topic partition's full name."),
    Column("__messageId", ("binary",), "The serialized id, which `MessageId.deserialize` of every client reads."),
    Column("__publishTime", ("timestamp",), "When the producer published it."),
    Column("__eventTime", ("timestamp",), "The time that the application set; null if it set none."),
    Column("__messageProperties", ("map<string,string>",), "The properties."),
    Column("__orderingKey", ("binary",), "The ordering key; null if the message has none."),
    Column("__partition", ("int",), "The index of the partition; -1 on a topic without partitions."),
    Column("__sequenceId", ("bigint",), "The producer's sequence id."),
    Column("__producerName", ("string",), "The producer's name."),
    Column(
        "__firstChunkId", ("binary",), "The serialized id of a chunked message's first chunk; null for other messages."
    ),
    Column(
        "__keySlot",
        ("int",),
        "The slot that the broker hashes it to: by its ordering key, else its key, else producer and sequence id.",
    ),
    Column(
        "__ledgerId", ("bigint",), "The ledger of the message; of a chunked one, of its last chunk.", standard=False
    ),
    Column("__entryId", ("bigint",), "The entry of the message; of a chunked one, of its last chunk.", standard=False),
    Column(
        "__beginLedgerId",
        ("bigint",),
        "The ledger of the message; of a chunked one, of its first chunk.",
        standard=False,
    ),
    Column(
        "__beginEntryId", ("bigint",), "The entry of the message; of a chunked one, of its first chunk.", standard=False
    ),
    Column("__batchIndex", ("int",), "The index in its batch; -1 if it is not in a batch.", standard=False),
)

COLUMNS: Final = MappingProxyType({column.name: column for column in _ALL})
STANDARD: Final = tuple(column.name for column in _ALL if column.standard)
"""The columns of `load()` without a schema."""

KEY_PART: Final = "__keyPart"
"""The column of a topic's keys that are a part of its schema, with option `keyFormat`."""

WRITTEN: Final = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime", "__topic")
"""The columns that a write takes; it ignores the other columns of a read."""


def column_table() -> str:
    """Write the columns as a Markdown table."""
    lines = ["| column | type | in `load()` | written | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{column.name}` | {' or '.join(column.types)} | {'yes' if column.standard else ''} | "
        f"{'yes' if column.name in WRITTEN else ''} | {column.meaning} |"
        for column in _ALL
    ]
    return "\n".join(lines) + "\n"
