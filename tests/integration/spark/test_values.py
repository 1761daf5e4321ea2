"""Values and times as columns, for any schema version that wrote them; needs no Spark session."""

from __future__ import annotations

import json
import pickle
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time

import pulsar
import pytest
from spark_topics import keep_everything, options_of

pytest.importorskip("pyspark")

from pulsar_ext.errors import InvalidUse
from pulsar_ext.schema import JsonSchema
from pulsar_ext.spark import PulsarDataSource

pytestmark = [pytest.mark.xdist_group("spark")]


def record(**fields):
    """Return the schema of a record whose fields have these types."""
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def send(client, topic, schema, *values):
    """Send values as Avro, with a version of the topic's schema."""
    with client.create_producer(topic, schema=pulsar.schema.AvroSchema(None, schema_definition=schema)) as producer:
        for value in values:
            producer.send(value)


def read(broker, topic, **options):
    """Read a topic as tasks do, with Avro values unless the options set another format."""
    source = PulsarDataSource(options_of(broker, topic, **{"valueFormat": "avro", "columns": "value", **options}))
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_user_schema_reads_each_version(broker, client, admin, topic):
    """With `valueSchema`, messages are still decoded by the schema versions they were written with."""
    keep_everything(admin, topic)
    first, second = record(a="string", b="string"), record(b="string", c=["null", "int"], a="string")
    second["fields"][1]["default"] = None
    send(client, topic, first, {"a": "A", "b": "B"})
    send(client, topic, second, {"a": "A2", "b": "B2", "c": 2})
    some = {**record(b="string", c=["null", "int"]), "name": "Another"}
    some["fields"][1]["default"] = None
    found = read(broker, topic, valueSchema=json.dumps(some))
    assert found == [{"b": "B", "c": None}, {"b": "B2", "c": 2}]
    with pytest.raises(InvalidUse, match="schema version 0, which this schema cannot read"):
        read(broker, topic, valueSchema=json.dumps(record(a="int")))


def test_removed_field_becomes_null(broker, client, admin, topic):
    """A stream keeps its columns when a new schema version lacks one; that column is null for new messages."""
    keep_everything(admin, topic)
    first = record(a="string", b=["null", "string"])
    first["fields"][1]["default"] = None
    send(client, topic, first, {"a": "1", "b": "B"})
    options = options_of(broker, topic, valueFormat="avro", columns="value", startingOffsets="earliest")
    source = PulsarDataSource(options)
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    send(client, topic, record(a="string"), {"a": "2"})
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    task = pickle.loads(pickle.dumps(reader))
    rows = [row for part in parts for batch in task.read(part) for row in batch.to_pylist()]
    reader.stop()
    assert rows == [{"a": "1", "b": "B"}, {"a": "2", "b": None}]


@dataclass
class Kept:
    """Model whose values this library's JSON schema writes as text."""

    at: datetime
    day: date
    data: bytes


def test_json_of_a_model(broker, client, admin, topic):
    """Times and bytes of a model's JSON equal the sent ones."""
    keep_everything(admin, topic)
    value = Kept(datetime(2020, 1, 1, 12, 0, 0, 123456, tzinfo=UTC), date(2020, 1, 2), b"\xff\x00")
    with client.create_producer(topic, schema=JsonSchema(Kept)) as producer:
        producer.send(value)
    assert read(broker, topic, valueFormat="json") == [asdict(value)]


def test_logical_types_without_a_column(broker, client, admin, topic):
    """Logical types without a Spark type are read as the underlying values."""
    keep_everything(admin, topic)
    kinds = {"u": ("string", "uuid"), "t": ("int", "time-millis"), "l": ("long", "local-timestamp-millis")}
    schema = record(**{name: {"type": kind, "logicalType": logical} for name, (kind, logical) in kinds.items()})
    one = uuid.uuid4()
    send(client, topic, schema, {"u": one, "t": time(0, 0, 1), "l": datetime(1970, 1, 1, 0, 0, 1)})  # noqa: DTZ001
    assert read(broker, topic) == [{"u": str(one), "t": 1000, "l": 1000}]


def test_reused_named_type_is_resolved(broker, client, admin, topic):
    """A record used by two fields is defined once in the schema, and is a column for both."""
    keep_everything(admin, topic)
    schema = record(a={"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}, b="Inner")
    send(client, topic, schema, {"a": {"x": 1}, "b": {"x": 2}})
    assert read(broker, topic) == [{"a": {"x": 1}, "b": {"x": 2}}]


def test_event_time_out_of_range_raises(broker, client, admin, topic):
    """An event time in nanoseconds is ignored without that column; with it, an error names the message."""
    keep_everything(admin, topic)
    with client.create_producer(topic) as producer:
        producer.send(b"0", event_timestamp=2**53)
        first = producer.send(b"1", event_timestamp=1_700_000_000_000_000_000)
        producer.send(b"2", event_timestamp=2**64 - 1)
    assert [row["value"] for row in read(broker, topic, valueFormat="bytes")] == [b"0", b"1", b"2"]
    with pytest.raises(InvalidUse, match=f"{first.entry_id()}.* has the event time 17000000.*exclude"):
        read(broker, topic, valueFormat="bytes", columns="value,__eventTime")
