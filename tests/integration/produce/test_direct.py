"""Single sends: full queues, empty keys, failing routers, an outage, and a broker restart."""

from __future__ import annotations

import threading

import pytest
from chunked import eventually
from programs import HANG_SECONDS
from stored import contents

import pulsar_ext as pulsar

BOTH_CLIENTS = True


@pytest.mark.parametrize("blocks", [True, False])
def test_full_chunked_queue_neither_deadlocks_nor_leaks(client, topic, blocks):
    """A blocking queue of 4 stores all of 60 chunked messages; a non-blocking one rejects some and accepts 4 more."""
    producer = client.create_producer(topic, chunking_enabled=True, block_if_queue_full=blocks, max_pending_messages=4)
    results = []
    for index in range(60):
        producer.send_async(b"%2d" % index * 100_000, lambda result, _: results.append(result))
    producer.flush()
    assert eventually(lambda: len(results) == 60)
    stored = results.count(pulsar.Result.Ok)
    assert stored == 60 if blocks else 4 <= stored < 60
    assert set(results) <= {pulsar.Result.Ok, pulsar.Result.ProducerQueueIsFull}
    for _ in range(4):
        producer.send_async(b"x" * 200_000, lambda result, _: results.append(result))
    producer.flush()
    assert eventually(lambda: results.count(pulsar.Result.Ok) == stored + 4)
    assert len(contents(client, topic)) == stored + 4


@pytest.mark.core
def test_empty_key_and_sequence_id_zero_reach_the_broker(client, topic):
    """`partition_key=''` and `sequence_id=0` reach the broker; the official client treats both as missing."""
    producer = client.create_producer(topic)
    message_id = producer.send(b"x", partition_key="", sequence_id=0)
    entry = client.context.admin_api().entry(topic, message_id.ledger_id(), message_id.entry_id())
    assert entry.partition_key == ""
    assert entry.sequence_id == 0
    assert producer.last_sequence_id() == 0


@pytest.mark.parametrize("intercepted", [False, True])
def test_send_many_waits_for_room(client, topic, intercepted):
    """Even without batching, where a full queue rejects messages, all are sent in order."""
    interceptors = [pulsar.ProducerInterceptor()] if intercepted else None
    producer = client.create_producer(topic, max_pending_messages=3, interceptors=interceptors)
    for _ in range(2):
        producer.send_async(b"another's", None)
    assert producer.send_many([b"%d" % number for number in range(300)]).messages == 300
    assert contents(client, topic)[2:] == [b"%d" % number for number in range(300)]


def test_send_many_on_closed_producer_raises(client, topic):
    """`send_many()` raises after a close, with batches and without, even with `flush=False`."""
    for batched in (False, True):
        producer = client.create_producer(topic, batching_enabled=batched)
        producer.close()
        for flush in (False, True):
            with pytest.raises(pulsar.AlreadyClosed):
                producer.send_many([b"x"], flush=flush)


def _exchange(client, topic, interrupt):
    """Send and receive forty messages, with an interruption after half of them: each arrives once."""
    consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
    sent, received = [], []

    def receive():
        while len(received) < 40:
            message = consumer.receive()
            consumer.acknowledge(message)
            if message.data() not in received:
                received.append(message.data())

    waiter = threading.Thread(target=receive, daemon=True)
    waiter.start()
    for index in range(40):
        if index == 20:
            interrupt()
        sent.append(b"%d" % index)
        producer.send(sent[-1])
    waiter.join(HANG_SECONDS)
    assert received == sent


@pytest.mark.core
def test_messages_arrive_after_an_outage(pulsar_fault_proxy, client_factory, broker, topic):
    """A receive that waits while no connection is possible continues; all acknowledged sends arrive once."""
    proxy = pulsar_fault_proxy(broker)

    def interrupt():
        proxy.refuse()
        proxy.cut()
        threading.Timer(0.5, proxy.accept).start()

    _exchange(client_factory(broker, service_url=proxy.service_url), topic, interrupt)


@pytest.mark.twin_on_demand
def test_messages_arrive_after_broker_restart(pulsar_own_broker, client_factory):
    """A receive that waits during kill -9 and restart of the broker continues; all acknowledged sends arrive once."""
    broker = pulsar_own_broker("plain")

    def interrupt():
        broker.kill()
        broker.restart()

    _exchange(client_factory(broker), "persistent://public/default/restart", interrupt)


@pytest.mark.core
@pytest.mark.parametrize("answer", ["None", "'a'", "1 / 0", "-1", "99"])
def test_failing_router_fails_only_its_message(program, client, pulsar_topic_factory, broker, answer):
    """A router that raises or returns an invalid partition fails that send; the process stays usable."""
    parent = pulsar_topic_factory(partitions=2, broker=broker)
    done = program(
        f"""
        import logging
        logging.disable(logging.CRITICAL)
        client = connect()
        producer = client.create_producer({parent!r}, message_router=lambda message, count: {answer})
        try:
            producer.send(b"x")
        except pulsar.PulsarException as error:
            print(type(error).__name__)
        client.close()
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "UnknownError"
