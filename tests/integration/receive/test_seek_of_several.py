"""Seeks of a consumer of several topics that fail on more than one of them."""

from __future__ import annotations

import threading
import time

import pytest
from acked import send_plain
from chunked import index_of

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy


@pytest.mark.through
def test_failed_seek_on_several_topics_is_retried(program, broker):
    """Connections lost while seeks to ends and to times are in flight cause no error, and the process survives."""
    done = program(
        """
        with reach.proxy() as proxy:
            client = connect(proxy.service_url)
            topics = [f"{topic}-{letter}" for letter in "abc"]
            consumer = client.subscribe(topics, "s", initial_position=EARLIEST)
            for target in (pulsar.MessageId.earliest, 1, pulsar.MessageId.latest):
                while not consumer.is_connected():
                    time.sleep(0.05)
                proxy.pause()
                raised = []
                def seek():
                    try:
                        consumer.seek(target)
                    except pulsar.PulsarException as error:
                        raised.append(error)
                thread = threading.Thread(target=seek)
                thread.start()
                time.sleep(0.5)
                proxy.cut()
                proxy.resume()
                thread.join()
                assert not raised, raised
                time.sleep(0.5)  # in which the second answer comes
            with connect() as other:
                other.create_producer(topics[1]).send(b"x")
            consumer.seek(pulsar.MessageId.earliest)
            assert consumer.receive(10000).data() == b"x"
            client.close()
        print("went on")
        """
    )
    assert done.stdout.splitlines()[-1:] == ["went on"], done.stderr[-2000:]


def test_seek_is_retried_while_other_topics_are_in_flight(program, broker):
    """With thirty topics the first failure is reported while other seeks are in flight; ten cuts cause no error."""
    done = program(
        """
        with reach.proxy() as proxy:
            client = connect(proxy.service_url)
            consumer = client.subscribe([f"{topic}-{number}" for number in range(30)], "s")
            raised = []
            def seek():
                try:
                    consumer.seek(pulsar.MessageId.earliest)
                except pulsar.PulsarException as error:
                    raised.append(error)
            for _ in range(10):
                while not consumer.is_connected():
                    time.sleep(0.02)
                proxy.pause()
                thread = threading.Thread(target=seek)
                thread.start()
                time.sleep(0.3)
                proxy.cut()
                proxy.resume()
                thread.join()
            assert not raised, raised
            client.close()
        print("went on")
        """
    )
    assert done.stdout.splitlines()[-1:] == ["went on"], done.stderr[-2000:]


@pytest.mark.parametrize("topics", [1, 2])
def test_seek_waits_for_a_consumer_closed_by_the_broker(client_factory, broker, admin, topic, topics):
    """A seek succeeds although the broker closed the consumer for an operator's seek that the client missed."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url)
        names = [f"{topic}-{number}" for number in range(topics)]
        consumer = client.subscribe(
            names if topics > 1 else names[0], "s", initial_position=pulsar.InitialPosition.Earliest
        )
        send_plain(client, names[0], 3)
        assert index_of(consumer.receive(10_000)) == 0
        proxy.pause("to_client")
        admin.reset_cursor(names[0], "s", "latest")
        healing = threading.Timer(1.0, proxy.heal)
        healing.start()
        consumer.seek(pulsar.MessageId.earliest)
        healing.join()
        assert [index_of(consumer.receive(10_000)) for _ in range(3)] == [0, 1, 2]


def test_seeks_and_is_connected_run_concurrently(client_factory, broker, topic):
    """Seeks that succeed and fail, and threads that call is_connected() continuously, all end."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url)
        consumer = client.subscribe([f"{topic}-{number}" for number in range(8)], "s")
        stop = threading.Event()

        def ask():
            while not stop.is_set():
                consumer.is_connected()

        def cut():
            while not stop.is_set():
                proxy.cut()
                time.sleep(0.3)

        def seek():
            deadline = time.monotonic() + 4
            while time.monotonic() < deadline:
                try:
                    consumer.seek(pulsar.MessageId.earliest)
                except pulsar.PulsarException:
                    time.sleep(0.01)

        threads = [threading.Thread(target=one, daemon=True) for one in (ask, ask, cut, seek)]
        for thread in threads:
            thread.start()
        threads[-1].join(60)
        stop.set()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
