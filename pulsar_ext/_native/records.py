"""Official `Record` classes that keep inherited fields and are read back as they were written.

The official class keeps only the fields in a class's own body. It reads records in nested arrays or maps as dicts,
bytes there as text, and an enum's value as a member's name.
"""

from __future__ import annotations

import copy
import enum
import io
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pulsar.schema
from pulsar.schema import Array, Bytes, CustomEnum, Field, Map, Schema

from pulsar_ext.errors import InvalidUse, SchemaMismatch

RecordClass: TypeAlias = type[pulsar.schema.Record]
Convert: TypeAlias = Callable[[Field, object], object]

_PARAMETERS = frozenset({"default", "required", "required_default"})
"""Field names that are also parameters of the official constructor."""


class Record(pulsar.schema.Record):  # type: ignore[misc]  # the official client has no type hints
    """`pulsar.schema.Record` with the fields of its base classes before its own."""

    _fields: dict[str, Field]

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._fields = _fields_of(cls)

    def __init__(self, *args: object, **values: object) -> None:
        own = {name: values.pop(name) for name in _PARAMETERS & self._fields.keys() & values.keys()}
        super().__init__(*args, **values)
        for name, value in own.items():
            setattr(self, name, value)


def record_class_of(schema: Schema) -> RecordClass | None:
    """Return the `Record` class of an official schema object; None if the schema was made of a definition."""
    record: RecordClass | None = schema._record_cls
    return record


def raise_if_fields_lost(record: RecordClass) -> None:
    """Raise if an official `Record` class loses fields: inherited ones, or those named like a constructor parameter."""
    if lost := _lost_fields(record):
        raise InvalidUse(
            f"pulsar.schema.Record loses {', '.join(lost)}: it keeps only fields of a class's own body that are not "
            "named like a parameter of its constructor. Derive from pulsar_ext.schema.Record. Nothing was opened."
        )


def _lost_fields(record: RecordClass, seen: frozenset[RecordClass] = frozenset()) -> list[str]:
    """Return the fields that a class or a nested one not in `seen` loses; our own classes lose none."""
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


def _fields_of(record: RecordClass) -> dict[str, Field]:
    """Return the fields of a class and its bases; a class attribute that is not a field removes the inherited one."""
    found: dict[str, Field] = {}
    for base in reversed(record.__mro__):
        if base in pulsar.schema.Record.__mro__ or base is globals().get("Record"):
            continue
        own = type(pulsar.schema.Record)._get_fields(vars(base))
        for name in found.keys() & vars(base).keys() - own.keys():
            del found[name]
        found.update(own)
    return found


def record_of_json(record: RecordClass, data: bytes) -> pulsar.schema.Record:
    """Return the record that an official client wrote as JSON."""
    parsed = json.loads(data)
    if not isinstance(parsed, dict):
        raise SchemaMismatch(f"{record.__name__} must be a JSON object, got {type(parsed).__name__}.", differences=())
    return _make_record(record, parsed, _from_json)


def record_of_avro(schema: Schema, decode: Callable[[Schema], dict[str, object]]) -> pulsar.schema.Record:
    plain = copy.copy(schema)
    plain._record_cls = None
    return _make_record(schema._record_cls, decode(plain), lambda _, value: value)


def read_whole_avro(schema: Schema, data: bytes, written: dict[str, object]) -> dict[str, object]:
    """Decode Avro to a dict like the official schema object, but reject trailing bytes."""
    import fastavro  # noqa: PLC0415  # needed for Avro only

    buffer, read = io.BytesIO(data), schema._schema
    found: Any = fastavro.schemaless_reader(buffer, {**written, "name": read["name"]}, read)
    if left := len(data) - buffer.tell():
        raise SchemaMismatch(
            f"The {len(data)} bytes do not match their Avro schema: {left} bytes remain after the record.",
            differences=(),
        )
    return found  # type: ignore[no-any-return]


def _make_record(record: RecordClass, values: dict[str, object], convert: Convert) -> pulsar.schema.Record:
    fields = record._fields
    return record(**{name: _read(fields[name], value, convert) for name, value in values.items() if name in fields})


def _read(field: Field, value: object, convert: Convert) -> object:
    if isinstance(field, Array) and isinstance(value, list):
        return [_read(field.array_type, one, convert) for one in value]
    if isinstance(value, dict):
        if isinstance(field, Map):
            return {key: _read(field.value_type, one, convert) for key, one in value.items()}
        if isinstance(field, pulsar.schema.Record):
            return _make_record(type(field), value, convert)
    return convert(field, value)


def _from_json(field: Field, value: object) -> object:
    if isinstance(field, CustomEnum):
        return _member_of(field.enum_type, value)
    return value.encode() if isinstance(field, Bytes) and isinstance(value, str) else value


def _member_of(kind: type[enum.Enum], value: object) -> object:
    """Return the enum member with the written value or name; return other values unchanged."""
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
            f"{value!r} is the value of {found[0]} and the name of {found[1]}; the JSON is ambiguous.",
            differences=(),
        )
    return found[0] if found else value


def is_written_as(value: object, written: object) -> bool:
    """Return whether JSON represents an enum member's value by `written`."""
    if isinstance(value, bytes):
        return isinstance(written, str) and value == written.encode()
    return bool((list(value) if isinstance(value, tuple) else value) == written)
