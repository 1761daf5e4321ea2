"""Table of the columns of a message, the Spark schema of a read, and conversion of message blocks to Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.errors import InvalidUse

from .message_block import MessageBlock, binary_of, sizes_of, with_nulls
from .options import Settings
from .values import decoder_of

KEY_PART: Final = "__keyPart"
"""Column of a KEY_VALUE topic's keys, with option `keyFormat`."""

_MILLIS = 1000
_MOST_MILLIS = (2**63 - 1) // _MILLIS
_MICROS: Final = pa.timestamp("us", tz="UTC")


def _key(block: MessageBlock, kind: pa.DataType) -> pa.Array:
    if block.key_forms is not None:
        return _typed(block, pa.array(block.exact_keys(block.key_forms), pa.binary()), kind)
    return _typed(block, _non_empty(block.keys), kind)


def _non_empty(column: pa.Array) -> pa.Array:
    """Return a column of bytes with nulls in place of its empty values."""
    return with_nulls(column, sizes_of(column) == 0)


def _first_chunk_id(block: MessageBlock, kind: pa.DataType) -> pa.Array:
    if not block.first_chunks:
        return pa.nulls(len(block), kind)
    found: list[bytes | None] = [None] * len(block)
    for index, first in block.first_chunks.items():
        found[index] = encode(MessageIdData(first.ledger_id, first.entry_id, block.partition))
    return pa.array(found, kind)


def _event_time(block: MessageBlock, kind: pa.DataType) -> pa.Array:
    millis = block.numbers("event_timestamp").view(np.uint64)
    far = np.flatnonzero(millis > _MOST_MILLIS)
    if len(far):
        raise InvalidUse(
            f"The message {block.inners[far[0]].message_id()} on {block.topic} has the event time {millis[far[0]]}, "
            "which exceeds a timestamp's range: exclude the column __eventTime."
        )
    if not millis.any():
        return pa.nulls(len(block), kind)
    micros = millis.astype(np.int64) * _MILLIS
    return pa.array(micros, _MICROS, mask=millis == 0).cast(kind)


def _properties(block: MessageBlock, kind: pa.DataType) -> pa.Array:
    offsets, *columns = block.inners.properties()
    names, values = map(binary_of, columns)
    return pa.MapArray.from_arrays(
        pa.array(np.frombuffer(offsets, np.int32)), names.cast(kind.key_type), values.cast(kind.item_type), type=kind
    )


def _typed(block: MessageBlock, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of bytes, with a value for each message, as that type."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        for index, value in enumerate(column.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise InvalidUse(
                    f"The message {block.inners[index].message_id()} on {block.topic} is not UTF-8 text ({error}): "
                    "read it as binary."
                ) from None
        raise


class Column(NamedTuple):
    """A column of messages: its Spark types, the default first, and the function that makes an Arrow array of it."""

    types: tuple[str, ...]
    of: Callable[[MessageBlock, pa.DataType], pa.Array]


COLUMNS: Final = {
    "value": Column(("binary", "string"), lambda block, kind: _typed(block, block.values, kind)),
    "__key": Column(("binary", "string"), _key),
    "__topic": Column(("string",), lambda block, kind: pa.repeat(pa.scalar(block.topic, kind), len(block))),
    "__messageId": Column(("binary",), lambda block, kind: binary_of(block.inners.ids()).cast(kind)),
    "__publishTime": Column(
        ("timestamp",), lambda block, kind: pa.array(block.numbers("publish_timestamp") * _MILLIS, _MICROS).cast(kind)
    ),
    "__eventTime": Column(("timestamp",), _event_time),
    "__messageProperties": Column(("map<string,string>",), _properties),
    "__orderingKey": Column(("binary",), lambda block, kind: _non_empty(block.ordering_keys).cast(kind)),
    "__partition": Column(("int",), lambda block, kind: pa.repeat(pa.scalar(block.partition, kind), len(block))),
    "__sequenceId": Column(("bigint",), lambda block, kind: pa.array(block.numbers("sequence_id"), kind)),
    "__producerName": Column(
        ("string",), lambda block, kind: _typed(block, binary_of(block.inners.octets("producer_name")), kind)
    ),
    "__firstChunkId": Column(("binary",), _first_chunk_id),
    "__keySlot": Column(("int",), lambda block, kind: pa.array(block.slots, kind)),
    "__ledgerId": Column(("bigint",), lambda block, kind: pa.array(block.positions[0], kind)),
    "__entryId": Column(("bigint",), lambda block, kind: pa.array(block.positions[1], kind)),
    "__beginLedgerId": Column(("bigint",), lambda block, kind: pa.array(block.begin_columns[0], kind)),
    "__beginEntryId": Column(("bigint",), lambda block, kind: pa.array(block.begin_columns[1], kind)),
    "__batchIndex": Column(("int",), lambda block, kind: pa.array(block.positions[2], kind)),
}
"""Columns of a read, described in docs/spark.md."""
STANDARD: Final = tuple(COLUMNS)[:13]
"""Columns of `load()` without a schema."""
WRITTEN: Final = {
    name: COLUMNS[name].types if name != "__orderingKey" else ("binary", "string")
    for name in ("value", "__key", "__orderingKey", "__messageProperties", "__eventTime", "__topic")
}
"""Columns that a write accepts, with their types; it ignores the other columns of a read."""


