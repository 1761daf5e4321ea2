"""Avro messages that were written with another version of the schema: decoded with that one, or not at all."""

from __future__ import annotations

import contextlib

import pytest
from chunked import eventually
from pulsar.schema import AvroSchema
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy


def _pair(*fields):
    return {"type": "record", "name": "Pair", "fields": [{"name": field, "type": "int"} for field in fields]}


WRITTEN, READ = AvroSchema(None, _pair("a", "b")), _pair("b", "a")
PAIR = {"a": 1, "b": 2}


@pytest.fixture
def proxy(broker):
    """What stands before the broker."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        yield proxy


@pytest.fixture
def client(broker, proxy):
    """A client through the proxy whose questions end soon."""
    with contextlib.closing(
        pulsar.Client(proxy.service_url, **Reach.of(broker).options(), operation_timeout_seconds=2)
    ) as client:
        yield client


@pytest.mark.core
def test_a_message_is_decoded_with_the_schema_it_was_written_with_or_not_at_all(client, proxy, topic):
    """While the broker is away its fields are not exchanged, as they are officially: decoding raises, and later not."""
    client.create_producer(topic, schema=WRITTEN).send(PAIR)
    consumer = client.subscribe(
        topic, "s", initial_position=pulsar.InitialPosition.Earliest, schema=AvroSchema(None, READ)
    )
    message = consumer.receive(10_000)
    proxy.refuse()
    proxy.cut()
    with pytest.raises(pulsar.PulsarException):
        message.value()
    proxy.accept()
    assert eventually(lambda: _value_of(message) == PAIR)


def test_a_table_view_decodes_with_the_schema_that_a_value_was_written_with(client, topic):
    """Officially it decodes every value with its own schema. A key that is removed is heard of as None."""
    client.create_producer(topic, schema=WRITTEN).send(PAIR, partition_key="k")
    view = client.create_table_view(topic, schema=AvroSchema(None, READ))
    heard = []
    view.for_each_and_listen(lambda key, value: heard.append((key, value)))
    client.create_producer(topic).send(b"", partition_key="k")
    assert eventually(lambda: heard == [("k", PAIR), ("k", None)])
    assert view.get("k") is None


def _value_of(message):
    with contextlib.suppress(pulsar.PulsarException):
        return message.value()
