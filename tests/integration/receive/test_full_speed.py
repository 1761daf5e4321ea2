"""Loops at full speed: shared by threads, inside callbacks, closed, interrupted and cut off."""

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
from pulsar_ext.receive.many import Prefetch

SHARED = pulsar.ConsumerType.Shared
EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}


@pytest.mark.core
def test_threads_share_what_is_ahead(client, topic):
    """Six threads, each two of which do the same: each message is received once, by one of them."""
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


def test_a_send_callback_may_receive_at_full_speed(client, topic):
    """A fetch does not depend on the thread that the callback runs on, also one of few messages."""
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


def test_a_listener_that_waits_for_the_loop_does_not_stop_it(client, topic):
    """A listener of the same client that returns only when all was iterated: nothing depends on its thread."""
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
def test_a_close_ends_a_loop_at_full_speed(client_factory, broker, topic, closes, how):
    """Closed by another thread in the midst of it, twenty times: the loop always ends."""
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
def test_a_signal_whose_handler_closes_ends_a_loop_at_full_speed(client_factory, broker, topic, closes):
    """The handler closes what this very thread receives from, wherever it is just then, a hundred times."""
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
    """Take messages; apart, for behind its jump back CPython 3.12 and later would miss an `except` round the loop."""
    for message in messages:
        received.append(message)
        if len(received) == count:
            break


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a Ctrl-C inside a weakref's callback
@pytest.mark.parametrize("how", ["receive", "loop", "many", "batch"])
def test_a_ctrl_c_at_full_speed_loses_no_message(client, topic, how):
    """A Ctrl-C every 10 ms while 200,000 messages are received as fast as they come: each comes once, in order."""
    count = 200_000
    consumer = client.subscribe(topic, "s", receiver_queue_size=50_000)
    fill(client, topic, count)
    received, interrupted = [], 0
    with interruptions() as waiting:
        while len(received) < count:
            came = None  # stored by the very next instruction: what this test drops itself is not what it looks for
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


def test_partitions_and_several_topics_are_fetched_ahead_too(client, pulsar_topic_factory, broker):
    """Each message of three partitions and another topic comes once, those of a partition in order."""
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
def test_connections_cut_under_a_loop_at_full_speed(client_factory, pulsar_fault_proxy, broker, topic, admin, how):
    """Ten times in the midst of it: no message is lost, and what was acknowledged is on the cursor."""
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


@pytest.mark.core
def test_batch_receive_without_a_policy_gives_what_comes_in_its_time(client, topic):
    """As officially: nothing after 100 ms, otherwise what is there; 10 MB at most, and the next call has the rest."""
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
