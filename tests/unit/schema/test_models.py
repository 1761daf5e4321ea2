"""What a model's shape is, and what is refused before anything is opened."""

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
from pulsar_ext.schema.avro_schema import AvroReader
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
        (dict[int, str], "whose keys are str"),
        (tuple[int, str], "no tuples"),
        (str | uuid.UUID, "both string"),
        (dt.datetime | int, "both long"),
        (list[int] | set[int], "both array"),
    ],
)
def test_a_type_that_avro_has_not_is_refused(kind, why):
    """The error names the field and what is wrong with it."""
    with pytest.raises(InvalidUse, match=why):
        AvroSchema(_model(("x", kind)))


@pytest.mark.parametrize("kind", [str | bytes, str | Color, dt.date | str, uuid.UUID | bytes])
def test_json_refuses_a_union_of_what_looks_alike(kind):
    """In Avro the same union is fine, unless both are one type there as well."""
    with pytest.raises(InvalidUse, match="look alike in JSON"):
        JsonSchema(_model(("x", kind)))
    AvroSchema(_model(("x", kind)))


def test_a_default_of_another_type_is_refused():
    """It would be found out by a reader only."""
    with pytest.raises(InvalidUse, match=r"The default of Model.x is NoneType None, not an int"):
        AvroSchema(_model(("x", int, None)))


def test_names_are_checked():
    """Two classes of one name, and two fields, cannot be told apart."""
    other = dataclasses.make_dataclass("Point", [("y", int)])
    with pytest.raises(InvalidUse, match="two classes have the name Point"):
        AvroSchema(_model(("a", Point), ("b", other)))
    with pytest.raises(InvalidUse, match="several fields have the name a"):
        AvroSchema(_model(("a", int), ("b", Annotated[int, AvroName("a")])))
    with pytest.raises(InvalidUse, match="no Avro name"):
        AvroSchema(_model(("ä", int)))


def test_what_is_not_the_same_each_time_is_no_default_of_the_schema():
    """The schema of a model whose default is the time is the same in each process."""
    model = _model(("at", dt.datetime, field(default_factory=lambda: dt.datetime.now(dt.UTC))), ("n", int, 1))
    (at, number) = definition_of(shape_of_model(model))["fields"]
    assert "default" not in at
    assert number["default"] == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (0.5, float("-inf"))])
def test_what_json_has_no_number_for_is_no_default_of_the_schema(value):
    """The definition is JSON, which the broker parses; the value itself is written and read."""
    model = _model(("x", tuple[float, ...] if isinstance(value, tuple) else float | None, value))
    (found,) = json.loads(AvroSchema(model).schema_info().schema(), parse_constant=pytest.fail)["fields"]
    assert "default" not in found
    for schema in (AvroSchema(model), JsonSchema(model)):
        assert repr(schema.decode(schema.encode(model()))) == repr(model())


def test_annotations_change_what_is_on_the_wire():
    """A name, older names, a namespace, another type, and what stands for a type."""

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


def test_a_symbol_that_is_unknown_is_read_as_the_default():
    """Without one it is a difference, with one it is read."""

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
    reader = AvroSchema(lenient).model.reader(definition_of(shape))
    assert reader.read(AvroSchema(written).encode(written(kind=old.B))) == lenient(kind=new.X)


def test_the_digits_of_a_decimal_are_no_text():
    """What Avro reads as text would be any characters, or none; as a decimal in text, and as bytes, it is read."""
    written = _model(("x", Annotated[Decimal, AvroType("bytes", "decimal", 9, 2)]))
    (found,) = differences(shape_of_model(written), shape_of_model(_model(("x", str))))
    assert str(found) == "Model.x: bytes (decimal) is written, string is read"
    for kind in (Annotated[Decimal, AvroType("string", "java.math.BigDecimal")], bytes):
        assert differences(shape_of_model(written), shape_of_model(_model(("x", kind)))) == ()


DAY, POINT = dt.date(2024, 1, 2), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)


class Moment(dt.datetime):
    """A datetime of another class, as pandas and others have."""


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
def test_the_branch_of_a_union_that_was_written_is_read(kind, values):
    """Also where Avro writes both branches as a number."""
    model = _model(("x", kind))
    schema = AvroSchema(model)
    for value in values:
        found = schema.decode(schema.encode(model(x=value))).x
        assert (found, isinstance(found, dt.datetime)) == (value, isinstance(value, dt.datetime))


def test_the_branch_that_another_writer_wrote_is_read_as_the_one_that_means_the_same():
    """Java's union of a number and a time is read as it is, and by a model whose time has another unit."""
    kinds = ["null", "int", {"type": "long", "logicalType": "timestamp-millis"}, {"type": "array", "items": "int"}]
    definition = {"type": "record", "name": "Model", "fields": [{"name": "x", "type": kinds}]}
    as_it_is = AvroReader(definition, shape_of_definition(definition))
    as_model = AvroSchema(model := _model(("x", Int32 | dt.datetime | list[int] | None))).model.reader(definition)
    for value in (None, 5, POINT, [1]):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), {"x": value})
        assert as_it_is.read(buffer.getvalue()) == {"x": value}
        assert as_model.read(buffer.getvalue()) == model(x=value)
    written = _model(("x", TimeMillis))
    reader = AvroSchema(read := _model(("x", Int32 | dt.time))).model.reader(definition_of(shape_of_model(written)))
    assert reader.read(AvroSchema(written).encode(written(x=dt.time(1)))) == read(x=dt.time(1))


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Float32, 1e300, "1e\\+300, beyond Avro's float"),
        (Float32, -3.4028235677973366e38, "beyond Avro's float"),
        (float, 10**400, "an int beyond Avro's double"),
        (str, "a\ud800", r"which is no UTF-8"),
        (Decimal, Decimal("NaN"), "NaN, which is no decimal number"),
        (Decimal, Decimal("-Infinity"), "which is no decimal number"),
        (Annotated[Decimal, decimal_type(9, 2)], Decimal("1e1000000"), r"does not fit into decimal\(9, 2\)"),
        (Annotated[Decimal, decimal_type(9, 2)], Decimal("1e7"), r"does not fit into decimal\(9, 2\)"),
    ],
)
def test_what_would_be_written_as_something_else_is_refused_with_its_place(schema, kind, value, why):
    """Infinity in place of a number, text that is no UTF-8, and a decimal that is no number."""
    model = _model(("x", list[kind]), ("by_name", dict[str, int], field(default_factory=dict)))
    with pytest.raises(InvalidUse, match=r"Model\.x\[0\] is .*" + why):
        schema(model).encode(model(x=[value]))
    with pytest.raises(InvalidUse, match=r"Model\.by_name\['.ud800'\] .*no UTF-8"):
        schema(model).encode(model(x=[], by_name={"\ud800": 1}))


