"""Loops at full speed: shared by threads, inside callbacks, closed, interrupted and disconnected."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading
import time
from collections import deque

import pytest
from chunked import eventually, index_of, payload
from interrupted import interruptions
from prefetched import fetch_ahead, fill

import pulsar_ext as pulsar
from pulsar_ext.receive.prefetch import Prefetch

SHARED = pulsar.ConsumerType.Shared
EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}


@pytest.mark.core
def test_threads_share_prefetched_messages(client, topic):
    """Six threads, two of each kind, receive each message once."""
    count = 20_000
    consumer = client.subscribe(topic, "s", SHARED, receiver_queue_size=count)
    fill(client, topic, count)
    got = [[] for _ in range(6)]

    def iterate(mine):
        for message in consumer:
            mine.append(message)

    def receive_many(mine):
        with contextlib.suppress(pulsar.AlreadyClosed):
            while True:
                mine += consumer.receive_many(40)

    def receive(mine):
        with contextlib.suppress(pulsar.AlreadyClosed):
            while True:
                mine.append(consumer.receive())

    kinds = (iterate, receive_many, receive)
    threads = [threading.Thread(target=kinds[at % 3], args=(got[at],)) for at in range(6)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: sum(map(len, got)) >= count)
    consumer.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(index_of(message) for mine in got for message in mine) == list(range(count))


def test_send_callback_may_receive_at_full_speed(client, topic):
    """A fetch does not depend on the thread that runs the callback, also a fetch of few messages."""
    count, got = 1_010, []
    consumer = client.subscribe(topic, "s", receiver_queue_size=2_000)
    fill(client, topic, count)
    assert eventually(lambda: consumer.receive_many(10, 1_000))
    time.sleep(0.5)

    def callback(*_):
        while len(got) < count - 10:
            got.append(index_of(consumer.receive()))

    producer = client.create_producer(topic + "-other")
    producer.send_async(b"", callback)
    assert eventually(lambda: len(got) == count - 10)
    assert got == list(range(10, count))


def test_waiting_listener_does_not_stop_a_loop(client, topic):
    """A listener of the same client that waits for the end of a loop does not block the loop."""
    begun, done = threading.Event(), threading.Event()
    in_time = []

    def listener(*_):
        begun.set()
        in_time.append(done.wait(30))

    client.subscribe(topic + "-heard", "s", message_listener=listener)
    client.create_producer(topic + "-heard").send(b"")
    assert begun.wait(30)
    consumer = client.subscribe(topic, "s", receiver_queue_size=40_000)
    fill(client, topic, 20_000)
    for count, _ in enumerate(consumer, 1):
        if count == 20_000:
            break
    done.set()
    assert eventually(lambda: in_time == [True])


@pytest.mark.parametrize("how", ["receive", "loop"])
@pytest.mark.parametrize("closes", ["consumer", "client", "shutdown"])
def test_close_ends_a_loop_at_full_speed(client_factory, broker, topic, closes, how):
    """A loop ends each of twenty times when another thread closes its consumer or client."""
    fill(client_factory(broker), topic, 20_000)
    for index in range(20):
        client = client_factory(broker)
        consumer = client.subscribe(topic, f"s{index}", receiver_queue_size=20_000, **EARLIEST)
        got, failed = [], []

        def loop(consumer=consumer, got=got, failed=failed):
            try:
                got.extend(consumer if how == "loop" else iter(consumer.receive, None))
            except pulsar.AlreadyClosed as error:
                failed.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        assert eventually(lambda least=1_000 + 100 * index, got=got: len(got) > least)
        {"consumer": consumer.close, "client": client.close, "shutdown": client.shutdown}[closes]()
        thread.join(20)
        assert not thread.is_alive()
        if closes == "consumer":
            assert bool(failed) == (how == "receive")


@pytest.mark.parametrize("closes", ["consumer", "client"])
def test_close_in_a_signal_handler_ends_a_loop(client_factory, broker, topic, closes):
    """A handler that closes the consumer or client of the interrupted thread ends its loop, a hundred times."""
    client = client_factory(broker)
    fill(client, topic, 50_000)
    inside = 0
    for index in range(100):
        own = client_factory(broker) if closes == "client" else client
        consumer = own.subscribe(topic, f"s{index}", receiver_queue_size=50_000, **EARLIEST)
        assert index_of(consumer.receive(10_000)) == 0

        def close(*_, closing=own if closes == "client" else consumer):
            nonlocal inside
            frame = sys._getframe(1)
            while frame is not None:
                inside += frame.f_code is Prefetch.fetch.__code__
                frame = frame.f_back
            closing.close()

        previous = signal.signal(signal.SIGALRM, close)
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))
            with pytest.raises(pulsar.AlreadyClosed):
                deque(iter(consumer.receive, None), 0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
    assert inside


def take(messages, received, count):
    """Receive messages; a separate function, as an `except` around its loop may miss a signal from CPython 3.12 on."""
    for message in messages:
        received.append(message)
        if len(received) == count:
            break


@pytest.mark.parametrize("how", ["receive", "loop", "many", "batch"])
def test_ctrl_c_at_full_speed_loses_no_message(client, topic, how):
    """With a Ctrl-C every 10 ms, 200,000 messages received at full speed arrive once each, in order."""
    count = 200_000
    consumer = client.subscribe(topic, "s", receiver_queue_size=50_000)
    fill(client, topic, count)
    received, interrupted = [], 0
    with interruptions() as waiting:
        while len(received) < count:
            came = None  # stored by the next instruction, so that the test itself loses no message
            try:
                waiting[:] = [True]
                if how in ("receive", "loop"):
                    take(consumer if how == "loop" else iter(consumer.receive, None), received, count)
                elif how == "many":
                    came = consumer.receive_many(90)
                else:
                    came = consumer.batch_receive()
            except KeyboardInterrupt:
                interrupted += 1
            del waiting[:]
            received += came or ()
    assert [index_of(message) for message in received] == list(range(count))
    assert interrupted


def test_partitions_and_several_topics_are_prefetched(client, pulsar_topic_factory, broker):
    """Messages of three partitions and another topic arrive once each, those of a partition in order."""
    parted, other = pulsar_topic_factory(partitions=3, broker=broker), pulsar_topic_factory(broker=broker)
    consumer = client.subscribe([parted, other], "s")
    fill(client, parted, 3_000)
    fill(client, other, 1_000, start=3_000)
    fetch_ahead(consumer)
    got = []
    for message in consumer:
        got.append(message)
        if len(got) == 4_000:
            break
    assert sorted(map(index_of, got)) == list(range(4_000))
    for topic in {message.topic_name() for message in got}:
        of_one = [index_of(message) for message in got if message.topic_name() == topic]
        assert of_one == sorted(of_one)
    consumer.acknowledge_many(got)
    consumer.flush_acks(confirm=True)
    assert consumer.receive_many(1, 200) == []


@pytest.mark.parametrize("how", ["receive", "loop"])
def test_cut_connections_lose_no_message_at_full_speed(client_factory, pulsar_fault_proxy, broker, topic, admin, how):
    """Ten cut connections during a loop lose no message, and all acknowledgements reach the cursor."""
    count = 100_000
    fill(client_factory(broker), topic, count)
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", **EARLIEST)
    seen, cuts = set(), 0
    for message in consumer if how == "loop" else iter(consumer.receive, None):
        seen.add(index_of(message))
        consumer.acknowledge(message)
        if len(seen) == count:
            break
        if len(seen) > (cuts + 1) * count // 10:
            cuts += proxy.cut() > 0
    consumer.flush_acks(confirm=True)
    assert cuts
    assert seen == set(range(count))
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0


@pytest.mark.parametrize("how", ["receive", "loop", "many"])
def test_acknowledged_messages_are_received_once(client_factory, pulsar_fault_proxy, broker, topic, how):
    """With ten cut connections, no message that was acknowledged at once is received a second time."""
    count, got, cuts = 60_000, [], 0
    fill(client_factory(broker), topic, count, size=10)
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", **EARLIEST)
    receive = consumer.receive if how == "receive" else iter(consumer).__next__
    while len(got) < count:
        messages = consumer.receive_many(50) if how == "many" else [receive()]
        messages = list(
            {index_of(one): one for one in messages}.values()
        )  # a list may have one again: not acknowledged
        consumer.acknowledge_many(messages)
        got += map(index_of, messages)
        if len(got) > (cuts + 1) * count // 11:
            cuts += proxy.cut() > 0
    assert cuts
    assert got == list(range(count))


@pytest.mark.core
def test_batch_receive_without_a_policy(client, topic):
    """Without a policy a batch contains what arrives in 100 ms, up to 10 MB; the next one contains the rest."""
    consumer = client.subscribe(topic, "s")
    assert consumer.batch_receive() == []
    producer = client.create_producer(topic)
    for index in range(300):
        producer.send_async(payload(index, 90_000), None)
    producer.flush()
    got = []
    while len(got) < 300:
        batch = consumer.batch_receive()
        assert sum(len(message.data()) for message in batch) <= 10 << 20
        got += batch
    assert [index_of(message) for message in got] == list(range(300))
    fill(client, topic, 600)
    got = consumer.batch_receive()
    while len(got) < 600:
        got += consumer.batch_receive()
    assert [index_of(message) for message in got] == list(range(600))
