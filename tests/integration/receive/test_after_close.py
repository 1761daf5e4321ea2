"""Calls of a consumer after the end of its client raise AlreadyClosed, whatever state the C++ consumer has."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pulsar as official
import pytest
from acked import send_plain
from chunked import eventually

import pulsar_ext as pulsar
from pulsar_ext.schema import AvroSchema
from pulsar_ext.testing import FaultProxy

_WAIT_SECONDS = 20
_OPERATIONS = {
    "receive": lambda consumer, _: consumer.receive(100),
    "receive_many": lambda consumer, _: consumer.receive_many(5, 100),
    "batch_receive": lambda consumer, _: consumer.batch_receive(),
    "acknowledge": lambda consumer, message: consumer.acknowledge(message),
    "acknowledge an id": lambda consumer, message: consumer.acknowledge(message.message_id()),
    "acknowledge_many": lambda consumer, message: consumer.acknowledge_many([message]),
    "acknowledge_cumulative": lambda consumer, message: consumer.acknowledge_cumulative(message),
    "negative_acknowledge": lambda consumer, message: consumer.negative_acknowledge(message),
    "seek": lambda consumer, _: consumer.seek(pulsar.MessageId.earliest),
    "redeliver": lambda consumer, _: consumer.redeliver_unacknowledged_messages(),
    "get_last_message_id": lambda consumer, _: consumer.get_last_message_id(),
    "flush_acks": lambda consumer, _: consumer.flush_acks(confirm=True),
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
}


@pytest.mark.core
@pytest.mark.parametrize("end", ["close", "shutdown"])
@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_every_operation_raises_after_the_client_ended(client_factory, broker, topic, end, kind):
    """Every operation of a consumer whose client has ended raises AlreadyClosed, after an unsubscription as well."""
    client = client_factory(broker)
    send_plain(client, topic, 3)
    consumer = client.subscribe(topic, "s", consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest)
    message = consumer.receive(10_000)
    getattr(client, end)()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.unsubscribe()
    assert list(consumer) == []
    results = {name: _result(operation, consumer, message) for name, operation in _OPERATIONS.items()}
    if kind == pulsar.ConsumerType.Shared:
        assert results.pop("acknowledge_cumulative") == "CumulativeAcknowledgementNotAllowedError"
    assert set(results.values()) == {"AlreadyClosed"}, results


@pytest.mark.parametrize("end", ["close", "shutdown"])
def test_waiting_receive_ends_if_unsubscribe_meets_the_end(client_factory, broker, topic, end):
    """A receive without a timeout raises AlreadyClosed when an unsubscription meets the end of the client."""
    send_plain(client_factory(broker), topic, 3)
    for number in range(5):
        client = client_factory(broker)
        consumer = client.subscribe(topic, f"s{number}")
        receiving, received = _begin(consumer.receive)
        unsubscribing, unsubscribed = _begin(consumer.unsubscribe)
        time.sleep(number / 1000)
        getattr(client, end)()
        for thread in (receiving, unsubscribing):
            thread.join(_WAIT_SECONDS)
            assert not thread.is_alive()
        assert received == ["AlreadyClosed"]
        assert unsubscribed in (["AlreadyClosed"], ["returned"])


@pytest.mark.parametrize("end", ["close", "client.close", "client.closing"])
def test_confirmed_flush_ends_with_its_consumer(client_factory, broker, topic, end):
    """A flush that waits for the rest of a batch raises AlreadyClosed at a close, before its timeout."""
    client = client_factory(broker)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    consumer = client.subscribe(topic, "s")
    for number in range(2):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    consumer.acknowledge(consumer.receive(10_000))
    flushing, flushed = _begin(lambda: consumer.flush_acks(confirm=True, timeout_ms=600_000))
    time.sleep(0.5)
    {"close": consumer.close, "client.close": client.close, "client.closing": client.shutdown}[end]()
    flushing.join(_WAIT_SECONDS)
    assert not flushing.is_alive()
    assert flushed == ["AlreadyClosed"]


def test_consumer_is_closed_although_its_close_raised(client_factory, broker, topic):
    """After a close without an answer of the broker, the consumer is closed, and its client drops it."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url, operation_timeout_seconds=1)
        consumer = client.subscribe(topic, "s")
        proxy.pause()
        assert _result(consumer.close) == "Timeout"
        assert _result(consumer.receive) == "AlreadyClosed"
        consumer.close()
        kept = weakref.ref(consumer)
        del consumer
        gc.collect()
        assert kept() is None
        proxy.resume()


@pytest.mark.parametrize("make", [official.schema.AvroSchema, AvroSchema])
def test_schemas_and_messages_keep_no_client_alive(broker, topic, make):
    """A dropped client is collected although the application keeps the schema object and a message."""
    schema = make(None, {"type": "record", "name": "P", "fields": [{"name": "a", "type": "string"}]})
    client = pulsar.Client(broker.service_url, **broker.client_options(pulsar))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    client.create_producer(topic, schema=schema).send({"a": "x"})
    message, kept = reader.read_next(10_000), weakref.ref(client)
    del client, reader
    assert eventually(lambda: gc.collect() >= 0 and kept() is None)
    assert message.data()


def _result(operation, *arguments):
    try:
        operation(*arguments)
    except Exception as error:  # noqa: BLE001  # the test checks its class
        return type(error).__name__
    return "returned"


def _begin(call):
    results = []
    thread = threading.Thread(target=lambda: results.append(_result(call)), daemon=True)
    thread.start()
    return thread, results
