"""Shapes of models, and models that are rejected before anything is opened."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import json
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NewType

import fastavro
import pydantic
import pytest
from schema_models import Color, Node, Point

from pulsar_ext import InvalidUse, SchemaMismatch
from pulsar_ext.schema import AvroName, AvroSchema, AvroType, Float32, Int32, JsonSchema, TimeMillis, decimal_type
from pulsar_ext.schema.avro_definition import definition_of, shape_of_definition
from pulsar_ext.schema.avro_schema import avro_reader
from pulsar_ext.schema.models import shape_of_model
from pulsar_ext.schema.reading import differences

Number = NewType("Number", int)


def _model(*fields, **options):
    return dataclasses.make_dataclass("Model", fields, kw_only=True, **options)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Any, "Model.x: .*Any has no Avro type"),
        (complex, "complex has no Avro type"),
        (dict[int, str], "keys must be str"),
        (tuple[int, str], "no tuples"),
        (str | uuid.UUID, "both string"),
        (dt.datetime | int, "both long"),
        (list[int] | set[int], "both array"),
    ],
)
def test_type_without_avro_type_raises(kind, why):
    """The error names the field and the problem."""
    with pytest.raises(InvalidUse, match=why):
        AvroSchema(_model(("x", kind)))


@pytest.mark.parametrize("kind", [str | bytes, str | Color, dt.date | str, uuid.UUID | bytes])
def test_json_rejects_union_that_looks_alike(kind):
    """Avro accepts such a union unless both branches are one Avro type."""
    with pytest.raises(InvalidUse, match="look alike in JSON"):
        JsonSchema(_model(("x", kind)))
    AvroSchema(_model(("x", kind)))


def test_default_of_another_type_raises():
    """A mismatch would otherwise surface only in a reader."""
    with pytest.raises(InvalidUse, match=r"The default of Model.x is NoneType None, not an int"):
        AvroSchema(_model(("x", int, None)))


def test_invalid_and_duplicate_names_raise():
    """Duplicate class names and field names, and invalid names, raise."""
    other = dataclasses.make_dataclass("Point", [("y", int)])
    with pytest.raises(InvalidUse, match="two classes have the name Point"):
        AvroSchema(_model(("a", Point), ("b", other)))
    with pytest.raises(InvalidUse, match="several fields have the name a"):
        AvroSchema(_model(("a", int), ("b", Annotated[int, AvroName("a")])))
    with pytest.raises(InvalidUse, match="not a valid Avro name"):
        AvroSchema(_model(("ä", int)))


def test_varying_default_is_not_in_the_schema():
    """The schema of a model with the current time as default is equal in each process."""
    model = _model(("at", dt.datetime, field(default_factory=lambda: dt.datetime.now(dt.UTC))), ("n", int, 1))
    (at, number) = definition_of(shape_of_model(model))["fields"]
    assert "default" not in at
    assert number["default"] == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (0.5, float("-inf"))])
def test_non_finite_default_is_not_in_the_schema(value):
    """The definition must be valid JSON for the broker; the values are written and read."""
    model = _model(("x", tuple[float, ...] if isinstance(value, tuple) else float | None, value))
    (found,) = json.loads(AvroSchema(model).schema_info().schema(), parse_constant=pytest.fail)["fields"]
    assert "default" not in found
    for schema in (AvroSchema(model), JsonSchema(model)):
        assert repr(schema.decode(schema.encode(model()))) == repr(model())


def test_annotations_set_names_and_types():
    """Annotations set the name, former names, namespace and type of a field."""

    @dataclass
    class Named:
        __avro_name__: ClassVar[str] = "com.acme.Order"
        price: Annotated[float, AvroName("unitPrice", "cost"), AvroType("float")]
        kind: Literal["a", "b"]
        number: Number
        part: Point

    globals()["Named"] = Named
    definition = definition_of(shape_of_model(Named))
    assert (definition["name"], definition["namespace"]) == ("Order", "com.acme")
    price, kind, number, part = definition["fields"]
    assert price == {"name": "unitPrice", "type": "float", "aliases": ["cost"]}
    assert (kind["type"], number["type"]) == ("string", "long")
    assert part["type"]["namespace"] == "com.acme"
    schema = AvroSchema(Named)
    value = Named(0.5, "a", Number(1), Point(1))
    assert schema.decode(schema.encode(value)) == value


def test_unknown_symbol_is_read_as_default():
    """An unknown symbol is a difference without a default, and read as the default with one."""

    def version(*symbols, default=None):
        members = {name: name for name in symbols}
        kind = enum.Enum("Kind", members)
        if default:
            kind.__avro_default__ = default
        return _model(("kind", kind)), kind

    (written, old), (strict, _), (lenient, new) = version("A", "B"), version("A"), version("A", "X", default="X")
    shape = shape_of_model(written)
    (found,) = differences(shape, shape_of_model(strict))
    assert str(found) == "Model.kind: the symbols B are written, and unknown to the enum Kind"
    reader = AvroSchema(lenient).reader_of(definition_of(shape))
    assert reader(AvroSchema(written).encode(written(kind=old.B))) == lenient(kind=new.X)


def test_decimal_bytes_are_not_read_as_text():
    """Unscaled bytes would be arbitrary text; they are read as a decimal in text, and as bytes."""
    written = _model(("x", Annotated[Decimal, AvroType("bytes", "decimal", 9, 2)]))
    (found,) = differences(shape_of_model(written), shape_of_model(_model(("x", str))))
    assert str(found) == "Model.x: bytes (decimal) is written, string is read"
    for kind in (Annotated[Decimal, AvroType("string", "java.math.BigDecimal")], bytes):
        assert differences(shape_of_model(written), shape_of_model(_model(("x", kind)))) == ()


DAY, POINT = dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)


class Moment(dt.datetime):
    """A subclass of datetime, such as that of pandas."""


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (dt.date | dt.datetime, [DAY, POINT, Moment(2024, 1, 2, tzinfo=dt.UTC)]),
        (dt.date | dt.time, [DAY, dt.time(1, 2)]),
        (dt.date | int, [DAY, 5, 10**9]),
        (TimeMillis | int, [dt.time(1, 2), 5]),
        (list[Int32 | dt.datetime | str | None], [[7, POINT, "a", None]]),
        (Float32 | float | None, [0.5, None]),
    ],
)
def test_union_branch_is_preserved(kind, values):
    """The branch is preserved even if Avro writes both branches as a number."""
    model = _model(("x", kind))
    schema = AvroSchema(model)
    for value in values:
        found = schema.decode(schema.encode(model(x=value))).x
        assert (found, isinstance(found, dt.datetime)) == (value, isinstance(value, dt.datetime))


def test_union_branch_of_another_writer_is_matched_by_meaning():
    """Java's union of a number and a time is read by a definition and by models with other units."""
    kinds = ["null", "int", {"type": "long", "logicalType": "timestamp-millis"}, {"type": "array", "items": "int"}]
    definition = {"type": "record", "name": "Model", "fields": [{"name": "x", "type": kinds}]}
    as_it_is = avro_reader(definition, shape_of_definition(definition))
    as_model = AvroSchema(model := _model(("x", Int32 | dt.datetime | list[int] | None))).reader_of(definition)
    for value in (None, 5, POINT, [1]):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), {"x": value})
        assert as_it_is(buffer.getvalue()) == {"x": value}
        assert as_model(buffer.getvalue()) == model(x=value)
    written = _model(("x", TimeMillis))
    reader = AvroSchema(read := _model(("x", Int32 | dt.time))).reader_of(definition_of(shape_of_model(written)))
    assert reader(AvroSchema(written).encode(written(x=dt.time(1)))) == read(x=dt.time(1))


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Float32, 1e300, "1e\\+300, beyond Avro's float"),
        (Float32, -3.4028235677973366e38, "beyond Avro's float"),
        (float, 10**400, "an int beyond Avro's double"),
        (str, "a\ud800", r"not valid UTF-8"),
        (Decimal, Decimal("NaN"), "NaN, not a finite decimal"),
        (Decimal, Decimal("-Infinity"), "not a finite decimal"),
        (Annotated[Decimal, decimal_type(9, 2)], Decimal("1e1000000"), r"does not fit into decimal\(9, 2\)"),
        (Annotated[Decimal, decimal_type(9, 2)], Decimal("1e7"), r"does not fit into decimal\(9, 2\)"),
    ],
)
def test_unwritable_value_raises_with_path(schema, kind, value, why):
    """Numbers that would become infinite, text that is not UTF-8 and non-finite decimals raise with their path."""
    model = _model(("x", list[kind]), ("by_name", dict[str, int], field(default_factory=dict)))
    with pytest.raises(InvalidUse, match=r"Model\.x\[0\] is .*" + why):
        schema(model).encode(model(x=[value]))
    with pytest.raises(InvalidUse, match=r"Model\.by_name\['.ud800'\] .*not valid UTF-8"):
        schema(model).encode(model(x=[], by_name={"\ud800": 1}))


