"""Columns of a read: the table of a message's columns, values and keys with a schema, and conversion of message blocks.

Values and keys are JSON or Avro, decoded into columns by an Avro schema of the user or of the topic. The schema of a
KEY_VALUE topic contains that of the values; with INLINE encoding, the payload contains the key too.

JSON values are parsed in the formats of Java's client and of this library's schemas: bytes in base64, but as text in
messages of the official Python client, whose JSON has lines; timestamps and dates as numbers of the schema's unit or in
ISO 8601; and Jackson's formats of an `Instant`, seconds with a fraction, and of a `LocalDate`, an array. A value that
does not fit its column raises.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.schemas import version_of
from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.admin import SchemaInfo
from pulsar_ext.errors import AdminNotFound, InvalidUse, SchemaMismatch
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.schema import shapes
from pulsar_ext.schema.avro_definition import shape_of_definition
from pulsar_ext.schema.avro_schema import avro_reader
from pulsar_ext.schema.json_schema import OFFICIAL_BEGINNING, parse_json
from pulsar_ext.schema.key_value import key_bytes, parts_of, split_inline
from pulsar_ext.schema.shapes import Complex, Definition, short_name

from .connection import admin_of
from .message_block import MessageBlock, binary_of, sizes_of, with_nulls
from .options import Settings
from .planning import topics_of

SchemaPart = Literal["value", "key"]
_Row = dict[str, object]
_Converter = Callable[[Any], object]
"""Converter of parsed JSON that is not null; a type without one has unchanged values."""
_Taker = Callable[[InnerMessage, bytes | None], bytes | None]


def field_types(schema: Definition) -> list[types.StructField]:
    """Return the fields of a record as Spark's."""
    return _Columns().of_record(_record_of(schema))[0].fields


def json_reader(schema: Definition) -> Callable[[bytes], _Row]:
    """Return a parser of a record's JSON; it raises ValueError or TypeError if the JSON does not fit the schema."""
    record = _record_of(schema)
    compact, with_lines = (_Columns(bytes_of).of_record(record)[1] for bytes_of in (_bytes_of, str.encode))

    def read(data: bytes) -> _Row:
        row = parse_json(data)
        if not isinstance(row, dict):
            raise TypeError("it is not a JSON object")
        return (with_lines if data.startswith(OFFICIAL_BEGINNING) else compact)(row)

    return read


