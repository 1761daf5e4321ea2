"""`Record` classes: no field is lost, and values are read back unchanged."""

from __future__ import annotations

import enum
import json

import pulsar.schema as official
import pytest

from pulsar_ext.errors import InvalidUse, SchemaMismatch
from pulsar_ext.schema import (
    Array,
    AvroSchema,
    Bytes,
    CustomEnum,
    Integer,
    JsonSchema,
    Map,
    Record,
    String,
)
from pulsar_ext.schema.choice import schema_of


class Color(enum.Enum):
    """An enum of texts, one of them the name of another member."""

    RED = "r"
    GREEN = "g"
    BLUE = "RED"


class Weekday(enum.Enum):
    """An enum of values of several types."""

    MONDAY = (1, "mon")
    TUESDAY = 2.5
    WEDNESDAY = b"wed"
    THURSDAY = 4


class Access(enum.Flag):
    """An enum of values that can be combined."""

    READ = 1
    WRITE = 2


class Named:
    """A base that is not a record."""

    name = String()


class Base(Named, Record):
    """A base record."""

    id = Integer(required=True)
    note = String()


class Item(Base):
    """A record whose base has fields."""

    count = Integer()
    note = None  # removes the inherited field


class Order(Base):
    """A record with nested records at every depth."""

    id = Integer()
    items = Array(Item())
    grid = Array(Array(Item()))
    shelves = Map(Array(Item()))
    pages = Array(Map(Item()))
    lids = Array(Bytes())
    color = CustomEnum(Color)


ITEM = Item(name="a", id=1, count=3)
ORDER = Order(
    name="o",
    id=7,
    note="n",
    items=[ITEM],
    grid=[[ITEM], []],
    shelves={"x": [ITEM, ITEM]},
    pages=[{"p": ITEM}],
    lids=[b"x", b""],
    color=Color.GREEN,
)


@pytest.mark.parametrize("schema", [JsonSchema(Order), AvroSchema(Order)], ids=str)
def test_record_round_trips_completely(schema):
    """Inherited fields, and records and bytes in nested arrays and maps, are read back unchanged."""
    found = schema.decode(schema.encode(ORDER))
    assert found == ORDER
    inside = [*found.items, *found.grid[0], *found.shelves["x"], found.pages[0]["p"]]
    assert [type(item) for item in inside] == [Item] * 5
    assert (found.name, found.note, found.grid[0][0].name, found.lids) == ("o", "n", "a", [b"x", b""])


def test_inherited_fields_precede_and_can_be_overridden():
    """Inherited fields keep their order, as in dataclasses; removed fields are not in the definition."""
    assert [field["name"] for field in Item.schema()["fields"]] == ["name", "id", "count"]
    assert [field["name"] for field in Order.schema()["fields"]][:4] == ["name", "id", "note", "items"]
    assert Order.schema()["fields"][1]["type"] == ["null", "int"]  # overrides the required field


def test_plain_record_is_encoded_as_officially():
    """The definition and the bytes equal those of the official class."""
    body = {"id": Integer(), "inner": Item, "color": Color, "_sorted_fields": True}
    ours, theirs = type("Row", (Record,), {**body}), type("Row", (official.Record,), {**body})
    values = {"id": 3, "inner": ITEM, "color": Color.GREEN}
    for mine, other in ((JsonSchema, official.JsonSchema), (AvroSchema, official.AvroSchema)):
        assert mine(ours).schema_info().schema() == other(theirs).schema_info().schema()
        assert mine(ours).encode(ours(**values)) == other(theirs).encode(theirs(**values))


@pytest.mark.parametrize("member", [*Color, *Weekday, *Access, Access.READ | Access.WRITE])
def test_enums_are_decoded_by_value(member):
    """Texts, numbers, bytes and tuples are decoded; a text that is also another member's name raises."""

    class Row(Record):
        it = CustomEnum(type(member))
        several = Map(CustomEnum(type(member)))

    schema, row = JsonSchema(Row), Row(it=member, several={"x": member})
    if member is Color.BLUE:
        with pytest.raises(SchemaMismatch, match=r"'RED' is the value of Color.BLUE and the name of Color.RED"):
            schema.decode(schema.encode(row))
    else:
        assert schema.decode(schema.encode(row)) == row


def test_enums_are_decoded_by_name():
    """Names are decoded as Java's client and dataclasses write them; other values raise."""

    class Row(Record):
        color = Color

    schema = JsonSchema(Row)
    assert schema.decode(b'{"color": "GREEN"}').color is Color.GREEN
    assert schema.decode(b'{"color": null}').color is None
    with pytest.raises(TypeError, match="Invalid enum value 'x'"):
        schema.decode(b'{"color": "x"}')


def test_field_names_may_equal_constructor_parameters():
    """The official constructor reserves these names."""

    class Row(Record):
        default = String()
        required = Integer()

    row = Row(default="x", required=2)
    assert (row.default, row.required) == ("x", 2)
    for schema in (JsonSchema(Row), AvroSchema(Row)):
        assert schema.decode(schema.encode(row)) == row


@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_official_record_that_loses_fields_raises(kind):
    """A class that loses fields raises, even nested in an array; one that loses none is read correctly."""

    class Base(official.Record):
        id = Integer()

    class Losing(Base):
        name = String()

    class Holding(official.Record):
        all = Array(Map(Losing()))

    class Good(official.Record):
        grid = Array(Array(Base()))

    for record in (Losing, Holding):
        with pytest.raises(InvalidUse, match=r"loses Losing.id.*pulsar_ext.schema.Record. Nothing was opened"):
            kind(record)
    schema = kind(Good)
    assert type(schema.decode(schema.encode(Good(grid=[[Base(id=1)]]))).grid[0][0]) is Base


def test_non_object_json_raises():
    """A JSON list is not a record."""
    with pytest.raises(SchemaMismatch, match="Item must be a JSON object, got list"):
        JsonSchema(Item).decode(json.dumps([1]).encode())


def test_official_schema_object_is_replaced():
    """An object from `from pulsar.schema import *` reads records back, and raises for a class that loses fields."""

    class Base(official.Record):
        id = Integer()

    class Losing(Base):
        name = String()

    class Good(official.Record):
        grid = Array(Array(Base()))

    row = Good(grid=[[Base(id=1)]])
    for kind in (official.JsonSchema, official.AvroSchema):
        schema = schema_of(kind(Good), None)
        assert isinstance(schema.decode(schema.encode(row)).grid[0][0], Base)
        with pytest.raises(InvalidUse, match=r"loses Losing\.id"):
            schema_of(kind(Losing), None)
    definition = official.AvroSchema(None, schema_definition=Good.schema())
    assert schema_of(definition, None) is definition


@pytest.mark.parametrize("schema", [AvroSchema(Item), AvroSchema(None, Item.schema())], ids=str)
def test_avro_record_with_trailing_bytes_raises(schema):
    """Trailing bytes mean that the value was written with another schema."""
    written = AvroSchema(Item).encode(ITEM)
    assert schema.decode(written) == (ITEM if "Item" in str(schema) else {"name": "a", "id": 1, "count": 3})
    with pytest.raises(SchemaMismatch, match="1 bytes remain"):
        schema.decode(written + b"x")