_TYPES = {
    "binary": types.BinaryType(),
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}


def _known(settings: Settings) -> dict[str, list[types.DataType]]:
    """Return the columns of a read, each with its possible types, the default first."""
    decoder, key = decoder_of(settings, "value"), decoder_of(settings, "key")
    known = {} if decoder is None else {field.name: [field.dataType] for field in decoder.fields}
    known |= {} if key is None else {KEY_PART: [key.type]}
    for name, column in COLUMNS.items():
        if name != "value" or decoder is None:
            known[name] = [_TYPES[kind] for kind in column.types]
    if decoder is None and settings["valueFormat"] == "string":
        known["value"].reverse()
    return known


def full_schema(settings: Settings) -> StructType:
    """Return the schema of a read without a user's schema: the standard columns, or those of option `columns`."""
    known, decoder = _known(settings), decoder_of(settings, "value")
    own = ["value"] if decoder is None else [field.name for field in decoder.fields]
    standard = (STANDARD[0], KEY_PART, *STANDARD[1:]) if KEY_PART in known else STANDARD
    names = dict.fromkeys(
        one for name in settings["columns"] or standard for one in (own if name == "value" else [name])
    )
    _check_names(names, known)
    return StructType([StructField(name, known[name][0], nullable=True) for name in names])


def check_schema(schema: StructType, settings: Settings) -> None:
    """Check a schema by which the user chooses columns."""
    columns = settings["columns"]
    if columns and set(columns) != set(schema.fieldNames()) and settings["valueFormat"] in ("bytes", "string"):
        raise InvalidUse("Option columns and the schema name different columns: set only one of them.")
    known = _known(settings)
    _check_names(schema.fieldNames(), known)
    for field in schema.fields:
        allowed = sorted(kind.simpleString() for kind in known[field.name])
        if field.dataType.simpleString() not in allowed:
            raise InvalidUse(f"Column {field.name} is {' or '.join(allowed)}, not {field.dataType.simpleString()}.")


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidUse(f"Unknown column {name!r}. The columns are: {', '.join(known)}.")


def batch_maker(columns: StructType, settings: Settings) -> Callable[[MessageBlock], pa.RecordBatch]:
    """Return a function that converts blocks to Arrow batches with these columns."""
    schema = to_arrow_schema(columns, timezone="UTC")
    decoder, keys = decoder_of(settings, "value"), decoder_of(settings, "key")
    own = () if decoder is None else tuple(field.name for field in decoder.fields)
    wanted = {field.name: field.type for field in schema if field.name in own}

    def make(block: MessageBlock) -> pa.RecordBatch:
        values: dict[str, pa.Array] = decoder.columns(block, wanted) if wanted and decoder is not None else {}
        if keys is not None and KEY_PART in schema.names:
            values[KEY_PART] = keys.column(block, schema.field(KEY_PART).type)
        for field in schema:
            if field.name not in values:
                values[field.name] = COLUMNS[field.name].of(block, field.type)
        return pa.RecordBatch.from_arrays([values[name] for name in schema.names], schema=schema)

    return make
