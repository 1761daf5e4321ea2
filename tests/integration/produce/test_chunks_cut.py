"""Messages in chunks whose producer loses its connection amid them: without deduplication at least once."""

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
def behind_proxy(pulsar_fault_proxy, pulsar_client_factory, broker):
    """A client behind a proxy, and the proxy."""
    proxy = pulsar_fault_proxy(broker)
    return pulsar_client_factory(broker, service_url=proxy.service_url), proxy


def _received(broker, topic, wanted):
    """What an official consumer gets until all of those that are wanted have come."""
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
def test_what_a_cut_leaves_half_sent_comes(behind_proxy, broker, topic, options):
    """Ten connections are cut sooner and later amid a message of fifty chunks; the official client reads every one."""
    client, proxy = behind_proxy
    producer = client.create_producer(topic, chunking_enabled=True, **options)
    results = []
    for round_ in range(ROUNDS):
        producer.send_async(payload(round_, SIZE), lambda result, _: results.append(result))
        time.sleep(round_ * STEP_SECONDS)
        proxy.cut()
        assert eventually(lambda round_=round_: len(results) == round_ + 1)
    assert results == [pulsar.Result.Ok] * ROUNDS
    assert _received(broker, topic, set(range(ROUNDS)))


def test_what_a_killed_producer_left_half_sent_is_not_taken_for_the_next_ones(program, client, broker, topic):
    """On ten topics a process is killed sooner or later amid a message; that of the next of its name comes on each."""
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


def test_what_is_sent_again_comes_in_order(behind_proxy, broker, topic):
    """Forty messages with two cuts amid them are all confirmed, and come in order, leaving out what comes again."""
    client, proxy = behind_proxy
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
def test_what_is_sent_again_is_what_was_sent(behind_proxy, client, topic):
    """Key, properties, event time and sequence id are those of the send, whatever became of the objects since."""
    far, proxy = behind_proxy
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


def test_a_close_amid_a_lost_connection_fails_what_is_on_its_way(behind_proxy, topic):
    """With the broker out of reach, a close returns, and each message that waits for it has failed, once."""
    client, proxy = behind_proxy
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
def test_an_exclusive_producer_stays_one(behind_proxy, topic, mode):
    """Behind a cut it sends on, and nobody else may."""
    client, proxy = behind_proxy
    producer = client.create_producer(topic, chunking_enabled=True, access_mode=mode)
    results = []
    producer.send_async(payload(0, SIZE), lambda result, _: results.append(result))
    proxy.cut()
    assert eventually(lambda: results == [pulsar.Result.Ok])
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