def test_the_greatest_values_of_a_type_are_written():
    """The largest float of 32 bits, infinity, and as many digits as a decimal has."""
    model = _model(("x", list[Float32]), ("y", Annotated[Decimal, decimal_type(9, 2)]))
    value = model(x=[3.4028234663852886e38, float("-inf")], y=Decimal("-9999999.99"))
    for schema in (AvroSchema(model), JsonSchema(model)):
        assert schema.decode(schema.encode(value)) == value


def test_a_decimal_of_so_many_bytes_is_a_decimal():
    """Java's `fixed` of a decimal is read as a number without a schema of one's own, and by a model; else as bytes."""
    kind = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 2}
    definition = {"type": "record", "name": "Model", "fields": [{"name": "x", "type": ["null", kind]}]}
    buffer, value = io.BytesIO(), Decimal("-1.25")
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), {"x": value})
    shape = shape_of_definition(definition)
    assert definition_of(shape) == definition
    assert AvroReader(definition, shape).read(buffer.getvalue()) == {"x": value}
    for annotation in (Annotated[Decimal, decimal_type(8, 2)], Decimal):
        model = _model(("x", annotation | None))
        assert AvroSchema(model).model.reader(definition).read(buffer.getvalue()) == model(x=value)
    (found,) = differences(shape, shape_of_model(_model(("x", int | None))))
    assert str(found) == "Model.x: Money, 4 bytes is written, only null or long is read"


def test_what_is_no_value_of_its_type_is_named_with_its_place():
    """Days beyond the year 9999, and bytes that are no text."""
    for kind, other, value, why in [
        (Int32, {"type": "int", "logicalType": "date"}, 10**9, "no date here"),
        (bytes, "string", b"\xff", "no str here"),
    ]:
        model = _model(("x", list[kind]))
        definition = definition_of(shape_of_model(model))
        definition["fields"][0]["type"]["items"] = other
        shape = shape_of_definition(definition)
        reader = AvroReader(definition if kind is Int32 else definition_of(shape_of_model(model)), shape)
        with pytest.raises(SchemaMismatch, match=r"It cannot be read: Model.x\[\]: is .*" + why) as caught:
            reader.read(AvroSchema(model).encode(model(x=[value])))
        assert len(caught.value.differences) == 1


def test_a_value_in_which_a_difference_does_not_occur_is_read():
    """Java's references may be null: a value without null is read by a model without, and one with it raises."""
    nullable, strict = _model(("x", str | None)), _model(("x", str))
    reader = AvroSchema(strict).model.reader(definition_of(shape_of_model(nullable)))
    writer = AvroSchema(nullable)
    assert reader.read(writer.encode(nullable(x="a"))) == strict(x="a")
    with pytest.raises(SchemaMismatch, match=r"Model\.x: null is written, string is read"):
        reader.read(writer.encode(nullable(x=None)))


def test_pydantic_validates_what_is_read():
    """A model's own constraints hold for what others wrote; the error is pydantic's."""
    loose = pydantic.create_model("Model", n=(int, ...))
    strict = pydantic.create_model("Model", n=(int, pydantic.Field(gt=0)))
    for kind in (AvroSchema, JsonSchema):
        with pytest.raises(pydantic.ValidationError):
            kind(strict).decode(kind(loose).encode(loose(n=-1)))


def test_a_default_that_can_be_changed_is_each_values_own():
    """What is done to one value that was read is not seen in the next one, nor in the model's own default."""
    part = pydantic.create_model("Part", n=(int, 0))
    whole = pydantic.create_model("Whole", a=(str, ""), part=(part, part()), parts=(list[part], [part()]))
    reader = AvroSchema(whole).model.reader({"type": "record", "name": "Whole", "fields": []})
    for read in (lambda: reader.read(b""), lambda: JsonSchema(whole).decode(b"{}")):
        changed = read()
        changed.part.n = changed.parts[0].n = 9
        assert read() == whole() == whole(part=part(n=0), parts=[part(n=0)])


def test_a_record_that_contains_itself_is_written_and_read():
    """However deep it is."""
    value = Node(1, [Node(2), Node(3, [Node(4)])], Node(5))
    for kind in (AvroSchema, JsonSchema):
        assert kind(Node).decode(kind(Node).encode(value)) == value


def test_avro_with_bytes_left_raises():
    """What is longer than its schema says was written with another one."""
    model = _model(("x", int))
    schema = AvroSchema(model)
    written = schema.encode(model(x=1))
    assert schema.decode(written) == model(x=1)
    with pytest.raises(SchemaMismatch, match="1 bytes are left"):
        schema.decode(written + b"x")