def plain(schema: Definition) -> Definition:
    """Return a schema without the logical types that no column has, such as uuid: their values stay as written."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: plain(one) for name, one in schema.items() if name != "logicalType" or one == _DECIMAL or one in _LOGICAL
    }


def _record_of(schema: Definition) -> shapes.Record:
    shape = shape_of_definition(schema) if isinstance(schema, dict) else None
    if not isinstance(shape, shapes.Record):
        raise InvalidUse(
            "The schema of the values is not an Avro record, so it has no fields: use valueFormat bytes or string."
        )
    return shape


class _Columns:
    """Spark types of shapes, each with the converter of its JSON; `bytes_of` is that of bytes."""

    def __init__(self, bytes_of: _Converter | None = None) -> None:
        self._bytes_of = bytes_of
        self._inside: list[shapes.Record] = []

    def of_record(self, record: shapes.Record) -> tuple[StructType, Callable[[_Row], _Row]]:
        """Return the type of a record, and the converter of its JSON object, which may lack fields."""
        if record in self._inside:
            raise InvalidUse(f"The Avro type {short_name(record)!r} cannot be a column: it contains itself.")
        self._inside.append(record)
        fields, converters = [], {}
        for field in record.fields:
            if field.name.startswith("__"):
                raise InvalidUse(
                    f"The schema's field {field.name} begins with __, which is reserved for the columns of this source."
                )
            kind, converter = self._of(field.shape)
            fields.append(types.StructField(field.name, kind, nullable=True))
            if converter is not None:
                converters[field.name] = converter
        self._inside.pop()
        return StructType(fields), partial(_convert_row, converters) if converters else lambda row: row

    def _of(self, shape: shapes.Shape) -> tuple[DataType, _Converter | None]:  # noqa: PLR0911  # one for each shape
        match shape:
            case shapes.Record():
                return self.of_record(shape)
            case shapes.Union(branches):
                rest = [one for one in branches if one != shapes.Scalar("null")]
                if len(rest) != 1:
                    raise InvalidUse(
                        f"A union of several types cannot be a column: {', '.join(map(short_name, rest))}."
                    )
                return self._of(rest[0])
            case shapes.Array(items):
                kind, one = self._of(items)
                return types.ArrayType(kind), None if one is None else partial(_convert_each, one)
            case shapes.Mapped(items):
                kind, one = self._of(items)
                return types.MapType(StringType(), kind), None if one is None else partial(_convert_items, one)
            case shapes.Enumeration():
                return StringType(), None
            case shapes.Fixed(meaning=meaning):
                return (BinaryType(), _bytes_of) if meaning is None else self._of_scalar(meaning)
        return self._of_scalar(shape)

    def _of_scalar(self, scalar: shapes.Scalar) -> tuple[DataType, _Converter | None]:
        if scalar.logical == _DECIMAL:
            return types.DecimalType(scalar.precision, scalar.scale), _decimal
        if scalar == shapes.Scalar("null"):
            raise InvalidUse("The Avro type 'null' cannot be a column.")
        make, convert = _LOGICAL.get(scalar.logical or "") or _SIMPLE[scalar.type]
        return make(), self._bytes_of if scalar.type == "bytes" else convert


def _convert_each(convert: _Converter, values: list[object]) -> list[object]:
    return [None if value is None else convert(value) for value in values]


def _convert_items(convert: _Converter, values: _Row) -> _Row:
    return {key: None if value is None else convert(value) for key, value in values.items()}


def _convert_row(converters: dict[str, _Converter], row: _Row) -> _Row:
    return {
        name: converters[name](value) if name in converters and value is not None else value
        for name, value in row.items()
    }


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ONE: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLION: Final = 1_000_000
_MOST_DIGITS: Final = 20


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not base64") from None


def _whole(value: object) -> object:
    if isinstance(value, Decimal):
        if value != (whole := _integer(value)):
            raise ValueError(f"{value} is not a whole number")  # Arrow would drop the fraction
        return whole
    return value


def _integer(value: Decimal) -> int:
    """Return a number without its fraction; raise if its zeros would fill the memory."""
    if value.adjusted() > _MOST_DIGITS:
        raise ValueError(f"{value} is too large")
    return int(value)


def _fraction(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value


def _micros(unit: int, value: str | int | Decimal) -> object:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(f"{value} is a time without a zone")
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(value, Decimal):
        return _integer(value * _MILLION)  # an `Instant`
    return value * unit


def _days(value: object) -> object:
    if isinstance(value, str):
        return date.fromisoformat(value).toordinal() - _DAY_ONE
    return date(*value).toordinal() - _DAY_ONE if isinstance(value, list) else _whole(value)


def _decimal(value: str | int | Decimal) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None


_DECIMAL: Final = "decimal"
_SIMPLE: Final[Mapping[str, tuple[Callable[[], DataType], _Converter | None]]] = {
    "boolean": (types.BooleanType, None),
    "int": (types.IntegerType, _whole),
    "long": (types.LongType, _whole),
    "float": (types.FloatType, _fraction),
    "double": (types.DoubleType, _fraction),
    "bytes": (BinaryType, None),
    "string": (StringType, None),
}
_LOGICAL: Final[Mapping[str, tuple[Callable[[], DataType], _Converter | None]]] = {
    "timestamp-millis": (types.TimestampType, partial(_micros, 1000)),
    "timestamp-micros": (types.TimestampType, partial(_micros, 1)),
    "date": (types.DateType, _days),
}
"""Spark types of Avro's, with the converters of their JSON."""


