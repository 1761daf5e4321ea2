"""`Record` classes: no field is lost, and what was written is read back as what it was."""

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
    """Its values are text, one of them the name of another member."""

    RED = "r"
    GREEN = "g"
    BLUE = "RED"


class Weekday(enum.Enum):
    """Its values are of several types."""

    MONDAY = (1, "mon")
    TUESDAY = 2.5
    WEDNESDAY = b"wed"
    THURSDAY = 4


class Access(enum.Flag):
    """Its values may be combined."""

    READ = 1
    WRITE = 2


class Named:
    """A base that is no record."""

    name = String()


class Base(Named, Record):
    """A record that others derive from."""

    id = Integer(required=True)
    note = String()


class Item(Base):
    """A record whose base has fields."""

    count = Integer()
    note = None  # no field here


class Order(Base):
    """A record with records in it, at every depth."""

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
def test_a_record_is_read_back_whole(schema):
    """Inherited fields, and records and bytes in arrays and maps of any depth, are what they were."""
    found = schema.decode(schema.encode(ORDER))
    assert found == ORDER
    inside = [*found.items, *found.grid[0], *found.shelves["x"], found.pages[0]["p"]]
    assert [type(one) for one in inside] == [Item] * 5
    assert (found.name, found.note, found.grid[0][0].name, found.lids) == ("o", "n", "a", [b"x", b""])


def test_inherited_fields_come_first_and_can_be_replaced():
    """They keep their places, as those of dataclasses; what is no field any more is not in the definition."""
    assert [field["name"] for field in Item.schema()["fields"]] == ["name", "id", "count"]
    assert [field["name"] for field in Order.schema()["fields"]][:4] == ["name", "id", "note", "items"]
    assert Order.schema()["fields"][1]["type"] == ["null", "int"]  # its own, not the required one


def test_a_class_without_bases_is_written_as_officially():
    """Neither the topic's definition nor the bytes are others."""
    body = {"id": Integer(), "inner": Item, "color": Color, "_sorted_fields": True}
    ours, theirs = type("Row", (Record,), {**body}), type("Row", (official.Record,), {**body})
    values = {"id": 3, "inner": ITEM, "color": Color.GREEN}
    for mine, other in ((JsonSchema, official.JsonSchema), (AvroSchema, official.AvroSchema)):
        assert mine(ours).schema_info().schema() == other(theirs).schema_info().schema()
        assert mine(ours).encode(ours(**values)) == other(theirs).encode(theirs(**values))


@pytest.mark.parametrize("member", [*Color, *Weekday, *Access, Access.READ | Access.WRITE])
def test_enums_are_read_back_by_their_value(member):
    """Text, numbers, bytes and tuples; but not a text that is also the name of another member, which raises."""

    class Row(Record):
        it = CustomEnum(type(member))
        several = Map(CustomEnum(type(member)))

    schema, row = JsonSchema(Row), Row(it=member, several={"x": member})
    if member is Color.BLUE:
        with pytest.raises(SchemaMismatch, match=r"'RED' is the value of Color.BLUE and the name of Color.RED"):
            schema.decode(schema.encode(row))
    else:
        assert schema.decode(schema.encode(row)) == row


def test_an_enum_is_read_by_its_name_as_well():
    """As Java's client and dataclasses write it; what is neither raises."""

    class Row(Record):
        color = Color

    schema = JsonSchema(Row)
    assert schema.decode(b'{"color": "GREEN"}').color is Color.GREEN
    assert schema.decode(b'{"color": null}').color is None
    with pytest.raises(TypeError, match="Invalid enum value 'x'"):
        schema.decode(b'{"color": "x"}')


def test_fields_may_have_the_names_of_parameters():
    """The official constructor takes these for itself."""

    class Row(Record):
        default = String()
        required = Integer()

    row = Row(default="x", required=2)
    assert (row.default, row.required) == ("x", 2)
    for schema in (JsonSchema(Row), AvroSchema(Row)):
        assert schema.decode(schema.encode(row)) == row


@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_an_official_record_that_loses_fields_is_refused(kind):
    """Also if it is in an array of another one; one that loses none is taken, and read as ours."""

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


def test_json_that_is_no_object_raises():
    """A list, as another program may have sent, is no record."""
    with pytest.raises(SchemaMismatch, match="Item must be a JSON object, got list"):
        JsonSchema(Item).decode(json.dumps([1]).encode())


def test_an_official_schema_object_is_replaced():
    """As of `from pulsar.schema import *`: it reads records back, and a class that loses fields is refused."""

    class Base(official.Record):
        id = Integer()

    class Losing(Base):
        name = String()

    class Good(official.Record):
        grid = Array(Array(Base()))

    row = Good(grid=[[Base(id=1)]])
    for kind in (official.JsonSchema, official.AvroSchema):
        schema = schema_of(kind(Good), None, reads=True)
        assert isinstance(schema.decode(schema.encode(row)).grid[0][0], Base)
        with pytest.raises(InvalidUse, match=r"loses Losing\.id"):
            schema_of(kind(Losing), None, reads=False)
    definition = official.AvroSchema(None, schema_definition=Good.schema())
    assert schema_of(definition, None, reads=True) is definition


@pytest.mark.parametrize("schema", [AvroSchema(Item), AvroSchema(None, Item.schema())], ids=str)
def test_avro_of_a_record_with_bytes_left_raises(schema):
    """What is longer than its schema says was written with another one."""
    written = AvroSchema(Item).encode(ITEM)
    assert schema.decode(written) == (ITEM if "Item" in str(schema) else {"name": "a", "id": 1, "count": 3})
    with pytest.raises(SchemaMismatch, match="1 bytes remain"):
        schema.decode(written + b"x")
