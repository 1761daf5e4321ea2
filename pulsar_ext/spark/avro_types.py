"""Spark's types for Avro's, and JSON values of Avro schemas (pure, except that it needs Spark's type classes)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["field_types", "json_converter"]

_SIMPLE = {
    "boolean": types.BooleanType,
    "int": types.IntegerType,
    "long": types.LongType,
    "float": types.FloatType,
    "double": types.DoubleType,
    "bytes": types.BinaryType,
    "string": types.StringType,
    "enum": types.StringType,
    "fixed": types.BinaryType,
}
_LOGICAL: dict[str, Callable[[], types.DataType]] = {
    "timestamp-millis": types.TimestampType,
    "timestamp-micros": types.TimestampType,
    "date": types.DateType,
}
_MICROS = 1000


def field_types(schema: Any) -> list[types.StructField]:
    """Give the fields of a record as Spark's.

    Raises:
        InvalidUse: the schema is not a record, or a field has a type that Spark does not have.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidUse(
            "The schema of the values is not an Avro record, so it has no fields: use valueFormat bytes or string."
        )
    return [_field(one, {}) for one in schema["fields"]]


def _field(field: Any, named: dict[str, Any]) -> types.StructField:
    if field["name"].startswith("__"):
        raise InvalidUse(
            f"The schema's field {field['name']} begins with __, which is reserved for the columns of this source."
        )
    return types.StructField(field["name"], _spark(field["type"], named), nullable=True)


def _spark(kind: Any, named: dict[str, Any]) -> types.DataType:
    kind = _not_null(kind)
    if isinstance(kind, list):
        raise InvalidUse(f"A union of several types cannot be a column: {kind}.")
    if isinstance(kind, str):
        if kind not in named and kind not in _SIMPLE:
            raise InvalidUse(f"The Avro type {kind!r} cannot be a column.")
        return _spark(named[kind], named) if kind in named else _SIMPLE[kind]()
    if "name" in kind:
        named[kind["name"]] = kind
    return _logical(kind) or _composed(kind, named)


def _logical(kind: dict[str, Any]) -> types.DataType | None:
    name = kind.get("logicalType", "")
    if name == "decimal":
        return types.DecimalType(kind["precision"], kind.get("scale", 0))
    return _LOGICAL[name]() if name in _LOGICAL else None


def _composed(kind: dict[str, Any], named: dict[str, Any]) -> types.DataType:
    name = kind.get("type")
    if name == "record":
        return types.StructType([_field(one, named) for one in kind["fields"]])
    if name == "array":
        return types.ArrayType(_spark(kind["items"], named))
    if name == "map":
        return types.MapType(types.StringType(), _spark(kind["values"], named))
    return _spark(name, named)


def _not_null(kind: Any) -> Any:
    """Give the type of a value that is not null: Avro writes one that may be null as a union with null."""
    if not isinstance(kind, list):
        return kind
    rest = [one for one in kind if one != "null"]
    return rest[0] if len(rest) == 1 else rest


def json_converter(schema: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Make the function that turns a JSON object of a schema into values that Arrow takes.

    Avro's JSON has times in milliseconds, and bytes as text.
    """
    converters = {field["name"]: _converter(field["type"]) for field in schema["fields"]}
    needed = {name: converter for name, converter in converters.items() if converter is not None}
    if not needed:
        return lambda row: row

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {
            name: needed[name](value) if name in needed and value is not None else value for name, value in row.items()
        }

    return convert


def _converter(kind: Any) -> Callable[[Any], Any] | None:
    kind = _not_null(kind)
    if isinstance(kind, str):
        return _bytes_of if kind in ("bytes", "fixed") else None
    name = kind.get("type")
    if kind.get("logicalType") == "timestamp-millis":
        return lambda millis: millis * _MICROS
    if name == "record":
        return json_converter(kind)
    if name in ("array", "map"):
        return _each(name, _converter(kind["items" if name == "array" else "values"]))
    return None if "logicalType" in kind else _converter(name)


def _bytes_of(text: str) -> bytes:
    """Read bytes as Avro's JSON has them: one character for each."""
    return text.encode("latin-1")


def _each(name: str, one: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if one is None:
        return None
    if name == "array":
        return lambda items: [None if item is None else one(item) for item in items]
    return lambda items: {key: None if item is None else one(item) for key, item in items.items()}