_PARTS: Final[tuple[SchemaPart, ...]] = ("value", "key")
_PLAIN: Final = {"bytes": BinaryType(), "string": StringType()}
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError, SchemaMismatch)
"""Errors raised by bytes that do not fit a schema."""


def with_schemas(settings: Settings) -> Settings:
    """Return the options with the current schemas of the topics, so that all tasks of a query use the same ones."""
    for part in _PARTS:
        kind = settings[f"{part}Format"]
        if kind in ("json", "avro") and not settings[f"{part}Schema"]:
            values = {**settings.values, f"{part}Schema": _registered(settings, part, kind)}
            settings = replace(settings, values=values)
    return settings


def decoder_of(settings: Settings, part: SchemaPart) -> PartDecoder | None:
    """Return the decoder of a part; None for values that are bytes or text, and without option `keyFormat`."""
    kind = settings[f"{part}Format"]
    return None if kind is None or (part == "value" and kind in _PLAIN) else PartDecoder(part, kind, settings)


def _registered(settings: Settings, part: SchemaPart, kind: str) -> str:
    admin = admin_of(settings)
    found: dict[str, str] = {}
    for topic in dict.fromkeys(str(TopicName.parse(name).parent) for name in topics_of(settings)):
        try:
            its_kind, definition = _definition_of(admin.schema(topic), part)
        except AdminNotFound:
            raise InvalidUse(f"{topic} has no schema: set option {part}Schema to an Avro schema in JSON.") from None
        if its_kind != kind:
            shown = f"The schema of {topic}" if part == "value" else f"The schema of the keys of {topic}"
            raise InvalidUse(f"{shown} is {its_kind.upper()}, but option {part}Format is {kind}.")
        found[topic] = json.dumps(definition)
    if not found:
        raise InvalidUse(f"None of the topics exists yet, so their schema is unknown: set option {part}Schema.")
    schemas = list(dict.fromkeys(found.values()))
    if len(schemas) > 1 and not settings["allowDifferentTopicSchemas"]:
        raise InvalidUse(
            f"The topics have {len(schemas)} different schemas: {', '.join(found)}. Set option {part}Schema, or "
            "allowDifferentTopicSchemas=true to use the first topic's."
        )
    return schemas[0]


def _definition_of(schema: SchemaInfo, part: SchemaPart) -> tuple[str, Complex | None]:
    """Return the type and the definition of a part; "none" for the key of a topic without KEY_VALUE schema."""
    if schema.type == "KEY_VALUE":
        key, value = parts_of(schema)
        found = value if part == "value" else key
        return found.type.lower(), json.loads(found.definition)
    if part == "key":
        return "none", None
    return schema.type.lower(), json.loads(schema.data) if schema.type in ("AVRO", "JSON") else None


