"""Table of the columns of a message, the Spark schema of a read, and conversion of message blocks to Arrow batches."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.errors import InvalidUse

from .message_block import MessageBlock, id_bytes
from .values import ValueDecoder, key_part_decoder, value_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .options import Settings


@dataclass(frozen=True, slots=True)
class Column:
    """Column: its name, its Spark types (the first is the default), its meaning; `standard` if `load()` includes it."""

    name: str
    types: tuple[str, ...]
    meaning: str
    standard: bool = True


_ALL = (
    Column("value", ("binary", "string"), "The payload; with `valueFormat` json or avro, the value's fields instead."),
    Column("__key", ("binary", "string"), "The key; null if the message has none."),
    Column("__topic", ("string",), "The topic partition's full name."),
    Column("__messageId", ("binary",), "The serialized id, which `MessageId.deserialize` of every client parses."),
    Column("__publishTime", ("timestamp",), "The publish time, set by the producer."),
    Column("__eventTime", ("timestamp",), "The event time, set by the application; null if it set none."),
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
        "The slot that the broker computes: by the ordering key, else the key, else producer name and sequence id.",
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
"""Columns of `load()` without a schema."""

KEY_PART: Final = "__keyPart"
"""Column of a KEY_VALUE topic's keys, with option `keyFormat`."""

WRITTEN: Final = ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime", "__topic")
"""Columns that a write accepts; it ignores the other columns of a read."""


def column_table() -> str:
    """Return the columns as a Markdown table."""
    lines = ["| column | type | in `load()` | written | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{column.name}` | {' or '.join(column.types)} | {'yes' if column.standard else ''} | "
        f"{'yes' if column.name in WRITTEN else ''} | {column.meaning} |"
        for column in _ALL
    ]
    return "\n".join(lines) + "\n"


_MILLIS = 1000
_MOST_MILLIS = (2**63 - 1) // _MILLIS
_WORTH = 4
"""Smallest average batch size for which fetching the sizes of batches is cheaper than fetching each id."""


def column_of(block: MessageBlock, name: str, kind: Any) -> Any:
    """Return one column of a block as an Arrow array of that type.

    Raises:
        InvalidUse: the column is read as text, but a message has bytes in it that are not UTF-8; or it is the event
            time, and a message's is too large.
    """
    return _COLUMNS[name](block, kind)


def _key(block: MessageBlock, kind: Any) -> Any:
    if block.key_decoder.exact:
        return _textual(block, list(map(block.key_decoder.decode, block.inners, block.key_texts)), kind)
    keys = block.key_column
    if block.has_keyless:
        keys = pa.array([text or None for text in block.key_texts], pa.string())
    return keys if kind == pa.string() else keys.cast(kind)


def _message_id(block: MessageBlock, kind: Any) -> Any:
    sizes = None if block.first_chunks else _batch_sizes(block)
    if sizes is None:
        return pa.array(block.id_bytes, kind)
    ledger, entry, batch = block.positions
    offsets, data = id_bytes(ledger, entry, block.partition, batch, sizes)
    return pa.Array.from_buffers(kind, len(block), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _batch_sizes(block: MessageBlock) -> Any:
    """Return the sizes of the messages' batches, fetched once per batch; None if that would not be cheaper."""
    if block.batches is not None:
        return block.batches.size
    if block.reprs is None:
        return None  # the ids have been fetched for the positions
    ledger, entry, batch = block.positions
    first = np.concatenate(([True], (np.diff(ledger) != 0) | (np.diff(entry) != 0)))
    begins = np.flatnonzero(first & (batch >= 0))
    if len(begins) * _WORTH > len(block):
        return None
    sizes = np.zeros(len(block), np.int64)
    sizes[begins] = [block.id_data(index).batch_size for index in begins.tolist()]
    # Each message gets the size of the first one of its entry; 0 if it is not in a batch.
    return sizes[np.flatnonzero(first)[np.cumsum(first) - 1]]


def _first_chunk_id(block: MessageBlock, kind: Any) -> Any:
    if not block.first_chunks:
        return pa.nulls(len(block), kind)
    found: list[bytes | None] = [None] * len(block)
    for index, first in block.first_chunks.items():
        found[index] = encode(MessageIdData(first.ledger_id, first.entry_id, block.partition))
    return pa.array(found, kind)


def _publish_time(block: MessageBlock, kind: Any) -> Any:
    reprs = block.reprs
    if reprs is None:
        millis = np.fromiter(map(InnerMessage.publish_timestamp, block.inners), np.int64, len(block))
    else:
        millis = reprs.publish_time
    return pa.array(millis * _MILLIS, pa.timestamp("us", tz="UTC")).cast(kind)


def _event_time(block: MessageBlock, kind: Any) -> Any:
    millis = np.fromiter(map(InnerMessage.event_timestamp, block.inners), np.uint64, len(block))
    far = np.flatnonzero(millis > _MOST_MILLIS)
    if len(far):
        raise InvalidUse(
            f"The message {block.inners[far[0]].message_id()} on {block.topic} has the event time {millis[far[0]]}, "
            "which exceeds a timestamp's range: exclude the column __eventTime."
        )
    if not millis.any():
        return pa.nulls(len(block), kind)
    micros = millis.astype(np.int64) * _MILLIS
    return pa.array(micros, pa.timestamp("us", tz="UTC"), mask=millis == 0).cast(kind)


def _properties(block: MessageBlock, kind: Any) -> Any:
    names: list[str] = []
    items: list[str] = []
    counts = np.zeros(len(block) + 1, np.int32)
    having = range(len(block)) if block.reprs is None else np.flatnonzero(~block.reprs.bare).tolist()
    for index in having:
        one = block.inners[index].properties()
        names.extend(one)
        items.extend(one.values())
        counts[index + 1] = len(one)
    offsets = np.cumsum(counts, dtype=np.int32)
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, kind.key_type), pa.array(items, kind.item_type), type=kind
    )


