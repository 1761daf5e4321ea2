"""JSON of other writers: bytes as text or base64, enums by value or name, tagged unions, and ambiguities."""

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
from pulsar_ext._native.schemas import SchemaText
from pulsar_ext.schema import JsonSchema
from pulsar_ext.schema.reading import bytes_on
from pulsar_ext.schema.shapes import PLAIN_BYTES, TEXT_BYTES, TEXT_OR_BASE64


class Color(enum.Enum):
    """An enum in which the value of one member is the name of another."""

    RED = 1
    GREEN = "g"
    BLUE = 2.5
    g = "x"


@dataclass
class Row:
    """Types for which other writers have forms of their own."""

    data: bytes | None = None
    color: Color | None = None


class OfficialRow(official.Record):
    """`Row` as an official class."""

    data = official.Bytes()
    color = Color


class Raw:
    """A message with a schema version; -1 for none."""

    def __init__(self, data, version=-1):
        self._data, self._version = data, version

    def data(self):
        return self._data

    def int_schema_version(self):
        return self._version


def adapted(model, theirs):
    """Return the schema of a model, adapted to a topic with the given schema."""
    schema = JsonSchema(model)
    schema.adapt_to_topic(lambda: theirs and SchemaText(*theirs))
    return schema


def text_of(schema):
    """Return a schema as the broker stores it."""
    return "JSON", schema.schema_info().schema()


OFFICIAL = text_of(official.JsonSchema(OfficialRow))
FRESH = adapted(Row, None)
TOPICS = {
    "fresh": (None, TEXT_OR_BASE64),
    "fresh, by us": (text_of(FRESH), TEXT_OR_BASE64),
    "official": (OFFICIAL, TEXT_BYTES),
    "official, with defaults": (
        ("JSON", '{"fields": [{"name": "a", "default": null, "type": ["null", "bytes"]}]}'),
        TEXT_BYTES,
    ),
    "official, then by us": (text_of(adapted(Row, OFFICIAL)), TEXT_BYTES),
    "by us, in base64": (text_of(JsonSchema(Row, bytes_as="base64")), PLAIN_BYTES),
    "Java's": (("JSON", '{"fields": [{"name": "a", "type": ["null", "bytes"], "default": null}]}'), PLAIN_BYTES),
    "no JSON": (("BYTES", ""), PLAIN_BYTES),
}


@pytest.mark.parametrize("topic", TOPICS)
def test_topic_schema_decides_how_bytes_are_written(topic):
    """Bytes are text on topics of the official client, base64 on those of Java or this library, either on new ones."""
    theirs, expected = TOPICS[topic]
    assert bytes_on(theirs and SchemaText(*theirs)) == expected
    for value in (b"abcd", b"\xff"):
        if expected is TEXT_BYTES and value == b"\xff":
            with pytest.raises(InvalidUse, match=r"Row.data is .*not UTF-8 text, which the official.*Nothing was sent"):
                adapted(Row, theirs).encode(Row(value))
            continue
        written = adapted(Row, theirs).encode(Row(value))
        is_text = expected is not PLAIN_BYTES and value == b"abcd"
        assert (json.loads(written)["data"] == "abcd") is is_text
        assert JsonSchema(Row).decode(written) == Row(value)


def test_bytes_as_overrides_the_topic_schema():
    """The topic's schema does not change `bytes_as`; other values of it raise."""
    queries = []
    for given_as, expected in (("text", "abcd"), ("base64", "YWJjZA==")):
        schema = JsonSchema(Row, bytes_as=given_as)
        schema.adapt_to_topic(lambda: queries.append(1))
        assert json.loads(schema.encode(Row(b"abcd")))["data"] == expected
    assert not queries
    for model, wrong in ((Row, "hex"), (OfficialRow, "text")):
        with pytest.raises(InvalidUse, match="bytes_as must be"):
            JsonSchema(model, bytes_as=wrong)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_are_exchanged_with_official_client(text):
    """Each client reads text bytes of the other."""
    value, theirs = text.encode(), official.JsonSchema(OfficialRow)
    assert JsonSchema(Row).decode(theirs.encode(OfficialRow(data=value))) == Row(value)
    assert theirs.decode(FRESH.encode(Row(value))).data == value


@given(st.binary())
def test_json_bytes_round_trip(value):
    """Any bytes are read back on a topic without a schema."""
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
def test_unambiguous_json_is_decoded(data, value):
    """Enum values, enum names and text that is not base64 are read without a schema version."""
    assert JsonSchema(Row).decode_message(Raw(data)) == value


@pytest.mark.parametrize(
    ("data", "version", "why"),
    [
        (b'{"data": "abcd"}', -1, "Row.data is 'abcd': base64, or text"),
        (b'{"color": "g"}', -1, "the value of Color.GREEN and the name of Color.g"),
        (b'{\n "color": "g"}', 0, "the value of Color.GREEN and the name of Color.g"),
        (b'{"color": 3}', 0, "not a value of Color"),
    ],
)
def test_ambiguous_json_raises(data, version, why):
    """Without a schema version base64 may be text; text of the official client may be a value or a name."""
    with pytest.raises(SchemaMismatch, match=why):
        JsonSchema(Row).decode_message(Raw(data, version))


def test_schema_version_resolves_ambiguous_json():
    """With a schema version, text is base64 or a name, as this library and Java's client write it."""
    read = JsonSchema(Row).decode_message(Raw(b'{"data": "YWJj", "color": "g"}', 0))
    assert read == Row(b"abc", Color.g)


class Cat(BaseModel):
    """A tagged model."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """A model with other tags."""

    kind: Literal["dog", "hound"] = "dog"
    name: str = ""


class Owner(BaseModel):
    """A model with a discriminated union."""

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    data: bytes = b""
    color: Color = Color.RED


@pytest.mark.parametrize("pet", [Cat(lives=1), Dog(kind="hound", name="a")])
@pytest.mark.parametrize("indent", [None, 1])
def test_json_of_pydantic_is_decoded(pet, indent):
    """Discriminated unions by tag, enums by value, and bytes that are not base64 are read."""
    owner = Owner(pet=pet, data=b"a b", color=Color.BLUE)
    raw = Raw(owner.model_dump_json(indent=indent).encode())
    assert JsonSchema(Owner).decode_message(raw) == owner
    assert JsonSchema(Owner).decode(JsonSchema(Owner).encode(owner)) == owner


def test_object_with_ambiguous_tag_raises():
    """A text that is the tag of two classes is ambiguous."""
    other = dataclasses.make_dataclass("Other", [("kind", Literal["cat"])])
    drawn = dataclasses.make_dataclass("Drawn", [("it", Cat | other)])
    with pytest.raises(SchemaMismatch, match=r"Drawn.it matches several of Cat, Other"):
        JsonSchema(drawn).decode(b'{"it": {"kind": "cat"}}')
