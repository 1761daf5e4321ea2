"""Official `Record` classes: with the fields of their base classes, and read back as what was written.

The official class keeps the fields of its own body only. It reads records in an array or a map that is itself in one as
dicts, bytes there as text, and an enum's value as the name of a member.
"""

from __future__ import annotations

import copy
import enum
import io
import json
from typing import TYPE_CHECKING, Any

import pulsar.schema
from pulsar.schema import Array, Bytes, CustomEnum, Map

from pulsar_ext.errors import InvalidUse, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Record",
    "is_written_as",
    "read_whole_avro",
    "record_class_of",
    "record_of_avro",
    "record_of_json",
    "refuse_lost_fields",
]

_PARAMETERS = frozenset({"default", "required", "required_default"})
"""What the official constructor takes for itself."""


class Record(pulsar.schema.Record):  # type: ignore[misc]  # the official client ships no types
    """A `pulsar.schema.Record` that has the fields of its base classes as well, before its own."""

    _fields: dict[str, Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._fields = _fields_of(cls)

    def __init__(self, *args: Any, **values: Any) -> None:
        own = {name: values.pop(name) for name in _PARAMETERS & self._fields.keys() & values.keys()}
        super().__init__(*args, **values)
        for name, value in own.items():
            setattr(self, name, value)


def record_class_of(schema: Any) -> Any:
    """Return the `Record` class of an official schema object; None if it is of a definition."""
    return schema._record_cls


def refuse_lost_fields(record: Any) -> None:
    """Refuse an official `Record` class that loses fields: inherited ones, and those named as a parameter.

    Raises:
        InvalidUse: it does, or one in it.
    """
    if lost := _lost_fields(record):
        raise InvalidUse(
            f"pulsar.schema.Record loses {', '.join(lost)}: it keeps the fields of a class's own body, and those not "
            "named as a parameter of its constructor. Derive from pulsar_ext.schema.Record. Nothing was opened."
        )


def _lost_fields(record: Any, seen: frozenset[Any] = frozenset()) -> list[str]:
    """Return the fields that a class loses, or one in it that is not among `seen`; ours lose none."""
    fields, lost = record._fields, set()
    if not issubclass(record, Record):
        lost = (_fields_of(record).keys() - fields.keys()) | (_PARAMETERS & fields.keys())
    found = [f"{record.__name__}.{name}" for name in sorted(lost)]
    for field in fields.values():
        inner = field
        while isinstance(inner, Array | Map):
            inner = inner.array_type if isinstance(inner, Array) else inner.value_type
        if isinstance(inner, pulsar.schema.Record) and type(inner) not in seen:
            found += _lost_fields(type(inner), seen | {record, type(inner)})
    return found


def _fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a class and of its bases; what replaces one by something else removes it."""
    found: dict[str, Any] = {}
    for base in reversed(record.__mro__):
        if base in pulsar.schema.Record.__mro__ or base is globals().get("Record"):
            continue
        own = type(pulsar.schema.Record)._get_fields(vars(base))
        for name in found.keys() & vars(base).keys() - own.keys():
            del found[name]
        found.update(own)
    return found


def record_of_json(record: Any, data: bytes) -> Any:
    """Make a record of the JSON that an official client wrote.

    Args:
        record: its class.
        data: the JSON.

    Raises:
        SchemaMismatch: it is no object, or a text is the value of one member of an enum and the name of another.
        ValueError: it is not JSON.
        TypeError: something in it is of another type than its field, as officially.
    """
    parsed = json.loads(data)
    if not isinstance(parsed, dict):
        raise SchemaMismatch(
            f"{record.__name__} is a JSON object, and {type(parsed).__name__} was read.", differences=()
        )
    return _made(record, parsed, _from_json)


def record_of_avro(schema: Any, decode: Callable[[Any], dict[str, Any]]) -> Any:
    """Make a record of what Avro reads.

    Args:
        schema: the official schema object of its class.
        decode: reads a dict by a schema object that shares with `schema` what that knows of versions.
    """
    plain = copy.copy(schema)
    plain._record_cls = None
    return _made(schema._record_cls, decode(plain), lambda _, value: value)


def read_whole_avro(schema: Any, data: bytes, written: dict[str, Any]) -> dict[str, Any]:
    """Read a dict of Avro, as the official schema object does, which leaves what is behind it.

    Args:
        schema: the official schema object.
        data: the bytes.
        written: the definition that they were written with.

    Raises:
        SchemaMismatch: there are bytes behind it.
    """
    import fastavro  # noqa: PLC0415  # only who has Avro needs it

    buffer, read = io.BytesIO(data), schema._schema
    found: Any = fastavro.schemaless_reader(buffer, {**written, "name": read["name"]}, read)
    if left := len(data) - buffer.tell():
        raise SchemaMismatch(
            f"{len(data)} bytes are not Avro of the schema that they are said to be of: {left} bytes are left.",
            differences=(),
        )
    return found  # type: ignore[no-any-return]


def _made(record: Any, values: dict[str, Any], convert: Callable[[Any, Any], Any]) -> Any:
    fields = record._fields
    return record(**{name: _read(fields[name], value, convert) for name, value in values.items() if name in fields})


def _read(field: Any, value: Any, convert: Callable[[Any, Any], Any]) -> Any:
    if isinstance(field, Array) and isinstance(value, list):
        return [_read(field.array_type, one, convert) for one in value]
    if isinstance(value, dict):
        if isinstance(field, Map):
            return {key: _read(field.value_type, one, convert) for key, one in value.items()}
        if isinstance(field, pulsar.schema.Record):
            return _made(type(field), value, convert)
    return convert(field, value)


def _from_json(field: Any, value: Any) -> Any:
    if isinstance(field, CustomEnum):
        return _member_of(field.enum_type, value)
    return value.encode() if isinstance(field, Bytes) and isinstance(value, str) else value


def _member_of(kind: Any, value: Any) -> Any:
    """Return the member of an enum whose value is written so, or whose name it is; what is neither as it is."""
    if value is None:
        return None
    if issubclass(kind, enum.Flag) and isinstance(value, int):
        return kind(value)
    found = [member for member in kind if is_written_as(member.value, value)]
    named = kind.__members__.get(value) if isinstance(value, str) else None
    if named is not None and named not in found:
        found.append(named)
    if len(found) > 1:
        raise SchemaMismatch(
            f"{value!r} is the value of {found[0]} and the name of {found[1]}, and JSON does not say which is meant.",
            differences=(),
        )
    return found[0] if found else value


def is_written_as(value: Any, written: Any) -> bool:
    """Return whether JSON has this for a value of an enum's member."""
    if isinstance(value, bytes):
        return isinstance(written, str) and value == written.encode()
    return bool((list(value) if isinstance(value, tuple) else value) == written)