def _textual(block: MessageBlock, values: Sequence[bytes | None], kind: Any) -> Any:
    found = pa.array(values, pa.binary())
    if kind != pa.string():
        return found if found.type == kind else found.cast(kind)
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        for inner, value in zip(block.inners, values, strict=True):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise InvalidUse(
                    f"The message {inner.message_id()} on {block.topic} is not UTF-8 text ({error}): read it as binary."
                ) from None
        raise


_COLUMNS: dict[str, Callable[[MessageBlock, Any], Any]] = {
    "value": lambda block, kind: _textual(block, block.values, kind),
    "__key": _key,
    "__orderingKey": lambda block, kind: pa.array([one or None for one in block.ordering_keys], kind),
    "__topic": lambda block, kind: pa.repeat(pa.scalar(block.topic, kind), len(block)),
    "__partition": lambda block, kind: pa.repeat(pa.scalar(block.partition, kind), len(block)),
    "__messageId": _message_id,
    "__firstChunkId": _first_chunk_id,
    "__publishTime": _publish_time,
    "__eventTime": _event_time,
    "__messageProperties": _properties,
    "__sequenceId": lambda block, kind: pa.array(block.sequence_ids, kind),
    "__producerName": lambda block, kind: pa.array(block.producer_names, kind),
    "__keySlot": lambda block, kind: pa.array(block.slots, kind),
    "__ledgerId": lambda block, kind: pa.array(block.positions[0], kind),
    "__entryId": lambda block, kind: pa.array(block.positions[1], kind),
    "__beginLedgerId": lambda block, kind: pa.array(block.begin_columns[0], kind),
    "__beginEntryId": lambda block, kind: pa.array(block.begin_columns[1], kind),
    "__batchIndex": lambda block, kind: pa.array(block.positions[2], kind),
}


_TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def full_schema(settings: Settings) -> StructType:
    """Return the schema of a read without a user's schema: the standard columns, or those of option `columns`.

    Raises:
        InvalidUse: a column of option `columns` does not exist.
    """
    decoder = value_decoder(settings)
    fields: dict[str, StructField] = {}
    key = key_part_decoder(settings)
    standard = STANDARD if key is None else (STANDARD[0], KEY_PART, *STANDARD[1:])
    for name in settings["columns"] or standard:
        if name == KEY_PART and key is not None:
            fields[name] = StructField(name, key.type, nullable=True)
        elif name == "value" and decoder is not None:
            fields.update({field.name: field for field in decoder.fields})
        elif name == "value":
            fields[name] = _field(name, "string" if settings["valueFormat"] == "string" else "binary")
        elif name in COLUMNS:
            fields[name] = _field(name, COLUMNS[name].types[0])
        elif decoder is not None and name in {field.name for field in decoder.fields}:
            fields[name] = next(field for field in decoder.fields if field.name == name)
        else:
            raise InvalidUse(_no_column(name, decoder, settings))
    return StructType(list(fields.values()))


def check_schema(schema: StructType, settings: Settings) -> None:
    """Check a schema by which the user chooses columns.

    Raises:
        InvalidUse: a column does not exist or has the wrong type, or option `columns` names other columns.
    """
    columns = settings["columns"]
    if columns and set(columns) != set(schema.fieldNames()) and settings["valueFormat"] in ("bytes", "string"):
        raise InvalidUse("Option columns and the schema name different columns: set only one of them.")
    decoder = value_decoder(settings)
    known = {} if decoder is None else {field.name: field.dataType.simpleString() for field in decoder.fields}
    if (key := key_part_decoder(settings)) is not None:
        known[KEY_PART] = key.type.simpleString()
    for field in schema.fields:
        kind = field.dataType.simpleString()
        column = COLUMNS.get(field.name)
        if field.name in known:
            allowed: tuple[str, ...] = (known[field.name],)
        elif column is None or (decoder is not None and field.name == "value"):
            raise InvalidUse(_no_column(field.name, decoder, settings))
        else:
            allowed = column.types
        if kind not in allowed:
            raise InvalidUse(f"Column {field.name} is {' or '.join(allowed)}, not {kind}.")


def _no_column(name: str, decoder: ValueDecoder | None, settings: Settings) -> str:
    own = [] if decoder is None else [field.name for field in decoder.fields]
    own += [] if settings["keyFormat"] is None else [KEY_PART]
    known = [column for column in COLUMNS if decoder is None or column != "value"]
    return f"Unknown column {name!r}. The columns are: {', '.join([*own, *known])}."


def _field(name: str, kind: str) -> StructField:
    return StructField(name, _TYPES[kind], nullable=True)


class BatchMaker:
    """Converter of blocks to Arrow batches of a schema."""

    def __init__(self, schema: StructType, settings: Settings) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._decoder = value_decoder(settings)
        self._own = frozenset() if self._decoder is None else frozenset(field.name for field in self._decoder.fields)
        self._keys = key_part_decoder(settings)
        self._wanted = [field.name for field in self._schema if field.name in self._own]

    def make(self, block: MessageBlock) -> Any:
        """Return a block as one batch."""
        values: dict[str, Any] = {}
        if self._wanted and self._decoder is not None:
            values = self._decoder.columns(block, {name: self._schema.field(name).type for name in self._wanted})
        if self._keys is not None and KEY_PART in self._schema.names:
            values[KEY_PART] = self._keys.column(block, self._schema.field(KEY_PART).type)
        arrays = [
            values[field.name] if field.name in values else column_of(block, field.name, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