class PartDecoder:
    """Decoder of one part, key or value, of the messages of a block."""

    def __init__(self, part: SchemaPart, kind: str, settings: Settings) -> None:
        self._part, self._kind, self._settings = part, kind, settings
        self._schema: Definition = json.loads(settings[f"{part}Schema"] or "null")
        self.fields = [] if kind in _PLAIN else field_types(self._schema)
        self.type: DataType = _PLAIN.get(kind) or StructType(self.fields)
        self._read_json = json_reader(self._schema) if kind == "json" else None
        self._readings: dict[tuple[str, int], tuple[_Taker, Callable[[bytes], object]]] = {}

    def columns(self, block: MessageBlock, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        """Return the wanted fields as Arrow arrays of these types; a null value is null in each of them."""
        values = enumerate(block.values.to_pylist())
        rows = [{} if value is None else self._decoded(block, index, value) or {} for index, value in values]
        return {name: self._array(block, [row.get(name) for row in rows], kind) for name, kind in wanted.items()}

    def column(self, block: MessageBlock, kind: pa.DataType) -> pa.Array:
        """Return the part of each message as an Arrow array of a type."""
        values = enumerate(block.values.to_pylist())
        return self._array(block, [self._decoded(block, index, value) for index, value in values], kind)

    def _decoded(self, block: MessageBlock, index: int, payload: bytes | None) -> Any:
        inner = block.inners[index]
        key = block.topic, version_of(inner)
        try:
            if key not in self._readings:
                self._readings[key] = self._reading(*key)
            take, read = self._readings[key]
            taken = take(inner, payload)
            return None if taken is None else read(taken)
        except _UNREADABLE as error:
            raise InvalidUse(
                f"The {self._part} of {inner.message_id()} on {block.topic} is not {self._kind} of this schema: "
                f"{str(error).rstrip('.')}. Read it with {self._part}Format=bytes."
            ) from None

    def _array(self, block: MessageBlock, found: list[object], kind: pa.DataType) -> pa.Array:
        try:
            return pa.array(found, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidUse(f"A {self._part} on {block.topic} does not fit the schema: {error}.") from None

    def _reading(self, topic: str, version: int) -> tuple[_Taker, Callable[[bytes], object]]:
        """Return functions that extract and decode the part, by the schema version of a message's producer."""
        stored = self._stored(str(TopicName.parse(topic).parent), version)
        kind, definition = (None, None) if stored is None else _definition_of(stored, self._part)
        pair = stored if stored is not None and stored.type == "KEY_VALUE" else None
        take = _taker(None if pair is None else pair.properties.get("kv.encoding.type"), self._part)
        if pair is not None and kind != self._kind and self._kind not in _PLAIN:
            raise ValueError(f"its topic has a {kind} schema for it")
        if self._kind in _PLAIN:
            return take, bytes if self._kind == "bytes" else bytes.decode
        if self._read_json is not None:
            return take, self._read_json
        return take, self._avro_reader(version, definition if kind == "avro" and version >= 0 else None)

    def _avro_reader(self, version: int, stored: Complex | None) -> Callable[[bytes], object]:
        """Return a decoder of Avro by the stored definition; without it, the user's schema is also the writer's."""
        schema = plain(self._schema)
        assert isinstance(schema, dict)  # noqa: S101  # a record, as `field_types` checked
        # To be read by a schema of another name, the written name must be an alias of it.
        aliases = {} if stored is None else {"aliases": [*schema.get("aliases", ()), stored["name"]]}
        decode = avro_reader(schema if stored is None else plain(stored), shape_of_definition({**schema, **aliases}))

        def read(data: bytes) -> object:
            try:
                return decode(data)
            except SchemaMismatch as error:
                if not error.differences:
                    raise
                why = f"it was written with schema version {version}, which this schema cannot read"
                raise ValueError(f"{why}: {'; '.join(error.differences)}") from None

        return read

    def _stored(self, topic: str, version: int) -> SchemaInfo | None:
        """Return a topic's schema version, None if only the user has it; without a version the last KEY_VALUE one."""
        try:
            found = admin_of(self._settings).schema(topic, version if version >= 0 else None)
        except AdminNotFound:
            found = None
        if found is not None and found.type == "KEY_VALUE":
            return found
        if version < 0 or self._kind != "avro" or (found is not None and found.type == "AVRO"):
            return found if version >= 0 else None
        if f"{self._part}Schema" in self._settings.given:
            return None
        raise ValueError(f"its topic has no Avro schema of version {version}, with which it was written")


def _taker(encoding: str | None, part: SchemaPart) -> _Taker:
    """Return a function that extracts the bytes of a part from a C++ message and its payload."""
    if encoding == "INLINE":
        index = ("key", "value").index(part)
        return lambda _, payload: None if payload is None else split_inline(payload)[index]
    if part == "value":
        return lambda _, payload: payload
    return lambda inner, _: key_bytes(inner.partition_key())


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
