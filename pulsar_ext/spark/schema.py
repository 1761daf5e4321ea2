"""Makes the Spark schema of a read from its options, and Arrow batches of that schema from blocks of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

from pulsar_ext.errors import InvalidUse

from .columns import COLUMNS, KEY_PART, STANDARD
from .message_columns import column_of
from .values import key_part_decoder, value_decoder

if TYPE_CHECKING:
    from .message_block import MessageBlock
    from .options import Settings
    from .values import ValueDecoder

__all__ = ["BatchMaker", "check_schema", "full_schema"]

_TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def full_schema(settings: Settings) -> StructType:
    """Give the schema of a read for which the user gave none: the standard columns, or those of option `columns`.

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
    """Check a schema that the user gave in order to choose columns.

    Raises:
        InvalidUse: a column does not exist or has the wrong type, or option `columns` names other columns.
    """
    columns = settings["columns"]
    if columns and set(columns) != set(schema.fieldNames()) and settings["valueFormat"] in ("bytes", "string"):
        raise InvalidUse("Option columns and the schema name different columns: give only one of them.")
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
    return f"There is no column {name!r}. The columns are: {', '.join([*own, *known])}."


def _field(name: str, kind: str) -> StructField:
    return StructField(name, _TYPES[kind], nullable=True)


class BatchMaker:
    """Makes Arrow batches of a schema from blocks.

    Args:
        schema: the columns, in order.
        settings: the options.
    """

    def __init__(self, schema: StructType, settings: Settings) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._decoder = value_decoder(settings)
        self._own = frozenset() if self._decoder is None else frozenset(field.name for field in self._decoder.fields)
        self._keys = key_part_decoder(settings)
        self._wanted = [field.name for field in self._schema if field.name in self._own]

    def make(self, block: MessageBlock) -> Any:
        """Make one batch of a block."""
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
