"""JSON of others: bytes as text or in base64, enums by value or by name, tagged unions; what may be two raises."""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Annotated, Literal

import pulsar.schema as official
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pulsar_ext import InvalidUse, SchemaMismatch
from pulsar_ext.schema import JsonSchema
from pulsar_ext.schema.reading import SchemaText, bytes_on
from pulsar_ext.schema.shapes import PLAIN_BYTES, TEXT_BYTES, TEXT_OR_BASE64


class Color(enum.Enum):
    """The value of one is the name of another."""

    RED = 1
    GREEN = "g"
    BLUE = 2.5
    g = "x"


@dataclass
class Row:
    """What others write in a way of their own."""

    data: bytes | None = None
    color: Color | None = None


class OfficialRow(official.Record):
    """`Row`, as the official class has it."""

    data = official.Bytes()
    color = Color


class Raw:
    """A message whose version of the schema is that one; -1 for none."""

    def __init__(self, data, version=-1):
        self._data, self._version = data, version

    def data(self):
        return self._data

    def int_schema_version(self):
        return self._version


def settled(model, theirs):
    """Give the schema of a model on a topic of this schema."""
    schema = JsonSchema(model)
    schema.settle(lambda: theirs)
    return schema


def text_of(schema):
    """Give a schema as the broker has it."""
    return "JSON", schema.schema_info().schema()


OFFICIAL = text_of(official.JsonSchema(OfficialRow))
FRESH = settled(Row, None)
TOPICS = {
    "fresh": (None, TEXT_OR_BASE64),
    "fresh, by us": (text_of(FRESH), TEXT_OR_BASE64),
    "official": (OFFICIAL, TEXT_BYTES),
    "official, with defaults": (
        ("JSON", '{"fields": [{"name": "a", "default": null, "type": ["null", "bytes"]}]}'),
        TEXT_BYTES,
    ),
    "official, then by us": (text_of(settled(Row, OFFICIAL)), TEXT_BYTES),
    "by us, in base64": (text_of(JsonSchema(Row, bytes_as="base64")), PLAIN_BYTES),
    "Java's": (("JSON", '{"fields": [{"name": "a", "type": ["null", "bytes"], "default": null}]}'), PLAIN_BYTES),
    "no JSON": (("BYTES", ""), PLAIN_BYTES),
}


@pytest.mark.parametrize("topic", TOPICS)
def test_the_topics_schema_says_how_bytes_are_written(topic):
    """As text where the official client made it, in base64 where Java's or this library did, either where none did."""
    theirs, expected = TOPICS[topic]
    assert bytes_on(None if theirs is None else SchemaText(*theirs)) == expected
    for value in (b"abcd", b"\xff"):
        if expected is TEXT_BYTES and value == b"\xff":
            with pytest.raises(InvalidUse, match=r"Row.data is .*no text, as the official.*Nothing was sent"):
                settled(Row, theirs).encode(Row(value))
            continue
        written = settled(Row, theirs).encode(Row(value))
        is_text = expected is not PLAIN_BYTES and value == b"abcd"
        assert (json.loads(written)["data"] == "abcd") is is_text
        assert JsonSchema(Row).decode(written) == Row(value)


def test_what_is_asked_for_is_written_whatever_the_topic():
    """`bytes_as` is not changed by the topic's schema; others are refused."""
    asked = []
    for given_as, expected in (("text", "abcd"), ("base64", "YWJjZA==")):
        schema = JsonSchema(Row, bytes_as=given_as)
        schema.settle(lambda: asked.append(1))
        assert json.loads(schema.encode(Row(b"abcd")))["data"] == expected
    assert not asked
    for model, wrong in ((Row, "hex"), (OfficialRow, "text")):
        with pytest.raises(InvalidUse, match="bytes_as must be"):
            JsonSchema(model, bytes_as=wrong)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_official_and_our_bytes_are_read_by_each_other(text):
    """Whatever text they are."""
    value, theirs = text.encode(), official.JsonSchema(OfficialRow)
    assert JsonSchema(Row).decode(theirs.encode(OfficialRow(data=value))) == Row(value)
    assert theirs.decode(FRESH.encode(Row(value))).data == value


@given(st.binary())
def test_bytes_are_read_back_as_they_were(value):
    """On a topic without a schema, whatever they are."""
    assert FRESH.decode(FRESH.encode(Row(value))) == Row(value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"color": 1}', Row(color=Color.RED)),
        (b'{"color": 2.5}', Row(color=Color.BLUE)),
        (b'{"color": "RED"}', Row(color=Color.RED)),
        (b'{"color": "x"}', Row(color=Color.g)),
        (b'{\n "color": "x"}', Row(color=Color.g)),
        (b'{"data": "a b"}', Row(b"a b")),
        (b'{"data": ""}', Row(b"")),
    ],
)
def test_what_can_be_one_thing_only_is_read(data, value):
    """An enum's value or name, and text that is no base64, though the message says no schema."""
    assert JsonSchema(Row).decode_message(Raw(data)) == value


@pytest.mark.parametrize(
    ("data", "version", "why"),
    [
        (b'{"data": "abcd"}', -1, "Row.data is 'abcd': base64, or text"),
        (b'{"color": "g"}', -1, "the value of Color.GREEN and the name of Color.g"),
        (b'{\n "color": "g"}', 0, "the value of Color.GREEN and the name of Color.g"),
        (b'{"color": 3}', 0, "which Color has not"),
    ],
)
def test_what_may_be_two_things_raises(data, version, why):
    """Base64 without a schema may be text; a text of the official client's may be a value or a name."""
    with pytest.raises(SchemaMismatch, match=why):
        JsonSchema(Row).decode_message(Raw(data, version))


def test_a_schema_says_that_it_is_base64_and_a_name():
    """So this library and Java's client write."""
    read = JsonSchema(Row).decode_message(Raw(b'{"data": "YWJj", "color": "g"}', 0))
    assert read == Row(b"abc", Color.g)


class Cat(BaseModel):
    """Tagged."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """Tagged otherwise."""

    kind: Literal["dog", "hound"] = "dog"
    name: str = ""


class Owner(BaseModel):
    """Of a discriminated union."""

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    data: bytes = b""
    color: Color = Color.RED


@pytest.mark.parametrize("pet", [Cat(lives=1), Dog(kind="hound", name="a")])
@pytest.mark.parametrize("indent", [None, 1])
def test_pydantics_own_json_is_read(pet, indent):
    """Discriminated unions by their tags, enums by value, and bytes that are no base64."""
    owner = Owner(pet=pet, data=b"a b", color=Color.BLUE)
    raw = Raw(owner.model_dump_json(indent=indent).encode())
    assert JsonSchema(Owner).decode_message(raw) == owner
    assert JsonSchema(Owner).decode(JsonSchema(Owner).encode(owner)) == owner


def test_an_object_of_several_tags_raises():
    """Where a text is the tag of two classes."""
    other = dataclasses.make_dataclass("Other", [("kind", Literal["cat"])])
    drawn = dataclasses.make_dataclass("Drawn", [("it", Cat | other)])
    with pytest.raises(SchemaMismatch, match=r"Drawn.it may be several of Cat, Other"):
        JsonSchema(drawn).decode(b'{"it": {"kind": "cat"}}')
