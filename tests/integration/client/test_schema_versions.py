"""Avro messages are decoded with the writer's schema version or not at all."""

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
    """Yield a proxy of the broker."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        yield proxy


@pytest.fixture
def client(broker, proxy):
    """Yield a client of the proxy with a short timeout."""
    with contextlib.closing(
        pulsar.Client(proxy.service_url, **Reach.of(broker).options(), operation_timeout_seconds=2)
    ) as client:
        yield client


@pytest.mark.core
def test_message_is_decoded_with_the_writer_schema(client, proxy, topic):
    """Decoding raises while the broker is unreachable, instead of swapping fields, and succeeds later."""
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


def test_table_view_decodes_with_the_writer_schema(client, topic):
    """A table view decodes with the writer's schema, officially with its own, and reports a removed key as None."""
    client.create_producer(topic, schema=WRITTEN).send(PAIR, partition_key="k")
    view = client.create_table_view(topic, schema=AvroSchema(None, READ))
    changes = []
    view.for_each_and_listen(lambda key, value: changes.append((key, value)))
    client.create_producer(topic).send(b"", partition_key="k")
    assert eventually(lambda: changes == [("k", PAIR), ("k", None)])
    assert view.get("k") is None


def _value_of(message):
    with contextlib.suppress(pulsar.PulsarException):
        return message.value()