def test_largest_values_are_written():
    """The largest 32-bit float, infinity, and decimals with all digits are written."""
    model = _model(("x", list[Float32]), ("y", Annotated[Decimal, decimal_type(9, 2)]))
    value = model(x=[3.4028234663852886e38, float("-inf")], y=Decimal("-9999999.99"))
    for schema in (AvroSchema(model), JsonSchema(model)):
        assert schema.decode(schema.encode(value)) == value


def test_fixed_decimal_is_read_as_decimal():
    """Java's `fixed` decimal is read as a decimal by its definition and by models, and is not an int."""
    kind = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 2}
    definition = {"type": "record", "name": "Model", "fields": [{"name": "x", "type": ["null", kind]}]}
    buffer, value = io.BytesIO(), Decimal("-1.25")
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), {"x": value})
    shape = shape_of_definition(definition)
    assert definition_of(shape) == definition
    assert avro_reader(definition, shape)(buffer.getvalue()) == {"x": value}
    for annotation in (Annotated[Decimal, decimal_type(8, 2)], Decimal):
        model = _model(("x", annotation | None))
        assert AvroSchema(model).reader_of(definition)(buffer.getvalue()) == model(x=value)
    (found,) = differences(shape, shape_of_model(_model(("x", int | None))))
    assert str(found) == "Model.x: Money, 4 bytes is written, only null or long is read"


