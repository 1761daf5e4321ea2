"""What a consumer says behind the end of its client: AlreadyClosed, whatever the C++ consumer takes itself for."""

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
def test_every_operation_is_refused_behind_the_end_of_the_client(client_factory, broker, topic, end, kind):
    """Whatever is done with a consumer whose client has ended raises AlreadyClosed, after an unsubscription as well."""
    client = client_factory(broker)
    send_plain(client, topic, 3)
    consumer = client.subscribe(topic, "s", consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest)
    message = consumer.receive(10_000)
    getattr(client, end)()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.unsubscribe()
    assert list(consumer) == []
    said = {name: _said(operation, consumer, message) for name, operation in _OPERATIONS.items()}
    if kind == pulsar.ConsumerType.Shared:
        assert said.pop("acknowledge_cumulative") == "CumulativeAcknowledgementNotAllowedError"
    assert set(said.values()) == {"AlreadyClosed"}, said


@pytest.mark.parametrize("end", ["close", "shutdown"])
def test_a_receive_that_waits_ends_though_an_unsubscription_meets_the_end(client_factory, broker, topic, end):
    """A thread receives without a timeout while an unsubscription meets the end of the client: AlreadyClosed."""
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
def test_a_confirmed_flush_ends_with_what_flushes(client_factory, broker, topic, end):
    """A flush that waits for the rest of a batch, and a close on another thread: AlreadyClosed, not the whole wait."""
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


def test_a_consumer_is_closed_though_its_close_raised(client_factory, broker, topic):
    """A close that the broker does not answer raises; the consumer is closed, and its client keeps it no longer."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url, operation_timeout_seconds=1)
        consumer = client.subscribe(topic, "s")
        proxy.pause()
        assert _said(consumer.close) == "Timeout"
        assert _said(consumer.receive) == "AlreadyClosed"
        consumer.close()
        kept = weakref.ref(consumer)
        del consumer
        gc.collect()
        assert kept() is None
        proxy.resume()


@pytest.mark.parametrize("make", [official.schema.AvroSchema, AvroSchema])
def test_a_schema_or_a_message_keeps_no_client(broker, topic, make):
    """A client that was dropped is collected, though the application keeps the schema object and a message."""
    schema = make(None, {"type": "record", "name": "P", "fields": [{"name": "a", "type": "string"}]})
    client = pulsar.Client(broker.service_url, **broker.client_options(pulsar))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    client.create_producer(topic, schema=schema).send({"a": "x"})
    message, kept = reader.read_next(10_000), weakref.ref(client)
    del client, reader
    assert eventually(lambda: gc.collect() >= 0 and kept() is None)
    assert message.data()


def _said(operation, *arguments):
    try:
        operation(*arguments)
    except Exception as error:  # noqa: BLE001  # which one is what the test is about
        return type(error).__name__
    return "returned"


def _begin(call):
    said = []
    thread = threading.Thread(target=lambda: said.append(_said(call)), daemon=True)
    thread.start()
    return thread, said
