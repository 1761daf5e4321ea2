"""Spark's types for Avro's (pure, except that it needs Spark's type classes)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import types

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["expanded", "field_types", "not_null", "plain"]

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
_DECIMAL = "decimal"


def field_types(schema: Any) -> list[types.StructField]:
    """Give the fields of a record as Spark's.

    Raises:
        InvalidUse: the schema is not a record, or a field has a type that Spark does not have.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record" or "fields" not in schema:
        raise InvalidUse(
            "The schema of the values is not an Avro record, so it has no fields: use valueFormat bytes or string."
        )
    return [_field(one) for one in expanded(schema)["fields"]]


def plain(schema: Any) -> Any:
    """Give a schema without the logical types that no column has, such as uuid: their values are then as written."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: plain(one) for name, one in schema.items() if name != "logicalType" or one == _DECIMAL or one in _LOGICAL
    }


def expanded(schema: Any) -> Any:
    """Give a schema with what they name in the place of names; a type is written once, and then named.

    Raises:
        InvalidUse: a name names nothing, or the type that it is in.
    """
    return _Expansion().of(schema, "")


class _Expansion:
    """Replaces names by the types that came before."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, kind: Any, namespace: str) -> Any:
        """Give a type without names.

        Raises:
            InvalidUse: a name names nothing, or the type that it is in.
        """
        if isinstance(kind, list):
            return [self.of(one, namespace) for one in kind]
        if isinstance(kind, str):
            return kind if kind in _SIMPLE or kind == "null" else self._named_by(kind, namespace)
        if "name" in kind:
            return self._defined(kind, namespace)
        inner = {"array": "items", "map": "values"}.get(kind["type"] if isinstance(kind["type"], str) else "", "type")
        return {**kind, inner: self.of(kind[inner], namespace)}

    def _named_by(self, name: str, namespace: str) -> Any:
        found = self._named.get(_full_name(name, namespace), self._named.get(name))
        if found is None:
            raise InvalidUse(f"The Avro type {name!r} cannot be a column: it is not known, or contains itself.")
        return found

    def _defined(self, kind: dict[str, Any], namespace: str) -> Any:
        name = _full_name(kind["name"], kind.get("namespace", namespace))
        inside = name.rpartition(".")[0]
        if "fields" in kind:
            kind = {**kind, "fields": [{**one, "type": self.of(one["type"], inside)} for one in kind["fields"]]}
        self._named[name] = kind  # behind its fields, so that it is not known within itself
        return kind


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _field(field: Any) -> types.StructField:
    if field["name"].startswith("__"):
        raise InvalidUse(
            f"The schema's field {field['name']} begins with __, which is reserved for the columns of this source."
        )
    return types.StructField(field["name"], _spark(field["type"]), nullable=True)


def _spark(kind: Any) -> types.DataType:
    kind = not_null(kind)
    if isinstance(kind, list):
        raise InvalidUse(f"A union of several types cannot be a column: {kind}.")
    if isinstance(kind, str):
        if kind not in _SIMPLE:
            raise InvalidUse(f"The Avro type {kind!r} cannot be a column.")
        return _SIMPLE[kind]()
    return _logical(kind) or _composed(kind)


def _logical(kind: dict[str, Any]) -> types.DataType | None:
    name = kind.get("logicalType", "")
    if name == _DECIMAL:
        return types.DecimalType(kind["precision"], kind.get("scale", 0))
    return _LOGICAL[name]() if name in _LOGICAL else None


def _composed(kind: dict[str, Any]) -> types.DataType:
    name = kind.get("type")
    if name == "record":
        return types.StructType([_field(one) for one in kind["fields"]])
    if name == "array":
        return types.ArrayType(_spark(kind["items"]))
    if name == "map":
        return types.MapType(types.StringType(), _spark(kind["values"]))
    return _spark(name)


def not_null(kind: Any) -> Any:
    """Give the type of a value that is not null: Avro writes one that may be null as a union with null."""
    if not isinstance(kind, list):
        return kind
    rest = [one for one in kind if one != "null"]
    return rest[0] if len(rest) == 1 else rest
