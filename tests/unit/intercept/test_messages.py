"""What an interceptor sees and gives: a message that is about to be sent, and one that came."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native.handles import build_plain
from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.interfaces import OutgoingMessage
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
def test_a_send_goes_through_unchanged(value, options):
    """What nobody changes is sent with exactly the arguments that the application gave."""
    message = OutgoingMessage.of(value, options)
    assert (message.value, message.options()) == (value, options)


def test_it_does_not_change():
    """An interceptor that raises cannot have changed half of a message, nor can the application change it later."""
    properties = {"a": "1"}
    message = OutgoingMessage.of(b"", {"properties": properties})
    properties["a"] = "2"
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.value = b"other"
    with pytest.raises(TypeError):
        message.properties["b"] = "2"
    assert message.options() == {"properties": {"a": "1"}}


def test_other_fields_and_more_properties():
    """`replace` and `with_properties` give another message, and leave the first one as it is."""
    message = OutgoingMessage.of(b"v", {"properties": {"a": "1", "b": "1"}})
    other = message.with_properties({"b": "2"}).replace(value=b"w", partition_key="k")
    assert (other.value, other.options()) == (b"w", {"properties": {"a": "1", "b": "2"}, "partition_key": "k"})
    assert (message.value, message.options()) == (b"v", {"properties": {"a": "1", "b": "1"}})
    assert message.replace(properties={"c": "3"}).options() == {"properties": {"c": "3"}}


@pytest.mark.parametrize("properties", ["text", 1, ["a"]])
def test_properties_that_are_none_are_left_to_the_send(properties):
    """The send raises what it officially raises."""
    assert OutgoingMessage.of(b"", {"properties": properties}).options() == {"properties": properties}


def test_an_unknown_argument_is_refused():
    """As the send itself would."""
    with pytest.raises(TypeError):
        OutgoingMessage.of(b"", {"color": "red"})


def test_an_altered_message_reads_otherwise_and_is_the_same_message():
    """What was altered is given, by later alterations too; all else, its class included, is that of the message."""
    options = {"properties": {"a": "1"}, "partition_key": "k", "event_timestamp": 5}
    message = received(build_plain(b"data", options))
    other = message.altered(value="text", properties={}).altered(partition_key="l")
    assert (other.value(), other.properties(), other.partition_key(), other.data()) == ("text", {}, "l", b"data")
    assert (message.value(), message.properties(), message.partition_key()) == (b"data", {"a": "1"}, "k")
    assert other.event_timestamp() == 5
    assert other.inner is message.inner
    assert type(other) is type(message)


def test_an_altered_message_of_a_schema_decodes_what_was_not_altered():
    """The class of a schema's messages stays."""
    cls = message_class(pulsar.schema.StringSchema())
    message = cls()
    message.inner = build_plain(b"data", {})
    assert message.altered(properties={"a": "b"}).value() == "data"


def test_what_cannot_be_altered_is_refused():
    """Its id, for one: it is acknowledged by that."""
    with pytest.raises(InvalidUse, match="message_id"):
        received(build_plain(b"", {})).altered(message_id=None)
