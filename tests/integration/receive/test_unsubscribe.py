"""Unsubscriptions during another thread's wait, and from several topics."""

from __future__ import annotations

import re
import threading

import pytest

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy


def test_unsubscribe_ends_batch_receive_of_several_topics(client, topic):
    """A thread that receives batches in a loop ends when its consumer of a pattern is unsubscribed, twenty times."""
    client.create_producer(f"{topic}-a").send(b"x")
    for number in range(20):
        consumer = client.subscribe(re.compile(f"{topic}-.*"), f"s{number}", receiver_queue_size=5)

        def receive(consumer=consumer):
            try:
                while True:
                    consumer.batch_receive()
            except pulsar.AlreadyClosed:
                pass

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        consumer.unsubscribe()
        thread.join(20)
        assert not thread.is_alive()


def test_unsubscribing_many_consumers_of_several_topics(client, topic):
    """A hundred consumers of a pattern or of partitions are unsubscribed in a row, and the process survives."""
    client.create_producer(f"{topic}-a").send(b"x")
    client.context.admin_api().create_partitioned_topic(f"{topic}-parts", 2)
    for number in range(100):
        what = f"{topic}-parts" if number % 2 else re.compile(f"{topic}-a.*")
        client.subscribe(what, f"s{number}").unsubscribe()
    assert client.context.admin_api().subscriptions(f"{topic}-a") == ()


def test_failed_unsubscribe_is_completed_on_all_topics(client_factory, broker, admin, topic):
    """An unsubscription completes although the broker closed the consumer for an operator's seek."""
    names = [f"{topic}-{number}" for number in range(2)]
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        client = client_factory(broker, service_url=proxy.service_url)
        consumer = client.subscribe(names, "s")
        proxy.pause("to_client")
        admin.reset_cursor(names[0], "s", "latest")
        healing = threading.Timer(1.0, proxy.heal)
        healing.start()
        consumer.unsubscribe()
        healing.join()
        with pytest.raises(pulsar.AlreadyClosed):
            consumer.receive(100)
        assert [admin.subscriptions(name) for name in names] == [(), ()]


def test_rejected_unsubscribe_keeps_the_consumer_open(client, topic):
    """With another consumer of a Shared subscription, an unsubscription raises, and the consumer keeps receiving."""
    names = [f"{topic}-{number}" for number in range(2)]
    one, other = (client.subscribe(names, "s", pulsar.ConsumerType.Shared) for _ in range(2))
    with pytest.raises(pulsar.UnknownError):
        one.unsubscribe()
    other.close()
    client.create_producer(names[0]).send(b"x")
    assert one.receive(10_000).data() == b"x"
    one.unsubscribe()
