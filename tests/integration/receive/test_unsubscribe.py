"""Unsubscriptions: while another thread waits, and from several topics."""

from __future__ import annotations

import re
import threading

import pytest

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy


def test_nobody_waits_for_a_batch_of_several_topics_behind_an_unsubscription(client, topic):
    """Twenty consumers of a pattern that are unsubscribed while a thread receives batches of them in a loop."""
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


def test_no_answer_overtakes_the_unsubscription_from_several_topics(client, topic):
    """A hundred consumers, of a pattern and of partitions, are unsubscribed in a row: the process lives on."""
    client.create_producer(f"{topic}-a").send(b"x")
    client.context.admin_api().create_partitioned_topic(f"{topic}-parts", 2)
    for number in range(100):
        what = f"{topic}-parts" if number % 2 else re.compile(f"{topic}-a.*")
        client.subscribe(what, f"s{number}").unsubscribe()
    assert client.context.admin_api().subscriptions(f"{topic}-a") == ()


def test_an_unsubscription_that_fails_on_one_of_several_topics_is_carried_out_on_all(
    client_factory, broker, admin, topic
):
    """An operator moves a cursor, for which the broker closes the consumer; it is unsubscribed before it knows that."""
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


def test_an_unsubscription_from_several_topics_that_is_refused_says_so(client, topic):
    """Another consumer of a Shared subscription is there: an error, and it goes on receiving."""
    names = [f"{topic}-{number}" for number in range(2)]
    one, other = (client.subscribe(names, "s", pulsar.ConsumerType.Shared) for _ in range(2))
    with pytest.raises(pulsar.UnknownError):
        one.unsubscribe()
    other.close()
    client.create_producer(names[0]).send(b"x")
    assert one.receive(10_000).data() == b"x"
    one.unsubscribe()
