"""Conversion of Avro schemas to Spark's types."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from pulsar_ext.errors import InvalidUse
from pulsar_ext.spark.schema import PartDecoder, field_types, json_reader, plain

INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "b", "type": "bytes"},
    ],
}
SPACED = {**INNER, "namespace": "com.x.Outer"}


def record(*kinds, **more):
    """Return a record with a field of each type, named a, b, c and so on."""
    fields = [{"name": name, "type": kind} for name, kind in zip("abcdef", kinds, strict=False)]
    return {"type": "record", "name": "Outer", "namespace": "com.x", "fields": fields, **more}


@pytest.mark.parametrize(
    "schema",
    [
        record(INNER, "Inner"),
        record(INNER, "com.x.Inner"),
        record(SPACED, ["null", "com.x.Outer.Inner"]),
        record({"type": INNER}, {"type": "Inner"}),
        record(INNER, {"type": "Inner"}, namespace=""),
    ],
)
def test_reused_named_type_is_resolved(schema):
    """A type defined once and reused by its full or short name has the same fields and values in both places."""
    first, second = field_types(schema)
    assert first.dataType == second.dataType
    value = '{"at": 5, "b": "6Q=="}'
    wanted = {"at": 5000, "b": b"\xe9"}
    assert json_reader(schema)(f'{{"a": {value}, "b": {value}}}'.encode()) == {"a": wanted, "b": wanted}


def test_named_types_resolve_in_arrays_and_maps():
    """A named type is resolved inside arrays and maps too."""
    schema = record({"type": "map", "values": INNER}, {"type": "array", "items": ["null", "Inner"]})
    assert field_types(schema)[1].dataType.elementType == field_types(schema)[0].dataType.valueType
    found = json_reader(schema)(b'{"a": {}, "b": [null, {"at": 5, "b": ""}]}')
    assert found == {"a": {}, "b": [None, {"at": 5000, "b": b""}]}


@pytest.mark.parametrize(
    "schema",
    [
        record(["null", "Outer"]),
        record(record(["null", "Inner"], name="Inner")),
        record("Unknown"),
    ],
)
def test_recursive_and_unknown_types_raise(schema):
    """A type that contains itself, or that is undefined, raises an error with its name."""
    with pytest.raises(InvalidUse, match=r"(Outer|Inner|Unknown).* (is undefined|contains itself)"):
        field_types(schema)


def test_unsupported_logical_types_are_removed():
    """Only logical types that have a column type are kept, at any depth."""
    kept = {"type": "long", "logicalType": "timestamp-micros"}
    uuid = {"type": "string", "logicalType": "uuid"}
    schema = record(kept, {"type": "array", "items": ["null", uuid]})
    assert plain(schema) == record(kept, {"type": "array", "items": ["null", {"type": "string"}]})


def test_value_of_another_type_is_not_read_as_a_time():
    """A `long` that was written without a logical type is not read as a time, as its unit is unknown."""
    written, wanted = record("long"), record({"type": "long", "logicalType": "timestamp-millis"})
    read = PartDecoder("value", "avro", {"valueSchema": json.dumps(wanted)})._avro_reader(3, written)
    with pytest.raises(
        ValueError, match=r"schema version 3, which .*Outer.a: long is written, long \(timestamp-millis"
    ):
        read(b"\x0a")
