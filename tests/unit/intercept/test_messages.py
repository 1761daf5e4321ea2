"""Messages of interceptors: an outgoing one, and a received one."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native.handles import build_plain
from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept import OutgoingMessage
from pulsar_ext.message import message_class, received

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.text(), st.text(), min_size=1),
        "partition_key": st.text(),
        "ordering_key": st.text(),
        "sequence_id": st.integers(0, 1 << 62),
        "replication_clusters": st.lists(st.text()),
        "disable_replication": st.booleans(),
        "event_timestamp": st.integers(0, 1 << 62),
        "deliver_at": st.integers(0, 1 << 62),
        "deliver_after": st.timedeltas(timedelta(0)),
    },
)


@given(st.binary() | st.none(), OPTIONS)
def test_unchanged_message_keeps_arguments(value, options):
    """An unchanged message is sent with exactly the application's arguments."""
    message = OutgoingMessage.of(value, options)
    assert (message.value, message.options()) == (value, options)


def test_outgoing_message_is_immutable():
    """A message is immutable, also by a change of the application's properties."""
    properties = {"a": "1"}
    message = OutgoingMessage.of(b"", {"properties": properties})
    properties["a"] = "2"
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.value = b"other"
    with pytest.raises(TypeError):
        message.properties["b"] = "2"
    assert message.options() == {"properties": {"a": "1"}}


def test_replace_and_with_properties_return_copies():
    """`replace` and `with_properties` return another message and do not change the first one."""
    message = OutgoingMessage.of(b"v", {"properties": {"a": "1", "b": "1"}})
    other = message.with_properties({"b": "2"}).replace(value=b"w", partition_key="k")
    assert (other.value, other.options()) == (b"w", {"properties": {"a": "1", "b": "2"}, "partition_key": "k"})
    assert (message.value, message.options()) == (b"v", {"properties": {"a": "1", "b": "1"}})
    assert message.replace(properties={"c": "3"}).options() == {"properties": {"c": "3"}}


@pytest.mark.parametrize("properties", ["text", 1, ["a"]])
def test_invalid_properties_are_passed_on(properties):
    """Invalid properties are passed on, so that the send raises."""
    assert OutgoingMessage.of(b"", {"properties": properties}).options() == {"properties": properties}


def test_unknown_argument_raises():
    """An unknown argument raises, as in the send."""
    with pytest.raises(TypeError):
        OutgoingMessage.of(b"", {"color": "red"})


def test_altered_message_keeps_other_fields():
    """An altered message returns the alterations, also of several steps, and otherwise equals the original."""
    options = {"properties": {"a": "1"}, "partition_key": "k", "event_timestamp": 5}
    message = received(build_plain(b"data", options))
    other = message.altered(value="text", properties={}).altered(partition_key="l")
    assert (other.value(), other.properties(), other.partition_key(), other.data()) == ("text", {}, "l", b"data")
    assert (message.value(), message.properties(), message.partition_key()) == (b"data", {"a": "1"}, "k")
    assert other.event_timestamp() == 5
    assert other.inner is message.inner
    assert type(other) is type(message)


def test_altered_message_keeps_its_schema():
    """An altered message keeps the class of its schema."""
    cls = message_class(pulsar.schema.StringSchema())
    message = cls()
    message.inner = build_plain(b"data", {})
    assert message.altered(properties={"a": "b"}).value() == "data"


def test_altering_the_id_raises():
    """Altering the id raises, because the message is acknowledged by it."""
    with pytest.raises(InvalidUse, match="message_id"):
        received(build_plain(b"", {})).altered(message_id=None)
