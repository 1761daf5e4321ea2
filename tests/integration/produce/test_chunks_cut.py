"""Chunked messages whose producer loses its connection while sending: at least once without deduplication."""

from __future__ import annotations

import time

import pulsar as official
import pytest
from chunked import eventually, index_of, payload
from reach import official_client

import pulsar_ext as pulsar

ROUNDS, SIZE = 10, 5_000_000
STEP_SECONDS = 0.003


@pytest.fixture
def client_and_proxy(pulsar_fault_proxy, pulsar_client_factory, broker):
    """Return a client that connects through a proxy, and the proxy."""
    proxy = pulsar_fault_proxy(broker)
    return pulsar_client_factory(broker, service_url=proxy.service_url), proxy


def _received(broker, topic, wanted):
    """Return the messages that an official consumer receives until it has all wanted ones."""
    client = official_client(broker)
    try:
        reader = client.create_reader(topic, official.MessageId.earliest)
        found = []
        while not wanted <= set(found):
            found.append(index_of(reader.read_next(5_000)))
        return found
    finally:
        client.close()


@pytest.mark.core
@pytest.mark.parametrize("options", [{}, {"producer_name": "p"}, {"producer_name": "p", "send_timeout_millis": 0}])
def test_chunked_messages_survive_connection_loss(client_and_proxy, broker, topic, options):
    """The official client reads all of ten messages of fifty chunks whose connection was cut at different times."""
    client, proxy = client_and_proxy
    producer = client.create_producer(topic, chunking_enabled=True, **options)
    results = []
    for round_ in range(ROUNDS):
        producer.send_async(payload(round_, SIZE), lambda result, _: results.append(result))
        time.sleep(round_ * STEP_SECONDS)
        proxy.cut()
        assert eventually(lambda round_=round_: len(results) == round_ + 1)
    assert results == [pulsar.Result.Ok] * ROUNDS
    assert _received(broker, topic, set(range(ROUNDS)))


def test_chunks_of_a_killed_producer_do_not_mix_with_new_ones(program, client, broker, topic):
    """On ten topics, a message sent after a process of this producer name was killed while sending arrives."""
    for round_ in range(ROUNDS):
        killed = program(
            f"""
            import os, threading
            client = connect()
            producer = client.create_producer("{topic}-{round_}", "p", chunking_enabled=True)
            producer.send_async(b"7." * {SIZE // 2}, None)
            threading.Timer({STEP_SECONDS * round_}, os.kill, (os.getpid(), 9)).start()
            producer.flush()
            """
        )
        assert killed.returncode == -9
    for round_ in range(ROUNDS):
        client.create_producer(f"{topic}-{round_}", "p", chunking_enabled=True).send(payload(0, SIZE))
        assert _received(broker, f"{topic}-{round_}", {0})[-1] == 0


def test_resent_chunked_messages_keep_order(client_and_proxy, broker, topic):
    """Forty messages with two connection cuts are all confirmed, and arrive in order apart from redeliveries."""
    client, proxy = client_and_proxy
    producer = client.create_producer(topic, chunking_enabled=True)
    results = []
    for index in range(40):
        producer.send_async(payload(index, 200_000), lambda result, _: results.append(result))
        if index in {10, 30}:
            proxy.cut()
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * 40
    assert list(dict.fromkeys(_received(broker, topic, set(range(40))))) == list(range(40))


@pytest.mark.through
def test_resent_message_keeps_its_options(client_and_proxy, client, topic):
    """A resent message has the options of the send, even if their objects were changed since."""
    far, proxy = client_and_proxy
    consumer = client.subscribe(topic, "s")
    producer = far.create_producer(topic, chunking_enabled=True)
    properties = {"a": "1"}
    producer.send_async(
        payload(1, SIZE), None, properties, partition_key="k", event_timestamp=7, sequence_id=3, ordering_key="o"
    )
    properties["a"] = "2"
    proxy.cut()
    producer.flush()
    message = consumer.receive(10_000)
    assert index_of(message) == 1
    assert (message.properties(), message.partition_key(), message.event_timestamp()) == ({"a": "1"}, "k", 7)
    assert message.ordering_key() == "o"
    assert producer.last_sequence_id() == 3


def test_close_while_disconnected_fails_pending_messages(client_and_proxy, topic):
    """While the broker is unreachable, a close returns, and each pending message fails once."""
    client, proxy = client_and_proxy
    producer = client.create_producer(topic, chunking_enabled=True)
    results = []
    proxy.refuse()
    proxy.cut()
    for index in range(5):
        producer.send_async(payload(index, 200_000), lambda result, _: results.append(result))
    time.sleep(ROUNDS * STEP_SECONDS * 10)  # the C++ producer is being replaced
    producer.close()
    assert eventually(lambda: len(results) == 5)
    assert set(results) == {pulsar.Result.AlreadyClosed}


@pytest.mark.parametrize("mode", [pulsar.ProducerAccessMode.Exclusive, pulsar.ProducerAccessMode.WaitForExclusive])
def test_exclusive_producer_stays_exclusive(client_and_proxy, topic, mode):
    """After a connection cut the producer sends on, and no other producer may open."""
    client, proxy = client_and_proxy
    producer = client.create_producer(topic, chunking_enabled=True, access_mode=mode)
    results = []
    producer.send_async(payload(0, SIZE), lambda result, _: results.append(result))
    proxy.cut()
    assert eventually(lambda: results == [pulsar.Result.Ok])
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
