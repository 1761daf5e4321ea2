"""`pulsar-ext send` reads a message of each line, or says what is wrong with it."""

from __future__ import annotations

import pytest
from pulsar.schema import BytesSchema

from pulsar_ext.cli.send import Outgoing, outgoing
from pulsar_ext.schema.auto_produce import AutoProduceSchema

SCHEMA = AutoProduceSchema(BytesSchema().schema_info(), "no schema")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"value": "a"}', Outgoing(b"a")),
        (b'{"value": null, "key": "k"}', Outgoing(None, "k")),
        (b'{"value": "a", "event_time": 5, "properties": {"b": "c"}}', Outgoing(b"a", None, {"b": "c"}, 5)),
        (b'{"value": "", "event_time": "1970-01-01T01:00:00.007+01:00", "id": "1:2:-1"}', Outgoing(b"", event_time=7)),
    ],
)
def test_record_is_a_message(line, message):
    """Members of a record are those of the message; an id is ignored."""
    assert outgoing(line + b"\n", SCHEMA, "json") == message


def test_line_is_a_message():
    """A line is the value, without its line break."""
    assert outgoing(b'{"value": 1}\r\n', SCHEMA, "lines") == Outgoing(b'{"value": 1}\r')


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"text", "Expecting value"),
        (b"[]", 'must be an object with a "value"'),
        (b'{"key": "k"}', 'must be an object with a "value"'),
        (b'{"value": "a", "Key": "k"}', "unknown members: Key"),
        (b'{"value": "a", "key": 5}', "key must be text, got 5"),
        (b'{"value": "a", "properties": {"a": 1}}', "properties must be"),
        (b'{"value": "a", "event_time": -1}', "event_time must be"),
        (b'{"value": "a", "event_time": "soon"}', "Invalid isoformat"),
    ],
)
def test_invalid_record_is_rejected(line, error):
    """The error says what is wrong."""
    with pytest.raises(ValueError, match=error):
        outgoing(line, SCHEMA, "json")
