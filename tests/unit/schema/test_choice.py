"""Schema versions are looked up only at the cluster of the message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from pulsar_ext._native.schemas import SchemaInfo, SchemaType, value_of
from pulsar_ext.errors import SchemaMismatch
from pulsar_ext.schema import AutoConsumeSchema, AvroSchema, KeyValueSchema
from pulsar_ext.schema.choice import VersionLookup
from pulsar_ext.schema.key_value import with_length

TOPIC = "persistent://public/default/t"


@dataclass
class Pair:
    """The written model."""

    a: str
    b: str


AVRO = AvroSchema(Pair).schema_info().schema()
PAIR = with_length(b"k") + with_length(AvroSchema(Pair).encode(Pair("a", "b")))
KEY_VALUE = SimpleNamespace(
    data=json.dumps({"key": "", "value": json.loads(AVRO)}),
    properties={"key.schema.type": "STRING", "value.schema.type": "AVRO"},
)


def message(data):
    """Return a message of schema version 3."""
    return SimpleNamespace(
        data=lambda: data, topic_name=lambda: f"{TOPIC}-partition-1", int_schema_version=lambda: 3, has_null_value=bool
    )


@pytest.mark.parametrize("connected_to", [[0], [1], [0, 1]], ids=["same", "another", "changing"])
@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (AvroSchema(Pair), "AVRO"),
        (AutoConsumeSchema(), "AVRO"),
        (KeyValueSchema(str, Pair), "KEY_VALUE"),
        (AutoConsumeSchema(), "KEY_VALUE"),
    ],
    ids=str,
)
def test_schema_version_is_looked_up_at_its_cluster(schema, kind, connected_to):
    """A value is read and cached if its cluster answered; it raises if another cluster may have answered."""
    admin = SimpleNamespace(schema=lambda topic, version: {(TOPIC, 3): KEY_VALUE}[topic, version])
    numbers, info = [*connected_to], SchemaInfo(SchemaType.__members__[kind], kind, AVRO)
    mine = schema.of_client(lambda: admin)
    mine.attach_client(VersionLookup(lambda *_: info, lambda: numbers.pop(0) if numbers[1:] else numbers[0], 7).at(0))
    msg = message(AvroSchema(Pair).encode(Pair("a", "b")) if kind == "AVRO" else PAIR)
    if connected_to == [0]:
        assert value_of(mine, msg) == value_of(mine, msg)
        return
    with pytest.raises(SchemaMismatch, match="another cluster"):
        value_of(mine, msg)