def test_unreadable_value_raises_with_path():
    """Dates beyond the year 9999 and bytes that are not UTF-8 raise with their path."""
    for kind, other, value, why in [
        (Int32, {"type": "int", "logicalType": "date"}, 10**9, "not a valid date"),
        (bytes, "string", b"\xff", "not a valid str"),
    ]:
        model = _model(("x", list[kind]))
        definition = definition_of(shape_of_model(model))
        definition["fields"][0]["type"]["items"] = other
        shape = shape_of_definition(definition)
        reader = avro_reader(definition if kind is Int32 else definition_of(shape_of_model(model)), shape)
        with pytest.raises(SchemaMismatch, match=r"The message cannot be read: Model.x\[\]: is .*" + why) as caught:
            reader(AvroSchema(model).encode(model(x=[value])))
        assert len(caught.value.differences) == 1


def test_value_without_the_difference_is_read():
    """Values of nullable fields are read by a model without null, unless a value is null."""
    nullable, strict = _model(("x", str | None)), _model(("x", str))
    reader = AvroSchema(strict).reader_of(definition_of(shape_of_model(nullable)))
    writer = AvroSchema(nullable)
    assert reader(writer.encode(nullable(x="a"))) == strict(x="a")
    with pytest.raises(SchemaMismatch, match=r"Model\.x: null is written, string is read"):
        reader(writer.encode(nullable(x=None)))


def test_pydantic_validates_decoded_values():
    """A model's constraints apply to values of other writers; the error is pydantic's."""
    loose = pydantic.create_model("Model", n=(int, ...))
    strict = pydantic.create_model("Model", n=(int, pydantic.Field(gt=0)))
    for kind in (AvroSchema, JsonSchema):
        with pytest.raises(pydantic.ValidationError):
            kind(strict).decode(kind(loose).encode(loose(n=-1)))


def test_mutable_defaults_are_not_shared():
    """A change to one decoded value affects neither the next value nor the model's default."""
    part = pydantic.create_model("Part", n=(int, 0))
    whole = pydantic.create_model("Whole", a=(str, ""), part=(part, part()), parts=(list[part], [part()]))
    reader = AvroSchema(whole).reader_of({"type": "record", "name": "Whole", "fields": []})
    for read in (lambda: reader(b""), lambda: JsonSchema(whole).decode(b"{}")):
        changed = read()
        changed.part.n = changed.parts[0].n = 9
        assert read() == whole() == whole(part=part(n=0), parts=[part(n=0)])


def test_recursive_record_round_trips():
    """A record that contains itself is written and read at any depth."""
    value = Node(1, [Node(2), Node(3, [Node(4)])], Node(5))
    for kind in (AvroSchema, JsonSchema):
        assert kind(Node).decode(kind(Node).encode(value)) == value


def test_avro_with_trailing_bytes_raises():
    """Trailing bytes mean that the value was written with another schema."""
    model = _model(("x", int))
    schema = AvroSchema(model)
    written = schema.encode(model(x=1))
    assert schema.decode(written) == model(x=1)
    with pytest.raises(SchemaMismatch, match="1 bytes remain"):
        schema.decode(written + b"x")
